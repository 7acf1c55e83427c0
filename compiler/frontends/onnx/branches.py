"""Choices between two subgraphs by a condition that is known at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nnefc.diagnostics import CompileError
from nnefc.frontends.onnx.bodies import leaves, rebuilt, structure, told_inside
from nnefc.frontends.onnx.operator import Context, Subgraph
from nnefc.frontends.onnx.size_values import sizes_array
from nnefc.frontends.onnx.values import STORAGE, AnyValue, Array, Value
from nnefc.narrowing import Narrowed
from nnefc.network import Body, Choice
from nnefc.operators.counts import counted
from nnefc.operators.statements import Failure
from nnefc.size_numbers import Truth, both, chosen, less_or_equal, negated, possible_ranges
from nnefc.sizes import (
    Dimension,
    Range,
    Size,
    greatest,
    narrower_ranges,
    open_variables,
    range_of,
)

__all__ = ["choose"]


class _CountedInside(Exception):
    """A result of a branch has a size that only the branch's own data tell."""


@dataclass(frozen=True, eq=False)
class _Branch:
    """A branch of a choice: its body, the values of the function around it that it reads, and its outputs."""

    body: Body
    captured: list[Value]
    outputs: list[AnyValue]


def choose(ctx: Context, condition: Value, then: Subgraph, other: Subgraph) -> list[AnyValue]:
    """The outputs of `then` if the condition holds, else those of `other`; only that one runs.

    One of them may be impossible for the shapes at hand, where the values never choose it: a run that does fails. So
    does one that chooses a branch with open sizes that are impossible there. If sizes choose, each branch is lowered
    for those that choose it. Branches with results of sizes that only the data tell are both computed, with none of
    these in that which is not chosen.

    Raises:
        CompileError: their outputs differ in number, kind or type; neither of them is possible.
    """
    truth = True if condition.sizes is None else _truth(condition.sizes)
    one, two = _Path(then, possible_ranges(truth)), _Path(other, possible_ranges(negated(truth)))
    try:
        first, second = _branches(ctx, one, two, _possible)
    except _CountedInside:
        first, second = _branches(ctx, one, two, partial(_computed, condition=condition, then=then))
    if condition.sizes is not None and _ranks(first) != _ranks(second):
        # One shape for all sizes: they are narrowed to those for which the first branch is possible, if there are any.
        _branch(ctx, lambda: ctx.run_graph(then, []))
    return _chosen(ctx, condition, first, second)


def _ranks(branch: _Branch) -> list[int]:
    return [leaf.rank for leaf in leaves(branch.outputs)]


def _chosen(ctx: Context, condition: Value, first: _Branch, second: _Branch) -> list[AnyValue]:
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
    shapes = [_joint_shape(ctx, condition, a, b) for a, b in pairs]
    like = [replace(a, shape=shape) for (a, _), shape in zip(pairs, shapes, strict=True) if 0 not in a.shape]
    operands = [condition, *first.captured, *second.captured]
    results = iter(ctx.emit_control(Choice(first.body, second.body), operands, like) if like else ())
    tensors = [Value.empty(a.shape, a.dtype) if 0 in a.shape else _agreed(a, b, next(results)) for a, b in pairs]
    return rebuilt(first.outputs, iter(tensors))


def _joint_shape(ctx: Context, condition: Value, a: Value, b: Value) -> tuple[Dimension, ...]:
    """The shape of a result that one of two branches gives: what differs is a size that the condition tells.

    Raises:
        CompileError: the types or the ranks differ, or one of them has no items.
    """
    same_kind = a.dtype == b.dtype and a.rank == b.rank
    if not same_kind or (a.shape != b.shape and (0 in a.shape or 0 in b.shape)):
        raise CompileError(
            f"the branches give {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}, and which one holds is "
            "known at run time only"
        )
    return tuple(
        one if one == other else _joint_size(ctx, condition, one, other)
        for one, other in zip(a.shape, b.shape, strict=True)
    )


def _truth(sizes: Array) -> Truth:
    """The one item of a condition that follows from sizes."""
    truth: Truth = sizes.reshape(()).item()
    return truth


def _joint_size(ctx: Context, condition: Value, one: Dimension, other: Dimension) -> Dimension:
    if condition.sizes is not None:
        size: Dimension = chosen(_truth(condition.sizes), one, other)
        return size
    return counted(ctx.at, ctx.at.chosen(ctx.expr(condition), one, other), greatest(one, other), "branch")


@dataclass(frozen=True)
class _Path:
    """One of two graphs, and the ranges of open dimensions, by name, for which it is run."""

    graph: Subgraph
    ranges: Mapping[str, Range]


def _branches(
    ctx: Context, then: _Path, other: _Path, lowered: Callable[[Context, _Path], _Branch]
) -> tuple[_Branch, _Branch]:
    """Both branches lowered; one that is impossible becomes one that fails.

    Raises:
        CompileError: neither is possible.
    """
    try:
        first = lowered(ctx, then)
    except CompileError as error:
        second = lowered(ctx, other)
        return _failing(ctx, then.graph, error, second.outputs), second
    try:
        return first, lowered(ctx, other)
    except CompileError as error:
        return first, _failing(ctx, other.graph, error, first.outputs)


def _possible(ctx: Context, path: _Path) -> _Branch:
    """A branch lowered; larger sizes than are possible in it fail the run."""
    within: dict[str, Range] = {}
    with narrower_ranges(path.ranges):
        while True:
            try:
                return _branch(ctx, partial(_within, ctx, path.graph, within))
            except Narrowed as found:
                within = _limits(within, found)


def _computed(ctx: Context, path: _Path, condition: Value, then: Subgraph) -> _Branch:
    """A branch that only gives what has been computed before it; see `choose`."""
    ctx.at.chosen_by.append((ctx.expr(condition), path.graph is then))
    try:
        outputs = ctx.run_graph(path.graph, [])
    finally:
        ctx.at.chosen_by.pop()
    return _branch(ctx, lambda: outputs)


def _limits(given: Mapping[str, Range], found: Narrowed) -> dict[str, Range]:
    """The ranges of open dimensions by name, of which the greatest sizes are narrowed further.

    Raises:
        Narrowed: more is to be narrowed: results of the branch might get other types, or sizes less than 0.
    """
    known = {str(var.name): range_of(var) for var in open_variables()}
    if found.same or found.multiples or found.fixed or not known.keys() >= found.ends.keys():
        raise found
    above = {name: (least, None) for name, (least, _) in found.ends.items() if least > known[name].least}
    if above:
        raise Narrowed(ends=above)
    made = {n: replace(known[n], most=most) for n, (_, most) in found.ends.items() if most is not None}
    return {**given, **{n: replace(r, typical=min(r.typical, r.most)) for n, r in made.items()}}


def _within(ctx: Context, graph: Subgraph, limits: Mapping[str, Range]) -> list[AnyValue]:
    """The outputs of a graph for sizes up to those of these ranges; a run with larger ones fails."""
    if not limits:
        return ctx.run_graph(graph, [])
    inside: Any = True
    for var in (var for var in open_variables() if str(var.name) in limits):
        inside = both(inside, less_or_equal(Size(var), limits[str(var.name)].most))
    with narrower_ranges(limits):
        first = _branch(ctx, lambda: ctx.run_graph(graph, []))
    ends = " and ".join(f"more than {own.most * own.multiple} for '{name}'" for name, own in limits.items())
    second = _failing(ctx, graph, CompileError(f"its operators do not take {ends}"), first.outputs, f" with {ends}")
    return _chosen(ctx, Value.of_sizes(sizes_array([inside], ()), "bool"), first, second)


def _branch(ctx: Context, lower: Callable[[], list[AnyValue]]) -> _Branch:
    made: list[AnyValue] = []

    def make(_inputs: list[Value], _states: list[Value]) -> list[Value]:
        made.extend(lower())
        return [leaf for leaf in leaves(made) if 0 not in leaf.shape]

    body, captured = ctx.build_body([], [], make)
    if told_inside(body, leaves(made)):
        raise _CountedInside
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
    """The result of a choice, or what both branches have in its place if that is the same thing."""
    if a is b:
        return a
    return a if a.array is not None and b.array is not None and np.array_equal(a.array, b.array) else result
