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
from nnefc.driver.compile_many import Processes

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"


def test_libraries_for_several_targets_and_an_error_for_one() -> None:
    told: list[nnefc.Compiled] = []
    with ThreadPoolExecutor(2) as threads:
        results = nnefc.compile_many(
            DIGITS, ["llvm", "none such", "cortex-m4"], executor=threads, on_result=told.append
        )
    assert list(results) == ["llvm", "none such", "cortex-m4"] and len(told) == 3
    assert isinstance(results["none such"].error, nnefc.CompileError) and results["none such"].artifact is None
    assert results["cortex-m4"].error is None and results["cortex-m4"].description is not None
    artifact = results["llvm"].artifact
    assert artifact is not None, results["llvm"].error
    with artifact.load() as model:
        assert model(np.zeros((1, 1, 8, 8), np.float32)).shape == (1, 10)


def test_the_command_writes_a_folder_for_each_target(tmp_path: Path) -> None:
    """In processes of its own; a target that fails does not lose the others, and is what the status tells."""
    out = tmp_path / "out"
    result = CliRunner().invoke(
        main,
        ["compile", str(DIGITS), "--targets", "llvm,none such", "--jobs", "1", "--weights", "separate", "-o", str(out)],
    )
    assert result.exit_code == 1
    assert [path.relative_to(out).as_posix() for path in sorted(out.rglob("*.*"))] == [
        "llvm/model.so",
        "llvm/model.weights",
    ]
    lines = result.stderr.splitlines()
    assert any(line.startswith("[") and "] llvm, " in line and " s: wrote " in line for line in lines)
    assert any(line.endswith("failed") for line in lines) and lines[-1] == "1 of 2 compiled; not for none such"


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
def test_mistakes(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["compile", str(DIGITS), "-o", str(tmp_path / "out"), *arguments])
    assert result.exit_code in (1, 2) and words in result.stderr


def test_lists_of_features_keep_their_commas() -> None:
    from nnefc.cli.compile_many import read_targets

    given = "llvm -mcpu=skylake -mattr=+avx2,-fma, wasm ,llvm"
    assert read_targets(None, None, given) == ["llvm -mcpu=skylake -mattr=+avx2,-fma", "wasm", "llvm"]  # type: ignore[arg-type]


def test_a_process_that_is_killed_loses_its_own_work_alone() -> None:
    with Processes(1) as processes:
        lost, kept = processes.submit(os._exit, 9), processes.submit(os.getpid)
        with pytest.raises(Exception, match="terminated abruptly"):
            lost.result()
        assert kept.result() != os.getpid()


def test_what_an_executor_raises_is_the_error_of_its_target() -> None:
    class Failing(Executor):
        def submit(self, call: Any, /, *args: Any, **named: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(OSError("the machine has gone"))
            return future

    seen: list[nnefc.Compiled] = []
    with pytest.warns(FutureWarning, match="'told' is now 'on_result'"):
        found = nnefc.compile_many(DIGITS, ["llvm"], executor=Failing(), told=seen.append)["llvm"]
    assert isinstance(found.error, OSError) and seen == [found]
