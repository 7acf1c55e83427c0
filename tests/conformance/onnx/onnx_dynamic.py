"""ONNX's node tests with every dimension of every input open, of sizes around that of the test.

x: float32[3, 4]      becomes      x: float32[x_0, x_1], x_0 from 1 to 7, x_1 from 1 to 9
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import BackendTest
from onnx_outcome import Outcome
from onnx_suite import cases

__all__ = ["Case", "collect", "load_dynamic", "run_dynamic"]

_NEEDS_VALUES = ("known at compile time", "known at run time", "known only at run time")


@dataclass(frozen=True, eq=False)
class Case:
    """One node test: a model, the inputs by name (lists for sequences, None for what is not there), the outputs."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Any]
    outputs: list[Any]

    def fixable(self) -> dict[str, Any]:
        """Inputs that can hold shapes, axes, counts and the like."""
        from nnefc.onnx_backend import is_small

        return {name: value for i, (name, value) in enumerate(self.inputs.items()) if is_small(value, i == 0)}


@cache
def collect() -> list[Case]:
    """All node tests of the installed package onnx, in its order."""
    return [_case(case) for case in cases("node")]


def _case(case: Any) -> Case:
    inputs, outputs = case.data_sets[0]
    names = [info.name for info in case.model.graph.input]
    return Case(
        case.name, case.model, dict(zip(names, map(_converted, inputs), strict=False)), list(map(_converted, outputs))
    )


def _converted(value: Any) -> Any:
    match value:
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case list() | tuple():
            return [_converted(element) for element in value]
    return None if value is None else np.asarray(value)


def load_dynamic(case: Case, known: bool = False) -> Any:
    """The network, with inputs that shapes depend on as constants; with `known`, all sizes are the test's own.

    Raises:
        CompileError: an operator does not take dynamic sizes.
    """
    from nnefc.frontends.onnx import load
    from nnefc.support.diagnostics import CompileError

    fixed = case.fixable()
    with tempfile.TemporaryDirectory(prefix="nnefc-open-") as folder:
        path = Path(folder) / "model.onnx"

        def attempt(values: dict[str, Any]) -> Any:
            model = case.model if known else _opened(case, values)
            path.write_bytes(model.SerializeToString())
            return load(path, shape=_shapes(case, values, known), values=values)

        try:
            return attempt({})
        except CompileError as error:
            if not fixed or not any(text in error.message for text in _NEEDS_VALUES):
                raise
        return attempt(fixed)


def run_dynamic(case: Case) -> Outcome:
    """Compile the network for dynamic sizes, run it at those of the test, and compare the results."""
    from nnefc.loader import LoadError, RunError
    from nnefc.onnx_backend import prepare
    from nnefc.support.diagnostics import CompileError

    values = list(case.inputs.values())
    try:
        prepared = prepare(_opened(case, {}), threads=1, shape=_shapes(case, {}, False))
        _compare(case.outputs, prepared.run(values))
    except (CompileError, LoadError, RunError) as error:
        return Outcome("refused", getattr(error, "message", str(error)).splitlines()[0])
    except AssertionError as error:
        return Outcome("wrong", str(error))
    return Outcome("pass")


def _compare(expected: Sequence[Any], found: Sequence[Any]) -> None:
    """Compare results, also sequences of tensors without dimensions, which ONNX's runner does not compare."""
    is_sequence = [isinstance(value, list | tuple) for value in expected]
    assert is_sequence == [isinstance(value, list | tuple) for value in found]
    for values, results in zip(expected, found, strict=True):
        if isinstance(values, list | tuple):
            _compare(values, results)
        else:
            BackendTest.assert_similar_outputs([values], [results], 1e-3, 1e-5)


def _opened(case: Case, fixed: dict[str, Any]) -> onnx.ModelProto:
    """The model with a name for each dimension of each tensor that is not fixed."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for info in model.graph.input:
        if info.name not in fixed and info.type.HasField("tensor_type"):
            for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                if dim.dim_value:
                    dim.dim_param = f"{info.name}_{axis}"
    return model


def _shapes(case: Case, fixed: dict[str, Any], known: bool) -> dict[str, Any]:
    from nnefc.symbolic.dims import DynamicSize

    def of(value: Any) -> Any:
        match value:
            case None:
                return None
            case list():
                return [of(element) for element in value]
        return value.shape if known else tuple(DynamicSize(1, 2 * size + 1) if size else 0 for size in value.shape)

    return {name: of(value) for name, value in case.inputs.items() if name not in fixed}
