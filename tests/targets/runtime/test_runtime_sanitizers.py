"""The runtime in programs of its own: under sanitizers, with strict warnings, and with its allocations counted."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_samples import C_SOURCES, CONSTANTS, SAMPLE, ZIG_CC, ZIG_CPP, constants_file, sample_library

from nnefc.targets.link.toolchain import RUNTIME, model_source

COMPILERS = ("gcc", "clang")
RUNTIME_SOURCES = sorted(RUNTIME.glob("*.c"))


@functools.cache
def can_link_and_run(compiler: str, flag: str) -> bool:
    """Whether the compiler is here and makes a running program with the flag: sanitizers need their own libraries."""
    if shutil.which(compiler) is None:
        return False
    program = Path(constants_file(b"", f"probe-{compiler}-{flag.strip('-').replace(',', '-')}"))
    made = subprocess.run(
        [compiler, flag, "-x", "c", "-", "-o", str(program)],
        input=b"int main(void) { return 0; }",
        capture_output=True,
    )
    return made.returncode == 0 and subprocess.run([str(program)], capture_output=True).returncode == 0


def needs(compiler: str, flag: str) -> None:
    if not can_link_and_run(compiler, flag):
        pytest.skip(f"needs: {compiler} {flag}")


def build_stress(command: list[str], folder: Path) -> Path:
    """The stress program with the runtime's sources, the sample network and its constants, all in one."""
    model = folder / "model.c"
    model.write_text(model_source(SAMPLE))
    program = folder / "stress"
    sources = [*RUNTIME_SOURCES, model, C_SOURCES / "network.c", C_SOURCES / "stress.c", RUNTIME / "constants.S"]
    definition = f'-DNNEFC_CONSTANTS="{constants_file(CONSTANTS, "stress.bin")}"'
    flags = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{RUNTIME}", definition]
    made = subprocess.run(
        [*command, *flags, *map(str, sources), "-lm", "-o", str(program)], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return program


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_stress_finds_nothing_under_a_sanitizer(compiler: str, sanitizer: str, tmp_path: Path) -> None:
    flag = f"-fsanitize={sanitizer}"
    needs(compiler, flag)
    program = build_stress([compiler, "-O1", flag, "-fno-sanitize-recover=all"], tmp_path)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_stress_passes_when_built_like_a_library(tmp_path: Path) -> None:
    program = build_stress([*ZIG_CC, "-O2"], tmp_path)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_runtime_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    needs(compiler, "-O2")
    flags = ["-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-c"]
    for source in RUNTIME_SOURCES:
        made = subprocess.run(
            [compiler, *flags, str(source), "-o", str(tmp_path / "x.o")], capture_output=True, text=True
        )
        assert made.returncode == 0, made.stderr


def test_header_compiles_as_cpp(tmp_path: Path) -> None:
    source = tmp_path / "x.cpp"
    source.write_text('#include "nnefc.h"\nint main() { nnefc_options o = {}; return int(o.threads); }\n')
    command = [*ZIG_CPP, "-std=c++11", "-Wall", "-Wextra", "-Wpedantic"]
    made = subprocess.run(
        [*command, "-Werror", f"-I{RUNTIME}", "-c", str(source), "-o", str(tmp_path / "x.o")],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="needs: glibc's names behind malloc")
def test_runs_allocate_nothing(tmp_path: Path) -> None:
    program = tmp_path / "no_allocation"
    command = [*ZIG_CC, f"-I{RUNTIME}", "-ldl"]
    made = subprocess.run(
        [*command, str(C_SOURCES / "no_allocation.c"), "-o", str(program)], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    done = subprocess.run([str(program), str(sample_library())], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
