"""Custom operators of MediaPipe: maxima with positions and their inverse, samples of images, landmarks.

Options are structs of int32 for those that have a builtin counterpart, flexbuffers for the others. Version 2 of an
operator has other options than version 1, and positions of pixels that count from their corners.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnefc.frontends.tflite.flexbuffer import read_map
from nnefc.frontends.tflite.lowering import FLOATS, Lowering, Node, Operand, Result, operator
from nnefc.frontends.tflite.schema import ACTIVATIONS
from nnefc.operators.base import Array, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Clip, Where, apply
from nnefc.operators.math.reduction import Maximum, Minimum
from nnefc.operators.nn.pooling import ArgMaxPool, MaxPool
from nnefc.operators.nn.unpooling import MaxUnpool
from nnefc.operators.nn.window import Window, same_padding
from nnefc.operators.tensor.concatenation import Concat, Stack
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Expand, Slice
from nnefc.operators.vision.detection import PositionSample
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import ceil_div, is_known

__all__: list[str] = []

_SAME, _VALID = 1, 2
_CLIPS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None), "RELU": (0, None), "RELU_N1_TO_1": (-1, 1), "RELU6": (0, 6),
}  # fmt: skip


def _check_rank(node: Node, *ranks: int) -> None:
    """Refuse inputs with other numbers of dimensions."""
    for index, rank in enumerate(ranks):
        if node.rank(index) != rank:
            raise CompileError(f"input {index} of shape {list(node.shape(index))} should have {rank} dimensions")


def _version(node: Node) -> int:
    if node.version not in (1, 2):
        raise CompileError(f"version {node.version} of the operator is not known")
    return node.version


# Poolings: padding, strides and the window, each width first, and the activation.


def _pool(node: Node) -> tuple[int, Window, str]:
    """The padding, the window without it, and the name of the activation."""
    if len(node.custom) < 24:
        raise CompileError("its options are too short")
    padding, step_w, step_h, width, height, activation = np.frombuffer(node.custom[:24], "<i4").tolist()
    if padding not in (_SAME, _VALID) or any(not 1 <= size < 1 << 16 for size in (step_w, step_h, width, height)):
        raise CompileError("its options are not known")
    name = ACTIVATIONS[activation] if 0 <= activation < len(ACTIVATIONS) else str(activation)
    if name not in _CLIPS:
        raise CompileError(f"the fused activation {name} is not supported here")
    return padding, Window.of((height, width), (step_h, step_w)), name


@operator("MaxPoolingWithArgmax2D", types=FLOATS)
def _argmax(ctx: Lowering, node: Node) -> Result:
    """The maxima, and where they are in their windows, as reals 0.1 above the number."""
    _check_rank(node, 4)
    padding, window, activation = _pool(node)
    x = ctx.channels_first(node.operand(0))
    sizes = shape_of(x)[2:]
    if padding == _SAME:
        results = [ceil_div(size, step) for size, step in zip(sizes, window.stride, strict=True)]
        window = window.padded(same_padding(window, sizes, results))
    low, high = (None if end is None else np.array(end, np.float32) for end in _CLIPS[activation])
    made = ctx.apply(Clip(), ctx.apply(MaxPool(window), x), low, high)
    numbers = ctx.apply(Cast("float32"), ctx.apply(ArgMaxPool(window, within="window"), x))
    return ctx.channels_last(made), ctx.channels_last(apply(ctx, "add", numbers, np.array(0.1, np.float32)))


@operator("MaxUnpooling2D", types=FLOATS)
def _unpool(ctx: Lowering, node: Node) -> Result:
    """Lower an unpooling: each element at its position in its window, zeros elsewhere."""
    _check_rank(node, 4, 4)
    _, window, _ = _pool(node)
    x, numbers = (ctx.channels_first(node.operand(k)) for k in (0, 1))
    batch, channels, *sizes = shape_of(x)
    if not is_known(*shape_of(x)) or shape_of(x) != shape_of(numbers):
        raise CompileError(f"elements {list(node.shape(0))} and positions {list(node.shape(1))} are not supported")
    room = [size * step for size, step in zip(sizes, window.size, strict=True)]
    number = ctx.apply(Cast("int64"), numbers)
    width = np.array(window.size[1], np.int64)
    offsets = apply(ctx, "floor_divide", number, width), apply(ctx, "remainder", number, width)
    inside = apply(ctx, "greater_equal", number, np.array(0, np.int64))
    position: Operand = np.arange(batch * channels).reshape(batch, channels, 1, 1) * math.prod(room)
    for axis, offset in enumerate(offsets):
        size, step, reach = sizes[axis], window.stride[axis], window.size[axis]
        before = max(((size - 1) * step + reach - room[axis]) // 2, 0)
        origin = (np.arange(size, dtype=np.int64) * step - before).reshape(-1, *[1] * (1 - axis))
        coordinate = apply(ctx, "add", offset, origin)
        for name, end in (("greater_equal", 0), ("less", room[axis])):
            inside = apply(ctx, "logical_and", inside, apply(ctx, name, coordinate, np.array(end, np.int64)))
        pitch = np.array(room[1] if axis == 0 else 1, np.int64)
        position = apply(ctx, "add", position, apply(ctx, "multiply", coordinate, pitch))
    position = ctx.apply(Where(), inside, position, np.array(-1, np.int64))
    layer = MaxUnpool(tuple(room), (batch, channels, *room))
    return ctx.channels_last(ctx.apply(layer, x, position))


# Samples of images.


def _rows(ctx: Lowering, matrix: Operand) -> list[list[Operand]]:
    """The elements of a matrix `[…, 4, 4]` by row and column, each `[1]`."""
    flat = ctx.reshaped(matrix, (16,))
    return [[ctx.apply(Slice({0: (4 * row + column, 1, 1)}), flat) for column in range(4)] for row in range(4)]


def _sum(ctx: Lowering, *terms: Operand) -> Operand:
    made = terms[0]
    for term in terms[1:]:
        made = apply(ctx, "add", made, term)
    return made


def _times(ctx: Lowering, x: Operand, y: Operand | float) -> Operand:
    return apply(ctx, "multiply", x, np.array(y, np.float32) if isinstance(y, int | float) else y)


@operator("TransformTensor", "TransformTensorBilinear", types=FLOATS)
def _transform(ctx: Lowering, node: Node) -> Result:
    """Lower a perspective transform: results are interpolated at positions that a matrix gives; zero outside."""
    _check_rank(node, 4)
    options, version = read_map(node.custom), _version(node)
    if options.get("mode", "bilinear") != "bilinear":
        raise CompileError(f"interpolation '{str(options['mode'])[:40]}' is not supported")
    sides = [options.get(f"output_{name}") for name in ("height", "width")]
    given = list(options.get("output_size", ())) if version == 1 else sides
    known = [size for size in given if isinstance(size, int) and 0 < size < 1 << 16]
    if len(given) != 2 or len(known) != 2:
        raise CompileError(f"the size of the result is {given}")
    height, width = known
    x = ctx.channels_first(node.operand(0))
    if shape_of(x)[0] != 1 or math.prod(node.shape(1)) != 16:
        raise CompileError(f"an image {list(node.shape(0))} and a matrix {list(node.shape(1))} are not supported")
    matrix = _rows(ctx, node.operand(1))
    columns = np.arange(width, dtype=np.float32).reshape(1, width)
    lines = np.arange(height, dtype=np.float32).reshape(height, 1)
    found = []
    for row in matrix[:2]:
        last = row[3]
        if version == 2:  # from the centre of a pixel to that of another
            half = _sum(ctx, _times(ctx, row[0], 0.5), _times(ctx, row[1], 0.5), np.array(-0.5, np.float32))
            last = apply(ctx, "add", last, half)
        made = _sum(ctx, _times(ctx, row[0], columns), _times(ctx, row[1], lines), last)
        found.append(ctx.apply(Expand((height, width)), made))
    positions = ctx.reshaped(ctx.apply(Stack(2), *found), (1, height, width, 2))
    return ctx.channels_last(ctx.apply(PositionSample(bounded=True), x, positions))


@operator("Resampler", types=FLOATS)
def _resampler(ctx: Lowering, node: Node) -> Result:
    """Lower a resampling: a result is interpolated at the position (x, y) in the second input."""
    _check_rank(node, 4, 4)
    if node.shape(1) != (*node.shape(0)[:3], 2):
        raise CompileError(f"positions {list(node.shape(1))} do not fit an image {list(node.shape(0))}")
    x = ctx.channels_first(node.operand(0))
    return ctx.channels_last(ctx.apply(PositionSample(), x, node.operand(1)))


# Landmarks: points of two or three coordinates, of which the first two are moved.


@operator("TransformLandmarks", types=FLOATS)
def _transform_landmarks(ctx: Lowering, node: Node) -> Result:
    version = _version(node)
    _check_rank(node, 4 if version == 1 else 3)
    options = read_map(node.custom) if version == 1 else {}
    shape = node.shape(0)
    depth, scale = options.get("dimensions", 3) if version == 1 else shape[-1], options.get("scale", 1.0)
    if depth not in (2, 3) or not scale or math.prod(node.shape(1)) != 16 or shape[-1] % depth:
        raise CompileError(f"landmarks {list(shape)} of {depth} dimensions are not supported")
    points = ctx.reshaped(node.operand(0), (math.prod(shape) // depth, depth))
    x, y = (ctx.apply(Slice({1: (k, 1, 1)}), points) for k in (0, 1))
    made = [
        _sum(ctx, _times(ctx, row[0], x), _times(ctx, row[1], y), _times(ctx, row[3], float(scale)))
        for row in _rows(ctx, node.operand(1))[:2]
    ]
    kept = [ctx.apply(Slice({1: (2, 1, 1)}), points)] if depth == 3 else []
    return ctx.reshaped(ctx.apply(Concat(1), *made, *kept), shape)


def _number(options: dict[str, Any], name: str, above: float) -> float:
    found = options.get(name)
    if not isinstance(found, int | float) or not found > above:
        raise CompileError(f"the option '{name}' is {found}")
    return float(found)


def _size(options: dict[str, Any], name: str) -> tuple[float, float]:
    """Height and width."""
    found = options.get(name)
    if not isinstance(found, tuple) or len(found) != 2 or not all(size > 1 for size in found):
        raise CompileError(f"the option '{name}' is {found}")
    return float(found[0]), float(found[1])


class _Points:
    """The coordinates of landmarks `[…, 3]` by their numbers."""

    def __init__(self, ctx: Lowering, node: Node, options: dict[str, Any]) -> None:
        count = math.prod(node.shape(0))
        if not is_known(count) or count % 3:
            raise CompileError(f"landmarks {list(node.shape(0))} do not have 3 coordinates")
        self._ctx, self._count = ctx, int(count) // 3
        self._table = ctx.reshaped(node.operand(0), (self._count, 3))
        self._options = options

    def numbers(self, name: str) -> Array:
        """An option that is a number, or several numbers, of landmarks."""
        found = np.atleast_1d(np.array(self._options.get(name, ()), np.float64)).astype(np.int64)
        if not found.size or found.min() < 0 or found.max() >= self._count:
            raise CompileError(f"the option '{name}' names landmarks {found.tolist()} of {self._count}")
        return found

    def at(self, numbers: Array) -> tuple[Operand, Operand]:
        """The first two coordinates, `[N]` each."""
        rows = self._ctx.apply(Gather(0), self._table, numbers)
        x, y = (self._ctx.reshaped(self._ctx.apply(Slice({1: (k, 1, 1)}), rows), (len(numbers),)) for k in (0, 1))
        return x, y


def _rotated(ctx: Lowering, x: Operand, y: Operand, cos: Operand, sin: Operand) -> tuple[Operand, Operand]:
    return (
        apply(ctx, "subtract", _times(ctx, x, cos), _times(ctx, y, sin)),
        apply(ctx, "add", _times(ctx, x, sin), _times(ctx, y, cos)),
    )


@operator("Landmarks2TransformMatrix", types=FLOATS)
def _matrix_of_landmarks(ctx: Lowering, node: Node) -> Result:
    """The matrix from pixels of a crop to those of the image: the crop is the box around landmarks, rotated upright."""
    version, options = _version(node), read_map(node.custom)
    points = _Points(ctx, node, options)
    subset = "subset" if version == 1 else "subset_idxs"
    left, right = (points.at(points.numbers(f"{side}_rotation_idx")[:1]) for side in ("left", "right"))
    run, rise = (apply(ctx, "subtract", b, a) for a, b in zip(left, right, strict=True))
    if version == 1:
        angle = apply(ctx, "negative", apply(ctx, "atan", apply(ctx, "divide", rise, run)))
    else:
        target = np.array(options.get("target_rotation_radians", 0.0), np.float32)
        angle = apply(ctx, "subtract", target, apply(ctx, "atan2", rise, run))
    cos, sin = apply(ctx, "cos", angle), apply(ctx, "sin", angle)
    low, high = [], []
    for coordinate in _rotated(ctx, *points.at(points.numbers(subset)), cos, sin):
        low.append(ctx.apply(Minimum((0,), keepdims=True), coordinate))
        high.append(ctx.apply(Maximum((0,), keepdims=True), coordinate))
    extents = [apply(ctx, "subtract", b, a) for a, b in zip(low, high, strict=True)]
    middle = [_times(ctx, apply(ctx, "add", a, b), 0.5) for a, b in zip(low, high, strict=True)]
    centre = _rotated(ctx, middle[0], middle[1], cos, apply(ctx, "negative", sin))
    crop = _by_range if version == 1 else _by_scale
    return ctx.reshaped(ctx.apply(Concat(0), *crop(ctx, options, extents, centre, cos, sin)), (1, 4, 4))


_Scalars = Sequence[Operand]


def _by_range(
    ctx: Lowering, options: dict[str, Any], extents: _Scalars, centre: _Scalars, cos: Operand, sin: Operand
) -> list[Operand]:
    """Version 1: landmarks are from 0 to a range, pixels from the centre of the first to that of the last."""
    if options.get("dimensions") != 3:
        raise CompileError(f"landmarks of {options.get('dimensions')} dimensions are not supported")
    span, factor = _number(options, "landmarks_range", 0), _number(options, "bbox_size_multiplier", 0)
    (in_h, in_w), (out_h, out_w) = _size(options, "input_hw"), _size(options, "output_hw")
    scales = [_times(ctx, extent, factor / span) for extent in extents]
    made: list[Operand] = []
    # Rows of `to pixels · turn and move · scale · from pixels`; the turn is by the opposite of the angle.
    for half, turn, move in (
        ((in_w - 1) / 2, (cos, sin), centre[0]),
        ((in_h - 1) / 2, (apply(ctx, "negative", sin), cos), centre[1]),
    ):
        factors = [_times(ctx, each, scale) for each, scale in zip(turn, scales, strict=True)]
        shift = apply(ctx, "add", _times(ctx, move, 2 / span), np.array(-1, np.float32))
        last = _sum(ctx, shift, *(apply(ctx, "negative", each) for each in factors), np.array(1, np.float32))
        made += [_times(ctx, factors[0], half * 2 / (out_w - 1)), _times(ctx, factors[1], half * 2 / (out_h - 1))]
        made += [np.zeros(1, np.float32), _times(ctx, last, half)]
    return [*made, np.array([0, 0, 1, 0, 0, 0, 0, 1], np.float32)]


def _by_scale(
    ctx: Lowering, options: dict[str, Any], extents: _Scalars, centre: _Scalars, cos: Operand, sin: Operand
) -> list[Operand]:
    """Version 2: landmarks and pixels have one unit; the crop's middle goes to the middle of the box."""
    sizes = [_number(options, f"output_{name}", 0) for name in ("width", "height")]
    scales = [
        _times(ctx, extent, _number(options, f"scale_{axis}", 0) / size)
        for extent, axis, size in zip(extents, "xy", sizes, strict=True)
    ]
    made: list[Operand] = []
    for turn, move in (((cos, sin), centre[0]), ((apply(ctx, "negative", sin), cos), centre[1])):
        factors = [_times(ctx, each, scale) for each, scale in zip(turn, scales, strict=True)]
        moved = [_times(ctx, each, -size / 2) for each, size in zip(factors, sizes, strict=True)]
        made += [*factors, np.zeros(1, np.float32), _sum(ctx, move, *moved)]
    return [*made, np.array([0, 0, 1, 0, 0, 0, 0, 1], np.float32)]
