"""nnefc-runtime: small, and enough for what is done with libraries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import click
import numpy as np
import pytest
from packaging.requirements import Requirement
from runtime_samples import sample_library
from runtime_wheel import table, write_wheel

from nnefc import compile

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"
MAX_BYTES = 480_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and what it requires, and nothing else."""
    folder = tmp_path_factory.mktemp("device")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for module in (np, click):
        path = Path(str(module.__file__)).parent
        (folder / path.name).symlink_to(path)
        libraries = path.with_name(f"{path.name}.libs")
        if libraries.exists():
            (folder / libraries.name).symlink_to(libraries)
    return folder


def nnefc(installed: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a Python without site-packages, in a folder without the metadata of another distribution."""
    program = f"import sys; sys.path.insert(0, {str(installed)!r}); from nnefc.__main__ import main; main()"
    command = [sys.executable, "-S", "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=installed)


def test_it_is_small_and_says_what_is_in_it(wheel: Path) -> None:
    assert wheel.stat().st_size < MAX_BYTES
    lines = table(wheel)
    assert any(line.startswith("nnefc/loader ") for line in lines)
    assert int(lines[-1].split()[-1].replace(",", "")) == wheel.stat().st_size


def test_its_requirements_are_valid(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (found,) = (PathDistribution(folder) for folder in tmp_path.glob("*.dist-info"))
    requirements = [Requirement(text) for text in found.requires or ()]
    assert [each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})] == [
        "numpy"
    ]
    (loop,) = (each for each in requirements if each.name == "uvloop")
    assert loop.marker is not None
    evaluated = [loop.marker.evaluate({"extra": "serve", "sys_platform": name}) for name in ("linux", "win32")]
    assert evaluated == [True, False]


@pytest.mark.slow
def test_the_same_files_make_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    assert write_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_it_requires_no_compiler(installed: Path) -> None:
    (information,) = installed.glob("nnefc_runtime-*.dist-info")
    found = PathDistribution(information)
    assert found.metadata["Name"] == "nnefc-runtime"
    assert found.metadata.get_all("Provides-Extra") == ["cli", "encrypt", "serve", "sign"]
    needed = [re.split(r"[ <>=;]", text)[0] for text in found.requires or () if "extra" not in text]
    assert needed == ["numpy"]
    assert {text.split()[0] for text in found.requires or () if 'extra == "cli"' in text} == {"click"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--version"], "nnefc, version "),
        (["--help"], "Compile trained networks"),
        (["run", "LIBRARY", "--random", "1"], "float32  [1024]"),
        (["bench", "LIBRARY", "LIBRARY", "--runs", "3", "--threads", "1", "--sessions", "2"], "99 %"),
        (["inspect", "LIBRARY"], "input   x      float32  [1024]"),
        (["profile", "--help"], "Time the kernels"),
        (["serve", "--help"], "Open Inference Protocol"),
        (["targets"], "raspberrypi4"),
    ],
)
@pytest.mark.sample(4)
def test_the_commands_for_libraries_work(arguments: list[str], words: str, installed: Path) -> None:
    done = nnefc(installed, *(word.replace("LIBRARY", str(sample_library())) for word in arguments))
    assert (done.returncode, done.stderr) == (0, "") and words in done.stdout


def test_a_profile_as_text_a_trace_and_a_page(installed: Path, tmp_path: Path) -> None:
    library = tmp_path / "digits.so"
    compile(DIGITS, profile=True).export(library)
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    done = nnefc(installed, "profile", library, "--runs", 20, "--html", page, "--trace", trace)
    assert done.returncode == 0 and "ms a run" in done.stdout
    assert "<html" in page.read_text() and json.loads(trace.read_text())
    assert nnefc(installed, "view", library, "-o", tmp_path / "graph.html").returncode == 0


def test_times_for_programs(installed: Path) -> None:
    done = nnefc(installed, "bench", sample_library(), "--runs", 5, "--json", "--threads", 1)
    (result,) = json.loads(done.stdout)["results"]
    assert result["runs"] == 5 and result["min"] <= result["median"] <= result["p99"] <= result["max"]


@pytest.mark.parametrize("command", [["compile", "m.onnx", "-o", "m.so"], ["inspect", "m.onnx"], ["compare", "m.onnx"]])
@pytest.mark.sample(1)
def test_what_needs_the_compiler_says_so(command: list[str], installed: Path) -> None:
    done = nnefc(installed, *command)
    assert done.returncode == 1 and "needs the compiler" in done.stderr
    assert "pip uninstall nnefc-runtime, then pip install nnefc" in done.stderr


def test_python_says_so_too(installed: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(installed)!r}); import nnefc\n"
    program += "try:\n    nnefc.compile('m.onnx')\nexcept nnefc.CompileError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, cwd=installed)
    assert "nnefc.compile needs the compiler" in done.stdout, done.stderr


def test_loading_needs_numpy_alone(installed: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(installed)!r}); sys.modules['click'] = None\n"
    program += f"import nnefc, numpy\nwith nnefc.load({str(sample_library())!r}) as model:\n"
    program += "    print(model.inputs[0].name)\nprint(nnefc.__version__)"
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "x", done.stderr
