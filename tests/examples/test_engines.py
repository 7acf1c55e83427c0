"""The examples on engines for many machines, each where its engine is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

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


def test_the_table_of_the_examples_has_all_of_them() -> None:
    table = (FOLDER / "README.md").read_text()
    programs = {path.name for path in FOLDER.glob("*.py")} - {"held_back.py"}
    assert all(f"| [{name}]({name}) |" in table for name in programs)
