"""Activation functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import align, check_fits, same_as
from nnefc.frontends.nnef.operations.elementwise import unary
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, by_definition
from nnefc.frontends.nnef.operations.reduce import check_reduced_axes
from nnefc.operators.activation import softplus

__all__: list[str] = []


@operation(
    "fragment relu(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    definition="y = max(x, 0.0);",
    target="R.nn.relu",
)
def _relu(lowering: Lowering, args: Arguments) -> Operand:
    return relax.op.nn.relu(lowering.expr(lowering.operand(args.x)))


@operation(
    "fragment sigmoid(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    definition="y = 1.0 / (1.0 + exp(-x));",
    target="R.sigmoid",
)
def _sigmoid(lowering: Lowering, args: Arguments) -> Operand:
    return unary(lowering, "sigmoid", lowering.operand(args.x))


@operation(
    "fragment silu(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    definition="y = x * sigmoid(x);",
    target="R.sigmoid, R.multiply",
)
def _silu(lowering: Lowering, args: Arguments) -> Operand:
    x = lowering.expr(lowering.operand(args.x))
    return relax.op.multiply(x, lowering.emit(relax.op.sigmoid(x), "gate"))


@operation(
    "fragment gelu(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    definition="y = x * sigmoid(1.702 * x);",
    target="R.sigmoid, R.multiply",
    limits="the standard's approximation by a sigmoid, not the error function",
)
def _gelu(lowering: Lowering, args: Arguments) -> Operand:
    """As the standard's own composition approximates it, not by the error function."""
    x = lowering.expr(lowering.operand(args.x))
    scaled = lowering.emit(relax.op.multiply(lowering.expr(np.array(1.702, np.float32)), x), "scaled")
    return relax.op.multiply(x, lowering.emit(relax.op.sigmoid(scaled), "gate"))


operation(
    "fragment softabs(x: tensor<scalar>, epsilon: scalar) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    definition="y = sqrt(sqr(x) + epsilon);",
)(by_definition)


def _softmax_shape(args: Arguments) -> Shape:
    check_reduced_axes(args, "x")
    return shape_of(args.x)


@operation(
    "fragment softmax(x: tensor<scalar>, axes: integer[] = [1]) -> (y: tensor<scalar>)",
    shape=_softmax_shape,
    definition="""
        m = max_reduce(x, axes = axes);
        e = exp(x - m);
        y = e / sum_reduce(e, axes = axes);
    """,
    target="R.nn.softmax over one axis, else R.max, R.exp, R.sum, R.divide",
)
def _softmax(lowering: Lowering, args: Arguments) -> Operand:
    x = lowering.expr(lowering.operand(args.x))
    if len(args.axes) == 1:
        return relax.op.nn.softmax(x, axis=args.axes[0])
    if not args.axes:  # every item is a group of its own
        return lowering.expr(np.ones(shape_of(args.x), np.float32))
    axes = sorted(args.axes)
    largest = lowering.emit(relax.op.max(x, axis=axes, keepdims=True), "largest")
    shifted = lowering.emit(relax.op.subtract(x, largest), "shifted")
    powers = lowering.emit(relax.op.exp(shifted), "powers")
    return relax.op.divide(powers, lowering.emit(relax.op.sum(powers, axis=axes, keepdims=True), "total"))


def _items(lowering: Lowering, x: Operand, item: Callable[[tirx.Expr], tirx.Expr], name: str) -> Operand:
    """One TE computation that maps every item."""

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *index: item(x(*index)), name=name)

    return lowering.compute(compute, x, name=name)


def _number(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


@operation(
    "fragment softplus(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    definition="y = log(exp(x) + 1.0);",
    target="TE",
)
def _softplus(lowering: Lowering, args: Arguments) -> Operand:
    return _items(lowering, lowering.operand(args.x), softplus, "softplus")


def _exponential(alpha: float, scale: float) -> Callable[[tirx.Expr], tirx.Expr]:
    def item(x: tirx.Expr) -> tirx.Expr:
        negative = _number(alpha) * (tirx.exp(x) - _number(1))
        return _number(scale) * tirx.Select(x < _number(0), negative, x)

    return item


@operation(
    "fragment elu(x: tensor<scalar>, alpha: scalar = 1.0) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    definition="y = select(x < 0.0, alpha * (exp(x) - 1.0), x);",
    target="TE",
)
@operation(
    "fragment elu(x: tensor) -> (y: tensor)",
    shape=same_as("x"),
    dialects={Dialect.PROVISIONAL},
    definition="y = select(x < 0.0, exp(x) - 1.0, x);",
    target="TE",
)
def _elu(lowering: Lowering, args: Arguments) -> Operand:
    return _items(lowering, lowering.operand(args.x), _exponential(args.get("alpha", 1.0), 1.0), "elu")


@operation(
    "fragment selu(x: tensor<scalar>, alpha: scalar = 1.67326319, lambda: scalar = 1.05070102) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    definition="y = lambda * select(x < 0.0, alpha * (exp(x) - 1.0), x);",
    target="TE",
)
def _selu(lowering: Lowering, args: Arguments) -> Operand:
    return _items(lowering, lowering.operand(args.x), _exponential(args.alpha, args["lambda"]), "selu")


def _leaky(lowering: Lowering, x: Operand, alpha: Operand) -> Operand:
    x, alpha = align(lowering, [x, alpha])

    def compute(x: te.Tensor, alpha: te.Tensor) -> te.Tensor:
        def item(*index: tirx.Var) -> tirx.Expr:
            slope = alpha(*[0 if extent == 1 else i for i, extent in zip(index, alpha.shape, strict=False)])
            return tirx.Select(x(*index) < _number(0), slope * x(*index), x(*index))

        return te.compute(x.shape, item, name="prelu")

    return lowering.compute(compute, x, alpha, name="prelu")


def _prelu_shape(args: Arguments) -> Shape:
    check_fits(args, "alpha", shape_of(args.x))
    return shape_of(args.x)


@operation(
    "fragment prelu(x: tensor<scalar>, alpha: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=_prelu_shape,
    dialects={Dialect.FINAL},
    definition="y = select(x < 0.0, alpha * x, x);",
    target="TE",
)
def _prelu(lowering: Lowering, args: Arguments) -> Operand:
    return _leaky(lowering, lowering.operand(args.x), lowering.operand(args.alpha))


_LEAKY_RELU = "fragment leaky_relu(x: tensor<scalar>, alpha: scalar) -> (y: tensor<scalar>)"


@operation(
    _LEAKY_RELU,
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    definition="y = prelu(x, alpha = alpha);",
    target="R.nn.leakyrelu",
)
@operation(
    _LEAKY_RELU,
    shape=same_as("x"),
    dialects={Dialect.PROVISIONAL},
    definition="y = select(x < 0.0, alpha * x, x);",
    target="R.nn.leakyrelu",
)
def _leaky_relu(lowering: Lowering, args: Arguments) -> Operand:
    return relax.op.nn.leakyrelu(lowering.expr(lowering.operand(args.x)), args.alpha)
