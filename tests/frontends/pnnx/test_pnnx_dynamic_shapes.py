"""PNNX networks whose sizes the file leaves open: one library for all sizes, compared with PyTorch and NumPy."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from pnnx_files import annotation, write_network

import nnefc
from nnefc.frontends.pnnx import load
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import LARGEST

RNG = np.random.default_rng(7)


def real(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def classifier(folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A convolution, a pooling, an average of the whole image and a linear layer."""
    weights = {"conv.weight": real(8, 3, 3, 3), "conv.bias": real(8), "fc.weight": real(5, 8), "fc.bias": real(5)}
    conv, fc = (
        " ".join(f"@{part}={annotation(weights[f'{name}.{part}'])}" for part in ("bias", "weight"))
        for name in ("conv", "fc")
    )
    lines = [
        "pnnx.Input in0 0 1 0 #0=(?,3,?,?)f32",
        "nn.Conv2d conv 1 1 0 1 bias=True dilation=(1,1) groups=1 in_channels=3 kernel_size=(3,3) out_channels=8 "
        f"padding=(1,1) padding_mode=zeros stride=(2,2) {conv}",
        "nn.ReLU act 1 1 1 2",
        "nn.MaxPool2d pool 1 1 2 3 ceil_mode=False dilation=(1,1) kernel_size=(3,3) padding=(1,1) return_indices=False "
        "stride=(2,2)",
        "nn.AdaptiveAvgPool2d mean 1 1 3 4 output_size=(1,1)",
        "torch.flatten flat 1 1 4 5 end_dim=-1 start_dim=1 $input=4",
        f"nn.Linear fc 1 1 5 6 bias=True in_features=8 out_features=5 {fc}",
        "pnnx.Output out 1 0 6",
    ]
    return write_network(folder, lines, weights), weights


def test_a_network_takes_any_batch_and_image(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path, weights = classifier(tmp_path)
    given = {name: torch.from_numpy(value) for name, value in weights.items()}
    artifact = nnefc.compile(path)
    assert str(artifact.inputs[0]) == "in0: float32[in0_0, 3, in0_2, in0_3]"
    assert str(artifact.outputs[0]) == "pnnx_output_0: float32[in0_0, 5]"
    with artifact.load(threads=1) as library:
        for shape in ((1, 3, 32, 32), (3, 3, 17, 90), (2, 3, 1, 1)):
            x = torch.from_numpy(RNG.standard_normal(shape).astype(np.float32))
            made = torch.relu(torch.nn.functional.conv2d(x, given["conv.weight"], given["conv.bias"], 2, 1))
            made = torch.nn.functional.max_pool2d(made, 3, 2, 1).mean((2, 3))
            expected = torch.nn.functional.linear(made, given["fc.weight"], given["fc.bias"])
            np.testing.assert_allclose(library(x.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_the_size_of_a_tensor_follows_the_input(tmp_path: Path) -> None:
    """`size` of a dynamic dimension, and what an expression computes of it, make the shape of a view."""
    lines = [
        "pnnx.Input in0 0 1 0 #0=(?,12)f32",
        "Tensor.size rows 1 1 0 1 dim=0 $input=0",
        "pnnx.Expression shape 1 1 1 2 expr=[mul(@0,3),4]",
        "Tensor.view view 2 1 0 2 3 $input=0 $shape=2",
        "pnnx.Output out 1 0 3",
    ]
    with nnefc.compile(write_network(tmp_path, lines)).load(threads=1) as library:
        for rows in (1, 7, 33):
            x = RNG.standard_normal((rows, 12)).astype(np.float32)
            np.testing.assert_array_equal(library(x), x.reshape(3 * rows, 4))


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        ("torch.arange op 1 1 1 2 $end=1", "int64"),
        ("torch.zeros op 1 1 1 2 $size=1", "float32"),
        ("torch.full op 1 1 1 2 $size=1 fill_value=2", "int64"),
        ("torch.full op 1 1 1 2 $size=1 fill_value=2.0", "float32"),
        ("torch.eye op 1 1 1 2 $n=1", "float32"),
    ],
)
def test_what_is_made_of_dynamic_sizes_has_the_type_of_pytorch(operator: str, dtype: str, tmp_path: Path) -> None:
    lines = [
        "pnnx.Input in0 0 1 0 #0=(1,?,4)f32",
        "pnnx.Expression size 1 1 0 1 expr=size(@0,1)",
        operator,
        "pnnx.Output out 1 0 2",
    ]
    assert str(load(write_network(tmp_path, lines)).module["main"].ret_ty.fields[0].dtype) == dtype


@pytest.mark.parametrize(("parameters", "correction"), [("unbiased=True", 1), ("correction=0", 0), ("correction=3", 3)])
@pytest.mark.sample(1)
def test_variances_are_divided_by_an_dynamic_number_of_elements(
    parameters: str, correction: int, tmp_path: Path
) -> None:
    """With too few elements by zero, as in PyTorch."""
    lines = [
        "pnnx.Input in0 0 1 0 #0=(2,?,?,5)f32",
        f"torch.var var 1 1 0 1 $input=0 dim=(1,2) {parameters} keepdim=False",
        f"torch.std std 1 1 0 2 $input=0 dim=(2) {parameters} keepdim=True",
        "pnnx.Output out0 1 0 1",
        "pnnx.Output out1 1 0 2",
    ]
    with nnefc.compile(write_network(tmp_path, lines)).load(threads=1) as library:
        for sizes in ((1, 1), (2, 1), (1, 3), (7, 13)):
            x = RNG.standard_normal((2, *sizes, 5)).astype(np.float32)
            with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                centred = x.astype(np.float64) - x.mean((1, 2), np.float64, keepdims=True)
                variance = (centred**2).sum((1, 2)) / max(0, sizes[0] * sizes[1] - correction)
                centred = x.astype(np.float64) - x.mean(2, np.float64, keepdims=True)
                deviation = np.sqrt((centred**2).sum(2, keepdims=True) / max(0, sizes[1] - correction))
            for made, wanted in zip(library(x), (variance, deviation), strict=True):
                np.testing.assert_allclose(made, wanted, rtol=1e-5)


def test_ranges_are_given_with_the_shape_of_an_input(tmp_path: Path) -> None:
    lines = ["pnnx.Input in0 0 1 0 #0=(?,4)f32", "nn.ReLU act 1 1 0 1", "pnnx.Output out 1 0 1"]
    path = write_network(tmp_path, lines)
    assert [(d.minimum, d.maximum) for d in nnefc.compile(path).description.dimensions] == [(0, LARGEST)]
    with nnefc.compile(path, shape={"in0": ("2..8:2", 4)}).load(threads=1) as library:
        assert library(np.ones((6, 4), np.float32)).shape == (6, 4)
        with pytest.raises(RunError, match="2 to 8"):
            library(np.ones((10, 4), np.float32))
    assert nnefc.compile(path, shape={"in0": (3, 4)}).inputs[0].shape == (3, 4)


def test_what_must_be_known_is_reported_with_the_location_and_the_option(tmp_path: Path) -> None:
    lines = [
        "pnnx.Input in0 0 1 0 #0=(?,?)f32",
        "Tensor.view view 1 1 0 1 shape=(2,64) $input=0",
        "pnnx.Output out 1 0 1",
    ]
    with pytest.raises(CompileError, match=r"(?s)model.pnnx.param:4:1: .*--shape in0=1,128"):
        nnefc.compile(write_network(tmp_path, lines))


def test_windows_of_images_of_any_size_become_columns(tmp_path: Path) -> None:
    lines = [
        "pnnx.Input in0 0 1 x #x=(?,2,?,?)f32",
        "F.unfold op 1 1 x y kernel_size=(3,3) padding=(1,1) stride=(2,1)",
        "pnnx.Output out0 1 0 y",
    ]
    with nnefc.compile(write_network(tmp_path, lines)).load() as library:
        for batch, height, width in ((1, 6, 8), (3, 5, 7)):
            x = np.random.default_rng(1).standard_normal((batch, 2, height, width)).astype(np.float32)
            padded, rows = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (height - 1) // 2 + 1
            parts = [padded[:, :, i : i + 2 * rows - 1 : 2, j : j + width] for i in range(3) for j in range(3)]
            np.testing.assert_array_equal(library(x), np.stack(parts, 2).reshape(batch, 18, rows * width))
