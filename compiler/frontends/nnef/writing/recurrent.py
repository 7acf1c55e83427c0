"""Writes recurrent layers unrolled step by step, since NNEF has no loops.

The products with the inputs are one for all steps:

    projected = matmul(x, w) + b                    [T, B, G · H]
    g_0, g_1, … = unstack(projected, axis = 0)
    h_1 = tanh(g_0 + matmul(h_0, r))                …
    y = stack([h_1, h_2, …], axis = 0)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm.ir import GenericConst

from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import aligned, reshaped, says, shape_of
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.nn.quantization import QuantizedTensor
from nnefc.operators.nn.recurrent import Activation, Gru, Lstm, Recurrence, RecurrentWeights, Rnn
from nnefc.operators.tensor.shape import Slice

__all__ = ["check", "is_constant", "projected", "recurrence", "step"]

_MAX_STEPS = 1024
"""Steps that are written one after the other: about ten operations each."""

_FUNCTIONS = ("sigmoid", "tanh", "relu")


@says(Recurrence)
def recurrence(
    document: Document,
    operator: Recurrence,
    x: Any,
    weights: RecurrentWeights,
    states: Sequence[Any],
    lengths: Any = None,
) -> list[Any]:
    """The hidden states of all steps, and the last states."""
    check(operator, x, weights, lengths)
    time = shape_of(x)[0]
    if not isinstance(time, int):
        raise Unsayable("NNEF has no loops, and the number of steps is a dynamic size")
    if time > _MAX_STEPS:
        raise Unsayable(f"NNEF has no loops, and {time} steps would be written one after the other")
    given = document.call("unstack", value=document.tensor(projected(document, operator, x, weights)), axis=0)
    now = [document.tensor(state) for state in states]
    hidden: list[Any] = [None] * time
    for number in reversed(range(time)) if operator.backwards else range(time):
        now = step(document, operator.cell, given[number], now, weights)
        hidden[number] = now[0]
    return [document.call("stack", values=hidden, axis=0), *now]


def check(operator: Recurrence, x: Any, weights: RecurrentWeights, lengths: Any) -> None:
    """Refuse layers that neither steps nor scans can say."""
    if any(isinstance(part, QuantizedTensor) for part in (x, *weights)):
        raise Unsayable("NNEF has no operation for recurrent layers of integers")
    if weights.gains is not None:
        raise Unsayable("NNEF has no operation for gates whose sums are normalized")
    if lengths is not None:
        raise Unsayable("NNEF has no operation for sequences that end before the last step")


def is_constant(part: Any) -> bool:
    """Returns whether a part of a layer's weights is known, or is not there."""
    return part is None or isinstance(part, np.ndarray | GenericConst)


def projected(document: Document, operator: Recurrence, x: Any, weights: RecurrentWeights) -> Any:
    """The products with the inputs, biases added but for one of a GRU."""
    time, batch, depth = shape_of(x)
    width = shape_of(weights.inputs)[1]
    rows = reshaped(document, x, (time * batch, depth))
    product = document.say(MatMul(), rows, weights.inputs)
    bias = _bias(weights, width // operator.cell.gates if operator.cell.bias_apart else 0)
    if bias is not None:
        product = document.say(Elementwise("add"), product, bias)
    return reshaped(document, product, (time, batch, width))


def _bias(weights: RecurrentWeights, apart: int) -> Any:
    """Return the bias that is added before the steps: of the hidden state's bias, without the last `apart` elements."""
    own, of_hidden = weights.input_bias, weights.hidden_bias
    if of_hidden is not None:
        if not isinstance(of_hidden, np.ndarray) or not (own is None or isinstance(own, np.ndarray)):
            raise Unsayable("the biases of a recurrent layer are computed")
        kept = of_hidden.copy()
        kept[len(kept) - apart :] = 0
        own = kept if own is None else own + kept
    return own


def step(document: Document, cell: Any, given: Any, states: list[Any], weights: RecurrentWeights) -> list[Any]:
    """The states after a step, the hidden one first; `given` is the step's part of the products with the inputs."""
    match cell:
        case Rnn():
            total = _sum(document, given, document.say(MatMul(), states[0], weights.hidden))
            return [_activated(document, cell.function, total)]
        case Gru():
            return [_gru(document, cell, given, states[0], weights)]
        case Lstm():
            return _lstm(document, cell, given, states, weights)
    raise Unsayable(f"NNEF has no operation for the cell {type(cell).__name__}")


def _gru(document: Document, cell: Gru, given: Any, old: Any, weights: RecurrentWeights) -> Any:
    """`(1 - z) n + z h`."""
    size = shape_of(old)[1]
    parts = [_gate(document, given, index, size) for index in range(3)]
    if cell.reset_after:
        product = document.say(MatMul(), old, weights.hidden)
        update, reset = (
            _activated(document, cell.gate, _sum(document, parts[i], _gate(document, product, i, size)))
            for i in range(2)
        )
        inner = _gate(document, product, 2, size)
        if weights.hidden_bias is not None:
            inner = document.say(Elementwise("add"), inner, np.asarray(weights.hidden_bias)[2 * size :])
        inner = document.call("mul", x=reset, y=inner)
    else:
        first, last = (_columns(document, weights.hidden, *part) for part in ((0, 2 * size), (2 * size, size)))
        product = document.say(MatMul(), old, first)
        update, reset = (
            _activated(document, cell.gate, _sum(document, parts[i], _gate(document, product, i, size)))
            for i in range(2)
        )
        inner = document.say(MatMul(), document.call("mul", x=reset, y=old), last)
    new = _activated(document, cell.new, _sum(document, parts[2], inner))
    tail = document.call("sub", x=1.0, y=update)
    return _sum(document, document.call("mul", x=tail, y=new), document.call("mul", x=update, y=old))


def _lstm(document: Document, cell: Lstm, given: Any, states: list[Any], weights: RecurrentWeights) -> list[Any]:
    """`c' = f c + i g(…)`, `h' = o h(c')`."""
    old = states[1]
    size = shape_of(old)[1]
    total = _sum(document, given, document.say(MatMul(), states[0], weights.hidden))

    def gate(index: int, seen: Any, peephole: int) -> Any:
        value = _gate(document, total, index, size)
        if weights.peepholes is not None:
            own = np.asarray(weights.peepholes)[peephole * size : (peephole + 1) * size]
            value = _sum(document, value, document.say(Elementwise("multiply"), seen, own))
        return _activated(document, cell.gate, value)

    if cell.coupled == "i":
        forgetting = gate(2, old, 2)
        entering = document.call("sub", x=1.0, y=forgetting)
    else:
        entering = gate(0, old, 0)
        forgetting = document.call("sub", x=1.0, y=entering) if cell.coupled else gate(2, old, 2)
    new = _activated(document, cell.new, _gate(document, total, 3, size))
    kept = document.call("mul", x=forgetting, y=old)
    now = _clipped(document, _sum(document, kept, document.call("mul", x=entering, y=new)), cell.cell_clip)
    hidden = document.call("mul", x=gate(1, now, 1), y=_activated(document, cell.out, now))
    if weights.projection is not None:
        hidden = document.say(MatMul(), hidden, weights.projection)
        if weights.projection_bias is not None:
            hidden = document.say(Elementwise("add"), hidden, np.asarray(weights.projection_bias))
        hidden = _clipped(document, hidden, cell.hidden_clip)
    return [hidden, now]


def _sum(document: Document, x: Any, y: Any) -> Any:
    return document.call("add", **dict(zip("xy", aligned(document, (x, y)), strict=True)))


def _gate(document: Document, x: Any, index: int, size: int) -> Any:
    return document.say(Slice({1: (index * size, size, 1)}), x)


def _columns(document: Document, x: Any, first: int, count: int) -> Any:
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x[:, first : first + count])
    return document.say(Slice({1: (first, count, 1)}), x)


def _activated(document: Document, function: Activation, x: Any) -> Any:
    if function.name not in _FUNCTIONS:
        raise Unsayable(f"NNEF has no operation for the gates' function '{function.name}'")
    return document.call(function.name, x=_clipped(document, x, function.clip))


def _clipped(document: Document, x: Any, limit: float | None) -> Any:
    if limit is None or not math.isfinite(limit):
        return x
    return document.call("clamp", x=x, a=-float(limit), b=float(limit))
