"""Data-dependent sizes: a kernel computes the size, and later shapes contain variables for it.

    n = data_dependent_size(at, number, limit, "nonzero")   at most `limit`: memory is laid out for that before the run
    n = data_dependent_size(at, number, None, "range")      without a limit: memory is laid out during the run

Where operators need a constraint on the size, or a user has given a range, the kernel checks the size, and the run
fails where it is violated. A negative size without a limit fails the run, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count as counting
from typing import Any, Literal, TypeAlias

from tvm import relax, te, tirx

from nnefc.ir.attributes import INDEPENDENT
from nnefc.ir.kernel_calls import call_te
from nnefc.ir.network import DataDependentSize
from nnefc.operators.base import Emitter, Operand, dtype_of, rank_of, shape_of
from nnefc.operators.statements import T, checking, looped, report
from nnefc.symbolic.dims import (
    Dimension,
    DynamicSize,
    Range,
    Size,
    add_data_dependent_dim,
    bounds,
    dimension,
    dynamic_variables,
    element_count,
    expression,
    is_data_dependent_dimension,
    is_known,
    minimum,
    size_hint,
    substituted,
    variables,
    widest,
)
from nnefc.symbolic.formulas import size_of
from nnefc.symbolic.refinement import Refinement

__all__ = [
    "Beyond",
    "before_the_run",
    "checked_shape",
    "data_dependent_size",
    "depends_on_data",
    "expanded_size",
    "new_count",
    "not_empty",
    "range_length",
    "requested_coordinate",
    "requested_size",
]

Beyond: TypeAlias = Literal["nearest", "from the end", "error"]
"""Values beyond a limit: the nearest one counts; negative ones count from the limit on, as positions do, and then the
nearest one; they fail the run."""

_LIKELY = 256
"""The size that estimates assume for a data-dependent dimension without a limit."""

_LOWEST = 1 << 16
"""How far below 0 integers may be from which sizes are computed, such as coordinates outside of an image."""


def data_dependent_size(
    ctx: Emitter, value: relax.Expr, limit: Dimension | None, name: str, beyond: Beyond = "nearest"
) -> Dimension:
    """A data-dependent size: the value of a tensor of one integer. In a body, of one run of the body.

    Args:
        ctx: where it is computed.
        value: a tensor of one element.
        limit: what the size is at most. None if there is no limit: values of more than `LARGEST`, and negative ones,
            fail the run.
        name: of the variable that stands for it; a number is added if there is such a variable.
        beyond: what values are that are not from 0 to the limit.
    """
    return _size(ctx, _where_run(ctx, value), limit, name, beyond, is_requested=False)


def requested_size(ctx: Emitter, value: relax.Expr, name: str) -> Dimension:
    """A data-dependent size without a limit of tensors that are created with it, in place of elements that there are.

    What the network's operators need it to be is checked only in branches that are chosen.
    """
    return _size(ctx, _where_run(ctx, value), None, name, "nearest", is_requested=True)


def requested_coordinate(ctx: Emitter, value: relax.Expr, name: str) -> Dimension:
    """An integer that may be negative, from which sizes such as `max(x + 1, 0)` are computed: variables of sizes are
    not negative, and so one stands for the integer and `_LOWEST` more.
    """

    def write(value: Any, made: Any) -> None:
        made[0] = value[0].astype("int64") + _LOWEST

    (made,) = looped(ctx, write, [_where_run(ctx, value)], [((1,), "int64")], "coordinate")
    name = f"{name}_and_{_LOWEST}"
    return _size(ctx, ctx.expr(made), None, name, "nearest", is_requested=True, likely=_LOWEST + _LIKELY) - _LOWEST


def _size(
    ctx: Emitter,
    value: relax.Expr,
    limit: Dimension | None,
    name: str,
    beyond: Beyond,
    is_requested: bool,
    likely: int = _LIKELY,
) -> Dimension:
    name = _unused(ctx, name)
    own = DynamicSize(0, likely=likely)
    if limit is not None:
        limit = before_the_run(ctx, limit)
        own = DynamicSize(0, max(bounds(limit)[1], 0))
        value = (_refused if beyond == "error" else _clipped)(ctx, value, limit, name, beyond)
    given = ctx.ranges.pop(name, own)
    same, size = (name, given) if ctx.refinement is None else ctx.refinement.of(name, given)
    if ctx.refinement is not None and (same != name or name in ctx.refinement.computed):
        return _checked(ctx, value, name, _size_named(ctx.refinement, same), is_requested)
    if limit is not None and (same, size) == (name, own):
        return _noted(ctx, value, DataDependentSize.up_to(limit, tirx.Var(name, "int64")))
    if size.values.minimum == size.values.maximum:
        return _checked(ctx, value, name, size.values.minimum * size.multiple, is_requested)
    return _in_range(ctx, value, name, size, limit, is_requested)


def range_length(ctx: Emitter, start: relax.Expr, limit: relax.Expr, step: relax.Expr) -> relax.Expr:
    """The number of integers from `start` on, by steps, that are before `limit`: a tensor of one int64.

    Negative for steps of 0, as a size that fails the run.

    Args:
        ctx: where it is computed.
        start, limit, step: tensors of one integer.
    """

    def write(start: Any, limit: Any, step: Any, made: Any) -> None:
        first, last, each = (part[0].astype("int64") for part in (start, limit, step))
        distance = tirx.Select(each > 0, last - first, first - last)
        stride = tirx.max(tirx.Select(each > 0, each, -each), tirx.const(1, "int64"))
        count = tirx.max(tirx.floordiv(distance + stride - 1, stride), tirx.const(0, "int64"))
        made[0] = tirx.Select(each == 0, tirx.const(-1, "int64"), count)

    (made,) = looped(ctx, write, [start, limit, step], [((1,), "int64")], "range_length")
    return ctx.expr(made)


def before_the_run(ctx: Emitter, limit: Dimension) -> Dimension:
    """Return the maximum of a size, with data-dependent dimensions replaced by their limits, if they have any."""
    around = (each for frame in ctx.frames for each in frame.counts)
    return widest(limit, {each.var: each.limit for each in around if each.limit is not None})


def checked_shape(ctx: Emitter, x: Operand, shape: Sequence[Dimension], operator: str) -> Operand:
    """A tensor with the sizes `shape`, which the run checks where its own ones depend on data.

    Args:
        operator: for the message if they differ.
    """
    own = shape_of(x)
    pairs = [(one, other) for one, other in zip(own, shape, strict=True) if one != other]
    if not pairs or not all(depends_on_data(one) or depends_on_data(other) for one, other in pairs):
        return x
    count = minimum(element_count(own), element_count(shape))

    def write(needed: list[Any], source: Any, made: Any) -> None:
        with T.serial(0, expression(count), annotations={INDEPENDENT: True}) as position:
            made[position] = source[position]
        for one, other in pairs:
            report(
                f"{operator}: the data ask for the sizes {one} and {other}, which must be equal",
                [*needed, tirx.NE(expression(one), expression(other))],
            )

    (made,) = checking(ctx, write, [x], [(tuple(shape), dtype_of(x))], "sizes")
    return made


def depends_on_data(size: Dimension) -> bool:
    """Return whether a size depends on a data-dependent dimension, with or without a limit."""
    return isinstance(size, Size) and any(map(is_data_dependent_dimension, variables(size.expr)))


def new_count(name: str, limit: Dimension | None, values: Range | None = None) -> DataDependentSize:
    """A size that a tensor will have: up to a limit, one that is known before the run; or in a range."""
    taken = {str(var.name) for var in dynamic_variables()}
    var = tirx.Var(next(each for n in counting() if (each := f"{name}{n or ''}") not in taken), "int64")
    if limit is not None:
        made = DataDependentSize.up_to(limit, var)
    else:
        assert values is not None
        made = DataDependentSize(var, None, values)
    add_data_dependent_dim(var, made.values, has_limit=limit is not None)
    return made


def _where_run(ctx: Emitter, value: relax.Expr) -> relax.Expr:
    """The value, or 0 where what is being built is for a branch that the data do not choose."""
    if not ctx.chosen_by:
        return value

    def write(needed: list[Any], value: Any, made: Any) -> None:
        made[0] = tirx.Select(tirx.all(*needed), value[0].astype("int64"), tirx.const(0, "int64"))

    return ctx.expr(checking(ctx, write, [value], [((1,), "int64")], "where_run")[0])


def _unused(ctx: Emitter, name: str) -> str:
    """The name, with a number if it is taken; the same one each time that a network is built."""
    taken = {str(var.name) for var in dynamic_variables()} | ctx.count_names
    found = next(each for number in counting() if (each := f"{name}{number or ''}") not in taken)
    ctx.count_names.add(found)
    return found


def _noted(ctx: Emitter, value: relax.Expr, made: DataDependentSize) -> Dimension:
    """The variable of a size whose value, divided by its multiple, is the element of a tensor."""
    add_data_dependent_dim(made.var, made.values, has_limit=made.limit is not None)
    ctx.counts[made] = value
    return Size(made.var) * made.values.multiple


def _in_range(
    ctx: Emitter, value: relax.Expr, name: str, size: DynamicSize, limit: Dimension | None, is_requested: bool
) -> Dimension:
    """A size that must be in a range, and a multiple of a number."""
    values, multiple = size.values, size.multiple
    low, high = values.minimum * multiple, values.maximum * multiple
    wanted = f"{low} to {high}" + (f" in multiples of {multiple}" if multiple > 1 else "")

    def write(needed: list[Any], element: Any, made: Any) -> None:
        number = element[0].astype("int64")
        made[0] = tirx.const(values.minimum, "int64")
        with T.If(tirx.all(number >= low, number <= high, tirx.floormod(number, multiple) == 0)):
            with T.Then():
                made[0] = tirx.floordiv(number, multiple)
            with T.Else():
                report(
                    f"the data ask for a size '{name}' that the network does not take: it takes {wanted}",
                    needed if is_requested else (),
                )

    if size.maximum is not None:  # a user's, or that of the operator
        limit = values.maximum if limit is None else minimum(limit // multiple, values.maximum)
    if limit is not None:
        values = replace(values, size_hint=max(values.minimum, min(values.maximum, size_hint(limit))))
    (made,) = checking(ctx, write, [value], [((1,), "int64")], "count")  # no reshape behind it, which would be no step
    return _noted(ctx, ctx.expr(made), DataDependentSize(tirx.Var(name, "int64"), limit, values))


def _checked(ctx: Emitter, value: relax.Expr, name: str, size: Dimension, is_requested: bool) -> Dimension:
    """A size that must be another one, or a number."""

    def write(needed: list[Any], element: Any, made: Any) -> None:
        made[0] = tirx.const(0, "int64")
        with T.If(element[0].astype("int64") != expression(size)), T.Then():
            message = f"the data ask for a size '{name}' that is not {size}, but the network's operators need it to be"
            report(message, needed if is_requested else ())

    (made,) = checking(ctx, write, [value], [((1,), "int64")], "check")
    _noted(ctx, ctx.expr(made), DataDependentSize.up_to(0, tirx.Var(f"check_{name}", "int64")))
    return size


def expanded_size(ctx: Emitter, size: Dimension, own: Dimension) -> Dimension:
    """The size that a dimension of size `own`, which is not known to be 1, has where it is expanded to a data-dependent
    `size`: data-dependent as well, if `own` is not a number.

    A run fails in which they differ and neither is 1, unless a branch is chosen that does not need the result.
    """

    def write(needed: list[Any], made: Any) -> None:
        first, second = expression(size), expression(own)
        made[0] = tirx.const(0, "int64") if is_known(own) else tirx.Select(second == 1, first, second)
        with T.If(tirx.all(first != second, first != 1, second != 1)), T.Then():
            report(f"the data ask for a size 'expand' that is neither 1 nor {own}", needed)

    (made,) = checking(ctx, write, [], [((1,), "int64")], "expanded_size")
    if not is_known(own):
        return data_dependent_size(ctx, ctx.expr(made), None, "expanded")
    _noted(ctx, ctx.expr(made), DataDependentSize.up_to(0, tirx.Var(f"check_{_unused(ctx, 'expand')}", "int64")))
    return own


def not_empty(ctx: Emitter, size: Dimension, elements: Dimension, operator: str) -> None:
    """Let a run fail, in `operator`'s name, in which so many elements are taken of a dimension that has none: nothing
    is read then, not even what is nearest.
    """
    if bounds(size)[0] > 0 or (is_known(elements) and elements == 0):
        return

    def write(made: Any) -> None:
        made[0] = tirx.const(0, "int64")
        with T.If(tirx.all(expression(size) < 1, expression(elements) > 0)), T.Then():
            report(f"{operator}: there is nothing to take from a dimension of size 0")

    (made,) = looped(ctx, write, [], [((1,), "int64")], "check")
    _noted(ctx, ctx.expr(made), DataDependentSize.up_to(0, tirx.Var(f"check_{_unused(ctx, 'items')}", "int64")))


def _size_named(refinement: Refinement, name: str) -> Dimension:
    """The dynamic dimension, the data-dependent size, or what follows from such, of a name."""
    if name in refinement.computed:
        return size_of(refinement.computed[name], lambda part: _size_named(refinement, part))
    name, size = refinement.of(name, DynamicSize())
    if size.values.minimum == size.values.maximum:
        return size.values.minimum * size.multiple
    return Size(next(var for var in dynamic_variables() if str(var.name) == name)) * size.multiple


def _refused(ctx: Emitter, value: relax.Expr, limit: Dimension, name: str, _beyond: Beyond) -> relax.Expr:
    """The element of a tensor; a run in which it is not from 0 to a limit fails."""

    def write(element: Any, made: Any) -> None:
        number = element[0].astype("int64")
        made[0] = tirx.const(0, "int64")
        with T.If(tirx.all(number >= 0, number <= expression(limit))):
            with T.Then():
                made[0] = number
            with T.Else():
                report(f"the data ask for a size '{name}' that is negative or more than {limit}")

    (made,) = looped(ctx, write, [value], [((1,), "int64")], "count")
    return ctx.expr(made)


def _clipped(ctx: Emitter, value: relax.Expr, limit: Dimension, _name: str, beyond: Beyond) -> relax.Expr:
    """The element of a tensor, or what is nearest to it from 0 to a limit."""
    zeros = [0] * rank_of(value)
    maximum, used = expression(limit), variables(expression(limit))

    def clipped(tensor: te.Tensor, *sizes: tirx.Var) -> te.Tensor:
        here = expression(substituted(dimension(maximum), dict(zip(used, map(dimension, sizes), strict=True))))
        element = tensor(*zeros).astype("int64")
        if beyond == "from the end":
            element = tirx.Select(element < 0, element + here, element)
        return te.compute((), lambda: tirx.max(tirx.min(element, here), 0), name="count")

    return ctx.emit(call_te(ctx.builder, clipped, value, *used, name="count"))
