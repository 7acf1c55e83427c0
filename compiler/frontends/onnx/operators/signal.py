"""Spectra: DFT, STFT as products with constant matrices; MelWeightMatrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import element_type
from nnefc.frontends.onnx.operators.matrix import matmul
from nnefc.frontends.onnx.operators.tensors import (
    Array,
    compute,
    dtype_of,
    fail,
    has_input,
    input_at,
    integers,
    known,
    normal_axis,
    permuted,
    required_value,
    reshaped,
    shape_of,
    sliced,
    spell,
)
from nnefc.frontends.onnx.values import numpy_dtype

__all__: list[str] = []

_MOST = 1 << 14
"""The longest transform: its matrix has the square of this."""


def _forward(count: int, length: int, bins: int, parts: int) -> Array:
    """`[count * parts, bins * 2]`: from interleaved signals to interleaved spectra; items beyond `length` are cut."""
    angle = -2 * np.pi * (np.arange(count)[:, None] * np.arange(bins)[None, :] % length) / length
    cosine, sine = np.cos(angle), np.sin(angle)
    whole = np.zeros((count, parts, bins, 2))
    whole[:, 0, :, 0], whole[:, 0, :, 1] = cosine, sine
    if parts == 2:
        whole[:, 1, :, 0], whole[:, 1, :, 1] = -sine, cosine
    return whole.reshape(count * parts, bins * 2)


def _inverse(count: int, length: int, parts: int) -> Array:
    """The same back: `[count * parts, length * 2]`."""
    whole = _forward(count, length, length, parts).reshape(count, parts, length, 2)
    turned = whole.copy()
    turned[:, 0, :, 1] = -whole[:, 0, :, 1]
    if parts == 2:
        turned[:, 1, :, 0] = -whole[:, 1, :, 0]
    return turned.reshape(count * parts, length * 2) / length


def _inverse_of_half(count: int, length: int, parts: int) -> Array:
    """From the lower half of a real signal's spectrum to the signal: `[count * parts, length]`."""
    both = np.array([1.0 if k == 0 or (length % 2 == 0 and k == length // 2) else 2.0 for k in range(count)])
    angle = 2 * np.pi * (np.arange(count)[:, None] * np.arange(length)[None, :] % length) / length
    whole = np.zeros((count, parts, length))
    whole[:, 0] = np.cos(angle) * both[:, None]
    if parts == 2:
        whole[:, 1] = -np.sin(angle) * both[:, None]
    return whole.reshape(count * parts, length) / length


@operator("DFT", since=(17, 20))
def _dft(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    shape, rank = shape_of(x), len(shape_of(x))
    if rank < 2 or shape[-1] not in (1, 2):
        raise fail(node, f"the last extent of {spell(shape)} is neither 1 nor 2")
    if node.version == 17:
        number = node.attributes["axis"]
    else:
        number = int(required_value(ctx, node, 2, "axis").reshape(-1)[0]) if has_input(node, 2) else -2
    axis = normal_axis(node, number, rank)
    if axis == rank - 1:
        raise fail(node, f"axis {axis} holds the real and imaginary parts")
    inverse, half = bool(node.attributes["inverse"]), bool(node.attributes["onesided"])
    given = integers(ctx, node, 1, "dft_length")
    length = given[0] if given else 2 * (shape[axis] - 1) if inverse and half else shape[axis]
    if not 0 < length <= _MOST:
        raise fail(node, f"a transform of {length} items is not supported, the most are {_MOST}")
    wanted = length // 2 + 1 if inverse and half else length
    count, parts = min(shape[axis], wanted), shape[-1]
    if inverse:
        matrix = _inverse_of_half(count, length, parts) if half else _inverse(count, length, parts)
    else:
        matrix = _forward(count, length, length // 2 + 1 if half else length, parts)
    back = 1 if inverse and half else 2
    x = sliced(ctx, x, {axis: (0, count, 1)})
    rest = [a for a in range(rank - 1) if a != axis]
    rows = reshaped(ctx, permuted(ctx, x, [*rest, axis, rank - 1]), (math.prod(shape[a] for a in rest), count * parts))
    product = matmul(ctx, rows, known(ctx, matrix.astype(numpy_dtype(dtype_of(x)))))
    made = reshaped(ctx, product, (*(shape[a] for a in rest), matrix.shape[1] // back, back))
    order = [rest.index(a) if a in rest else len(rest) for a in range(rank - 1)]
    return permuted(ctx, made, [*order, rank - 1])


@operator("STFT", since=(17,))
def _stft(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    shape = shape_of(x)
    step = (integers(ctx, node, 1, "frame_step") or [0])[0]
    window = input_at(node, 2) if has_input(node, 2) else None
    given = integers(ctx, node, 3, "frame_length")
    length = given[0] if given else shape_of(window)[0] if window is not None else 0
    parts = shape[2] if len(shape) == 3 else 1
    if len(shape) not in (2, 3) or step < 1 or not 0 < length <= min(shape[1], _MOST):
        raise fail(node, f"frames of {length} items every {step} do not fit {spell(shape)}")
    if window is not None and shape_of(window) != (length,):
        raise fail(node, f"the window {spell(shape_of(window))} does not fit frames of {length} items")
    frames = (shape[1] - length) // step + 1
    x = reshaped(ctx, x, (shape[0], shape[1], parts))

    def item(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        b, f, i, p = index
        value = tensors[0](b, f * step + i, p)
        return value * tensors[1](i) if window is not None else value

    cut = compute(ctx, (shape[0], frames, length, parts), item, x, *([] if window is None else [window]), name="frames")
    bins = length // 2 + 1 if node.attributes["onesided"] else length
    matrix = known(ctx, _forward(length, length, bins, parts).astype(numpy_dtype(dtype_of(x))))
    product = matmul(ctx, reshaped(ctx, cut, (shape[0] * frames, length * parts)), matrix)
    return reshaped(ctx, product, (shape[0], frames, bins, 2))


@operator("MelWeightMatrix", since=(17,))
def _mel_weights(ctx: Context, node: Node) -> Value:
    """Triangles that rise and fall between neighbours among frequencies evenly spaced in mel."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    values = [float(required_value(ctx, node, i, name).reshape(-1)[0]) for i, name in enumerate(names)]
    bands, length, rate = (int(value) for value in values[:3])
    if not (0 < bands <= _MOST and 0 < length <= 1 << 20 and rate > 0 and min(values[3:]) > -700):
        raise fail(node, f"cannot make {bands} bands of {length} items at {rate} Hz")
    low, high = (2595 * np.log10(1 + edge / 700) for edge in values[3:])
    mel = np.arange(bands + 2) * ((high - low) / (bands + 2)) + low
    places = np.floor((length + 1) * 700 * (10 ** (mel / 2595) - 1) / rate).astype(np.int64)
    weights = np.zeros((length // 2 + 1, bands))
    if places.min() < 0 or places.max() > len(weights):
        raise fail(node, "the edges are beyond half of the sample rate")
    for band, (first, centre, last) in enumerate(zip(places, places[1:], places[2:], strict=False)):
        if centre == first:
            weights[centre, band] = 1
        else:
            rising = np.arange(first, min(centre + 1, len(weights)))
            weights[rising, band] = (rising - first) / (centre - first)
        if last > centre:
            falling = np.arange(centre, min(last, len(weights)))
            weights[falling, band] = (last - falling) / (last - centre)
    return known(ctx, weights.astype(numpy_dtype(element_type(node, node.attributes["output_datatype"]))))
