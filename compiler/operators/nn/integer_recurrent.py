"""LSTM layers in integers: weights and hidden states of 8 bits, gates and cells of 16 bits.

Li, Alvarez, "On the Quantization of Recurrent Neural Networks" (2021). The sums of a gate, those of the inputs and
those of the hidden state, are each scaled to 16 bits with 3 integer bits, and added with saturation. Cells have a scale
that is a power of two:

    gate = saturate(saturate(x W + b) + h R)                      3 integer bits
    cell = saturate((sigmoid(f) · cell) >> 15 + (sigmoid(i) · tanh(g)) >> (30 + exponent))
    h    = (sigmoid(o) · tanh(cell)) · factor + zero              int8
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, is_empty, shape_of
from nnefc.operators.math.elementwise import apply
from nnefc.operators.nn.fixed_point import FixedPointScaling, fixed_point_of, fixed_points_of, scaled
from nnefc.operators.nn.fixed_point_gates import positive_sigmoids, positive_tanhs
from nnefc.operators.nn.fixed_point_normalization import GateNormalization
from nnefc.operators.nn.quantization import IntegerProduct

__all__ = ["Factored", "IntegerGate", "IntegerLstm", "IntegerProjection"]

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
_GATE_BITS = 3


@dataclass(frozen=True, eq=False)
class Factored:
    """A matrix int8 `[H, K]`, the int32 `[H]` that are added to its products, and what the sums are multiplied by."""

    matrix: Array
    bias: Array
    factor: float


@dataclass(frozen=True, eq=False)
class IntegerGate:
    """The trained values of a gate.

    Attributes:
        inputs, hidden: of the inputs and of the hidden state.
        peephole: int16 `[H]`, that the cells are multiplied by, and what the products are; None: there is none.
        normalization: of the sums, which have another scale then; all gates of a layer have one, or none has.
    """

    inputs: Factored
    hidden: Factored
    peephole: tuple[Array, float] | None = None
    normalization: GateNormalization | None = None


@dataclass(frozen=True, eq=False)
class IntegerProjection:
    """The projection of the cells' results to a smaller hidden state: its products, zero point and limit."""

    weights: Factored
    zero: int
    clip: int = 0


@dataclass(frozen=True, eq=False)
class IntegerLstm(Operator):
    """One direction of an LSTM over sequences.

    Attributes:
        gates: i (None where it is 1 - f), f, g, o.
        exponent: the scale of the cells is two to this power, from -15 to -9.
        factor, zero: what the product of a gate and the tanh of a cell, 30 fractional bits, is scaled by, and added to.
        projection: None where the cells' results are the hidden state.
        cell_clip: the largest magnitude of a cell; 0: any.
    """

    gates: tuple[IntegerGate | None, IntegerGate, IntegerGate, IntegerGate]
    exponent: int
    factor: float
    zero: int
    projection: IntegerProjection | None = None
    cell_clip: int = 0

    def shape(self, x: Shape, hidden: Shape, cell: Shape) -> tuple[Shape, Shape, Shape]:
        """The hidden states of all steps, and the last states."""
        return (*x[:2], hidden[-1]), hidden, cell

    def lower(self, ctx: Emitter, x: Operand, hidden: Operand, cell: Operand) -> tuple[Operand, Operand, Operand]:
        """`x` is int8 `[T, B, I]`, the states before the first step int8 `[B, O]` and int16 `[B, H]`."""
        time, batch, depth = shape_of(x)
        if is_empty((time, batch)):
            return np.zeros(self.shape(shape_of(x), shape_of(hidden), shape_of(cell))[0], np.int8), hidden, cell
        rows = ctx.reshaped(x, (time * batch, depth))
        given = _products(ctx, rows, [gate.inputs for gate in self._gates], "int16")
        projected = ctx.expr(ctx.reshaped(given, (time, batch, *shape_of(given)[1:])))

        def iteration(_: Operand, given: Operand, before: Sequence[Operand]) -> tuple[list[Operand], list[Operand]]:
            made, cell = self._step(ctx, given, *before)
            return [made, cell], [made]

        if time == 1:
            one = ctx.expr(ctx.reshaped(projected, shape_of(projected)[1:]))
            (made, last), (states,) = iteration(np.array(0), one, [hidden, cell])
            return ctx.reshaped(states, (1, *shape_of(states))), made, last
        (made, last), (states,) = ctx.scan(iteration, projected, [hidden, cell])
        return states, made, last

    @property
    def _gates(self) -> list[IntegerGate]:
        """Return the gates that have products."""
        return [gate for gate in self.gates if gate is not None]

    def _step(self, ctx: Emitter, given: Operand, hidden: Operand, cell: Operand) -> tuple[Operand, Operand]:
        sums = _products(ctx, hidden, [gate.hidden for gate in self._gates], "int32")
        tables = [positive_sigmoids(), positive_tanhs(_GATE_BITS), positive_tanhs(15 + self.exponent)]
        peepholes = [gate.peephole[0] for gate in self._gates if gate.peephole is not None]
        if self.gates[1].normalization is not None:
            made, after = self._normalized(ctx, given, sums, cell, tables)
        else:
            function = self._cell(shape_of(cell))
            operands = [given, sums, cell, *tables, *peepholes]
            made, after = ctx.parts(ctx.compute(function, *operands, name="integer_lstm_cell"))
        scaling = FixedPointScaling("int8", zero=self.zero)
        narrow = ctx.apply(scaling, made, *(np.array(part, np.int32) for part in fixed_point_of(self.factor)))
        return self._projected(ctx, narrow), after

    def _projected(self, ctx: Emitter, x: Operand) -> Operand:
        if self.projection is None:
            return x
        ends = (-self.projection.clip, self.projection.clip) if self.projection.clip else (None, None)
        return _products(ctx, x, [self.projection.weights], "int8", self.projection.zero, ends)

    def _normalized(
        self, ctx: Emitter, given: Operand, sums: Operand, old: Operand, tables: Sequence[Array]
    ) -> tuple[Operand, Operand]:
        """As :meth:`_cell`, of gates whose sums are normalized."""
        shape = shape_of(old)
        sigmoids, tanhs, cell_tanhs = tables
        entering, forgetting, new, leaving = self.gates

        def gate(of: IntegerGate, cell: Operand) -> Operand:
            first = self._gates.index(of) * shape[1]
            extra = [] if of.peephole is None else [cell, of.peephole[0]]

            def element(t: tuple[Any, ...], i: tuple[Any, ...]) -> tirx.Expr:
                value = _saturated(_wide(t[0](i[0], first + i[1])) + t[1](i[0], first + i[1]))
                if of.peephole is not None:
                    product = _wide(t[3](i[1])) * _wide(t[2](*i))
                    value = _saturated(value + scaled(product, *fixed_point_of(of.peephole[1])))
                return value.astype("int16")

            assert of.normalization is not None
            made = ctx.emit(ctx.elements(shape, element, given, sums, *extra, name="gate_sums"))
            normalized: Operand = ctx.apply(of.normalization, made)
            return normalized

        def cell_at(t: tuple[Any, ...], i: tuple[Any, ...]) -> tirx.Expr:
            kept, added, before, sigmoids, tanhs, *opening = t
            kept = _looked_up(sigmoids, _wide(kept(*i)), _HIGH)
            opened = _looked_up(sigmoids, _wide(opening[0](*i)), _HIGH) if opening else _const(_HIGH) - kept
            return self._after(kept, opened, _looked_up(tanhs, _wide(added(*i)), 0), _wide(before(*i)))

        def result(t: tuple[Any, ...], i: tuple[Any, ...]) -> tirx.Expr:
            gate = _looked_up(t[2], _wide(t[0](*i)), _HIGH)
            return gate * _looked_up(t[3], _wide(t[1](*i)), 0)

        opening = [] if entering is None else [gate(entering, old)]
        operands = [gate(forgetting, old), gate(new, old), old, sigmoids, tanhs, *opening]
        cell = ctx.emit(ctx.elements(shape, cell_at, *operands, name="integer_lstm_cell"))
        operands = [gate(leaving, cell), cell, sigmoids, cell_tanhs]
        return ctx.emit(ctx.elements(shape, result, *operands, name="integer_lstm_hidden")), cell

    def _after(self, kept: tirx.Expr, opened: tirx.Expr, added: tirx.Expr, old: tirx.Expr) -> tirx.Expr:
        """A new cell, of the sigmoids of two gates and the tanh of another."""
        after = _divided(kept * old, 15) + _divided(opened * added, 30 + self.exponent)
        limits = (-self.cell_clip, self.cell_clip) if self.cell_clip else (_LOW, _HIGH)
        return tirx.max(tirx.min(after, _const(limits[1])), _const(limits[0])).astype("int16")

    def _cell(self, shape: Shape) -> Callable[..., list[te.Tensor]]:
        """The computation of a step's cells, and of what the hidden state is made of, int32."""
        size = shape[1]
        computed = self._gates
        watching = [gate for gate in computed if gate.peephole is not None]
        entering, forgetting, new, leaving = self.gates

        def function(
            given: te.Tensor, sums: te.Tensor, old: te.Tensor, sigmoids: te.Tensor, tanhs: te.Tensor,
            cell_tanhs: te.Tensor, *peepholes: te.Tensor,
        ) -> list[te.Tensor]:  # fmt: skip
            def gate(of: IntegerGate, b: Any, j: Any, cell: te.Tensor) -> tirx.Expr:
                column = computed.index(of) * size + j
                value = _saturated(_wide(given(b, column)) + sums(b, column))
                if of.peephole is not None:
                    product = _wide(peepholes[watching.index(of)](j)) * _wide(cell(b, j))
                    value = _saturated(value + scaled(product, *fixed_point_of(of.peephole[1])))
                return value

            def sigmoid(of: IntegerGate, b: Any, j: Any, cell: te.Tensor) -> tirx.Expr:
                return _looked_up(sigmoids, gate(of, b, j, cell), _HIGH)

            def cell_at(b: Any, j: Any) -> tirx.Expr:
                kept = sigmoid(forgetting, b, j, old)
                opened = _const(_HIGH) - kept if entering is None else sigmoid(entering, b, j, old)
                return self._after(kept, opened, _looked_up(tanhs, gate(new, b, j, old), 0), _wide(old(b, j)))

            cell = te.compute(shape, cell_at, name="cell")

            def result(b: Any, j: Any) -> tirx.Expr:
                return sigmoid(leaving, b, j, cell) * _looked_up(cell_tanhs, _wide(cell(b, j)), 0)

            return [te.compute(shape, result, name="result"), cell]

        return function


def _products(
    ctx: Emitter, x: Operand, parts: Sequence[Factored], dtype: str, zero: int = 0,
    ends: tuple[int | None, int | None] = (None, None),
) -> Operand:  # fmt: skip
    """The products of rows with several matrices next to each other, scaled: `[N, K]` → `[N, parts · H]`."""
    columns = np.ascontiguousarray(np.concatenate([part.matrix for part in parts]).T)
    bias = np.concatenate([part.bias for part in parts])
    factors = np.concatenate([np.full(len(part.bias), part.factor) for part in parts])
    if len(set(factors)) == 1:
        factors = factors[:1].reshape(())
    sums = apply(ctx, "add", ctx.apply(IntegerProduct(), x, columns), bias)
    made: Operand = ctx.apply(FixedPointScaling(dtype, 0, 0, zero, *ends), sums, *fixed_points_of(factors))
    return made


def _const(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")


def _wide(x: Any) -> tirx.Expr:
    made: tirx.Expr = x.astype("int32")
    return made


def _saturated(x: tirx.Expr) -> tirx.Expr:
    return tirx.max(tirx.min(x, _const(_HIGH)), _const(_LOW))


def _divided(x: tirx.Expr, exponent: int) -> tirx.Expr:
    """`x / 2^exponent` rounded to the nearest integer, ties away from zero."""
    if exponent == 0:
        return x
    half = _const(1 << (exponent - 1))
    return (x + half + (x >> _const(31))) >> _const(exponent)


def _looked_up(table: te.Tensor, x: tirx.Expr, whole: int) -> tirx.Expr:
    """The entry of the magnitude of a 16-bit integer, of a negative one `whole` less it.

    The index is computed without a `Select`, of which both sides would be read.
    """
    sign = x >> _const(31)
    entry = _wide(table((x ^ sign) - sign))
    made = (entry ^ sign) - sign
    return made + (sign & _const(whole)) if whole else made
