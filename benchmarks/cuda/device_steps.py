"""The steps of `on_device.py`, done in a process of its own: results, times and peers of a library on a GPU."""

from __future__ import annotations

import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from driver_clock import DriverClock, OnGpu
from inputs import EVERY, drawn

__all__ = ["FAILED", "Row", "serve"]

Row = dict[str, Any]

FAILED = " failed"
"""How the key of a step's error ends, in place of that of its result."""


def serve(steps: Connection, folder: Path, loader: Path, profiles: Path | None) -> None:
    """Does the steps that come, and sends what each adds to its row, or a traceback, which ends this process.

    Args:
        steps: gives the name of a part and a row, until it is closed.
        folder: of the libraries.
        loader: the folder with the loader.
        profiles: a folder for the times of kernels.
    """
    sys.path.append(str(loader))
    try:
        with DriverClock() as clock:
            while True:
                part, row = steps.recv()
                steps.send(do(part, row, folder, profiles, clock))
    except EOFError:
        return
    except Exception:
        steps.send(traceback.format_exc()[-1500:])


def do(part: str, row: Row, folder: Path, profiles: Path | None, clock: DriverClock) -> Row:
    """Returns what a part adds to a row."""
    match part:
        case "about":
            return dict(clock.about())
        case "error":
            return check(folder / row["name"], clock)
        case "own":
            return measure(folder / row["name"], clock)
        case "profile":
            assert profiles is not None
            return profile(folder / row["name"], clock, profiles)
        case "eager" | "compile":
            import torch_peers

            return {part: torch_peers.PEERS[part](row["network"], row["batch"], row["precision"])}
        case _:
            import onnxruntime_peers

            about = json.loads((folder / row["name"] / "about.json").read_text())
            model = folder / about["model"]
            return {part: onnxruntime_peers.milliseconds(part, model, row["precision"], drawn(about["inputs"]))}


def check(folder: Path, clock: DriverClock) -> Row:
    """Returns the largest error of a library: on the host's arrays, and on the GPU's as launches and from a graph."""
    wanted = dict(np.load(folder / "wanted.npz"))
    errors = []
    with _loaded(folder) as (model, inputs):
        for _ in range(2):
            errors += [error(array, wanted[name]) for name, array in model.run(inputs).items()]
        given, out = arrays(model, inputs, clock)
        for _ in range(3):
            model(*given, out=out, stream=clock.stream)
            model.synchronize()
            errors += [error(o.numpy(), wanted[t.name]) for o, t in zip(out, model.outputs, strict=True)]
        for array in (*given, *out):
            array.free()
    return {"error": max(errors)}


def measure(folder: Path, clock: DriverClock) -> Row:
    """Returns the times of a library: between the GPU's arrays, and between the host's; milliseconds."""
    with _loaded(folder) as (model, inputs):
        host = [_wall(lambda: model.run(inputs)) for _ in range(20)]
        milliseconds = _between_arrays(model, inputs, clock, clock.milliseconds)
    return {"own": milliseconds, "own host": 1e3 * statistics.median(host)}


def profile(folder: Path, clock: DriverClock, profiles: Path) -> Row:
    """Writes the times of a library's kernels."""
    from torch_peers import kernels

    with _loaded(folder) as (model, inputs):
        found = _between_arrays(model, inputs, clock, kernels)
    profiles.mkdir(parents=True, exist_ok=True)
    (profiles / f"{folder.name}.json").write_text(json.dumps(found))
    return {"profile": len(found)}


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference from results that are kept, over the largest value; infinite if NaN or infinity differ."""
    kept, wanted = found[::EVERY].astype(np.float64), wanted.astype(np.float64)
    assert kept.shape == wanted.shape, (kept.shape, wanted.shape)
    finite = np.isfinite(wanted)
    if not np.array_equal(kept[~finite], wanted[~finite], equal_nan=True) or not np.isfinite(kept[finite]).all():
        return float("inf")
    return float(np.abs(kept[finite] - wanted[finite]).max(initial=0.0) / np.abs(wanted[finite]).max(initial=1e-30))


@contextmanager
def _loaded(folder: Path) -> Iterator[tuple[Any, dict[str, np.ndarray]]]:
    """A library and its inputs, by name."""
    import loader

    inputs = drawn(json.loads((folder / "about.json").read_text())["inputs"])
    with loader.load(folder / "network.so") as model:
        yield model, inputs


def arrays(model: Any, inputs: dict[str, np.ndarray], clock: DriverClock) -> tuple[list[OnGpu], list[OnGpu]]:
    """Returns a model's inputs, and memory for its outputs, on the GPU."""
    given = [OnGpu(clock, inputs[tensor.name]) for tensor in model.inputs]
    return given, [OnGpu(clock, np.full(tensor.shape, np.nan, tensor.dtype)) for tensor in model.outputs]


def _between_arrays(
    model: Any, inputs: dict[str, np.ndarray], clock: DriverClock, measured: Callable[[Callable[[], None]], Any]
) -> Any:
    """Returns what is measured of a run between arrays of the GPU, on the clock's stream."""
    given, out = arrays(model, inputs, clock)
    found = measured(lambda: model(*given, out=out, stream=clock.stream))
    model.synchronize()
    for array in (*given, *out):
        array.free()
    return found


def _wall(run: Callable[[], Any]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began
