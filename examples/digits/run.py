"""Compile the digits network, load the library, and classify the images that its training never saw.

python examples/digits/run.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import nnefc

HERE = Path(__file__).parent
SHOWN = 8
BLOCKS = " ▄▀█"  # index = 2 * upper pixel + lower pixel


def as_text(image: np.ndarray) -> list[str]:
    """An image, uint8 [1, 8, 8] of 0 to 16, as four lines: one character shows two pixels, one above the other."""
    ink = (image[0] >= 7).astype(int)
    return ["".join(BLOCKS[2 * u + d] for u, d in zip(ink[y], ink[y + 1], strict=True)) for y in (0, 2, 4, 6)]


def show(images: np.ndarray, answers: np.ndarray, labels: np.ndarray) -> None:
    """Some images side by side, under each the answer, and the truth where the answer is wrong."""
    for line in zip(*(as_text(image) for image in images), strict=True):
        print("   ".join(line))
    captions = [str(a) if a == b else f"{a}, not {b}" for a, b in zip(answers, labels, strict=True)]
    print("   ".join(f"{caption:^8}" for caption in captions))


def main() -> int:
    held = np.load(HERE / "test.npz")
    images, labels = held["images"], held["labels"]
    pixels = images.astype(np.float32) / np.float32(16)

    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "digits.so"
        start = time.perf_counter()
        nnefc.compile(HERE / "model.nnef").export(library)
        seconds = time.perf_counter() - start
        print(f"Compiled model.nnef to a library of {library.stat().st_size / 1024:.0f} KiB in {seconds:.1f} s\n")

        with nnefc.load(library, threads=1) as model:
            answers = np.empty(len(labels), np.int64)
            times = np.empty(len(labels))
            for i, image in enumerate(pixels):
                start = time.perf_counter()
                probability = model(image[None])
                times[i] = time.perf_counter() - start
                answers[i] = probability.argmax()

    wrong = np.flatnonzero(answers != labels)
    shown = np.concatenate([wrong[:2], np.setdiff1d(np.arange(len(labels)), wrong)])[:SHOWN]
    show(images[shown], answers[shown], labels[shown])
    print(
        f"\nRight on {len(labels) - len(wrong)} of {len(labels)} held-back images"
        f" ({1 - len(wrong) / len(labels):.1%}), {np.median(times) * 1e6:.0f} µs an image (median, one thread)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
