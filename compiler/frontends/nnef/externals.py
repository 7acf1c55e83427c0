"""The inputs of a graph as its text declares them, before anything is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nnefc.frontends.nnef import syntax
from nnefc.outline import OpenTensor

__all__ = ["declared_inputs", "written_shape"]

_DTYPES = {"scalar": "float32", "integer": "int32", "logical": "bool"}


def declared_inputs(graph: syntax.Graph, given: Mapping[str, tuple[int, ...]]) -> Iterator[OpenTensor]:
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
        yield OpenTensor(name, dtype, tuple(given[name]) if name in given else written_shape(call))


def written_shape(call: syntax.Invocation | None) -> tuple[int | None, ...]:
    """The literal extents of `shape = […]`, None for 0, which stands for unknown; none if they are no literals."""
    for argument in call.arguments if call else ():
        if argument.name in (None, "shape") and isinstance(argument.value, syntax.Array):
            items = [item.value if isinstance(item, syntax.Literal) else 1 for item in argument.value.items]
            return tuple(int(item) or None for item in items if isinstance(item, int))
    return ()
