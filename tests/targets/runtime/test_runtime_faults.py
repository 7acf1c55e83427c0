"""What a library does when the machine lets it down: memory that is refused, processors that are too old; valgrind."""

from __future__ import annotations

import functools
import itertools
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runtime_samples import C_SOURCES, CONSTANTS, SAMPLE, ZIG_CC, ZIG_TARGET, folder, link, object_file
from test_runtime_sanitizers import build_stress, needs

import nnefc
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import zig

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.nnef"
CLASSIFY = Path(__file__).parents[3] / "examples" / "c" / "classify.c"


@functools.cache
def sample(weights: str) -> Path:
    """The sample network with two states of memory that a session asks for, and its weights in or next to it."""
    path = folder("faults") / f"{weights}.so"
    blob = Constants.of(CONSTANTS)
    write_network([object_file("network.c")], blob, SAMPLE, path, zig_target=ZIG_TARGET, weights=weights)
    return path


@functools.cache
def failing_calls_program() -> Path:
    program = folder("faults") / "failing_calls"
    command = [*ZIG_CC, f"-I{RUNTIME}", "-D_GNU_SOURCE", "-rdynamic"]
    made = subprocess.run(
        [*command, str(C_SOURCES / "failing_calls.c"), "-ldl", "-lpthread", "-o", str(program)],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    return program


@pytest.mark.skipif(sys.platform != "linux", reason="needs: glibc's names behind malloc")
@pytest.mark.parametrize(
    ("threads", "weights"),
    [
        pytest.param(*case, marks=[] if case in ((1, "embedded"), (4, "separate")) else pytest.mark.slow)
        for case in itertools.product((1, 2, 4, 160), ("embedded", "separate"))
    ],
)
@pytest.mark.sample(1)
def test_every_call_that_fails_is_a_status_or_could_be_done_without(weights: str, threads: int) -> None:
    done = subprocess.run(
        [str(failing_calls_program()), str(sample(weights)), str(threads)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    # a session, its state, its workspace, the pool and its scratch, the mark of its process, a lock and two conditions;
    # the threads and their attributes; the stream to find the weights, their file and its mapping
    assert int(done.stdout) >= 10 + 3 * (threads - 1) + (4 if weights == "separate" else 0)


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="needs: prlimit")
def test_a_process_with_too_little_memory_gets_a_status(tmp_path: Path) -> None:
    """Real refusals, of the system's."""
    hungry = link([object_file("network.c")], CONSTANTS, replace(SAMPLE, workspace_bytes=8 << 30), tmp_path / "big.so")
    program = (
        "import nnefc\ntry:\n    nnefc.load({path!r}, threads=1)\nexcept nnefc.LoadError as error:\n    print(error)"
    )
    done = subprocess.run(
        ["prlimit", f"--as={4 << 30}", sys.executable, "-c", program.format(path=str(hungry))],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    wanted = "no memory or threads for a session of 8589934600 bytes and 1 threads of 512 bytes each"
    assert f"out of memory: {wanted}" in done.stdout


def build_digits(cpu: str, folder: Path) -> Path:
    """The digits network and the C example as one program for an x86-64 processor."""
    archive = folder / "libdigits.a"
    nnefc.compile(DIGITS, cpu).export(archive)
    program = folder / "classify"
    command = [*zig(), "cc", "-target", "x86_64-linux-gnu", "-O1", f"-I{folder}", str(CLASSIFY), str(archive)]
    made = subprocess.run([*command, "-lm", "-lpthread", "-o", str(program)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return program


@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs: qemu-x86_64")
def test_an_older_processor_is_refused_before_anything_runs(tmp_path: Path) -> None:
    program = build_digits("x86-64-v3", tmp_path)
    new = subprocess.run(["qemu-x86_64", "-cpu", "max", str(program)], capture_output=True, text=True, timeout=120)
    assert new.returncode == 0, new.stderr
    assert "probability:" in new.stdout
    old = subprocess.run(["qemu-x86_64", "-cpu", "Nehalem", str(program)], capture_output=True, text=True, timeout=120)
    assert old.returncode == 1
    assert old.stderr.startswith("unsupported CPU: compiled for x86-64-v3, but")
    assert {"avx", "avx2", "fma"} <= set(old.stderr.rpartition("lacks ")[2].strip().split(", "))


VALGRIND = [
    "valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--show-leak-kinds=all",
    "--errors-for-leak-kinds=all",
]  # fmt: skip
has_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs: valgrind")


@pytest.mark.slow
@has_valgrind
def test_valgrind_finds_nothing_in_the_runtime(tmp_path: Path) -> None:
    needs("gcc", "-O1")
    program = build_stress(["gcc", "-O1", "-DFEW"], tmp_path)
    done = subprocess.run([*VALGRIND, str(program)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@has_valgrind
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs: x86_64")
@pytest.mark.parametrize("weights", [pytest.param("embedded", marks=pytest.mark.slow), "separate"])
@pytest.mark.slow
def test_valgrind_finds_nothing_in_a_compiled_network(weights: str, tmp_path: Path) -> None:
    """For a processor that valgrind knows: not all versions know 512-bit vectors."""
    needs("gcc", "-O1")
    nnefc.compile(DIGITS, "llvm -mcpu=x86-64-v3").export(tmp_path / "digits.so", weights=weights)
    program = tmp_path / "classify"
    flags = ["-g", f"-I{RUNTIME}", f"-Wl,-rpath,{tmp_path}"]
    made = subprocess.run(["gcc", *flags, str(CLASSIFY), str(tmp_path / "digits.so"), "-o", str(program)])
    assert made.returncode == 0
    done = subprocess.run([*VALGRIND, str(program)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert "probability:" in done.stdout
