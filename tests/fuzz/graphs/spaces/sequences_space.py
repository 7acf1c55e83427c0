"""Images and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph import Tensor
from walk import Walk

from spaces.declared import F, some, space, weight


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


@space("LSTM", "GRU", "RNN")
def _recurrent(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    hidden, directions = w.one(1, 3, 8, 16, 17), w.one(1, 1, 2)
    weights = weight(w, w.random((directions, gates * hidden, x.shape[2])) / np.float32(2))
    recurrence = weight(w, w.random((directions, gates * hidden, hidden)) / np.float32(2))
    bias = weight(w, w.random((directions, 2 * gates * hidden))) if w.chance(0.6) else None
    states = [_first(w, (directions, x.shape[1], hidden)) for _ in range(2 if name == "LSTM" else 1)]
    given = [bias, None, *states]
    if name == "LSTM" and w.chance(0.2):
        given.append(w.constant(w.random((directions, 3 * hidden)) / np.float32(2)))
    direction = "bidirectional" if directions == 2 else w.one("forward", "reverse")
    extra = {"linear_before_reset": w.number(0, 1)} if name == "GRU" else {}
    return w.add(
        name,
        x,
        weights,
        recurrence,
        *given,
        outputs=3 if name == "LSTM" else 2,
        hidden_size=hidden,
        direction=direction,
        **extra,
    )


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
