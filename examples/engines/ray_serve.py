"""Ray Serve: a library in replicas on the nodes of a cluster, which answer single images in batches.

python examples/engines/ray_serve.py digits.so                             # on this machine
python examples/engines/ray_serve.py digits.so --address 10.0.0.1:6379     # or RAY_ADDRESS
"""

from __future__ import annotations

import asyncio
import os
import socket

import numpy as np
import ray
from job import Job, images, job_of, report
from ray import serve
from ray.exceptions import RayError
from ray_data import connect

import nnefc

TRIES = 5
BATCH = 32


@serve.deployment(ray_actor_options={"num_cpus": 0.5}, max_ongoing_requests=128)
class Digits:
    """One session; requests that wait at the same time run together."""

    def __init__(self, library: list[ray.ObjectRef], pause: float) -> None:
        self.model = nnefc.load(ray.get(library[0]), threads=1)
        self.pause = pause

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.01)
    async def classify(self, images: list[np.ndarray]) -> list[tuple[int, str]]:
        await asyncio.sleep(self.pause)
        probability = await asyncio.to_thread(self.model, np.stack(images))
        return [(int(digit), f"{socket.gethostname()}:{os.getpid()}") for digit in probability.argmax(1)]

    async def __call__(self, image: np.ndarray) -> tuple[int, str]:
        return await self.classify(image)


async def answered(
    handle: serve.handle.DeploymentHandle, image: np.ndarray, room: asyncio.Semaphore
) -> tuple[int, str]:
    """Asks when there is room, and again if the replica or its node is lost: another one answers, or a new one."""
    async with room:
        for left in reversed(range(TRIES)):
            try:
                return await handle.remote(image)
            except RayError:
                if left == 0:
                    raise
                await asyncio.sleep(1)
    raise AssertionError


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
