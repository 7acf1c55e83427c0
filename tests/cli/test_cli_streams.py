"""Commands that are started without standard streams, or whose output cannot be written: one line, or none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nnefc.cli.errors import message_of

COMMAND = f"{sys.executable} -m nnefc"


def shell(line: str, folder: Path) -> tuple[int, str]:
    """The status of a line of the shell, and what it writes to stderr."""
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stderr


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["--help", "targets"])
def test_a_command_without_standard_streams_succeeds(words: str, closed: str, tmp_path: Path) -> None:
    assert shell(f"{COMMAND} {words} {closed}", tmp_path) == (0, "")


def test_what_is_printed_without_stdout_is_in_no_file(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(
        "version 1.0;\ngraph g(x) -> (y) { x = external(shape = [4]); y = relu(x); }\n"
    )
    status, _ = shell(f"{COMMAND} convert graph.nnef -o folder >&- 2>&-", tmp_path)
    assert status == 0
    assert (tmp_path / "folder" / "graph.nnef").read_text().startswith("version 1.0;")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
@pytest.mark.parametrize("words", ["--help", "targets"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(words: str, unbuffered: str, tmp_path: Path) -> None:
    line = f"PYTHONUNBUFFERED={unbuffered} {COMMAND} {words} > /dev/full"
    assert shell(line, tmp_path) == (1, "error: No space left on device\n")


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    _, message = shell(f"{COMMAND} targets | true", tmp_path)
    assert message == ""


def test_the_message_that_memory_has_ended_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nnefc.loader", None)
    assert message_of(MemoryError()) == "error: out of memory"
