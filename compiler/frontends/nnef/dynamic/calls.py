"""Binds and coerces the arguments of operation calls in documents without static types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax

from nnefc.frontends.nnef.declarations import MISSING, Operation
from nnefc.frontends.nnef.dynamic.emitter import DynamicEmitter
from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, ExtensionOperator
from nnefc.frontends.nnef.dynamic.sizes import SIZE_FUNCTIONS
from nnefc.frontends.nnef.dynamic.values import Value, coerced, is_sizes, is_tensor
from nnefc.frontends.nnef.language.signatures import Parameter, Signature
from nnefc.frontends.nnef.language.types import ArrayType, TensorType
from nnefc.frontends.nnef.relaxed_shapes import allowing
from nnefc.frontends.nnef.values import Arguments, ShapeError
from nnefc.operators.base import Operand, dtype_of, numpy_dtype
from nnefc.operators.dtypes import FLOAT16_TYPES
from nnefc.operators.math.casting import Cast
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import of_elements

__all__ = ["as_tensors", "call_extension", "call_standard"]

_MAX_SIZES = 1 << 12
_MOVES = frozenset(
    {"copy", "concat", "reshape", "slice", "split", "squeeze", "stack", "tile", "transpose", "unsqueeze", "unstack"}
)
"""Operations that leave 16-bit floats as they are; others compute in float32."""


def call_standard(ctx: DynamicEmitter, operation: Operation, given: Mapping[str, Value], content: str = "") -> Value:
    """Call one of the standard's operations; `content` is what is written between `<` and `>`.

    Raises:
        CompileError: arguments are missing or do not fit.
    """
    if operation.name == "cast" and not content:
        hint = "write cast<scalar>(x), cast<integer>(x), or cast<logical>(x)"
        raise CompileError("'cast' does not say to which type", hint=hint)
    arguments = _complete(ctx, operation.signature, given)
    made = _of_sizes(operation.name, operation.signature, arguments)
    if made is not None:
        return made
    operands, half = _as_operands(ctx, operation.signature, arguments, operation.name in _MOVES)
    args = Arguments({name: as_tensors(ctx, value) for name, value in operands.items()}, content)
    try:
        with allowing():
            operation.shape(args)
    except ShapeError as error:
        raise CompileError(f"'{operation.name}': {error.message}", hint=error.hint) from None
    return _bound(ctx, operation.lower(ctx, args), half)


def call_extension(context: ExtensionContext, operator: ExtensionOperator, given: Mapping[str, Value]) -> Value:
    """Call an operator of a registry."""
    emitter, signature = context.emitter, operator.signature
    arguments = _complete(emitter, signature, given)
    made = _of_sizes(signature.name, signature, arguments)
    if made is not None:
        return made
    if operator.sizes:
        return _bound(emitter, operator.lower(context, Arguments(arguments)), None)
    operands, half = _as_operands(emitter, signature, arguments, not operator.promotes)
    return _bound(emitter, operator.lower(context, Arguments(operands)), half)


def _complete(ctx: DynamicEmitter, signature: Signature, given: Mapping[str, Value]) -> dict[str, Value]:
    """The arguments in the order of the declaration, with defaults, as the types of their parameters say."""
    arguments: dict[str, Value] = {}
    for parameter in signature.parameters:
        value = given.get(parameter.name, parameter.default)
        if value is MISSING:
            raise CompileError(f"'{signature.name}' needs an argument for '{parameter.name}'")
        try:
            attribute = not _takes_tensors(parameter)
            arguments[parameter.name] = coerced(_known(ctx, value) if attribute else value, parameter.type)
        except CompileError as error:
            raise CompileError(f"'{parameter.name}' of '{signature.name}': {error.message}", hint=error.hint) from None
    return arguments


def _known(ctx: DynamicEmitter, value: Value) -> Value:
    if isinstance(value, list | tuple):
        return type(value)(_known(ctx, element) for element in value)
    return ctx.known(value)


def _takes_tensors(parameter: Parameter) -> bool:
    match parameter.type:
        case TensorType() | ArrayType(TensorType()):
            return True
        case _:
            return False


def _of_sizes(name: str, signature: Signature, arguments: Mapping[str, Value]) -> Value | None:
    """The result, where a tensor of sizes is computed with and all else is known; else None."""
    function = SIZE_FUNCTIONS.get(name)
    if function is None:
        return None
    tensors = [arguments[p.name] for p in signature.parameters if _takes_tensors(p)]
    flat = [element for value in tensors for element in (value if isinstance(value, list) else [value])]
    if any(
        isinstance(element, relax.Expr) or (isinstance(element, np.ndarray) and element.size > _MAX_SIZES)
        for element in flat
    ):
        return None
    if not any(map(is_sizes, flat)) and not all(isinstance(element, int) for element in flat):
        return None
    prepared = {
        p.name: _objects(arguments[p.name]) if _takes_tensors(p) else arguments[p.name] for p in signature.parameters
    }
    try:
        made = function(prepared)
    except (ValueError, IndexError, TypeError) as error:
        raise CompileError(f"'{name}' of sizes: {error}") from None
    return made if isinstance(made, list) else np.asarray(made, object)


def _objects(value: Value) -> Value:
    """Tensors as arrays of objects."""
    if isinstance(value, list):
        return [_objects(element) for element in value]
    if isinstance(value, np.ndarray):
        return of_elements(value.reshape(-1).tolist(), value.shape)
    return of_elements([value], ())


def _as_operands(
    ctx: DynamicEmitter, signature: Signature, arguments: Mapping[str, Value], moves: bool
) -> tuple[dict[str, Value], str | None]:
    """Tensors as operands; those of one declared content in one element type, 16-bit floats as float32.

    Returns:
        The arguments, and the 16-bit floats' type that results are to have; None for none.
    """
    made = dict(arguments)
    groups: dict[str, list[tuple[str, int | None]]] = {}
    for parameter in signature.parameters:
        value = arguments[parameter.name]
        match parameter.type:
            case TensorType(content):
                groups.setdefault(content, []).append((parameter.name, None))
            case ArrayType(TensorType(content)):
                made[parameter.name] = list(value)
                groups.setdefault(content, []).extend((parameter.name, i) for i in range(len(value)))
    fp16_types: list[str] = []
    for content, indices in groups.items():
        values = [arguments[name] if i is None else arguments[name][i] for name, i in indices]
        if content == "logical":
            operands = [ctx.apply(Cast("bool"), ctx.tensor(value)) for value in values]
        else:
            operands = [_integers(ctx, x) if content == "integer" else x for x in ctx.promoted(values)]
        for (name, i), operand in zip(indices, operands, strict=True):
            if dtype_of(operand) in FLOAT16_TYPES and not moves:
                fp16_types.append(dtype_of(operand))
                operand = ctx.apply(Cast("float32"), operand)
            if i is None:
                made[name] = operand
            else:
                made[name][i] = operand
    return made, fp16_types[0] if fp16_types else None


def _integers(ctx: DynamicEmitter, operand: Operand) -> Operand:
    """Reals that stand for integers, as arrays of a document's text do that are written with points."""
    return ctx.apply(Cast("int64"), operand) if numpy_dtype(dtype_of(operand)).kind == "f" else operand


def as_tensors(ctx: DynamicEmitter, value: Value) -> Value:
    """Operands as tensors of the standard's operations, which know constants of no axes as numbers, too."""
    if isinstance(value, list):
        return [as_tensors(ctx, element) for element in value]
    return ctx.as_tensor(value) if is_tensor(value) else value


def _bound(ctx: DynamicEmitter, made: Any, half: str | None) -> Value:
    """Results, bound to variables; float32 ones in the 16-bit floats' type of the operands."""
    if isinstance(made, tuple):
        return tuple(_bound(ctx, element, half) for element in made)
    if isinstance(made, list):
        return [_bound(ctx, element, half) for element in made]
    if not is_tensor(made):
        return made
    if isinstance(made, np.ndarray) and made.dtype == object:
        return made
    operand = ctx.bound(made)
    return ctx.apply(Cast(half), operand) if half and dtype_of(operand) == "float32" else operand
