"""Dask: a library over the blocks of an array, in processes.

python examples/engines/dask_array.py digits.so
"""

from __future__ import annotations

import sys
from pathlib import Path

import dask.array
import numpy as np
from dask.distributed import Client, LocalCluster, get_worker
from held_back import images, tell

import nnefc


def classify(batch: np.ndarray, library: str) -> np.ndarray:
    """The digits of a block, [n, 1, 8, 8] to [n]."""
    worker = get_worker()
    if not hasattr(worker, "network"):  # the library is loaded once in each process
        worker.network = nnefc.load(library, threads=1)
    return worker.network(np.ascontiguousarray(batch)).argmax(1)


def main(library: str) -> None:
    blocks = dask.array.from_array(images(), chunks=(50, 1, 8, 8))
    digits = blocks.map_blocks(classify, str(Path(library).resolve()), drop_axis=(1, 2, 3), dtype=np.int64)
    tell("Dask", digits.compute())


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        main(sys.argv[1])
