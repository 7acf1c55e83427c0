"""Recurrent networks: RNN, GRU, LSTM.

The products with the inputs are one matrix product for all times; the rest is a loop of the network, one round a step:

    projected = x · W + b                                       [T, B, G · H]
    for t in range(T):
        gates = projected[t] + hidden · R                       [B, G · H]
        hidden, cell = step(gates, hidden, cell)                [B, H]
        y[t] = hidden

How the products are computed, in reals or in integers, is a matter of the weights: see `Weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import te, tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.matrix import matmul
from nnefc.frontends.onnx.operators.tensors import (
    cast,
    compute,
    concatenated,
    dtype_of,
    fail,
    input_at,
    known,
    optional_input,
    permuted,
    reshaped,
    shape_of,
    sliced,
    spell,
)
from nnefc.network import Loop
from nnefc.operators.activation import softplus

__all__ = ["Weights", "check_ranks", "direction_count", "item_of", "recurrence", "sequence_lengths"]

Function = Callable[[Any], Any]


class Weights(Protocol):
    """A matrix `[H, N]`, and how it is multiplied with."""

    def product(self, ctx: Context, x: Value) -> Value:
        """`x [B, H]` times the matrix, in reals."""


@dataclass(frozen=True)
class _Reals:
    matrix: Value

    def product(self, ctx: Context, x: Value) -> Value:
        return matmul(ctx, x, self.matrix)


def _number(x: Any, value: float) -> Any:
    return tirx.const(value, str(x.ty))


_FUNCTIONS: dict[str, tuple[Callable[[Any, float, float], Any], float, float]] = {
    "sigmoid": (lambda x, _a, _b: tirx.sigmoid(x), 0, 0),
    "tanh": (lambda x, _a, _b: tirx.tanh(x), 0, 0),
    "relu": (lambda x, _a, _b: tirx.max(x, _number(x, 0)), 0, 0),
    "affine": (lambda x, a, b: x * _number(x, a) + _number(x, b), 1, 0),
    "leakyrelu": (lambda x, a, _b: tirx.Select(x < _number(x, 0), x * _number(x, a), x), 0.01, 0),
    "thresholdedrelu": (lambda x, a, _b: tirx.Select(x > _number(x, a), x, _number(x, 0)), 1, 0),
    "scaledtanh": (lambda x, a, b: tirx.tanh(x * _number(x, b)) * _number(x, a), 1, 1),
    "hardsigmoid": (
        lambda x, a, b: tirx.max(tirx.min(x * _number(x, a) + _number(x, b), _number(x, 1)), _number(x, 0)),
        0.2,
        0.5,
    ),
    "elu": (lambda x, a, _b: tirx.Select(x < _number(x, 0), (tirx.exp(x) - _number(x, 1)) * _number(x, a), x), 1, 0),
    "softsign": (lambda x, _a, _b: x / (_number(x, 1) + tirx.abs(x)), 0, 0),
    "softplus": (lambda x, _a, _b: softplus(x), 0, 0),
}
"""Activations by their names without case, and the defaults of their parameters."""

_WITH_ALPHA = ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
_WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")


def _functions(node: Node, defaults: Sequence[str], directions: int) -> list[tuple[Function, ...]]:
    """The activations of each direction; parameters are taken in order by those that have them."""
    names = [name.lower() for name in node.attributes.get("activations") or list(defaults) * directions]
    names = names[: len(defaults) * directions]  # RNN's default names one for each direction there might be
    if len(names) != len(defaults) * directions or any(name not in _FUNCTIONS for name in names):
        raise fail(node, f"does not know the activations {names}, or needs another number of them")
    alphas, betas = (
        iter(node.attributes.get("activation_alpha") or ()),
        iter(node.attributes.get("activation_beta") or ()),
    )
    made: list[Function] = []
    for name in names:
        function, alpha, beta = _FUNCTIONS[name]
        alpha = next(alphas, alpha) if name in _WITH_ALPHA else alpha
        beta = next(betas, beta) if name in _WITH_BETA else beta
        made.append(lambda x, f=function, a=alpha, b=beta: f(x, a, b))  # type: ignore[misc]
    count = len(defaults)
    return [tuple(made[i * count : (i + 1) * count]) for i in range(directions)]


@dataclass(frozen=True)
class _Cell:
    """What the steps of one direction work with: everything in float32 or float64.

    Attributes:
        size: H.
        weights: for the hidden state, `[H, G * H]`; the last gate's, `[H, H]`, apart where a GRU resets before.
        bias: `[H]`, the last gate's bias for the hidden state where it is added apart, else None.
        peepholes: `[3 * H]` or None.
        functions: the activations.
    """

    size: int
    weights: tuple[Weights, ...]
    bias: Value | None
    peepholes: Value | None
    functions: tuple[Function, ...]
    clip: float | None

    def clipped(self, x: Any) -> Any:
        """What goes into an activation."""
        return x if self.clip is None else tirx.max(tirx.min(x, _number(x, self.clip)), _number(x, -self.clip))


_Step = Callable[[Context, Node, _Cell, Value, list[Value], Value], list[Value]]
"""The new states, given the gates' products with the input, the states, and the hidden state that is multiplied."""


def _rnn_step(ctx: Context, _node: Node, c: _Cell, given: Value, states: list[Value], hidden: Value) -> list[Value]:
    def item(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
        return c.functions[0](c.clipped(t[0](*i) + t[1](*i)))

    return [compute(ctx, shape_of(states[0]), item, given, c.weights[0].product(ctx, hidden), name="rnn_cell")]


def _gru_step(ctx: Context, node: Node, c: _Cell, given: Value, states: list[Value], hidden: Value) -> list[Value]:
    """Gates z, r, h."""
    n, (f, g), shape = c.size, c.functions, shape_of(states[0])

    def gate(x: Any, r: Any, index: int, b: Any, j: Any) -> Any:
        return f(c.clipped(x(b, index * n + j) + r(b, index * n + j)))

    def mixed(update: Any, new: Any, old: Any) -> Any:
        return (_number(new, 1) - update) * new + update * old

    if node.attributes.get("linear_before_reset"):
        assert c.bias is not None

        def item(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
            (x, r, old, bias), (b, j) = t, i
            inner = x(b, 2 * n + j) + gate(x, r, 1, b, j) * (r(b, 2 * n + j) + bias(j))
            return mixed(gate(x, r, 0, b, j), g(c.clipped(inner)), old(b, j))

        return [compute(ctx, shape, item, given, c.weights[0].product(ctx, hidden), states[0], c.bias, name="gru_cell")]

    def gates(x: te.Tensor, r: te.Tensor, old: te.Tensor) -> list[te.Tensor]:
        update = te.compute(shape, lambda b, j: gate(x, r, 0, b, j), name="update")
        reset = te.compute(shape, lambda b, j: gate(x, r, 1, b, j) * old(b, j), name="reset")
        return [update, reset]

    first, last = c.weights
    update, reset = ctx.emit_te(gates, given, first.product(ctx, hidden), states[0], name="gru_gates")

    def new(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
        (x, r, update, old), (b, j) = t, i
        return mixed(update(b, j), g(c.clipped(x(b, 2 * n + j) + r(b, j))), old(b, j))

    return [compute(ctx, shape, new, given, last.product(ctx, reset), update, states[0], name="gru_cell")]


def _lstm_step(ctx: Context, node: Node, c: _Cell, given: Value, states: list[Value], hidden: Value) -> list[Value]:
    """Gates i, o, f, c; peepholes i, o, f."""
    n, (f, g, h), shape = c.size, c.functions, shape_of(states[1])

    def function(x: te.Tensor, r: te.Tensor, old: te.Tensor, *peepholes: te.Tensor) -> list[te.Tensor]:
        def gate(index: int, b: Any, j: Any, cell: te.Tensor | None = None, peephole: int = 0) -> Any:
            value = x(b, index * n + j) + r(b, index * n + j)
            if cell is not None and peepholes:
                value = value + peepholes[0](peephole * n + j) * cell(b, j)
            return c.clipped(value)

        def cell_at(b: Any, j: Any) -> Any:
            entering = f(gate(0, b, j, old, 0))
            coupled = bool(node.attributes.get("input_forget"))
            forgetting = _number(entering, 1) - entering if coupled else f(gate(2, b, j, old, 2))
            return forgetting * old(b, j) + entering * g(gate(3, b, j))

        cell = te.compute(shape, cell_at, name="cell")
        return [te.compute(shape, lambda b, j: f(gate(1, b, j, cell, 1)) * h(cell(b, j)), name="hidden"), cell]

    extra = [] if c.peepholes is None else [c.peepholes]
    made: list[Value] = ctx.emit_te(
        function, given, c.weights[0].product(ctx, hidden), states[1], *extra, name="lstm_cell"
    )
    return made


@dataclass(frozen=True)
class _Kind:
    gates: int
    states: int
    activations: tuple[str, ...]
    step: _Step


_KINDS = {
    "RNN": _Kind(1, 1, ("Tanh",), _rnn_step),
    "GRU": _Kind(3, 1, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": _Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
}


@dataclass(frozen=True)
class _Direction:
    """What runs in one direction.

    Attributes:
        cell: what each step works with.
        projected: `[T, B, G * H]`, products with the inputs, biases added.
        states: `[B, H]` each: the first hidden state, and the first cell state of an LSTM.
        lengths: `[B]` int32, where sequences end before `T`.
        reverse: whether the last item of a sequence comes first.
        ended_is_zero: whether the hidden state of a sequence that has ended is zeros in products; no result depends on
            it but by the scale of what is quantized for the whole batch.
    """

    cell: _Cell
    projected: Value
    states: list[Value]
    lengths: Value | None
    reverse: bool
    ended_is_zero: bool


def _run(ctx: Context, node: Node, kind: _Kind, d: _Direction) -> list[Value]:
    """`[T, B, H]`, then `[B, H]` each: the hidden states of all times, and the last states."""
    time, batch, width = shape_of(d.projected)
    if 0 in (time, batch):
        return [known(ctx, np.zeros((time, batch, d.cell.size), dtype_of(d.projected))), *d.states]
    turned = d.reverse and d.lengths is not None
    projected = _turned(ctx, d.projected, d.lengths) if turned and d.lengths is not None else d.projected

    def one_round(inputs: list[Value], states: list[Value]) -> list[Value]:
        number, given = inputs
        if d.lengths is None:
            new = kind.step(ctx, node, d.cell, given, states, states[0])
            return [new[0], *new]
        hidden = states[0] if not d.ended_is_zero else _while(ctx, number, d.lengths, 1, states[0], None)
        new = kind.step(ctx, node, d.cell, given, states, hidden)
        kept = [_while(ctx, number, d.lengths, 0, *pair) for pair in zip(new, states, strict=True)]
        return [_while(ctx, number, d.lengths, 0, new[0], None), *kept]

    if time == 1:
        made = one_round([known(ctx, np.array(0)), reshaped(ctx, projected, (batch, width))], d.states)
        return [reshaped(ctx, made[0], (1, *shape_of(made[0]))), *made[1:]]
    inputs = [Value((), "int64"), Value((batch, width), dtype_of(projected))]
    body, captured = ctx.build_body(inputs, d.states, one_round, leading=1)
    backwards = d.reverse and not turned
    loop = Loop(body, time, False, False, (backwards,), (backwards,))
    results = [*d.states, Value((time, *shape_of(d.states[0])), dtype_of(projected))]
    *last, hidden = ctx.emit_control(loop, [*captured, *d.states, projected], results)
    return [_turned(ctx, hidden, d.lengths) if turned and d.lengths is not None else hidden, *last]


def _while(ctx: Context, number: Value, lengths: Value, later: int, value: Value, other: Value | None) -> Value:
    """`value` where the sequence has not ended `later` rounds before this one; else `other`, or zeros."""

    def item(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
        lasts = t[1]().astype("int32") < t[2](i[0]) + later
        return tirx.Select(lasts, t[0](*i), t[3](*i) if other is not None else _number(t[0](*i), 0))

    extra = [] if other is None else [other]
    return compute(ctx, shape_of(value), item, value, number, lengths, *extra, name="while_it_lasts")


def _turned(ctx: Context, x: Value, lengths: Value) -> Value:
    """The sequences `[T, B, …]`, each turned around and what comes behind its end left there."""

    def item(t: tuple[Any, ...], i: tuple[Any, ...]) -> Any:
        place, length = i[0].astype("int32"), t[1](i[1])
        return t[0](tirx.Select(place < length, length - 1 - place, place), *i[1:])

    return compute(ctx, shape_of(x), item, x, lengths, name="turned")


def recurrence(
    ctx: Context,
    node: Node,
    projected: Sequence[Value],
    weights: Sequence[tuple[Weights, ...]],
    size: int,
    ended_is_zero: bool = False,
) -> list[Value]:
    """The results of a node with the inputs B, sequence_lens, initial_h, initial_c and P at LSTM's places.

    Args:
        ctx, node: where it is computed.
        projected: of each direction, the products with the inputs, `[T, B, G * H]` in float32 or float64.
        weights: of each direction; see `_Cell`.
        size: H.
        ended_is_zero: as of `_Direction`.
    """
    kind, count = _KINDS[node.op_type.removeprefix("DynamicQuantize")], len(projected)
    time, batch, _ = shape_of(projected[0])
    work, by_batch = dtype_of(projected[0]), bool(node.attributes.get("layout"))
    lengths = sequence_lengths(ctx, node, time)
    functions = _functions(node, kind.activations, count)
    zeros = known(ctx, np.zeros((count, batch, size), work))
    first = [_state(ctx, node, index, zeros, by_batch) for index in (5, 6)[: kind.states]]
    peepholes = optional_input(node, 7) if kind.states == 2 else None
    parts: list[list[Value]] = []
    for d in range(count):
        given, apart = _biased(ctx, node, kind, projected[d], d, size, work)
        cell = _Cell(
            size,
            weights[d],
            apart,
            None if peepholes is None else cast(ctx, item_of(ctx, peepholes, d), work),
            functions[d],
            node.attributes.get("clip"),
        )
        states = [item_of(ctx, state, d) for state in first]
        backwards = node.attributes["direction"] == "reverse" or d == 1
        parts.append(_run(ctx, node, kind, _Direction(cell, given, states, lengths, backwards, ended_is_zero)))
    joined = [
        concatenated(ctx, [reshaped(ctx, p[0], (time, 1, batch, size)) for p in parts], 1),
        *(
            concatenated(ctx, [reshaped(ctx, s, (1, batch, size)) for s in last], 0)
            for last in list(zip(*parts, strict=True))[1:]
        ),
    ]
    if by_batch:
        joined = [permuted(ctx, joined[0], [2, 0, 1, 3]), *(permuted(ctx, v, [1, 0, 2]) for v in joined[1:])]
    return joined


def direction_count(node: Node) -> int:
    """How many directions a node has."""
    direction = node.attributes["direction"]
    count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(direction)
    if count is None:
        raise fail(node, f"does not know the direction '{direction}'")
    return count


def check_ranks(node: Node) -> None:
    """Check that X, W and R have three axes."""
    for index, name in enumerate("XWR"):
        shape = shape_of(input_at(node, index))
        if len(shape) != 3:
            raise fail(node, f"its input '{name}' must have the rank 3, its shape is {spell(shape)}")


def sequence_lengths(ctx: Context, node: Node, time: int) -> Value | None:
    """Where sequences end, `[B]` int32, cut to the steps that there are; None if all of them last to the end."""
    lengths = optional_input(node, 4)
    if lengths is None or ((array := ctx.constant(lengths)) is not None and (array >= time).all()):
        return None
    below = binary(ctx, "Min", cast(ctx, lengths, "int32"), known(ctx, np.array(time, np.int32)))
    return binary(ctx, "Max", below, known(ctx, np.array(0, np.int32)))


def item_of(ctx: Context, x: Value, direction: int) -> Value:
    """One direction's part of a tensor."""
    return reshaped(ctx, sliced(ctx, x, {0: (direction, 1, 1)}), shape_of(x)[1:])


def _state(ctx: Context, node: Node, index: int, zeros: Value, by_batch: bool) -> Value:
    value = optional_input(node, index)
    if value is None:
        return zeros
    value = permuted(ctx, value, [1, 0, 2]) if by_batch else value
    if shape_of(value) != shape_of(zeros):
        raise fail(node, f"the first state {spell(shape_of(value))} should be {spell(shape_of(zeros))}")
    return cast(ctx, value, dtype_of(zeros))


def _biased(
    ctx: Context, node: Node, kind: _Kind, projected: Value, direction: int, size: int, work: str
) -> tuple[Value, Value | None]:
    """The products with both biases added; the last gate's second bias apart where GRU scales it."""
    bias, width = optional_input(node, 3), kind.gates * size
    apart = node.op_type == "GRU" and bool(node.attributes.get("linear_before_reset"))
    if bias is None:
        return projected, known(ctx, np.zeros(size, work)) if apart else None
    both = cast(ctx, item_of(ctx, bias, direction), work)
    first, second = (sliced(ctx, both, {0: (start, width, 1)}) for start in (0, width))
    if not apart:
        return binary(ctx, "Add", projected, binary(ctx, "Add", first, second)), None
    last = sliced(ctx, second, {0: (2 * size, size, 1)})
    rest = concatenated(ctx, [sliced(ctx, second, {0: (0, 2 * size, 1)}), known(ctx, np.zeros(size, work))], 0)
    return binary(ctx, "Add", projected, binary(ctx, "Add", first, rest)), last


def _lower_recurrent(ctx: Context, node: Node) -> list[Value]:
    kind, count = _KINDS[node.op_type], direction_count(node)
    check_ranks(node)
    x, w, r = (input_at(node, i) for i in range(3))
    dtype = dtype_of(x)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    x = cast(ctx, x, work)
    x = permuted(ctx, x, [1, 0, 2]) if node.attributes.get("layout") else x
    (time, batch, depth), size = shape_of(x), shape_of(r)[-1]
    width = kind.gates * size
    if shape_of(w) != (count, width, depth) or shape_of(r) != (count, width, size):
        raise fail(node, f"the weights {spell(shape_of(w))} and {spell(shape_of(r))} do not fit {spell(shape_of(x))}")
    inputs, hidden = (
        [permuted(ctx, cast(ctx, item_of(ctx, v, d), work), [1, 0]) for d in range(count)] for v in (w, r)
    )
    rows = reshaped(ctx, x, (time * batch, depth))
    projected = [reshaped(ctx, matmul(ctx, rows, matrix), (time, batch, width)) for matrix in inputs]
    resets_before = node.op_type == "GRU" and not node.attributes.get("linear_before_reset")
    parts = ((0, 2 * size), (2 * size, size)) if resets_before else ((0, width),)
    weights = [tuple(_Reals(sliced(ctx, m, {1: (first, n, 1)})) for first, n in parts) for m in hidden]
    made = recurrence(ctx, node, projected, weights, size)
    return [cast(ctx, value, dtype) for value in made]


operator("RNN", since=(1, 7, 14, 22))(_lower_recurrent)
operator("GRU", since=(1, 3, 7, 14, 22))(_lower_recurrent)
operator("LSTM", since=(1, 7, 14, 22))(_lower_recurrent)
