"""The runtime in programs of its own: under sanitizers, with strict warnings, and with its allocations checked."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from runtime_samples import C_SOURCES, CONSTANTS, SAMPLE, ZIG_CC, ZIG_CPP, constants_file, sample_library

from nnefc.targets.link.runtime_objects import SHARED, joined_sources
from nnefc.targets.link.toolchain import RUNTIME, model_source

COMPILERS = ("clang", "gcc")
"""Compilers whose warnings are asked for; clang, which needs no code for them, takes a fifth of the time."""
each_compiler = pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.slow)])
"""Runs the same program with sanitizers of both compilers; that of one is enough for most runs of the tests."""

ARM = "aarch64-linux-gnu-gcc"
ON_ARM = ("setarch", "-R", "qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
"""What runs a program for Arm; the sanitizer of threads wants addresses that are not random."""

THREADS = "-fsanitize=thread"
RUNTIME_SOURCES = sorted(path for folder in SHARED for path in (RUNTIME / folder).glob("*.c"))


@functools.cache
def can_link_and_run(compiler: str, flag: str) -> bool:
    """Whether the compiler is here and makes a running program with the flag: sanitizers need their own libraries."""
    runs = ON_ARM if compiler == ARM else ()
    if not all(map(shutil.which, (compiler, *runs[:1], *runs[2:3]))):
        return False
    program = Path(constants_file(b"", f"probe-{compiler}-{flag.strip('-').replace(',', '-')}"))
    made = subprocess.run(
        [compiler, flag, "-x", "c", "-", "-o", str(program)],
        input=b"int main(void) { return 0; }",
        capture_output=True,
    )
    return made.returncode == 0 and subprocess.run([*runs, str(program)], capture_output=True).returncode == 0


def needs(compiler: str, flag: str) -> None:
    if not can_link_and_run(compiler, flag):
        pytest.skip(f"needs: {compiler} {flag}")


def compiles_without_warnings(compiler: str, sources: Sequence[Path], folder: Path, *flags: str) -> None:
    """Checks C sources with strict warnings. Those of clang come before code is generated, some of gcc after."""
    needs(compiler, "-O2")
    strict = ["-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
    only = "-fsyntax-only" if compiler == "clang" else "-c"
    command = [compiler, *strict, only, f"-I{RUNTIME}", *flags, *map(str, sources)]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def build_stress(command: list[str], folder: Path) -> Path:
    """The stress program with the runtime's sources, the sample network and its constants, all in one."""
    model = folder / "model.c"
    model.write_text(model_source(SAMPLE))
    program = folder / "stress"
    own = [C_SOURCES / name for name in ("network.c", "stress.c", "storm.c")]
    sources = [*joined_sources(RUNTIME_SOURCES, RUNTIME, folder), model, *own, RUNTIME / "constants.S"]
    definition = f'-DNNEFC_CONSTANTS="{constants_file(CONSTANTS, "stress.bin")}"'
    flags = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{RUNTIME}", definition]
    flags += ["-fno-integrated-as"] * (command[0] == "clang")  # that of clang 16 and older knows no large sections
    made = subprocess.run(
        [*command, *flags, *map(str, sources), "-lm", "-ldl", "-o", str(program)], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return program


@each_compiler
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.sample(1)
def test_stress_finds_nothing_under_a_sanitizer(compiler: str, sanitizer: str, tmp_path: Path) -> None:
    flag = f"-fsanitize={sanitizer}"
    needs(compiler, flag)
    program = build_stress([compiler, flag, "-fno-sanitize-recover=all"], tmp_path)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    passes_a_storm(program)


@pytest.mark.slow
def test_threads_race_for_nothing_on_an_emulated_arm(tmp_path: Path) -> None:
    needs(ARM, THREADS)
    program = build_stress([ARM, "-O1", THREADS, "-fno-sanitize-recover=all"], tmp_path)
    passes_a_storm(program, runs=ON_ARM)


def passes_a_storm(program: Path, *libraries: str, runs: Sequence[str] = ()) -> None:
    """Sessions, forks, signals and moved threads at random; `make stress` runs more of it."""
    command = [*runs, str(program), "0.7", "1", *libraries]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("ok\n")


@pytest.mark.slow
def test_stress_passes_when_built_like_a_library(tmp_path: Path) -> None:
    program = build_stress([*ZIG_CC, "-O2"], tmp_path)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    passes_a_storm(program)
    copies = [shutil.copy(sample_library(), tmp_path / f"{number}.so") for number in range(2)]
    passes_a_storm(program, *map(str, copies))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.sample(1)
def test_runtime_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    compiles_without_warnings(compiler, RUNTIME_SOURCES, tmp_path)


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
