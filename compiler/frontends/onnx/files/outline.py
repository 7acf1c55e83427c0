"""Outlines an ONNX file before it is lowered, without reading tensor data."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from nnefc.frontends.onnx.checks.types import DTYPES, OnnxTensorType, OptionalType, read_type, spelled
from nnefc.frontends.onnx.files.reading import read_proto
from nnefc.frontends.onnx.files.tensors import element_count, packed_bytes
from nnefc.frontends.onnx.lowering import is_supported
from nnefc.ir.outline import DynamicTensor, Outline, range_option, shape_option
from nnefc.support.diagnostics import CompileError

__all__ = ["outline"]


def outline(path: str | os.PathLike[str], *, overridable: bool = False) -> Outline:
    """The outline of a model; `overridable` as of `load`.

    Raises:
        CompileError: no such file, no ONNX model, a type that cannot be.
    """
    proto = read_proto(Path(path))
    graph = proto.graph
    constants = set() if overridable else {tensor.name for tensor in graph.initializer}
    constants |= set() if overridable else {tensor.values.name for tensor in graph.sparse_initializer}
    inputs = tuple(_tensor(info, "input") for info in graph.input if info.name not in constants)
    functions = {(element.domain, element.name) for element in proto.functions}
    operations: Counter[str] = Counter()
    unsupported: set[str] = set()
    for node in _nodes(graph):
        name = _spelled(node)
        operations[name] += 1
        if (node.domain, node.op_type) not in functions and not is_supported(node.domain, node.op_type):
            unsupported.add(name)
    given = [tensor for tensor in inputs if not tensor.dtype.endswith(")")]
    tensors = [tensor for part in _graphs(graph) for tensor in _tensors(part)]
    return Outline(
        name=_text(graph.name) or Path(path).stem.removesuffix(".onnx"),
        about=_about(proto),
        inputs=inputs,
        outputs=tuple(_tensor(info, "output") for info in graph.output),
        operations=dict(sorted(operations.items(), key=lambda element: (-element[1], element[0]))),
        parameters=sum(map(_elements, tensors)),
        parameter_bytes=sum(_bytes(tensor) for tensor in tensors),
        unsupported=frozenset(unsupported),
        option=shape_option(given),
        range_option=range_option(given),
    )


def _about(proto: onnx.ModelProto) -> str:
    sets = [f"{_text(element.domain) or 'ai.onnx'} {element.version}" for element in proto.opset_import]
    writer = f"{_text(proto.producer_name)} {_text(proto.producer_version)}".strip()
    return ", ".join(
        [f"ONNX, operator sets {', '.join(sets) or 'of the first version'}", *([writer] if writer else [])]
    )


def _tensor(info: onnx.ValueInfoProto, role: str) -> DynamicTensor:
    """An input or output; the type of what is no tensor is spelt with parentheses, as in `seq(tensor(float))`."""
    type_ = read_type(info.type, f"the {role} '{info.name}'")
    match type_:
        case OnnxTensorType(dtype, shape) | OptionalType(OnnxTensorType(dtype, shape)):
            sizes = None if shape is None else tuple(e if isinstance(e, int | None) else _text(e) for e in shape)
            return DynamicTensor(_text(info.name), dtype, sizes)
    return DynamicTensor(_text(info.name), spelled(type_) if type_ is not None else "()", None)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and those inside its nodes."""
    waiting = [graph]
    while waiting:
        found = waiting.pop()
        yield found
        for node in found.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    return (node for part in _graphs(graph) for node in part.node)


def _tensors(graph: onnx.GraphProto) -> Iterable[onnx.TensorProto]:
    """Initializers, and the tensors of nodes `Constant`."""
    yield from graph.initializer
    yield from (sparse.values for sparse in graph.sparse_initializer)
    yield from (a.t for node in graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t"))


def _bytes(tensor: onnx.TensorProto) -> int:
    dtype = DTYPES.get(tensor.data_type, "")
    return packed_bytes(dtype, _elements(tensor)) if dtype not in ("", "string") else 0


def _elements(tensor: onnx.TensorProto) -> int:
    return element_count(tuple(tensor.dims), f"the tensor '{tensor.name}'")


def _spelled(node: onnx.NodeProto) -> str:
    if not node.op_type:
        raise CompileError(f"a node of the model names no operator{f': {node.name!r}' if node.name else ''}")
    return f"{_text(node.domain)}.{_text(node.op_type)}" if node.domain not in ("", "ai.onnx") else _text(node.op_type)


def _text(name: str | bytes) -> str:
    """A name for a terminal; a damaged file may have bytes that are no text, which protobuf gives as they are."""
    text = name if isinstance(name, str) else name.decode(errors="replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
