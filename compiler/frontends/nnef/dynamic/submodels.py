"""Evaluates submodels, which a graph calls by their labels, in place of the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnefc.frontends.nnef.dynamic.interpreter import Interpreter, Source
from nnefc.frontends.nnef.dynamic.symbols import declared_inputs
from nnefc.frontends.nnef.dynamic.values import Value
from nnefc.frontends.nnef.files.archive import ModelFiles
from nnefc.frontends.nnef.files.resources import document_text
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.parser import parse
from nnefc.operators.base import Operand, dtype_of, shape_of
from nnefc.support.diagnostics import CompileError, Location
from nnefc.symbolic.dims import Dimension
from nnefc.symbolic.unification import unify_dims

__all__ = ["run_submodel"]

Make = Callable[[Interpreter, syntax.Document, ModelFiles, Mapping[str, Dimension], Source], Interpreter]
"""A function that creates the interpreter of a nested document, from its files, symbols' sizes and inputs."""


def run_submodel(make: Make, outer: Interpreter, files: ModelFiles, label: str, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of the graph of a model inside the model.

    Raises:
        CompileError: there is none of that label, or the inputs do not fit it.
    """
    found = files.inner(label)
    if found is None:
        raise CompileError(
            f"there is no model '{files.describe(label)}'", hint="it is an archive .nnef.tgz or .nnef.tar, or a folder"
        )
    document = parse(*document_text(found), None)
    graph = document.graphs[0]
    if len(document.graphs) != 1 or len(graph.inputs) != len(inputs):
        raise CompileError(
            f"the model '{label}' should have one graph with {len(inputs)} inputs",
            location=document.source.location(graph.at),
        )
    given = {
        each.name: outer.emitter.tensor(value, "float32") for each, value in zip(graph.inputs, inputs, strict=True)
    }

    def external(args: Mapping[str, Value], content: str, target: str, location: Location) -> Operand:
        if target not in given:
            raise CompileError(f"'{target}' is no input of the graph")
        return given[target]

    values = make(outer, document, found, _sizes(graph, given, label), external).run_graph(graph)
    return [values[output.name] for output in graph.outputs]


def _sizes(graph: syntax.Graph, given: Mapping[str, Any], label: str) -> dict[str, Dimension]:
    """The sizes of a graph's symbols, which those of its inputs are; others must be as they are declared."""
    sizes: dict[str, Dimension] = {}
    for tensor in declared_inputs(graph):
        own = shape_of(given[tensor.name])
        declared = (None,) * len(own) if tensor.shape is None else tensor.shape
        fits = len(own) == len(declared)
        for size, wanted in zip(own, declared, strict=False):
            expected = sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted
            fits = fits and (expected is None or unify_dims(size, expected))
        if not fits:
            raise CompileError(
                f"the input '{tensor.name}' of the model '{label}' is {list(declared)}, it is given "
                f"{dtype_of(given[tensor.name])}{list(own)}"
            )
    return sizes
