"""Runs one node test with nnefc, or with onnxruntime beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx_cases import Case, mismatch
from onnx_outcome import Outcome
from onnxruntime_engine import run_onnxruntime

__all__ = ["ENGINES", "gathered", "shapes", "stored"]

_NEEDS_VALUES = ("known at compile time", "known at run time", "known only at run time")


def run_nnefc(case: Case) -> Outcome:
    """Compile the model for this machine, load the library, run it."""
    outcome = _run_nnefc(case, {})
    if outcome.status != "refused" or not any(text in outcome.reason for text in _NEEDS_VALUES):
        return outcome
    fixed = case.fixable()
    if not fixed:
        return outcome
    second = _run_nnefc(case, fixed)
    if second.status == "pass":
        return Outcome("known" if fixed.keys() == case.inputs.keys() else "fixed", ", ".join(fixed))
    return second


def _run_nnefc(case: Case, fixed: dict[str, Any]) -> Outcome:
    from nnefc.diagnostics import CompileError
    from nnefc.driver import compile_network
    from nnefc.frontends.onnx import load
    from nnefc.loader import LoadError, RunError
    from nnefc.targets.machine.target import parse_target

    given = {name: shapes(value) for name, value in case.inputs.items() if name not in fixed}
    with tempfile.TemporaryDirectory(prefix="nnefc-node-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(case.model.SerializeToString())
        try:
            network = load(path, shape=given, values=fixed)
            artifact = compile_network(network, parse_target("llvm"))
            feeds = {name: array for name, value in case.inputs.items() for name, array in _leaves(name, value)}
            with artifact.load(threads=1) as model:
                made = model.run({name: stored(feeds[name]) for name in network.inputs})
        except (CompileError, LoadError, RunError) as error:
            return Outcome("refused", getattr(error, "message", str(error)).splitlines()[0])
        except Exception as error:
            return Outcome("broken", f"{type(error).__name__}: {error}".splitlines()[0][:200])
    found = {name: gathered(name, expected, made) for name, expected in case.outputs.items()}
    difference = mismatch(case, found)
    return Outcome("pass") if difference is None else Outcome("wrong", difference)


def shapes(value: Any) -> Any:
    match value:
        case None:
            return None
        case list():
            return [shapes(item) for item in value]
    return value.shape


def _leaves(name: str, value: Any) -> list[tuple[str, np.ndarray]]:
    match value:
        case None:
            return []
        case list():
            return [leaf for index, item in enumerate(value) for leaf in _leaves(f"{name}.{index}", item)]
    return [(name, value)]


def stored(array: np.ndarray) -> np.ndarray:
    from nnefc.frontends.onnx.operator import to_storage

    return np.ascontiguousarray(to_storage(array)).reshape(array.shape)


def gathered(name: str, expected: Any, made: dict[str, np.ndarray]) -> Any:
    """The output in the form that is expected."""
    from nnefc.frontends.onnx.operator import from_storage
    from nnefc.frontends.onnx.values import STORAGE, dtype_name

    match expected:
        case None:
            return made.get(name)
        case list():
            if not any(key == name or key.startswith(f"{name}.") for key in made):
                return []
            parts = [gathered(f"{name}.{index}", item, made) for index, item in enumerate(expected)]
            return parts if f"{name}.{len(parts)}" not in made else [*parts, made[f"{name}.{len(parts)}"]]
    array = made.get(name)
    if array is None:
        return None
    dtype = dtype_name(expected.dtype)
    if dtype == "bfloat16" and array.dtype == np.uint16:
        return array.view(expected.dtype)
    return from_storage(array, dtype) if dtype in STORAGE and array.dtype == np.dtype(STORAGE[dtype]) else array


ENGINES: dict[str, Callable[[Case], Outcome]] = {"nnefc": run_nnefc, "onnxruntime": run_onnxruntime}
