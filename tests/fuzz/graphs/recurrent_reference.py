"""Recurrent layers in NumPy, with every attribute of theirs, as :mod:`reference` has other operators.

ONNX's reference has no activations but the defaults, and reads no lengths of sequences.

Source: ONNX's text of the operators, of operator set 22.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ALPHA", "BETA", "OF_RECURRENCES"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]
Function = Callable[[Array], Array]

_FUNCTIONS: Mapping[str, Callable[[Array, float, float], Array]] = {
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "Elu": lambda x, alpha, _: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "LeakyRelu": lambda x, alpha, _: np.where(x >= 0, x, alpha * x),
    "Relu": lambda x, *_: np.maximum(x, 0),
    "ScaledTanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "Sigmoid": lambda x, *_: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x, *_: np.logaddexp(0, x),
    "Softsign": lambda x, *_: x / (1 + np.abs(x)),
    "Tanh": lambda x, *_: np.tanh(x),
    "ThresholdedRelu": lambda x, alpha, _: np.where(x > alpha, x, 0),
}
ALPHA = ("Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu")
BETA = ("Affine", "HardSigmoid", "ScaledTanh")
"""The activations that have these parameters."""


def _functions(given: Attributes, defaults: tuple[str, ...], directions: int) -> Iterator[list[Function]]:
    """The activations of each direction; their parameters are taken in order by those that have them.

    What the hidden state of an LSTM is made with clips nothing, as in onnxruntime.
    """
    names = given.get("activations", defaults * directions)
    alphas, betas = iter(given.get("activation_alpha", ())), iter(given.get("activation_beta", ()))
    limit = given.get("clip", np.inf)
    made: list[Function] = []
    count = len(defaults)
    for number, name in enumerate(name.decode() if isinstance(name, bytes) else name for name in names):
        alpha, beta = next(alphas) if name in ALPHA else 0.0, next(betas) if name in BETA else 0.0
        made.append(_clipped(_FUNCTIONS[name], alpha, beta, np.inf if number % count == 2 else limit))
    yield from (made[k * count : (k + 1) * count] for k in range(directions))


def _clipped(function: Callable[[Array, float, float], Array], alpha: float, beta: float, limit: float) -> Function:
    return lambda x: function(np.clip(x, -limit, limit), alpha, beta)


def _rnn(_given: Attributes, f: list[Function], x: Array, r: Array, bias: Array, h: Array, *_: Array) -> Any:
    return (f[0](x + h @ r.T + bias[0] + bias[1]),)


def _gru(given: Attributes, f: list[Function], x: Array, r: Array, bias: Array, h: Array, *_: Array) -> Any:
    (xz, xr, xh), (rz, rr, rh) = np.split(x + bias[0], 3, -1), np.split(r, 3)
    bz, br, bh = np.split(bias[1], 3)
    update, reset = f[0](xz + h @ rz.T + bz), f[0](xr + h @ rr.T + br)
    inner = reset * (h @ rh.T + bh) if given.get("linear_before_reset") else (reset * h) @ rh.T + bh
    return ((1 - update) * f[1](xh + inner) + update * h,)


def _lstm(given: Attributes, f: list[Function], x: Array, r: Array, bias: Array, h: Array, c: Array, p: Array) -> Any:
    i, o, forget, cell = np.split(x + h @ r.T + bias[0] + bias[1], 4, -1)
    pi, po, pf = np.split(p, 3)
    i = f[0](i + pi * c)
    forget = 1 - i if given.get("input_forget") else f[0](forget + pf * c)
    cell = forget * c + i * f[1](cell)
    return f[0](o + po * cell) * f[2](cell), cell


def _layer(step: Callable[..., Any], gates: int, *defaults: str) -> Callable[..., Any]:
    def values(
        given: Attributes,
        x: Array,
        w: Array,
        r: Array,
        bias: Array | None = None,
        lengths: Array | None = None,
        *states: Array | None,
    ) -> Any:
        is_batch_first = given.get("layout")
        x = np.swapaxes(x, 0, 1) if is_batch_first else x
        (count, batch, _), (directions, _, hidden) = x.shape, r.shape
        lengths = np.full(batch, count) if lengths is None else lengths
        bias = np.zeros((directions, 2 * gates * hidden)) if bias is None else bias
        *firsts, peepholes = (*states, None, None, None)[:3]
        peepholes = np.zeros((directions, 3 * hidden)) if peepholes is None else peepholes
        y = np.zeros((count, directions, batch, hidden), x.dtype)
        lasts = [np.zeros((directions, batch, hidden), x.dtype) for _ in range(1 + (step is _lstm))]
        kind = given.get("direction", "forward")
        for d, functions in enumerate(_functions(given, defaults, directions)):
            is_backwards = d == 1 or kind == "reverse"
            for b in range(batch):
                held = [
                    np.zeros(hidden) if first is None else (first[b, d] if is_batch_first else first[d, b])
                    for first in firsts
                ]
                times = range(int(lengths[b]))
                for t in reversed(times) if is_backwards else times:
                    own = step(given, functions, x[t, b] @ w[d].T, r[d], np.split(bias[d], 2), *held, peepholes[d])
                    held[: len(own)] = own
                    y[t, d, b] = held[0]
                for last, state in zip(lasts, held, strict=False):
                    last[d, b] = state
        if is_batch_first:
            return y.transpose(2, 0, 1, 3), *(np.swapaxes(last, 0, 1) for last in lasts)
        return y, *lasts

    return values


OF_RECURRENCES: Mapping[str, Callable[..., Any]] = {
    "GRU": _layer(_gru, 3, "Sigmoid", "Tanh"),
    "LSTM": _layer(_lstm, 4, "Sigmoid", "Tanh", "Tanh"),
    "RNN": _layer(_rnn, 1, "Tanh"),
}
"""By the operators' names."""
