"""Running sums and products: what they are, that they are linear in what they read, and how well they round."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from emulated_networks import on_cuda
from onnx import ModelProto, TensorProto, helper, numpy_helper
from pass_runs import lower
from relax_programs import program, summary, target

import nnefc
from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.passes.legalize.lower_scans import lower_scans

SHAPES = [
    ((5, 37), 1), ((5, 37), 0), ((3, 50, 7), 1), ((2, 16), 1), ((1, 1000), 1), ((4, 70, 33), 1), ((70, 130), 0),
    ((2, 3, 4, 5), -2), ((1,), 0), ((9, 1), 0), ((2, 3, 700), 1), ((3, 0), 1), ((20000, 3), 1),
]  # fmt: skip
DTYPES = ["float32", "float64", "int32", "int64", "uint32", "uint64", "float16"]


class Net:
    """Scans side by side: a model, its inputs, and what NumPy makes of them in float64 or 64 bits."""

    def __init__(self, operator: str = "CumSum", opset: int = 14) -> None:
        self._operator, self._opset = operator, opset
        self._rng = np.random.default_rng(0)
        self._graph = helper.make_graph([], "g", [], [])
        self.inputs: dict[str, np.ndarray] = {}
        self.expected: list[np.ndarray] = []

    def add(
        self, shape: tuple[int, ...], axis: int, dtype: str, exclusive: int = 0, reverse: int = 0, known: bool = False
    ) -> None:
        """One more scan; of an operand that is known at compile time, if so asked."""
        number, kind = len(self.expected), np.dtype(dtype).kind
        drawn = self._rng.standard_normal(shape) if kind == "f" else self._rng.integers(0, 9, shape)
        x = (1 + drawn / 8 if self._operator == "CumProd" and kind == "f" else drawn).astype(dtype)
        element, graph = helper.np_dtype_to_tensor_dtype(x.dtype), self._graph
        if known:
            graph.initializer.append(numpy_helper.from_array(x, f"x{number}"))
        else:
            graph.input.append(helper.make_tensor_value_info(f"x{number}", element, shape))
            self.inputs[f"x{number}"] = x
        graph.initializer.append(helper.make_tensor(f"a{number}", TensorProto.INT64, [], [axis]))
        names = [f"x{number}", f"a{number}"]
        graph.node.append(helper.make_node(self._operator, names, [f"y{number}"], exclusive=exclusive, reverse=reverse))
        graph.output.append(helper.make_tensor_value_info(f"y{number}", element, shape))
        self.expected.append(self._reference(x, axis, exclusive, reverse))

    def _reference(self, x: np.ndarray, axis: int, exclusive: int, reverse: int) -> np.ndarray:
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x
        neutral = np.full_like(wide.take([0], axis) if x.size else wide, int(self._operator == "CumProd"))
        reversed_data = np.flip(wide, axis) if reverse else wide
        if exclusive and x.size:
            reversed_data = np.concatenate([neutral, reversed_data], axis).take(range(x.shape[axis]), axis)
        made = (np.cumprod if self._operator == "CumProd" else np.cumsum)(reversed_data, axis, dtype=wide.dtype)
        return np.flip(made, axis) if reverse else made

    def model(self) -> ModelProto:
        """The model so far."""
        return helper.make_model(self._graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=10)

    def save(self, folder: Path) -> Path:
        """The model so far, in a file."""
        path = folder / "scans.onnx"
        path.write_bytes(self.model().SerializeToString())
        return path

    def check(self, path: Path) -> None:
        """Compile, run and compare."""
        with nnefc.compile(path).load() as network:
            found = list(network.run(self.inputs).values())
        for given, made, expected in zip(self._graph.node, found, self.expected, strict=True):
            if made.dtype.kind == "f":
                bound = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-12}[str(made.dtype)]
                np.testing.assert_allclose(made, expected, rtol=bound, atol=bound, err_msg=str(given))
            else:
                np.testing.assert_array_equal(made, expected.astype(made.dtype), err_msg=str(given))


@pytest.mark.parametrize("repetitions", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_sums_of_all_types_along_any_axis_are_numpys(repetitions: int, tmp_path: Path) -> None:
    net = Net()
    flags = itertools.cycle(itertools.product((0, 1), (0, 1)))
    for shape, axis in SHAPES:
        for _ in range(repetitions):
            net.add(shape, axis, "float32", *next(flags))
    for (shape, axis), dtype in zip(itertools.cycle(SHAPES[:11]), DTYPES * min(repetitions, 3), strict=False):
        net.add(shape, axis, dtype, *next(flags))
    net.check(net.save(tmp_path))


def test_sums_of_constants_are_computed_at_compile_time(tmp_path: Path) -> None:
    net = Net()
    net.add((3,), 0, "float32")
    for dtype, exclusive, reverse in itertools.product(("float32", "int64"), (0, 1), (0, 1)):
        net.add((5, 37), 1, dtype, exclusive, reverse, known=True)
    net.check(net.save(tmp_path))


def test_products_are_numpys(tmp_path: Path) -> None:
    net = Net("CumProd", 26)
    for (shape, axis), (exclusive, reverse) in zip(SHAPES[:4], itertools.product((0, 1), (0, 1)), strict=True):
        net.add(shape, axis, "float32", exclusive, reverse)
    net.check(net.save(tmp_path))


def test_devices_compute_parts_of_lines_side_by_side(tmp_path: Path) -> None:
    net = Net()
    for (shape, axis), dtype, exclusive, reverse in [
        (SHAPES[0], "float32", 0, 0), (SHAPES[2], "int64", 1, 1), (SHAPES[4], "float64", 0, 1),
        (SHAPES[5], "float32", 1, 0), (SHAPES[12], "int32", 0, 0), (SHAPES[8], "float32", 0, 0),
    ]:  # fmt: skip
        net.add(shape, axis, dtype, exclusive, reverse)
    path = net.save(tmp_path)
    with on_cuda(checks=True):
        net.check(path)


def test_sums_round_no_worse_than_those_of_onnxruntime(tmp_path: Path) -> None:
    net = Net()
    for shape, axis in (((16, 2000), 1), ((4, 3000, 40), 1), ((1, 50000), 1), ((50000,), 0)):
        for reverse in (0, 1):
            net.add(shape, axis, "float32", 0, reverse)
    path = net.save(tmp_path)
    theirs = onnxruntime.InferenceSession(path.read_bytes()).run(None, net.inputs)
    with nnefc.compile(path).load() as network:
        ours = list(network.run(net.inputs).values())
    for expected, own, other in zip(net.expected, ours, theirs, strict=True):
        assert np.abs(own - expected).max() <= 1.01 * np.abs(other - expected).max()


@pytest.mark.parametrize("shape", [(16, 1), (3, 1, 40)])
def test_the_code_is_as_long_whatever_the_length(shape: tuple[int, ...], tmp_path: Path) -> None:
    def length(size: int) -> int:
        net = Net()
        net.add((shape[0], size, *shape[2:]), 1, "float32")
        texts: dict[str, str] = {}
        lower(
            load_network(net.save(tmp_path)),
            backend_of(target("llvm")),
            lambda name, module: texts.setdefault(name, module.script()),  # type: ignore[attr-defined]
        )
        return len(texts["schedule"])

    assert length(8005) < length(85) + 200  # longer numbers


def test_sums_from_the_end_turn_nothing_round() -> None:
    before = program("""
        x[4, 5] -> c
        a = R.flip(x, axis=1)
        b = R.cumsum(a, axis=1)
        c = R.flip(b, axis=-1)
    """)
    after = summary(lower_scans(before, target("llvm"))).splitlines()
    assert [line.split(" = ")[1].split("(")[0] for line in after[:-1]] == ["reshape", "scan1", "reshape"]
    assert "reshape(x" in after[0]
