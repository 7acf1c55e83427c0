"""One computation in several formats, and the Relax that each front end makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from onnx import helper, numpy_helper
from pnnx_files import operator_network
from tvm import relax

from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.evaluation import evaluate
from nnefc.frontends.nnef.frontend import build_network
from nnefc.frontends.nnef.language.parser import parse
from nnefc.frontends.nnef.operations.lowering import by_definition
from nnefc.frontends.onnx import load as load_onnx
from nnefc.frontends.pnnx import load as load_pnnx
from nnefc.ir.network import Body, Network

__all__ = ["Computation", "modules_of", "network_from_onnx", "real"]

RNG = np.random.default_rng(5)
_NNEF_TYPES = {"f": "scalar", "i": "integer", "b": "logical"}


def real(*shape: int) -> np.ndarray:
    """Random numbers in float32."""
    return RNG.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Computation:
    """An operator on `x`, and what it is called in each format that has it.

    Attributes:
        name: of the operator.
        shape: of `x`; None: there is none.
        constants: further operands by name, known at compile time.
        nnef: an expression over `x` and the constants.
        onnx: the operator, its operands, and its attributes.
        pnnx: the operator and its parameters as the file spells them, and its tensors by the constants that they are.
        results: how many.
        kept: which of them are outputs; None: all.
        result: their element type; several where they have different ones.
        opset: of ONNX.
        dtype: of `x`.
        inputs: shapes and element types of further operands, known at run time. Of PNNX they follow `x`.
    """

    name: str
    shape: tuple[int, ...] | None
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    nnef: str | None = None
    onnx: tuple[str, str, Mapping[str, Any]] | None = None
    pnnx: tuple[str, Mapping[str, str]] | None = None
    results: int = 1
    result: str = "float32"
    opset: int = 21
    dtype: str = "float32"
    inputs: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    kept: tuple[int, ...] | None = None

    @property
    def outputs(self) -> tuple[int, ...]:
        """Which results are outputs."""
        return tuple(range(self.results)) if self.kept is None else self.kept

    @property
    def operands(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shapes and element types of all that is known at run time, by name."""
        own = {} if self.shape is None else {"x": (self.shape, self.dtype)}
        return {**own, **self.inputs}

    def __str__(self) -> str:
        return self.name


def modules_of(computation: Computation, folder: Path) -> dict[str, list[tvm.IRModule]]:
    """What the front ends make of the computation, by format: the network's module, then those of bodies in it."""
    found = {}
    if computation.nnef is not None:
        found["nnef"] = _from_nnef(computation)
    if computation.onnx is not None:
        found["onnx"] = network_from_onnx(computation, folder)
    if computation.pnnx is not None:
        found["pnnx"] = _from_pnnx(computation, folder)
    clean = tvm.transform.Sequential(
        [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination(["main"])]
    )
    return {format_: list(map(clean, _modules(network))) for format_, network in found.items()}


def _modules(part: Network | Body) -> Iterator[tvm.IRModule]:
    yield part.module
    for control in part.controls:
        for body in control.bodies:
            yield from _modules(body)


def _from_nnef(computation: Computation) -> Network:
    assert computation.nnef is not None
    names = [f"y{index}" for index in range(computation.results)]
    lines = [
        f"{name} = external<{_NNEF_TYPES[np.dtype(dtype).kind]}>(shape = {list(shape)});"
        for name, (shape, dtype) in computation.operands.items()
    ]
    for name, value in computation.constants.items():
        kind = _NNEF_TYPES[value.dtype.kind]
        elements = ", ".join(
            repr(element).lower() if kind == "logical" else repr(element) for element in value.ravel().tolist()
        )
        lines.append(f"{name} = constant<{kind}>(shape = {list(value.shape)}, value = [{elements}]);")
    made = ", ".join(names)
    if computation.nnef.startswith(("split(", "unstack(")):
        made = f"[{made}]"
    lines.append(f"{made} = {computation.nnef};")
    head = "version 1.0;\nextension KHR_enable_operator_expressions;\n"
    text = (
        f"{head}graph g({', '.join(computation.operands)}) -> ({', '.join(names)})\n{{\n" + "\n".join(lines) + "\n}\n"
    )
    flat = evaluate(parse(text, "test.nnef"), registry=STANDARD, expand=_expanded)
    return build_network(flat, {}, {tensor.name: tensor for tensor in flat.outputs}, {})


def _expanded(operation: Any) -> bool:
    return operation.lower is by_definition


def network_from_onnx(computation: Computation, folder: Path) -> Network:
    """The computation as a model of ONNX in a folder, read."""
    assert computation.onnx is not None
    kind, operands, attributes = computation.onnx
    names = [f"y{index}" for index in range(computation.results)]
    node = helper.make_node(kind, operands.split(" "), names, **attributes)
    constants = [numpy_helper.from_array(value, name) for name, value in computation.constants.items()]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (shape, dtype) in computation.operands.items()
    ]
    types = computation.result.split() if " " in computation.result else [computation.result] * len(names)
    outputs = [
        helper.make_tensor_value_info(names[index], helper.np_dtype_to_tensor_dtype(np.dtype(types[index])), None)
        for index in computation.outputs
    ]
    graph = helper.make_graph([node], "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", computation.opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return load_onnx(path)


def _from_pnnx(computation: Computation, folder: Path) -> Network:
    assert computation.pnnx is not None
    text, tensors = computation.pnnx
    kind, _, parameters = text.partition(" ")
    given: Sequence[np.ndarray] = [np.zeros(shape, dtype) for shape, dtype in computation.operands.values()]
    own = {name: computation.constants[constant] for name, constant in tensors.items()}
    path = operator_network(folder, kind, given, parameters, outputs=computation.results, **own)
    wanted = [f"pnnx_output_{index}" for index in computation.outputs]
    return load_pnnx(path, output_tensors=tuple(wanted) if computation.kept is not None else ())
