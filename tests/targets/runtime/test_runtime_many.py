"""Many libraries in one process, open at once or one after the other."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_samples import C_SOURCES, ZIG_CC, folder, link, object_of

from nnefc.targets.link.toolchain import RUNTIME, LibraryDescription, TensorDescription

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs: /proc")

NEGATE = LibraryDescription(
    "negate",
    "here",
    "nnefc test",
    (TensorDescription("x", "float32", (4,)),),
    (TensorDescription("y", "float32", (4,)),),
)
# a launch of one task for each number, so that all threads must know what session they work for
SOURCE = """
#include <stdint.h>
extern int (*__TVMBackendParallelLaunch)(int (*body)(int, void *, void *), void *data, int tasks);
static int task(int i, void *environment, void *data) {
    float **tensors = data;
    tensors[1][i] = -tensors[0][i];
    return 0;
}
int32_t nnefc_network(float *x, float *y, uint8_t *state, uint8_t *workspace, const uint8_t *constants) {
    float *tensors[] = {x, y};
    return __TVMBackendParallelLaunch(task, tensors, 4);
}
"""


@functools.cache
def negate() -> Path:
    return link([object_of(SOURCE, "negate_in_parallel")], b"", NEGATE, folder("many") / "negate.so")


def run(*arguments: str) -> str:
    program = folder("many") / "many_libraries"
    if not program.exists():
        command = [*ZIG_CC, f"-I{RUNTIME}", str(C_SOURCES / "many_libraries.c")]
        subprocess.run([*command, "-ldl", "-lpthread", "-o", str(program)], check=True)
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
def test_three_hundred_open_libraries(tmp_path: Path) -> None:
    """The C library has little room for variables of threads that opened libraries bring, and few keys for them."""
    paths = [str(shutil.copy(negate(), tmp_path / f"{number}.so")) for number in range(300)]
    assert run("open", *paths) == ""


@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_libraries_one_after_the_other_leave_nothing(count: int) -> None:
    assert int(run("reopen", str(negate()), str(count))) <= 4  # what threads' stacks take, now more and now less
