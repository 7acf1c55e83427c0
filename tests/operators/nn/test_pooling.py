"""Windows in which something is not a number: as onnxruntime has them in ONNX, as PyTorch in PNNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from pnnx_files import annotation, operator_network, write_network

import nnefc

RNG = np.random.default_rng(11)


def holed(*shape: int) -> np.ndarray:
    """Reals of which a third is not a number, and some are infinite, or equal."""
    x = RNG.integers(-4, 5, shape).astype(np.float32)
    x[RNG.random(shape) < 0.1] = -np.inf
    x[RNG.random(shape) < 0.33] = np.nan
    return x


def windows(x: np.ndarray, size: int, stride: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """The elements of windows over the last two dimensions, -inf outside, and their numbers in the channel, -1
    outside."""
    around = [*[(0, 0)] * (x.ndim - 2), (pad, pad), (pad, pad)]
    positions = np.broadcast_to(np.arange(np.prod(x.shape[-2:])).reshape(x.shape[-2:]), x.shape)
    made = []
    for array, outside in ((x, -np.inf), (positions, -1)):
        padded = np.pad(array, around, constant_values=outside)
        elements = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (-2, -1))[
            ..., ::stride, ::stride, :, :
        ]
        made.append(elements.reshape(*elements.shape[:-2], -1))
    return made[0], made[1]


def pytorch(x: np.ndarray, size: int, stride: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """The maxima and their positions: an element takes over that is larger or not a number, in the order of the
    window."""
    elements, positions = windows(x, size, stride, pad)
    value, position = np.full(elements.shape[:-1], -np.inf, x.dtype), np.full(elements.shape[:-1], -1)
    for element, at in zip(np.moveaxis(elements, -1, 0), np.moveaxis(positions, -1, 0), strict=True):
        take = (at >= 0) & ((position < 0) | (element > value) | np.isnan(element))
        value, position = np.where(take, element, value), np.where(take, at, position)
    return value, position


WINDOW = "ceil_mode=False dilation=(1,1) kernel_size=(3,3) padding=(1,1) stride=(2,2)"


def test_nan_wins_in_pnnx_and_its_last_position_counts(tmp_path: Path) -> None:
    x = holed(2, 5, 9, 11)
    path = operator_network(tmp_path, "F.max_pool2d", [x], f"{WINDOW} return_indices=True", outputs=2)
    value, position = nnefc.compile(path).load(threads=1)(x)
    wanted = pytorch(x, 3, 2, 1)
    np.testing.assert_array_equal(value, wanted[0])
    np.testing.assert_array_equal(position, wanted[1])


def test_nan_wins_in_blocks_of_channels(tmp_path: Path) -> None:
    """Behind a convolution, whose results lie in blocks; and in the parts of adaptive pools, even and uneven ones."""
    weight, bias = np.ones((32, 3, 1, 1), np.float32), np.zeros(32, np.float32)
    tensors = " ".join(f"@{name}={annotation(value)}" for name, value in (("bias", bias), ("weight", weight)))
    lines = [
        "pnnx.Input in0 0 1 0 #0=(1,3,8,12)f32",
        "nn.Conv2d conv 1 1 0 1 bias=True dilation=(1,1) groups=1 in_channels=3 kernel_size=(1,1) out_channels=32 "
        f"padding=(0,0) padding_mode=zeros stride=(1,1) {tensors}",
        f"nn.MaxPool2d a 1 1 1 2 {WINDOW} return_indices=False",
        "F.adaptive_max_pool2d b 1 1 1 3 output_size=(4,3)",
        "F.adaptive_max_pool2d c 1 1 1 4 output_size=(3,5)",
        *(f"pnnx.Output out{i} 1 0 {i + 2}" for i in range(3)),
    ]
    path = write_network(tmp_path, lines, {"conv.weight": weight, "conv.bias": bias})
    x = RNG.integers(-4, 5, (1, 3, 8, 12)).astype(np.float32)
    x[RNG.random(x.shape) < 0.04] = np.nan
    made = np.repeat(x.sum(1, keepdims=True), 32, axis=1)
    a, b, c = nnefc.compile(path).load(threads=1)(x)
    np.testing.assert_array_equal(a, pytorch(made, 3, 2, 1)[0])
    np.testing.assert_array_equal(b, made.reshape(1, 32, 4, 2, 3, 4).max((3, 5)))
    rows, columns = ([(i * n // m, -(-(i + 1) * n // m)) for i in range(m)] for n, m in ((8, 3), (12, 5)))
    parts = [[made[:, :, r:s, p:q].max((2, 3)) for p, q in columns] for r, s in rows]
    np.testing.assert_array_equal(c, np.moveaxis(np.array(parts), (0, 1), (2, 3)))


@pytest.mark.parametrize("elem", [TensorProto.FLOAT, pytest.param(TensorProto.DOUBLE, marks=pytest.mark.slow)])
def test_positions_in_onnx_are_those_of_the_largest_number(elem: int, tmp_path: Path) -> None:
    """Where a window begins with NaN, onnxruntime's own value is none: there the values decide."""
    x = holed(2, 3, 9, 11).astype(helper.tensor_dtype_to_np_dtype(elem))
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    ends = [helper.make_tensor_value_info("y", elem, None), helper.make_tensor_value_info("i", TensorProto.INT64, None)]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", elem, x.shape)], ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    value, position = nnefc.compile(path).load(threads=1)(x)
    theirs, their_position = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(position[~np.isnan(theirs)], their_position[~np.isnan(theirs)])
    elements, positions = windows(x, 3, 2, 1)
    number = ~np.isnan(elements) & (positions >= 0)
    np.testing.assert_array_equal(x.reshape(-1)[position][number.any(-1)], value[number.any(-1)])
    positions += np.arange(6).reshape(2, 3, 1, 1, 1) * 99 * (positions >= 0)
    first = np.where(positions >= 0, positions, positions.max() + 1).min(-1)
    np.testing.assert_array_equal(position[~number.any(-1)], first[~number.any(-1)])
