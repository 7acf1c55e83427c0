"""ONNX's node tests with every dimension of every input open, of sizes around that of the test.

x: float32[3, 4]      becomes      x: float32[x_0, x_1], x_0 from 1 to 7, x_1 from 1 to 9
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx_cases import Case, mismatch
from onnx_engines import gathered, shapes, stored
from onnx_outcome import Outcome

__all__ = ["load_open", "run_open"]

_NEEDS_VALUES = ("known at compile time", "known at run time", "known only at run time")


def load_open(case: Case, known: bool = False) -> Any:
    """The network, with inputs that shapes depend on as constants; with `known`, all sizes are the test's own.

    Raises:
        CompileError: an operator does not take open sizes.
    """
    from nnefc.diagnostics import CompileError
    from nnefc.frontends.onnx import load

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


def run_open(case: Case) -> Outcome:
    """Compile the network for open sizes, run it at those of the test, and compare the results."""
    from nnefc.diagnostics import CompileError
    from nnefc.driver import compile_network
    from nnefc.loader import LoadError, RunError
    from nnefc.targets.machine.target import parse_target

    try:
        network = load_open(case)
        with compile_network(network, parse_target("llvm")).load(threads=1) as model:
            made = model.run({name: stored(case.inputs[name]) for name in network.inputs})
    except (CompileError, LoadError, RunError) as error:
        return Outcome("refused", getattr(error, "message", str(error)).splitlines()[0])
    found = {name: gathered(name, expected, made) for name, expected in case.outputs.items()}
    difference = mismatch(case, found)
    return Outcome("pass") if difference is None else Outcome("wrong", difference)


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
    from nnefc.sizes import OpenSize

    def of(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or known:
            return shapes(value)
        return tuple(OpenSize(1, 2 * size + 1) if size else 0 for size in value.shape)

    return {name: of(value) for name, value in case.inputs.items() if name not in fixed}
