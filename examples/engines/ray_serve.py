"""Ray Serve: a library in replicas on the nodes of a cluster, which answer single images in batches.

python examples/engines/ray_serve.py digits.so                             # on this machine
python examples/engines/ray_serve.py digits.so --address 10.0.0.1:6379     # or RAY_ADDRESS
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence

import batches
import numpy as np
import ray
from job import Job, images, job_of, report
from ray import cloudpickle, serve
from ray.exceptions import RayError
from ray_data import connect

import nnefc

PATIENCE = 60
"""Seconds in which an image is sent again after the loss of its replica: a cluster takes some to notice it."""
BATCH = 32
cloudpickle.register_pickle_by_value(batches)  # this file and that one are on the machine of the program alone


@serve.deployment(ray_actor_options={"num_cpus": 0.5}, max_ongoing_requests=128)
class Digits:
    """One session; requests that wait at the same time run together."""

    def __init__(self, library: list[ray.ObjectRef], pause: float) -> None:
        self.model = nnefc.load(ray.get(library[0]), threads=1)
        self.pause = pause
        self.batches = batches.Batches(self.classify, BATCH)

    async def classify(self, images: Sequence[np.ndarray]) -> list[tuple[int, str]]:
        await asyncio.sleep(self.pause)
        probability = await asyncio.to_thread(self.model, np.stack(images))
        return [(int(digit), f"{socket.gethostname()}:{os.getpid()}") for digit in probability.argmax(1)]

    async def __call__(self, image: np.ndarray) -> tuple[int, str]:
        return await self.batches.answer(image)


async def answered(
    handle: serve.handle.DeploymentHandle, image: np.ndarray, room: asyncio.Semaphore
) -> tuple[int, str]:
    """Asks when there is room, and again if the replica or its node is lost: another one answers, or a new one."""
    async with room:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return await handle.remote(image)
            except RayError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.5)


async def main(job: Job, cores: int) -> None:
    library = ray.put(job.library.read_bytes())
    handle = serve.run(Digits.options(num_replicas=cores).bind([library], job.pause), route_prefix=None)
    rows = images(job.copies)
    room = asyncio.Semaphore(BATCH * cores)  # a batch for each replica
    answers = await asyncio.gather(*(answered(handle, image, room) for image in rows))
    digits = np.array([digit for digit, _ in answers])
    report("Ray Serve", np.arange(len(rows)), digits, {process for _, process in answers}, job.copies)


if __name__ == "__main__":
    given = job_of("--address", "RAY_ADDRESS", "the address of the head node, or auto")
    number = connect(given.cluster)
    serve.start(proxy_location="Disabled")
    asyncio.run(main(given, number))
    serve.shutdown()
    ray.shutdown()
