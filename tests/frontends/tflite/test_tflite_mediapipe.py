"""Custom operators of MediaPipe give what their definitions say, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_files import Graph, model_file

import nnefc
from nnefc.frontends.tflite import load
from nnefc.support.diagnostics import CompileError

flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")

RNG = np.random.default_rng(9)
IMAGE = RNG.standard_normal((1, 5, 7, 3)).astype(np.float32)
POINTS = RNG.uniform(1, 60, (4, 3)).astype(np.float32)
MATRIX = np.array([[1.1, -0.3, 0, 0.57], [0.2, 0.9, 0, -0.8], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32)


def options(**fields: Any) -> np.ndarray:
    return np.frombuffer(bytes(flexbuffers.Dumps(fields)), np.uint8)


def struct(*numbers: int) -> np.ndarray:
    return np.frombuffer(np.array(numbers, "<i4").tobytes(), np.uint8)


def pooled(x: np.ndarray, size: tuple[int, int], step: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Maxima with padding "same", cut to 0 … 6, and where they are."""
    _, height, width, channels = x.shape
    results = [-(-height // step[0]), -(-width // step[1])]
    before = [max((r - 1) * s + k - n, 0) // 2 for r, s, k, n in zip(results, step, size, (height, width), strict=True)]
    made, numbers = np.zeros((1, *results, channels)), np.zeros((1, *results, channels))
    for y, x_, c in np.ndindex(*results, channels):
        best = (-np.inf, 0)
        for number, (i, j) in enumerate(np.ndindex(*size)):
            row, column = y * step[0] - before[0] + i, x_ * step[1] - before[1] + j
            if 0 <= row < height and 0 <= column < width and x[0, row, column, c] > best[0]:
                best = x[0, row, column, c], number
        made[0, y, x_, c], numbers[0, y, x_, c] = np.clip(best[0], 0, 6), best[1] + 0.1
    return made, numbers


def unpooled(x: np.ndarray, numbers: np.ndarray, size: int) -> np.ndarray:
    _, height, width, channels = x.shape
    made = np.zeros((1, height * size, width * size, channels))
    for y, x_, c in np.ndindex(height, width, channels):
        row, column = divmod(int(numbers[0, y, x_, c]), size)
        made[0, y * size + row, x_ * size + column, c] = x[0, y, x_, c]
    return made


def sampled(x: np.ndarray, at: np.ndarray, bounded: bool) -> np.ndarray:
    """The image at positions `[h, w, 2]`, width first; zeros outside."""
    _, height, width, channels = x.shape
    made = np.zeros((*at.shape[:2], channels))
    for index in np.ndindex(*at.shape[:2]):
        column, row = at[index]
        if bounded and not (0 <= column <= width - 1 and 0 <= row <= height - 1):
            continue
        for i in (math.floor(row), math.floor(row) + 1):
            for j in (math.floor(column), math.floor(column) + 1):
                if 0 <= i < height and 0 <= j < width:
                    made[index] += x[0, i, j] * (1 - abs(row - i)) * (1 - abs(column - j))
    return made[None]


def moved(size: tuple[int, int], half: float) -> np.ndarray:
    """Where the matrix moves pixels; `half` is where a pixel's own position is in it."""
    rows, columns = np.meshgrid(*map(np.arange, size), indexing="ij")
    grid = np.stack([columns + half, rows + half, np.zeros(size), np.ones(size)], -1)
    return (grid @ MATRIX.T.astype(np.float64))[..., :2] - half


def turn(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0], [0, 0, 1]])


def box(subset: list[int], angle: float) -> tuple[np.ndarray, np.ndarray]:
    """The size of the box around rotated points, and its middle, rotated back."""
    points = POINTS[subset, :2].astype(np.float64) @ turn(angle)[:2, :2].T
    low, high = points.min(0), points.max(0)
    return high - low, turn(-angle)[:2, :2] @ ((low + high) / 2)


def by_range() -> np.ndarray:
    """The matrix of version 1, a product of four."""
    (x0, y0), (x1, y1) = POINTS[0, :2].astype(float), POINTS[2, :2].astype(float)
    angle = -math.atan((y1 - y0) / (x1 - x0))
    size, middle = box([0, 1, 3, 3], angle)
    scale = np.diag([*(size * 1.5 / 64), 1])
    rotation = turn(-angle)
    rotation[:2, 2] = middle / 64 * 2 - 1
    inner = np.array([[2 / 8, 0, -1], [0, 2 / 11, -1], [0, 0, 1]])
    outer = np.array([[9.5, 0, 9.5], [0, 7.5, 7.5], [0, 0, 1]])
    made, plane = np.eye(4), outer @ rotation @ scale @ inner
    made[:2, :2], made[:2, 3] = plane[:2, :2], plane[:2, 2]
    return made


def by_scale() -> np.ndarray:
    """The matrix of version 2: moved, rotated, scaled and moved."""
    (x0, y0), (x1, y1) = POINTS[1, :2].astype(float), POINTS[3, :2].astype(float)
    angle = 0.4 - math.atan2(y1 - y0, x1 - x0)
    size, middle = box([0, 1, 2, 2], angle)
    made, shift, last = np.eye(4), np.eye(4), np.eye(4)
    shift[:2, 3], last[:2, 3] = middle, (-4.5, -6)
    made[:3, :3] = turn(-angle)
    return shift @ made @ np.diag([1.25 * size[0] / 9, 0.8 * size[1] / 12, 1, 1]) @ last


class Builder:
    """A graph, and what its results should be."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.wanted: list[np.ndarray] = []

    def add(self, name: str, inputs: list[int], *values: np.ndarray, **fields: Any) -> list[int]:
        """Adds an operator, whose results should be these."""
        made = [self.graph.output(value.shape) for value in values]
        self.graph.add(name, inputs, made, **fields)
        self.wanted.extend(values)
        return made


def images() -> tuple[Builder, list[np.ndarray]]:
    b = Builder()
    image, matrix = b.graph.input(IMAGE.shape), b.graph.input((1, 4, 4))
    b.add("MaxPoolingWithArgmax2D", [image], *pooled(IMAGE, (3, 2), (2, 2)), custom_options=struct(1, 2, 2, 2, 3, 3))
    windows = IMAGE[:, :4, :6].reshape(1, 2, 2, 3, 2, 3).transpose(0, 1, 3, 5, 2, 4).reshape(1, 2, 3, 3, 4)
    maxima, numbers = windows.max(-1), windows.argmax(-1) + 0.1
    small = b.add("MaxPoolingWithArgmax2D", [image], maxima, numbers, custom_options=struct(2, 2, 2, 2, 2, 0))
    b.add("MaxUnpooling2D", small, unpooled(maxima, numbers, 2), custom_options=struct(1, 2, 2, 2, 2, 0))
    size = options(output_height=4, output_width=6)
    wanted = sampled(IMAGE, moved((4, 6), 0.5), True)
    b.add("TransformTensorBilinear", [image, matrix], wanted, custom_options=size, version=2)
    warp = RNG.uniform(-1.5, 7.5, (1, 5, 7, 2)).astype(np.float32)
    b.add("Resampler", [image, b.graph.tensor(warp.shape, value=warp)], sampled(IMAGE, warp[0], False))
    return b, [IMAGE, MATRIX[None]]


def landmarks() -> tuple[Builder, list[np.ndarray]]:
    b = Builder()
    points, three, matrix = (b.graph.input(shape) for shape in ((1, 1, 1, 12), (1, 4, 3), (1, 4, 4)))
    flat = POINTS.astype(np.float64).copy()
    flat[:, :2] = POINTS[:, :2] @ MATRIX[:2, :2].T + MATRIX[:2, 3]
    b.add("TransformLandmarks", [three, matrix], flat[None], version=2)
    twice = flat + np.append(MATRIX[:2, 3], 0)
    fields = options(dimensions=3, scale=2.0)
    b.add("TransformLandmarks", [points, matrix], twice.reshape(1, 1, 1, 12), custom_options=fields)
    fields = options(input_hw=[16, 20], output_hw=[12, 9], dimensions=3, landmarks_range=64, bbox_size_multiplier=1.5,
                     subset=[0, 1, 3], left_rotation_idx=0, right_rotation_idx=2)  # fmt: skip
    b.add("Landmarks2TransformMatrix", [points], by_range()[None], custom_options=fields)
    fields = options(subset_idxs=[0, 1, 2], left_rotation_idx=1, right_rotation_idx=3, target_rotation_radians=0.4,
                     output_height=12, output_width=9, scale_x=1.25, scale_y=0.8)  # fmt: skip
    b.add("Landmarks2TransformMatrix", [three], by_scale()[None], custom_options=fields, version=2)
    image = b.graph.input(IMAGE.shape)
    fields = options(mode="bilinear", output_size=[4, 6])
    b.add("TransformTensor", [image, matrix], sampled(IMAGE, moved((4, 6), 0), True), custom_options=fields)
    return b, [POINTS.reshape(1, 1, 1, 12), POINTS[None], MATRIX[None], IMAGE]


@pytest.mark.parametrize("make", [images, pytest.param(landmarks, marks=pytest.mark.slow)])
def test_operators_follow_their_definitions(
    make: Callable[[], tuple[Builder, list[np.ndarray]]], tmp_path: Path
) -> None:
    b, values = make()
    path = tmp_path / "model.tflite"
    path.write_bytes(model_file(b.graph))
    names = [b.graph.tensors[index]["name"] for index in b.graph.inputs]
    found = nnefc.compile(path).run(dict(zip(names, values, strict=True)))
    for (name, mine), other in zip(found.items(), b.wanted, strict=True):
        assert mine.shape == other.shape, name
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("name", "custom", "message"),
    [
        ("MaxPoolingWithArgmax2D", struct(1, 2), "options are too short"),
        ("MaxPoolingWithArgmax2D", struct(1, 0, 2, 2, 2, 0), "options are not known"),
        ("TransformTensor", options(mode="nearest", output_size=[4, 6]), "interpolation 'nearest'"),
        ("TransformTensor", options(output_size=[4]), r"the size of the result is \[4\]"),
        ("Landmarks2TransformMatrix", options(left_rotation_idx=99), "names landmarks"),
    ],
)
def test_options_that_mean_nothing_are_refused(name: str, custom: np.ndarray, message: str, tmp_path: Path) -> None:
    graph = Graph()
    shape = (1, 1, 1, 12) if name.startswith("Landmarks") else IMAGE.shape
    inputs = [graph.input(shape), *([graph.input((1, 4, 4))] if name == "TransformTensor" else [])]
    graph.add(name, inputs, [graph.output(()) for _ in range(2)], custom_options=custom)
    path = tmp_path / "model.tflite"
    path.write_bytes(model_file(graph))
    with pytest.raises(CompileError, match=message):
        load(path)
