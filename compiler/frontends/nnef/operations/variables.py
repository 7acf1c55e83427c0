"""Sources of tensors: external, variable, constant, update."""

from __future__ import annotations

import math

import numpy as np

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import DTYPES, Lowering, Operand, integers
from nnefc.operators.tensor.creation import Full

__all__ = ["bound_by_the_front_end"]


def bound_by_the_front_end(lowering: Lowering, args: Arguments) -> None:
    """Stands where the front end binds the results itself: inputs, variables and states."""
    raise AssertionError("inputs, variables and states are bound before the operations are lowered")


def _declared_shape(args: Arguments) -> Shape:
    shape = tuple(args.shape)
    if any(size < 1 for size in shape):
        raise ShapeError(f"the sizes in {spell_shape(shape)} must be positive", "shape")
    return shape


def _constant_shape(args: Arguments) -> Shape:
    shape, count = _declared_shape(args), len(args.value)
    if count not in (1, math.prod(shape)):
        raise ShapeError(
            f"the shape {spell_shape(shape)} holds {math.prod(shape)} elements, 'value' has {count}",
            "value",
            hint="give one value for all elements, or as many as the shape holds",
        )
    return shape


def _update_shape(args: Arguments) -> Shape:
    variable, value = shape_of(args.variable), shape_of(args.value)
    if variable != value:
        raise ShapeError(
            f"the variable has the shape {spell_shape(variable)}, its new value {spell_shape(value)}", "value"
        )
    return value


def _external_shape(args: Arguments) -> Shape:
    return _declared_shape(args)


operation(
    "fragment external<? = scalar>(shape: integer[]) -> (output: tensor<?>)",
    shape=_external_shape,
    dialects={Dialect.FINAL},
    target="a parameter of the function",
    limits="integers are int32",
)(bound_by_the_front_end)
operation(
    "fragment external(shape: extent[]) -> (output: tensor)",
    shape=_external_shape,
    dialects={Dialect.PROVISIONAL},
    target="a parameter of the function",
    limits="integers are int32",
)(bound_by_the_front_end)
operation(
    "fragment variable<? = scalar>(shape: integer[], label: string) -> (output: tensor<?>)",
    shape=_declared_shape,
    dialects={Dialect.FINAL},
    target="a constant, or a parameter if it is updated",
    limits="integers are int32, or int64 if the file stores 64 bits",
)(bound_by_the_front_end)
operation(
    "fragment variable(shape: extent[], label: string) -> (output: tensor)",
    shape=_declared_shape,
    dialects={Dialect.PROVISIONAL},
    target="a constant, or a parameter if it is updated",
    limits="integers are int32, or int64 if the file stores 64 bits",
)(bound_by_the_front_end)


@operation(
    "fragment constant<? = scalar>(shape: integer[], value: ?[]) -> (output: tensor<?>)",
    shape=_constant_shape,
    dialects={Dialect.FINAL},
    target="a constant",
    limits="integers of 32 bits",
)
@operation(
    "fragment constant(shape: extent[], value: scalar[]) -> (output: tensor)",
    shape=_constant_shape,
    dialects={Dialect.PROVISIONAL},
    target="a constant",
    limits="integers of 32 bits",
)
def _constant(lowering: Lowering, args: Arguments) -> Operand:
    content = args.content or "scalar"
    values = integers(args.value) if content == "integer" else np.array(args.value, DTYPES[content])
    if len(values) > 1:
        return values.reshape(args.shape)
    return Full(tuple(args.shape), values[0].item(), str(values.dtype)).lower(lowering)


@operation(
    "fragment update<?>(variable: tensor<?>, value: tensor<?>) -> (result: tensor<?>)",
    shape=_update_shape,
    dialects={Dialect.FINAL},
    target="the state's new value",
    limits="each variable once",
)
@operation(
    "fragment update(variable: tensor, value: tensor) -> (result: tensor)",
    shape=_update_shape,
    dialects={Dialect.PROVISIONAL},
    target="the state's new value",
    limits="each variable once",
)
def _update(lowering: Lowering, args: Arguments) -> Operand:
    """The result is the new value; the front end makes the variable a state that takes it after the run."""
    return lowering.operand(args.value)
