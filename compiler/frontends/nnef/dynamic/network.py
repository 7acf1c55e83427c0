"""Builds a network from a document of tract's dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

import tvm
from tvm import relax

from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.frontends.nnef import registries as _registries  # noqa: F401  (fills REGISTRIES)
from nnefc.frontends.nnef.declarations import nearest_name
from nnefc.frontends.nnef.dynamic.custom import custom_registries
from nnefc.frontends.nnef.dynamic.emitter import DynamicEmitter
from nnefc.frontends.nnef.dynamic.interpreter import Interpreter, Source
from nnefc.frontends.nnef.dynamic.quantized import QuantizedTensors
from nnefc.frontends.nnef.dynamic.registry import REGISTRIES, ExtensionRegistry
from nnefc.frontends.nnef.dynamic.submodels import run_submodel
from nnefc.frontends.nnef.dynamic.symbols import INPUTS, Symbols, declared_inputs, named_in_inputs, read_assertions
from nnefc.frontends.nnef.dynamic.values import Value, coerced, dtype_named, integers
from nnefc.frontends.nnef.evaluator import Limits
from nnefc.frontends.nnef.files.archive import ModelFiles
from nnefc.frontends.nnef.files.quantization import Quantization, parse_quantization
from nnefc.frontends.nnef.files.weights import random_values
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.deep_stack import call_with_deep_stack
from nnefc.frontends.nnef.language.types import STRING, Dialect
from nnefc.ir.network import DynamicDimension, Network, State
from nnefc.ir.outline import DynamicTensor
from nnefc.operators.base import Operand, check_size
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.operators.tensor.shape import distinct_results
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import Array
from nnefc.symbolic.dims import Dimension, DynamicSize
from nnefc.symbolic.refinement import Refinement

__all__ = ["dynamic_network"]

_CACHES = ("tract_transformers_dyn_kv_cache", "tract_transformers_quantized_dyn_kv_cache")
_ALWAYS = ("standard", "tract_core")


@dataclass
class _Network:
    """Collects the inputs and the values of variables while a graph is evaluated."""

    files: ModelFiles
    entries: Quantization
    given: Mapping[str, tuple[int | DynamicSize, ...]]
    seed: int | None
    inputs: dict[str, relax.Var] = field(default_factory=dict)
    values: dict[str, Array | BlockTensor] = field(default_factory=dict)


def _lengths(document: syntax.Document, graph: syntax.Graph) -> set[str]:
    """The symbols that say how many positions caches hold, those in fragments too."""
    found: set[str] = set()
    for call in (part for node in (graph, *document.fragments) for part in syntax.parts_of(node)):
        if isinstance(call, syntax.Invocation) and call.name in _CACHES:
            named = {argument.name: argument.value for argument in call.arguments}
            shape, axis = named.get("past_sequence_shape"), named.get("axis")
            match shape, axis:
                case syntax.Array(_, elements), syntax.Literal(_, int() as location) if location < len(elements):
                    found |= {
                        element.name
                        for element in elements[location : location + 1]
                        if isinstance(element, syntax.Identifier)
                    }
    return found


def dynamic_network(
    document: syntax.Document,
    graph: syntax.Graph,
    files: ModelFiles,
    shape: Mapping[str, tuple[int | DynamicSize, ...]],
    limits: Limits,
    outputs: Sequence[str],
    refinement: Refinement,
    random_weights: int | None = None,
    scan_states: str | None = None,
) -> Network:
    """Build a document's graph as a network.

    Args:
        document: in tract's dialect.
        graph: of the document.
        files: of the model.
        shape: sizes of symbols or shapes of inputs, by name.
        limits: what the document may ask for.
        outputs: names of tensors to return in place of the graph's own outputs.
        refinement: what is known of dynamic sizes.
        random_weights: a seed for the values of variables that have no file.
        scan_states: whether states of scans "keep" their values for the next run or are "reset" in each; None: they
            are kept where the graph is one of tract's for pieces of streams.

    Raises:
        CompileError: with the location.
    """
    assertions = read_assertions(document)
    for text in assertions.notes:
        refinement.notes[f"assertion {text}"] = f"the assertion '{text}' is not understood, and says nothing of sizes"
    declared = declared_inputs(graph)
    _check_given(shape, declared, assertions.symbols)
    symbols = Symbols(assertions, declared, named_in_inputs(graph), _lengths(document, graph), shape, refinement)
    opened = symbols.opened.all()
    keeps_states = scan_states == "keep" or (scan_states is None and _is_pulse(graph))
    shapes = {
        t.name: tuple(symbols.sizes.get(s, 1) if isinstance(s, str) else s or 1 for s in t.shape or ())
        for t in declared
    }
    with dynamic_shape_context(opened, shapes):
        network = _Network(files, _quantization(files), shape, random_weights)
        build = partial(_built, document, graph, network, symbols, limits, outputs, keeps_states)
        made = call_with_deep_stack(build, document.source.file, limits.depth)
        present = _present(opened, symbols.absent, made.module)
        return replace(made, dynamic_dimensions=present, scenarios=assertions.scenarios)


def _present(
    opened: Sequence[DynamicDimension], absent: Set[str], module: tvm.IRModule
) -> tuple[DynamicDimension, ...]:
    """The dynamic dimensions without those that no input has.

    Raises:
        CompileError: one of these is needed.
    """
    used = {
        var
        for function in module.functions.values()
        if isinstance(function, relax.Function)
        for var in relax.analysis.all_vars(function)
    }
    for dimension in opened:
        if dimension.name in absent and any(dimension.var.same_as(var) for var in used):
            raise CompileError(
                f"no input tells the size of the symbol '{dimension.name}', which the graph needs",
                hint=f"give it: --shape {dimension.name}=64",
            )
    return tuple(dimension for dimension in opened if dimension.name not in absent)


def _quantization(files: ModelFiles) -> Quantization:
    text = files.quantization()
    if text is None:
        return {}
    defaults = {"symmetric": False, "signed": False}
    return parse_quantization(text, files.describe("graph.quant"), Dialect.FINAL, defaults)


def _is_pulse(graph: syntax.Graph) -> bool:
    """Returns whether tract made the graph to compute a stream in pieces, one a run."""
    return any(isinstance(n, syntax.Invocation) and n.name.startswith("tract_pulse_") for n in syntax.parts_of(graph))


def _check_given(
    shape: Mapping[str, tuple[int | DynamicSize, ...]], inputs: Sequence[DynamicTensor], symbols: Sequence[str]
) -> None:
    for name, given in shape.items():
        known = [*(tensor.name for tensor in inputs), *symbols]
        if name not in known:
            nearest = nearest_name(name, known)
            hint = f"did you mean '{nearest}'?" if nearest else f"there are {', '.join(known)}"
            raise CompileError(f"there is no input or symbol '{name}'", hint=hint)
        if name in symbols and len(given) != 1:
            raise CompileError(f"the symbol '{name}' needs one size, {len(given)} are given")


def _named_registries(document: syntax.Document) -> dict[str, ExtensionRegistry]:
    """The registries that a document names, and those that are always there.

    Raises:
        CompileError: one is not known.
    """
    named = {name: REGISTRIES[name] for name in _ALWAYS}
    there = {**REGISTRIES, **custom_registries()}
    for extension in document.extensions:
        if extension.name != "tract_registry":
            continue
        for name in extension.options[0].split() if extension.options else ():
            if name not in there or name == "standard":
                known = [each for each in there if each != "standard"]
                nearest = nearest_name(name, known)
                hint = f"did you mean '{nearest}'?" if nearest else f"known are {', '.join(known)}"
                hint += "; --registry FILE.py adds your own"
                location = document.source.location(extension.at)
                raise CompileError(f"the registry '{name}' is not known", location=location, hint=hint)
            named[name] = there[name]
    return named


def _built(
    document: syntax.Document,
    graph: syntax.Graph,
    made: _Network,
    symbols: Symbols,
    limits: Limits,
    outputs: Sequence[str],
    keeps_states: bool,
) -> Network:
    builder = relax.BlockBuilder()
    emitter = DynamicEmitter(builder)
    names = list(outputs) or [output.name for output in graph.outputs]
    sizes = dict(symbols.sizes)
    quantized = QuantizedTensors(emitter, made.entries)
    interpreter = Interpreter(
        document,
        emitter,
        _named_registries(document),
        sizes,
        _sources(made, emitter, lambda args, content, target, _: _external(made, quantized, args, content, target)),
        limits,
        keeps_states,
        symbols.absent,
        quantized,
        made.files,
        partial(run_submodel, partial(_inside, made.seed)),
    )
    failure: BaseException | None = None
    results: list[Operand] = []
    with builder.function("main"):
        with builder.dataflow():
            try:
                sizes.update({name: emitter.length(name, maximum) for name, maximum in symbols.lengths.items()})
                values = interpreter.run_graph(graph)
                results = [emitter.tensor(quantized.result(name, _named(values, name, graph))) for name in names]
            except BaseException as error:
                failure = error
            distinct = distinct_results(emitter, results + [update for _, update in emitter.updates.values()])
            emitted = builder.emit_output(relax.Tuple([*distinct, *emitter.counts.values()]))
        order = [made.inputs[each.name] for each in graph.inputs if each.name in made.inputs]
        builder.emit_func_output(emitted, [*order, *emitter.state_variables.values()])
    if failure is not None:
        raise failure
    missing = [each for each in graph.inputs if each.name not in made.inputs]
    if missing:
        location = document.source.location(missing[0].at)
        raise CompileError(f"the input '{missing[0].name}' is not made by 'external'", location=location)
    states = tuple(State(name, value, emitter.sequence_axes.get(name)) for name, (value, _) in emitter.updates.items())
    module = relax.transform.DeadCodeElimination(["main"])(builder.finalize())
    return Network(
        graph.name,
        module,
        tuple(each.name for each in graph.inputs),
        tuple(names),
        states,
        variables=tuple(made.values),
        controls=emitter.controls,
        counts=tuple(emitter.counts),
    )


def _sources(made: _Network, ctx: DynamicEmitter, external: Source) -> dict[str, Source]:
    """Return the functions that create the values of inputs and variables."""
    return {
        **dict.fromkeys(INPUTS, external),
        "variable": lambda args, content, target, location: _variable(made, ctx, args, content),
    }


def _inside(
    seed: int | None,
    outer: Interpreter,
    document: syntax.Document,
    files: ModelFiles,
    sizes: Mapping[str, Dimension],
    external: Source,
) -> Interpreter:
    """The interpreter of a document in another one."""
    made, emitter = _Network(files, _quantization(files), {}, seed), outer.emitter
    registries, sources = _named_registries(document), _sources(made, emitter, external)
    return outer.inside(document, registries, sizes, sources, QuantizedTensors(emitter, made.entries), files)


def _named(values: Mapping[str, Value], name: str, graph: syntax.Graph) -> Value:
    if name not in values:
        nearest = nearest_name(name, values)
        hint = f"did you mean '{nearest}'?" if nearest else None
        raise CompileError(f"the graph '{graph.name}' has no tensor '{name}'", hint=hint)
    return values[name]


def _external(
    made: _Network, quantized: QuantizedTensors, args: Mapping[str, Value], content: str, target: str
) -> relax.Var:
    """An input; one with an entry of `graph.quant` is the integers."""
    dtype = quantized.input_dtype(target) or {"scalar": "float32", "integer": "int64", "logical": "bool"}[content]
    if "datum_type" in args:
        dtype = dtype_named(str(coerced(args["datum_type"], STRING)))
    shape = integers(args.get("shape", []))
    given = made.given.get(target)
    if given is not None:
        if len(given) != len(shape):
            raise CompileError(
                f"the shape {list(given)} given for the input '{target}' has {len(given)} dimensions, "
                f"the document has {len(shape)}"
            )
        shape = [size if isinstance(wanted, DynamicSize) else wanted for size, wanted in zip(shape, given, strict=True)]
    shape = list(check_size(shape))
    made.inputs[target] = relax.Var(target, relax.TensorType(shape, "int64" if dtype == "tdim" else dtype))
    return made.inputs[target]


def _variable(made: _Network, ctx: DynamicEmitter, args: Mapping[str, Value], content: str) -> Operand:
    """A trained value, of the element type that its file has; or a random one, if a seed is given."""
    if "label" not in args:
        raise CompileError("the variable has no label, which says what its file is called")
    label = coerced(args["label"], STRING)
    if label not in made.values:
        stored = made.files.tensor(label)
        if stored is not None:
            made.values[label] = stored
        elif made.seed is not None and "shape" in args:
            made.values[label] = random_values(label, content, check_size(integers(args["shape"])), None, made.seed)
        else:
            raise CompileError(
                f"there is no file '{made.files.describe(f'{label}.dat')}' for the variable labelled '{label}'",
                hint="for a network with random weights give a seed: --random-weights SEED",
            )
    value = made.values[label]
    shape = integers(args["shape"]) if "shape" in args else list(value.shape)
    if list(value.shape) != shape:
        raise CompileError(
            f"the file of the variable labelled '{label}' holds the shape {list(value.shape)}, the variable has {shape}"
        )
    return ctx.bound(value.lower(ctx)) if isinstance(value, BlockTensor) else value
