"""Matrix products: matmul and linear."""

from __future__ import annotations

import numpy as np
from tvm import relax

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import broadcast_shapes, spell_shape
from nnefc.frontends.nnef.operations.elementwise import binary
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, shape_of_operand

__all__: list[str] = []


def _flags(args: Arguments) -> tuple[bool, bool]:
    """Whether A and B are transposed; the dialects name the flags differently."""
    return (args.transposeA, args.transposeB) if "transposeA" in args else (args.trA, args.trB)


def _matmul_shape(args: Arguments) -> Shape:
    a, b = shape_of(args.A), shape_of(args.B)
    if len(a) != len(b) or len(a) < 2:
        raise ShapeError(f"the matrices {spell_shape(a)} and {spell_shape(b)} must have the same rank, at least 2", "B")
    flag_a, flag_b = _flags(args)
    rows, inner_a = (a[-1], a[-2]) if flag_a else (a[-2], a[-1])
    inner_b, columns = (b[-1], b[-2]) if flag_b else (b[-2], b[-1])
    if inner_a != inner_b:
        raise ShapeError(
            f"the matrices {spell_shape(a)} and {spell_shape(b)} do not fit: "
            f"{inner_a} columns of the first meet {inner_b} rows of the second",
            "B",
        )
    return (*broadcast_shapes(a[:-2], b[:-2]), rows, columns)


def _matmul(lowering: Lowering, a: Operand, b: Operand, flag_a: bool, flag_b: bool) -> relax.Expr:
    return relax.op.matmul(_transposed(lowering, a, flag_a), _transposed(lowering, b, flag_b))


def _transposed(lowering: Lowering, x: Operand, flag: bool) -> relax.Expr:
    """The last two axes exchanged if the flag says so; of constants too, for passes see what becomes of them."""
    if not flag:
        return lowering.expr(x)
    rank = len(shape_of_operand(x))
    axes = [*range(rank - 2), rank - 1, rank - 2]
    return lowering.emit(relax.op.permute_dims(lowering.expr(x), axes), "transposed")


@operation(
    "fragment matmul(A: tensor<scalar>, B: tensor<scalar>, transposeA: logical = false, transposeB: logical = false) "
    "-> (C: tensor<scalar>)",
    shape=_matmul_shape,
    dialects={Dialect.FINAL},
    target="R.permute_dims, R.matmul",
)
@operation(
    "fragment matmul(A: tensor, B: tensor, trA: logical = false, trB: logical = false) -> (C: tensor)",
    shape=_matmul_shape,
    dialects={Dialect.PROVISIONAL},
    target="R.permute_dims, R.matmul",
)
def _lower_matmul(lowering: Lowering, args: Arguments) -> Operand:
    return _matmul(lowering, lowering.operand(args.A), lowering.operand(args.B), *_flags(args))


def _linear_shape(args: Arguments) -> Shape:
    x, w, bias = shape_of(args.input), shape_of(args.filter), shape_of(args.bias)
    if len(x) != 2 or len(w) != 2:
        raise ShapeError(f"the input {spell_shape(x)} and the filter {spell_shape(w)} must have rank 2", "filter")
    if x[1] != w[1]:
        raise ShapeError(
            f"the filter {spell_shape(w)} takes {w[1]} channels, the input {spell_shape(x)} has {x[1]}", "filter"
        )
    if bias not in ((), (1,), (w[0],), (1, 1), (1, w[0])):
        raise ShapeError(f"the bias {spell_shape(bias)} does not fit {w[0]} channels: it should be [1, {w[0]}]", "bias")
    return (x[0], w[0])


_LINEAR = (
    "fragment linear(input: tensor<scalar>, filter: tensor<scalar>, bias: tensor<scalar> = 0.0) "
    "-> (output: tensor<scalar>)"
)


@operation(
    _LINEAR,
    shape=_linear_shape,
    dialects={Dialect.FINAL},
    definition="output = matmul(input, filter, transposeB = true) + bias;",
    target="R.matmul, R.add",
)
@operation(
    _LINEAR,
    shape=_linear_shape,
    dialects={Dialect.PROVISIONAL},
    definition="output = matmul(input, filter, trB = true) + bias;",
    target="R.matmul, R.add",
)
def _linear(lowering: Lowering, args: Arguments) -> Operand:
    product = _matmul(lowering, lowering.operand(args.input), lowering.operand(args.filter), False, True)
    if args.bias == 0.0:
        return product
    bias = lowering.operand(args.bias)
    if len(shape_of_operand(bias)) == 1:  # a vector of channels, as some documents write it
        row = (1, *shape_of_operand(bias))
        bias = bias.reshape(row) if isinstance(bias, np.ndarray) else lowering.emit(relax.op.reshape(bias, row))
    return binary(lowering, "add", lowering.emit(product, "product"), bias)
