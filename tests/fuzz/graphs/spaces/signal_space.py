"""Operators of signals."""

from __future__ import annotations

from onnx import TensorProto
from steps import Rejected
from walk import Walk

from spaces.declared import I64, F, reshaped, some, space


@space("DFT")
def _transform(w: Walk, name: str) -> object:
    """Of real signals, and of complex ones, whose parts are the last axis."""
    parts = w.number(1, 2)
    lead = tuple(w.number(1, 4) for _ in range(w.number(1, 2)))
    shape = (*lead, w.size() or 1, parts)
    x = reshaped(w, shape) or w.new_input(shape)
    axis = w.number(0 if w.chance(0.2) else 1, len(shape) - 2)
    length = w.constant(w.number(1, 2 * shape[axis]), I64) if w.chance(0.4) else None
    kinds = {"onesided": 1} if parts == 1 and w.chance(0.4) else {"inverse": 1} if w.chance(0.4) else {}
    if w.opset >= 20:
        return w.add(name, x, length, w.constant(axis - len(shape) * w.number(0, 1), I64), **kinds)
    return w.add(name, x, length, axis=axis, **kinds)


@space("STFT")
def _short_transform(w: Walk, name: str) -> object:
    signal, frame = w.number(8, 40), w.number(2, 8)
    x = w.new_input((w.number(1, 3), signal, 1))
    window = w.constant(w.rng.uniform(0.1, 1, frame).astype(F)) if w.chance(0.6) else None
    length = w.constant(frame, I64) if window is None or w.chance(0.5) else None
    return w.add(name, x, w.constant(w.number(1, frame), I64), window, length, **some(w, onesided=w.number(0, 1)))


@space("BlackmanWindow", "HammingWindow", "HannWindow")
def _window(w: Walk, name: str) -> object:
    if w.floats != F:
        raise Rejected("of float32 alone")
    size = w.one(1, 2, 3, 8, 15, 16, 33)
    if size == 1:
        raise Rejected("one element is undefined")
    return w.add(name, w.constant(size, I64), output_datatype=TensorProto.FLOAT, **some(w, periodic=w.number(0, 1)))


@space("MelWeightMatrix")
def _mel_weights(w: Walk, name: str) -> object:
    if w.floats != F:
        raise Rejected("of float32 alone")
    low, high = w.real(10, 300), w.real(1000, 3900)
    sizes = [w.constant(size, I64) for size in (w.number(3, 20), w.one(64, 127, 256), 8000)]
    return w.add(name, *sizes, *(w.constant(edge, F) for edge in (low, high)))
