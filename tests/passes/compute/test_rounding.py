"""Rounding errors of convolutions and matrix products, against float64 and compared with onnxruntime's."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from exact_products import HAS_AVX512
from numpy_reference import convolve
from onnx import helper, numpy_helper
from relax_programs import Case, Graph, Value, build, target, with_fast_memory

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.driver.options import CodeOptions
from nnefc.passes.compute.winograd import Tile
from nnefc.passes.graph.algorithms import choose_algorithms
from nnefc.passes.schedule.cpu.partial_sums import part_of_sum

LONG_SUMS = {
    "3x3": ((1, 512, 7, 7), (32, 512, 3, 3)),
    "1x1": ((1, 1024, 7, 7), (32, 1024, 1, 1)),
    "strided": ((1, 64, 14, 14), (64, 64, 3, 3)),
    "5x5": ((1, 128, 9, 9), (16, 128, 5, 5)),
    "product": ((24, 3072), (3072, 64)),
    "row": ((1, 4096), (4096, 96)),
    "primes": ((16, 2 * 509), (2 * 509, 48)),
}


def values(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(shape: tuple[int, ...], weights: np.ndarray, strides: int) -> onnx.ModelProto:
    """A convolution, padded so that stride 1 keeps the sizes, or a matrix product."""
    attributes = {"pads": [weights.shape[-1] // 2] * 4, "strides": [strides] * 2} if weights.ndim == 4 else {}
    node = helper.make_node("Conv" if weights.ndim == 4 else "MatMul", ["x", "w"], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        [node], "sum", [x], [onnx.ValueInfoProto(name="y")], [numpy_helper.from_array(weights, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def exact(x: np.ndarray, weights: np.ndarray, strides: int) -> np.ndarray:
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    if weights.ndim == 2:
        return x @ weights
    return convolve(x, weights, (strides,) * 2, (weights.shape[-1] // 2,) * 4, (1, 1), 1)


def errors(found: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """The largest error over the largest value, and the same of the roots of the mean squares."""
    difference = found.astype(np.float64) - wanted
    return np.abs(difference).max() / np.abs(wanted).max(), np.sqrt(
        np.square(difference).mean() / np.square(wanted).mean()
    )


def sum_error(terms: int) -> float:
    """The root of the mean squared error of a float32 sum of terms of any sign, over that of the sums' values.

    Each of the roundings errs by half a unit in the last place at most (Higham, Accuracy and Stability of Numerical
    Algorithms, 2002, section 4.2).
    """
    return 2.0**-24 / math.sqrt(3) * math.sqrt(terms / 2)


@pytest.mark.parametrize("name", LONG_SUMS)
@pytest.mark.sample(1)
def test_strict_sums_are_as_exact_as_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    shape, of_weights = LONG_SUMS[name]
    x, weights, strides = values(1, shape), values(2, of_weights), 2 if name == "strided" else 1
    model = model_of(shape, weights, strides)
    onnx.save(model, tmp_path / "sum.onnx")
    wanted = exact(x, weights, strides)
    (found,) = nnefc.compile(tmp_path / "sum.onnx", strict=True).run({"x": x}).values()
    (peer,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    (largest, mean), (largest_of_peer, mean_of_peer) = errors(found, wanted), errors(peer, wanted)
    # onnxruntime sums up in another order without AVX-512: there, as exact as a sum of 200 terms is good enough.
    short = 0.0 if HAS_AVX512 else sum_error(200)
    assert mean <= max(1.6 * mean_of_peer, short)
    assert largest <= max(2.5 * largest_of_peer, 4 * short)  # one element of few, by chance


@functools.cache
def fast_algorithms(tile: Tile) -> dict[str, float]:
    """The largest errors of a convolution by Winograd's algorithm, in such tiles, and of a product by Strassen's."""
    filters, weights = values(3, (64, 384, 3, 3)), values(4, (1024, 512))
    exactly: list[np.ndarray] = []

    def both(graph: Graph, image: Value, rows: Value) -> list[Value]:
        made = [graph.convolve(image, filters, padding=1), graph.matmul(rows, graph.constant(weights))]
        exactly[:] = [value.array for value in made]
        return made

    case = build([Case([values(5, (1, 384, 16, 16)), values(6, (96, 1024))], both)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose_algorithms, "TILES", (tile,))
        artifact = compile_network(case.network, with_fast_memory(target("llvm")), CodeOptions(memory_budget=math.inf))
    outputs = artifact.run(case.inputs).values()
    names = ("winograd", "strassen")
    return {name: errors(got, want)[0] for name, got, want in zip(names, outputs, exactly, strict=True)}


@pytest.mark.parametrize(
    ("algorithm", "tile", "largest"),
    [("winograd", (2, 2), 1e-6), ("winograd", (4, 4), 3e-6), ("strassen", (4, 4), 1.6e-6)],
)
@pytest.mark.sample(1)
def test_fast_algorithms_keep_their_errors_small(algorithm: str, tile: Tile, largest: float) -> None:
    assert fast_algorithms(tile)[algorithm] < largest


def test_tiles_of_bfloat16_round_less_than_twice_as_much_as_direct_sums_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of odd sizes, with borders. For random values the ratio is 5/3: see `passes/compute/winograd.py`."""
    monkeypatch.setattr(choose_algorithms, "winograd_saving", lambda *args: float(args[-1][1] > 1))
    exactly: list[np.ndarray] = []

    def convolved(graph: Graph, *images: Value) -> list[Value]:
        filters = [values(7 + image.array.shape[1], (45, image.array.shape[1], 3, 3)) for image in images]
        made = [graph.convolve(x, w, padding=1) for x, w in zip(images, filters, strict=True)]
        exactly[:] = [value.array for value in made]
        return made

    images = [values(8, (2, 100, 15, 22))]
    case, found = build([Case(images, convolved)]), []
    machine = target("llvm -mcpu=cooperlake -precision=bf16")
    for strict in (False, True):
        artifact = compile_network(case.network, machine, CodeOptions(strict=strict, memory_budget=math.inf))
        try:
            outputs = artifact.run(case.inputs).values()
        except nnefc.LoadError as error:
            pytest.skip(str(error))
        found.append([errors(got, want)[1] for got, want in zip(outputs, exactly, strict=True)])
    for tiles, direct in zip(*found, strict=True):
        assert 1.2 * direct < tiles < 2 * direct < 8e-3  # another algorithm, of the same numbers


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ([400], None),
        ([768], (0, 384)),
        ([32, 3, 3, 16], (0, 2)),
        ([1, 5, 5, 128], (2, 1)),
        ([2 * 509], (0, 509)),
        ([1009], None),
    ],
)
def test_parts_are_long_enough_to_cost_little(sizes: list[int], cut: tuple[int, int] | None) -> None:
    assert part_of_sum(sizes) == cut
