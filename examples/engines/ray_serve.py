"""Ray Serve: a library in a replica, which answers single images in batches.

python examples/engines/ray_serve.py digits.so
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np
import ray
from held_back import images, tell
from ray import serve

import nnefc


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 1}, max_ongoing_requests=128)
class Digits:
    """One session; requests that wait at the same time run together."""

    def __init__(self, library: str) -> None:
        self.model = nnefc.load(library, threads=1)

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.01)
    async def classify(self, images: list[np.ndarray]) -> list[int]:
        probability = await asyncio.to_thread(self.model, np.stack(images))
        return [int(digit) for digit in probability.argmax(1)]

    async def __call__(self, image: np.ndarray) -> int:
        return await self.classify(image)


def main(library: str) -> None:
    handle = serve.run(Digits.bind(str(Path(library).resolve())), route_prefix=None)
    answers = [handle.remote(image) for image in images()]
    tell("Ray Serve", np.array([answer.result() for answer in answers]))
    serve.shutdown()


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    serve.start(proxy_location="Disabled")
    main(sys.argv[1])
    ray.shutdown()
