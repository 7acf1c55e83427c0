"""The checks that every change must pass: what they do on machines that lack what they need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"


def run_on_a_machine(folder: Path, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the script where there are these programs, as texts for the shell, and no others."""
    if not SCRIPT.exists():
        pytest.skip("needs: a checkout")
    for name in ("bash", "cat", "dirname", "env", "mktemp", "rm", "timeout"):
        (folder / name).symlink_to(shutil.which(name) or "")
    for name, text in {"make": 'echo "made $1"', **programs}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": str(folder)}
    return subprocess.run(
        [str(folder / "bash"), str(SCRIPT)], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def test_a_machine_that_could_have_emulators_and_gets_none_fails(tmp_path: Path) -> None:
    done = run_on_a_machine(tmp_path, {"apt-get": "echo no such package >&2; exit 100", "id": "echo 0"})
    assert done.returncode == 1
    assert "no such package" in done.stderr
    assert "could not be installed" in done.stderr
    assert done.stdout == "made style\n"  # which needs none, and runs in parallel


@pytest.mark.parametrize(
    "programs",
    [
        pytest.param({"id": "echo 0"}, id="no package manager"),
        pytest.param({"id": "echo 1000", "apt-get": "exit 100"}, id="not root"),
        pytest.param({"id": "echo 0", "apt-get": "exit 0"}, id="installed"),
    ],
)
def test_a_machine_that_cannot_have_emulators_runs_the_others(programs: dict[str, str], tmp_path: Path) -> None:
    done = run_on_a_machine(tmp_path, programs)
    assert (done.returncode, done.stdout) == (0, "made style\nmade test\nmade types\n"), done.stderr
