"""Windows, regions and sampled positions of images in NumPy, as :mod:`reference` has other operators.

Source: ONNX's text of the operators, of operator set 21.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OF_IMAGES", "Window"]

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Window:
    """A window that is moved over images; each number is of one of their axes.

    Attributes:
        kernel: how many elements it takes.
        strides: how far it is moved.
        dilations: how far its elements are from each other.
        before: what is padded before the first element.
        after: what is padded behind the last one.
        results: how many results it has.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    results: Sequence[int]

    @classmethod
    def of(cls, given: Attributes, sizes: Sequence[int]) -> Window:
        """The window of a pooling.

        Raises:
            ValueError: the window is larger than images of these sizes.
        """
        ones = [1] * len(sizes)
        kernel, mode = given["kernel_shape"], given.get("auto_pad", "NOTSET")
        strides, dilations = given.get("strides", ones), given.get("dilations", ones)
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        if mode.startswith("SAME"):
            results = [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
            padded = [
                max(0, (count - 1) * stride + span - size)
                for count, stride, span, size in zip(results, strides, spans, sizes, strict=True)
            ]
            before = [total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in padded]
            after = [total - first for total, first in zip(padded, before, strict=True)]
            return cls(kernel, strides, dilations, before, after, results)
        pads = given.get("pads", [0, 0] * len(sizes)) if mode == "NOTSET" else [0, 0] * len(sizes)
        before, after = pads[: len(sizes)], pads[len(sizes) :]
        results = []
        for size, stride, span, first, last in zip(sizes, strides, spans, before, after, strict=True):
            room = size + first + last - span
            if room < 0:
                raise ValueError("the window is larger than the image")
            count = (-(-room // stride) if given.get("ceil_mode") else room // stride) + 1
            results.append(count - ((count - 1) * stride >= size + first))  # none begins behind the image
        return cls(kernel, strides, dilations, before, after, results)

    def over(self, x: Array, fill: float) -> Array:
        """The elements under the window for each result: [batch, channel, *results, *kernel]."""
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        ends = [
            (count - 1) * stride + span for count, stride, span in zip(self.results, self.strides, spans, strict=True)
        ]
        pads = [
            (first, max(0, end - size - first)) for first, end, size in zip(self.before, ends, x.shape[2:], strict=True)
        ]
        padded = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
        moved = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(2, x.ndim)))  # type: ignore[call-overload]
        starts = [slice(0, (count - 1) * s + 1, s) for count, s in zip(self.results, self.strides, strict=True)]
        elements = [slice(None, None, d) for d in self.dilations]
        found: Array = moved[(slice(None), slice(None), *starts, *elements)]
        return found

    def counts(self, sizes: Sequence[int], with_pads: bool) -> Array:
        """How many elements of the images, and of what they are padded with, are under the window for each result."""
        found = np.ones(())
        for axis, size in enumerate(sizes):
            firsts = np.arange(self.results[axis]) * self.strides[axis] - self.before[axis]
            elements = firsts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
            end = size + self.after[axis] if with_pads else size
            inside = (elements < end) & (with_pads | (elements >= 0))
            found = np.multiply.outer(found, inside.sum(1))
        return found


def _max_pool(given: Attributes, x: Array) -> Array:
    minimum = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    elements = Window.of(given, x.shape[2:]).over(x, minimum)
    found: Array = np.fmax.reduce(elements, tuple(range(x.ndim, elements.ndim)), initial=minimum)  # no NaN wins
    return found


def _average_pool(given: Attributes, x: Array) -> Array:
    window = Window.of(given, x.shape[2:])
    elements = window.over(x, 0)
    counts = window.counts(x.shape[2:], bool(given.get("count_include_pad")))
    return elements.sum(tuple(range(x.ndim, elements.ndim))) / counts


def _lp_pool(given: Attributes, x: Array) -> Array:
    order = given.get("p", 2)
    elements = np.abs(Window.of(given, x.shape[2:]).over(x, 0)) ** order
    return elements.sum(tuple(range(x.ndim, elements.ndim))) ** (1 / order)


def _global_max_pool(_given: Attributes, x: Array) -> Array:
    return x.max(tuple(range(2, x.ndim)), keepdims=True)


def _transposed_convolution(given: Attributes, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Each element of `x` times the weights, added up where they lie: strides apart, each weight a dilation further."""
    sizes, kernel = x.shape[2:], weight.shape[2:]
    ones, zeros = [1] * len(sizes), [0] * len(sizes)
    strides, dilations = given.get("strides", ones), given.get("dilations", ones)
    further = given.get("output_padding", zeros)
    groups, outputs = given.get("group", 1), weight.shape[1]
    parts = x.reshape(x.shape[0], groups, -1, *sizes)
    weights = weight.reshape(groups, -1, outputs, *kernel)
    whole = [
        (size - 1) * s + (k - 1) * d + 1 + more
        for size, s, k, d, more in zip(sizes, strides, kernel, dilations, further, strict=True)
    ]
    mode = given.get("auto_pad", "NOTSET")
    pads = given.get("pads", [*zeros, *zeros]) if mode == "NOTSET" else [*zeros, *zeros]
    if mode.startswith("SAME"):
        less = [total - size * s for total, size, s in zip(whole, sizes, strides, strict=True)]
        first = [total // 2 for total in less]
        last = [total - part for total, part in zip(less, first, strict=True)]
        pads = [*first, *last] if mode == "SAME_UPPER" else [*last, *first]
        if min(pads) < 0:
            raise ValueError("the result would be larger than what is written")
    found = np.zeros((x.shape[0], groups, outputs, *whole), x.dtype)
    for index in np.ndindex(*kernel):
        reached = tuple(
            slice(k * d, k * d + (size - 1) * s + 1, s)
            for k, d, size, s in zip(index, dilations, sizes, strides, strict=True)
        )
        found[(..., *reached)] += np.einsum("ngc...,gco->ngo...", parts, weights[(..., *index)])
    kept = tuple(
        slice(first, size - last)
        for size, first, last in zip(whole, pads[: len(sizes)], pads[len(sizes) :], strict=True)
    )
    result = found[(..., *kept)].reshape(x.shape[0], groups * outputs, *(part.stop - part.start for part in kept))
    return result if bias is None else result + bias.reshape(-1, *ones)


def _grid_sample(given: Attributes, x: Array, grid: Array) -> Array:
    """Elements of images [batch, channel, height, width] at positions [batch, …, 2], from -1 to 1, the horizontal
    first."""
    aligned, padding = bool(given.get("align_corners")), given.get("padding_mode", "zeros")
    sizes = x.shape[2:]
    positions = [
        (grid[..., 1 - axis] + 1) / 2 * (size - 1) if aligned else ((grid[..., 1 - axis] + 1) * size - 1) / 2
        for axis, size in enumerate(sizes)
    ]
    if given.get("mode", "linear") == "nearest":
        positions = [np.rint(position) for position in positions]
    positions = [_within(position, size, aligned, padding) for position, size in zip(positions, sizes, strict=True)]
    found = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    for corner in itertools.product((0, 1), repeat=2):
        elements = [
            np.floor(position).astype(np.int64) + further for position, further in zip(positions, corner, strict=True)
        ]
        shares = [1 - np.abs(position - element) for position, element in zip(positions, elements, strict=True)]
        inside = np.logical_and(
            *((element >= 0) & (element < size) for element, size in zip(elements, sizes, strict=True))
        )
        rows, columns = (np.clip(element, 0, size - 1) for element, size in zip(elements, sizes, strict=True))
        for number, image in enumerate(x):
            weights = np.where(inside, shares[0] * shares[1], 0)[number]
            found[number] += weights * image[:, rows[number], columns[number]]
    return found


def _affine_grid(given: Attributes, theta: Array, size: Array) -> Array:
    """Positions [batch, …, 2 or 3] from -1 to 1, the innermost first, times matrices."""
    sizes = [int(count) for count in size[2:]]
    elements = np.meshgrid(*map(np.arange, sizes), indexing="ij")
    if given.get("align_corners"):
        positions = [2 * element / max(count - 1, 1) - 1 for element, count in zip(elements, sizes, strict=True)]
    else:
        positions = [(2 * element + 1) / count - 1 for element, count in zip(elements, sizes, strict=True)]
    whole = np.stack([*reversed(positions), np.ones(sizes)], -1)
    return np.asarray(np.einsum("nij,...j->n...i", theta, whole))


def _deformed_columns(given: Attributes, x: Array, weight: Array, offset: Array, mask: Array | None = None) -> Array:
    """Gather the elements that a deformable convolution multiplies: [batch, channel, element of the kernel, row,
    column]."""
    kernel, (height, width) = weight.shape[2:], offset.shape[2:]
    strides, dilations = given.get("strides", [1, 1]), given.get("dilations", [1, 1])
    first, groups = given.get("pads", [0, 0, 0, 0])[:2], given.get("offset_group", 1)
    moves = offset.reshape(len(x), groups, *kernel, 2, height, width)
    shares = np.ones((len(x), groups, *kernel, height, width)) if mask is None else mask
    shares = shares.reshape(len(x), groups, *kernel, height, width)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])  # there is nothing around an image
    found = np.zeros((*x.shape[:2], *kernel, height, width))
    for element, channel, *kernel_index in np.ndindex(*x.shape[:2], *kernel):
        group = channel // (x.shape[1] // groups)
        starts = (np.arange(height)[:, None] * strides[0], np.arange(width) * strides[1])
        at = [
            np.clip(start + k * d - pad + moves[(element, group, *kernel_index, axis)], -1, size)
            for axis, (start, k, d, pad, size) in enumerate(
                zip(starts, kernel_index, dilations, first, x.shape[2:], strict=True)
            )
        ]
        for corner in itertools.product((0, 1), repeat=2):
            elements = [np.floor(a).astype(int) + further for a, further in zip(at, corner, strict=True)]
            parts = [1 - np.abs(a - each) for a, each in zip(at, elements, strict=True)]
            rows, columns = (np.clip(each + 1, 0, size + 1) for each, size in zip(elements, x.shape[2:], strict=True))
            found[(element, channel, *kernel_index)] += parts[0] * parts[1] * padded[element, channel, rows, columns]
        found[(element, channel, *kernel_index)] *= shares[(element, group, *kernel_index)]
    return found.reshape(*x.shape[:2], math.prod(kernel), height, width)


def _deformed_sums(given: Attributes, columns: Array, weight: Array, bias: Array | None = None) -> Array:
    groups = given["group"]
    batch, channels, taps, height, width = columns.shape
    parts = columns.reshape(batch, groups, channels // groups * taps, height * width)
    weights = weight.reshape(groups, weight.shape[0] // groups, -1)
    found = np.einsum("goc,ngcp->ngop", weights, parts).reshape(batch, -1, height, width)
    return found if bias is None else found + bias[:, None, None]


def _within(position: Array, size: int, aligned: bool, padding: str) -> Array:
    """Positions of an axis, of which those outside are at the border, or are reflected by it; as they are for zeros."""
    if padding == "zeros":
        return position
    if padding == "reflection":
        low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
        if low == high:
            raise ValueError("nothing is between the borders")
        further = np.mod(np.abs(position - low), 2 * (high - low))
        position = low + np.minimum(further, 2 * (high - low) - further)
    return np.clip(position, 0, size - 1)


def _resize(
    given: Attributes, x: Array, _roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None
) -> Array:
    """Positions are exact fractions: ONNX's reference takes some next to them, which have other neighbours."""
    for axis, count in enumerate(x.shape):
        scale = Fraction(int(sizes[axis]), count) if sizes is not None else Fraction(float(scales[axis]))  # type: ignore[index]
        if scale != 1:
            positions = [_resized_position(given, at, count, scale) for at in range(math.floor(count * scale))]
            parts = [sum(share * np.take(x, k, axis) for k, share in _shares(given, at, count)) for at in positions]
            x = np.stack(parts, axis)
    return x


def _resized_position(given: Attributes, at: int, count: int, scale: Fraction) -> Fraction:
    match given.get("coordinate_transformation_mode", "half_pixel"):
        case "asymmetric":
            return at / scale
        case "align_corners":
            return Fraction(0) if scale * count == 1 else Fraction(at * (count - 1)) / (scale * count - 1)
        case "pytorch_half_pixel" if math.floor(scale * count) == 1:
            return Fraction(0)
    return (at + Fraction(1, 2)) / scale - Fraction(1, 2)


def _shares(given: Attributes, position: Fraction, count: int) -> list[tuple[int, float]]:
    """The elements that one at a position is made of, and their shares."""
    first, half = math.floor(position), Fraction(1, 2)
    tail = float(position - first)
    match given["mode"]:
        case "linear":
            shares = {first: 1 - tail, first + 1: tail}
        case "cubic":
            a = given.get("cubic_coeff_a", -0.75)
            near = [((a + 2) * t - (a + 3)) * t * t + 1 for t in (tail, 1 - tail)]
            far = [((a * t - 5 * a) * t + 8 * a) * t - 4 * a for t in (1 + tail, 2 - tail)]
            shares = dict(zip(range(first - 1, first + 3), (far[0], *near, far[1]), strict=True))
        case _:
            nearest = {
                "floor": first,
                "ceil": math.ceil(position),
                "round_prefer_floor": math.ceil(position - half),
                "round_prefer_ceil": math.floor(position + half),
            }
            shares = {nearest[given.get("nearest_mode", "round_prefer_floor")]: 1.0}
    if given.get("exclude_outside"):
        inside = {k: share for k, share in shares.items() if 0 <= k < count}
        return [(k, share / sum(inside.values())) for k, share in inside.items()]
    return [(min(max(k, 0), count - 1), share) for k, share in shares.items()]


def _global_lp_pool(given: Attributes, x: Array) -> Array:
    p = given.get("p", 2)
    return np.asarray((np.abs(x) ** p).sum(tuple(range(2, x.ndim)), keepdims=True) ** (1 / p))


def _max_roi_pool(given: Attributes, x: Array, rois: Array) -> Array:
    heights, widths = given["pooled_shape"]
    corners = rois[:, 1:] * given.get("spatial_scale", 1.0)
    corners = (np.sign(corners) * np.floor(np.abs(corners) + 0.5)).astype(int)
    found = np.zeros((len(rois), x.shape[1], heights, widths))
    for region, (left, top, right, bottom) in enumerate(corners):
        rows, columns = (
            _bins(first, last, count, size)
            for first, last, count, size in ((top, bottom, heights, x.shape[2]), (left, right, widths, x.shape[3]))
        )
        for row, column in itertools.product(range(heights), range(widths)):
            elements = x[int(rois[region, 0]), :, rows[row], columns[column]]
            if elements.size:
                found[region, :, row, column] = elements.max((1, 2))
    return found


def _bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """The elements of an axis of an image that are in each bin of a region."""
    width = max(last - first + 1, 1) / count
    ends = [(first + math.floor(k * width), first + math.ceil((k + 1) * width)) for k in range(count)]
    return [slice(min(max(start, 0), size), min(max(end, 0), size)) for start, end in ends]


OF_IMAGES: Mapping[str, Callable[..., Array]] = {
    "AffineGrid": _affine_grid,
    "AveragePool": _average_pool,
    "ConvTranspose": _transposed_convolution,
    "DeformedColumns": _deformed_columns,
    "DeformedSums": _deformed_sums,
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _global_max_pool,
    "GridSample": _grid_sample,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxRoiPool": _max_roi_pool,
    "Resize": _resize,
}
"""By the operators' names, and those that :mod:`simpler` gives them."""
