"""An error ends a command with one message on stderr, status 1 and nothing half written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from nnefc.cli import main
from nnefc.cli.errors import coloured
from nnefc.support.diagnostics import CompileError, Location
from nnefc.support.internal_errors import working_in

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"


def compile_raising(monkeypatch: pytest.MonkeyPatch, error: BaseException, folder: Path) -> tuple[int, str, str]:
    def raising(*args: object, **keywords: object) -> None:
        raise error

    monkeypatch.setattr("nnefc.driver.compile.compile", raising)
    result = CliRunner().invoke(main, ["compile", "net.nnef", "-o", str(folder / "net.so")])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            CompileError("no such operation", hint="did you mean conv?"),
            "error: no such operation\nhint: did you mean conv?\n",
        ),
        (
            CompileError("bad", location=Location("g.nnef", 2, 3, "  x")),
            "g.nnef:2:3: error: bad\n2 |   x\n  |   ^\n",
        ),
        (FileNotFoundError(2, "No such file or directory", "a.nnef"), "error: a.nnef: No such file or directory\n"),
        (OSError("disk on fire"), "error: internal error in nnefc (OSError: disk on fire)\n"),
        (MemoryError(), "error: out of memory\n"),
        (KeyError("x"), "error: internal error in nnefc (KeyError: 'x')\n"),
    ],
)
def test_errors_are_messages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, message: str
) -> None:
    monkeypatch.delenv("NNEFC_TRACEBACK", raising=False)
    working_in("")  # what other tests have worked on is not noted
    status, stdout, stderr = compile_raising(monkeypatch, error, tmp_path)
    assert status == 1
    assert stdout == ""
    assert stderr.startswith(message)
    assert "Traceback" not in stderr
    assert not list(tmp_path.iterdir())


def test_traceback_of_an_internal_error_is_there_on_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NNEFC_TRACEBACK", "1")
    with pytest.raises(KeyError):
        monkeypatch.setattr("nnefc.driver.compile.compile", lambda *a, **k: {}["x"])
        CliRunner().invoke(main, ["compile", "n", "-o", str(tmp_path / "n.so")], catch_exceptions=False)


def test_output_in_a_folder_that_is_not_there_fails_before_compiling(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["compile", "net.nnef", "-o", str(tmp_path / "no" / "net.so")])
    assert result.exit_code == 1
    assert "there is no folder" in result.stderr


def test_output_over_what_is_no_regular_file_fails_before_compiling(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        result = CliRunner().invoke(main, ["compile", "net.nnef", "-o", str(path)])
        assert result.exit_code == 1
        assert "not a regular file" in result.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_words_are_coloured_once_and_only_at_their_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = coloured("g.nnef:1:2: error: an error: twice\n1 | hint: x\nhint: so")
    assert text.count("\x1b[31m") == 1
    assert "\n1 | hint: x\n" in text
    assert "\x1b[32m\x1b[1mhint:\x1b[0m so" in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in coloured("error: x")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["run", "missing.so"], ["--version"]])
def test_starting_and_running_do_not_import_tvm(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from nnefc.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        "sys.exit('tvm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


INTERRUPTED = """
import os, signal, sys
from tvm import relax
from nnefc.__main__ import main

emit = relax.BlockBuilder.emit

def interrupted(builder, *arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)
    return emit(builder, *arguments, **options)

relax.BlockBuilder.emit = interrupted
main()
"""


def test_an_interruption_within_a_network_is_one_line(tmp_path: Path) -> None:
    """TVM warns of networks that are destroyed before they are whole."""
    (tmp_path / "graph.nnef").write_text(
        "version 1.0;\ngraph g(x) -> (y) { x = external(shape = [4]); y = relu(x); }\n"
    )
    command = [sys.executable, "-c", INTERRUPTED, "compile", "graph.nnef", "-o", "y.so"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (130, "interrupted\n", "")
    assert [file.name for file in tmp_path.iterdir()] == ["graph.nnef"]
