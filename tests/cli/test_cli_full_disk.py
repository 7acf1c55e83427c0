"""Commands that write to a full disk: one message that names it, no word of the linker, nothing half written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NETWORK = "version 1.0;\ngraph g(x) -> (y) { x = external(shape = [4]); y = relu(x); }\n"

UNSHARE = ("unshare", "--map-root-user", "--mount")
"""A namespace in which anybody may mount."""

SCRIPT = """
mount -t tmpfs -o size=256k disk "$1" || exit 77
dd if=/dev/zero of="$1/full" bs=1k count=$2 2> /dev/null
shift 2
"$@"
status=$?
ls -A "$DISK" >&2
exit $status
"""


def run_on_full_disk(tmp_path: Path, used: int, *words: str, **environment: str) -> tuple[int, list[str]]:
    """The status and the lines of a command with a disk of 256 KiB at `tmp_path`/disk, of which so many are used."""
    disk = tmp_path / "disk"
    disk.mkdir(exist_ok=True)
    (tmp_path / "graph.nnef").write_text(NETWORK)
    command = [*UNSHARE, "sh", "-c", SCRIPT, "sh", str(disk), str(used), sys.executable, "-m", "nnefc", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "DISK": str(disk), **environment}
    )
    if done.returncode == 77:
        pytest.skip("this user may not mount a file system in a namespace")
    return done.returncode, done.stderr.splitlines()


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system has no namespaces for users")


@pytest.mark.parametrize(
    ("used", "words"),
    [
        (252, ("compile", "d.so")),
        pytest.param(240, ("compile", "d.a"), marks=pytest.mark.slow),
        (256, ("view", "d.html")),
    ],
)
@pytest.mark.sample(1)
def test_a_full_disk_is_named_and_nothing_is_left(used: int, words: tuple[str, str], tmp_path: Path) -> None:
    command, name = words
    status, lines = run_on_full_disk(tmp_path, used, command, "graph.nnef", "-o", f"disk/{name}")
    assert (status, lines[0]) == (1, f"error: cannot write disk/{name}: No space left on device")
    assert lines[1].startswith("hint: disk has ")
    assert lines[2:] == ["full"]


def test_a_full_disk_of_temporary_files_is_named(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    status, lines = run_on_full_disk(tmp_path, 240, "compile", "graph.nnef", "-o", "d.so", TMPDIR=str(disk))
    assert (status, lines[0]) == (1, f"error: cannot write temporary files to {disk}: No space left on device")
    assert lines[1].endswith("TMPDIR=/path/to/folder")
    assert lines[2:] == ["full"]
