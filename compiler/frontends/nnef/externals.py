"""Reads the inputs of a graph from its text, before anything is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from nnefc.frontends.dynamic_shapes import DynamicInputs
from nnefc.frontends.nnef.arithmetic import ArithmeticProblem, binary
from nnefc.frontends.nnef.language import syntax
from nnefc.ir.network import DynamicDimension
from nnefc.ir.outline import DynamicTensor
from nnefc.symbolic.dims import Dimension, DynamicSize
from nnefc.symbolic.refinement import Refinement

__all__ = ["declared_inputs", "dynamic_shapes", "written_shape"]

_DTYPES = {"scalar": "float32", "integer": "int32", "logical": "bool"}


def declared_inputs(graph: syntax.Graph, given: Mapping[str, tuple[int, ...]]) -> Iterator[DynamicTensor]:
    """The graph's inputs as the document, or else the user, says."""
    externals = {
        assignment.target.name: assignment.value
        for assignment in graph.body
        if isinstance(assignment.target, syntax.Identifier) and isinstance(assignment.value, syntax.Invocation)
        if assignment.value.name == "external"
    }
    for name in (identifier.name for identifier in graph.inputs):
        call = externals.get(name)
        dtype = _DTYPES.get((call.content if call else None) or "scalar", "float32")
        yield DynamicTensor(name, dtype, tuple(given[name]) if name in given else written_shape(call))


def dynamic_shapes(
    graph: syntax.Graph, given: Mapping[str, tuple[int | DynamicSize, ...]], refinement: Refinement
) -> tuple[dict[str, tuple[Dimension, ...]], tuple[DynamicDimension, ...]]:
    """Returns the shapes of inputs that are given or unspecified, by name, and their dynamic dimensions.

    Inputs whose shapes are written in the document are left out.
    """
    opened = DynamicInputs(refinement)
    shapes = {name: opened.shape(name, shape) for name, shape in given.items()}
    for tensor in declared_inputs(graph, {}):
        declared = tuple(size if isinstance(size, int) else None for size in tensor.shape or ())
        if tensor.name not in given and None in declared:
            shapes[tensor.name] = opened.shape(tensor.name, declared)
    return shapes, opened.dimensions


def written_shape(call: syntax.Invocation | None) -> tuple[int | None, ...]:
    """The sizes of `shape = […]`, None for 0, which stands for unknown; none if they do not follow from literals."""
    for argument in call.arguments if call else ():
        if argument.name in (None, "shape") and isinstance(argument.value, syntax.Array):
            sizes = [_size(element) for element in argument.value.elements]
            return tuple(size or None for size in sizes) if None not in sizes else ()
    return ()


def _size(element: syntax.Expression) -> int | None:
    """An integer that literals alone say."""
    found: object = None
    match element:
        case syntax.Literal():
            found = element.value
        case syntax.Binary(_, sign, left, right):
            sides = _size(left), _size(right)
            with suppress(ArithmeticProblem, KeyError, TypeError):
                found = binary(sign, *sides) if None not in sides else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None
