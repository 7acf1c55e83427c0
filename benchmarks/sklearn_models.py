"""Models of scikit-learn, LightGBM and XGBoost, converted to ONNX: agreement, and time compared with the originals.

    python benchmarks/sklearn_models.py [--only TEXT] [--seconds S]

Every model is compiled as its converter writes it, with the number of samples open. Prints the page; without `--only`
it writes results/PROCESSOR/sklearn_models.md.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # of scikit-learn, before it is imported

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnxruntime
from conditions import Watch, page, write_page
from report import table
from sklearn.datasets import make_regression
from sklearn.ensemble import ExtraTreesRegressor
from sklearn_pipelines import PIPELINES, Pipeline, Trained, train

import nnefc

TITLE = "Models of scikit-learn"
BATCHES = (1, 1000)
FOREST_BATCHES = (1, 64, 1000)
FOREST_THREADS = (1, 2)


@dataclass(frozen=True)
class Engines:
    """A model in the three engines: what gives its results for samples."""

    original: Callable[[np.ndarray], list[np.ndarray]]
    onnxruntime: Callable[[np.ndarray], list[Any]]
    nnefc: Callable[[np.ndarray], list[np.ndarray]]


@contextmanager
def engines(trained: Trained, threads: int = 1) -> Iterator[Engines]:
    """The engines, on so many threads each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        trained.write(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        nnefc.compile(path).export(path.with_suffix(".so"))
        with nnefc.load(path.with_suffix(".so"), threads=threads) as library:
            yield Engines(
                trained.results,
                lambda x: session.run(None, {"x": x}),
                lambda x: list(library.run({"x": x}).values()),
            )


def difference(found: Sequence[Any], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference over the magnitude of a value, where that is above 1; of labels, 1 where they differ."""
    worst = 0.0
    for one, other in zip(found, wanted, strict=False):  # of some, only the first result has a method in scikit-learn
        if isinstance(one, list):  # onnxruntime's maps
            one = np.array([list(row.values()) for row in one])
        if other.dtype.kind in "OU":
            worst = max(worst, float(np.any(np.asarray(one).reshape(other.shape) != other)))
            continue
        left, right = np.asarray(one, np.float64).reshape(other.shape), np.asarray(other, np.float64)
        both = np.isnan(left) & np.isnan(right)
        far = np.abs(left - right) / np.maximum(1, np.abs(right))
        worst = max(worst, float(np.max(np.where(both, 0, far), initial=0)))
    return worst


def minimum(runs: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """The minimum time of each in µs, in turns."""
    best = [float("inf")] * len(runs)
    for run in runs:
        run()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    return [seconds_ * 1e6 for seconds_ in best]


def times(made: Engines, samples: np.ndarray, batch: int, seconds: float) -> list[str]:
    """The cells of scikit-learn, onnxruntime and nnefc for so many samples."""
    x = np.ascontiguousarray(np.resize(samples, (batch, samples.shape[1])))
    three = (made.original, made.onnxruntime, made.nnefc)
    return [f"{value:,.0f}" for value in minimum([lambda run=run: run(x) for run in three], seconds)]


def row(name: str, pipeline: Pipeline, seconds: float) -> list[str]:
    """A line of the first table."""
    trained = train(pipeline)
    wanted = trained.results()
    with engines(trained) as made:
        off = [f"{difference(run(trained.samples), wanted):.0e}" for run in (made.nnefc, made.onnxruntime)]
        return [name, *off, *(cell for batch in BATCHES for cell in times(made, trained.samples, batch, seconds))]


def forests(seconds: float) -> Iterator[list[str]]:
    """The lines of the second table."""
    x, y = make_regression(4000, 32, n_informative=16, random_state=0)
    model = ExtraTreesRegressor(1000, max_depth=8, random_state=0, n_jobs=-1).fit(x.astype(np.float32), y)
    model.n_jobs = 1
    trained = Trained(Pipeline(ExtraTreesRegressor, methods=("predict",)), model, x.astype(np.float32))
    for threads in FOREST_THREADS:
        model.n_jobs = threads
        with engines(trained, threads) as made:
            for batch in FOREST_BATCHES:
                yield [str(threads), str(batch), *times(made, trained.samples, batch, seconds)]


def body(text: str, seconds: float) -> list[str]:
    """The page: how it was measured, and two tables."""
    rows = []
    for name, pipeline in PIPELINES.items():
        if text.lower() in name.lower():
            rows.append(row(name, pipeline, seconds))
            click.echo("  ".join(rows[-1]), err=True)
    engines_ = ("scikit-learn", "onnxruntime", "nnefc")
    measured = [f"{engine}, {batch:,}" for batch in BATCHES for engine in engines_]
    head = ["model", "nnefc differs", "onnxruntime", *measured]
    lines = [
        "Differences are those from scikit-learn (LightGBM, XGBoost), over the magnitude of a value where that is"
        f" above 1; a label that differs is 1. Times are in µs, for {' and '.join(f'{b:,}' for b in BATCHES)} samples,"
        " the smallest of many runs in turns, on one thread; they include Python's part of a call.",
        "",
        *table(head, rows),
    ]
    if text:
        return lines
    more = ["", "1,000 trees of depth 8 on 32 features (`ExtraTreesRegressor`), in µs:", ""]
    return [*lines, *more, *table(["threads", "samples", *engines_], list(forests(seconds)), 2)]


@click.command()
@click.option("--only", "text", default="", help="Only the models whose name has this text.")
@click.option("--seconds", default=1.0, help="For each model and number of samples.")
def main(text: str, seconds: float) -> None:
    """Measure the models, and write the page if it is of all."""
    warnings.simplefilter("ignore")
    watch = Watch()
    lines = body(text, seconds)
    conditions = watch.end()
    click.echo(page(TITLE, conditions, lines))
    if not text:
        write_page("sklearn_models", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
