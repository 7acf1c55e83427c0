"""Entry point of the TFLite front end: flatbuffer → checked model → operators → one Relax function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax

from nnefc.frontends.dynamic_shapes import DynamicInputs, dynamic_shape_context
from nnefc.frontends.refusals import REFUSALS, raised_by_tvm, reason_of
from nnefc.frontends.tflite.complex_tensors import MOVEMENTS, lower_parts, moves_complex
from nnefc.frontends.tflite.custom import is_custom, lower_custom
from nnefc.frontends.tflite.hash_tables import constant_tables
from nnefc.frontends.tflite.lowering import (
    COMPLEX,
    OPERATORS,
    Declaration,
    Lowering,
    Node,
    Value,
    in_operator,
    stored,
    value_of,
)
from nnefc.frontends.tflite.model import Model, OperatorDef, Signature, Subgraph, read_model, spelled
from nnefc.frontends.tflite.shape_arithmetic import computed_sizes
from nnefc.frontends.tflite.variables import initial_variables, state_of
from nnefc.ir.network import DynamicDimension, Network, State
from nnefc.operators.base import Operand, build_main, check_size, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.math.elementwise import apply
from nnefc.operators.recording import note_location, note_name
from nnefc.operators.tensor.shape import distinct_results
from nnefc.support.diagnostics import CompileError, warn
from nnefc.symbolic.dims import DynamicSize, dimensions
from nnefc.symbolic.refinement import Refinement, refined

__all__ = ["load", "names_of", "signature_of", "unsupported_reason"]

_INPUT_TYPES = frozenset({
    *("float32", "float16", "float64", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"),
    *("uint64", "string"),
})  # fmt: skip


def load(
    path: Path | str,
    *,
    shape: Mapping[str, tuple[int | DynamicSize, ...]] | None = None,
    output_tensors: tuple[str, ...] = (),
    entry: str | None = None,
    is_tied: bool = False,
) -> Network:
    """Load a TFLite model as a network.

    Inputs and outputs have the names of their tensors, or those of a signature where `entry` is its key. Sizes that the
    file leaves open, stay open. Tensors that the model keeps between runs are states.

    Args:
        path: the file.
        shape: shapes of inputs in place of those in the file, by name.
        output_tensors: names of tensors to return in place of the network's outputs.
        entry: the key of a signature; None: the first subgraph.
        is_tied: whether dynamic sizes that broadcast are one size.

    Raises:
        CompileError: anything in the file or the arguments that does not fit; with the subgraph and the operator.
    """
    path = Path(path)
    model = read_model(path)
    signature = signature_of(model, entry)
    network, refinement = refined(
        lambda known: _Builder(model, signature, known).build(dict(shape or {}), output_tensors, path.stem), is_tied
    )
    for text in refinement.notes.values():
        warn(f"{path.name}: {text}")
    return network


def signature_of(model: Model, entry: str | None) -> Signature:
    """Return the signature to compile: the one with the key `entry`, or the first subgraph, with unique names.

    Raises:
        CompileError: there is no such signature.
    """
    if entry is not None:
        for signature in model.signatures:
            if signature.key == entry:
                return signature
        keys = ", ".join(repr(signature.key) for signature in model.signatures)
        hint = f"there are {keys}" if keys else "the file has no signatures: compile it without an entry"
        raise CompileError(f"{model.file} has no signature '{entry}'", hint=hint)
    main = model.subgraphs[0]
    return Signature("", 0, names_of(main, main.inputs), names_of(main, main.outputs))


def names_of(subgraph: Subgraph, indices: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Tensors with their names, a number added where two have the same."""
    found: dict[str, int] = {}
    for index in indices:
        name = subgraph.tensors[index].name
        if name in found:
            name = next(each for number in range(1, len(indices) + 2) if (each := f"{name}_{number}") not in found)
        found[name] = index
    return tuple(found.items())


def unsupported_reason(operator: OperatorDef) -> str | None:
    """Returns why an operator cannot be compiled whatever its operands are; None if it can."""
    if operator.is_custom:
        known = is_custom(operator.name) or operator.name in OPERATORS
        return None if known else f"the custom operator '{operator.name[:80]}' is not known"
    return None if operator.name in OPERATORS else "the operator is not supported"


class _Builder:
    """Makes the network of one signature."""

    def __init__(self, model: Model, signature: Signature, refinement: Refinement) -> None:
        self._model = model
        self._signature = signature
        self._main = model.subgraphs[signature.subgraph]
        self._opened = DynamicInputs(refinement)
        self._refinement = refinement
        self._running: list[int] = []
        self._states: dict[str, tuple[relax.Var, State]] = {}
        self.ctx = Lowering(relax.BlockBuilder(), self.run)

    def build(self, shapes: dict[str, Any], output_tensors: tuple[str, ...], name: str) -> Network:
        """The network; its inputs have these shapes."""
        inputs = {index: self._input(name_, index, shapes) for name_, index in self._signature.inputs}
        if shapes:
            known = ", ".join(name_ for name_, _ in self._signature.inputs)
            raise CompileError(
                f"{self._model.file} has no input '{next(iter(shapes))}'", hint=f"its inputs are {known}"
            )
        given = {str(var.name): dimensions(var.ty.shape) for var in inputs.values()}
        with dynamic_shape_context(self._opened.dimensions, given):
            return self._built(inputs, output_tensors, name, self._opened.dimensions)

    def _input(self, name: str, index: int, shapes: dict[str, Any]) -> relax.Var:
        tensor = self._main.tensors[index]
        where = f"{self._model.file}: input '{name}'"
        if tensor.dtype not in _INPUT_TYPES:
            raise CompileError(f"{where} is of {tensor.dtype}, which is not supported")
        asked = shapes.pop(name, None)
        if asked is None and not tensor.has_shape:
            asked = ()
        wanted = tuple(tensor.shape if asked is None else asked)
        if tensor.has_shape and len(wanted) != len(tensor.shape):
            raise CompileError(f"{where} has the shape {spelled(tensor.shape)}, the shape given {spelled(wanted)}")
        if any(isinstance(size, int) and size < 0 for size in wanted):
            raise CompileError(f"{where} has a negative dimension")
        shape = check_size(self._opened.shape(name, wanted))
        return relax.Var(name, relax.TensorType(shape, stored(tensor.dtype)))

    def _built(
        self,
        inputs: Mapping[int, relax.Var],
        output_tensors: tuple[str, ...],
        name: str,
        dynamic_dimensions: tuple[DynamicDimension, ...],
    ) -> Network:
        outputs: dict[str, Any] = {}
        ctx = self.ctx
        ctx.refinement = self._refinement
        ctx.tables = constant_tables(self._model, self._signature.subgraph)
        tensors = self._main.tensors
        texts = {each for each, index in self._signature.inputs if tensors[index].dtype == "string"}

        def make() -> list[relax.Expr]:
            values = self._first_values(inputs)
            self._run_all(self._main, values)
            for each, index in self._chosen(output_tensors):
                outputs[each] = ctx.tensor(self._value(values, self._main, index, "an output"))
                texts.update({each} if tensors[index].dtype == "string" else ())
            after = [ctx.expr(ctx.tensor(self._state_after(key, values))) for key in self._states]
            after += self._runs_after()
            made: list[relax.Expr] = distinct_results(ctx, [*outputs.values(), *after])
            return [*made, *ctx.counts.values()]

        module = build_main(ctx.builder, make, lambda: [*inputs.values(), *(var for var, _ in self._states.values())])
        return Network(
            name,
            module,
            tuple(str(var.name) for var in inputs.values()),
            tuple(outputs),
            states=tuple(state for _, state in self._states.values()),
            controls=ctx.controls,
            dynamic_dimensions=dynamic_dimensions,
            counts=tuple(ctx.counts),
            texts=frozenset(texts),
            has_text=bool(texts) or ctx.has_text,
            metadata={"description": self._model.description} if self._model.description else {},
        )

    # States.

    def _first_values(self, inputs: Mapping[int, relax.Var]) -> dict[int, Value]:
        """The values of inputs and states before the first operator."""
        tensors = self._main.tensors
        values = {i: Value(_known(var), tensors[i].dtype, tensors[i].quantization) for i, var in inputs.items()}
        for tensor in tensors:
            if tensor.is_variable and tensor.index not in values:
                var, state = state_of(tensor.name, tensor, self._model)
                self._add_state(f"#{tensor.index}", var, state)
                values[tensor.index] = Value(var, tensor.dtype, tensor.quantization)
        for name, tensor_, initial in initial_variables(self._model, self._signature.subgraph):
            var, state = state_of(name, tensor_, self._model, initial)
            self._add_state(name, var, state)
            self.ctx.variables[name] = Value(var, tensor_.dtype, tensor_.quantization)
        return values

    def _add_state(self, key: str, var: relax.Var, state: State) -> None:
        self._states[key] = var, state

    def _state_after(self, key: str, values: Mapping[int, Value]) -> Value:
        return values[int(key[1:])] if key.startswith("#") else self.ctx.variables[key]

    def _runs_after(self) -> list[relax.Expr]:
        """Adds the state that counts runs, where random numbers are drawn; returns its new value."""
        runs = self.ctx.runs
        if runs is None:
            return []
        taken = {state.name for _, state in self._states.values()} | {each for each, _ in self._signature.inputs}
        name = next(each for number in range(len(taken) + 1) if (each := f"runs{number or ''}") not in taken)
        self._states["@runs"] = runs, State(name, np.zeros((), np.int64))
        return [self.ctx.expr(apply(self.ctx, "add", runs, np.array(1, np.int64)))]

    # Results.

    def _chosen(self, output_tensors: tuple[str, ...]) -> list[tuple[str, int]]:
        if not output_tensors:
            return list(self._signature.outputs)
        names = {tensor.name: tensor.index for tensor in self._main.tensors} | dict(self._signature.outputs)
        for name in output_tensors:
            if name not in names:
                raise CompileError(f"{self._model.file} has no tensor '{name}'")
        return [(name, names[name]) for name in output_tensors]

    def _value(self, values: Mapping[int, Value], subgraph: Subgraph, index: int, what: str) -> Value:
        """A tensor that is computed, or a constant.

        Raises:
            CompileError: nothing computes it.
        """
        if index in values:
            return values[index]
        tensor = subgraph.tensors[index]
        array = self._model.array(tensor)
        if array is None:
            raise CompileError(
                f"{self._model.file}: subgraph {subgraph.index}: {what} is the tensor '{tensor.name}', which is "
                "neither a constant nor computed before"
            )
        note_name(array, tensor.name)
        return Value(array, tensor.dtype, tensor.quantization)

    # Operators.

    def run(self, index: int, given: Sequence[Value]) -> list[Value]:
        """The outputs of a subgraph, given its inputs.

        Raises:
            CompileError: there is no such subgraph, it runs itself, or its inputs are others.
        """
        if not 0 <= index < len(self._model.subgraphs):
            raise CompileError(f"there is no subgraph {index}")
        if index in self._running or index == self._signature.subgraph:
            raise CompileError(f"subgraph {index} runs itself")
        subgraph = self._model.subgraphs[index]
        if len(given) != len(subgraph.inputs):
            raise CompileError(f"subgraph {index} has {len(subgraph.inputs)} inputs, {len(given)} are given")
        values = dict(zip(subgraph.inputs, given, strict=True))
        self._running.append(index)
        try:
            self._run_all(subgraph, values)
            return [self._value(values, subgraph, output, "an output") for output in subgraph.outputs]
        finally:
            self._running.pop()

    def _run_all(self, subgraph: Subgraph, values: dict[int, Value]) -> None:
        for operator in subgraph.operators:
            label = f"{self._model.file}: subgraph {subgraph.index}, operator {operator.index} ({operator.name[:80]})"
            with in_operator(label):
                self._run(subgraph, operator, values)

    def _run(self, subgraph: Subgraph, operator: OperatorDef, values: dict[int, Value]) -> None:
        tensors = subgraph.tensors
        without = _WITHOUT_VALUES.get(operator.name, ())
        inputs = tuple(
            None if i < 0 or number in without else self._value(values, subgraph, i, f"input {number}")
            for number, i in enumerate(operator.inputs)
        )
        node = Node(
            self.ctx, operator.name, operator.version, operator.options, inputs,
            tuple(tensors[i] for i in operator.outputs if i >= 0),
            tuple(tensors[i] for i in operator.intermediates if i >= 0), operator.custom,
            tuple(None if i < 0 else tensors[i] for i in operator.inputs),
        )  # fmt: skip
        self.ctx.offsets = self._model.offsets if without and subgraph.index == 0 else {}
        first = node.outputs[0].name if node.outputs else operator.name
        self.ctx.hint = _identifier(first)
        note_location(f"operator {operator.index} of subgraph {subgraph.index} ({operator.name[:80]})")
        made = computed_sizes(node) or self._lowered(operator, node)
        if len(made) != len(node.outputs):
            raise CompileError(f"it has {len(made)} results, the file declares {len(node.outputs)}")
        for index, tensor, each in zip((i for i in operator.outputs if i >= 0), node.outputs, made, strict=True):
            value = value_of(self._bound(each), tensor)
            if isinstance(value.operand, relax.Expr) and value.dtype != COMPLEX:
                note_name(value.operand, tensor.name)
            values[index] = value
        for position, value in node.mutated.items():
            values[operator.inputs[position]] = value

    def _lowered(self, operator: OperatorDef, node: Node) -> list[Any]:
        reason = unsupported_reason(operator)
        if reason is not None:
            raise CompileError(reason, hint=_way_out(operator))
        try:
            if operator.is_custom and is_custom(operator.name):
                made = lower_custom(self.ctx, node)
            else:
                declared = OPERATORS[operator.name]
                _check_type(declared, node)
                made = lower_parts(declared, self.ctx, node) if moves_complex(node) else declared.lower(self.ctx, node)
        except REFUSALS as error:
            if not raised_by_tvm(error):
                raise
            raise CompileError(f"it cannot be compiled with these operands: {reason_of(error)}") from None
        return list(made) if isinstance(made, list | tuple) else [made]

    def _bound(self, made: Any) -> Any:
        if isinstance(made, Value):
            return Value(self._bound(made.operand), made.dtype, made.quantization, made.sizes, made.handle)
        return _known(self.ctx.bound(made)) if isinstance(made, relax.Expr) else made


def _known(operand: relax.Expr) -> Operand:
    """A tensor without elements as an array, else what is given."""
    shape = shape_of(operand)
    return zeros(shape, dtype_of(operand)) if is_empty(shape) else operand


_WITHOUT_VALUES = {"ethos-u": (2, 3)}
"""Inputs that are memory to work with, which nothing computes."""

_WITHOUT_RESULTS = (
    "ASSIGN_VARIABLE",
    "CALL",
    "CALL_ONCE",
    "HASHTABLE_IMPORT",
    "IF",
    "WHILE",
    "STABLEHLO_CASE",
    "STABLEHLO_COMPOSITE",
    "STABLEHLO_WHILE",
)


def _check_type(declared: Declaration, node: Node) -> None:
    """Refuse an operator without results, or whose first input has an element type that it is not defined for."""
    if not node.outputs and declared.name not in _WITHOUT_RESULTS:
        raise CompileError("it has no results")
    first = next((value for value in node.inputs if value is not None), None)
    if first is not None and declared.types and first.dtype not in declared.types:
        raise CompileError(
            f"{declared.name} of {first.dtype} is not supported", hint=f"it is for {', '.join(declared.types)}"
        )
    if any(value is not None and value.dtype == "string" for value in node.inputs) and not _takes_strings(declared):
        raise CompileError(f"{declared.name} of strings is not supported")
    is_complex = any(value is not None and value.dtype == COMPLEX for value in node.inputs)
    if is_complex and COMPLEX not in declared.types and declared.family != "control" and not moves_complex(node):
        raise CompileError(f"{declared.name} of complex numbers is not supported")


def _takes_strings(declared: Declaration) -> bool:
    """Returns whether an operator computes with strings, or only moves them."""
    return declared.family in ("control", "hash_tables") or declared.name in MOVEMENTS or "string" in declared.types


def _way_out(operator: OperatorDef) -> str:
    if operator.name.startswith("Flex"):
        return "it is TensorFlow's own: convert the model with TFLITE_BUILTINS alone"
    if operator.is_custom:
        return "register it with --operators FILE.py, see docs/how-to/custom-operator.md"
    return "docs/tflite.md lists the operators that are"


def _identifier(name: str) -> str:
    letters = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name[:60])
    return letters if letters[:1].isalpha() else f"t{letters}"
