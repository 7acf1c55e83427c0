"""Outlines an NNEF document before it is lowered, without reading weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from nnefc.frontends.nnef.dynamic.symbols import declared_inputs as dynamic_inputs
from nnefc.frontends.nnef.dynamic.symbols import read_assertions
from nnefc.frontends.nnef.externals import declared_inputs, written_shape
from nnefc.frontends.nnef.files.archive import ModelFiles, open_model
from nnefc.frontends.nnef.flat import FlatGraph
from nnefc.frontends.nnef.frontend import document_of, read_document
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.checking import choose_graph
from nnefc.frontends.nnef.operations.lowering import DTYPES
from nnefc.ir.outline import DynamicTensor, Outline, range_option, shape_option

__all__ = ["outline", "outline_of_files"]

_SOURCES = ("external", "variable", "constant", "tract_core_external")
_ELEMENT_BYTES = 4  # of a trained value in the compiled network, however the file stores it


def outline(
    path: Path | str,
    *,
    shape: Mapping[str, tuple[int, ...]] | None = None,
    graph: str | None = None,
    dialect: str | None = None,
    pedantic: bool = False,
) -> Outline:
    """The outline of a model; the arguments are those of `load`.

    Where all shapes are known it is that of the flattened graph. Else it is that of the text: an operation in a
    fragment counts as the fragment, and of outputs the names are known alone.

    Raises:
        CompileError: the model is not as it must be.
    """
    with open_model(path) as files:
        document = read_document(files, dialect, pedantic, needs_values=False)
    chosen = choose_graph(document, graph)
    inputs = tuple(dynamic_inputs(chosen) if document.is_dynamic else declared_inputs(chosen, shape or {}))
    option = shape_option(inputs)
    if not option and not document.is_dynamic:
        return _of_flat(document_of(path, shape=shape, graph=graph, dialect=dialect, pedantic=pedantic))
    return _of_text(chosen, _about(document), inputs, option)


def outline_of_files(files: ModelFiles, about: str, parameters: int, parameter_bytes: int) -> Outline:
    """Returns the outline of a document that another front end has made.

    Args:
        files: the document.
        about: what the outline says of the format.
        parameters, parameter_bytes: elements of the trained values, and their bytes as the other format stores them.
    """
    document = read_document(files, None, False, needs_values=False)
    chosen = choose_graph(document, None)
    inputs = tuple(dynamic_inputs(chosen))
    return replace(_of_text(chosen, about, inputs, ""), parameters=parameters, parameter_bytes=parameter_bytes)


def _of_text(chosen: syntax.Graph, about: str, inputs: tuple[DynamicTensor, ...], option: str) -> Outline:
    """The outline of a graph as it is written: an operation in a fragment counts as the fragment."""
    operations = Counter(call.name for call in _invocations(chosen.body))
    variables = [written_shape(call) for call in _invocations(chosen.body) if call.name == "variable"]
    parameters = sum(math.prod(e for e in sizes if isinstance(e, int)) for sizes in variables if sizes)
    outputs = tuple(DynamicTensor(output.name, "", None) for output in chosen.outputs)
    return _outline(chosen.name, about, inputs, outputs, operations, parameters, option)


def _about(document: syntax.Document) -> str:
    """The dialect, and what extensions of it a document uses."""
    if not document.is_dynamic:
        return f"NNEF, {document.dialect.value} dialect"
    registries = [e.options[0] for e in document.extensions if e.name == "tract_registry" and e.options]
    scenarios = read_assertions(document).scenarios
    listed = [f"{name}: {', '.join(f'{s} = {n}' for s, n in sizes.items())}" for name, sizes in scenarios.items()]
    about = f"NNEF, tract's dialect, with {', '.join(dict.fromkeys(registries)) or 'no registry'}"
    return f"{about}; scenarios {'; '.join(listed)}" if listed else about


def _of_flat(flat: FlatGraph) -> Outline:
    inputs, outputs = (
        tuple(DynamicTensor(tensor.name, DTYPES[tensor.content], tensor.shape) for tensor in tensors)
        for tensors in (flat.inputs, flat.outputs)
    )
    operations = Counter(invocation.operation.name for invocation in flat.invocations)
    variables = [i.tensors[0].shape for i in flat.invocations if i.operation.name == "variable"]
    return _outline(
        flat.name,
        f"NNEF, {flat.dialect.value} dialect",
        inputs,
        outputs,
        operations,
        sum(map(math.prod, variables)),
        "",
    )


def _outline(
    name: str,
    about: str,
    inputs: tuple[DynamicTensor, ...],
    outputs: tuple[DynamicTensor, ...],
    operations: Counter[str],
    parameters: int,
    option: str,
) -> Outline:
    counts = {name: count for name, count in operations.items() if name not in _SOURCES}
    ordered = dict(sorted(counts.items(), key=lambda element: (-element[1], element[0])))
    bytes_ = _ELEMENT_BYTES * parameters
    ranges = range_option(inputs) if option else ""
    return Outline(name, about, inputs, outputs, ordered, parameters, bytes_, option=option, range_option=ranges)


def _invocations(part: object) -> Iterator[syntax.Invocation]:
    """All invocations in a part of the tree."""
    return (node for node in syntax.parts_of(part) if isinstance(node, syntax.Invocation))
