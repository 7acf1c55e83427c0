"""Outlines a PNNX param file before it is lowered, without reading the binary file."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np

from nnefc.frontends.pnnx.bin import STORED_TYPES
from nnefc.frontends.pnnx.frontend import is_supported, name_of
from nnefc.frontends.pnnx.param import ParamGraph, ParamType, known_shape, read_param
from nnefc.ir.outline import DynamicTensor, Outline, range_option, shape_option

__all__ = ["outline"]

_BORDERS = ("pnnx.Input", "pnnx.Output", "pnnx.Attribute")


def outline(path: Path | str) -> Outline:
    """The outline of a network, given by its param file.

    Raises:
        CompileError: the file is no param file.
    """
    graph = read_param(Path(path))
    inputs = tuple(
        _tensor(graph, operator.name, operator.outputs[0])
        for operator in graph.operators
        if operator.type == "pnnx.Input" and operator.outputs
    )
    results = [name for operator in graph.operators if operator.type == "pnnx.Output" for name in operator.inputs]
    counts = Counter(operator.type for operator in graph.operators if operator.type not in _BORDERS)
    types = [type for operator in graph.operators for type in operator.attributes.values()]
    return Outline(
        name=name_of(Path(path)),
        about="PNNX",
        inputs=inputs,
        outputs=tuple(_tensor(graph, f"pnnx_output_{index}", name) for index, name in enumerate(results)),
        operations=dict(sorted(counts.items(), key=lambda element: (-element[1], element[0]))),
        parameters=sum(_elements(type) for type in types),
        parameter_bytes=sum(_elements(type) * _element_bytes(type) for type in types),
        unsupported=frozenset(type for type in counts if not is_supported(type)),
        option=shape_option(inputs),
        range_option=range_option(inputs),
    )


def _tensor(graph: ParamGraph, name: str, operand: str) -> DynamicTensor:
    type = graph.types.get(operand)
    if type is None:
        return DynamicTensor(name, "unknown type", None)
    return DynamicTensor(name, type.dtype or "float32", type.shape)


def _elements(type: ParamType) -> int:
    return math.prod(known_shape(type) or (0,))


def _element_bytes(type: ParamType) -> int:
    return STORED_TYPES.get(type.dtype or "float32", np.dtype("float32")).itemsize
