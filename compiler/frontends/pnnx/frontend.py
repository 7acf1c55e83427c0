"""Entry point of the PNNX front end: param and bin files → operators → one Relax function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.frontends.dynamic_shapes import DynamicInputs, dynamic_shape_context
from nnefc.frontends.pnnx.bin import WeightFile
from nnefc.frontends.pnnx.custom import is_custom, lower_custom
from nnefc.frontends.pnnx.expression import ExpressionLocation, parse
from nnefc.frontends.pnnx.lowering import MAX_LIST_ELEMENTS, Array, Lowering, Shape, check_list
from nnefc.frontends.pnnx.lowering_expression import lower
from nnefc.frontends.pnnx.operators.declaration import NATIVE, OPERATORS, Declaration, arguments_of, nearest
from nnefc.frontends.pnnx.param import DTYPES, ParamGraph, ParamOperator, read_param
from nnefc.frontends.refusals import REFUSALS, raised_by_tvm, reason_of
from nnefc.ir.network import DynamicDimension, Network
from nnefc.operators.base import build_main, check_size
from nnefc.operators.recording import note_location, note_name
from nnefc.operators.tensor.shape import distinct_results
from nnefc.support.diagnostics import CompileError, warn
from nnefc.symbolic.dims import DynamicSize, dimensions
from nnefc.symbolic.refinement import Refinement, refined

__all__ = ["expressions_of", "is_supported", "load", "name_of"]

_INPUT_TYPES = frozenset({dtype for dtype in DTYPES.values() if dtype and not dtype.startswith("complex")})


def load(
    path: Path | str,
    *,
    shape: Mapping[str, tuple[int | DynamicSize, ...]] | None = None,
    output_tensors: tuple[str, ...] = (),
    is_tied: bool = False,
) -> Network:
    """Load a PNNX network.

    The inputs have the names of their operators (`pnnx_input_0`, …), the outputs are numbered (`pnnx_output_0`, …) in
    the order in which PyTorch returns them, tuples laid flat.

    Args:
        path: the param file, `NAME.pnnx.param` or `NAME.param`; the binary file lies next to it as `.bin`.
        shape: shapes of inputs in place of those in the file, by the name of the operator or the operand. Sizes
            that the file leaves open, stay open.
        output_tensors: names of operands to return in place of the network's outputs, which may be among them.
        is_tied: whether dynamic sizes that broadcast are one size.

    Raises:
        CompileError: anything in the files or the arguments that does not fit; with the location and a way out.
    """
    path = Path(path)
    graph = read_param(path)
    with WeightFile(path.with_suffix(".bin")) as weights:
        network, refinement = refined(
            lambda known: _build(graph, weights, dict(shape or {}), output_tensors, name_of(path), known), is_tied
        )
    for text in refinement.notes.values():
        warn(f"{path.name}: {text}")
    return network


def expressions_of(path: Path | str) -> list[tuple[str, str]]:
    """The expressions in a param file: names of their operators and their texts.

    Raises:
        CompileError: the file is no param file.
    """
    return [(operator.name, _expression_text(operator)[0]) for operator in read_param(Path(path)).operators
            if operator.type == "pnnx.Expression"]  # fmt: skip


def name_of(path: Path) -> str:
    """The network's name, after its file's."""
    name = path.name.removesuffix(".param").removesuffix(".pnnx")
    return name or "network"


def _build(
    graph: ParamGraph,
    weights: WeightFile,
    shapes: dict[str, Any],
    output_tensors: tuple[str, ...],
    name: str,
    refinement: Refinement,
) -> Network:
    _check_names(graph, shapes)
    opened = DynamicInputs(refinement)
    inputs = {
        op.outputs[0]: _input(graph, op, shapes, opened)
        for op in graph.operators
        if op.type == "pnnx.Input"
        if _one(op)
    }
    given = {str(var.name): dimensions(var.ty.shape) for var in inputs.values()}
    with dynamic_shape_context(opened.dimensions, given):
        return _built(graph, weights, inputs, output_tensors, name, opened.dimensions)


def _built(
    graph: ParamGraph,
    weights: WeightFile,
    inputs: Mapping[str, relax.Var],
    output_tensors: tuple[str, ...],
    name: str,
    dynamic_dimensions: tuple[DynamicDimension, ...],
) -> Network:
    ctx = Lowering(relax.BlockBuilder())
    outputs: dict[str, Any] = {}

    def make() -> list[relax.Expr]:
        values, results = _lower_all(ctx, graph, inputs, weights)
        outputs.update((f"pnnx_output_{index}", result) for index, result in enumerate(results))
        if output_tensors:
            found = {name: _output_tensor(values | outputs, name) for name in output_tensors}
            outputs.clear()
            outputs.update(found)
        return distinct_results(ctx, list(outputs.values()))

    module = build_main(ctx.builder, make, lambda: list(inputs.values()))
    return Network(
        name,
        module,
        tuple(var.name for var in inputs.values()),
        tuple(outputs),
        controls=ctx.controls,
        dynamic_dimensions=dynamic_dimensions,
    )


def _lower_all(
    ctx: Lowering, graph: ParamGraph, inputs: Mapping[str, relax.Var], weights: WeightFile
) -> tuple[dict[str, Any], list[Any]]:
    """The values of all operands by name, and the network's results."""
    values: dict[str, Any] = dict(inputs)
    results: list[Any] = []
    for operator in graph.operators:
        if operator.type == "pnnx.Output":
            if operator.outputs:
                raise CompileError("an output of the network has no outputs of its own", location=operator.location)
            results += [tensor for o in operator.inputs for tensor in _flat(values[o], operator)]
            if len(results) > MAX_LIST_ELEMENTS:
                raise CompileError(f"the network has more than {MAX_LIST_ELEMENTS} outputs", location=operator.location)
        elif operator.type != "pnnx.Input":
            made = _lower(ctx, operator, [values[o] for o in operator.inputs], weights.read(operator))
            values.update(zip(operator.outputs, made, strict=True))
    if not results:
        raise CompileError(f"{graph.file} has no outputs")
    return values, results


def _one(operator: ParamOperator) -> bool:
    if len(operator.outputs) != 1 or operator.inputs:
        raise CompileError("an input has one output and no inputs", location=operator.location)
    return True


def _check_names(graph: ParamGraph, shapes: Mapping[str, Shape]) -> None:
    """Refuse shapes for what is no input, by the name of the operator or the operand."""
    inputs = [operator for operator in graph.operators if operator.type == "pnnx.Input"]
    names = [operator.name for operator in inputs]
    for name in shapes:
        if name not in names and not any(name in operator.outputs for operator in inputs):
            raise CompileError(
                f"the network has no input '{name}'", hint=nearest(name, names) or f"its inputs are {', '.join(names)}"
            )


def _spelled(shape: tuple[int | None, ...]) -> str:
    """Formats a shape as in the file, `(1,3,?,?)`."""
    return f"({','.join('?' if size is None else str(size) for size in shape)})"


def _input(graph: ParamGraph, operator: ParamOperator, shapes: dict[str, Any], opened: DynamicInputs) -> relax.Var:
    """The variable of an input; what `shapes` says of it is taken out there."""
    operand = operator.outputs[0]
    type = graph.types.get(operand)
    asked = shapes.pop(operator.name, None)
    asked = shapes.pop(operand, None) if asked is None else asked
    if type is None or (type.dtype or "float32") not in _INPUT_TYPES:
        raise CompileError(
            f"the type of the input '{operator.name}' is missing or not supported",
            location=operator.location,
            hint="give pnnx the inputs' shapes and types: pnnx model.pt 'inputshape=[1,3,224,224]f32'",
        )
    wanted = tuple(type.shape if asked is None else asked)
    if len(wanted) != len(type.shape):
        raise CompileError(
            f"the input '{operator.name}' has {len(type.shape)} dimensions, the shape given {len(wanted)}",
            location=operator.location,
            hint=f"the file gives it {_spelled(type.shape)}",
        )
    if any(isinstance(size, int) and size < 1 for size in wanted):
        raise CompileError(f"the input '{operator.name}' has an empty dimension", location=operator.location)
    shape = opened.shape(operator.name, wanted)
    try:
        return relax.Var(operator.name, relax.TensorType(check_size(shape), type.dtype or "float32"))
    except CompileError as error:
        raise CompileError(error.message, location=operator.location) from None


# Operators.


def _lower(ctx: Lowering, operator: ParamOperator, operands: list[Any], weights: dict[str, Array]) -> list[Any]:
    """The values of the operator's results, all bound: TVM checks an expression when it is."""
    ctx.hint = _identifier(operator.name)
    ctx.results = len(operator.outputs)
    note_location(f"'{operator.name}' ({operator.type})")
    for name, array in weights.items():
        note_name(array, f"{operator.name}.{name}")
    try:
        made = _named(ctx, operator, _made(ctx, operator, operands, weights))
        if len(made) == 1:
            note_name(made[0], operator.name)
        return made
    except CompileError as error:
        if error.location is None:
            raise CompileError(error.message, location=operator.location, hint=error.hint) from None
        raise
    except REFUSALS as error:
        if not raised_by_tvm(error):
            raise
        raise CompileError(
            f"'{operator.type}' cannot be compiled with these operands: {reason_of(error)}",
            location=operator.location,
        ) from None


def _made(ctx: Lowering, operator: ParamOperator, operands: list[Any], weights: dict[str, Array]) -> Any:
    if is_custom(operator.type):
        return lower_custom(ctx, operator, operands, weights)
    special = _STRUCTURE.get(operator.type)
    if special is not None:
        return special(ctx, operator, operands, weights)
    declaration = _declaration(operator.type)
    if declaration is None:
        raise CompileError(
            f"there is no operator '{operator.type[:80]}'",
            hint=nearest(operator.type, [*OPERATORS, *_STRUCTURE])
            or "register it with --operators FILE.py, see docs/how-to/custom-operator.md",
        )
    variadic, keywords = arguments_of(declaration, operator, operands, weights)
    return declaration.lower(ctx, *variadic, **keywords)


def is_supported(type: str) -> bool:
    """Returns whether operators of this type can be compiled."""
    return is_custom(type) or type in _STRUCTURE or _declaration(type) is not None


def _declaration(type: str) -> Declaration | None:
    if not type.startswith(NATIVE):
        return OPERATORS.get(type)
    name = type.removeprefix(NATIVE)
    return next(
        (OPERATORS[f"{space}.{name}"] for space in ("torch", "Tensor", "F") if f"{space}.{name}" in OPERATORS), None
    )


def _identifier(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name[:60])


def _named(ctx: Lowering, operator: ParamOperator, made: Any) -> list[Any]:
    """The values of the operator's results; expressions are bound."""
    many = isinstance(made, tuple | list)
    if len(operator.outputs) == 1 and not (many and operator.type in _UNPACKING):
        return [_bound(ctx, made)]
    if not many or len(made) != len(operator.outputs):
        count = len(made) if many else 1
        raise CompileError(
            f"'{operator.type}' has {count} results, here it has {len(operator.outputs)}", location=operator.location
        )
    return [_bound(ctx, one) for one in made]


def _bound(ctx: Lowering, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_bound(ctx, element) for element in value)
    if isinstance(value, relax.Expr) and not isinstance(value, relax.Var | tvm.ir.GenericConst):
        return ctx.emit(value)
    return value


def _attribute(ctx: Lowering, operator: ParamOperator, operands: list[Any], weights: dict[str, Array]) -> Any:
    if len(weights) != 1 or operands:
        raise CompileError(f"an attribute has one tensor, here it has {len(weights)}")
    return next(iter(weights.values()))


def _expression_text(operator: ParamOperator) -> tuple[str, ExpressionLocation]:
    parameter = operator.parameters.get("expr")
    if parameter is None:
        raise CompileError("an expression needs the parameter 'expr'", location=operator.location)
    where = parameter.location
    return parameter.text, ExpressionLocation(where.file, where.line, where.column, where.text)


def _expression(ctx: Lowering, operator: ParamOperator, operands: list[Any], weights: dict[str, Array]) -> Any:
    text, location = _expression_text(operator)
    tree = parse(text, location, operands=len(operands))
    return lower(tree, operands, ctx)


def _sequence(ctx: Lowering, operator: ParamOperator, operands: list[Any], weights: dict[str, Array]) -> Any:
    made = tuple(operands)
    check_list(made)
    return made


def _unpacked(ctx: Lowering, operator: ParamOperator, operands: list[Any], weights: dict[str, Array]) -> Any:
    if len(operands) != 1 or not isinstance(operands[0], tuple):
        raise CompileError("there is nothing to unpack: the input is not a sequence")
    return operands[0]


def _constant(ctx: Lowering, operator: ParamOperator, operands: list[Any], weights: dict[str, Array]) -> Any:
    if "value" not in operator.parameters:
        return _attribute(ctx, operator, operands, weights)
    return operator.parameters["value"].value


_STRUCTURE = {
    "pnnx.Attribute": _attribute,
    "pnnx.Expression": _expression,
    "prim::Constant": _constant,
    "prim::TupleConstruct": _sequence,
    "prim::ListConstruct": _sequence,
    "prim::TupleUnpack": _unpacked,
    "prim::ListUnpack": _unpacked,
}
_UNPACKING = frozenset({"prim::TupleUnpack", "prim::ListUnpack"})


# Results.


def _flat(value: Any, operator: ParamOperator) -> Iterator[Any]:
    """The tensors in a value, in order."""
    match value:
        case tuple():
            for element in value:
                yield from _flat(element, operator)
        case bool() | int() | float():
            if abs(value) >= 1 << 63 and isinstance(value, int):
                raise CompileError("an output does not fit into 64 bits", location=operator.location)
            yield np.array(value, np.float32 if isinstance(value, float) else None)
        case None | str() | complex():
            raise CompileError("an output is not a tensor", location=operator.location)
        case _:
            yield value


def _output_tensor(values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise CompileError(f"the network has no operand '{name}'", hint=nearest(name, values))
    value = values[name]
    if not isinstance(value, relax.Expr | np.ndarray):
        raise CompileError(f"the operand '{name}' is not a tensor")
    return value
