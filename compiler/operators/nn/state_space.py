"""Layers whose states sum up all positions so far: causal convolutions, and selective state spaces.

Rows of a run are `[B, S, …]`; `lengths`, `[B]`, says how many of a sequence's rows are its own, and `before`, `[B]`,
how many positions it had before: a sequence with none begins again, whatever its state holds. States are those of all
sequences of a session, `[M, …]`; `numbers`, `[B]`, are the sequences of a run, all different; without them, B is M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from nnefc.ir.attributes import UPDATES
from nnefc.operators.base import Emitter, Operand, Operator, SameShape, Shape, dtype_of, shape_of
from nnefc.operators.statements import T, each, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import expression
from nnefc.symbolic.unification import unify_shapes

__all__ = ["CausalConvolution", "ShiftState", "StateSpaceScan"]


@dataclass(frozen=True)
class CausalConvolution(SameShape):
    """A convolution of each channel of `[B, S, C]` over its own position and those before.

    Positions before this run are in a state, `[M, taps - 1, C]`, the last ones; there are zeros before the first one.
    """

    def lower(
        self,
        ctx: Emitter,
        x: Operand,
        weight: Operand,
        state: Operand,
        before: Operand,
        numbers: Operand | None = None,
    ) -> relax.Expr:
        """Lower it, with weights `[taps, C]`."""
        taps, zero = shape_of(weight)[0], tirx.const(0, dtype_of(x))
        held = taps - 1

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            (x, weight, state, before, *others), (row, step, channel) = tensors, index
            own = others[0](row) if others else row
            total = x(row, step, channel) * weight(held, channel)
            for back in range(1, taps):
                position = step.astype("int64") - back
                inside = x(row, tirx.max(position, tirx.const(0, "int64")), channel)
                last = tirx.max(tirx.min(position + held, held - 1), tirx.const(0, "int64"))
                earlier = tirx.Select(before(row).astype("int64") + position >= 0, state(own, last, channel), zero)
                total = total + tirx.Select(position >= 0, inside, earlier) * weight(held - back, channel)
            return total

        given = [x, weight, state, before, *([] if numbers is None else [numbers])]
        return ctx.emit(ctx.elements(shape_of(x), element, *given, name="causal_convolution"))


@dataclass(frozen=True)
class ShiftState(Operator):
    """The last rows of each sequence, `[M, held, C]`, after those of this run, `[B, S, C]`; others stay.

    Where the state is one of the network, and this its new value, nothing but the rows of the run's sequences is
    touched.
    """

    def shape(self, x: Shape, lengths: Shape, state: Shape, numbers: Shape | None = None) -> Shape:
        """Return the shape of the state."""
        rows = state[:1] if numbers is None else numbers
        if len(x) != 3 or len(state) != 3 or not unify_shapes((*lengths, *rows, x[2]), (x[0], x[0], state[2])):
            raise CompileError(f"a state {list(state)} does not fit rows {list(x)}")
        return state

    def lower(
        self, ctx: Emitter, x: Operand, lengths: Operand, state: Operand, numbers: Operand | None = None
    ) -> Operand:
        given = [x, lengths, state, *([] if numbers is None else [numbers])]
        shape = self.shape(*map(shape_of, given))
        steps, channels = map(expression, shape_of(x)[1:])
        rows, held = shape_of(x)[0], shape[1]

        def write(x: Any, lengths: Any, state: Any, *others: Any) -> None:
            *numbers, result = others
            with each(rows, math.prod((rows, *shape[1:]))) as row:
                own = numbers[0][row] if numbers else row
                length = tirx.min(lengths[row].astype("int64"), steps)
                with T.serial(held) as line, T.serial(channels) as channel:
                    position = length + line - held
                    target = (own * held + line) * channels + channel
                    with T.If(position >= 0):
                        with T.Then():
                            result[target] = x[(row * steps + position) * channels + channel]
                        with T.Else():
                            result[target] = result[target + length * channels]

        return looped(ctx, write, given, [(shape, dtype_of(state))], "shift_state", {UPDATES: 2})[0]


@dataclass(frozen=True)
class StateSpaceScan(Operator):
    """The states of a selective state space after each position, multiplied with a vector (Dao, Gu, 2024).

        state = exp(time · decay) state + time · enter ⊗ x            y = leave · state

    of one head and one position; a head has the vectors of its group.
    """

    def shape(
        self, x: Shape, time: Shape, decay: Shape, enter: Shape, leave: Shape, state: Shape, *tail: Shape
    ) -> tuple[Shape, Shape]:
        """Return the shapes of the state, and of the rows."""
        fits = len(x) == len(enter) == len(state) == 4 and unify_shapes(enter, leave)
        wanted = (*x[:3], x[2], *x[:2], x[2], x[3])
        if not fits or not unify_shapes((*time, *decay, *enter[:2], state[1], state[3]), wanted):
            raise CompileError(f"rows {list(x)} do not fit a state {list(state)} with {list(time)} and {list(enter)}")
        return state, x

    def lower(
        self,
        ctx: Emitter,
        x: Operand,
        time: Operand,
        decay: Operand,
        enter: Operand,
        leave: Operand,
        state: Operand,
        before: Operand,
        lengths: Operand,
        numbers: Operand | None = None,
    ) -> tuple[Operand, ...]:
        """Return the new states, `[M, H, N, E]`, and the results, `[B, S, H, E]`; zeros behind a sequence's rows.

        Args:
            ctx: where to build.
            x: rows, `[B, S, H, E]`.
            time: steps of time, `[B, S, H]`.
            decay: `[H]`.
            enter, leave: vectors of each group, `[B, S, G, N]`.
            state: `[M, H, N, E]`.
            before, lengths, numbers: see above.
        """
        given = [x, time, decay, enter, leave, state, before, lengths, *([] if numbers is None else [numbers])]
        shapes = self.shape(*map(shape_of, given))
        batch, steps, heads, width = shape_of(x)
        groups, size = shape_of(enter)[2:]
        block = size * width

        def write(x: Any, time: Any, decay: Any, enter: Any, leave: Any, state: Any, before: Any, *others: Any) -> None:
            lengths, *numbers, result, y, scratch = others
            with each(batch * heads, batch * heads * steps * block) as line:
                row, head = tirx.floordiv(line, heads), tirx.floormod(line, heads)
                own = numbers[0][row] if numbers else row
                base = (own * heads + head) * block
                with T.If(before[row] == 0), T.Then(), T.serial(block) as i:
                    result[base + i] = tirx.const(0, "float32")
                with T.serial(expression(steps)) as step:
                    line_of_run = row * expression(steps) + step
                    position, group = line_of_run * heads + head, tirx.floordiv(head, heads // groups)
                    vector = (line_of_run * groups + group) * size
                    with T.serial(width) as e:
                        y[position * width + e] = tirx.const(0, "float32")
                    with T.If(step < lengths[row]), T.Then():
                        scratch[line] = tirx.exp(time[position] * decay[head])
                        with T.serial(size) as n, T.serial(width) as e:
                            entered = enter[vector + n] * time[position] * x[position * width + e]
                            result[base + n * width + e] = result[base + n * width + e] * scratch[line] + entered
                            y[position * width + e] = (
                                y[position * width + e] + leave[vector + n] * result[base + n * width + e]
                            )

        results = [(shapes[0], "float32"), (shapes[1], "float32"), ((batch * heads,), "float32")]
        return looped(ctx, write, given, results, "state_space_scan", {UPDATES: 5})[:2]
