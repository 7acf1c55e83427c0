"""Ray Data: a library in actors on the nodes of a cluster, each with batches of its own.

python examples/engines/ray_data.py digits.so                             # on this machine
python examples/engines/ray_data.py digits.so --address 10.0.0.1:6379     # or RAY_ADDRESS
"""

from __future__ import annotations

import os
import socket
import time

import numpy as np
import ray
from job import Job, batch_size, images, job_of, report

import nnefc


class Classifier:
    """Lives in an actor: the library is loaded once. Its bytes are in Ray's object store, once on each node."""

    def __init__(self, library: ray.ObjectRef, pause: float) -> None:
        self.model = nnefc.load(ray.get(library), threads=1)
        self.pause = pause

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        time.sleep(self.pause)
        probability = self.model(np.ascontiguousarray(batch["image"], np.float32))
        process = np.full(len(probability), f"{socket.gethostname()}:{os.getpid()}")
        return {"number": batch["number"], "digit": probability.argmax(1), "process": process}


def connect(cluster: str | None) -> int:
    """Connects to a cluster, or starts one of this machine; returns how many cores it has."""
    ray.init(address=cluster or "local", log_to_driver=False, **({} if cluster else {"include_dashboard": False}))
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def main(job: Job, cores: int) -> None:
    rows = images(job.copies)
    size = batch_size(len(rows), cores, job.library)
    items = [{"number": number, "image": image} for number, image in enumerate(rows)]
    data = ray.data.from_items(items, override_num_blocks=-(-len(items) // size))
    answers = data.map_batches(
        Classifier,
        fn_constructor_args=(ray.put(job.library.read_bytes()), job.pause),
        batch_size=size,
        compute=ray.data.ActorPoolStrategy(size=cores),
        num_cpus=0.5,  # so that what is left of the cluster has room for the actors of a node that is lost
        scheduling_strategy="SPREAD",
    )
    found = answers.to_pandas()  # rows in any order
    report("Ray Data", found["number"].to_numpy(), found["digit"].to_numpy(), set(found["process"]), job.copies)


if __name__ == "__main__":
    given = job_of("--address", "RAY_ADDRESS", "the address of the head node, or auto")
    main(given, connect(given.cluster))
    ray.shutdown()
