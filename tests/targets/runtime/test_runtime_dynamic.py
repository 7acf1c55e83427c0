"""The runtime of networks with dynamic dimensions in a program of its own: under sanitizers, on other machines, with
its allocations checked, and with strict warnings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from emulation import MACHINES, Machine
from runtime_samples import C_SOURCES, DATA_DEPENDENT_SAMPLE, DYNAMIC_SAMPLE, ZIG_CC, ZIG_TARGET
from test_runtime_sanitizers import COMPILERS, compiles_without_warnings, each_compiler, needs

from nnefc.targets.link.runtime_objects import joined_sources
from nnefc.targets.link.toolchain import RUNTIME, model_source, runtime_sources
from nnefc.targets.machine.cpu.parsing import parse_target

ZIG = ZIG_CC


SAMPLES = {"dynamic": DYNAMIC_SAMPLE, "data_dependent": DATA_DEPENDENT_SAMPLE}
each_sample = pytest.mark.parametrize("kind", SAMPLES)


def build(command: tuple[str, ...], folder: Path, kind: str) -> Path:
    """The program with the runtime's sources and the network, all in one."""
    model = folder / "model.c"
    model.write_text(model_source(SAMPLES[kind]))
    program = folder / f"{kind}_sizes"
    sources = [
        *joined_sources(runtime_sources(SAMPLES[kind]), RUNTIME, folder),
        model,
        *(C_SOURCES / f"{kind}_{part}.c" for part in ("network", "sizes")),
    ]
    flags = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-DNNEFC_OPEN", f"-I{RUNTIME}"]
    made = subprocess.run([*command, *flags, *map(str, sources), "-o", str(program)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return program


def check(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@each_sample
@each_compiler
@pytest.mark.slow
def test_sizes_may_change_in_every_way_under_sanitizers(compiler: str, kind: str, tmp_path: Path) -> None:
    needs(compiler, "-fsanitize=address,undefined")
    check([str(build((compiler, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"), tmp_path, kind))])


@pytest.mark.skipif(sys.platform != "linux", reason="needs: glibc's names behind malloc")
@each_sample
@pytest.mark.sample(1)
def test_sizes_that_were_set_or_reserved_allocate_nothing(kind: str, tmp_path: Path) -> None:
    check([str(build((*ZIG, "-target", ZIG_TARGET, "-DCOUNT_ALLOCATIONS"), tmp_path, kind))])


@pytest.mark.parametrize("machine", [m for m in MACHINES if m.name in ("armv7", "riscv64")], ids=lambda m: m.name)
@each_sample
@pytest.mark.sample(1)
def test_sizes_change_on_other_machines_too(machine: Machine, kind: str, tmp_path: Path) -> None:
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    target = parse_target(machine.target).zig_target
    check([*machine.command, str(build((*ZIG, "-target", target), tmp_path, kind))])


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.sample(1)
def test_the_runtime_of_dynamic_sizes_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    compiles_without_warnings(
        compiler, list(runtime_sources(DYNAMIC_SAMPLE)), tmp_path, "-fsyntax-only", "-DNNEFC_OPEN"
    )
