"""Networks of floats of 8 bits by tensor cores: results of whole networks, and where their kernels quantize."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulated_networks import on_cuda
from small_networks import Net

import nnefc
from nnefc.targets.codegen.cuda.code import CudaCode

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


class Float8Net(Net):
    """A model of quantized tensors, as exporters write it: `QuantizeLinear`, `DequantizeLinear`, an operation."""

    opset = 21

    def quantized(self, x: str, scale: float, dtype: type[Any] = E4M3) -> str:
        grid = self.constant(np.float32(scale)), self.constant(np.zeros((), dtype))
        return self.do("DequantizeLinear", self.do("QuantizeLinear", x, *grid), *grid)

    def weights(self, *shape: int, axis: int = 0, dtype: type[Any] = E4M3) -> str:
        """Weights with a scale for each output channel."""
        data = self.constant((self._rng.standard_normal(shape) * 20).astype(dtype))
        size = 1 / (20 * np.sqrt(np.prod(shape) / shape[axis]))
        scales = self.constant((size * self._rng.uniform(0.7, 1.4, shape[axis])).astype(np.float32))
        return self.do("DequantizeLinear", data, scales, self.constant(np.zeros(shape[axis], dtype)), axis=axis)


def products(net: Float8Net) -> list[str]:
    """Depths that 16 bytes do not divide, both types, a bias, limits, numbers beyond the type and NaN, codes."""
    given = net._rng.standard_normal((12, 48)).astype(np.float32)
    given[3, 5], given[7, 1], given[8, 2], given[9] = np.nan, np.inf, -1e30, 1e4
    large = net.do("MatMul", net.quantized(net.given(given), 0.01), net.weights(48, 32, axis=1))
    x = net.quantized(net.floats(20, 45), 0.01)
    h = net.do("Add", net.do("MatMul", x, net.weights(45, 64, axis=1)), net.weight(64, scale=0.2))
    a = net.quantized(net.do("Relu", h), 0.02)
    b = net.quantized(net.do("Gemm", a, net.weights(24, 64, dtype=E5M2), net.weight(24), transB=1), 0.01, E5M2)
    scores = net.quantized(net.do("MatMul", a, net.do("Transpose", a, perm=[1, 0])), 0.1)
    grid = net.constant(np.float32(0.05)), net.constant(np.zeros((), E4M3))
    codes = net.do("QuantizeLinear", net.do("MatMul", b, net.weights(24, 16, axis=1)), *grid)
    moved = net.do("DequantizeLinear", net.do("Transpose", codes, perm=[1, 0]), *grid)
    return [net.quantized(large, 0.0001, E5M2), a, b, scores, net.do("MatMul", moved, net.weights(20, 8, axis=1))]


def convolutions(net: Float8Net) -> list[str]:
    """Images, channels that fill no block, strides, groups, a residual, depthwise and transposed ones, padding."""
    x = net.quantized(net.floats(1, 3, 8, 7), 0.01)
    first = net.do("Conv", x, net.weights(20, 3, 3, 3), net.weight(20, scale=0.2), pads=[1] * 4)
    a = net.quantized(net.do("Relu", first), 0.01)
    b = net.do("Conv", a, net.weights(20, 20, 3, 3), net.weight(20, scale=0.2), pads=[1] * 4)
    s = net.quantized(net.do("Relu", net.do("Add", a, b)), 0.02)
    d = net.quantized(net.do("Conv", s, net.weights(20, 1, 3, 3), group=20, pads=[1] * 4), 0.01)
    e = net.quantized(net.do("Conv", d, net.weights(32, 20, 1, 1), strides=[2, 2]), 0.01)
    g = net.quantized(net.do("Conv", e, net.weights(32, 16, 3, 3, dtype=E5M2), group=2, pads=[0, 1, 2, 1]), 0.02)
    t = net.quantized(net.do("ConvTranspose", g, net.weights(32, 16, 2, 2, axis=1), strides=[2, 2]), 0.02)
    return [a, s, e, net.do("MaxPool", net.do("Concat", t, t, axis=1), kernel_shape=[2, 2])]


def block(net: Float8Net) -> list[str]:
    """A convolution, a residual, and a product of its channels."""
    x = net.quantized(net.floats(1, 24, 6, 5), 0.01)
    a = net.do("Conv", x, net.weights(24, 24, 3, 3), net.weight(24, scale=0.2), pads=[1] * 4)
    s = net.quantized(net.do("Relu", net.do("Add", a, x)), 0.02)
    rows = net.do("Reshape", s, net.constant(np.array([24, 30])))
    return [s, net.quantized(net.do("MatMul", rows, net.weights(30, 16, axis=1, dtype=E5M2)), 0.02, E5M2)]


@pytest.mark.parametrize(
    ("build", "architecture", "precision", "contractions"),
    [
        (block, 89, "fp32", 2),
        pytest.param(products, 89, "fp32", 6, marks=pytest.mark.slow),
        pytest.param(convolutions, 90, "fp16", 5, marks=pytest.mark.slow),
        pytest.param(products, 90, "bf16", 6, marks=pytest.mark.slow),
        pytest.param(convolutions, 89, "fp32", 5, marks=pytest.mark.slow),
    ],
)
def test_networks_give_what_processors_give(
    build: Callable[[Float8Net], list[str]], architecture: int, precision: str, contractions: int, tmp_path: Path
) -> None:
    """Quantized results may differ by a step, where float32 are rounded in another order: none does here."""
    inputs = written(build, tmp_path / "network.onnx")
    with nnefc.compile(tmp_path / "network.onnx").load(threads=1) as library:
        wanted = dict(library.run(inputs))
    with (
        on_cuda(checks=True, precision=precision, architectures=(architecture,)) as made,
        nnefc.compile(tmp_path / "network.onnx").load() as library,
    ):
        found = dict(library.run(inputs))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=4e-6 * np.nanmax(np.abs(value)), err_msg=name)
    code = made[-1].code
    assert isinstance(code, CudaCode)
    texts = {text.partition("_kernel(")[0].split()[-1]: text for text in code.kernels.source.split("__global__")[1:]}
    multiplying = [text for text in texts.values() if "nnefc_multiply_e" in text]
    assert len(multiplying) == contractions
    assert sum("nnefc_to_e" in text for text in multiplying) >= contractions - 1


def written(build: Callable[[Float8Net], list[str]], path: Path) -> dict[str, np.ndarray]:
    net = Float8Net(seed=1)
    path.write_bytes(net.model(build(net)).SerializeToString())
    return net.inputs


def test_older_devices_and_exact_results_stay_with_floats(tmp_path: Path) -> None:
    def product(net: Float8Net) -> list[str]:
        return [net.do("MatMul", net.quantized(net.floats(16, 32), 0.02), net.weights(32, 16, axis=1))]

    written(product, tmp_path / "network.onnx")
    for options, architectures in (({}, (80, 89)), ({"strict": True}, (89,))):
        with on_cuda(architectures=architectures) as made:
            nnefc.compile(tmp_path / "network.onnx", **options)
        code = made[-1].code
        assert isinstance(code, CudaCode)
        assert "e4m3" not in code.kernels.source


def random_network(net: Float8Net, rng: np.random.Generator) -> list[str]:
    """Convolutions of random windows, residuals, pools and concatenations, and a product of what is left."""

    def stored(y: str) -> str:
        return net.quantized(y, float(rng.choice([0.01, 0.02, 0.05])), E4M3 if rng.random() < 0.7 else E5M2)

    def convolution(x: str, channels: int, groups: int) -> tuple[str, int]:
        outputs = groups * int(rng.integers(1, 40 if groups == 1 else 3))
        size, stride, dilation = int(rng.choice([1, 1, 3])), int(rng.choice([1, 1, 2])), int(rng.choice([1, 1, 2]))
        weights = net.weights(outputs, channels // groups, size, size, dtype=E4M3 if rng.random() < 0.7 else E5M2)
        window = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [(size - 1) * dilation // 2] * 4}
        bias = [net.weight(outputs, scale=0.2)] * (rng.random() < 0.7)
        return net.do("Conv", x, weights, *bias, group=groups, **window), outputs

    channels = int(rng.integers(1, 40))
    x = stored(net.floats(3, channels, int(rng.integers(5, 14)), int(rng.integers(5, 14))))
    made = []
    for _ in range(int(rng.integers(2, 6))):
        match rng.choice(["dense", "dense", "grouped", "depthwise", "pool", "concat", "residual"]):
            case "dense":
                y, channels = convolution(x, channels, 1)
            case "grouped":
                y, channels = convolution(x, channels, next(g for g in (4, 3, 2, 1) if channels % g == 0))
            case "depthwise":
                y, channels = convolution(x, channels, channels)
            case "pool":
                y = net.do("MaxPool", x, kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])
            case "concat":
                y, channels = net.do("Concat", x, x, axis=1), 2 * channels
            case _:
                weights = net.weights(channels, channels, 3, 3)
                y = net.do("Add", net.do("Conv", x, weights, pads=[1] * 4), x)
        x = stored(net.do("Relu", y) if rng.random() < 0.5 else y)
        made.append(x)
    flat = net.do("Flatten", stored(net.do("GlobalAveragePool", x)))
    return [*made, net.do("MatMul", flat, net.weights(channels, int(rng.integers(8, 40)), axis=1))]


def check_random_network(seed: int, architecture: int, precision: str, path: Path) -> None:
    """With any number of images, as on processors, but for few elements that another order of a sum rounds to the
    next number."""
    rng = np.random.default_rng(seed)
    net = Float8Net(seed)
    model = net.model(random_network(net, rng))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    path.write_bytes(model.SerializeToString())
    ((name, images),) = net.inputs.items()
    runs = [{name: images[:count]} for count in (3, 1, 0)]
    with nnefc.compile(path).load(threads=1) as library:
        wanted = [dict(library.run(run)) for run in runs]
    with on_cuda(precision=precision, architectures=(architecture,)), nnefc.compile(path).load() as library:
        found = [dict(library.run(run)) for run in runs]
    for one, other in zip(found, wanted, strict=True):
        for output, value in other.items():
            assert one[output].shape == value.shape
            apart = np.abs(one[output] - value)
            largest = np.abs(value).max(initial=0)
            if value.size and value.ndim == 4:  # else one step of a mean is seen in a whole row
                assert np.mean(apart > 1e-5 * largest) <= 0.05, (seed, output)
            assert apart.max(initial=0) <= 0.2 * largest, (seed, output)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "architecture", "precision"), [(1, 89, "fp32"), (2, 90, "fp16"), (3, 100, "bf16")])
def test_random_networks(seed: int, architecture: int, precision: str, tmp_path: Path) -> None:
    check_random_network(seed, architecture, precision, tmp_path / "network.onnx")
