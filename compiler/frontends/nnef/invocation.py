"""Invokes a standard operation: applies its shape rule, creates its results, and locates its errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nnefc.frontends.nnef.declarations import MISSING, Operation, Signature, nearest_name
from nnefc.frontends.nnef.externals import declared_inputs
from nnefc.frontends.nnef.flat import Invocation
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.signatures import adapt
from nnefc.frontends.nnef.language.syntax import Expression, Source
from nnefc.frontends.nnef.language.types import ArrayType, TensorType, substitute
from nnefc.frontends.nnef.values import MAX_RESULTS, Arguments, Shape, ShapeError, Tensor, Value
from nnefc.ir.outline import shape_option
from nnefc.support.diagnostics import CompileError, Location
from nnefc.symbolic.dims import known_less

__all__ = ["ExternalShapes", "complete", "count_leaves", "invoke", "locations", "written_arguments"]

_MAX_VOLUME = 1 << 48
_MAX_RANK = 32
_MAX_MESSAGE = 500
_MAX_NOTES = 3


def written_arguments(signature: Signature, invocation: syntax.Invocation) -> dict[str, Expression]:
    """The arguments as written, by the names of their parameters."""
    pairs = zip(signature.parameters, invocation.arguments, strict=False)
    return {argument.name or parameter.name: argument.value for parameter, argument in pairs}


def locations(
    operation: Operation, invocation: syntax.Invocation | None, source: Source, at: int
) -> Callable[[str], Location]:
    """Return a function to the location of a parameter's argument, or of the invocation if it has the default."""

    def location_of(parameter: str) -> Location:
        written = {} if invocation is None else written_arguments(operation.signature, invocation)
        return source.location(written[parameter].at if parameter in written else at)

    return location_of


def complete(signature: Signature, given: Mapping[str, Value]) -> dict[str, Value]:
    """The arguments in the order of the declaration, with defaults."""
    arguments: dict[str, Value] = {}
    for parameter in signature.parameters:
        value = given.get(parameter.name, parameter.default)
        assert value is not MISSING, parameter.name
        arguments[parameter.name] = adapt(value, parameter.type)
    return arguments


def count_leaves(value: Any, limit: int) -> int:
    """Returns how many primitive values and tensors an array holds, not beyond the limit."""
    count = 0
    pending = [value]
    while pending and count <= limit:
        element = pending.pop()
        if isinstance(element, list | tuple):
            pending += element
            count += not element
        else:
            count += 1
    return count


def invoke(
    operation: Operation,
    arguments: Mapping[str, Value],
    content: str,
    location: Location,
    location_of: Callable[[str], Location],
) -> Invocation:
    """Invoke an operation with checked types.

    Args:
        content: what `?` stands for; "" if the operation is not generic.
        location: the location of the invocation; its results have it too.
        location_of: returns the location of a parameter's argument, for errors about it; that of the invocation if
            the argument is not written.

    Raises:
        CompileError: the shape rule refuses the arguments, or a result is larger than any memory.
    """
    signature = operation.signature
    try:
        shapes: Any = operation.shape(Arguments(arguments, content))
    except ShapeError as error:
        at = location if error.parameter is None else location_of(error.parameter)
        notes = tuple(_origins(arguments))
        message = _shorten(f"'{operation.name}': {error.message}")
        raise CompileError(message, location=at, hint=error.hint, notes=notes) from None
    if not isinstance(shapes, Mapping):
        shapes = {signature.results[0].name: shapes}
    results: dict[str, Tensor | list[Tensor]] = {}
    for result in signature.results:
        shape = shapes[result.name]
        match substitute(result.type, content):
            case TensorType(result_content):
                results[result.name] = _result(operation, result_content, shape, location)
            case ArrayType(TensorType(result_content)):
                if len(shape) > MAX_RESULTS:
                    message = f"'{operation.name}': {len(shape)} results are more than {MAX_RESULTS}"
                    raise CompileError(message, location=location)
                results[result.name] = [_result(operation, result_content, element, location) for element in shape]
            case other:
                raise TypeError(f"the standard operation {operation.name} has a result of type {other}")
    return Invocation(operation, arguments, results, content if signature.generic else None, location)


def _result(operation: Operation, content: str, shape: Iterable[int], location: Location) -> Tensor:
    sizes = tuple(shape)
    if len(sizes) > _MAX_RANK:
        message = f"'{operation.name}': the result would have {len(sizes)} dimensions, more than {_MAX_RANK}"
        raise CompileError(message, location=location)
    if any(known_less(size, 1) for size in sizes):
        message = f"'{operation.name}': the result would have the shape {list(sizes)}, sizes must be positive"
        raise CompileError(message, location=location)
    if known_less(_MAX_VOLUME, math.prod(sizes)):
        message = f"'{operation.name}': the result would have the shape {list(sizes)}, larger than any memory"
        raise CompileError(message, location=location)
    return Tensor(operation.name, content, sizes, location)


def _shorten(message: str) -> str:
    """A message that quotes a long array, with its middle left out."""
    if len(message) <= _MAX_MESSAGE:
        return message
    return f"{message[: _MAX_MESSAGE // 2]} … {message[-_MAX_MESSAGE // 2 :]}"


def _origins(arguments: Mapping[str, Value]) -> list[tuple[str, Location]]:
    """Return the name and the origin of each tensor among the arguments."""
    origins: list[tuple[str, Location]] = []
    for name, value in arguments.items():
        for tensor in value if isinstance(value, list) else (value,):
            if isinstance(tensor, Tensor) and len(origins) < _MAX_NOTES:
                origins.append((f"'{name}' has the shape {list(tensor.shape)}", tensor.location))
    return origins


class ExternalShapes:
    """The shapes of a graph's inputs: as the document says, or as the user says instead.

    Raises:
        CompileError: a shape is given for something that is no input, or is not positive.
    """

    def __init__(self, graph: syntax.Graph, given: Mapping[str, tuple[int, ...]]) -> None:
        self._graph = graph
        self._given = given
        inputs = [identifier.name for identifier in graph.inputs]
        for name, shape in given.items():
            if name not in inputs:
                nearest = nearest_name(name, inputs)
                hint = f"Did you mean '{nearest}'?" if nearest else f"The inputs are {', '.join(inputs)}."
                raise CompileError(f"the graph '{graph.name}' has no input '{name}'", hint=hint)
            if any(size < 1 for size in shape):
                raise CompileError(f"the shape given for the input '{name}' is not positive: {list(shape)}")

    def shape(self, name: str, declared: Any, location: Location) -> list[int]:
        """The shape of an input that the document declares with `declared`, where 0 is an unknown size.

        Raises:
            CompileError: the shape is not known, or the given one has another rank.
        """
        given: Shape | None = self._given.get(name)
        if given is None:
            if any(size < 1 for size in declared):
                message = f"the shape of the input '{name}' is not known: {declared}"
                option = shape_option(declared_inputs(self._graph, self._given))
                hint = f"Give it, with numbers of your own: {option}"
                raise CompileError(message, location=location, hint=hint)
            return list(declared)
        if len(given) != len(declared):
            message = f"the shape {list(given)} given for the input '{name}' has {len(given)} dimensions"
            hint = f"The document has {len(declared)}: {declared}."
            raise CompileError(message, location=location, hint=hint)
        return list(given)
