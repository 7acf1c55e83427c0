"""Small ONNX models made for one test each, and their networks run by TVM's own machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from virtual_machine import run_in_virtual_machine

from nnefc.driver.compile import compile_network
from nnefc.frontends.onnx import load
from nnefc.ir.network import Network
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["FLOAT", "INT64", "graph", "info", "loaded", "model", "node", "results", "save", "tensor"]

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

node = helper.make_node


def info(name: str, shape: Sequence[int | str | None] | None = (2, 3), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    """A name with the type of a tensor; without a shape for None."""
    return helper.make_tensor_value_info(name, dtype, shape)


def tensor(name: str, value: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    """An initializer."""
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    initializers: Sequence[onnx.TensorProto] = (),
    name: str = "g",
    **more: Any,
) -> onnx.GraphProto:
    """A graph; `x` goes in and `y` comes out, [2, 3] of float32, by default."""
    inputs = [info("x")] if inputs is None else inputs
    outputs = [info("y")] if outputs is None else outputs
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs), list(initializers), **more)


def model(
    nodes: Sequence[onnx.NodeProto] | onnx.GraphProto,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    opset: int = 21,
    imports: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model of a graph, or of the parts of one."""
    made = nodes if isinstance(nodes, onnx.GraphProto) else graph(nodes, inputs, outputs, initializers)
    opsets = [helper.make_opsetid(domain, version) for domain, version in {"": opset, **(imports or {})}.items()]
    return helper.make_model(made, opset_imports=opsets, functions=list(functions), ir_version=10)


def save(proto: onnx.ModelProto, folder: Path) -> Path:
    """The model as a file, whatever is wrong with it."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def loaded(proto: onnx.ModelProto, folder: Path, **options: Any) -> Network:
    """The model through the front end."""
    return load(save(proto, folder), **options)


def results(network: Network, **inputs: Any) -> dict[str, np.ndarray]:
    """Outputs by name, from TVM's virtual machine: no pass of ours has a part in them.

    It knows no choices and loops: networks with such are compiled.
    """
    if network.controls:
        with compile_network(network, parse_target("llvm")).load(threads=1) as library:
            return library.run(inputs)
    made = run_in_virtual_machine(network.module, [inputs[name] for name in network.inputs])
    return dict(zip(network.outputs, made[: len(network.outputs)], strict=True))
