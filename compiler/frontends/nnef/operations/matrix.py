"""Matrix products: matmul and linear."""

from __future__ import annotations

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import broadcast_shapes, spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand
from nnefc.frontends.nnef.relaxed_shapes import allowed
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import Gemm, MatMul

__all__: list[str] = []


def _flags(args: Arguments) -> tuple[bool, bool]:
    """Returns whether A and B are transposed; the dialects name the flags differently."""
    return (args.transposeA, args.transposeB) if "transposeA" in args else (args.trA, args.trB)


def _matmul_shape(args: Arguments) -> Shape:
    return _product_shape(shape_of(args.A), shape_of(args.B), *_flags(args))


def _product_shape(a: Shape, b: Shape, flag_a: bool, flag_b: bool) -> Shape:
    if len(a) != len(b) or len(a) < 2:
        raise ShapeError(f"the matrices {spell_shape(a)} and {spell_shape(b)} must have the same rank, at least 2", "B")
    rows, inner_a = (a[-1], a[-2]) if flag_a else (a[-2], a[-1])
    inner_b, columns = (b[-1], b[-2]) if flag_b else (b[-2], b[-1])
    if inner_a != inner_b:
        raise ShapeError(
            f"the matrices {spell_shape(a)} and {spell_shape(b)} do not fit: "
            f"{inner_a} columns of the first meet {inner_b} rows of the second",
            "B",
        )
    return (*broadcast_shapes(a[:-2], b[:-2]), rows, columns)


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
    return MatMul(*_flags(args)).lower(lowering, lowering.operand(args.A), lowering.operand(args.B))


def _linear_shape(args: Arguments) -> Shape:
    x, w, bias = shape_of(args.input), shape_of(args.filter), shape_of(args.bias)
    is_product = len(x) == len(w) > 2 and bias == ()
    if is_product and allowed("'linear' of tensors of rank above 2 is the product that it is defined as"):
        return _product_shape(x, w, False, True)
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
    bias = None if args.bias == 0.0 else lowering.operand(args.bias)
    if len(shape_of(args.input)) > 2:
        product = MatMul(False, True).lower(lowering, lowering.operand(args.input), lowering.operand(args.filter))
        return product if bias is None else apply(lowering, "add", product, bias)
    return Gemm(transpose_b=True).lower(lowering, lowering.operand(args.input), lowering.operand(args.filter), bias)
