"""Whatever the compiler's own code raises, wherever it does, is one message that names what was compiled."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.backends.cpu import CpuBackend
from nnefc.cli import main
from nnefc.passes import program_passes
from nnefc.passes.manager import PassList
from nnefc.passes.schedule.cpu.contraction import ContractionRule
from nnefc.support.diagnostics import CompileError
from nnefc.support.internal_errors import TRACEBACK, InternalError

ROOTS = tuple(str(Path(__file__).parents[2] / folder) for folder in ("compiler", "passes", "targets"))

KINDS = [
    AssertionError, AttributeError, IndexError, KeyError, OverflowError, RecursionError, RuntimeError, TypeError,
    ValueError, ZeroDivisionError, tvm.error.InternalError,
]  # fmt: skip


def model(size: int | str = 8) -> bytes:
    """A convolution, a product, a split and a softmax."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)), "m": rng.standard_normal((4, 6)), "h": np.ones(6)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("GlobalAveragePool", ["relu"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("MatMul", ["flat", "m"], ["product"]),
        helper.make_node("Mul", ["product", "h"], ["scaled"]),
        helper.make_node("Split", ["scaled"], ["left", "right"], axis=1, num_outputs=2),
        helper.make_node("Add", ["left", "right"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


@contextmanager
def calls_seen(seen: Callable[[CodeType], None]) -> Iterator[None]:
    """Inside, `seen` is called at the beginning of each function of the compiler."""

    def profile(frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOTS):
            seen(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def raising_in(code: CodeType, error: Exception) -> Callable[[CodeType], None]:
    """Raises the error in the first call of a function."""

    def seen(called: CodeType) -> None:
        if called is code:
            raise error

    return seen


# What is around the compiler: it turns exceptions into errors, tells users of phases, or runs before there is a model.
AROUND = ("internal_errors.py", "progress.py", "diagnostics.py", "in_memory.py", "locks.py")


@pytest.mark.parametrize(
    ("size", "count"), [(8, 3), ("h", 3), *(pytest.param(size, 24, marks=pytest.mark.slow) for size in (8, "h"))]
)
@pytest.mark.sample(1)
def test_an_error_in_any_function_is_a_compile_error(size: int | str, count: int) -> None:
    """Functions are drawn at random, of all that compile a network, and raise errors of all kinds."""
    functions: dict[CodeType, None] = {}
    with calls_seen(lambda code: functions.setdefault(code)):
        nnefc.compile(model(size))
    inner = [code for code in functions if not code.co_filename.endswith(AROUND) and code.co_name != "compile"]
    assert len(inner) > 500
    draw = random.Random(str(size))
    escaped = []
    for code in draw.sample(inner, count):
        error = draw.choice(KINDS)("broken on purpose")
        try:
            with calls_seen(raising_in(code, error)), warnings.catch_warnings():
                warnings.simplefilter("ignore", nnefc.InternalWarning)
                nnefc.compile(model(size))
        except CompileError as found:
            if isinstance(found, InternalError) and found.__cause__ is None:
                escaped.append((code, "no cause"))
        except Exception as other:
            escaped.append((code, repr(other)))
    assert not escaped


@pytest.mark.parametrize("kind", [KeyError, tvm.error.InternalError])
def test_the_message_names_the_pass_and_the_tensor(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    def broken(*_args: Any) -> Any:
        raise kind("broken on purpose")

    monkeypatch.setattr("nnefc.passes.graph.fusion.tuple_fusion_barriers._Hider.rewrite", broken)
    with pytest.raises(InternalError, match=r"broken on purpose.*the pass 'fuse' for the tensor '\w+'") as caught:
        nnefc.compile(model())
    assert isinstance(caught.value.__cause__, kind)
    assert "report" in str(caught.value.hint)


def test_the_message_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnefc.operators.nn.convolution.Convolution.lower", lambda *_: {}["key"])
    with pytest.raises(InternalError, match=r"KeyError: 'key'.*Conv.*'conv'"):
        nnefc.compile(model())


def test_the_message_names_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any) -> Any:
        raise IndexError("broken on purpose")

    monkeypatch.setattr("nnefc.backends.cpu.CpuBackend.lower", broken)
    with pytest.raises(InternalError, match=r"scheduling.*the kernel '.*', which computes '.*'"):
        nnefc.compile(model())


# Optimizations: what fails is left out.


def answer(artifact: nnefc.Artifact, content: bytes) -> float:
    """Returns the largest difference from onnxruntime, of an image of 8 by 8."""
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(content).run(None, {"x": x})
    return float(np.abs(artifact.run({"x": x})["y"] - wanted).max())


def without(*names: str) -> PassList:
    """Returns the passes of CPUs, of which some raise errors; all that are optional, if none is named."""

    def broken(*_args: Any) -> Any:
        raise KeyError("broken on purpose")

    chosen = [step.name for step in CpuBackend.passes if step.optional and (not names or step.name in names)]
    assert chosen
    return PassList([replace(step, run=broken) if step.name in chosen else step for step in CpuBackend.passes])


def test_passes_that_others_require_are_not_optional() -> None:
    assert [step.name for step in CpuBackend.passes if step.optional and step.ensures] == []


@pytest.mark.parametrize("size", [8, "h"])
def test_a_network_compiles_without_the_optional_passes(size: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "passes", without())
    with pytest.warns(nnefc.InternalWarning) as warned:
        artifact = nnefc.compile(model(size))
    assert answer(artifact, model(size)) < 1e-6
    assert any("without the pass 'fold affine'" in str(warning.message) for warning in warned)


@pytest.mark.slow
@pytest.mark.parametrize("name", [step.name for step in CpuBackend.passes if step.optional])
def test_a_network_compiles_without_an_optional_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "passes", without(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nnefc.InternalWarning)
        assert answer(nnefc.compile(model("h")), model("h")) < 1e-6


def test_a_kernel_compiles_without_a_rule_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any) -> Any:
        raise IndexError("broken on purpose")

    monkeypatch.setattr(ContractionRule, "apply", broken)
    with pytest.warns(nnefc.InternalWarning, match=r"IndexError.*the kernel '.*without the schedule rule Contraction"):
        artifact = nnefc.compile(model())
    assert answer(artifact, model()) < 1e-6


def test_bugs_of_optimizations_are_errors_where_tracebacks_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "passes", without("fold affine"))
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(InternalError, match="in the pass 'fold affine'"):
        nnefc.compile(model())


def test_errors_of_a_user_s_progress_are_the_user_s() -> None:
    class Stopped(Exception):
        pass

    class Progress:
        @contextmanager
        def phase(self, name: str) -> Iterator[None]:
            if name == "lower":
                raise Stopped
            yield

        def kernels(self, done: int, count: int) -> None:
            pass

    with pytest.raises(Stopped):
        nnefc.compile(model(), progress=Progress())


def test_the_command_prints_one_message_and_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For an error in each of the phases."""
    monkeypatch.delenv("NNEFC_TRACEBACK", raising=False)
    (tmp_path / "model.onnx").write_bytes(model())

    def broken(*_args: Any, **_named: Any) -> Any:
        raise KeyError("broken on purpose")

    for name in ("plan_memory", "program_of", "entry_function"):
        with monkeypatch.context() as patch:
            patch.setattr(program_passes, name, broken)
            command = ["compile", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "model.so")]
            result = CliRunner().invoke(main, command)
        assert result.exit_code == 1
        lines = result.stderr.splitlines()
        assert len([line for line in lines if line.startswith("error: ")]) == 1
        assert lines[-2].startswith("error: internal error in nnefc (KeyError: 'broken on purpose'), in ")
        assert lines[-1].startswith("hint: this is a bug in nnefc: please report it")
        assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_warnings_are_those_of_the_caller_s_line(tmp_path: Path) -> None:
    found = onnx.load_model_from_string(model())
    found.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5  # it is 3
    with pytest.warns(nnefc.ModelWarning) as warned:
        nnefc.compile(found.SerializeToString())
    assert {warning.filename for warning in warned} == {__file__}
