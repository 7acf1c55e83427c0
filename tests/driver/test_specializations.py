"""Code of its own for some sizes, in the library that takes all sizes or without that."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.cli import main
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(19)
SIZES = [{"n": 1, "h": 32, "w": 48}, {"n": 2, "h,w": (17,)}]


def real(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution and the mean of the image."""
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(real(8, 3, 3, 3), "k")],
    )
    path = tmp_path_factory.mktemp("special") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def both(model: Path) -> nnefc.Artifact:
    return nnefc.compile(model, specialize=SIZES)


@pytest.fixture(scope="module")
def only(model: Path) -> nnefc.Artifact:
    return nnefc.compile(model, specialize=SIZES, only_specialized=True)


def check(library: nnefc.Model, model: Path, *shapes: tuple[int, ...]) -> None:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for shape in shapes:
        x = RNG.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(library(x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_specialized_and_other_sizes_follow_each_other(both: nnefc.Artifact, model: Path) -> None:
    with both.load(threads=1) as library:
        check(library, model, (1, 3, 32, 48), (2, 3, 17, 17), (3, 3, 21, 9), (1, 3, 32, 48), (1, 3, 31, 48))


def test_sizes_without_code_are_refused_and_those_with_it_listed(only: nnefc.Artifact, model: Path) -> None:
    with only.load(threads=1) as library:
        check(library, model, (2, 3, 17, 17), (1, 3, 32, 48))
        for shape in ((1, 3, 17, 17), (2, 3, 32, 48), (1, 3, 17, 48)):
            with pytest.raises(RunError, match="these sizes only: n 1, h 32, w 48; n 2, h 17, w 17"):
                library(np.zeros(shape, np.float32))
        check(library, model, (1, 3, 32, 48))


def test_memory_that_is_reserved_is_enough_for_specialized_sizes(both: nnefc.Artifact, only: nnefc.Artifact) -> None:
    """The last storage has room for the programs of sizes up to the present ones."""
    assert [part.sizes for part in both.description.specializations] == [(1, 32, 48), (2, 17, 17)]
    assert all(part.workspace_bytes > 0 for part in both.description.specializations)
    assert len(both.description.lifetimes) > len(only.description.lifetimes) == 1


def test_every_program_has_its_own_entry_and_kernels(both: nnefc.Artifact, tmp_path: Path) -> None:
    both.emit("llvm-ir", tmp_path)
    entries = [(tmp_path / f"{name}.ll").read_text() for name in ("entry", "entry1", "entry2")]
    for number, text in enumerate(entries):
        assert f"@nnefc_network{f'_{number}' if number else ''}(" in text
    static = [
        {line.split("@")[1].split("(")[0] for line in text.splitlines() if "call" in line and "@nnefc_kernel" in line}
        for text in entries
    ]
    assert all(static) and not static[0] & static[1] and not static[1] & static[2]


def test_constants_that_are_the_same_are_there_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1000])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(real(1, 1000), "b")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    general, special = (nnefc.compile(path, specialize=sizes) for sizes in ((), [{"n": 4}, {"n": 9}]))
    assert special.description.constant_bytes == general.description.constant_bytes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"specialize": [{}]}, "a specialization without sizes(.|\n)*open are n, h, w"),
        ({"specialize": ["tg"]}, "the model has no scenario 'tg'"),
        ({"specialize": [{"m": 1}]}, "no dynamic dimension 'm'(.|\n)*open are n, h, w"),
        ({"specialize": [{"n": 9, "h": 8, "w": 8}], "shape": {"n": "1..8"}}, "'n' cannot be 9: it is from 1 to 8"),
        ({"specialize": [{"x": 1}], "shape": {"x": (1, 3, 8, 8)}}, "no size of the network is open"),
        ({"specialize": [{"n": "1..2", "h": 8, "w": 8}]}, "'1..2' is no size"),
        ({"only_specialized": True}, "--specialize NAME=SIZE"),
    ],
)
def test_what_cannot_be_specialized_is_reported(model: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        nnefc.compile(model, **options)  # type: ignore[arg-type]


def test_the_command_compiles_them_and_inspect_lists_them(tmp_path: Path) -> None:
    (tmp_path / "m.nnef").write_text("version 1.0;\ngraph g(x) -> (y) { x = external(shape = [0, 4]); y = relu(x); }")
    arguments = ["m.nnef", "-o", "m.so", "--specialize", "x_0=3", "--specialize", "x_0=5", "--only-specialized"]
    paths = [str(tmp_path / word) if word in ("m.nnef", "m.so") else word for word in arguments]
    made = CliRunner().invoke(main, ["compile", *paths])
    assert made.exit_code == 0, made.output
    lines = CliRunner().invoke(main, ["inspect", str(tmp_path / "m.so")]).output.splitlines()
    assert [line.split()[:3] for line in lines if line.startswith("specialized")] == [
        ["specialized", "x_0", f"{size},"] for size in (3, 5)
    ]
    with nnefc.load(tmp_path / "m.so") as library:
        assert library(-np.ones((5, 4), np.float32)).max() == 0


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The positive elements of the rows' sums, and where they are."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["g"]),
        helper.make_node("NonZero", ["g"], ["locations"]),
        helper.make_node("Compress", ["s", "g"], ["items"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "w"])],
        [
            helper.make_tensor_value_info("locations", TensorProto.INT64, None),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("items", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(np.array([1]), "axes"), numpy_helper.from_array(np.float32(0), "zero")],
    )
    path = tmp_path_factory.mktemp("counting") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.sample(1)
def test_programs_for_known_sizes_write_the_sizes_that_depend_on_data(only: bool, counting: Path) -> None:
    artifact = nnefc.compile(counting, specialize=[{"n": 40, "w": 8}, {"n": 3, "w": 5}], only_specialized=only)
    session = onnxruntime.InferenceSession(counting, providers=["CPUExecutionProvider"])
    with artifact.load() as library:
        for shape in ((40, 8), (3, 5), (40, 8), *([] if only else [(7, 2), (40, 8)])):
            for x in (real(*shape), abs(real(*shape)), -abs(real(*shape))):
                for found, wanted in zip(library(x), session.run(None, {"x": x}), strict=True):
                    assert found.shape == wanted.shape
                    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def partly(model: Path) -> nnefc.Artifact:
    """Programs for one image of one size, of any size, and for small images; the first that fits runs."""
    sizes = [{"n": 1, "h": 32, "w": 48}, {"n": 1}, {"h": 17, "w": 17}]
    return nnefc.compile(model, specialize=sizes, shape={"n": "1..8"})


def test_dimensions_that_are_not_given_stay_open(partly: nnefc.Artifact, model: Path) -> None:
    shapes = [(1, 3, 32, 48), (1, 3, 21, 40), (5, 3, 17, 17), (4, 3, 20, 12), (1, 3, 17, 17), (1, 3, 64, 65)]
    with partly.load(threads=1) as library:
        check(library, model, *shapes, *reversed(shapes))
    assert [part.sizes for part in partly.description.specializations] == [(1, 32, 48), (1, None, None), (None, 17, 17)]


def test_programs_with_dynamic_sizes_share_the_workspace(partly: nnefc.Artifact) -> None:
    """None is alive when another is, so that the largest alone says how much memory is needed."""
    description = partly.description
    counts = [part.storages for part in description.specializations]
    assert counts[0] == 0 and min(counts[1:]) > 0
    ends = [len(description.lifetimes) - 1 - sum(counts)]
    for count in counts[1:]:
        ends.append(ends[-1] + count)
    begins = [0, *ends]
    spans = [description.lifetimes[a:b] for a, b in zip(begins, [*ends, None], strict=True)]
    for before, after in pairwise(spans):
        assert max(last for _, last in before) < min(first for first, _ in after)


def test_memory_that_is_reserved_is_enough_for_programs_with_dynamic_sizes(partly: nnefc.Artifact, model: Path) -> None:
    with partly.load(threads=1) as library:
        library.reserve({"n": 5, "h": 64, "w": 64})
        check(library, model, (1, 3, 64, 64), (5, 3, 17, 17), (5, 3, 64, 64), (1, 3, 32, 48))


def test_no_code_for_all_sizes_but_for_some_open_ones(model: Path) -> None:
    artifact = nnefc.compile(model, specialize=[{"n": 1}, {"n": 2, "h": 16, "w": 16}], only_specialized=True)
    with artifact.load(threads=1) as library:
        check(library, model, (1, 3, 32, 48), (2, 3, 16, 16), (1, 3, 9, 11))
        with pytest.raises(RunError, match="these sizes only: n 1; n 2, h 16, w 16"):
            library(np.zeros((2, 3, 17, 16), np.float32))


def test_sums_of_what_is_known_and_what_is_open(tmp_path: Path) -> None:
    """As a decoder with a cache: its mask has as many positions as the cache and the new words."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["all"], axis=0),
        helper.make_node("Mul", ["all", "mask"], ["kept"]),
        helper.make_node("MatMul", ["kept", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8]),
            helper.make_tensor_value_info("past", TensorProto.FLOAT, ["p", 8]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["p + n", 1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(real(8, 8), "w")],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    artifact = nnefc.compile(path, specialize=[{"n": 1}, {"p": 3}])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with artifact.load(threads=1) as library:
        for n, p in ((1, 5), (1, 3), (4, 3), (7, 9), (1, 30)):
            values = {"x": real(n, 8), "past": real(p, 8), "mask": real(n + p, 1)}
            np.testing.assert_allclose(library(**values), session.run(None, values)[0], rtol=1e-4, atol=1e-5)


def test_what_stays_open_has_the_whole_range_that_was_given(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT8, ["n", "m"])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, None)],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    artifact = nnefc.compile(path, shape={"n": "1..8", "m": "1..4000000"}, specialize=[{"n": 1}])
    with artifact.load(threads=1) as library:
        assert (library(np.ones((1, 1_500_000), np.int8)) == -1).all()


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.sample(1)
def test_programs_with_dynamic_sizes_write_the_sizes_that_depend_on_data(only: bool, counting: Path) -> None:
    artifact = nnefc.compile(counting, specialize=[{"w": 8}, {"n": 3, "w": 5}], only_specialized=only)
    session = onnxruntime.InferenceSession(counting, providers=["CPUExecutionProvider"])
    with artifact.load() as library:
        for shape in ((40, 8), (3, 5), (7, 8), *([] if only else [(7, 2), (40, 8)])):
            x = real(*shape)
            for found, wanted in zip(library(x), session.run(None, {"x": x}), strict=True):
                assert found.shape == wanted.shape
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
