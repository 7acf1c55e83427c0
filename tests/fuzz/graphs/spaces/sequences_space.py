"""Images and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph import Tensor
from recurrent_reference import ALPHA, BETA
from walk import Walk

from spaces.declared import I32, F, some, space, weight


@space("Resize")
def _resize(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4])
    mode = w.one("nearest", "linear", "cubic")
    attributes: dict[str, Any] = {"mode": mode}
    attributes |= some(
        w, coordinate_transformation_mode=w.one("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    )
    if mode == "nearest":
        attributes |= some(w, nearest_mode=w.one("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
    if mode == "cubic":
        attributes |= some(w, cubic_coeff_a=-0.5)
    if mode != "nearest" and w.chance(0.3):
        attributes["exclude_outside"] = 1
    sizes = [*x.shape[:2], *(w.number(1, 12) for _ in x.shape[2:])]
    if w.chance(0.5):
        return w.add(name, x, None, None, w.integers(*sizes), **attributes)
    scales = np.array([1, 1, *(w.one(0.5, 1.0, 1.5, 2.0, 3.0) for _ in x.shape[2:])], F)
    return w.add(name, x, None, w.constant(scales, is_float32=True), **attributes)


@space("GridSample")
def _grid_sample(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    grid = w.constant(w.rng.uniform(-1.2, 1.2, (x.shape[0], w.number(1, 6), w.number(1, 6), 2)).astype(F))
    return w.add(
        name,
        x,
        grid,
        **some(
            w,
            mode=w.one("linear" if w.opset >= 20 else "bilinear", "nearest"),
            padding_mode=w.one("zeros", "border", "reflection"),
            align_corners=w.number(0, 1),
        ),
    )


_FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
"""Activations of a layer in one direction."""
_BOUNDED = ("HardSigmoid", "ScaledTanh", "Sigmoid", "Softsign", "Tanh")
_ACTIVATIONS = (*_BOUNDED, *_BOUNDED, "Affine", "Elu", "LeakyRelu", "Relu", "Softplus", "ThresholdedRelu")


@space("LSTM", "GRU", "RNN")
def _recurrent(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    hidden, directions = w.one(1, 3, 8, 16, 17), w.one(1, 1, 2)
    is_batch_first = w.opset >= 14 and w.chance(0.25)
    batch, length = x.shape[:2] if is_batch_first else x.shape[1::-1]
    weights = weight(w, w.random((directions, gates * hidden, x.shape[2])) / np.float32(2))
    recurrence = weight(w, w.random((directions, gates * hidden, hidden)) / np.float32(2))
    bias = weight(w, w.random((directions, 2 * gates * hidden))) if w.chance(0.6) else None
    lengths = w.constant(w.rng.integers(1, length + 1, batch), I32) if length and w.chance(0.3) else None
    first = (batch, directions, hidden) if is_batch_first else (directions, batch, hidden)
    given = [bias, lengths, *(_first(w, first) for _ in range(2 if name == "LSTM" else 1))]
    if name == "LSTM" and w.chance(0.2):
        given.append(w.constant(w.random((directions, 3 * hidden)) / np.float32(2)))
    attributes: dict[str, Any] = {"layout": 1} if is_batch_first else {}
    attributes |= {"direction": "bidirectional" if directions == 2 else w.one("forward", "reverse")}
    attributes |= _activations(w, directions * _FUNCTIONS[name]) if w.chance(0.4) else {}
    attributes |= {"clip": w.real(0.3, 3)} if w.chance(0.2) else {}
    attributes |= {"linear_before_reset": w.number(0, 1)} if name == "GRU" else {}
    attributes |= {"input_forget": 1} if name == "LSTM" and w.chance(0.2) else {}
    outputs = 3 if name == "LSTM" else 2
    return w.add(name, x, weights, recurrence, *given, outputs=outputs, hidden_size=hidden, **attributes)


def _activations(w: Walk, count: int) -> dict[str, Any]:
    """Random activations, each with the parameters that it has."""
    names = [w.one(*_ACTIVATIONS) for _ in range(count)]
    parameters = {
        "activation_alpha": [w.real(0.1, 0.9) for name in names if name in ALPHA],
        "activation_beta": [w.real(0.1, 0.9) for name in names if name in BETA],
    }
    return {"activations": names} | {name: values for name, values in parameters.items() if values}


def _first(w: Walk, shape: tuple[int, ...]) -> Tensor | None:
    """A state that a sequence begins with: what is computed, an input, a constant; None if it is zeros."""
    fitting = [t for t in w.tensors if t.is_float and t.shape == shape]
    match w.one("none", "none", "computed", "input", "constant"):
        case "computed" if fitting:
            return w.one(*fitting)
        case "input" if len(w.inputs) < w.max_inputs:
            return w.new_input(shape)
        case "constant":
            return w.constant(w.random(shape))
    return None
