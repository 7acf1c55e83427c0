"""Recurrent networks: RNN, GRU, LSTM.

The products with the inputs are one matrix product for all times; a kernel of loops does the rest, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.loops import T, looped
from nnefc.frontends.onnx.operators.matrix import matmul
from nnefc.frontends.onnx.operators.shape import concatenated, sliced
from nnefc.frontends.onnx.operators.tensors import (
    cast,
    dtype_of,
    fail,
    input_at,
    known,
    optional_input,
    permuted,
    reshaped,
    shape_of,
    spell,
)
from nnefc.operators.activation import softplus

__all__: list[str] = []

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class _Direction:
    """What one direction works with: everything in float32 or float64.

    Attributes:
        projected: `[T, B, G * H]`, products with the inputs, biases added.
        weights: `[H, G * H]`, for the hidden state.
        bias: `[H]`, the last gate's bias for the hidden state where it is added apart, else None.
        peepholes: `[3 * H]` or None.
        hidden, cell: `[B, H]`, the first states.
        lengths: `[B]` int32.
        functions: the activations.
    """

    projected: Value
    weights: Value
    bias: Value | None
    peepholes: Value | None
    hidden: Value
    cell: Value
    lengths: Value
    functions: tuple[Function, ...]
    clip: float | None
    reverse: bool


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


Step = Callable[..., None]
"""Writes one step of one batch item, given `_Cell`."""


@dataclass(frozen=True)
class _Cell:
    """Buffers and places of one step of one batch item, all flat."""

    size: int
    gates: Any
    gate: Any
    hidden: Any
    cell: Any
    state: Any
    weights: Any
    bias: Any
    peepholes: Any
    functions: tuple[Function, ...]
    clipped: Function
    width: int

    def multiply(self, first: int, last: int, source: Any, place: Any) -> None:
        """Add to the gates from `first` to `last` the products of the weights and `source[place + k]`."""
        with T.serial(0, self.size) as k, T.serial(0, last - first) as j:
            at = self.gate + first + j
            self.gates[at] = self.gates[at] + source[place + k] * self.weights[k * self.width + first + j]


def _rnn_step(c: _Cell, _node: Node) -> None:
    c.multiply(0, c.size, c.hidden, c.state)
    with T.serial(0, c.size) as j:
        c.hidden[c.state + j] = c.functions[0](c.clipped(c.gates[c.gate + j]))


def _gru_step(c: _Cell, node: Node) -> None:
    """Gates z, r, h. The second state buffer holds what the last gate multiplies."""
    n = c.size
    c.multiply(0, 2 * n, c.hidden, c.state)
    with T.serial(0, 2 * n) as j:
        c.gates[c.gate + j] = c.functions[0](c.clipped(c.gates[c.gate + j]))
    if node.attributes.get("linear_before_reset"):
        # The products are added up apart, in the place of the fourth gate, then scaled by r.
        with T.serial(0, n) as j:
            c.gates[c.gate + 3 * n + j] = c.bias[j]
        with T.serial(0, n) as k, T.serial(0, n) as j:
            at = c.gate + 3 * n + j
            c.gates[at] = c.gates[at] + c.hidden[c.state + k] * c.weights[k * c.width + 2 * n + j]
        with T.serial(0, n) as j:
            at = c.gate + 2 * n + j
            c.gates[at] = c.gates[at] + c.gates[c.gate + n + j] * c.gates[c.gate + 3 * n + j]
    else:
        with T.serial(0, n) as j:
            c.cell[c.state + j] = c.gates[c.gate + n + j] * c.hidden[c.state + j]
        c.multiply(2 * n, 3 * n, c.cell, c.state)
    with T.serial(0, n) as j:
        update = c.gates[c.gate + j]
        new = c.functions[1](c.clipped(c.gates[c.gate + 2 * n + j]))
        c.hidden[c.state + j] = (_number(new, 1) - update) * new + update * c.hidden[c.state + j]


def _lstm_step(c: _Cell, node: Node) -> None:
    """Gates i, o, f, c; peepholes i, o, f."""
    n, (f, g, h) = c.size, c.functions
    c.multiply(0, 4 * n, c.hidden, c.state)
    with T.serial(0, n) as j:
        old = c.cell[c.state + j]

        def gate(index: int, cell: Any, peephole: int | None) -> Any:
            value = c.gates[c.gate + index * n + j]
            return c.clipped(
                value if peephole is None or c.peepholes is None else value + c.peepholes[peephole * n + j] * cell
            )

        entering = f(gate(0, old, 0))
        coupled = bool(node.attributes.get("input_forget"))
        forgetting = _number(entering, 1) - entering if coupled else f(gate(2, old, 2))
        c.cell[c.state + j] = forgetting * old + entering * g(gate(3, old, None))
        new = c.cell[c.state + j]
        c.hidden[c.state + j] = f(gate(1, new, 1)) * h(new)


@dataclass(frozen=True)
class _Kind:
    gates: int
    room: int
    activations: tuple[str, ...]
    step: Step


_KINDS = {
    "RNN": _Kind(1, 1, ("Tanh",), _rnn_step),
    "GRU": _Kind(3, 4, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": _Kind(4, 4, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
}


def _run(ctx: Context, node: Node, kind: _Kind, d: _Direction) -> list[Value]:
    """`[T, B, H]`, `[B, H]`, `[B, H]`: the hidden states of all times, the last one, the last cell state."""
    time, batch, width = shape_of(d.projected)
    size, dtype = shape_of(d.hidden)[1], dtype_of(d.projected)
    optional = [v for v in (d.bias, d.peepholes) if v is not None]
    room = kind.room * size

    def clipped(x: Any) -> Any:
        if d.clip is None:
            return x
        return tirx.max(tirx.min(x, _number(x, d.clip)), _number(x, -d.clip))

    def write(*buffers: Any) -> None:
        projected, weights, first, first_cell, lengths = buffers[:5]
        extra = list(buffers[5 : 5 + len(optional)])
        output, hidden, cell, gates = buffers[5 + len(optional) :]
        bias = extra.pop(0) if d.bias is not None else None
        peepholes = extra.pop(0) if d.peepholes is not None else None
        loop = T.parallel if batch > 1 and time * size * width >= 1 << 14 else T.serial
        with loop(0, batch) as b:
            state = b * size
            with T.serial(0, size) as j:
                hidden[state + j] = first[state + j]
                cell[state + j] = first_cell[state + j]
            c = _Cell(size, gates, b * room, hidden, cell, state, weights, bias, peepholes, d.functions, clipped, width)
            with T.serial(0, time) as s, T.If(s < lengths[b]):
                with T.Then():
                    t = lengths[b] - 1 - s if d.reverse else s
                    at = tirx.max(tirx.min(t, time - 1), 0)
                    with T.serial(0, width) as j:
                        gates[b * room + j] = projected[(at * batch + b) * width + j]
                    kind.step(c, node)
                    with T.serial(0, size) as j:
                        output[(at * batch + b) * size + j] = hidden[state + j]
                with T.Else(), T.serial(0, size) as j:
                    output[(s * batch + b) * size + j] = tirx.const(0, dtype)

    results = [((time, batch, size), dtype), ((batch, size), dtype), ((batch, size), dtype), ((batch, room), dtype)]
    operands = [d.projected, d.weights, d.hidden, d.cell, d.lengths, *optional]
    return looped(ctx, write, operands, results, node.op_type.lower())[:3]


def _lower_recurrent(ctx: Context, node: Node) -> list[Value]:
    kind = _KINDS[node.op_type]
    x, w, r = (input_at(node, i) for i in range(3))
    for name, operand in (("X", x), ("W", w), ("R", r)):
        if len(shape_of(operand)) != 3:
            raise fail(node, f"its input '{name}' must have the rank 3, its shape is {spell(shape_of(operand))}")
    dtype = dtype_of(x)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    by_batch = bool(node.attributes.get("layout"))
    x = permuted(ctx, cast(ctx, x, work), [1, 0, 2]) if by_batch else cast(ctx, x, work)
    direction = node.attributes["direction"]
    count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(direction)
    if count is None:
        raise fail(node, f"does not know the direction '{direction}'")
    time, batch, _ = shape_of(x)
    size = shape_of(r)[-1]
    if shape_of(w) != (count, kind.gates * size, shape_of(x)[2]) or shape_of(r) != (count, kind.gates * size, size):
        raise fail(node, f"the weights {spell(shape_of(w))} and {spell(shape_of(r))} do not fit {spell(shape_of(x))}")
    lengths = optional_input(node, 4)
    steps = known(ctx, np.full(batch, time, np.int32)) if lengths is None else _bounded(ctx, lengths, time)
    functions = _functions(node, kind.activations, count)
    zeros = known(ctx, np.zeros((count, batch, size), work))
    states = [_state(ctx, node, index, zeros, by_batch) for index in (5, 6)]
    peepholes = optional_input(node, 7) if node.op_type == "LSTM" else None
    parts: list[list[Value]] = []
    for d in range(count):
        matrix = cast(ctx, _item(ctx, w, d), work)
        projected = matmul(ctx, reshaped(ctx, x, (time * batch, shape_of(x)[2])), permuted(ctx, matrix, [1, 0]))
        projected, apart = _biased(ctx, node, kind, projected, d, size, work)
        parts.append(
            _run(
                ctx,
                node,
                kind,
                _Direction(
                    reshaped(ctx, projected, (time, batch, kind.gates * size)),
                    permuted(ctx, cast(ctx, _item(ctx, r, d), work), [1, 0]),
                    apart,
                    None if peepholes is None else cast(ctx, _item(ctx, peepholes, d), work),
                    _item(ctx, states[0], d),
                    _item(ctx, states[1] if node.op_type == "LSTM" else zeros, d),
                    steps,
                    functions[d],
                    node.attributes.get("clip"),
                    direction == "reverse" or d == 1,
                ),
            )
        )
    joined = [
        concatenated(ctx, [reshaped(ctx, p[0], (time, 1, batch, size)) for p in parts], 1),
        *(concatenated(ctx, [reshaped(ctx, p[i], (1, batch, size)) for p in parts], 0) for i in (1, 2)),
    ]
    if by_batch:
        joined = [permuted(ctx, joined[0], [2, 0, 1, 3]), *(permuted(ctx, v, [1, 0, 2]) for v in joined[1:])]
    wanted = 3 if node.op_type == "LSTM" else 2
    return [cast(ctx, value, dtype) for value in joined[:wanted]]


def _bounded(ctx: Context, lengths: Value, time: int) -> Value:
    """Lengths beyond the sequence are cut, so that nothing is read outside."""
    below = binary(ctx, "Min", cast(ctx, lengths, "int32"), known(ctx, np.array(time, np.int32)))
    return binary(ctx, "Max", below, known(ctx, np.array(0, np.int32)))


def _state(ctx: Context, node: Node, index: int, zeros: Value, by_batch: bool) -> Value:
    value = optional_input(node, index)
    if value is None or (index == 6 and node.op_type != "LSTM"):
        return zeros
    value = permuted(ctx, value, [1, 0, 2]) if by_batch else value
    if shape_of(value) != shape_of(zeros):
        raise fail(node, f"the first state {spell(shape_of(value))} should be {spell(shape_of(zeros))}")
    return cast(ctx, value, dtype_of(zeros))


def _item(ctx: Context, x: Value, direction: int) -> Value:
    """One direction's part of a tensor."""
    return reshaped(ctx, sliced(ctx, x, {0: (direction, 1, 1)}), shape_of(x)[1:])


def _biased(
    ctx: Context, node: Node, kind: _Kind, projected: Value, direction: int, size: int, work: str
) -> tuple[Value, Value | None]:
    """The products with both biases added; the last gate's second bias apart where GRU scales it."""
    bias, width = optional_input(node, 3), kind.gates * size
    apart = node.op_type == "GRU" and bool(node.attributes.get("linear_before_reset"))
    if bias is None:
        return projected, known(ctx, np.zeros(size, work)) if apart else None
    both = cast(ctx, _item(ctx, bias, direction), work)
    first, second = (sliced(ctx, both, {0: (start, width, 1)}) for start in (0, width))
    if not apart:
        return binary(ctx, "Add", projected, binary(ctx, "Add", first, second)), None
    last = sliced(ctx, second, {0: (2 * size, size, 1)})
    rest = concatenated(ctx, [sliced(ctx, second, {0: (0, 2 * size, 1)}), known(ctx, np.zeros(size, work))], 0)
    return binary(ctx, "Add", projected, binary(ctx, "Add", first, rest)), last


operator("RNN", since=(1, 7, 14, 22))(_lower_recurrent)
operator("GRU", since=(1, 3, 7, 14, 22))(_lower_recurrent)
operator("LSTM", since=(1, 7, 14, 22))(_lower_recurrent)
