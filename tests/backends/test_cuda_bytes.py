"""Quantized networks by tensor cores: results of whole networks within a step of onnxruntime's, and instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from emulated_networks import agree, on_cuda
from small_networks import Net
from tflite_files import Graph, model_file

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import find_compiler


class ByteNet(Net):
    """A model of quantized tensors, as quantizers write it: `DequantizeLinear`, an operation, `QuantizeLinear`."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._random = np.random.default_rng(seed)

    def quantized(self, x: str, scale: float, zero: int, dtype: type[np.integer[Any]]) -> str:
        """The real values of `x` rounded to a grid."""
        grid = self.constant(np.float32(scale)), self.constant(dtype(zero))
        return self.do("DequantizeLinear", self.do("QuantizeLinear", x, *grid), *grid)

    def weights(self, *shape: int, axis: int = 0) -> str:
        """Weights of int8 with a scale for each output channel."""
        data = self.constant(self._random.integers(-127, 128, shape).astype(np.int8))
        size = 1 / (70 * np.sqrt(np.prod(shape) / shape[axis]))
        scales = self.constant((size * self._random.uniform(0.7, 1.4, shape[axis])).astype(np.float32))
        return self.do("DequantizeLinear", data, scales, self.constant(np.zeros(shape[axis], np.int8)), axis=axis)

    def conv(self, x: str, *shape: int, relu: bool = True, zero: int = -128, **attributes: Any) -> str:
        """A convolution with a bias in int8."""
        attributes.setdefault("pads", [size // 2 for size in shape[2:]] * 2)
        made = self.do("Conv", x, self.weights(*shape), self.weight(shape[0], scale=0.2), **attributes)
        return self.quantized(self.do("Relu", made) if relu else made, 0.0307, zero, np.int8)


def convolutions(net: ByteNet) -> list[str]:
    """Images, channels that fill no block, padding with zero points, strides, dilation, groups, residuals, pools."""
    x = net.quantized(net.floats(2, 3, 19, 15), 0.02, 117, np.uint8)
    a = net.conv(x, 20, 3, 5, 5, strides=[2, 2])
    b = net.conv(a, 20, 20, 3, 3, zero=3, relu=False)
    s = net.quantized(net.do("Relu", net.do("Add", a, b)), 0.0419, -100, np.int8)
    c = net.conv(s, 36, 20, 3, 3, dilations=[2, 2], pads=[2, 1, 0, 2], zero=-7, relu=False)
    d = net.conv(c, 36, 1, 3, 3, group=36)
    e = net.conv(d, 48, 12, 3, 3, group=3, strides=[2, 1])
    pooled = net.do("MaxPool", e, kernel_shape=[2, 2], strides=[2, 2])
    joined = net.do("Concat", pooled, pooled, axis=1)
    mean = net.quantized(net.do("GlobalAveragePool", net.conv(joined, 40, 96, 1, 1)), 0.0193, -128, np.int8)
    y = net.do("Gemm", net.do("Flatten", mean), net.weights(11, 40), transB=1)
    return [c, joined, net.quantized(y, 0.03, 2, np.int8)]


def products(net: ByteNet) -> list[str]:
    """Rows, columns and depths that fill no tile, two types of bytes, products of two tensors that are computed."""
    x = net.quantized(net.floats(2, 13, 45), 0.02, 131, np.uint8)
    h = net.do("Add", net.do("MatMul", x, net.weights(45, 64, axis=1)), net.weight(64, scale=0.2))
    h = net.quantized(net.do("Relu", h), 0.03, -128, np.int8)
    q, k = (
        net.do("Transpose", net.do("Reshape", part, net.constant(np.array([2, 13, 2, 32]))), perm=perm)
        for part, perm in (
            (net.quantized(net.do("MatMul", h, net.weights(64, 64, axis=1)), 0.03, 4, np.int8), [0, 2, 1, 3]),
            (net.quantized(net.do("MatMul", h, net.weights(64, 64, axis=1)), 0.03, 0, np.int8), [0, 2, 3, 1]),
        )
    )
    scores = net.quantized(net.do("MatMul", q, k), 0.1, 1, np.int8)
    small = net.quantized(net.do("MatMul", h, net.weights(64, 9, axis=1)), 0.05, 120, np.uint8)
    return [h, scores, small]


def integers(net: ByteNet) -> list[str]:
    """Operators of integers: sums in int32 of a convolution and of a product."""
    x = net.given(np.random.default_rng(2).integers(0, 256, (1, 24, 9, 8)).astype(np.uint8))
    w = net.constant(np.random.default_rng(3).integers(-128, 128, (17, 24, 3, 3)).astype(np.int8))
    a = net.given(np.random.default_rng(4).integers(-128, 128, (10, 48)).astype(np.int8))
    b = net.constant(np.random.default_rng(5).integers(0, 256, (48, 21)).astype(np.uint8))
    sums = net.do("ConvInteger", x, w, net.constant(np.uint8(9)), pads=[1, 0, 1, 2])
    return [sums, net.do("MatMulInteger", a, b, net.constant(np.int8(-3)))]


def everything(net: ByteNet) -> list[str]:
    return [*convolutions(net), *products(net), *integers(net)]


@dataclass(frozen=True)
class Case:
    """What a network gives on the emulator, what it gives in onnxruntime, and its code."""

    found: Mapping[str, np.ndarray]
    wanted: Mapping[str, np.ndarray]
    code: CudaCode


def computed(build: Callable[[ByteNet], list[str]], path: Path, precision: str) -> Case:
    net = written(build, path)
    options = onnxruntime.SessionOptions()  # in floats: its kernels of bytes saturate on some processors
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = dict(zip(names, session.run(None, net.inputs), strict=True))
    with on_cuda(checks=True, precision=precision) as made, nnefc.compile(path).load() as library:
        found = dict(library.run(net.inputs))
    return Case(found, wanted, code_of(made[-1]))


def written(build: Callable[[ByteNet], list[str]], path: Path) -> ByteNet:
    net = ByteNet(seed=1)
    path.write_bytes(net.model(build(net)).SerializeToString())
    return net


def code_of(artifact: Artifact) -> CudaCode:
    assert isinstance(artifact.code, CudaCode)
    return artifact.code


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return computed(everything, tmp_path_factory.mktemp("bytes") / "network.onnx", "fp32")


def steps(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Differences in steps of the quantization: the smallest difference of two values."""
    values = np.unique(wanted)
    step = np.diff(values).min() if wanted.dtype.kind == "f" else 1
    return np.abs(found.astype(np.float64) - wanted) / step


def check(case: Case) -> None:
    """Sums of integers are exact; few quantized results differ, by a step: float32 are rounded in another order."""
    for name, value in case.wanted.items():
        assert case.found[name].dtype == value.dtype
        different = steps(case.found[name], value)
        if value.dtype == np.int32:
            assert not different.any(), name
        assert different.max() < 1.01, name
        assert np.mean(different > 0.01) < 0.02, name


def test_networks_give_what_onnxruntime_gives(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_networks_of_bytes_and_floats_give_what_onnxruntime_gives(precision: str, tmp_path: Path) -> None:
    """Convolutions of floats before and behind those of bytes have blocks of as many channels."""

    def mixed(net: ByteNet) -> list[str]:
        x = net.convolution(net.floats(1, 3, 14, 12), 3, 20)
        y = net.conv(net.quantized(x, 0.03, -128, np.int8), 24, 20, 3, 3)
        return [*convolutions(net), net.convolution(y, 24, 9)]

    case = computed(mixed, tmp_path / "network.onnx", precision)
    *others, last = case.wanted
    assert np.abs(case.found[last] - case.wanted[last]).max() < 0.03 * np.abs(case.wanted[last]).max()
    check(replace(case, wanted={name: case.wanted[name] for name in others}))


@pytest.mark.slow
def test_main_loops_multiply_bytes_and_copy_sixteen_of_them(case: Case) -> None:
    source = case.code.kernels.source
    functions = re.split(r"\.visible \.entry ", find_compiler().ptx(source, 80).decode())[1:]
    products = [function for function in functions if "mma.sync" in function]
    assert len(products) == len({name for name in kernels_of(source) if "nnefc_multiply_" in kernels_of(source)[name]})
    for function in products:
        assert "m16n8k32.row.col.s32" in function and "cp.async.cg.shared.global" in function
        assert not re.search(r"\bst\.shared(?!\S*\.v\d)\S*\.[bsu]8\b", function)
        loop = function[function.index("cp.async.wait_group") : function.rindex("mma.sync")]
        assert not re.search(r"\bld\.(global|shared)\S*\.[bsu]8\b", loop)


def kernels_of(source: str) -> dict[str, str]:
    """The text of each kernel."""
    return dict(re.findall(r"__global__[^;{]*?(\w+)\([^)]*\) \{\n(.*?)\n\}", source, re.DOTALL))


def stored(text: str) -> str:
    """What a kernel's statements write to."""
    return "\n".join(line.partition(" = ")[0] for line in text.splitlines() if " = " in line)


def test_each_contraction_is_one_launch_and_padding_none(case: Case) -> None:
    launched = [launch.kernel for launch in case.code.launches_of_run]
    texts = kernels_of(case.code.kernels.source)
    products = [name for name in launched if "nnefc_multiply_" in texts[name]]
    assert len(products) == 5 + 5 + 2  # convolutions but for the depthwise one, products of many rows, both of integers
    assert all("nnefc_copy" in texts[name] and "tiles_ptr[" not in stored(texts[name]) for name in products)
    padded = [name for name in launched if "pad" in name]
    assert len(padded) == 2  # rows of products that 16 bytes do not divide


@pytest.mark.slow
def test_tflite_gives_the_bits_of_this_processor(tmp_path: Path) -> None:
    """Fixed-point requantization; channels are last in the file."""
    rng, graph = np.random.default_rng(7), Graph()

    def conv(x: int, inputs: int, outputs: int, size: tuple[int, int], stride: int) -> int:
        w = rng.integers(-90, 90, (outputs, 3, 3, inputs), dtype=np.int8)
        scales = [float(scale) for scale in rng.uniform(0.002, 0.01, outputs)]
        bias = rng.integers(-900, 900, outputs, dtype=np.int32)
        operands = [graph.tensor(w.shape, "int8", w, scale=scales), graph.tensor(bias.shape, "int32", bias)]
        y = graph.tensor((1, *size, outputs), "int8", scale=0.2, zero=-5)
        fields = {"stride_w": stride, "stride_h": stride, "fused_activation_function": 1}
        graph.add("CONV_2D", [x, *operands], [y], "Conv2DOptions", **fields)
        return y

    x = graph.input((1, 9, 10, 3), "int8", scale=0.1, zero=3)
    y = conv(conv(x, 3, 36, (9, 10), 1), 36, 20, (5, 5), 2)
    graph.add("QUANTIZE", [y], [graph.output((1, 5, 5, 20), "int8", scale=0.2, zero=1)])
    (tmp_path / "model.tflite").write_bytes(model_file(graph))
    given = {"t0": rng.integers(-128, 128, (1, 9, 10, 3), dtype=np.int8)}
    artifact = agree(tmp_path / "model.tflite", given, checks=True)
    assert "m16n8k32.row.col.s32" in code_of(artifact).kernels.source


def test_older_devices_and_exact_results_stay_with_floats(tmp_path: Path) -> None:
    def product(net: ByteNet) -> list[str]:
        x = net.quantized(net.floats(16, 32), 0.02, 0, np.int8)
        return [net.quantized(net.do("MatMul", x, net.weights(32, 16, axis=1)), 0.03, 0, np.int8)]

    written(product, tmp_path / "network.onnx")
    for options, architectures in (({}, (75, 80)), ({"strict": True}, (80,))):
        with on_cuda(architectures=architectures):
            artifact = nnefc.compile(tmp_path / "network.onnx", **options)
        assert "s32.s8" not in code_of(artifact).kernels.source
