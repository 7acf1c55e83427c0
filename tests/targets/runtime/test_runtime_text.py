"""The runtime's functions for strings: on random bytes under sanitizers, and without warnings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from runtime_samples import C_SOURCES
from test_runtime_sanitizers import COMPILERS, compiles_without_warnings, each_compiler, needs

from nnefc.operators.ml.lookup import text_table
from nnefc.operators.text.case_mapping import case_table
from nnefc.operators.text.regex import automaton
from nnefc.targets.link.toolchain import RUNTIME

SOURCES = sorted((RUNTIME / "text").glob("*.c"))


@each_compiler
def test_random_bytes_do_no_harm(compiler: str, tmp_path: Path) -> None:
    flag = "-fsanitize=address,undefined"
    needs(compiler, flag)
    tables = {
        "lower": case_table("LOWER"),
        "keys": text_table(["", "a", "ab", "longer than a word"]),
        "machine": automaton(r"[\w.]+@\pL*|.{3,}\b"),
    }
    for name, table in tables.items():
        (tmp_path / name).write_bytes(table.tobytes())
    sources = [str(source) for source in SOURCES if source.name != "boundary.c"]
    sources += [str(RUNTIME / name) for name in ("threads/per_thread.c", "machine/system.c", "session_memory.c")]
    command = [compiler, "-std=gnu11", "-g", flag, "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{RUNTIME}", *sources, str(C_SOURCES / "strings.c"), "-lm", "-o", str(tmp_path / "texts")]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run(["./texts", *tables], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.sample(1)
def test_it_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    sources = [*SOURCES, RUNTIME / "engine.c", RUNTIME / "checks.c"]
    compiles_without_warnings(compiler, sources, tmp_path, "-DNNEFC_TEXT", "-DNNEFC_OPEN", f"-I{RUNTIME}/open")
