"""Fourier transforms of lengths with factors, which are products with small matrices, beside NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.ir import GenericConst

import nnefc
from nnefc.formats import load_network

RNG = np.random.default_rng(9)


def dft(folder: Path, length: int, parts: int, **attributes: int) -> Path:
    """A network of one transform along the second axis; how many signals is open."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", length, parts])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    axis = numpy_helper.from_array(np.array(1), "axis")
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [value], [result], [axis])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def as_parts(x: np.ndarray) -> np.ndarray:
    return np.stack([x.real, x.imag], -1)


@pytest.mark.parametrize("length", [64, 180, 400, 512])
@pytest.mark.parametrize("kind", ["real, half", "complex", "back"])
def test_a_transform(length: int, kind: str, tmp_path: Path) -> None:
    attributes = {"real, half": {"onesided": 1}, "complex": {}, "back": {"inverse": 1}}[kind]
    with nnefc.compile(dft(tmp_path, length, 1 if "real" in kind else 2, **attributes)).load() as network:
        for count in (1, 3):
            x = RNG.standard_normal((count, length, 1 if "real" in kind else 2)).astype(np.float32)
            values = x[..., 0] if "real" in kind else x[..., 0] + 1j * x[..., 1]
            expected = {"real, half": np.fft.rfft, "complex": np.fft.fft, "back": np.fft.ifft}[kind](values)
            np.testing.assert_allclose(network(x), as_parts(expected), atol=2e-6 * length)


@pytest.mark.parametrize(("length", "most"), [(4096, 4096 * 64 * 4), (509, 4 * 509**2)])
def test_constants_grow_less_than_the_square_of_a_length_with_factors(length: int, most: int, tmp_path: Path) -> None:
    module = load_network(dft(tmp_path, length, 2)).module
    found: list[int] = []

    def visit(part: relax.Expr) -> None:
        if isinstance(part, GenericConst):
            found.append(part.value.numpy().size)

    relax.analysis.post_order_visit(module["main"], visit)
    assert max(found) <= most
