"""Activation functions."""

from __future__ import annotations

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import align, check_fits, same_as
from nnefc.frontends.nnef.operations.elementwise import declare
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, by_definition
from nnefc.frontends.nnef.operations.reduce import check_reduced_axes
from nnefc.operators.nn.activation import Elu, LeakyRelu, ParametricRelu, Relu, Silu, Softmax, Softplus

__all__: list[str] = []


@operation(
    "fragment relu(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    definition="y = max(x, 0.0);",
    target="R.nn.relu",
)
def _relu(lowering: Lowering, args: Arguments) -> Operand:
    return Relu().lower(lowering, lowering.operand(args.x))


declare("sigmoid", "x", definition="y = 1.0 / (1.0 + exp(-x));")


@operation(
    "fragment silu(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    definition="y = x * sigmoid(x);",
    target="R.sigmoid, R.multiply",
)
def _silu(lowering: Lowering, args: Arguments) -> Operand:
    return Silu().lower(lowering, lowering.operand(args.x))


@operation(
    "fragment gelu(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    definition="y = x * sigmoid(1.702 * x);",
    target="R.sigmoid, R.multiply",
    limits="the standard's approximation by a sigmoid, not the error function",
)
def _gelu(lowering: Lowering, args: Arguments) -> Operand:
    """Emit GELU as the standard's own composition approximates it, not by the error function."""
    return Silu(1.702).lower(lowering, lowering.operand(args.x))


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
    return Softmax(tuple(sorted(args.axes))).lower(lowering, lowering.operand(args.x))


@operation(
    "fragment softplus(x: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    definition="y = log(exp(x) + 1.0);",
    target="TE",
)
def _softplus(lowering: Lowering, args: Arguments) -> Operand:
    return Softplus().lower(lowering, lowering.operand(args.x))


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
    return Elu(args.get("alpha", 1.0)).lower(lowering, lowering.operand(args.x))


@operation(
    "fragment selu(x: tensor<scalar>, alpha: scalar = 1.67326319, lambda: scalar = 1.05070102) -> (y: tensor<scalar>)",
    shape=same_as("x"),
    dialects={Dialect.FINAL},
    definition="y = lambda * select(x < 0.0, alpha * (exp(x) - 1.0), x);",
    target="TE",
)
def _selu(lowering: Lowering, args: Arguments) -> Operand:
    return Elu(args.alpha, args["lambda"]).lower(lowering, lowering.operand(args.x))


def _prelu_shape(args: Arguments) -> Shape:
    check_fits(args, "alpha", shape_of(args.x))
    return shape_of(args.x)


@operation(
    "fragment prelu(x: tensor<scalar>, alpha: tensor<scalar>) -> (y: tensor<scalar>)",
    shape=_prelu_shape,
    dialects={Dialect.FINAL},
    definition="y = select(x < 0.0, alpha * x, x);",
    target="R.nn.relu, R.minimum, R.multiply, R.add",
)
def _prelu(lowering: Lowering, args: Arguments) -> Operand:
    operands = align(lowering, lowering.operands((args.x, args.alpha)))
    return ParametricRelu().lower(lowering, *operands)


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
    return LeakyRelu(args.alpha).lower(lowering, lowering.operand(args.x))
