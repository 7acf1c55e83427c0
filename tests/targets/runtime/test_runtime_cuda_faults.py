"""The runtime for GPUs in programs: every call of the driver failing, threads, sanitizers, strict warnings."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_samples import CUDA_SAMPLE, cuda_library, sample_kernels
from fake_driver import HERE, driver_folder
from runtime_samples import CONSTANTS, CPP, DYNAMIC_SAMPLE, ZIG_CC, constants_file, sample_library
from test_runtime_sanitizers import COMPILERS, compiles_without_warnings, needs

from nnefc.targets.link.runtime_objects import joined_sources
from nnefc.targets.link.toolchain import RUNTIME, model_source, runtime_sources


def build(command: tuple[str, ...], program: str, folder: Path) -> Path:
    """One of the C programs with the runtime's sources, the network and its constants, all in one."""
    model = folder / "model.c"
    model.write_text(model_source(CUDA_SAMPLE))
    path = folder / program
    sources = joined_sources(runtime_sources(CUDA_SAMPLE), RUNTIME, folder)
    sources += [model, HERE / "network.c", HERE / f"{program}.c", RUNTIME / "constants.S"]
    definition = f'-DNNEFC_CONSTANTS="{constants_file(CONSTANTS, "cuda-faults.bin")}"'
    flags = [
        "-std=gnu11",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        f"-I{RUNTIME}",
        definition,
        "-DNNEFC_STATES",
    ]
    made = subprocess.run(
        [*command, *flags, *map(str, sources), "-lm", "-ldl", "-o", str(path)], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return path


def run(*command: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver_folder()),
        "NNEFC_EMULATED_KERNELS": str(sample_kernels()),
    }
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, env=environment)


def check_faults(program: Path) -> None:
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
    # three results, each alone and next to another session: some 100 calls in the one life, 90 in the other
    assert int(done.stdout) > 3 * (100 + 80)


def test_every_failure_of_the_driver_is_a_status(tmp_path: Path) -> None:
    check_faults(build((*ZIG_CC, "-fno-sanitize=all"), "faults", tmp_path))


@pytest.mark.slow
def test_every_failure_under_sanitizers(tmp_path: Path) -> None:
    needs("gcc", "-fsanitize=address,undefined")
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    check_faults(build(("gcc", *flags), "faults", tmp_path))


@pytest.mark.parametrize("sanitizer", [pytest.param("address,undefined", marks=pytest.mark.slow), "thread"])
def test_threads_under_sanitizers(sanitizer: str, tmp_path: Path) -> None:
    flag = f"-fsanitize={sanitizer}"
    needs("gcc", flag)
    done = run(build(("gcc", flag, "-fno-sanitize-recover=all"), "threads", tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.sample(1)
def test_the_runtime_for_gpus_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    is_dynamic = replace(CUDA_SAMPLE, dimensions=DYNAMIC_SAMPLE.dimensions)
    for sample, own in ((CUDA_SAMPLE, []), (is_dynamic, ["-DNNEFC_OPEN"])):
        sources = [path for path in runtime_sources(sample) if path.parent.name == "cuda"]
        compiles_without_warnings(compiler, sources, tmp_path, *own)


@pytest.mark.parametrize("sanitizer", [None, pytest.param("address,undefined", marks=pytest.mark.slow)])
def test_the_header_of_cpp_knows_gpus(sanitizer: str | None, tmp_path: Path) -> None:
    command = list(CPP)
    if sanitizer is not None:
        needs("gcc", f"-fsanitize={sanitizer}")
        command = ["g++", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    flags = ["-std=c++17", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    program = tmp_path / "session"
    made = subprocess.run(
        [*command, *flags, f"-I{RUNTIME}", str(HERE / "session.cpp"), "-ldl", "-o", str(program)],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    done = run(program, cuda_library(), sample_library())
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
