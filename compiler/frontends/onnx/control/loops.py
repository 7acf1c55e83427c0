"""Lowers loops whose trip count or condition is known only at run time.

A loop's state whose value is known at compile time, and that no iteration changes, is no state: iterations see the
known value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnefc.frontends.onnx.control.bodies import data_dependent_inside, first_elements, leaves, rebuilt, structure
from nnefc.frontends.onnx.control.growing_states import Axis, Growth, bounded, found
from nnefc.frontends.onnx.control.tensor_sequences import stacked
from nnefc.frontends.onnx.data_dependent_sizes import sizes_of, sizes_that_follow
from nnefc.frontends.onnx.operator import Context
from nnefc.frontends.onnx.values import AnyValue, Array, Stacked, TensorSequence, Value, same_values
from nnefc.ir.network import Loop
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.operators.tensor.shape import Reshape
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import (
    Dimension,
    element_count,
    greatest,
)
from nnefc.symbolic.refinement import Refined

__all__ = ["EndlessLoop", "Repetition", "repeat"]

_Iteration = tuple[Value, list[AnyValue], list[Value]]
Iteration = Callable[[Value, list[AnyValue], list[Value]], _Iteration]


class EndlessLoop(CompileError):
    """Nothing ends the loop."""


@dataclass(frozen=True, eq=False)
class Repetition:
    """A loop.

    Attributes:
        iteration: lowers one, given its number, the states, and an element of each tensor that is scanned; returns
            whether another may follow, the new states, and its elements of the outputs.
        states: before the first iteration.
        limit: the greatest trip count, if it is known.
        count: the greatest trip count, if it is computed.
        running: whether there is a first iteration.
        scanned: what an element for each iteration is taken of, along the first axis.
        reversed_inputs: for each of them, whether its last element is the first iteration's.
        reversed_outputs: for each output, whether the first iteration's element is the last one.
    """

    iteration: Iteration
    states: list[AnyValue]
    limit: Dimension | None
    count: Value | None
    running: Value
    scanned: tuple[Value, ...]
    reversed_inputs: tuple[bool, ...]
    reversed_outputs: tuple[bool, ...]


def repeat(ctx: Context, loop: Repetition) -> tuple[list[AnyValue], list[Value]]:
    """Run a loop; returns its last states, and the elements of each output along a new first axis.

    Raises:
        CompileError: a state changes its kind or type, or nothing ends the loop.
    """
    first = [loop.running, *leaves(loop.states)]
    settled = {k: array for k, leaf in enumerate(first) if (array := ctx.constant(leaf)) is not None}
    growths: list[Growth] = []
    while True:
        body = _LoopBody(ctx, loop, first, settled, growths)
        try:
            body.build()
        except _OtherLength as other:
            states = list(loop.states)
            states[other.index] = stacked(ctx, other.before, other.like)
            return repeat(ctx, replace(loop, states=states))
        changed = [k for k, array in settled.items() if not same_values(body.settled_after[k], array)]
        for k in changed:
            del settled[k]
        more = found(growths, body.changes, body.sizes_after)
        growths = growths if more is None else more
        if not changed and more is None:
            break
    conditional = 0 not in settled
    if not conditional and loop.limit is None and loop.count is None:
        raise EndlessLoop("nothing ends it: it has no trip count, and its condition always holds")
    if body.outputs and (conditional or loop.limit is None):
        return repeat(ctx, _with_known_trip_counts(ctx, loop, conditional))
    if growths and loop.limit is None and loop.count is not None:
        return repeat(ctx, _with_known_trip_counts(ctx, loop, conditional=False))
    if growths:
        body = _LoopBody(ctx, loop, first, settled, body.bounded(not conditional))
        body.build()
    return body.call(conditional)


def _with_known_trip_counts(ctx: Context, loop: Repetition, conditional: bool) -> Repetition:
    """A loop with outputs, of which only a run tells how many iterations it has, with that number for its trip count.

    If it is `conditional`, it is run once without its outputs, to count the iterations.
    """
    if not conditional:
        assert loop.count is not None
        count = loop.count
        if None in (sizes_that_follow(ctx, count) or ()):
            count = ctx.apply(Elementwise("maximum"), count, ctx.known(np.int64(0)))  # a negative count is none
        sizes = sizes_of(ctx, count, "loop")
        assert sizes is not None
        return replace(loop, limit=greatest(sizes.reshape(()).item(), 0), count=None)

    def counting(number: Value, states: list[AnyValue], elements: list[Value]) -> _Iteration:
        running, after, _ = loop.iteration(number, states[1:], elements)
        (iterations,) = leaves(states[:1])
        return running, [ctx.apply(Elementwise("add"), iterations, ctx.known(np.int64(1))), *after], []

    def unconditional(number: Value, states: list[AnyValue], elements: list[Value]) -> _Iteration:
        _, after, outputs = loop.iteration(number, states, elements)
        return ctx.known(np.array(True)), after, outputs

    start = ctx.emit(ctx.expr(ctx.known(np.int64(0))))
    states, _ = repeat(ctx, replace(loop, iteration=counting, states=[start, *loop.states], reversed_outputs=()))
    iterations = next(leaves(states[:1]))
    known = ctx.constant(iterations)
    limit = data_dependent_size(ctx.emitter, ctx.expr(iterations), loop.limit, "loop") if known is None else int(known)
    always = ctx.known(np.ones(loop.running.shape, bool))
    return replace(loop, iteration=unconditional, limit=limit, count=None, running=always)


class _OtherLength(Exception):
    """A state is a sequence that has another length after an iteration: `before` one, with elements `like` this one."""

    def __init__(self, index: int, before: TensorSequence, like: Value) -> None:
        super().__init__("a sequence changes its length")
        self.index, self.before, self.like = index, before, like


class _LoopBody:
    """An attempt to build the body of a loop.

    Args:
        first: the condition and the tensors that the states are made of, before the first iteration.
        settled: the values of those that are expected not to change, by their numbers.
        growths: the sizes that are expected to change.

    Attributes:
        outputs: the elements of the outputs that an iteration computes.
        settled_after: the values that an iteration gives those states; None for one that is computed.
        changes: sizes of states that are not expected to change, before and after an iteration, where they differ.
        sizes_after: those that are, after an iteration.
    """

    def __init__(
        self,
        ctx: Context,
        loop: Repetition,
        first: list[Value],
        settled: dict[int, Array],
        growths: Sequence[Growth],
    ) -> None:
        self._ctx = ctx
        self._loop = loop
        self._first = first
        self._settled = settled
        self._moving = [k for k in range(len(first)) if k not in settled]
        self._scanned = [k for k, value in enumerate(loop.scanned) if 0 not in value.shape]
        self.outputs: list[Value] = []
        self.settled_after: dict[int, Array | None] = {}
        self.changes: dict[Axis, tuple[Dimension, Dimension]] = {}
        self.sizes_after: dict[Axis, Dimension] = {}
        self._growths = growths
        self._held = [growth for growth in growths if growth.is_state]
        sizes = {axis: growth.size for growth in growths for axis in growth.axes}
        self._shapes = [
            tuple(sizes.get((k, axis), size) for axis, size in enumerate(leaf.shape)) for k, leaf in enumerate(first)
        ]

    def bounded(self, exact: bool) -> list[Growth]:
        """The sizes that change, with what they are at most; `exact`: whether it has all iterations."""
        return bounded(self._growths, self.sizes_after, self._body.counts, self._loop.limit, exact, self._ctx.emitter)

    def build(self) -> None:
        """Lower an iteration as a body."""
        elements = [self._loop.scanned[k] for k in self._scanned]
        inputs = [Value((), "int64"), *(Value(element.shape[1:], element.dtype) for element in elements)]
        states = [replace(self._first[k], shape=self._shapes[k]) for k in self._moving]
        states += [Value((), "int64")] * len(self._held)
        try:
            self._body, self._captured = self._ctx.build_body(inputs, states, self._iteration, leading=1)
        except Refined as found:
            if found.names.isdisjoint(str(growth.count.var.name) for growth in self._growths):
                raise
            raise CompileError(
                "its operators fit each other for some sizes only of a state whose size changes in each iteration"
            ) from None
        if data_dependent_inside(self._body, self.outputs):
            raise CompileError(
                "a scan output has a data-dependent size in each iteration, and need not be the same in all",
                hint="pad the elements to one size in the loop's body",
            )

    def _iteration(self, inputs: list[Value], moving: list[Value]) -> list[Value]:
        number, *given = inputs
        moving, sizes = moving[: len(self._moving)], moving[len(self._moving) :]
        self._count(number, sizes)
        computed = dict(zip(self._scanned, given, strict=True))
        elements = [
            computed[k] if k in computed else Value.empty(value.shape[1:], value.dtype)
            for k, value in enumerate(self._loop.scanned)
        ]
        before = [Value.known(self._settled[k]) if k in self._settled else leaf for k, leaf in enumerate(self._first)]
        for k, leaf in zip(self._moving, moving, strict=True):
            before[k] = leaf
        running, states, self.outputs = self._loop.iteration(
            number, rebuilt(self._loop.states, iter(before[1:])), elements
        )
        states = [
            self._alike(index, old, new) for index, (old, new) in enumerate(zip(self._loop.states, states, strict=True))
        ]
        after = [_shaped(self._ctx, running, self._first[0].shape), *leaves(states)]
        self._compare(after)
        self.settled_after = {k: self._ctx.constant(after[k]) for k in self._settled}
        sizes_after = [of_elements([self.sizes_after[growth.axes[0]]], ()) for growth in self._held]
        return [
            *(element for element in self.outputs if 0 not in element.shape),
            *(after[k] for k in self._moving),
            *(Value.of_sizes(size, "int64") for size in sizes_after),
        ]

    def _alike(self, index: int, old: AnyValue, new: AnyValue) -> AnyValue:
        """A state after an iteration, in the form that it has before it.

        Raises:
            _OtherLength: it is a sequence of another length.
            CompileError: it is something else.
        """
        if structure(old) == structure(new):
            return new
        if isinstance(old, Stacked) and isinstance(new, TensorSequence):
            return stacked(self._ctx, new, old.element)
        if isinstance(old, TensorSequence) and isinstance(new, TensorSequence | Stacked):
            after = stacked(
                self._ctx, new, old.elements[0] if old.elements and isinstance(old.elements[0], Value) else None
            )
            raise _OtherLength(index, old, after.element)
        raise CompileError(f"its state {index} changes its kind or length from one iteration to the next")

    def _count(self, number: Value, sizes: Sequence[Value]) -> None:
        """Let the body read the sizes that change, or the number of the iteration that they follow from."""
        counts = self._ctx.emitter.counts
        for growth, size in zip(self._held, sizes, strict=True):
            counts[growth.count] = self._ctx.expr(size)
        stepping = [growth for growth in self._growths if growth.step is not None]
        if stepping:
            counts[stepping[0].count] = self._ctx.expr(number)

    def _compare(self, after: Sequence[Value]) -> None:
        """Note what sizes of the states an iteration changes.

        Raises:
            CompileError: it changes a type or the number of dimensions.
        """
        growing = {axis for growth in self._growths for axis in growth.axes}
        for k, (old, new) in enumerate(zip(self._first, after, strict=True)):
            if old.dtype != new.dtype or old.rank != new.rank:
                raise CompileError(
                    f"a state is {old.dtype}{list(old.shape)} before an iteration, "
                    f"{new.dtype}{list(new.shape)} after it"
                )
            for axis, (size, other) in enumerate(zip(old.shape, new.shape, strict=True)):
                if (k, axis) in growing:
                    self.sizes_after[k, axis] = other
                elif size != other:
                    self.changes[k, axis] = size, other

    def call(self, conditional: bool) -> tuple[list[AnyValue], list[Value]]:
        """Run the loop around the body that was built."""
        loop, ctx = self._loop, self._ctx
        stacked = [Value((loop.limit or 0, *element.shape), element.dtype) for element in self.outputs]
        kept = [k for k, value in enumerate(stacked) if 0 not in value.shape]
        control = Loop(
            self._body,
            loop.limit,
            loop.count is not None,
            conditional,
            tuple(loop.reversed_inputs[k] for k in self._scanned),
            tuple(loop.reversed_outputs[k] for k in kept),
        )
        zero = ctx.known(np.int64(0))
        held = [Value.of_sizes(of_elements([growth.first], ()), "int64") for growth in self._held]
        states = [*(self._first[k] for k in self._moving), *held]
        operands = [*self._captured, *states, *(loop.scanned[k] for k in self._scanned)]
        if loop.count is not None:
            operands.insert(0, loop.count)
        like = [*map(self._room, self._moving), *([zero] * len(held)), *(stacked[k] for k in kept)]
        made = ctx.emit_control(control, operands, like) if like else []
        held_sizes = zip(self._held, made[len(self._moving) : len(states)], strict=True)
        sizes = self._last_sizes(
            [
                data_dependent_size(ctx.emitter, ctx.expr(size), growth.count.limit, "loop")
                for growth, size in held_sizes
            ]
        )
        moved = {k: self._last(k, room, sizes) for k, room in zip(self._moving, made, strict=False)}
        last = [moved.get(k, leaf) for k, leaf in enumerate(self._first)]
        computed = dict(zip(kept, made[len(states) :], strict=True))
        outputs = [computed[k] if k in computed else Value.empty(v.shape, v.dtype) for k, v in enumerate(stacked)]
        return rebuilt(loop.states, iter(last[1:])), outputs

    def _last_sizes(self, held: Sequence[Dimension]) -> dict[Axis, Dimension]:
        """The sizes that change, after the loop, given those that states hold."""
        sizes: dict[Axis, Dimension] = {}
        of_states = iter(held)
        for growth in self._growths:
            if growth.is_state:
                size = next(of_states)
            else:
                assert growth.step is not None and self._loop.limit is not None
                size = growth.first + self._loop.limit * growth.step
            sizes.update(dict.fromkeys(growth.axes, size))
        return sizes

    def _shape_after(self, k: int, sizes: Mapping[Axis, Dimension]) -> tuple[Dimension, ...]:
        return tuple(sizes.get((k, axis), size) for axis, size in enumerate(self._first[k].shape))

    def _is_held(self, k: int) -> bool:
        """Returns whether a size of a state is known when the loop has run."""
        return any(number == k for growth in self._held for number, _ in growth.axes)

    def _room(self, k: int) -> Value:
        """A tensor like that which a state lies in: a flat one where its last size is not known before the loop."""
        shape = self._shape_after(k, self._last_sizes([growth.count.limit or 0 for growth in self._held]))
        return replace(self._first[k], shape=(greatest(element_count(shape), 1),) if self._is_held(k) else shape)

    def _last(self, k: int, room: Value, sizes: Mapping[Axis, Dimension]) -> Value:
        """A state after the loop."""
        if not self._is_held(k):
            return room
        return first_elements(self._ctx, room, self._shape_after(k, sizes))


def _shaped(ctx: Context, value: Value, shape: tuple[int, ...]) -> Value:
    """A condition with the axes that the one before the first iteration has."""
    made: Value = ctx.apply(Reshape(shape), value)
    return made
