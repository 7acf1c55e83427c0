"""Convolutions by tensor cores in blocks of channels: results of whole networks, layout conversions, instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from emulated_networks import differences, on_cuda
from small_networks import Net

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler

TOLERANCES = {"fp16": 4e-3, "bf16": 3e-2, "tf32": 4e-3}  # of an output's largest value


def conv(net: Net, x: str, inputs: int, outputs: int, *kernel: int, pad: int = 0, **attributes: Any) -> str:
    """A convolution with a bias; groups, strides and dilations as ONNX names them."""
    weight = net.weight(outputs, inputs // attributes.get("group", 1), *kernel)
    attributes.setdefault("pads", [pad] * (2 * len(kernel)))
    return net.do("Conv", x, weight, net.weight(outputs, scale=0.1), **attributes)


def residual(net: Net) -> list[str]:
    """Channels that fill no block, a residual, strides, dilation, uneven padding, joined channels, pools, means."""
    x = net.floats(3, 5, 17, 13)
    a = net.do("Relu", conv(net, x, 5, 13, 3, 3, pad=1))
    b = conv(net, a, 13, 13, 3, 3, pad=2, dilations=[2, 2])
    s = net.do("Relu", net.do("Add", a, b))
    strided = conv(net, s, 13, 24, 2, 3, strides=[2, 1], pads=[0, 0, 1, 2])
    joined = net.do("Concat", s, b, conv(net, s, 13, 3, 1, 1), axis=1)
    e = conv(net, joined, 29, 16, 3, 3, pad=1)
    largest = net.do("MaxPool", e, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    average = net.do("AveragePool", e, kernel_shape=[2, 3], strides=[1, 2], pads=[0, 1, 0, 1])
    excited = net.do("Sigmoid", conv(net, net.do("GlobalAveragePool", e), 16, 16, 1, 1))
    return [strided, largest, conv(net, average, 16, 8, 1, 1), net.do("Mul", e, excited)]


def grouped(net: Net) -> list[str]:
    """Groups of whole blocks, small ones, and such as fill no block; shuffled channels; depthwise, also large."""
    x = net.floats(2, 24, 9, 10)
    a = conv(net, x, 24, 24, 3, 3, pad=1, group=3)
    b = conv(net, a, 24, 24, 3, 3, pad=1, group=6)
    c = conv(net, b, 24, 26, 3, 3, pad=1, group=2)
    parts = net.do("Reshape", a, net.constant(np.array([2, 3, 8, 9, 10], np.int64)))
    swapped = net.do("Transpose", parts, perm=[0, 2, 1, 3, 4])
    shuffled = net.do("Reshape", swapped, net.constant(np.array([2, 24, 9, 10], np.int64)))
    d = conv(net, shuffled, 24, 24, 3, 3, pad=1, group=24)
    large = conv(net, conv(net, net.floats(1, 3, 37, 31), 3, 16, 1, 1), 16, 16, 11, 13, pad=6, group=16, strides=[2, 1])
    return [c, conv(net, d, 24, 8, 1, 1), conv(net, d, 24, 48, 3, 3, group=24), large]


def projected(net: Net) -> list[str]:
    """Residual blocks that end in the sum of two convolutions of one pixel, of which one is strided, or none."""
    x = net.do("Relu", conv(net, net.floats(2, 3, 15, 18), 3, 16, 3, 3, pad=1))
    a = net.do("Relu", conv(net, conv(net, x, 16, 13, 1, 1), 13, 12, 3, 3, pad=1, strides=[2, 2]))
    y = net.do("Relu", net.do("Add", conv(net, a, 12, 40, 1, 1), conv(net, x, 16, 40, 1, 1, strides=[2, 2])))
    b = net.do("Relu", conv(net, y, 40, 20, 3, 3, pad=1))
    z = net.do("Add", net.do("Conv", y, net.weight(24, 40, 1, 1)), conv(net, b, 20, 24, 1, 1))
    kept = conv(net, z, 24, 8, 1, 1)
    return [net.do("Relu", net.do("Add", kept, conv(net, z, 24, 8, 1, 1))), kept]


def transposed(net: Net) -> list[str]:
    """Transposed convolutions, resizing, and tensors of one and three spatial dimensions."""
    x = conv(net, net.floats(2, 3, 7, 9), 3, 13, 3, 3, pad=1)
    window = {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}
    a = net.do("ConvTranspose", x, net.weight(13, 10, 3, 3), net.weight(10, scale=0.1), **window)
    b = net.do("ConvTranspose", a, net.weight(10, 6, 2, 2), strides=[2, 2])
    c = net.do("ConvTranspose", x, net.weight(13, 12, 3, 3), pads=[1] * 4)
    resized = net.do("Resize", a, "", net.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    line = conv(net, conv(net, net.floats(2, 6, 31), 6, 24, 5, pad=2, strides=[2]), 24, 9, 3, dilations=[3])
    cube = conv(net, conv(net, net.floats(1, 2, 5, 6, 7), 2, 9, 3, 3, 3, pad=1), 9, 8, 1, 2, 3, strides=[1, 2, 1])
    return [conv(net, b, 6, 1, 1, 1), net.do("Relu", c), conv(net, resized, 10, 8, 3, 3), line, cube]


def written(build: Callable[[Net], list[str]], path: Path) -> Net:
    net = Net(seed=1)
    path.write_bytes(net.model(build(net)).SerializeToString())
    return net


@pytest.mark.parametrize(
    ("build", "precision"),
    [
        (residual, "fp16"),
        (projected, "fp16"),
        *(
            pytest.param(build, precision, marks=pytest.mark.slow)
            for build, precision in (
                (grouped, "fp16"),
                (transposed, "fp16"),
                (projected, "tf32"),
                (residual, "bf16"),
                (residual, "tf32"),
                (grouped, "tf32"),
                (transposed, "tf32"),
            )
        ),
    ],
)
def test_networks_give_what_onnxruntime_gives(
    build: Callable[[Net], list[str]], precision: str, tmp_path: Path
) -> None:
    net = written(build, tmp_path / "network.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = dict(zip(names, session.run(None, net.inputs), strict=True))
    with on_cuda(checks=True, precision=precision) as made, nnefc.compile(tmp_path / "network.onnx").load() as library:
        found = library.run(net.inputs)
    tolerance = TOLERANCES[precision]
    assert not [line for name in wanted for line in differences(name, found[name], wanted[name], tolerance)]
    source = code_of(made[-1]).kernels.source
    assert "mma.sync" in source
    assert not [name for name, text in kernels_of(source).items() if has_narrow_tiles(text)]


def code_of(artifact: Artifact) -> CudaCode:
    assert isinstance(artifact.code, CudaCode)
    return artifact.code


def kernels_of(source: str) -> dict[str, str]:
    """The text of each kernel that multiplies by tensor cores."""
    kernels = re.findall(r"__global__[^;{]*?(\w+)\([^)]*\) \{\n(.*?)\n\}", source, re.DOTALL)
    return {name: text for name, text in kernels if "nnefc_multiply_" in text}


def has_narrow_tiles(text: str) -> bool:
    """Whether elements of 16 bits get into shared memory one by one."""
    return re.search(r"^\s+(left|right)_tile_ptr\[.*\] = ", text, re.MULTILINE) is not None


def test_the_layout_changes_at_the_ends_of_a_network_alone(tmp_path: Path) -> None:
    def network(net: Net) -> list[str]:
        x = net.convolution(net.floats(1, 3, 16, 16), 3, 16, 7, stride=2)
        x = net.do("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        y = net.convolution(net.convolution(x, 16, 24, groups=8), 24, 16, relu=False)
        y = net.do("Mul", y, net.do("Sigmoid", net.convolution(net.do("GlobalAveragePool", y), 16, 16, 1)))
        x = net.do("Relu", net.do("Add", net.convolution(x, 16, 16, groups=16), y))
        return [net.classified(x, 16), x]

    written(network, tmp_path / "network.onnx")
    with on_cuda(precision="fp16"):
        artifact = nnefc.compile(tmp_path / "network.onnx")
    names = [launch.kernel for launch in code_of(artifact).kernels.launches]
    assert [name for name in names if "block" in name] == ["fused_cast_block_kernel", "unblock_kernel"]


def test_two_convolutions_of_a_pixel_are_one_sum(tmp_path: Path) -> None:
    written(projected, tmp_path / "network.onnx")
    with on_cuda(precision="fp16"):
        artifact = nnefc.compile(tmp_path / "network.onnx")
    products = [name for name in kernels_of(code_of(artifact).kernels.source) if not name.endswith("_1")]
    launched = [launch.kernel for launch in code_of(artifact).launches_of_run]
    assert sum(launched.count(name) for name in products) == 8  # of 10 convolutions; one of two that are added is kept


def test_a_convolution_of_few_channels_stays_row_major(tmp_path: Path) -> None:
    written(lambda net: [conv(net, net.floats(1, 2, 16, 16), 2, 3, 3, 3)], tmp_path / "network.onnx")
    with on_cuda(precision="fp16"):
        artifact = nnefc.compile(tmp_path / "network.onnx")
    assert not [launch for launch in code_of(artifact).kernels.launches if "block" in launch.kernel]


@pytest.mark.parametrize("size", [14])
def test_main_loops_move_sixteen_bytes_at_once(size: int, tmp_path: Path) -> None:
    """As the bottleneck of a ResNet, at a size of its own."""

    def network(net: Net) -> list[str]:
        x = net.convolution(net.floats(1, 3, 2 * size, 2 * size), 3, 64, 7, stride=2)
        y = net.convolution(net.convolution(x, 64, 64, 1), 64, 64)
        y = net.convolution(net.convolution(y, 64, 64, groups=64), 64, 128, 1, relu=False)
        x = net.do("Relu", net.do("Add", y, net.convolution(x, 64, 128, 1, relu=False)))
        return [net.convolution(x, 128, 64, stride=2)]

    written(network, tmp_path / "network.onnx")
    with on_cuda(precision="fp16"):
        artifact = nnefc.compile(tmp_path / "network.onnx")
    source = code_of(artifact).kernels.source
    products = kernels_of(source)
    assert len(products) == 5  # the projection and the product that it is added to are one
    functions = re.split(r"\.visible \.entry ", find_compiler().ptx(source, 80).decode())[1:]
    for function in functions:
        if "mma.sync" in function:
            assert "cp.async.cg.shared.global" in function
            assert not re.search(r"\b(ld|st)\.(global|shared)(?!\S*\.v\d)\S*\.[bu]16\b", function)
        if "depthwise" in function[:100]:
            assert re.search(r"ld\.global\.nc\.v4", function)
    for usage in compile_image(source, (80,)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
