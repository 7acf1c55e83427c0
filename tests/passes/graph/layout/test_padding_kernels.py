"""Convolutions with padding of dynamic size read a tensor whose interior the kernel before them writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from pass_runs import lower
from relax_programs import target

import nnefc
from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.passes.schedule.schedules import root_blocks, schedule_of

UPPER, LOWER = ({"auto_pad": f"SAME_{side}"} for side in ("UPPER", "LOWER"))
Attributes = Mapping[str, object]


def filters(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 4


def network(
    convolutions: Sequence[tuple[np.ndarray, Attributes]], channels: int, sizes: Sequence[object], behind: bool = True
) -> onnx.ModelProto:
    """Convolutions side by side, behind one of 1 × 1 pixels and its activation."""
    rank = convolutions[0][0].ndim - 2
    weights = [filters(channels, 3, *[1] * rank), *(weight for weight, _ in convolutions)]
    nodes = [helper.make_node("Conv", ["x", "w0"], ["a"]), helper.make_node("Relu", ["a"], ["b"])] if behind else []
    for n, (_, attributes) in enumerate(convolutions, 1):
        nodes.append(helper.make_node("Conv", ["b" if behind else "x", f"w{n}"], [f"y{n}"], **attributes))
    outputs = [helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, None) for n in range(1, len(weights))]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
    constants = [onnx.numpy_helper.from_array(weight, f"w{n}") for n, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "net", given, outputs, constants[0 if behind else 1 :])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


PLANES = [
    (filters(13, 10, 3, 3), {"strides": [2, 2], **UPPER}),
    (filters(10, 1, 3, 3), {"strides": [2, 2], "group": 10, **LOWER}),
    (filters(10, 1, 5, 4), {"strides": [3, 2], "group": 10, **UPPER}),
    (filters(8, 10, 2, 7), {"strides": [2, 3], **LOWER}),
    (filters(10, 2, 3, 3), {"strides": [2, 2], "group": 5, **UPPER}),
    (filters(9, 10, 4, 2), {"strides": [2, 3], **UPPER}),
]
LINES = [
    (filters(9, 10, 5), {"strides": [3], **UPPER}),
    (filters(10, 1, 4), {"strides": [2], "group": 10, **LOWER}),
]
VOLUMES = [(filters(5, 4, 3, 2, 3), {"strides": [2, 2, 2], **UPPER})]


@pytest.mark.parametrize(
    ("convolutions", "channels", "sizes", "shapes"),
    [
        (PLANES, 10, ["n", 3, "h", "w"], [*product((1, 2, 8), (1, 2, 3, 27))]),
        pytest.param(LINES, 10, ["n", 3, "w"], [(1,), (2,), (60,)], marks=pytest.mark.slow),
        pytest.param(VOLUMES, 4, [1, 3, "d", "h", "w"], [(1, 1, 1), (3, 4, 5), (4, 2, 9)], marks=pytest.mark.slow),
    ],
    ids=["planes", "lines", "volumes"],
)
def test_padding_of_dynamic_size_is_that_of_onnxruntime(
    convolutions: Sequence[tuple[np.ndarray, Attributes]],
    channels: int,
    sizes: Sequence[object],
    shapes: Sequence[tuple[int, ...]],
) -> None:
    """Also of images that are smaller than the window."""
    made = network(convolutions, channels, sizes)
    library = nnefc.compile(made).load(threads=1)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for own in shapes:
        x = np.random.default_rng(sum(own)).standard_normal((1, 3, *own)).astype(np.float32)
        wanted = session.run(None, {"x": x})
        for (_, attributes), found, right in zip(convolutions, library.run({"x": x}).values(), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5, err_msg=f"{attributes} of {own}")


def kernels_of(model: onnx.ModelProto, folder: Path) -> list[list[str]]:
    """The blocks of each scheduled kernel."""
    path, seen = folder / "net.onnx", dict[str, object]()
    path.write_bytes(model.SerializeToString())
    net = load_network(path)
    with dynamic_shape_context(net.dynamic_dimensions, net.input_shapes, net.all_data_dependent_sizes):
        lower(net, backend_of(target("llvm -mcpu=x86-64-v3")), seen.__setitem__)
    schedules = [schedule_of(kernel) for kernel in seen["schedule"].functions.values()]
    return [[str(sch.get(block).name_hint) for block in root_blocks(sch)] for sch in schedules]


@pytest.mark.parametrize("convolution", PLANES[:2], ids=["dense", "depthwise"])
def test_the_kernel_before_writes_into_padding_of_dynamic_size(
    convolution: tuple[np.ndarray, Attributes], tmp_path: Path
) -> None:
    kernels = kernels_of(network([convolution], 10, ["n", 3, "h", "w"]), tmp_path)
    assert ["pad"] not in kernels
    assert any(blocks[-1] == "pad" for blocks in kernels)
