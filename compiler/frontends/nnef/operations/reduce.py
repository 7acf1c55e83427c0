"""Reductions; reduced axes are kept with size 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, by_definition
from nnefc.operators.base import Operator
from nnefc.operators.math.reduction import AllTrue, AnyTrue, ArgMinMax, Maximum, Mean, Minimum, Sum

__all__ = ["check_reduced_axes"]


def check_reduced_axes(args: Arguments, parameter: str) -> None:
    """Check the `axes` of an invocation against the rank of one of its tensors."""
    rank = len(shape_of(args[parameter]))
    if any(not 0 <= axis < rank for axis in args.axes) or len(set(args.axes)) != len(args.axes):
        raise ShapeError(
            f"'axes' {spell_shape(args.axes)} must name different dimensions among the {rank} of '{parameter}'", "axes"
        )


def _reduce_shape(args: Arguments) -> Shape:
    check_reduced_axes(args, "input")
    return tuple(1 if axis in args.axes else size for axis, size in enumerate(shape_of(args.input)))


def _lower(kind: Callable[..., Operator]) -> Callable[[Lowering, Arguments], Operand]:
    """Lowered as the reduction that `kind` makes of the axes, which stay."""

    def lower(lowering: Lowering, args: Arguments) -> Operand:
        reduction = kind(tuple(sorted(args.axes)), keepdims=True)
        made: Operand = reduction.lower(lowering, lowering.operand(args.input))
        return made

    return lower


@operation(
    "fragment sum_reduce(input: tensor<scalar>, axes: integer[], normalize: logical = false) "
    "-> (output: tensor<scalar>)",
    shape=_reduce_shape,
    target="R.sum, R.mean",
)
def _sum_reduce(lowering: Lowering, args: Arguments) -> Operand:
    return _lower(Mean if args.normalize else Sum)(lowering, args)


operation(
    "fragment mean_reduce(input: tensor<scalar>, axes: integer[]) -> (output: tensor<scalar>)",
    shape=_reduce_shape,
    definition="output = sum_reduce(input, axes = axes, normalize = true);",
    target="R.mean",
)(_lower(Mean))

for _name, _kind in (("max", Maximum), ("min", Minimum)):
    operation(
        f"fragment {_name}_reduce(input: tensor<scalar>, axes: integer[]) -> (output: tensor<scalar>)",
        shape=_reduce_shape,
        target=f"R.{_name}",
    )(_lower(_kind))

operation(
    "fragment moments(input: tensor<scalar>, axes: integer[]) -> (mean: tensor<scalar>, variance: tensor<scalar>)",
    shape=lambda args: {"mean": _reduce_shape(args), "variance": _reduce_shape(args)},
    definition="""
        mean = mean_reduce(input, axes = axes);
        variance = mean_reduce(sqr(input - mean), axes = axes);
    """,
)(by_definition)


for _name, _largest in (("argmax_reduce", True), ("argmin_reduce", False)):
    operation(
        f"fragment {_name}(input: tensor<scalar>, axes: integer[]) -> (output: tensor<integer>)",
        shape=_reduce_shape,
        dialects={Dialect.FINAL},
        target="TE",
        limits="of equal elements the first; row-major over the sorted axes",
    )(_lower(partial(ArgMinMax, largest=_largest, dtype="int32")))

for _name, _every in (("any_reduce", AnyTrue), ("all_reduce", AllTrue)):
    operation(
        f"fragment {_name}(input: tensor<logical>, axes: integer[]) -> (output: tensor<logical>)",
        shape=_reduce_shape,
        dialects={Dialect.FINAL},
        target="TE",
    )(_lower(_every))
