"""What the programs here have in common: arguments, images, batches for the cores of a cluster, and the report."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import nnefc

__all__ = ["Job", "batch_size", "images", "job_of", "report"]

FILE = Path(__file__).parents[1] / "digits" / "test.npz"
BATCHES_PER_CORE = 4
"""So that a core that is slow, or lost, leaves its work to others in small parts."""


@dataclass(frozen=True)
class Job:
    """What is to be classified, and where.

    Attributes:
        library: the path of the library on this machine; workers get its bytes.
        cluster: the address of a running cluster; None for a cluster of this machine's processes.
        copies: how often the images are classified, for a longer job.
        pause: seconds that each batch takes besides, so that there is time to end a worker meanwhile.
    """

    library: Path
    cluster: str | None
    copies: int
    pause: float


def job_of(option: str, variable: str, meaning: str) -> Job:
    """Returns the job of the command line, with the engine's usual option and variable for its cluster."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path, help="digits.so")
    parser.add_argument(option, dest="cluster", default=os.environ.get(variable) or None, help=meaning)
    parser.add_argument("--copies", type=int, default=1, help="how often the images are classified")
    parser.add_argument("--pause", type=float, default=0, help="seconds that each batch takes besides")
    given = parser.parse_args()
    return Job(given.library, given.cluster, given.copies, given.pause)


def images(copies: int = 1) -> np.ndarray:
    """The digits that training never saw: float32 [364 · copies, 1, 8, 8], from 0 to 1."""
    return np.tile(np.load(FILE)["images"].astype(np.float32) / np.float32(16), (copies, 1, 1, 1))


def batch_size(rows: int, cores: int, library: Path) -> int:
    """Returns how many rows a run takes: some batches for each core, but no more than the library takes at once."""
    with nnefc.load(library, threads=1) as model:
        maximum = model.dimensions[0].maximum if model.dimensions else int(model.inputs[0].shape[0])
    return max(1, min(maximum, math.ceil(rows / (BATCHES_PER_CORE * cores))))


def report(engine: str, numbers: np.ndarray, digits: np.ndarray, processes: set[str], copies: int) -> None:
    """Prints how many rows are right, after a check that each was computed, and came back once."""
    labels = np.tile(np.load(FILE)["labels"], copies)
    if not np.array_equal(np.sort(numbers), np.arange(len(labels))):
        raise SystemExit(
            f"{engine}: {len(numbers)} rows came back of {len(labels)}, {len(np.unique(numbers))} different ones"
        )
    right = np.count_nonzero(digits == labels[numbers])
    print(f"{engine}: {len(processes)} processes computed every row")
    print(f"{engine}: {right} of {len(labels)} right")
