"""Lowers an If whose condition is known only at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from nnefc.frontends.onnx.control.bodies import (
    data_dependent_inside,
    first_elements,
    leaves,
    rebuilt,
    sizes_inside,
    structure,
)
from nnefc.frontends.onnx.control.branch_constraints import Assumed, SeenInside
from nnefc.frontends.onnx.control.branch_results import NO_FORMS, Forms
from nnefc.frontends.onnx.operator import Context, Subgraph
from nnefc.frontends.onnx.values import STORAGE, AnyValue, Array, Value, same_values
from nnefc.ir.network import Body, If
from nnefc.operators.statements import Failure
from nnefc.operators.tensor.data_dependent_sizes import before_the_run, data_dependent_size
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import Dimension, Range, bounds, element_count, greatest, narrower_ranges
from nnefc.symbolic.refinement import MAX_RUNS_APART, Refined, empty_undecided
from nnefc.symbolic.values import Boolean, chosen, depends_on_data, negated, possible_ranges, single_size

__all__ = ["choose"]


class _DataDependentInside(Exception):
    """A result of a branch has a size that only the branch's own data tell."""


@dataclass(frozen=True, eq=False)
class _Branch:
    """A branch of a choice: its body, the values of the function around it that it reads, and its outputs.

    Attributes:
        assumed: what holds of dynamic dimensions inside.
    """

    body: Body
    captured: list[Value]
    outputs: list[AnyValue]
    assumed: Assumed = field(default_factory=Assumed)


def choose(
    ctx: Context,
    condition: Value,
    then: Subgraph,
    other: Subgraph,
    forms: Forms = NO_FORMS,
) -> list[AnyValue]:
    """The outputs of `then` if the condition holds, else those of `other`; only that one runs.

    One of them may be impossible for the shapes at hand, where the values never choose it: a run that does fails. So
    does one that chooses a branch with dynamic sizes that are impossible there. If sizes choose, each branch is lowered
    for those that choose it; one for a single size, with results of another rank, becomes a program of its own.
    Branches with results of data-dependent sizes are both computed, with none of these in that which is not
    chosen. If a data-dependent size chooses between results of different ranks, and one branch passes values on, a
    run that chooses the other fails.

    Args:
        forms: of outputs, so that both branches give the same; found out.

    Raises:
        CompileError: their outputs differ in number, kind or type; neither of them is possible.
        Refined: both branches need the same of dynamic dimensions.
    """
    truth = True if condition.sizes is None else _truth(condition.sizes)
    single, apart = single_size(truth), None if ctx.emitter.refinement is None else ctx.emitter.refinement.apart
    if single is not None and apart is not None and apart.get(single.name) == single.size:
        return _Path(other if single.holds else then, {}, forms).outputs(ctx)
    one, two = (
        _Path(graph, possible_ranges(where), forms) for graph, where in ((then, truth), (other, negated(truth)))
    )
    first, second = _lowered(ctx, condition, one, two)
    _share(first.assumed, second.assumed)
    common = forms.common(first.outputs, second.outputs)
    if common is not forms:
        return choose(ctx, condition, then, other, common)
    if condition.sizes is not None and depends_on_data(truth):
        first, second = _of_passed_ranks(ctx, then, other, first, second)
    elif condition.sizes is not None and _ranks(first) != _ranks(second):
        if single is not None and apart is not None and len(apart) < MAX_RUNS_APART:
            raise Refined(apart={single.name: single.size})
        # One shape for all sizes: they are refined to those for which the first branch is possible, if there are any.
        with suppress(_DataDependentInside):  # else the ranks are refused below
            _branch(ctx, lambda: one.outputs(ctx))
    return _chosen(ctx, condition, first, second, forms)


def _ranks(branch: _Branch) -> list[int]:
    return [leaf.rank for leaf in leaves(branch.outputs)]


def _of_passed_ranks(
    ctx: Context, then: Subgraph, other: Subgraph, first: _Branch, second: _Branch
) -> tuple[_Branch, _Branch]:
    """Both branches; where ranks differ and one only passes on values of the graphs around it, the other fails.

    What follows a choice between `x` and a changed `x` is made for the rank of `x`.
    """
    ranks = _ranks(first), _ranks(second)
    if len(ranks[0]) != len(ranks[1]) or ranks[0] == ranks[1] or then.passes_on == other.passes_on:
        return first, second
    own, passed = ranks if other.passes_on else ranks[::-1]
    error = CompileError(f"its results have the ranks {own}, those that the other branch passes on {passed}")
    if other.passes_on:
        return replace(_failing(ctx, then, error, second.outputs), assumed=second.assumed), second
    return first, replace(_failing(ctx, other, error, first.outputs), assumed=first.assumed)


def _chosen(ctx: Context, condition: Value, first: _Branch, second: _Branch, forms: Forms = NO_FORMS) -> list[AnyValue]:
    """The outputs of one of two branches.

    Raises:
        CompileError: they differ in number, kind or type.
    """
    if len(first.outputs) != len(second.outputs):
        raise CompileError(f"its branches have {len(first.outputs)} and {len(second.outputs)} outputs")
    if list(map(structure, first.outputs)) != list(map(structure, second.outputs)):
        raise CompileError(
            "the branches give values of different kinds or lengths, and which one runs is known only at run time"
        )
    pairs = list(zip(leaves(first.outputs), leaves(second.outputs), strict=True))
    shapes = [_joint_shape(ctx, condition, a, b, k in forms.filled) for k, (a, b) in enumerate(pairs)]
    has_elements = [0 not in a.shape or 0 not in b.shape for a, b in pairs]
    rooms = [_room(ctx, shape) if k in forms.filled else shape for k, shape in enumerate(shapes)]
    like = [
        replace(a, shape=room) for (a, _), room, is_there in zip(pairs, rooms, has_elements, strict=True) if is_there
    ]
    operands = [condition, *first.captured, *second.captured]
    made = iter(ctx.emit_control(If(first.body, second.body), operands, like) if like else ())
    results = (
        next(made) if room is shape else first_elements(ctx, next(made), shape)
        for shape, room, is_there in zip(shapes, rooms, has_elements, strict=True)
        if is_there
    )
    tensors = [
        _agreed(a, b, next(results)) if is_there else Value.empty(a.shape, a.dtype)
        for (a, b), is_there in zip(pairs, has_elements, strict=True)
    ]
    return rebuilt(first.outputs, iter(tensors))


def _room(ctx: Context, shape: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """The shape of a tensor in which a result of this shape lies: a flat one where the result may have no elements,
    since a branch that gives none writes one.
    """
    count = element_count(shape)
    return shape if bounds(before_the_run(ctx.emitter, count))[0] > 0 else (greatest(count, 1),)


def _joint_shape(ctx: Context, condition: Value, a: Value, b: Value, is_filled: bool) -> tuple[Dimension, ...]:
    """The shape of a result that one of two branches gives: what differs is a size that the condition tells.

    Args:
        is_filled: whether one branch gives no elements, and the other some.

    Raises:
        CompileError: the types or the ranks differ, or neither has elements, in different shapes.
    """
    same_kind = a.dtype == b.dtype and a.rank == b.rank
    if not same_kind or (a.shape != b.shape and (0 in a.shape or 0 in b.shape) and not is_filled):
        raise CompileError(
            f"the branches give {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}, and which one holds is "
            "known at run time only"
        )
    return tuple(
        one if one == other else _joint_size(ctx, condition, one, other)
        for one, other in zip(a.shape, b.shape, strict=True)
    )


def _truth(sizes: Array) -> Boolean:
    """The one element of a condition that follows from sizes."""
    truth: Boolean = sizes.reshape(()).item()
    return truth


def _joint_size(ctx: Context, condition: Value, one: Dimension, other: Dimension) -> Dimension:
    if condition.sizes is not None:
        size: Dimension = chosen(_truth(condition.sizes), one, other)
        return size
    return data_dependent_size(
        ctx.emitter, ctx.emitter.chosen(ctx.expr(condition), one, other), greatest(one, other), "branch"
    )


@dataclass(frozen=True)
class _Path:
    """A branch: its graph, and the ranges of dynamic dimensions, by name, for which it is run; its outputs have
    `forms`."""

    graph: Subgraph
    ranges: Mapping[str, Range]
    forms: Forms

    def outputs(self, ctx: Context) -> list[AnyValue]:
        """Return the branch's outputs."""
        return self.forms.of(ctx, ctx.run_graph(self.graph, []))


def _lowered(ctx: Context, condition: Value, one: _Path, other: _Path) -> tuple[_Branch, _Branch]:
    """Both branches, chosen or computed; see `choose`.

    Choices inside others are lowered again with these: those that must be computed are not tried twice.
    """
    if len(ctx.emitter.frames) == 1 and not ctx.emitter.chosen_by:  # no choice is around this one
        ctx.computed_choices.clear()
    if one.graph.source not in ctx.computed_choices:
        try:
            return _branches(ctx, one, other, _possible)
        except _DataDependentInside:
            ctx.computed_choices.add(one.graph.source)
    return _branches(ctx, one, other, partial(_computed, condition=condition, then=one.graph))


def _branches(
    ctx: Context, then: _Path, other: _Path, lowered: Callable[[Context, _Path], _Branch]
) -> tuple[_Branch, _Branch]:
    """Both branches lowered; one that is impossible becomes one that fails, whatever the sizes are.

    Raises:
        CompileError: neither is possible.
    """
    try:
        first = lowered(ctx, then)
    except CompileError as error:
        _raise_undecided(error)
        second = lowered(ctx, other)
        return replace(_failing(ctx, then.graph, error, second.outputs), assumed=second.assumed), second
    try:
        return first, lowered(ctx, other)
    except CompileError as error:
        _raise_undecided(error)
        return first, replace(_failing(ctx, other.graph, error, first.outputs), assumed=first.assumed)


def _raise_undecided(error: CompileError) -> None:
    """Raise an error that there might not be if some dimensions were never 0: the network is built again so."""
    if empty_undecided(error):
        raise error


def _share(one: Assumed, other: Assumed) -> None:
    """Let the whole network have what holds in both branches.

    Raises:
        Refined: there is such a thing.
    """
    contraries = {each.contrary for each in other.assumptions}
    for each in one.assumptions:
        if each.is_shared and each.contrary in contraries:
            raise each.found


def _possible(ctx: Context, path: _Path) -> _Branch:
    """A branch lowered; sizes that are not possible in it fail the run."""
    assumed = Assumed()
    with narrower_ranges(path.ranges):
        while True:
            try:
                made = _branch(ctx, partial(_within, ctx, path, assumed), path.forms)
                whole = assumed.not_negative(sizes_inside(made.body))
                if whole is assumed:
                    return replace(made, assumed=assumed)
                assumed = whole
            except Refined as found:
                assumed = assumed.also(found)


def _computed(ctx: Context, path: _Path, condition: Value, then: Subgraph) -> _Branch:
    """A branch that only gives what has been computed before it; see `choose`."""
    ctx.emitter.chosen_by.append((ctx.expr(condition), path.graph is then))
    try:
        outputs = path.outputs(ctx)
    finally:
        ctx.emitter.chosen_by.pop()
    return _branch(ctx, lambda: outputs, path.forms)


def _within(ctx: Context, path: _Path, assumed: Assumed) -> list[AnyValue]:
    """The outputs of a branch for sizes of which something holds; a run with others fails."""
    if not assumed.assumptions:
        return path.outputs(ctx)
    with assumed.inside():
        inner = replace(path, graph=path.graph.seeing(SeenInside(ctx, assumed)))
        first = _branch(ctx, lambda: inner.outputs(ctx))
    first = replace(first, outputs=_of_any_sizes(first.outputs))
    error = CompileError(f"its operators do not take {assumed.contrary}")
    second = _failing(ctx, path.graph, error, first.outputs, f" with {assumed.contrary}")
    return _chosen(ctx, Value.of_sizes(of_elements([assumed.holds], ()), "bool"), first, second)


def _of_any_sizes(values: list[AnyValue]) -> list[AnyValue]:
    """Values whose sizes are not negative inside a branch, with such that never are: a branch that fails has them."""
    shaped = (replace(leaf, shape=tuple(greatest(size, 0) for size in leaf.shape)) for leaf in leaves(values))
    return rebuilt(values, shaped)


def _branch(ctx: Context, lower: Callable[[], list[AnyValue]], forms: Forms = NO_FORMS) -> _Branch:
    made: list[AnyValue] = []

    def make(_inputs: list[Value], _states: list[Value]) -> list[Value]:
        made.extend(lower())
        return forms.tensors(ctx, made)

    body, captured = ctx.build_body([], [], make)
    if data_dependent_inside(body, leaves(made)):
        raise _DataDependentInside
    return _Branch(body, captured, made)


def _failing(ctx: Context, graph: Subgraph, error: CompileError, like: list[AnyValue], when: str = "") -> _Branch:
    """A branch that lets the run fail; its outputs are zeros of the other branch's types."""
    ctx.warnings.append(
        f"a run that takes the branch '{graph.name}'{when} will fail, it cannot be computed: {error.message}"
    )
    message = f"the branch '{graph.name}' cannot be computed: {error.message}"

    def lower() -> list[AnyValue]:
        tensors = list(leaves(like))
        results = tuple((v.shape, STORAGE.get(v.dtype, v.dtype)) for v in tensors if 0 not in v.shape)
        zeros = iter(ctx.apply(Failure(message, results)))
        made = [Value.empty(v.shape, v.dtype) if 0 in v.shape else replace(next(zeros), dtype=v.dtype) for v in tensors]
        return rebuilt(like, iter(made))

    return _branch(ctx, lower)


def _agreed(a: Value, b: Value, result: Value) -> Value:
    """Returns the result of an If, or the value of both branches if they are the same."""
    return a if a is b or same_values(a.array, b.array) else result
