"""Ray Data: a library in actors, each with batches of its own.

python examples/engines/ray_data.py digits.so
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import ray
from held_back import images, tell

import nnefc


class Classifier:
    """Lives in an actor: the library is loaded once."""

    def __init__(self, library: str) -> None:
        self.model = nnefc.load(library, threads=1)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        probability = self.model(np.ascontiguousarray(batch["image"], np.float32))
        return {"number": batch["number"], "digit": probability.argmax(1)}


def main(library: str) -> None:
    rows = [{"number": number, "image": image} for number, image in enumerate(images())]
    answers = ray.data.from_items(rows).map_batches(
        Classifier,
        fn_constructor_args=(str(Path(library).resolve()),),
        batch_size=50,
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=1,
    )
    digits = np.empty(len(rows), np.int64)
    for row in answers.iter_rows():  # in any order
        digits[row["number"]] = row["digit"]
    tell("Ray Data", digits)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    main(sys.argv[1])
    ray.shutdown()
