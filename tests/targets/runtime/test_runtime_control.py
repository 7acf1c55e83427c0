"""What runs ask between two kernels, asynchronous runs, messages, and resources of the program's."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import C_SOURCES, CONTROLLED, CONTROLLED_OPEN, ZIG_CC, constants_file
from test_runtime_sanitizers import COMPILERS, compiles_without_warnings, needs

from nnefc.targets.description.library import LibraryDescription
from nnefc.targets.link.runtime_objects import joined_sources
from nnefc.targets.link.toolchain import RUNTIME, _compile_flags, model_source, runtime_sources


def build(command: Sequence[str], description: LibraryDescription, folder: Path) -> Path:
    """The program with the runtime's sources, its network and its constants, all in one."""
    model, program = folder / "model.c", folder / "controlled"
    model.write_text(model_source(description))
    own = [C_SOURCES / name for name in ("controlled_network.c", "controlled_runs.c", "resources.c")]
    definitions = [flag for flag in _compile_flags(description) if flag.startswith("-D")]
    definitions += [f'-DNNEFC_CONSTANTS="{constants_file(np.int64(0).tobytes(), "controlled.bin")}"']
    flags = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{RUNTIME}", *definitions]
    flags += ["-DOPEN"] * description.is_dynamic
    flags += ["-fno-integrated-as"] * (command[0] == "clang")
    sources = [*joined_sources(runtime_sources(description), RUNTIME, folder), model, *own, RUNTIME / "constants.S"]
    made = subprocess.run(
        [*command, *flags, *map(str, sources), "-lm", "-ldl", "-o", str(program)], capture_output=True
    )
    assert made.returncode == 0, made.stderr.decode()
    return program


def passes(program: Path) -> None:
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", ""), done.stderr


@pytest.mark.parametrize("description", [CONTROLLED, CONTROLLED_OPEN], ids=["known", "dynamic"])
def test_runs_are_controlled_between_kernels(description: LibraryDescription, tmp_path: Path) -> None:
    passes(build(ZIG_CC, description, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("description", [CONTROLLED, CONTROLLED_OPEN], ids=["known", "dynamic"])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_sanitizers_find_nothing(
    compiler: str, sanitizer: str, description: LibraryDescription, tmp_path: Path
) -> None:
    flag = f"-fsanitize={sanitizer}"
    needs(compiler, flag)
    passes(build([compiler, flag, "-fno-sanitize-recover=all"], description, tmp_path))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.sample(1)
def test_it_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    parts = ("run_control", "shared_threads", "selection", "log")
    sources = [path for part in parts for path in sorted((RUNTIME / part).glob("*.c"))]
    definitions = [flag for flag in _compile_flags(CONTROLLED_OPEN) if flag.startswith("-D")]
    compiles_without_warnings(compiler, sources, tmp_path, *definitions)
