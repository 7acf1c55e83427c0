"""Run on a GPU what `bundle.py` kept, and compare: Python, NumPy and the loader are enough.

    python replay.py FOLDER [--loader compiler] [--jobs 8] [--seconds 60] [NAME ...]

Each library has a process of its own, for an error in a kernel ends all that a process does on a GPU. It is run three
times: kernel by kernel, while its graph is captured, and from the graph; then with its outputs left on the device.
Prints a line for each library that is wrong, or that the compiler refused, and how many are right; exits with 1 if
there is one.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCES = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 5e-2, "fp16": 1e-2}
"""How far results may be from those of code for a CPU, as a part of an output's largest value."""

_REPEATS = 3


def main() -> int:
    """All libraries of the folder, or those named, several at a time."""
    parser = argparse.ArgumentParser(description="Run a bundle of libraries on this machine's GPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--loader", type=Path, default=Path(__file__).resolve().parents[3] / "compiler")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=60, help="the maximum that one library may take")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.append(str(given.loader))
    if given.one:
        print(json.dumps(_found(given.folder)))
        return 0
    names = given.names or sorted(position.parent.name for position in given.folder.glob("*/network.so"))
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(lambda name: _in_process(given.folder / name, given), names))
    wrong = 0
    for name, result in zip(names, found, strict=True):
        if result["wrong"]:
            wrong += 1
            print(f"{name} {result['test']}")
            for line in result["wrong"][:4]:
                print(f"    {line}")
    refused = sorted(given.folder.glob("*/refused"))
    for report in refused:
        print(f"{report.parent.name} was refused: {report.read_text().splitlines()[-1]}")
    errors = [result["error"] for result in found if result["calls"]]
    print(f"{len(names) - wrong} right, {wrong} wrong, {sum(r['calls'] for r in found)} calls, ", end="")
    print(f"largest error of fp32 {max(errors, default=0):.2g}, {len(refused)} refused")
    return int(wrong > 0 or bool(refused))


def _in_process(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """What :func:`_found` finds in a process of its own."""
    command = [sys.executable, __file__, str(folder), "--one", "--loader", str(given.loader)]
    test = " ".join((folder / "test").read_text().split())
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=given.seconds, check=False)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        result = {"wrong": [f"took more than {given.seconds} s"], "calls": 0, "error": 0.0}
    except (IndexError, ValueError):
        result = {"wrong": [f"ended with {done.returncode}: {done.stderr[-600:]}"], "calls": 0, "error": 0.0}
    return {**result, "test": test}


def _found(folder: Path) -> dict[str, Any]:
    """What is wrong, how many calls there were, and the largest error."""
    import loader

    precision = (folder / "test").read_text().split()[0]
    wrong: list[str] = []
    calls, largest = 0, 0.0
    try:
        with loader.load(folder / "network.so") as first:
            for number, file in enumerate(sorted(folder.glob("calls-*.pickle"))):
                model = first if number == 0 else first.session()
                steps = list(_calls(file))
                for turn in range(_REPEATS):
                    if turn and model.states:
                        model.reset()
                    for step, (kind, given, wanted) in enumerate(steps):
                        calls += 1
                        where = f"turn {turn}, call {step}"
                        lines, error = _call(loader, model, kind, given, wanted, TOLERANCES[precision])
                        wrong += [f"{where}: {line}" for line in lines]
                        largest = max(largest, error if precision == "fp32" else 0.0)
                if model.device != "cpu" and not model.states and not wrong:
                    wrong += _left_on_the_device(loader, model, steps, TOLERANCES[precision])
    except Exception:
        wrong.append(traceback.format_exc()[-1500:])
    return {"wrong": wrong, "calls": calls, "error": largest}


def _calls(file: Path) -> Iterator[tuple[str, list[np.ndarray], Any]]:
    with file.open("rb") as opened:
        while opened.peek(1):
            yield pickle.load(opened)


def _call(
    loader: Any, model: Any, kind: str, given: list[np.ndarray], wanted: Any, tolerance: float
) -> tuple[list[str], float]:
    """What is wrong with a call, and the error of its results."""
    if kind == "reset":
        model.reset()
        return [], 0.0
    try:
        results = model(*given)
    except loader.RunError as error:
        if kind == "fail":
            return ([] if _reason(str(error)) == _reason(wanted) else [f"{error}; the processor says {wanted}"]), 0.0
        return [f"RunError: {error}"], 0.0
    if kind == "fail":
        return [f"no error; the processor says {wanted}"], 0.0
    return _differences([results] if len(model.outputs) == 1 else list(results), wanted, tolerance)


def _reason(message: str) -> str:
    """A message without the library's name or path, which comes first."""
    return message.partition(": ")[2] or message


def _left_on_the_device(
    loader: Any, model: Any, steps: list[tuple[str, list[np.ndarray], Any]], tolerance: float
) -> list[str]:
    """The same results where outputs stay on the device, if their sizes are known before the run."""
    for kind, given, wanted in steps:
        if kind == "run":
            try:
                results = model(*given, out="device")
            except loader.RunError as error:
                return [] if "only a run tells how large" in str(error) else [f"out='device': {error}"]
            found = [results] if len(model.outputs) == 1 else list(results)
            lines, _ = _differences([array.numpy() for array in found], wanted, tolerance)
            return [f"out='device': {line}" for line in lines]
    return []


def _differences(found: list[np.ndarray], wanted: list[np.ndarray], tolerance: float) -> tuple[list[str], float]:
    wrong, maximum = [], 0.0
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            wrong.append(f"output {number}: {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}")
            continue
        if a.dtype.kind not in "fV":
            if not np.array_equal(a, b):
                wrong.append(f"output {number}: {np.sum(a != b)} of {a.size} {a.dtype} differ")
            continue
        if a.dtype.kind == "V":  # bfloat16: the upper half of a float32
            a, b = ((x.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for x in (a, b))
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(y)
        if not np.array_equal(np.isfinite(x), finite) or not np.array_equal(x[~finite], y[~finite], equal_nan=True):
            wrong.append(f"output {number}: other infinities: {np.sum(~np.isfinite(x))}, not {np.sum(~finite)}")
            continue
        size = max(np.abs(y[finite]).max(initial=0.0), 1e-30)
        error = np.abs(x[finite] - y[finite]).max(initial=0.0) / size
        maximum = max(maximum, float(error))
        if error > tolerance:
            wrong.append(f"output {number}: error {error:.3g} of the largest value {size:.3g}")
    return wrong, maximum


if __name__ == "__main__":
    sys.exit(main())
