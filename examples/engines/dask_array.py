"""Dask: a library over the blocks of an array, on the workers of a cluster.

python examples/engines/dask_array.py digits.so                                    # on processes of this machine
python examples/engines/dask_array.py digits.so --scheduler tcp://10.0.0.1:8786    # or DASK_SCHEDULER_ADDRESS
"""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import dask.array
import numpy as np
from dask.distributed import Client, Worker, WorkerPlugin, get_worker
from job import Job, batch_size, images, job_of, report

import nnefc


class LoadNetwork(WorkerPlugin):
    """Brings the library to each worker once, also to those that join later or are started again."""

    name = "nnefc-network"

    def __init__(self, content: bytes) -> None:
        self._content = content

    def setup(self, worker: Worker) -> None:
        """Loads the library, with a session for each thread of the worker."""
        model = nnefc.load(self._content, threads=1)
        worker.network = nnefc.SessionPool(model, worker.state.nthreads, takes_model=True)

    def teardown(self, worker: Worker) -> None:
        """Unloads it."""
        worker.network.close()


def classify(batch: np.ndarray, pause: float) -> np.ndarray:
    """The digits of a block, [n, 1, 8, 8] to [n, 2]: each, and the process that computed it, as texts."""
    time.sleep(pause)
    digits = get_worker().network(np.ascontiguousarray(batch)).argmax(1)
    return np.stack([digits.astype(str), np.full(len(digits), f"{socket.gethostname()}:{os.getpid()}")], 1)


def connect(cluster: str | None) -> Client:
    """Connects to a scheduler, or starts one with a process for each core."""
    return Client(cluster) if cluster else Client(threads_per_worker=1, dashboard_address=None)


def main(job: Job, client: Client) -> None:
    client.register_plugin(LoadNetwork(job.library.read_bytes()))
    rows = images(job.copies)
    size = batch_size(len(rows), max(1, sum(client.nthreads().values())), job.library)
    blocks = dask.array.from_array(rows, chunks=(size, 1, 8, 8))
    found: Any = blocks.map_blocks(
        classify, job.pause, drop_axis=(1, 2, 3), new_axis=1, chunks=(blocks.chunks[0], (2,)), dtype="U64"
    ).compute()
    report("Dask", np.arange(len(found)), found[:, 0].astype(np.int64), set(found[:, 1]), job.copies)


if __name__ == "__main__":
    given = job_of("--scheduler", "DASK_SCHEDULER_ADDRESS", "the scheduler's address")
    with connect(given.cluster) as client:
        main(given, client)
