"""The page on other builds, and the projects that it describes; where their tools are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nnefc

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "build-systems.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
DIGITS = np.load(ROOT / "examples" / "digits" / "test.npz")


@cache
def works(command: str, question: str = "--version") -> bool:
    """Whether a command is there, and is more than a proxy without the program."""
    return (
        shutil.which(command) is not None and subprocess.run([command, question], capture_output=True).returncode == 0
    )


@cache
def java() -> Path | None:
    """The folder of programs of a Java that calls C, version 22 or newer."""
    folders = [Path(found).resolve().parent for found in [shutil.which("javac")] if found]
    folders += [home / "bin" for home in sorted(Path("/usr/lib/jvm").glob("*"))]
    for folder in folders:
        if (folder / "javac").exists() and (folder / "java").exists():
            printed = subprocess.run([folder / "javac", "--version"], capture_output=True, text=True).stdout
            version = re.match(r"javac (\d+)", printed)
            if version and int(version[1]) >= 22:
                return folder
    return None


# Conditions in texts are evaluated before the test runs, not where tests are collected.
needs_cmake = pytest.mark.skipif("not works('cmake')", reason="cmake is not installed")
needs_cargo = pytest.mark.skipif("not works('cargo')", reason="cargo is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the examples, which builds may write to, and the command nnefc on the path."""
    for name in ("cmake", "go", "java", "rust"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / "examples" / name)
    (tmp_path / "examples" / "digits").mkdir()
    shutil.copytree(ROOT / "examples" / "digits" / "model.nnef", tmp_path / "examples" / "digits" / "model.nnef")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "nnefc"
    command.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {sys.executable} -m nnefc "$@"\n')
    command.chmod(0o755)
    return tmp_path


def run(command: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=environment, input=given, capture_output=True, text=True
    )


def build(command: str, folder: Path) -> None:
    done = run(command, folder)
    assert done.returncode == 0, done.stdout + done.stderr


def check_digits(program: str, folder: Path) -> None:
    for image, label in zip(DIGITS["images"][:2], DIGITS["labels"][:2], strict=True):
        done = run(program, folder, " ".join(map(str, np.ravel(image / 16))))
        assert done.stdout.strip() == str(label), done.stderr


def compilations(folder: Path) -> int:
    return sum(line.startswith("compile ") for line in (folder / "calls").read_text().splitlines())


@needs_cmake
def test_the_project_of_cmake(folder: Path) -> None:
    listed, *_ = re.findall(r"^```cmake\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert listed in (folder / "examples" / "cmake" / "CMakeLists.txt").read_text()
    build(COMMANDS[0], folder)
    check_digits("build/classify", folder)
    build("cmake --build build", folder)
    assert compilations(folder) == 1
    model = folder / "examples" / "digits" / "model.nnef" / "graph.nnef"
    time.sleep(0.01)  # make sees that it is newer
    model.touch()
    assert "compile" in run("cmake --build build -- -n", folder).stdout  # what would be done


PROJECT = """
cmake_minimum_required(VERSION 3.15)
project(classify C)
find_package(nnefc REQUIRED)
{line}
add_executable(classify classify.c)
target_link_libraries(classify PRIVATE digits)
"""


@needs_cmake
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nnefc_add_network(digits none.onnx)", "there is no model"),
        ("nnefc_add_network(9digits ../digits/model.nnef)", "names of functions in C"),
        ("nnefc_add_network(digits ../digits/model.nnef STRICT)", "come after OPTIONS"),
        ("set(CMAKE_CROSSCOMPILING TRUE)\nnnefc_add_network(digits ../digits/model.nnef)", "say TARGET"),
    ],
)
@pytest.mark.sample(2)
def test_mistakes_in_a_project_of_cmake(folder: Path, line: str, message: str) -> None:
    (folder / "examples" / "cmake" / "CMakeLists.txt").write_text(PROJECT.format(line=line))
    done = run('cmake -S examples/cmake -B build -Dnnefc_DIR="$(nnefc --cmakedir)"', folder)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())


@needs_cmake
@pytest.mark.slow
def test_a_shared_library_with_options(folder: Path) -> None:
    line = "nnefc_add_network(digits ../digits/model.nnef SHARED TARGET llvm OPTIONS --strict)"
    (folder / "examples" / "cmake" / "CMakeLists.txt").write_text(PROJECT.format(line=line))
    source = folder / "examples" / "cmake" / "classify.c"
    source.write_text(source.read_text().replace("digits.h", "nnefc.h").replace("digits_", "nnefc_"))
    build('cmake -S examples/cmake -B build -Dnnefc_DIR="$(nnefc --cmakedir)" && cmake --build build', folder)
    assert "--target llvm --strict" in (folder / "calls").read_text()
    check_digits("build/classify", folder)


@needs_cargo
@pytest.mark.slow
def test_the_project_of_cargo(folder: Path) -> None:
    build(COMMANDS[1].replace("cargo build", "cargo build --offline"), folder)
    check_digits("examples/rust/target/release/classify", folder)


@pytest.mark.skipif("not works('go', 'version') or shutil.which('cc') is None", reason="go is not installed, or no cc")
def test_the_project_of_go(folder: Path) -> None:
    offline = f"export GOCACHE={folder}/cache GOPATH={folder}/go GOFLAGS=-mod=readonly GOTOOLCHAIN=local\n"
    build(offline + COMMANDS[2], folder)
    check_digits("examples/go/classify", folder)
    assert "64 numbers are needed" in run("examples/go/classify", folder, "1 2").stderr


@pytest.mark.skipif("java() is None", reason="no Java of version 22 or newer is installed")
@pytest.mark.slow
def test_the_class_of_java(folder: Path) -> None:
    path = f"export PATH={java()}:$PATH\n"
    *commands, command = COMMANDS[3].splitlines()
    build(path + "\n".join(commands), folder)
    check_digits(path + "cd examples/java\n" + command.partition(" <")[0], folder)


@pytest.mark.skipif("not works('pkg-config')", reason="pkg-config is not installed")
def test_the_answer_to_pkg_config(folder: Path) -> None:
    ask = 'PKG_CONFIG_PATH="$(nnefc --includedir)" pkg-config'
    position = Path(run("nnefc --includedir", folder).stdout.strip())
    assert run(f"{ask} --cflags --libs nnefc", folder).stdout.split() == [f"-I{position}", "-lm", "-lpthread"]


def test_the_version_that_pkg_config_tells(folder: Path) -> None:
    position = Path(run("nnefc --includedir", folder).stdout.strip())
    assert f"\nVersion: {nnefc.__version__}\n" in (position / "nnefc.pc").read_text()


def test_the_folder_of_headers(folder: Path) -> None:
    position = Path(run("nnefc --includedir", folder).stdout.strip())
    assert {"nnefc.h", "nnefc.hpp", "nnefc_image.hpp"} <= {path.name for path in position.iterdir()}
