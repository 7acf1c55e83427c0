"""Options of the command line become keywords of the same names in Python."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from nnefc.cli import main


class Recorder:
    """Stands for nnefc.compile: keeps what it was called with and returns something that exports."""

    inputs = outputs = ()
    checks = None
    trials = ()
    description = SimpleNamespace(constant_bytes=3, workspace_bytes=0, dimensions=(), is_dynamic=False)
    target = SimpleNamespace(zig_target="sparc64-linux-gnu", host=SimpleNamespace(hosted=True))

    def __init__(self) -> None:
        self.keywords: dict[str, Any] = {}
        self.code = self

    def summary(self) -> None:
        """Code for a CPU has none."""

    def __call__(self, model: Path, **keywords: Any) -> Recorder:
        self.model, self.keywords = model, keywords
        return self

    def export(self, path: Path) -> None:
        path.write_bytes(b"library")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr("nnefc.driver.compile.compile", recorder)
    return recorder


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ([], {}),
        (["--target", "llvm -mcpu=x86-64-v3"], {"target": "llvm -mcpu=x86-64-v3"}),
        (["--random-weights", "0"], {"random_weights": 0}),
        (["--shape", "x=1,3,8,8"], {"shape": {"x": (1, 3, 8, 8)}}),
        (["--shape", "x=1,3", "--shape", "a=b=4"], {"shape": {"x": (1, 3), "a=b": (4,)}}),
        (["--shape", "x="], {"shape": {"x": ()}}),
        (["--value", "sr=16000", "--value", "s=0.5,1,-2e3"], {"values": {"sr": 16000, "s": [0.5, 1, -2000.0]}}),
        (["--value", "m=[[1,0],[1,1]]", "--value", "b=true"], {"values": {"m": [[1, 0], [1, 1]], "b": True}}),
        (["--value", "text=a=b", "--value", "o=null"], {"values": {"text": "a=b", "o": None}}),
        (["--shape", "b=1,floor(Max(1, s)/2)=4"], {"shape": {"b": (1,), "floor(Max(1, s)/2)": (4,)}}),
        (["--graph", "second"], {"graph": "second"}),
        (["--dialect", "provisional"], {"dialect": "provisional"}),
        (["--pedantic"], {"pedantic": True}),
        (["--scan-states", "keep"], {"scan_states": "keep"}),
        (["--output-tensor", "a", "--output-tensor", "b"], {"output_tensors": ("a", "b")}),
        (["--max-depth", "9", "--max-operations", "99"], {"max_depth": 9, "max_operations": 99}),
        (["--dump", "folder"], {"dump": Path("folder")}),
    ],
)
def test_options_become_keywords(
    recorder: Recorder, tmp_path: Path, arguments: list[str], keywords: dict[str, Any]
) -> None:
    result = CliRunner().invoke(main, ["compile", "net.nnef", "-o", str(tmp_path / "net.so"), *arguments])
    assert result.exit_code == 0, result.output
    assert recorder.model == Path("net.nnef")
    assert {
        name: value for name, value in recorder.keywords.items() if name not in ("progress", "observers")
    } == keywords
    assert result.output == ""
    assert (tmp_path / "net.so").read_bytes() == b"library"


def test_verbose_reports_phases_and_the_library_on_stderr(recorder: Recorder, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["compile", "net.nnef", "-o", str(tmp_path / "net.so"), "-v"])
    assert result.stdout == ""
    assert result.stderr.startswith("link ")
    assert "7 bytes" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile"], "Missing argument 'MODEL'"),
        (["compile", "net.nnef"], "Missing option '-o'"),
        (["compile", "net.nnef", "-o", "x.so", "--shape", "1,2"], "not of the form"),
        (["compile", "net.nnef", "-o", "x.so", "--shape", "=1,2"], "not of the form"),
        (["compile", "net.nnef", "-o", "x.so", "--shape", "x=1,b"], "'b' is not an integer"),
        (["compile", "net.nnef", "-o", "x.so", "--shape", "x=b"], "not a list of integers"),
        (["compile", "net.nnef", "-o", "x.so", "--shape", "x=1,0"], "less than 1"),
        (["compile", "net.nnef", "-o", "x.so", "--shape", "x=1", "--shape", "x=2"], "twice"),
        (["compile", "net.nnef", "-o", "x.so", "--value", "16000"], "not of the form"),
        (["compile", "net.nnef", "-o", "x.so", "--value", "a=1", "--value", "a=2"], "twice"),
        (["compile", "net.nnef", "-o", "x.so", "--dialect", "other"], "'other' is not one of"),
        (["compile", "net.nnef", "-o", "x.so", "--max-depth", "0"], "not in the range"),
        (["run", "x.so", "--threads", "0"], "not in the range"),
        (["bench", "x.so", "--runs", "0"], "not in the range"),
        (["bench", "x.so", "y.so", "--weights", "w"], "--weights is of one library"),
        (["bench"], "Missing argument 'LIBRARY...'"),
        (["inspect"], "Missing argument 'FILE'"),
        (["sing"], "No such command 'sing'"),
    ],
)
def test_wrong_usage_exits_with_two(recorder: Recorder, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
