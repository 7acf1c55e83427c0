"""The runtime's decoders of pictures: on damaged files under sanitizers, and without warnings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import C_SOURCES
from test_runtime_sanitizers import COMPILERS, needs

from nnefc.targets.link.toolchain import RUNTIME

SOURCES = [str(source) for source in sorted((RUNTIME / "images").glob("*.c"))]
FILES = Path(__file__).parents[2] / "data" / "images.npz"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_damaged_files_do_no_harm(compiler: str, tmp_path: Path) -> None:
    flag = "-fsanitize=address,undefined"
    needs(compiler, flag)
    with np.load(FILES) as files:
        names = [name for name in files if not name.startswith("pixels")]
        for name in names:
            files[name].tofile(tmp_path / name)
    command = [compiler, "-std=gnu11", "-O1", "-g", flag, "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{RUNTIME}", *SOURCES, str(C_SOURCES / "images.c"), "-o", str(tmp_path / "images")]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run(["./images", "300", *names], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_they_compile_without_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs: {compiler}")
    flags = ["-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-c"]
    made = subprocess.run([compiler, *flags, f"-I{RUNTIME}", *SOURCES], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
