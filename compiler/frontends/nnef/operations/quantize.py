"""Quantize operations as the standard computes them: reals are rounded to the reals that the integers represent."""

from __future__ import annotations

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, ShapeRule, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import check_fits
from nnefc.frontends.nnef.operations.lowering import by_definition

__all__: list[str] = []

_FINAL = (Dialect.FINAL,)
_PROVISIONAL = (Dialect.PROVISIONAL,)


def _fits(*parameters: str) -> ShapeRule:
    """The result is like `x`, to which the named parameters broadcast."""

    def rule(args: Arguments) -> Shape:
        shape = shape_of(args.x)
        for parameter in parameters:
            check_fits(args, parameter, shape)
        if "bits" in args and not 1 <= args.bits <= 32:
            raise ShapeError(f"'bits' must be between 1 and 32, it is {args.bits}", "bits")
        return shape

    return rule


operation(
    "fragment min_max_linear_quantize(x: tensor<scalar>, min: tensor<scalar>, max: tensor<scalar>, bits: integer, "
    "signed: logical, symmetric: logical) -> (y: tensor<scalar>)",
    shape=_fits("min", "max"),
    dialects=_FINAL,
    definition="""
        r = scalar(2 ^ bits - 1 - integer(signed && symmetric));
        z = clamp(x, min, max);
        p = scalar(2 ^ (bits - 1) - integer(symmetric) if signed else 0);
        q = round((z - min) / (max - min) * r) - p;
        y = (q + p) / r * (max - min) + min;
    """,
)(by_definition)
operation(
    "fragment zero_point_linear_quantize(x: tensor<scalar>, zero_point: tensor<integer>, scale: tensor<scalar>, "
    "bits: integer, signed: logical, symmetric: logical) -> (y: tensor<scalar>)",
    shape=_fits("zero_point", "scale"),
    dialects=_FINAL,
    definition="""
        z = cast<scalar>(zero_point);
        s = round(x / scale) + z;
        r = scalar(2 ^ (bits - 1) - 1 if signed else 2 ^ bits - 1);
        q = clamp(s, 0.0 if !signed else -r if symmetric else -r - 1.0, r);
        y = (q - z) * scale;
    """,
)(by_definition)
operation(
    "fragment linear_quantize(x: tensor<scalar>, min: tensor<scalar>, max: tensor<scalar>, bits: integer) "
    "-> (y: tensor<scalar>)",
    shape=_fits("min", "max"),
    dialects=_FINAL,
    definition="y = min_max_linear_quantize(x, min = min, max = max, bits = bits, signed = false, symmetric = false);",
)(by_definition)
operation(
    "fragment linear_quantize(x: tensor, min: tensor, max: tensor, bits: extent) -> (y: tensor)",
    shape=_fits("min", "max"),
    dialects=_PROVISIONAL,
    definition="""
        z = clamp(x, min, max);
        r = scalar(2 ^ bits - 1) / (max - min);
        y = round((z - min) * r) / r + min;
    """,
)(by_definition)
operation(
    "fragment logarithmic_quantize(x: tensor<scalar>, max: tensor<scalar>, bits: integer) -> (y: tensor<scalar>)",
    shape=_fits("max"),
    dialects=_FINAL,
    definition="""
        m = ceil(log2(max));
        r = scalar(2 ^ bits - 1);
        q = round(clamp(log2(abs(x)), m - r, m));
        y = sign(x) * 2.0 ^ q;
    """,
)(by_definition)
operation(
    "fragment logarithmic_quantize(x: tensor, max: tensor, bits: extent) -> (y: tensor)",
    shape=_fits("max"),
    dialects=_PROVISIONAL,
    definition="""
        highest = 2.0 ^ ceil(log2(max));
        lowest = 2.0 ^ (log2(highest) - scalar(bits));
        z = clamp(x, lowest, highest);
        y = 2.0 ^ round(log2(z / lowest));
    """,
)(by_definition)
operation(
    "fragment binary_quantize(x: tensor, threshold: tensor = 0.0, negative_value: tensor = -1.0, "
    "positive_value: tensor = 1.0) -> (y: tensor)",
    shape=_fits("threshold", "negative_value", "positive_value"),
    dialects=_PROVISIONAL,
    definition="y = select(x < threshold, negative_value, positive_value);",
)(by_definition)
operation(
    "fragment ternary_quantize(x: tensor, low_threshold: tensor, high_threshold: tensor, "
    "negative_value: tensor = -1.0, positive_value: tensor = 1.0, zero_value: tensor = 0.0) -> (y: tensor)",
    shape=_fits("low_threshold", "high_threshold", "negative_value", "positive_value", "zero_value"),
    dialects=_PROVISIONAL,
    definition="""
        y = select(x < low_threshold, negative_value, select(x > high_threshold, positive_value, zero_value));
    """,
)(by_definition)
