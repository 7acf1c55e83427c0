"""Steps of optimizers."""

from __future__ import annotations

import numpy as np
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.declared import I64, F, some, space, weight

_STATES = {"Adagrad": 1, "Adam": 2, "Momentum": 1}
"""What each optimizer keeps of each tensor."""


@space(*_STATES)
def _optimized(w: Walk, name: str) -> object:
    """Of one tensor or two; what is kept of them are squares, none of which is negative."""
    if np.dtype(w.floats).itemsize < 4:
        raise Rejected("no 16-bit floats")
    given: list[Tensor] = []
    count = 1 if w.floats == np.float64 else w.number(1, 2)  # ONNX's reference rounds several to float32
    shapes = [w.pick(ranks=range(1, 4)).shape for _ in range(count)]
    for part in range(2 + _STATES[name]):
        for shape in shapes:
            values = w.random(shape)
            given.append(weight(w, values) if part < 2 else w.constant(values * values))
    if name == "Momentum":
        attributes = {"alpha": w.real(0.1, 1), "beta": w.real(0.1, 1), "norm_coefficient": w.real(0, 0.1)}
        attributes |= {"mode": w.one("standard", "nesterov")}
    else:
        attributes = {"norm_coefficient": w.real(0, 0.1), "epsilon": w.real(0.1, 1)}
        if name == "Adagrad":
            attributes |= some(w, decay_factor=w.real(0, 0.5))
        else:
            attributes |= some(w, alpha=w.real(0.5, 0.9), beta=w.real(0.5, 0.99), norm_coefficient_post=w.real(0, 0.1))
    times = w.constant(w.number(0, 5), I64)
    results = count * (1 + _STATES[name])
    rate = w.constant(w.real(0.01, 0.5), F)
    return w.add(name, rate, times, *given, outputs=results, domain="ai.onnx.preview.training", **attributes)
