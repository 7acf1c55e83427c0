"""Fourier transforms of known lengths, which are products with matrices, and of lengths of any kind, compared with
NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.ir import GenericConst

import nnefc
from nnefc.driver.formats import load_network

RNG = np.random.default_rng(9)


def dft(folder: Path, length: int | str, parts: int, **attributes: int) -> Path:
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


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        pytest.param(kind, length, marks=[pytest.mark.slow] * (length != quick))
        for kind, quick in (("real, half", 400), ("complex", 180), ("back", 64))
        for length in (64, 180, 400, 512)
    ],
)
@pytest.mark.sample(2)
def test_a_transform(length: int, kind: str, tmp_path: Path) -> None:
    attributes = {"real, half": {"onesided": 1}, "complex": {}, "back": {"inverse": 1}}[kind]
    with nnefc.compile(dft(tmp_path, length, 1 if "real" in kind else 2, **attributes)).load() as network:
        for count in (1, 3):
            x = RNG.standard_normal((count, length, 1 if "real" in kind else 2)).astype(np.float32)
            values = x[..., 0] if "real" in kind else x[..., 0] + 1j * x[..., 1]
            expected = {"real, half": np.fft.rfft, "complex": np.fft.fft, "back": np.fft.ifft}[kind](values)
            np.testing.assert_allclose(network(x), as_parts(expected), atol=2e-6 * length)


@pytest.mark.parametrize(("length", "maximum"), [(4096, 4096 * 64 * 4), (509, 4 * 509**2)])
def test_constants_grow_less_than_the_square_of_a_length_with_factors(
    length: int, maximum: int, tmp_path: Path
) -> None:
    module = load_network(dft(tmp_path, length, 2)).module
    found: list[int] = []

    def visit(part: relax.Expr) -> None:
        if isinstance(part, GenericConst):
            found.append(part.value.numpy().size)

    relax.analysis.post_order_visit(module["main"], visit)
    assert max(found) <= maximum


KINDS = {
    "real": (1, {}, lambda x: as_parts(np.fft.fft(x[..., 0]))),
    "real, half": (1, {"onesided": 1}, lambda x: as_parts(np.fft.rfft(x[..., 0]))),
    "complex": (2, {}, lambda x: as_parts(np.fft.fft(as_complex(x)))),
    "back": (2, {"inverse": 1}, lambda x: as_parts(np.fft.ifft(as_complex(x)))),
    "back from half": (
        2,
        {"inverse": 1, "onesided": 1},
        lambda x: np.fft.irfft(as_complex(x), 2 * x.shape[1] - 2)[..., None],
    ),
}


def as_complex(x: np.ndarray) -> np.ndarray:
    made: np.ndarray = x[..., 0] + 1j * x[..., 1]
    return made


@pytest.mark.filterwarnings("ignore::nnefc.ModelWarning")  # half a spectrum has two bins at least
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("real", "back"))) for kind in KINDS]
)
@pytest.mark.sample(1)
def test_a_transform_of_a_length_that_is_known_at_run_time(kind: str, tmp_path: Path) -> None:
    """Powers of two, odd and prime ones, of one row, several, and more than there are chunks."""
    parts, attributes, right = KINDS[kind]
    with nnefc.compile(dft(tmp_path, "t", parts, **attributes)).load() as network:
        for length, count in ((2, 1), (3, 2), (8, 3), (31, 17), (60, 1), (509, 2), (1000, 1)):
            x = RNG.standard_normal((count, length, parts)).astype(np.float32)
            expected = right(x.astype(np.float64))
            np.testing.assert_allclose(network(x), expected, atol=3e-6 * np.sqrt((expected**2).mean()))


def transform_to(length: np.ndarray | None, size: int | str) -> onnx.ModelProto:
    """A transform cut or filled up to a length; None: an input says it."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", size, 1])]
    if length is None:
        inputs.append(helper.make_tensor_value_info("length", TensorProto.INT64, []))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [] if length is None else [numpy_helper.from_array(length, "length")]
    graph = helper.make_graph([helper.make_node("DFT", ["x", "length"], ["y"])], "g", inputs, [result], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.filterwarnings("ignore::nnefc.ModelWarning")  # the length is one at least
def test_a_length_that_an_input_gives() -> None:
    with nnefc.compile(transform_to(None, "t")).load() as network:
        for size, length in ((10, 7), (10, 16), (5, 13)):
            x = RNG.standard_normal((2, size, 1)).astype(np.float32)
            expected = as_parts(np.fft.fft(x[..., 0], length))
            np.testing.assert_allclose(network(x, np.int64(length)), expected, atol=1e-5)


@pytest.mark.slow
def test_signals_of_any_size_are_cut_or_filled_up_to_a_length() -> None:
    with nnefc.compile(transform_to(np.array(13), "t")).load() as network:
        for size in (1, 13, 30):
            x = RNG.standard_normal((2, size, 1)).astype(np.float32)
            np.testing.assert_allclose(network(x), as_parts(np.fft.fft(x[..., 0], 13)), atol=1e-5)


def test_long_transforms_of_a_known_length_need_no_matrices() -> None:
    length = 20011  # a prime
    artifact = nnefc.compile(transform_to(np.array(length), length))
    assert artifact.description.constant_bytes <= 60 * length
    x = RNG.standard_normal((1, length, 1)).astype(np.float32)
    with artifact.load() as network:
        np.testing.assert_allclose(network(x), as_parts(np.fft.fft(x[..., 0])), atol=1e-3)


@pytest.mark.filterwarnings("ignore::nnefc.ModelWarning")
def test_frames_of_a_length_that_is_known_at_run_time() -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "t", 1]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, ["k"]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    step = numpy_helper.from_array(np.array(5), "step")
    graph = helper.make_graph([helper.make_node("STFT", ["x", "step", "w"], ["y"])], "g", inputs, [result], [step])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with nnefc.compile(model).load() as network:
        for size, frame in ((50, 8), (51, 13)):
            x, window = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, size, 1), (frame,)))
            starts = range(0, size - frame + 1, 5)
            expected = np.stack([np.fft.rfft(x[:, at : at + frame, 0] * window) for at in starts], 1)
            np.testing.assert_allclose(network(x, window), as_parts(expected), atol=1e-5)
