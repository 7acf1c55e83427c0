"""Broadcasting: dimensions are matched from the left, missing trailing ones count as 1."""

from __future__ import annotations

from collections.abc import Sequence

from nnefc.frontends.nnef.declarations import Arguments, Shape, ShapeError, ShapeRule, shape_of
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, shape_of_operand
from nnefc.symbolic.broadcasting import fits, joint

__all__ = ["align", "broadcast_rule", "broadcast_shapes", "check_fits", "same_as", "spell_shape"]


def spell_shape(shape: Sequence[int]) -> str:
    """A shape as documents write it."""
    return str(list(shape))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape; `ShapeError` if a dimension differs and neither size is 1."""
    common: Shape = ()
    for shape in shapes:
        rank = max(len(common), len(shape))
        a, b = _padded(common, rank), _padded(shape, rank)
        joined = tuple(map(joint, a, b))
        for axis, (x, y) in enumerate(zip(a, b, strict=True)):
            if joined[axis] is None:
                raise ShapeError(
                    f"shapes {spell_shape(common)} and {spell_shape(shape)} do not fit each other: "
                    f"dimension {axis} is {x} in one and {y} in the other",
                    hint="dimensions are matched from the left; missing trailing ones count as 1",
                )
        common = tuple(size for size in joined if size is not None)
    return common


def broadcast_rule(*parameters: str) -> ShapeRule:
    """The shape rule of operations whose named parameters broadcast to the result."""

    def rule(args: Arguments) -> Shape:
        return broadcast_shapes(*(shape_of(args[parameter]) for parameter in parameters))

    return rule


def same_as(parameter: str) -> ShapeRule:
    """The shape rule of operations whose result has the shape of one parameter."""

    def rule(args: Arguments) -> Shape:
        return shape_of(args[parameter])

    return rule


def check_fits(args: Arguments, parameter: str, target: Shape) -> None:
    """Check that a parameter broadcasts to `target` without enlarging it."""
    shape = shape_of(args[parameter])
    if len(shape) > len(target) or not all(map(fits, shape, target)):
        raise ShapeError(
            f"the shape {spell_shape(shape)} of '{parameter}' cannot be broadcast to {spell_shape(target)}", parameter
        )


def align(lowering: Lowering, operands: Sequence[Operand]) -> list[Operand]:
    """The operands with trailing dimensions of size 1 added, so that Relax (which matches from the right) agrees.

    Rank 0 stays as it is: it fits everything.
    """
    rank = max(len(shape_of_operand(operand)) for operand in operands)
    return [
        operand
        if not shape_of_operand(operand)
        else lowering.reshaped(operand, _padded(shape_of_operand(operand), rank))
        for operand in operands
    ]


def _padded(shape: Shape, rank: int) -> Shape:
    return shape + (1,) * (rank - len(shape))
