"""The C++ header, used in every way, and the C++ example, built with its own Makefile."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import (
    C_SOURCES,
    CONSTANTS,
    CONTROLLED_OPEN,
    CPP,
    DATA_DEPENDENT_SAMPLE,
    DYNAMIC_SAMPLE,
    SAMPLE,
    ZIG_CPP,
    ZIG_TARGET,
    link,
    object_file,
    object_of,
)

from nnefc.targets.description.library import TensorDescription
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network
from nnefc.targets.link.toolchain import RUNTIME

EXAMPLE = Path(__file__).parents[3] / "examples" / "cpp"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-pthread")


def has(compiler: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(compiler) is None, reason=f"needs: {compiler}")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((*ZIG_CPP, "-std=c++17"), id="zig", marks=[pytest.mark.slow] if CPP != ZIG_CPP else []),
        pytest.param(("g++", "-std=c++17"), id="g++", marks=has("g++")),
        pytest.param(
            ("g++", "-std=c++17", "-g", "-fsanitize=address,undefined"),
            id="g++ sanitized",
            marks=[has("g++"), pytest.mark.slow],
        ),
        pytest.param(("g++", "-std=c++20"), id="g++ 20", marks=[has("g++"), pytest.mark.slow]),
        pytest.param(("clang++", "-std=c++17"), id="clang++", marks=[has("clang++"), pytest.mark.slow]),
    ],
)
def test_the_header_does_what_it_says(command: tuple[str, ...], tmp_path: Path) -> None:
    blob = Constants.of(CONSTANTS)
    for name, description, weights in (
        ("sample.o", replace(SAMPLE, prefix="sample"), "embedded"),
        ("combined.so", SAMPLE, "embedded"),
        ("separate.so", replace(SAMPLE, metadata=(("author", "«ä»"), ("b\0", ""))), "separate"),
    ):
        path = tmp_path / name
        write_network([object_file("network.c")], blob, description, path, zig_target=ZIG_TARGET, weights=weights)
    elsewhere = (tmp_path / "separate.weights").rename(tmp_path / "elsewhere")
    sources = [f"-I{RUNTIME}", f"-I{tmp_path}", str(C_SOURCES / "session.cpp"), str(tmp_path / "sample.o")]
    program = tmp_path / "session"
    made = subprocess.run(
        [*command, *STRICT, *sources, "-ldl", "-lm", "-o", str(program)],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    arguments = [program, tmp_path / "combined.so", tmp_path / "separate.so", elsewhere]
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.slow
def test_clang_has_no_warning_about_the_header(tmp_path: Path) -> None:
    """With the headers of its own library: what links it, which takes long, is tested above."""
    write_network(
        [object_file("network.c")],
        Constants.of(CONSTANTS),
        replace(SAMPLE, prefix="sample"),
        tmp_path / "sample.o",
        zig_target=ZIG_TARGET,
    )
    command = [*ZIG_CPP, "-std=c++17", *STRICT, "-O0", f"-I{RUNTIME}", f"-I{tmp_path}"]
    command += ["-c", str(C_SOURCES / "session.cpp"), "-o", str(tmp_path / "x.o")]
    made = subprocess.run(command, capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, and a library that squares twelve numbers."""
    folder = tmp_path_factory.mktemp("cpp") / "a folder"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("classify"))
    source = (
        "#include <stdint.h>\nint32_t nnefc_network(float *x, float *y, uint8_t *s, uint8_t *w, const uint8_t *c)"
        " { for (int i = 0; i < 12; i++) y[i] = x[i] * x[i]; return x[0] < -100 ? -1 : 0; }"
    )
    x, y = (TensorDescription(name, "float32", (3, 4)) for name in "xy")
    description = replace(
        SAMPLE, model="squares", inputs=(x,), outputs=(y,), states=(), constant_bytes=0, state_bytes=0,
        state_initial_offset=0,
    )  # fmt: skip
    link([object_of(source, "squares")], b"", description, folder / "squares.so")
    if shutil.which("make") is None:
        pytest.skip("needs: make")
    made = subprocess.run(
        ["make", f"INCLUDE={RUNTIME}", f"CXX={shlex.join(CPP)}", "CXXFLAGS=-O0 -Wall -Wextra -Werror"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return folder


def classify(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        ["./classify", *arguments], cwd=folder, capture_output=True, text=True, env=environment, timeout=60
    )


def test_the_example_prints_the_largest(example: Path) -> None:
    np.array([1, -9, 2, 3, 4, 5, -5, 0, 7, 0.5, 0, 4], np.float32).tofile(example / "x.f32")
    done = classify(example, "squares.so", "x.f32", "6")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["squares, compiled for here by nnefc test", "y:"]
    assert [line.split() for line in lines[2:]] == [
        ["1", "81"], ["8", "49"], ["5", "25"], ["6", "25"], ["4", "16"], ["11", "16"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "usage:"),
        (["squares.so", "x", "0"], 2, "usage:"),
        (["none.so"], 1, "none.so: cannot open shared object file"),
        (["Makefile"], 1, "invalid ELF header"),
        (["squares.so", "none.f32"], 1, "none.f32 cannot be read"),
        (["squares.so", "README.md"], 1, "does not have the 48 bytes of the input"),
    ],
)
def test_what_goes_wrong_in_the_example_is_reported(
    example: Path, arguments: list[str], status: int, message: str
) -> None:
    done = classify(example, *arguments)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr


SQUARES = """#include <stdint.h>
int32_t nnefc_network_sizes(const int64_t *values, int64_t *derived) {
    derived[0] = *values, derived[1] = 0, derived[2] = 0;
    return 0;
}
int32_t nnefc_between_kernels(int32_t position);
int32_t nnefc_network(const float *x, float *y, uint8_t *s, uint8_t *w, const uint8_t *c, int32_t *attention,
                      const int64_t *sizes) {
    while (*sizes > 0 && x[0] == -1) /* until the run is ended */
        if (*(volatile int32_t *)attention != 0 && nnefc_between_kernels(0) != 0) return 0;
    for (int64_t i = 0; i < *sizes; i++) y[i] = x[i] * x[i];
    return *sizes > 0 && x[0] == -2 ? -1 : 0;
}
"""


@pytest.mark.parametrize(
    "sanitized", [False, pytest.param(True, marks=[pytest.mark.slow, has("g++")])], ids=["combined", "sanitized"]
)
def test_the_header_takes_dynamic_sizes(sanitized: bool, tmp_path: Path) -> None:
    network = object_file("dynamic_network.c")
    write_network(
        [network],
        None,
        replace(DYNAMIC_SAMPLE, prefix="open_sample"),
        tmp_path / "open_sample.o",
        zig_target=ZIG_TARGET,
    )
    link([network], b"", DYNAMIC_SAMPLE, tmp_path / "combined.so")
    x, y = (TensorDescription(name, "float32", ("n",)) for name in "xy")
    squares = replace(DYNAMIC_SAMPLE, inputs=(x,), outputs=(y,), dimensions=DYNAMIC_SAMPLE.dimensions[:1], lifetimes=())
    squares = replace(squares, cancellable=True, logs=True)
    link([object_of(SQUARES, "open_squares")], b"", squares, tmp_path / "squares.so")
    link([object_file("data_dependent_network.c")], b"", DATA_DEPENDENT_SAMPLE, tmp_path / "data_dependent.so")
    link([object_file("controlled_network.c", "-DOPEN")], bytes(8), CONTROLLED_OPEN, tmp_path / "controlled.so")
    flags = ["-std=c++17", *STRICT, *["-g", "-fsanitize=address,undefined"] * sanitized]
    sources = [f"-I{RUNTIME}", f"-I{tmp_path}", str(C_SOURCES / "open_session.cpp"), str(tmp_path / "open_sample.o")]
    program = tmp_path / "open_session"
    made = subprocess.run([*CPP, *flags, *sources, "-ldl", "-lm", "-o", str(program)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run(
        [
            str(program),
            *(str(tmp_path / f"{name}.so") for name in ("combined", "squares", "data_dependent", "controlled")),
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    if not sanitized:
        does_without_exceptions(tmp_path / "squares.so", tmp_path / "controlled.so", tmp_path)


def does_without_exceptions(squares: Path, controlled: Path, folder: Path) -> None:
    """Checks the same header where failures are results, with the same libraries."""
    program = folder / "without_exceptions"
    flags = ["-std=c++17", *STRICT, "-fno-exceptions", "-fno-rtti", f"-I{RUNTIME}"]
    source = str(C_SOURCES / "without_exceptions.cpp")
    made = subprocess.run([*CPP, *flags, source, "-ldl", "-o", str(program)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    done = subprocess.run([str(program), str(squares), str(controlled)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
