"""Libraries whose kernels look at every location that they read or write (`nnefc compile --checked`): mistakes that
were made on purpose are found, and named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi
from click.testing import CliRunner
from emulation import MACHINES, refused_by
from onnx import TensorProto, helper, numpy_helper
from tvm import tirx
from tvm.ir.expr import TensorLoad

import nnefc
from nnefc.backends import cpu
from nnefc.cli import main
from nnefc.ir.attributes import RULE
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(43)
X = RNG.standard_normal((2, 5, 13, 11)).astype(np.float32)
KNOWN = {"b": 2, "h": 13, "w": 11}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, the mean of the image, and a matrix product."""
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], name="edges"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="mean"),
        helper.make_node("Softmax", ["p"], ["y"], axis=1, name="classes"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 5, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(RNG.standard_normal((19, 5, 3, 3)).astype(np.float32), "k")],
    )
    path = tmp_path_factory.mktemp("checked") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@contextmanager
def mistaken(change: Callable[..., object], kernel: str = "", kind: type = tirx.For) -> Iterator[None]:
    """Every kernel, or that of a rule, gets its loops, or other parts, changed after it has its schedule."""

    def wrong(func: tirx.PrimFunc) -> tirx.PrimFunc:
        if kernel and str(func.attrs[RULE]) != kernel:
            return func
        return tvm_ffi.structural_map(func, (kind, change))

    passes = cpu.CpuBackend.passes.with_passes([nnefc.passes.after("raw pointers", wrong)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu.CpuBackend, "passes", passes)
        yield


def longer(loop: tirx.For) -> tirx.For:
    """A loop with one iteration more."""
    if loop.kind not in (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL):
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent + 1, loop.kind, loop.body, annotations=loop.annotations)


@pytest.mark.parametrize("shape", [KNOWN, None], ids=["known", "open"])
@pytest.mark.sample(1)
def test_results_are_those_of_other_libraries(model: Path, shape: dict[str, int] | None) -> None:
    checked = nnefc.compile(model, checked=True, shape=shape)
    assert checked.checks is not None
    assert checked.checks.proved > 100
    assert bool(checked.checks.checked) == (shape is None)  # all is proved where sizes are known
    wanted = nnefc.compile(model, shape=shape).run({"x": X})
    with checked.load(threads=2) as library:
        assert np.array_equal(library.run({"x": X})["y"], wanted["y"])


@pytest.mark.parametrize(
    "shape", [pytest.param(KNOWN, marks=pytest.mark.slow, id="known"), pytest.param(None, id="open")]
)
def test_a_schedule_whose_loops_are_too_long_is_found(model: Path, shape: dict[str, int] | None) -> None:
    with mistaken(longer):
        artifact = nnefc.compile(model, checked=True, shape=shape)
    for threads in (1, 3):
        with artifact.load(threads=threads) as library, pytest.raises(RunError) as caught:
            library.run({"x": X})
        # where vectors divide them, rows of known sizes are padded to full vectors
        wanted = r"the kernel pad writes padded\[(1950|2100)\], which has \1 elements, in node 'edges' \(Conv\)"
        assert re.search(wanted, str(caught.value))


def test_products_of_dynamic_sizes_without_limits_are_checked_for_overflow(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("ArgMin", ["x"], ["y"], axis=1)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", "c", "d", "e"])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    x = X.reshape(2, 5, 13, 1, 11)
    found = nnefc.compile(path, checked=True).run({"x": x})["y"]
    assert np.array_equal(found, x.argmin(1, keepdims=True))


@pytest.mark.slow
def test_checks_of_long_formulas_of_sizes_take_no_longer_than_the_kernel(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    graph (float[5,h,w] x) => (float[3,rows,columns] y, int64[3,rows,columns] i)
       <int64[2] start = {3,-1}, int64[2] end = {2,1}, int64[2] axes = {1,2}, int64[2] step = {-1,-1}, int64[1] k = {3}>
    {
       cut = Slice (x, start, end, axes, step)
       y, i = TopK <axis: int = 0> (cut, k)
    }"""
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    with nnefc.compile(path, checked=True).load(threads=2) as library:
        for x in (X[0], X[1, :, :7, :5]):
            found, cut = library.run({"x": x}), x[:, 3:2:-1, :1:-1]
            order = np.argsort(-cut, 0, kind="stable")[:3]
            assert np.array_equal(found["i"], order)
            assert np.array_equal(found["y"], np.take_along_axis(cut, order, 0))


def test_the_kernel_that_errs_is_named_and_what_it_computes(model: Path) -> None:
    with mistaken(longer, "WindowsRule"):
        artifact = nnefc.compile(model, checked=True, shape=KNOWN)
    with artifact.load(threads=1) as library:
        for _ in range(2):  # a session goes on after a failure
            with pytest.raises(RunError, match=r"in node 'mean' \(GlobalAveragePool\)"):
                library.run({"x": X})


def test_what_is_read_to_invert_its_bits_is_looked_at(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("BitwiseNot", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, [37])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)

    def beyond(load: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(load.source, [index + 1 for index in load.indices])

    with mistaken(beyond, kind=TensorLoad):
        artifact = nnefc.compile(path, checked=True)
    with artifact.load(threads=1) as library, pytest.raises(RunError, match=r"reads x\[37\], which has 37 elements"):
        library.run({"x": np.arange(37, dtype=np.int32)})


@pytest.mark.parametrize("name", ["aarch64", pytest.param("armv7", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_other_machines_find_it_too(model: Path, name: str) -> None:
    machine = next(machine for machine in MACHINES if machine.name == name)
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    with mistaken(longer):
        artifact = nnefc.compile(model, machine.target, checked=True, shape=KNOWN)
    assert "the kernel pad writes padded[" in refused_by(machine, artifact)


def test_libraries_say_that_they_check(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.so"
    made = CliRunner().invoke(main, ["compile", str(model), "-o", str(out), "--checked", "-v"])
    assert made.exit_code == 0, made.output
    assert "accesses, the others are proved" in made.output
    assert "every divisor" in CliRunner().invoke(main, ["inspect", str(out)]).output


def test_gpus_have_tools_of_their_own(model: Path) -> None:
    with pytest.raises(CompileError, match="compute-sanitizer"):
        nnefc.compile(model, "cuda", checked=True, shape=KNOWN)
