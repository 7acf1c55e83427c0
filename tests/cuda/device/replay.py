"""Run on a GPU what `bundle.py` kept, and compare: Python, NumPy and the loader are enough.

    python replay.py FOLDER [--out found.json] [--seconds 220] [--limit 60] [--loader compiler] [--jobs 8] [NAME ...]

Each library has a process of its own, for an error in a kernel ends all that a process does on a GPU. It is run three
times: kernel by kernel, while its graph is captured, and from the graph; then with its outputs left on the device.
Prints a line for each library that is wrong as soon as it is known, at the end those that the compiler refused, and how
many are right; exits with 1 if one is not. After --seconds nothing more is begun, and what runs is ended. With --out
the same command goes on with the libraries that the file does not have.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
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
    parser.add_argument("--out", type=Path, help="a file for what is found, library by library")
    parser.add_argument("--seconds", type=float, default=220, help="the maximum of the whole run")
    parser.add_argument("--limit", type=float, default=60, help="the maximum seconds of a library")
    parser.add_argument("--loader", type=Path, default=Path(__file__).resolve().parents[3] / "compiler")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args()
    sys.path.append(str(given.loader))
    if given.one:
        print(json.dumps(_found(given.folder)))
        return 0
    given.until = time.monotonic() + given.seconds
    names = given.names or sorted(position.parent.name for position in given.folder.glob("*/network.so"))
    found: dict[str, Any] = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    with ThreadPoolExecutor(given.jobs) as pool:
        todo = {pool.submit(_in_process, given.folder / name, given): name for name in names if name not in found}
        for future in as_completed(todo):
            result = future.result()
            if result is None:
                continue
            found[todo[future]] = result
            if given.out:
                new = given.out.with_suffix(".new")
                new.write_text(json.dumps(found))
                new.replace(given.out)
            _print_wrong(todo[future], result)
    refused = sorted(given.folder.glob("*/refused"))
    for reason in refused:
        print(f"{reason.parent.name} was refused: {reason.read_text().splitlines()[-1]}")
    results = [found[name] for name in names if name in found]
    wrong = sum(bool(result["wrong"]) for result in results)
    errors = [result["error"] for result in results if result["calls"]]
    print(f"{len(results) - wrong} right, {wrong} wrong, {sum(r['calls'] for r in results)} calls, ", end="")
    print(f"largest error of fp32 {max(errors, default=0):.2g}, {len(refused)} refused, ", end="")
    print(f"{len(results) - len(errors)} of which no call was kept or made")
    if len(results) < len(names):
        again = "with --out the same command goes on" if given.out is None else "the same command goes on"
        print(f"the time is over: {len(names) - len(results)} libraries are left; {again}")
    return int(wrong > 0 or bool(refused))


def _print_wrong(name: str, result: dict[str, Any]) -> None:
    """A line for a library that is wrong, and what is wrong."""
    if result["wrong"]:
        print("\n    ".join([f"{name} {result['test']}", *result["wrong"][:4]]), flush=True)


def _in_process(folder: Path, given: argparse.Namespace) -> dict[str, Any] | None:
    """What :func:`_found` finds in a process of its own; None if the time of the whole run is over before."""
    left = given.until - time.monotonic()
    if left <= 0:
        return None
    command = [sys.executable, __file__, str(folder), "--one", "--loader", str(given.loader)]
    test = " ".join((folder / "test").read_text().split())
    try:
        limit = min(left, given.limit)
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        if limit < given.limit:
            return None
        result = {"wrong": [f"took more than {limit:.0f} s"], "calls": 0, "error": 0.0}
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
