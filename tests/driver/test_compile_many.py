"""One model for many targets."""

from __future__ import annotations

import os
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import nnefc
from nnefc.cli import main
from nnefc.driver import compile_many
from nnefc.driver.compile_many import Processes

TEXT = """version 1.0;
graph g(x) -> (y)
{
    x = external(shape = [1, 4]);
    w = constant(shape = [1, 4], value = [1.0, 2.0, 3.0, 4.0]);
    y = softmax(mul(x, w));
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.nnef"
    path.write_text(TEXT)
    return path


def test_libraries_for_several_targets_and_an_error_for_one(model: Path) -> None:
    told: list[nnefc.Compiled] = []
    with ThreadPoolExecutor(2) as threads:
        results = nnefc.compile_many(model, ["llvm", "none such", "cortex-m4"], executor=threads, on_result=told.append)
    assert list(results) == ["llvm", "none such", "cortex-m4"] and len(told) == 3
    assert isinstance(results["none such"].error, nnefc.CompileError) and results["none such"].artifact is None
    assert results["cortex-m4"].error is None and results["cortex-m4"].description is not None
    artifact = results["llvm"].artifact
    assert artifact is not None, results["llvm"].error
    with artifact.load() as network:
        assert network(np.zeros((1, 4), np.float32)).shape == (1, 4)


def test_the_command_writes_a_folder_for_each_target(model: Path, tmp_path: Path) -> None:
    """In processes of its own; a target that fails does not lose the others, and is what the status tells."""
    out = tmp_path / "out"
    result = CliRunner().invoke(
        main,
        ["compile", str(model), "--targets", "llvm,none such", "--jobs", "1", "--weights", "separate", "-o", str(out)],
    )
    assert result.exit_code == 1
    assert [path.relative_to(out).as_posix() for path in sorted(out.rglob("*.*"))] == [
        "llvm/model.so",
        "llvm/model.weights",
    ]
    lines = result.stderr.splitlines()
    assert any(line.startswith("[") and "] llvm: wrote " in line for line in lines)
    assert any("failed after" in line for line in lines) and lines[-1] == "1 of 2 compiled; not for none such"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--targets", "llvm", "--target", "llvm"], "--target is for one target"),
        (["--targets", "llvm", "--emit", "asm"], "--emit is for one target"),
        (["--targets", "llvm", "--dump", "d"], "--dump is for one target"),
        (["--jobs", "2"], "--jobs is for --targets"),
        (["--targets", "llvm,llvm"], "would have one folder"),
        (["--targets", ","], "there are no targets"),
    ],
)
def test_mistakes(arguments: list[str], words: str, model: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["compile", str(model), "-o", str(tmp_path / "out"), *arguments])
    assert result.exit_code in (1, 2) and words in result.stderr


def test_lists_of_features_keep_their_commas() -> None:
    from nnefc.cli.commands.compile_many import read_targets

    given = "llvm -mcpu=skylake -mattr=+avx2,-fma, wasm ,llvm"
    assert read_targets(None, None, given) == ["llvm -mcpu=skylake -mattr=+avx2,-fma", "wasm", "llvm"]  # type: ignore[arg-type]


def test_a_process_that_is_killed_loses_its_own_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_many, "_begin_process", bool)  # which imports nothing
    with Processes(1) as processes:
        lost, kept = processes.submit(os._exit, 9), processes.submit(os.getpid)
        with pytest.raises(Exception, match="terminated abruptly"):
            lost.result()
        assert kept.result() != os.getpid()


def test_what_an_executor_raises_is_the_error_of_its_target(model: Path) -> None:
    class Failing(Executor):
        def submit(self, call: Any, /, *args: Any, **named: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(OSError("the machine has gone"))
            return future

    seen: list[nnefc.Compiled] = []
    with pytest.warns(FutureWarning, match="'told' is now 'on_result'"):
        found = nnefc.compile_many(model, ["llvm"], executor=Failing(), told=seen.append)["llvm"]
    assert isinstance(found.error, OSError) and seen == [found]
