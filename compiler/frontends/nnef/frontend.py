"""Entry point of the NNEF front end: files → document → flattened graph → one Relax function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax
from tvm.ir import GenericConst

from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.frontends.nnef import operations as _operations  # noqa: F401  (fills STANDARD)
from nnefc.frontends.nnef.declarations import STANDARD, Operation, nearest_name
from nnefc.frontends.nnef.evaluation import MAX_DEPTH, MAX_OPERATIONS, MAX_STEPS, evaluate, keep_whole
from nnefc.frontends.nnef.evaluator import Limits
from nnefc.frontends.nnef.externals import dynamic_shapes
from nnefc.frontends.nnef.files.archive import ModelFiles, open_model
from nnefc.frontends.nnef.files.quantization import Quantization, QuantizedBy, parse_quantization
from nnefc.frontends.nnef.files.resources import document_text
from nnefc.frontends.nnef.files.tensor_file import parse_tensor
from nnefc.frontends.nnef.files.weights import Fp16Values, Stored, load_variables
from nnefc.frontends.nnef.flat import FlatGraph, Invocation, Tensor
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.checking import choose_graph
from nnefc.frontends.nnef.language.deep_stack import call_with_deep_stack
from nnefc.frontends.nnef.language.leniency import as_meant
from nnefc.frontends.nnef.language.parser import parse
from nnefc.frontends.nnef.language.signatures import spell_value
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.operations.lowering import DTYPES, Lowering, Operand, by_definition
from nnefc.frontends.nnef.properties import properties_of
from nnefc.frontends.nnef.quantized_tensors import Codes, grid_of
from nnefc.frontends.nnef.relaxed_shapes import allowing
from nnefc.ir.network import MAX_ELEMENTS, Network, State
from nnefc.operators.base import shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.operators.recording import note_location, note_name
from nnefc.operators.tensor.shape import distinct_results
from nnefc.support.diagnostics import CompileError, warn
from nnefc.symbolic.dims import Dimension, DynamicSize, known_less
from nnefc.symbolic.refinement import Refinement, refined

__all__ = ["document_of", "load", "load_files", "read_document"]


_STEPS_AN_OPERATION = 20
"""Who allows more operations allows the time that they take."""

Array = npt.NDArray[np.generic]


def load(
    path: Path | str,
    *,
    random_weights: int | None = None,
    shape: Mapping[str, tuple[int | DynamicSize, ...]] | None = None,
    graph: str | None = None,
    dialect: str | None = None,
    pedantic: bool = False,
    scan_states: str | None = None,
    output_tensors: tuple[str, ...] = (),
    max_depth: int = MAX_DEPTH,
    max_operations: int = MAX_OPERATIONS,
    is_tied: bool = False,
) -> Network:
    """Load an NNEF model as a network.

    Args:
        path: a folder with `graph.nnef`, a tar archive of one (uncompressed or gzip), or a document.
        random_weights: a seed for the values of variables that have no file; None: a missing file is an error.
        shape: shapes of inputs in place of those that the document gives, by name. Sizes that neither gives stay
            open.
        graph: the graph to take if the document has several.
        dialect: "provisional" or "final"; None: what the document shows.
        pedantic: whether breaches of the standard are errors that leave no doubt of what is meant.
        scan_states: whether the states of tract's scans "keep" their values for the next run, or are "reset" in each;
            None: they are kept in networks that tract made for pieces of streams.
        output_tensors: names of tensors to return in place of the graph's own outputs.
        max_depth: how many fragments may be expanded inside each other.
        max_operations: how many operations the flattened graph may have.
        is_tied: whether dynamic sizes that broadcast are one size.

    Raises:
        CompileError: anything in the model or the arguments that does not fit; with the location and a way out.
    """
    if random_weights is not None and random_weights < 0:
        raise CompileError(f"the seed of random weights must not be negative, it is {random_weights}")
    limits = Limits(max_depth, max_operations, max(MAX_STEPS, _STEPS_AN_OPERATION * max_operations))
    with open_model(path) as files:
        return _load_files(
            files,
            Path(path).name,
            random_weights=random_weights,
            shape=shape or {},
            graph=graph,
            dialect=dialect,
            pedantic=pedantic,
            scan_states=scan_states,
            output_tensors=output_tensors,
            limits=limits,
            is_tied=is_tied,
        )


def load_files(
    files: ModelFiles,
    name: str,
    *,
    shape: Mapping[str, tuple[int | DynamicSize, ...]] | None = None,
    output_tensors: tuple[str, ...] = (),
    is_tied: bool = False,
) -> Network:
    """Load a model whose document and tensors another front end has made.

    Args:
        files: the document, and its tensors.
        name: of the model, for warnings.
        shape, output_tensors, is_tied: as for `load`.
    """
    return _load_files(
        files,
        name,
        random_weights=None,
        shape=shape or {},
        graph=None,
        dialect=None,
        pedantic=False,
        scan_states=None,
        output_tensors=output_tensors,
        limits=Limits(MAX_DEPTH, MAX_OPERATIONS, _STEPS_AN_OPERATION * MAX_OPERATIONS),
        is_tied=is_tied,
    )


def _load_files(
    files: ModelFiles,
    name: str,
    *,
    random_weights: int | None,
    shape: Mapping[str, tuple[int | DynamicSize, ...]],
    graph: str | None,
    dialect: str | None,
    pedantic: bool,
    scan_states: str | None,
    output_tensors: tuple[str, ...],
    limits: Limits,
    is_tied: bool,
) -> Network:
    document = read_document(files, dialect, pedantic)
    chosen = choose_graph(document, graph)

    def build(refinement: Refinement) -> Network:
        if document.is_dynamic:
            from nnefc.frontends.nnef.dynamic.network import dynamic_network  # with the registries of its operators

            return dynamic_network(
                document, chosen, files, shape, limits, output_tensors, refinement, random_weights, scan_states
            )
        shapes, opened = dynamic_shapes(chosen, shape, refinement)
        with dynamic_shape_context(opened, shapes):
            with _lenient(files, pedantic):
                flat = _flatten(document, shapes, graph, limits.depth, limits.operations, _lowered_by_definition)
            _check_sizes(flat)
            quantization = _quantization(files, flat.dialect)
            values = load_variables(flat, files, quantization, random_weights)
            network = build_network(flat, values, _outputs(flat, output_tensors), quantization)
            return replace(network, dynamic_dimensions=opened)

    network, refinement = refined(build, is_tied)
    metadata = properties_of(document)
    network = replace(network, files=files.asked, metadata=metadata.entries)
    for text in (*refinement.notes.values(), *metadata.warnings):
        warn(f"{name}: {text}")
    return network


def document_of(
    path: Path | str,
    *,
    shape: Mapping[str, tuple[int, ...]] | None = None,
    graph: str | None = None,
    dialect: str | None = None,
    pedantic: bool = False,
    max_depth: int = MAX_DEPTH,
    max_operations: int = MAX_OPERATIONS,
) -> FlatGraph:
    """The flattened graph of a model, the standard's compounds kept whole; weights are not read.

    The arguments are those of `load`.
    """
    with open_model(path) as files:
        document = read_document(files, dialect, pedantic, needs_values=False)
    with _lenient(files, pedantic):
        return _flatten(document, shape, graph, max_depth, max_operations, keep_whole)


@contextmanager
def _lenient(files: ModelFiles, pedantic: bool) -> Iterator[None]:
    """A context that accepts shapes which the standard does not allow but whose meaning is clear, with warnings."""
    if pedantic:
        yield
        return
    with allowing() as notes:
        yield
    _warn_of(notes, files)


def _lowered_by_definition(operation: Operation) -> bool:
    return operation.lower is by_definition


def _flatten(
    document: syntax.Document,
    shape: Mapping[str, tuple[Dimension, ...]] | None,
    graph: str | None,
    max_depth: int,
    max_operations: int,
    expand: Callable[[Operation], bool],
) -> FlatGraph:
    return evaluate(
        document,
        registry=STANDARD,
        graph=graph,
        shapes=shape,
        max_depth=max_depth,
        max_operations=max_operations,
        max_steps=max(MAX_STEPS, _STEPS_AN_OPERATION * max_operations),
        expand=expand,
    )


def read_document(files: ModelFiles, dialect: str | None, pedantic: bool, needs_values: bool = True) -> syntax.Document:
    """The document of a model; what it breaks without a doubt of what is meant is fixed, with warnings.

    Without `needs_values` the files of variables may be missing.

    Raises:
        CompileError: it is none, or, if `pedantic`, breaks a rule.
    """
    if pedantic:
        return parse(files.text(), files.document, _dialect_of(dialect))
    document = parse(*document_text(files), _dialect_of(dialect))
    read = partial(as_meant, document, lambda label: _number_of(files, label, needs_values))
    document, notes = call_with_deep_stack(read, files.document)
    _warn_of(notes, files)
    return document


def _warn_of(notes: Iterable[str], files: ModelFiles) -> None:
    for note in notes:
        warn(f"{files.document}: {note} (--pedantic makes this an error)")


def _number_of(files: ModelFiles, label: str, needed: bool) -> float | None:
    """The one element of a variable's file; where values are not needed and there is no file, any number; None for
    others, and for integers that stand for reals."""
    name = f"{label.removeprefix('/')}.dat"
    found = files.find(name)
    if found is None:
        return None if needed else 1.0
    content = parse_tensor(found, files.describe(name))
    stored = content.array
    if content.quantized or content.algorithm or not isinstance(stored, np.ndarray) or stored.size != 1:
        return None
    return float(stored.reshape(()))


def _dialect_of(name: str | None) -> Dialect | None:
    """The dialect that a user names; None for none."""
    if name is None:
        return None
    try:
        return Dialect(name)
    except ValueError:
        known = " or ".join(f"'{dialect.value}'" for dialect in Dialect)
        raise CompileError(f"there is no NNEF dialect '{name}'", hint=f"give {known}") from None


def _quantization(files: ModelFiles, dialect: Dialect) -> Quantization:
    text = files.quantization()
    return {} if text is None else parse_quantization(text, files.describe("graph.quant"), dialect)


def _check_sizes(flat: FlatGraph) -> None:
    for invocation in flat.invocations:
        for tensor in invocation.tensors:
            if known_less(MAX_ELEMENTS, math.prod(tensor.shape)):
                raise CompileError(
                    f"the tensor '{tensor.name}' of shape {list(tensor.shape)} has more than {MAX_ELEMENTS} elements",
                    location=invocation.location,
                )


def _outputs(flat: FlatGraph, names: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors asked for, or else the graph's outputs, by name."""
    if not names:
        return {tensor.name: tensor for tensor in flat.outputs}
    tensors = {tensor.name: tensor for invocation in flat.invocations for tensor in invocation.tensors}
    for name in names:
        if name not in tensors:
            nearest = nearest_name(name, tensors)
            raise CompileError(
                f"the graph '{flat.name}' has no tensor '{name}'",
                hint=f"did you mean '{nearest}'?" if nearest else None,
            )
    return {name: tensors[name] for name in names}


def build_network(
    flat: FlatGraph,
    stored: Mapping[str, Stored],
    outputs: Mapping[str, Tensor],
    quantization: Quantization,
) -> Network:
    updates = _updates(flat)
    values = {label: _as_array(value) if label in updates else value for label, value in stored.items()}
    inputs = [relax.Var(t.name, relax.TensorType(t.shape, DTYPES[t.content])) for t in flat.inputs]
    states = {
        label: relax.Var(label, relax.TensorType(values[label].shape, str(values[label].dtype))) for label in updates
    }
    builder = relax.BlockBuilder()
    lowering = Lowering(builder)
    with builder.function("main", [*inputs, *states.values()]):
        with builder.dataflow():
            for tensor, var in zip(flat.inputs, inputs, strict=True):
                lowering.bind(tensor, var)
            for invocation in flat.invocations:
                _lower(lowering, invocation, values, states)
                _quantize(lowering, invocation, values, states, quantization)
            results = [lowering.operand(tensor) for tensor in outputs.values()]
            results += [_converted(lowering, label, updates[label], values) for label in updates]
            made = builder.emit_output(relax.Tuple(distinct_results(lowering, results)))
        builder.emit_func_output(made)
    return Network(
        flat.name,
        builder.finalize(),
        tuple(tensor.name for tensor in flat.inputs),
        tuple(outputs),
        tuple(State(label, np.array(values[label])) for label in updates),
        variables=tuple(values),
        controls=lowering.controls,
    )


def _updates(flat: FlatGraph) -> dict[str, Invocation]:
    """The invocations of `update` by the label of the variable that each sets."""
    labels: dict[Tensor, str] = {}
    updates: dict[str, Invocation] = {}
    for invocation in flat.invocations:
        if invocation.operation.name == "variable":
            labels[invocation.tensors[0]] = invocation.args.label
        elif invocation.operation.name == "update":
            label = labels.get(invocation.args.variable)
            if label is None:
                raise CompileError("only a variable can be updated", location=invocation.location)
            if label in updates:
                raise CompileError(
                    f"the variable labelled '{label}' is updated twice",
                    location=invocation.location,
                    notes=(("the first update is here", updates[label].location),),
                )
            updates[label] = invocation
    return updates


def _as_array(value: Stored) -> Array:
    """Returns a value that changes from run to run: an array of its own type."""
    return value if isinstance(value, np.ndarray) else value.values()


def _lower(
    lowering: Lowering,
    invocation: Invocation,
    values: Mapping[str, Stored],
    states: Mapping[str, relax.Var],
) -> None:
    """Lower one invocation and bind its results, under their own names where the name is free."""
    match invocation.operation.name:
        case "external":
            return
        case "variable":
            label = invocation.args.label
            value = states.get(label, values[label])
            lowering.hint = invocation.tensors[0].name
            made = value if isinstance(value, np.ndarray | relax.Var) else value.lower(lowering)
            bound = lowering.bound(made)
            lowering.bind(invocation.tensors[0], bound)
            own = values[label]
            if isinstance(own, Fp16Values):
                note_name(bound, label)
            elif not isinstance(own, BlockTensor):
                note_name(own.codes if isinstance(own, Codes) else np.asarray(own), label)
            return
    tensors = invocation.tensors
    lowering.hint = tensors[0].name
    note_location(f"'{invocation.operation.name}' in {invocation.location}")
    try:
        made = invocation.operation.lower(lowering, invocation.args)
    except CompileError as error:
        if error.location is None:
            raise CompileError(error.message, location=invocation.location, hint=error.hint) from None
        raise
    operands: list[Operand] = list(made) if isinstance(made, list | tuple) else [made]
    for tensor, operand in zip(tensors, operands, strict=True):
        if not isinstance(operand, np.ndarray | relax.Var | GenericConst):
            operand = lowering.builder.emit(operand, tensor.name)
        note_name(operand, tensor.name)
        lowering.bind(tensor, operand)


def _quantize(
    lowering: Lowering,
    invocation: Invocation,
    values: Mapping[str, Stored],
    states: Mapping[str, relax.Var],
    quantization: Quantization,
) -> None:
    """Let results that `graph.quant` has an entry for stand for what they are rounded to.

    The elements of a variable's file are rounded already if they are marked so; states are as they are given.
    """
    label = invocation.args.label if invocation.operation.name == "variable" else None
    if label is not None and (label in states or isinstance(values[label], Codes)):
        return
    for tensor in invocation.tensors:
        by = quantization.get(tensor.name)
        if by is None or tensor.content != "scalar":
            continue
        grid, value = grid_of(by, tensor.shape), lowering.operand(tensor)
        note_location(f"the entry of '{tensor.name}' in graph.quant")
        if grid is not None:
            lowering.hint = tensor.name
            lowering.bind(tensor, grid.applied(lowering, value))
        elif _is_rounded(by) and label is None:
            lowering.bind(tensor, _by_definition(lowering, tensor, value, by))


def _is_rounded(by: QuantizedBy) -> bool:
    """Returns whether an entry rounds what is computed: codes of 32 bits, as biases have, are as fine as floats."""
    return int(by.arguments.get("bits", 8)) < 24


def _by_definition(lowering: Lowering, tensor: Tensor, value: Operand, by: QuantizedBy) -> Operand:
    """Applies a quantize operation to a tensor, by the standard's definition."""
    given = {name: argument for name, argument in by.arguments.items() if isinstance(argument, list)}
    operands = [value, *(_parameter(by, name, argument) for name, argument in given.items())]
    names = ["x", *given]
    arguments = ", ".join(
        f"{name} = {name if name in given else spell_value(argument)}" for name, argument in by.arguments.items()
    )
    kinds = ["scalar", *("integer" if name == "zero_point" else "scalar" for name in given)]
    kinds = [f"<{kind}>" if by.dialect is Dialect.FINAL else "" for kind in kinds]
    shapes = {name: tuple(shape_of(operand)) for name, operand in zip(names, operands, strict=True)}
    lines = [
        f"{name} = external{kind}(shape = {[0] * len(shapes[name])});" for name, kind in zip(names, kinds, strict=True)
    ]
    heading = f"version 1.0; graph g({', '.join(names)}) -> (y)"
    text = f"{heading} {{ {' '.join(lines)} y = {by.operation.name}(x, {arguments}); }}"
    document = parse(text, "graph.quant", by.dialect)
    try:
        flat = _flatten(document, shapes, None, MAX_DEPTH, MAX_OPERATIONS, _lowered_by_definition)
    except CompileError as error:
        raise CompileError(f"the entry of '{tensor.name}' in graph.quant, '{by}': {error.message}") from None
    for inner, operand in zip(flat.inputs, operands, strict=True):
        lowering.bind(inner, operand)
    for invocation in flat.invocations:
        _lower(lowering, invocation, {}, {})
    return lowering.operand(flat.outputs[0])


def _parameter(by: QuantizedBy, name: str, argument: list[Any]) -> Array:
    """A parameter with elements for channels; dimensions match from the first one."""
    return np.array(argument, np.int32 if name == "zero_point" else np.float32)


def _converted(lowering: Lowering, label: str, update: Invocation, values: Mapping[str, Stored]) -> Operand:
    """A state's new value in the state's element type: integers may differ in width."""
    value, dtype = lowering.operand(update.args.value), str(values[label].dtype)
    made: Operand = lowering.apply(Cast(dtype), value)
    return made
