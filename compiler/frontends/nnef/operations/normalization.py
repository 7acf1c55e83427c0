"""Normalizations, with one declaration per dialect where the definitions differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import check_fits, spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, by_definition, shape_of_operand
from nnefc.frontends.nnef.operations.reduce import check_reduced_axes
from nnefc.operators.nn.normalization import BatchNormalization, LpNormalization

__all__: list[str] = []

_TENSORS = (
    "input: tensor<scalar>, mean: tensor<scalar>, variance: tensor<scalar>, "
    "offset: tensor<scalar>, scale: tensor<scalar>"
)


def _batch_shape(args: Arguments) -> Shape:
    shape = shape_of(args.input)
    for parameter in ("mean", "variance", "offset", "scale"):
        check_fits(args, parameter, shape)
    if args.epsilon < 0:
        raise ShapeError(f"'epsilon' must not be negative, it is {args.epsilon}", "epsilon")
    return shape


@operation(
    f"fragment batch_normalization({_TENSORS}, epsilon: scalar) -> (output: tensor<scalar>)",
    shape=_batch_shape,
    definition="output = offset + scale * (input - mean) / sqrt(variance + epsilon);",
    target="R.multiply and R.add with known statistics, else as defined",
)
def _batch_normalization(lowering: Lowering, args: Arguments) -> Operand:
    rank = len(shape_of(args.input))
    mean, variance, offset, scale = (
        _by_channel(lowering, operand, rank)
        for operand in lowering.operands((args.mean, args.variance, args.offset, args.scale))
    )
    normalization = BatchNormalization(args.epsilon)
    return normalization.lower(lowering, lowering.operand(args.input), mean, variance, scale, offset)


def _by_channel(lowering: Lowering, operand: Operand, rank: int) -> Operand:
    """A statistic with all dimensions of the input; rank 0 stays."""
    shape = shape_of_operand(operand)
    return operand if not shape else lowering.reshaped(operand, shape + (1,) * (rank - len(shape)))


def _local_shape(args: Arguments) -> Shape:
    shape, size = shape_of(args.input), args.size
    if len(size) > len(shape) or any(length < 1 for length in size):
        raise ShapeError(
            f"'size' {spell_shape(size)} must be positive, one element per dimension of {spell_shape(shape)}", "size"
        )
    return shape


def _axes_shape(args: Arguments) -> Shape:
    check_reduced_axes(args, "input")
    return shape_of(args.input)


def _declare(signature: str, shape: object, definition: str, dialects: Sequence[Dialect] = tuple(Dialect)) -> None:
    name, parameters = signature.split("(", 1)
    operation(
        f"fragment {name}(input: tensor<scalar>, {parameters} -> (output: tensor<scalar>)",
        shape=shape,  # type: ignore[arg-type]
        dialects=dialects,
        definition=definition,
    )(by_definition)


_declare(
    "local_response_normalization(size: integer[], alpha: scalar = 1.0, beta: scalar = 0.5, bias: scalar = 1.0)",
    _local_shape,
    """
        sigma = bias + alpha * box(sqr(input), size = size, normalize = true);
        output = input / (sigma ^ beta);
    """,
)
_declare(
    "local_mean_normalization(size: integer[])",
    _local_shape,
    """
        mean = box(input, size = size, normalize = true);
        output = input - mean;
    """,
)

# The final dialect: the root of the mean or sum, with a bias added, at least epsilon.
_FINAL = (Dialect.FINAL,)
_declare(
    "local_variance_normalization(size: integer[], bias: scalar = 0.0, epsilon: scalar = 0.0)",
    _local_shape,
    """
        sigma = sqrt(box(sqr(input), size = size, normalize = true));
        output = input / max(sigma + bias, epsilon);
    """,
    _FINAL,
)
_declare(
    "local_contrast_normalization(size: integer[], bias: scalar = 0.0, epsilon: scalar = 0.0)",
    _local_shape,
    """
        centered = local_mean_normalization(input, size = size);
        output = local_variance_normalization(centered, size = size, bias = bias, epsilon = epsilon);
    """,
    _FINAL,
)


def _lp_normalization(lowering: Lowering, args: Arguments, order: int) -> Operand:
    normalization = LpNormalization(tuple(sorted(args.axes)), order, args.epsilon, args.bias)
    return normalization.lower(lowering, lowering.operand(args.input))


for _order, _norm in ((1, "sum_reduce(abs(input), axes = axes)"), (2, "sqrt(sum_reduce(sqr(input), axes = axes))")):
    operation(
        f"fragment l{_order}_normalization(input: tensor<scalar>, axes: integer[], bias: scalar = 0.0, "
        "epsilon: scalar = 0.0) -> (output: tensor<scalar>)",
        shape=_axes_shape,
        dialects=_FINAL,
        definition=f"""
            sigma = {_norm};
            output = input / max(sigma + bias, epsilon);
        """,
        target="the sum, R.maximum, R.divide",
    )(partial(_lp_normalization, order=_order))

# The provisional dialect: the bias under the root.
_PROVISIONAL = (Dialect.PROVISIONAL,)
_declare(
    "local_variance_normalization(size: extent[], bias: scalar = 0.0)",
    _local_shape,
    """
        sigma = box(sqr(input), size = size, normalize = true);
        output = input / sqrt(sigma + bias);
    """,
    _PROVISIONAL,
)
_declare(
    "local_contrast_normalization(size: extent[], bias: scalar = 0.0)",
    _local_shape,
    """
        centered = local_mean_normalization(input, size = size);
        output = local_variance_normalization(centered, size = size, bias = bias);
    """,
    _PROVISIONAL,
)
_declare(
    "l1_normalization(axes: extent[], bias: scalar = 0.0)",
    _axes_shape,
    """
        sigma = sum_reduce(abs(input), axes = axes);
        output = input / (sigma + bias);
    """,
    _PROVISIONAL,
)
_declare(
    "l2_normalization(axes: extent[], bias: scalar = 0.0)",
    _axes_shape,
    """
        sigma = sum_reduce(sqr(input), axes = axes);
        output = input / sqrt(sigma + bias);
    """,
    _PROVISIONAL,
)
_declare(
    "layer_normalization(axes: extent[], bias: scalar = 0.0)",
    _axes_shape,
    """
        mean, variance = moments(input, axes = axes);
        output = (input - mean) / sqrt(variance + bias);
    """,
    _PROVISIONAL,
)


def _divisive_shape(args: Arguments) -> Shape:
    shape, size = shape_of(args.input), args.size
    if len(size) > len(shape) - 2 or any(length < 1 for length in size):
        raise ShapeError(
            f"'size' {spell_shape(size)} must be positive, one element per spatial dimension of {spell_shape(shape)}",
            "size",
        )
    return shape


_declare(
    "divisive_normalization(size: extent[], bias: scalar = 0.0)",
    _divisive_shape,
    """
        mean = mean_reduce(avg_pool(input, size = [1,1] + size), axes = [1]);
        centered = input - mean;
        sigma = mean_reduce(avg_pool(sqr(centered), size = [1,1] + size), axes = [1]);
        output = centered / sqrt(sigma + bias);
    """,
    _PROVISIONAL,
)
