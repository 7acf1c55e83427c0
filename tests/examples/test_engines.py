"""The examples on engines for many machines, each where its engine is installed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nnefc

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "engines"
DIGITS = ROOT / "examples" / "digits" / "model.nnef"

NEEDS = {
    "dask_array": ("dask.distributed", "dask.array"),
    "ray_data": ("ray.data", "pandas", "pyarrow"),
    "ray_serve": ("ray.serve", "starlette"),
    "spark_udf": ("pyspark", "pandas", "pyarrow"),
}


def skip_without(*modules: str) -> None:
    for module in modules:
        try:
            found = importlib.util.find_spec(module) is not None
        except ImportError:
            found = False
        if not found:
            pytest.skip(f"{module} is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engines") / "digits.so"
    nnefc.compile(DIGITS, shape={"image": ("1..64", 1, 8, 8)}).export(path)
    return path


def run(program: str, folder: Path, *arguments: object) -> str:
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{program}.py"), *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("program", NEEDS)
def test_the_digits_are_classified_on_the_engine(program: str, library: Path, tmp_path: Path) -> None:
    skip_without(*NEEDS[program])
    if program == "spark_udf" and not shutil.which("java"):
        pytest.skip("there is no Java")
    (line,) = [line for line in run(program, tmp_path, library).splitlines() if line.endswith("right")]
    right, of = map(int, line.partition(": ")[2].removesuffix(" right").split(" of "))
    assert right > 0.9 * of == 0.9 * 364


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_many_targets_are_compiled_on_the_engine(engine: str, tmp_path: Path) -> None:
    skip_without("dask.distributed" if engine == "dask" else "ray")
    run("many_targets", tmp_path, engine, DIGITS, tmp_path / "out", "x86-64-v2", "cortex-m4")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["cortex-m4", "x86-64-v2"]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("job")


def test_clusters_are_named_as_usual(job: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(sys, "argv", ["ray_data.py", "digits.so"])
    assert job.job_of("--address", "RAY_ADDRESS", "").cluster is None
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert job.job_of("--address", "RAY_ADDRESS", "").cluster == "10.0.0.1:6379"
    monkeypatch.setattr(sys, "argv", ["ray_data.py", "digits.so", "--address", "auto", "--copies", "3"])
    assert job.job_of("--address", "RAY_ADDRESS", "") == job.Job(Path("digits.so"), "auto", 3, 0)


def test_batches_are_sized_by_cores_and_library(job: ModuleType, library: Path) -> None:
    assert [job.batch_size(364, cores, library) for cores in (1, 2, 16, 1000)] == [64, 46, 6, 1]


def test_rows_that_come_back_twice_or_not_at_all_are_noticed(
    job: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = np.random.default_rng(0).permutation(728)
    labels = np.tile(np.load(job.FILE)["labels"], 2)
    job.report("Engine", numbers, labels[numbers], {"a:1", "b:2"}, 2)
    assert capsys.readouterr().out.splitlines()[-1] == "Engine: 728 of 728 right"
    assert job.images(2).shape == (728, 1, 8, 8)
    for wrong in (numbers[1:], np.append(numbers, 3), np.append(numbers[1:], numbers[1])):
        with pytest.raises(SystemExit, match="rows came back of 728"):
            job.report("Engine", wrong, labels[wrong], set(), 2)


def test_requests_that_arrive_apart_are_one_batch_while_another_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of three batches runs until all others wait; the second one fails, and its requests alone."""
    monkeypatch.syspath_prepend(str(FOLDER))
    batches, found = importlib.import_module("batches"), []

    async def clients() -> list[Any]:
        release = asyncio.Event()

        async def run(requests: list[int]) -> list[int]:
            found.append(list(requests))
            await release.wait()
            if len(found) == 2:
                raise ConnectionError("lost")
            return [2 * request for request in requests]

        gathered = batches.Batches(run, 4)
        answers = []
        for request in range(6):
            answers.append(asyncio.create_task(gathered.answer(request)))
            await asyncio.sleep(3 * batches.WAIT if found else 0)
            while not found:
                await asyncio.sleep(batches.WAIT)
        release.set()
        return await asyncio.gather(*answers, return_exceptions=True)

    answers = asyncio.run(clients())
    assert found == [[0], [1, 2, 3, 4], [5]]
    assert [answers[0], answers[5]] == [0, 10] and all(isinstance(each, ConnectionError) for each in answers[1:5])


def test_the_table_of_the_examples_has_all_of_them() -> None:
    table = (FOLDER / "README.md").read_text()
    programs = {path.name for path in FOLDER.glob("*.py")} - {"job.py", "batches.py", "replica.py"}
    assert all(f"| [{name}]({name}) |" in table for name in programs)
