"""A kind of machine is a module in `compiler/backends/`, of which the rest of the compiler knows nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from relax_programs import target
from tvm.relax.transform import LegalizeOps

from nnefc.backends import backend_of, cpu_passes
from nnefc.backends.cpu_steps import Objects
from nnefc.backends.kernel_context import KernelContext, on_function
from nnefc.driver.compile import compile_network
from nnefc.driver.formats import load_network
from nnefc.driver.options import DebugOptions, ReadOptions
from nnefc.passes.backend import Backend, KernelUse, Lowered, LoweredKernel
from nnefc.passes.graph.canonical_dims import canonicalize_dims
from nnefc.passes.graph.fold_constants import fold_constants
from nnefc.passes.graph.fusion.fuse import fuse
from nnefc.passes.legalize.ieee_differences import rewrite_differences
from nnefc.passes.legalize.lower_row_reductions import lower_row_reductions
from nnefc.passes.legalize.lower_scans import lower_scans
from nnefc.passes.legalize.row_major_contractions import CONTRACTIONS
from nnefc.passes.manager import PassList, PassManager, Phase, of_phase
from nnefc.passes.pipeline import legalizations
from nnefc.passes.plan.entry_memory import HostMemory, Memory
from nnefc.passes.schedule.cpu.fallback import FallbackRule
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.cpu.target import Target

DOCUMENT = """version 1.0;
graph net(x) -> (y) {
    x = external<scalar>(shape = [1, 3, 7, 7]);
    f = variable<scalar>(shape = [5, 3, 3, 3], label = 'f');
    y = softmax(relu(conv(x, f)));
}
"""


class BoardTarget(Target):
    """A CPU that has a backend of its own."""

    backend = "board"


@dataclass(frozen=True)
class BoardCode:
    """Objects, and a list of the kernels as the only text."""

    objects: tuple[bytes, ...]
    kernels: tuple[str, ...]

    device = "cpu"
    arrival_bytes = 0
    texts = {"list": ("kernels.txt",)}  # noqa: RUF012

    def write_sources(self, folder: Path) -> list[Path]:
        (folder / "board.c").write_text("typedef int board;\n")
        return [folder / "board.c"]

    def write_text(self, _kind: str, folder: Path) -> list[Path]:
        (folder / "kernels.txt").write_text("\n".join(self.kernels))
        return [folder / "kernels.txt"]

    def summary(self) -> str:
        return f"{len(self.kernels)} kernels"


graph = partial(of_phase, Phase.GRAPH)


class BoardBackend(Backend):
    """The row-major layout, and one schedule rule for all computations."""

    alignment = 8
    computations = CONTRACTIONS
    passes = PassList(
        [
            graph("fold constants", on_function(fold_constants)),
            graph("lower rows", lambda m, c: lower_row_reductions(m, c.settings.target.host)),
            graph("lower scans", lambda m, c: lower_scans(m, c.settings.target.host)),
            graph("legalize", lambda m, c: LegalizeOps(legalizations(CONTRACTIONS))(m)),
            graph("IEEE differences", on_function(rewrite_differences)),
            graph("canonical dimensions", on_function(canonicalize_dims)),
            graph("fuse", on_function(fuse)),
            *cpu_passes.PROGRAM,
            cpu_passes.APPLY_RULE,
            cpu_passes.TENSOR_PARAMETERS,
            *cpu_passes.BLOCKS,
            *cpu_passes.FLAT,
            cpu_passes.EXPORT,
            *cpu_passes.PLAN,
            *cpu_passes.OBJECT,
        ]
    )

    def __init__(self, target: Target) -> None:
        self.target = target

    def check(self) -> None:
        if "nothing" in self.target.name:
            raise CompileError("there is no board")

    def lower(self, kernel: KernelUse, manager: PassManager) -> LoweredKernel:
        context = KernelContext(manager, kernel, self.target.host, [FallbackRule()], kernel.sizes)
        made, func = context.run(Phase.BLOCKS, Phase.FLAT, Phase.POINTERS)
        return LoweredKernel(
            made.scheduled,
            [param.ty for param in func.params],
            made.workspace_bytes,
            made.scratch_bytes,
            host=func,
            code=kernel.name,
        )

    def objects(self, manager: PassManager) -> Objects:
        return Objects(manager, self.target.host)

    def memory(self) -> Memory:
        return HostMemory(self.target.host.size_type)

    def finish(
        self,
        lowered: Lowered,
        objects: tuple[bytes, ...],
        manager: PassManager,
        dump: Callable[[str, str], None] | None = None,
    ) -> BoardCode:
        if dump is not None:
            dump("board.txt", "a board")
        return BoardCode(objects, tuple(str(kernel.code) for kernel in lowered.kernels))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.nnef"
    path.write_text(DOCUMENT)
    return path


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Target:
    module = types.ModuleType("nnefc.backends.board")
    module.make_backend = BoardBackend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    machine = target("llvm")
    return BoardTarget(**{field.name: getattr(machine, field.name) for field in fields(machine)})


def test_a_module_is_a_whole_backend(board: Target, model: Path, tmp_path: Path) -> None:
    network = load_network(model, ReadOptions(random_weights=0))
    artifact = compile_network(network, board, debug=DebugOptions(dump=tmp_path / "dump"))
    x = np.random.default_rng(0).standard_normal((1, 3, 7, 7), np.float32)
    wanted = compile_network(network, target("llvm")).run({"x": x})["y"]
    np.testing.assert_allclose(pickle.loads(pickle.dumps(artifact)).run({"x": x})["y"], wanted, atol=1e-6)
    names = [path.name[4:] for path in sorted((tmp_path / "dump").glob("*.*"))]
    assert names[-2:] == ["build_entry.py", "board.txt"]
    artifact.emit("list", tmp_path / "text")
    kernels = (tmp_path / "text" / "kernels.txt").read_text().split()
    assert artifact.code.summary() == f"{len(kernels)} kernels"
    with pytest.raises(CompileError, match="there is no asm in code for the target llvm\nhint: choose one of list"):
        artifact.emit("asm", tmp_path)


def test_what_a_backend_lacks_is_reported_before_the_work(board: Target, model: Path) -> None:
    nothing = BoardTarget(**{field.name: getattr(board, field.name) for field in fields(board)} | {"name": "nothing"})
    with pytest.raises(CompileError, match="there is no board"):
        compile_network(load_network(model, ReadOptions(random_weights=0)), nothing)


def test_every_kind_of_machine_has_a_backend() -> None:
    for text in ("llvm", "aarch64-linux-gnu", "cuda -arch=sm_80"):
        machine = parse_any_target(text)
        assert backend_of(machine).target is machine


@pytest.mark.slow
def test_code_for_a_cpu_needs_nothing_that_is_for_gpus(model: Path) -> None:
    program = f"""
import sys
from nnefc.support.minimal_tvm import import_tvm
import_tvm()
import nnefc
nnefc.compile({str(model)!r}, "llvm", random_weights=0)
print([name for name in sys.modules if name.startswith("nnefc.") and "cuda" in name])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
