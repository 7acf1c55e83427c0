"""Recurrent layers (RNN, GRU, LSTM) as a loop of the network with one iteration per time step.

The products with the inputs are one matrix product for all time steps; the loop contains only what depends on the
previous step:

    projected = x · W + b                                       [T, B, G · H]
    for t in range(T):
        gates = projected[t] + hidden · R                       [B, G · H]
        hidden, cell = step(gates, hidden, cell)                [B, H]
        y[t] = hidden
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import Emitter, Operand, Operator, SameShape, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.math.elementwise import Clip, apply, compute
from nnefc.operators.math.functions import FUNCTIONS, number
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.nn.activation import exponential_minus_one, softplus
from nnefc.operators.nn.normalization import Standardization
from nnefc.operators.nn.quantization import DynamicQuantization, QuantizedTensor, quantized_product
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Slice
from nnefc.symbolic.dims import Dimension

__all__ = ["ACTIVATIONS", "Activation", "BeforeTheEnd", "Cell", "Gru", "Lstm", "Recurrence", "RecurrentWeights", "Rnn"]


_OWN: dict[str, Callable[[Any, float, float], Any]] = {
    "affine": lambda x, a, b: x * number(a, x) + number(b, x),
    "leakyrelu": lambda x, a, _b: tirx.Select(x < number(0, x), x * number(a, x), x),
    "thresholdedrelu": lambda x, a, _b: tirx.Select(x > number(a, x), x, number(0, x)),
    "scaledtanh": lambda x, a, b: tirx.tanh(x * number(b, x)) * number(a, x),
    "hardsigmoid": lambda x, a, b: tirx.max(tirx.min(x * number(a, x) + number(b, x), number(1, x)), number(0, x)),
    "elu": lambda x, a, _b: tirx.Select(x < number(0, x), exponential_minus_one(x) * number(a, x), x),
    "softsign": lambda x, _a, _b: x / (number(1, x) + tirx.abs(x)),
    "softplus": lambda x, _a, _b: softplus(x),
}
"""Functions of a gate that are not in `FUNCTIONS`, with two parameters."""

ACTIVATIONS = frozenset({"sigmoid", "tanh", "relu", *_OWN})
"""Names of the functions of a gate."""


@dataclass(frozen=True)
class Activation:
    """A function of a gate: one of `ACTIVATIONS` with its parameters, of a value that is clipped before.

    Attributes:
        clip: the largest magnitude that the value may have; None: any.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0
    clip: float | None = None

    def __call__(self, x: Any) -> Any:
        """Its value for an element."""
        x = _clipped(x, self.clip)
        own = _OWN.get(self.name)
        return FUNCTIONS[self.name](x) if own is None else own(x, self.alpha, self.beta)


def _clipped(x: Any, limit: float | None) -> Any:
    return x if limit is None else tirx.max(tirx.min(x, number(limit, x)), number(-limit, x))


class RecurrentWeights(NamedTuple):
    """The trained values of a layer: I inputs, G gates of H elements, hidden states of O elements, the cells' H if not
    less.

    Where both matrices are quantized, what they are multiplied with is too: the inputs of all steps with one scale, the
    hidden states of a step with another, or each row with one of its own. The cells' own operations stay in reals.

    Attributes:
        inputs: `[I, G · H]`.
        hidden: `[O, G · H]`.
        input_bias, hidden_bias: `[G · H]`.
        peepholes: `[3 · H]`, of the gates i, o, f of an LSTM.
        projection: `[H, O]`, by which the hidden state of an LSTM gets smaller (Sak, Senior, Beaufays, 2014).
        projection_bias: `[O]`.
        gains: `[4 · H]`: the sums of each gate of an LSTM are normalized over its H elements, and multiplied with them,
            before the bias is added (Ba, Kiros, Hinton, "Layer Normalization", 2016).
    """

    inputs: Operand | QuantizedTensor
    hidden: Operand | QuantizedTensor
    input_bias: Operand | None = None
    hidden_bias: Operand | None = None
    peepholes: Operand | None = None
    projection: Operand | QuantizedTensor | None = None
    projection_bias: Operand | None = None
    gains: Operand | None = None


@dataclass(frozen=True)
class Cell:
    """The computation of a recurrent layer in each step.

    Attributes:
        gates: G.
        states: how many tensors go from step to step, the hidden state first.
    """

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    @property
    def bias_apart(self) -> bool:
        """Whether the last gate's bias for the hidden state is not simply added to its sum."""
        return False

    def parts(self, size: int) -> list[tuple[int, int]]:
        """Return (first, count) of the columns of the hidden state's matrix, `[O, G · H]`, that are multiplied."""
        return [(0, self.gates * size)]

    def step(self, ctx: Emitter, given: relax.Expr, hidden: Operand, states: list[Operand], by: _Loop) -> list[Operand]:
        """The new states.

        Args:
            given: the gates' sums without the hidden state's part, `[B, G · H]`.
            hidden: what is multiplied for the hidden state, `[B, O]`.
            states: `[B, O]` or `[B, H]`.
            by: what is the same in all steps.
        """
        raise NotImplementedError


class _Loop(NamedTuple):
    """The loop invariants of a layer: the matrices for the hidden state, a bias that is not in the products with the
    inputs, the weights, and how what is multiplied with quantized matrices is quantized.
    """

    matrices: Sequence[Operand | QuantizedTensor]
    bias: Operand | None
    weights: RecurrentWeights
    quantization: Operator

    def product(self, ctx: Emitter, x: Operand, matrix: Operand | QuantizedTensor) -> relax.Expr:
        return _product(ctx, x, matrix, self.quantization)


@dataclass(frozen=True)
class Rnn(Cell):
    """`h' = f(x W + h R + b)` (Elman, "Finding Structure in Time", 1990)."""

    function: Activation

    gates: ClassVar[int] = 1

    def step(self, ctx: Emitter, given: relax.Expr, hidden: Operand, states: list[Operand], by: _Loop) -> list[Operand]:
        def element(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
            return self.function(t[0](*i) + t[1](*i))

        product = by.product(ctx, hidden, by.matrices[0])
        return [ctx.emit(ctx.elements(shape_of(states[0]), element, given, product, name="rnn_cell"))]


def _mixed(update: Any, new: Any, old: Any) -> Any:
    return (number(1, new) - update) * new + update * old


@dataclass(frozen=True)
class Gru(Cell):
    """Gates z, r, h: `h' = (1 - z) n + z h` with `z, r = f(…)` (Cho et al., 2014).

    `n = g(x W + (r h) R + b)`, or with `reset_after`, `n = g(x W + r (h R + c) + b)` (cuDNN, PyTorch).
    """

    gate: Activation
    new: Activation
    reset_after: bool

    gates: ClassVar[int] = 3

    @property
    def bias_apart(self) -> bool:
        return self.reset_after

    def parts(self, size: int) -> list[tuple[int, int]]:
        return super().parts(size) if self.reset_after else [(0, 2 * size), (2 * size, size)]

    def step(self, ctx: Emitter, given: relax.Expr, hidden: Operand, states: list[Operand], by: _Loop) -> list[Operand]:
        batch, n = shape_of(states[0])

        def gate(x: Any, r: Any, index: int, b: Any, j: Any) -> Any:
            return self.gate(x(b, index * n + j) + r(b, index * n + j))

        def reset_after(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
            (x, r, old, bias), (b, j) = t, i
            inner = x(b, 2 * n + j) + gate(x, r, 1, b, j) * (r(b, 2 * n + j) + bias(j))
            return _mixed(gate(x, r, 0, b, j), self.new(inner), old(b, j))

        product = by.product(ctx, hidden, by.matrices[0])
        if self.reset_after:
            assert by.bias is not None
            tensors = [given, product, states[0], by.bias]
            return [ctx.emit(ctx.elements((batch, n), reset_after, *tensors, name="gru_cell"))]

        def gates(x: te.Tensor, r: te.Tensor, old: te.Tensor) -> list[te.Tensor]:
            update = te.compute((batch, n), lambda b, j: gate(x, r, 0, b, j), name="update")
            reset = te.compute((batch, n), lambda b, j: gate(x, r, 1, b, j) * old(b, j), name="reset")
            return [update, reset]

        def element(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
            (x, r, update, old), (b, j) = t, i
            return _mixed(update(b, j), self.new(x(b, 2 * n + j) + r(b, j)), old(b, j))

        update, reset = ctx.parts(ctx.compute(gates, given, product, states[0], name="gru_gates"))
        last = by.product(ctx, reset, by.matrices[1])
        return [ctx.emit(ctx.elements((batch, n), element, given, last, update, states[0], name="gru_cell"))]


@dataclass(frozen=True)
class Lstm(Cell):
    """Gates i, o, f, c: `c' = f c + i g(…)`, `h' = o h(c')` (Hochreiter, Schmidhuber, 1997; Gers et al., 2000).

    Attributes:
        gate: of i, o and f.
        new: g.
        out: h.
        coupled: which gate is 1 less the other: "f", "i", or "" for neither.
        cell_clip, hidden_clip: the largest magnitudes that cells may have, and hidden states behind a projection; None:
            any.
    """

    gate: Activation
    new: Activation
    out: Activation
    coupled: str = ""
    cell_clip: float | None = None
    hidden_clip: float | None = None

    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2

    def step(self, ctx: Emitter, given: relax.Expr, hidden: Operand, states: list[Operand], by: _Loop) -> list[Operand]:
        product = by.product(ctx, hidden, by.matrices[0])
        cells = self._cells if by.weights.gains is None else self._normalized_cells
        made, cell = cells(ctx, given, product, states[1], by)
        if by.weights.projection is None:
            return [made, cell]
        projected: Operand = by.product(ctx, made, by.weights.projection)
        if by.weights.projection_bias is not None:
            projected = apply(ctx, "add", projected, by.weights.projection_bias)
        if self.hidden_clip is not None:
            ends = (ctx.number(end, projected) for end in (-self.hidden_clip, self.hidden_clip))
            projected = ctx.bound(Clip().lower(ctx, projected, *ends))
        return [projected, cell]

    def _cell(self, entering: Any, forgetting: Any, new: Any, old: Any) -> Any:
        """A new cell of the values of its gates, of which the coupled one does not count."""
        if self.coupled == "f":
            forgetting = number(1, entering) - entering
        elif self.coupled == "i":
            entering = number(1, forgetting) - forgetting
        return _clipped(forgetting * old + entering * new, self.cell_clip)

    def _cells(
        self, ctx: Emitter, given: relax.Expr, product: relax.Expr, old: Operand, by: _Loop
    ) -> Sequence[Operand]:
        """The hidden state before its projection, and the cells, in one kernel."""
        shape = shape_of(old)
        n = shape[1]

        def function(x: te.Tensor, r: te.Tensor, old: te.Tensor, *peepholes: te.Tensor) -> list[te.Tensor]:
            def gate(index: int, b: Any, j: Any, cell: te.Tensor | None = None, peephole: int = 0) -> Any:
                value = x(b, index * n + j) + r(b, index * n + j)
                if cell is not None and peepholes:
                    value = value + peepholes[0](peephole * n + j) * cell(b, j)
                return value

            def cell_at(b: Any, j: Any) -> Any:
                entering = None if self.coupled == "i" else self.gate(gate(0, b, j, old, 0))
                forgetting = None if self.coupled == "f" else self.gate(gate(2, b, j, old, 2))
                return self._cell(entering, forgetting, self.new(gate(3, b, j)), old(b, j))

            cell = te.compute(shape, cell_at, name="cell")
            return [
                te.compute(shape, lambda b, j: self.gate(gate(1, b, j, cell, 1)) * self.out(cell(b, j)), name="hidden"),
                cell,
            ]

        extra = [] if by.weights.peepholes is None else [by.weights.peepholes]
        return ctx.parts(ctx.compute(function, given, product, old, *extra, name="lstm_cell"))

    def _normalized_cells(
        self, ctx: Emitter, given: relax.Expr, product: relax.Expr, old: Operand, by: _Loop
    ) -> Sequence[Operand]:
        """As :meth:`_cells`, of gates whose sums are normalized."""
        n = shape_of(old)[1]
        sums = ctx.bound(apply(ctx, "add", given, product))
        gains, bias, peepholes = by.weights.gains, by.bias, by.weights.peepholes
        assert gains is not None

        def part(operand: Operand, axis: int, index: int) -> Operand:
            return ctx.apply(Slice({axis: (index * n, n, 1)}), operand)

        def gate(index: int, cell: Operand | None = None, peephole: int = 0) -> Operand:
            value = part(sums, 1, index)
            if cell is not None and peepholes is not None:
                value = apply(ctx, "add", value, apply(ctx, "multiply", part(peepholes, 0, peephole), cell))
            offset = None if bias is None else part(bias, 0, index)
            return ctx.bound(Standardization((1,), _EPSILON).lower(ctx, value, part(gains, 0, index), offset))

        def cell_at(entering: Any, forgetting: Any, new: Any, old: Any) -> Any:
            return self._cell(self.gate(entering), self.gate(forgetting), self.new(new), old)

        def hidden_at(leaving: Any, cell: Any) -> Any:
            return self.gate(leaving) * self.out(cell)

        forgetting, entering = gate(2, old, 2), gate(0, old, 0)
        cell = ctx.bound(compute(ctx, cell_at, entering, forgetting, gate(3), old, name="lstm_cell"))
        return ctx.bound(compute(ctx, hidden_at, gate(1, cell, 1), cell, name="lstm_hidden")), cell


_EPSILON = 1e-8
"""Added to the variance of a gate's sums."""


_WHOLE = DynamicQuantization()


@dataclass(frozen=True)
class Recurrence(Operator):
    """One direction of a recurrent layer over sequences, which may end before the last step.

    Attributes:
        cell: what is computed in each step.
        backwards: whether the last element of a sequence comes first.
        ended_is_zero: whether the hidden state of a sequence that has ended is zeros in products; no result depends on
            it but by the scale of what is quantized for the whole batch.
        quantization: of reals that are multiplied with quantized matrices; it gives integers, scales and zero points.
    """

    cell: Cell
    backwards: bool = False
    ended_is_zero: bool = False
    quantization: Operator = _WHOLE

    def shape(self, x: Shape, weights: RecurrentWeights, states: Sequence[Shape], lengths: Shape | None = None) -> Any:
        """`[T, B, O]`, and the shapes of the states."""
        return ((*x[:2], states[0][-1]), *states)

    def lower(
        self,
        ctx: Emitter,
        x: Operand | QuantizedTensor,
        weights: RecurrentWeights,
        states: Sequence[Operand],
        lengths: Operand | None = None,
    ) -> tuple[Operand, ...]:
        """The hidden states after all steps, zeros where a sequence has ended, and the last states.

        Args:
            x: `[T, B, I]`, float32 or float64, as the weights and the states.
            states: before the first step: the hidden state `[B, O]` and, of an LSTM, the cell's `[B, H]`.
            lengths: `[B]` int32, how many elements the sequences have, from 0 to T.
        """
        time, batch, _ = shape_of(x.elements if isinstance(x, QuantizedTensor) else x)
        if is_empty((time, batch)):
            return (zeros((time, *shape_of(states[0])), dtype_of(states[0])), *states)
        projected, by = self._prepared(ctx, x, weights)
        reversed_lengths = lengths if self.backwards else None
        if reversed_lengths is not None:
            projected = _reversed(ctx, projected, reversed_lengths)

        def iteration(
            step: Operand, given: relax.Expr, before: Sequence[Operand]
        ) -> tuple[list[Operand], list[Operand]]:
            return self._round(ctx, step, given, list(before), lengths, by)

        if time == 1:
            one = ctx.expr(ctx.reshaped(projected, shape_of(projected)[1:]))
            last, (hidden,) = iteration(np.array(0), one, states)
            hidden = ctx.reshaped(hidden, (1, *shape_of(hidden)))
        else:
            last, (hidden,) = ctx.scan(iteration, projected, states, self.backwards and reversed_lengths is None)
        return (hidden if reversed_lengths is None else _reversed(ctx, hidden, reversed_lengths), *last)

    def _prepared(
        self, ctx: Emitter, x: Operand | QuantizedTensor, weights: RecurrentWeights
    ) -> tuple[relax.Expr, _Loop]:
        """The products with the inputs, biases added, `[T, B, G · H]`; and what steps work with."""
        time, batch, depth = shape_of(x.elements if isinstance(x, QuantizedTensor) else x)
        rows: Operand | QuantizedTensor
        if isinstance(x, QuantizedTensor):
            rows = x._replace(elements=ctx.reshaped(x.elements, (time * batch, depth)))
        else:
            rows = ctx.reshaped(x, (time * batch, depth))
        product = _product(ctx, rows, weights.inputs, self.quantization)
        width = shape_of(product)[1]
        projected = ctx.reshaped(product, (time, batch, width))
        size = width // self.cell.gates
        bias, apart = self._biases(ctx, weights, size, dtype_of(projected))
        if weights.gains is not None:
            bias, apart = None, bias  # which is added behind the normalization
        if bias is not None:
            projected = apply(ctx, "add", projected, bias)
        matrices: list[Operand | QuantizedTensor] = [weights.hidden]
        parts = self.cell.parts(size)
        if len(parts) > 1:
            assert not isinstance(weights.hidden, QuantizedTensor)
            matrices = [ctx.apply(Slice({1: (first, count, 1)}), weights.hidden) for first, count in parts]
        return ctx.expr(projected), _Loop(matrices, apart, weights, self.quantization)

    def _biases(
        self, ctx: Emitter, weights: RecurrentWeights, size: Dimension, dtype: str
    ) -> tuple[Operand | None, Operand | None]:
        """Return the bias of the products with the inputs, and the last gate's bias if the cell adds it elsewhere."""
        first, second = weights.input_bias, weights.hidden_bias
        apart: Operand | None = None
        if self.cell.bias_apart:
            none, tail = ctx.bound(zeros((size,), dtype)), (self.cell.gates - 1) * size
            apart = none
            if second is not None:
                apart = ctx.apply(Slice({0: (tail, size, 1)}), second)
                second = ctx.apply(Concat(0), ctx.apply(Slice({0: (0, tail, 1)}), second), none)
        if first is None or second is None:
            return second if first is None else first, apart
        return apply(ctx, "add", first, second), apart

    def _round(
        self, ctx: Emitter, step: Operand, given: relax.Expr, states: list[Operand], lengths: Operand | None, by: _Loop
    ) -> tuple[list[Operand], list[Operand]]:
        """The states after a step, and its hidden state."""
        if lengths is None:
            new = self.cell.step(ctx, given, states[0], states, by)
            return new, [new[0]]
        hidden = states[0] if not self.ended_is_zero else _while(ctx, step, lengths, 1, states[0], None)
        new = self.cell.step(ctx, given, hidden, states, by)
        kept: list[Operand] = [_while(ctx, step, lengths, 0, *pair) for pair in zip(new, states, strict=True)]
        return kept, [_while(ctx, step, lengths, 0, new[0], None)]


def _product(
    ctx: Emitter, x: Operand | QuantizedTensor, matrix: Operand | QuantizedTensor, quantization: Operator
) -> relax.Expr:
    """`x [M, K]` times the matrix `[K, N]`; in integers if that is quantized."""
    if isinstance(matrix, QuantizedTensor):
        if not isinstance(x, QuantizedTensor):
            x = QuantizedTensor(*ctx.apply(quantization, x))
        return quantized_product(ctx, x, matrix)
    assert not isinstance(x, QuantizedTensor)
    return ctx.expr(ctx.apply(MatMul(), x, matrix))


def _while(
    ctx: Emitter, step: Operand, lengths: Operand, later: int, value: Operand, other: Operand | None
) -> relax.Expr:
    """`value` where the sequence has not ended `later` iterations before this one; else `other`, or zeros."""

    def element(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
        lasts = t[1]().astype("int32") < t[2](i[0]) + later
        return tirx.Select(lasts, t[0](*i), t[3](*i) if other is not None else number(0, t[0](*i)))

    extra = [] if other is None else [other]
    return ctx.emit(ctx.elements(shape_of(value), element, value, step, lengths, *extra, name="keep_ended"))


def _reversed(ctx: Emitter, x: Operand, lengths: Operand) -> relax.Expr:
    """The sequences `[T, B, …]`, each reversed; what comes behind its end stays there."""

    def element(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
        position, length = i[0].astype("int32"), t[1](i[1])
        return t[0](tirx.Select(position < length, length - 1 - position, position), *i[1:])

    return ctx.emit(ctx.elements(shape_of(x), element, x, lengths, name="reversed"))


@dataclass(frozen=True)
class BeforeTheEnd(SameShape):
    """Sequences `[T, B, …]` with zeros behind the end of the longest: of `[B]` int32 lengths."""

    def lower(self, ctx: Emitter, x: Operand, lengths: Operand) -> relax.Expr:
        longest = ctx.emit(relax.op.max(ctx.expr(lengths)))

        def element(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
            return tirx.Select(i[0].astype("int32") < t[1](), t[0](*i), number(0, t[0](*i)))

        return ctx.elements(shape_of(x), element, x, longest, name="mask_ended")
