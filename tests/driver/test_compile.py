"""The whole way: dumps, progress, states, and errors of options."""

from __future__ import annotations

import errno
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from relax_programs import network_of, program, target
from tvm import relax

import nnefc
import nnefc.driver.compile
from nnefc.cli.arrays import write_outputs
from nnefc.driver.compile import compile_network
from nnefc.ir.network import Network, State
from nnefc.support.diagnostics import CompileError

DOCUMENT = """version 1.0;
graph net(x) -> (y) {
    x = external<scalar>(shape = [2, 3]);
    y = relu(x);
}
"""
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "graph.nnef"
    path.write_text(DOCUMENT)
    return path


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.events.append(f"begin {name}")
        yield
        self.events.append(f"end {name}")

    def kernels(self, done: int, count: int) -> None:
        self.events.append(f"{done} of {count}")


def test_a_document_is_compiled_and_runs(document: Path) -> None:
    artifact = nnefc.compile(document)
    assert [(t.name, t.dtype, t.shape) for t in artifact.inputs] == [("x", "float32", (2, 3))]
    assert [(t.name, t.dtype, t.shape) for t in artifact.outputs] == [("y", "float32", (2, 3))]
    assert np.array_equal(artifact.run({"x": X})["y"], np.maximum(X, 0))


def test_progress_is_reported_of_every_phase_in_order(document: Path) -> None:
    recorder = Recorder()
    nnefc.compile(document, progress=recorder)
    names = ["read", "lower", "generate code"]
    phases = [event for event in recorder.events if " of " not in event]
    assert phases == [f"{what} {name}" for name in names for what in ("begin", "end")]
    done = [event for event in recorder.events if event not in phases]
    assert done == [f"{position} of {len(done)}" for position in range(len(done))] and done
    assert recorder.events.index("begin lower") < recorder.events.index(done[-1]) < recorder.events.index("end lower")


def test_a_dump_has_the_program_after_each_phase_in_order(document: Path, tmp_path: Path) -> None:
    nnefc.compile(document, dump=tmp_path / "new" / "dump")
    files = sorted(path.name for path in (tmp_path / "new" / "dump").glob("*.py"))
    assert files[0] == "000_network.py"
    assert files[-1].endswith("_build_entry.py")
    assert "R.nn.relu" in (tmp_path / "new" / "dump" / files[0]).read_text()
    assert "nnefc_network" in (tmp_path / "new" / "dump" / files[-1]).read_text()


def test_a_dump_into_a_file_is_an_error(document: Path) -> None:
    with pytest.raises(CompileError, match="cannot write"):
        nnefc.compile(document, dump=document)


def test_a_dump_into_a_folder_inside_a_file_is_an_error(document: Path) -> None:
    with pytest.raises(CompileError, match="cannot write"):
        nnefc.compile(document, dump=document / "dump")


def test_a_dump_that_cannot_be_written_is_an_error(document: Path, tmp_path: Path) -> None:
    (tmp_path / "dump" / "000_network.py").mkdir(parents=True)
    with pytest.raises(CompileError, match=r"cannot write .*000_network\.py"):
        nnefc.compile(document, dump=tmp_path / "dump")


def test_a_full_disk_leaves_no_empty_folders(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    artifact = nnefc.compile(document)
    monkeypatch.setattr(Path, "write_text", fail)
    monkeypatch.setattr(np, "save", fail)
    monkeypatch.setattr(type(artifact.code), "write_text", fail)
    for write in (
        lambda folder: nnefc.compile(document, dump=folder),
        lambda folder: artifact.emit("llvm-ir", folder),
        lambda folder: write_outputs(folder, {"y": X}),
    ):
        with pytest.raises(CompileError, match="No space left on device"):
            write(tmp_path / "made" / "inner")
        assert not (tmp_path / "made").exists()


def test_a_wrong_target_is_reported_before_the_model_is_read(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="unknown target 'abacus'"):
        nnefc.compile(tmp_path / "missing.nnef", "abacus")


def test_a_model_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError):
        nnefc.compile(tmp_path / "missing.nnef")


def test_an_operation_without_lowering_is_an_error() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            called = relax.op.call_pure_packed("nowhere", x, ty_args=[relax.TensorType((3,), "float32")])
            output = builder.emit_output(relax.Tuple([builder.emit(called)]))
        builder.emit_func_output(output)
    with pytest.raises(CompileError, match="has no lowering"):
        compile_network(Network("test", builder.finalize(), ("x",), ("y",)), target("llvm"))


def test_notebooks_show_networks_as_tables(document: Path) -> None:
    artifact = nnefc.compile(document, profile=True)
    shown = artifact._repr_html_()
    assert "x: float32[2, 3]" in shown and "<svg" in shown and "<script" not in shown
    with artifact.load() as model:
        assert "y: float32[2, 3]" in model._repr_html_() and "<table>" in model._repr_html_()
    assert len(repr(artifact).splitlines()) == 1


# Several compilations at the same time.


def compiled_in_threads(paths: list[Path], progress: list[nnefc.driver.compile.Progress | None]) -> list[bytes]:
    """The machine code of each network, compiled in a thread of its own."""

    def work(path: Path, observer: nnefc.driver.compile.Progress | None) -> bytes:
        return b"".join(nnefc.compile(path, progress=observer).code.objects)

    with ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(work, paths, progress))


def scaled(tmp_path: Path, factor: int) -> Path:
    path = tmp_path / f"times{factor}.nnef"
    path.write_text(DOCUMENT.replace("relu(x)", f"mul(x, {factor}.0)"))
    return path


def test_several_threads_compile_at_the_same_time(tmp_path: Path) -> None:
    paths = [scaled(tmp_path, factor) for factor in (2, 3, 4, 5)]
    one_by_one = [b"".join(nnefc.compile(path).code.objects) for path in paths]
    assert len(set(one_by_one)) == 4
    assert compiled_in_threads(paths, [None] * 4) == one_by_one
    assert gc.isenabled()


class Meeting(Recorder):
    """Ends its phase "generate code" only when others have reached theirs."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        with super().phase(name):
            yield
            if name == "generate code":
                self.barrier.wait(timeout=60)


def test_code_is_generated_while_another_thread_reads_and_lowers(tmp_path: Path) -> None:
    barrier = threading.Barrier(2)
    assert all(compiled_in_threads([scaled(tmp_path, 2), scaled(tmp_path, 3)], [Meeting(barrier), Meeting(barrier)]))


def test_a_forked_child_compiles_though_another_thread_did_so() -> None:
    """The child has the lock as it was, but not the thread that would give it back."""
    program = """
import os, sys, threading
from nnefc.driver.locks import in_turn
inside, leave = threading.Event(), threading.Event()
def stay():
    with in_turn():
        inside.set()
        leave.wait()
threading.Thread(target=stay).start()
inside.wait()
child = os.fork()
if child == 0:
    with in_turn():
        os._exit(7)
leave.set()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 7


@pytest.mark.parametrize("shape", [(4, 5), [4, 5], (np.int64(4), np.int32(5))])
def test_shapes_are_given_as_any_sequence_of_integers(document: Path, shape: Any) -> None:
    assert nnefc.compile(document, shape={"x": shape}).inputs[0].shape == (4, 5)


@pytest.mark.parametrize("shape", [("a", 2), None, 1.5, (1.5, 2), {"x"}, [[2], 3], "23"])
def test_shapes_of_anything_else_are_refused(document: Path, shape: Any) -> None:
    with pytest.raises(CompileError, match=r"the shape given for 'x' is .*, not integers\n.*\(1, 3, 224, 224\)"):
        nnefc.compile(document, shape={"x": shape})


def test_shapes_without_names_are_refused(document: Path) -> None:
    with pytest.raises(CompileError, match="shape is a tuple, not shapes by the names of inputs"):
        nnefc.compile(document, shape=(4, 5))  # type: ignore[arg-type]


# States.


def running_sum() -> Network:
    module = program("x[3]; total[3] -> y, y\ny = R.add(total, x)")
    return network_of(module, [State("total", np.array([10, 20, 30], np.float32))])


def delay_line() -> Network:
    """Each state takes the one before; the output is the oldest."""
    module = program("x[2]; a[2]; b[2]; c[2] -> y, x, a, b\ny = R.add(c, R.const(0.0, 'float32'))")
    return network_of(module, [State(name, np.full(2, i, np.float32)) for i, name in enumerate("abc")])


def test_a_state_is_kept_from_run_to_run_and_reset() -> None:
    x = np.ones(3, np.float32)
    with compile_network(running_sum(), target("llvm")).load() as model:
        for _ in range(2):
            assert [model.run({"x": x})["y0"].tolist() for _ in range(3)] == [[11, 21, 31], [12, 22, 32], [13, 23, 33]]
            model.reset()


def test_sessions_have_states_of_their_own() -> None:
    x = np.ones(3, np.float32)
    with compile_network(running_sum(), target("llvm")).load() as model:
        assert model.run({"x": x})["y0"].tolist() == [11, 21, 31]
        with model.session(threads=1) as other:
            assert other.run({"x": x})["y0"].tolist() == [11, 21, 31]
        assert model.run({"x": x})["y0"].tolist() == [12, 22, 32]


def test_states_that_take_each_others_values_do_so_at_once() -> None:
    with compile_network(delay_line(), target("llvm")).load() as model:
        oldest = [model.run({"x": np.full(2, 10 + t, np.float32)})["y0"].tolist() for t in range(6)]
    assert oldest == [[v, v] for v in (2, 1, 0, 10, 11, 12)]


def test_two_states_exchange_their_values() -> None:
    module = program("x[1]; a[1]; b[1] -> y, b, a\ny = R.subtract(a, b)")
    states = [State("a", np.ones(1, np.float32)), State("b", np.zeros(1, np.float32))]
    with compile_network(network_of(module, states), target("llvm")).load() as model:
        assert [model.run({"x": np.zeros(1, np.float32)})["y0"].item() for _ in range(4)] == [1, -1, 1, -1]


def test_a_state_may_be_written_and_never_read() -> None:
    module = program("x[3]; last[3] -> y, x\ny = R.add(x, x)")
    network = network_of(module, [State("last", np.zeros(3, np.float32))])
    assert compile_network(network, target("llvm")).run({"x": np.ones(3, np.float32)})["y0"].tolist() == [2, 2, 2]


def test_states_may_be_scalars_and_integers() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "int64"))
    count = relax.Var("count", relax.TensorType((), "int64"))
    with builder.function("main", [x, count]):
        with builder.dataflow():
            new = builder.emit(relax.op.add(count, relax.const(1, "int64")))
            shifted = builder.emit(relax.op.add(x, new))
            output = builder.emit_output(relax.Tuple([shifted, new]))
        builder.emit_func_output(output)
    network = Network("test", builder.finalize(), ("x",), ("y",), (State("count", np.array(2**40)),))
    with compile_network(network, target("llvm")).load() as model:
        results = [model.run({"x": np.array([0, 1])})["y"].tolist() for _ in range(2)]
    assert results == [[2**40 + t, 2**40 + t + 1] for t in (1, 2)]
