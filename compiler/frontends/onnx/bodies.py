"""Choices and loops that run as often as values computed at run time say: subgraphs as bodies of their own.

What goes from one iteration to the next, or comes out of either branch, are tensors of one type each; sequences and
optionals are as many tensors, and their lengths stay. A loop's state whose value is known at compile time, and that no
iteration changes, is no state: iterations see the known value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nnefc.agreement import Narrowed
from nnefc.diagnostics import CompileError
from nnefc.frontends.onnx.operator import Context, Subgraph
from nnefc.frontends.onnx.size_values import sizes_array
from nnefc.frontends.onnx.sizes_of_data import sizes_of
from nnefc.frontends.onnx.values import STORAGE, AnyValue, Array, Map, Optional, Sequence, Value
from nnefc.network import Body, Choice, Loop
from nnefc.operators.counts import counted
from nnefc.operators.elementwise import Elementwise
from nnefc.operators.shape import Reshape
from nnefc.operators.statements import Failure
from nnefc.size_numbers import Truth, both, chosen, less_or_equal, negated, possible_ranges
from nnefc.sizes import (
    Dimension,
    Range,
    Size,
    expression,
    greatest,
    narrower_ranges,
    open_variables,
    range_of,
    variables,
)

__all__ = ["EndlessLoop", "Repetition", "choose", "repeat"]

_Round = tuple[Value, list[AnyValue], list[Value]]
Iteration = Callable[[Value, list[AnyValue], list[Value]], _Round]


class EndlessLoop(CompileError):
    """Nothing ends the loop."""


@dataclass(frozen=True, eq=False)
class Repetition:
    """A loop.

    Attributes:
        iteration: lowers one, given its number, the states, and an item of each tensor that is scanned; returns
            whether another may follow, the new states, and its items of the outputs.
        states: before the first iteration.
        limit: the greatest trip count, if it is known.
        count: the greatest trip count, if it is computed.
        running: whether there is a first iteration.
        scanned: what an item for each iteration is taken of, along the first axis.
        reversed_inputs: for each of them, whether its last item is the first iteration's.
        reversed_outputs: for each output, whether the first iteration's item is the last one.
    """

    iteration: Iteration
    states: list[AnyValue]
    limit: Dimension | None
    count: Value | None
    running: Value
    scanned: tuple[Value, ...]
    reversed_inputs: tuple[bool, ...]
    reversed_outputs: tuple[bool, ...]


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
    return [leaf.rank for leaf in _leaves(branch.outputs)]


def _chosen(ctx: Context, condition: Value, first: _Branch, second: _Branch) -> list[AnyValue]:
    """The outputs of one of two branches.

    Raises:
        CompileError: they differ in number, kind or type.
    """
    if len(first.outputs) != len(second.outputs):
        raise CompileError(f"its branches have {len(first.outputs)} and {len(second.outputs)} outputs")
    if list(map(_structure, first.outputs)) != list(map(_structure, second.outputs)):
        raise CompileError(
            "the branches give values of different kinds or lengths, and which one runs is known only at run time"
        )
    pairs = list(zip(_leaves(first.outputs), _leaves(second.outputs), strict=True))
    shapes = [_joint_shape(ctx, condition, a, b) for a, b in pairs]
    like = [replace(a, shape=shape) for (a, _), shape in zip(pairs, shapes, strict=True) if 0 not in a.shape]
    operands = [condition, *first.captured, *second.captured]
    results = iter(ctx.emit_control(Choice(first.body, second.body), operands, like) if like else ())
    leaves = [Value.empty(a.shape, a.dtype) if 0 in a.shape else _agreed(a, b, next(results)) for a, b in pairs]
    return _rebuilt(first.outputs, iter(leaves))


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
        return [leaf for leaf in _leaves(made) if 0 not in leaf.shape]

    body, captured = ctx.build_body([], [], make)
    if _told_inside(body, _leaves(made)):
        raise _CountedInside
    return _Branch(body, captured, made)


def _told_inside(body: Body, results: Iterable[Value]) -> bool:
    """Whether some of these results of a body have sizes that only its own data tell."""
    own = {count.var for count in body.counts}
    return any(own.intersection(variables(expression(size))) for value in results for size in value.shape)


def _failing(ctx: Context, graph: Subgraph, error: CompileError, like: list[AnyValue], when: str = "") -> _Branch:
    """A branch that lets the run fail; its outputs are zeros of the other branch's types."""
    ctx.warnings.append(
        f"a run that takes the branch '{graph.name}'{when} will fail, it cannot be computed: {error.message}"
    )
    message = f"the branch '{graph.name}' cannot be computed: {error.message}"

    def lower() -> list[AnyValue]:
        leaves = list(_leaves(like))
        results = tuple((v.shape, STORAGE.get(v.dtype, v.dtype)) for v in leaves if 0 not in v.shape)
        zeros = iter(ctx.apply(Failure(message, results)))
        made = [Value.empty(v.shape, v.dtype) if 0 in v.shape else replace(next(zeros), dtype=v.dtype) for v in leaves]
        return _rebuilt(like, iter(made))

    return _branch(ctx, lower)


def _agreed(a: Value, b: Value, result: Value) -> Value:
    """The result of a choice, or what both branches have in its place if that is the same thing."""
    if a is b:
        return a
    return a if a.array is not None and b.array is not None and np.array_equal(a.array, b.array) else result


def repeat(ctx: Context, loop: Repetition) -> tuple[list[AnyValue], list[Value]]:
    """Run a loop; returns its last states, and the items of each output along a new first axis.

    Raises:
        CompileError: a state changes its kind or type, or nothing ends the loop.
    """
    first = [loop.running, *_leaves(loop.states)]
    settled = {k: array for k, leaf in enumerate(first) if (array := ctx.constant(leaf)) is not None}
    while True:
        body = _LoopBody(ctx, loop, first, settled)
        body.build()
        changed = [k for k in settled if not _same(body.settled_after[k], settled[k])]
        if not changed:
            break
        for k in changed:
            del settled[k]
    conditional = 0 not in settled
    if not conditional and loop.limit is None and loop.count is None:
        raise EndlessLoop("nothing ends it: it has no trip count, and its condition always holds")
    if body.outputs and (conditional or loop.limit is None):
        return repeat(ctx, _with_known_rounds(ctx, loop, conditional))
    return body.call(conditional)


def _with_known_rounds(ctx: Context, loop: Repetition, conditional: bool) -> Repetition:
    """A loop with outputs, of which only a run tells how many rounds it has, with that number for its trip count.

    Where a condition ends it, it is run once without its outputs, to count the rounds.
    """
    if not conditional:
        assert loop.count is not None
        sizes = sizes_of(ctx, loop.count, "loop")
        assert sizes is not None
        return replace(loop, limit=greatest(sizes.reshape(()).item(), 0), count=None)

    def counting(number: Value, states: list[AnyValue], items: list[Value]) -> _Round:
        running, after, _ = loop.iteration(number, states[1:], items)
        (rounds,) = _leaves(states[:1])
        return running, [ctx.apply(Elementwise("add"), rounds, ctx.known(np.int64(1))), *after], []

    def unconditional(number: Value, states: list[AnyValue], items: list[Value]) -> _Round:
        _, after, outputs = loop.iteration(number, states, items)
        return ctx.known(np.array(True)), after, outputs

    start = ctx.emit(ctx.expr(ctx.known(np.int64(0))))
    states, _ = repeat(ctx, replace(loop, iteration=counting, states=[start, *loop.states], reversed_outputs=()))
    rounds = next(_leaves(states[:1]))
    known = ctx.constant(rounds)
    limit = counted(ctx.at, ctx.expr(rounds), loop.limit, "loop") if known is None else int(known)
    always = ctx.known(np.ones(loop.running.shape, bool))
    return replace(loop, iteration=unconditional, limit=limit, count=None, running=always)


class _LoopBody:
    """One attempt to build the body of a loop: `settled` are the values of states that are expected not to change.

    Attributes:
        outputs: what one iteration gives as its items of the outputs.
        settled_after: the values that an iteration gives those states; None for one that is computed.
    """

    def __init__(self, ctx: Context, loop: Repetition, first: list[Value], settled: dict[int, Array]) -> None:
        self._ctx = ctx
        self._loop = loop
        self._first = first
        self._settled = settled
        self._moving = [k for k in range(len(first)) if k not in settled]
        self._scanned = [k for k, value in enumerate(loop.scanned) if 0 not in value.shape]
        self.outputs: list[Value] = []
        self.settled_after: dict[int, Array | None] = {}

    def build(self) -> None:
        """Lower an iteration as a body."""
        items = [self._loop.scanned[k] for k in self._scanned]
        inputs = [Value((), "int64"), *(Value(item.shape[1:], item.dtype) for item in items)]
        states = [self._first[k] for k in self._moving]
        self._body, self._captured = self._ctx.build_body(inputs, states, self._iteration, leading=1)
        if _told_inside(self._body, self.outputs):
            raise CompileError(
                "a scan output has a size in each iteration that only the data tell, and need not be the same in all",
                hint="pad the items to one size in the loop's body",
            )

    def _iteration(self, inputs: list[Value], moving: list[Value]) -> list[Value]:
        number, *given = inputs
        computed = dict(zip(self._scanned, given, strict=True))
        items = [
            computed[k] if k in computed else Value.empty(value.shape[1:], value.dtype)
            for k, value in enumerate(self._loop.scanned)
        ]
        before = [Value.known(self._settled[k]) if k in self._settled else leaf for k, leaf in enumerate(self._first)]
        for k, leaf in zip(self._moving, moving, strict=True):
            before[k] = leaf
        running, states, self.outputs = self._loop.iteration(
            number, _rebuilt(self._loop.states, iter(before[1:])), items
        )
        for index, (old, new) in enumerate(zip(self._loop.states, states, strict=True)):
            if _structure(old) != _structure(new):
                raise CompileError(f"its state {index} changes its kind or length from one iteration to the next")
        after = [_shaped(self._ctx, running, self._first[0].shape), *_leaves(states)]
        for old, new in zip(self._first, after, strict=True):
            if (old.dtype, old.shape) != (new.dtype, new.shape):
                raise CompileError(
                    f"a state is {old.dtype}{list(old.shape)} before an iteration, "
                    f"{new.dtype}{list(new.shape)} after it"
                )
        self.settled_after = {k: self._ctx.constant(after[k]) for k in self._settled}
        return [*(item for item in self.outputs if 0 not in item.shape), *(after[k] for k in self._moving)]

    def call(self, conditional: bool) -> tuple[list[AnyValue], list[Value]]:
        """Run the loop around the body that was built."""
        loop, ctx = self._loop, self._ctx
        stacked = [Value((loop.limit or 0, *item.shape), item.dtype) for item in self.outputs]
        kept = [k for k, value in enumerate(stacked) if 0 not in value.shape]
        control = Loop(
            self._body,
            loop.limit,
            loop.count is not None,
            conditional,
            tuple(loop.reversed_inputs[k] for k in self._scanned),
            tuple(loop.reversed_outputs[k] for k in kept),
        )
        states = [self._first[k] for k in self._moving]
        operands = [*self._captured, *states, *(loop.scanned[k] for k in self._scanned)]
        if loop.count is not None:
            operands.insert(0, loop.count)
        like = [*states, *(stacked[k] for k in kept)]
        made = ctx.emit_control(control, operands, like) if like else []
        moved = dict(zip(self._moving, made[: len(states)], strict=True))
        last = [moved.get(k, leaf) for k, leaf in enumerate(self._first)]
        computed = dict(zip(kept, made[len(states) :], strict=True))
        outputs = [computed[k] if k in computed else Value.empty(v.shape, v.dtype) for k, v in enumerate(stacked)]
        return _rebuilt(loop.states, iter(last[1:])), outputs


def _same(a: Array | None, b: Array) -> bool:
    return a is not None and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=b.dtype.kind == "f")


def _shaped(ctx: Context, value: Value, shape: tuple[int, ...]) -> Value:
    """A condition with the axes that the one before the first iteration has."""
    made: Value = ctx.apply(Reshape(shape), value)
    return made


def _leaves(values: Iterable[AnyValue]) -> Iterator[Value]:
    """The tensors that values are made of.

    Raises:
        CompileError: a map is among them.
    """
    for value in values:
        match value:
            case Value():
                yield value
            case Sequence(items):
                yield from _leaves(items)
            case Optional(item):
                yield from _leaves([] if item is None else [item])
            case Map():
                raise CompileError("a map cannot depend on what is known only at run time")


def _rebuilt(values: SequenceOf[AnyValue], leaves: Iterator[Value]) -> list[AnyValue]:
    """Values like these, made of other tensors."""
    made: list[AnyValue] = []
    for value in values:
        match value:
            case Sequence(items, dtype):
                made.append(Sequence(tuple(_rebuilt(items, leaves)), dtype))
            case Optional(item, dtype):
                made.append(Optional(None if item is None else _rebuilt([item], leaves)[0], dtype))
            case _:
                made.append(next(leaves))
    return made


def _structure(value: AnyValue) -> object:
    """What a value is made of, so that values of one structure differ in their tensors only."""
    match value:
        case Sequence(items):
            return "sequence", *map(_structure, items)
        case Optional(item):
            return "optional", None if item is None else _structure(item)
    return type(value).__name__
