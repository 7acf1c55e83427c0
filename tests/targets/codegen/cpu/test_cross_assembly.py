"""The main loops of convolutions and matrix products, in each architecture's own instructions."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from assembly import DIALECTS, hottest_loop
from relax_programs import Case, Graph, Value, build, target

from nnefc.driver.compile import compile_network

RNG = np.random.default_rng(5)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def convolution(graph: Graph, value: Value) -> Value:
    return graph.convolve(value, random(64, 64, 3, 3), padding=1, strides=2)


def product(graph: Graph, value: Value) -> Value:
    return graph.matmul(value, graph.constant(random(96, 64)))


LONG_CASES = {
    "convolution": Case([random(1, 128, 14, 14)], lambda graph, x: graph.convolve(x, random(64, 128, 3, 3), strides=2)),
    "product": Case([random(48, 1152)], lambda graph, x: graph.matmul(x, graph.constant(random(1152, 64)))),
}
CASES = {"convolution": Case([random(1, 64, 28, 28)], convolution), "product": Case([random(48, 96)], product)}


@pytest.mark.parametrize(
    ("name", "dialect", "sums"),
    [
        ("x86-64-v2", "sse", 8),
        pytest.param("x86-64-v3", "x86_64", 12, marks=pytest.mark.slow),
        ("x86-64-v4", "x86_64", 24),
        ("aarch64-linux-gnu", "aarch64", 24),
        *(pytest.param(f"cortex-a{number}", "aarch64", 24, marks=pytest.mark.slow) for number in (53, 55, 76)),
        ("armv7-linux-gnueabihf", "arm", 8),
        ("riscv64-linux-gnu", "riscv64", 16),
        ("riscv64gcv-linux-gnu", "riscv64v", 6),  # groups of four,
    ],
)
@pytest.mark.parametrize("kernel", CASES)
@pytest.mark.sample(3)
def test_sums_stay_in_full_vector_registers(name: str, dialect: str, sums: int, kernel: str, tmp_path: Path) -> None:
    compile_network(build([CASES[kernel]]).network, target(name)).emit("asm", tmp_path)
    text = "\n".join(path.read_text() for path in sorted(tmp_path.glob("kernels*.s")))
    loop = hottest_loop(text, DIALECTS[dialect])
    assert loop.arithmetic >= sums, "\n".join(loop.lines)
    assert loop.spills == 0, "\n".join(loop.lines)
    others = len(loop.lines) - loop.arithmetic
    assert others <= {"sse": 3.1, "arm": 1.7, "riscv64v": 1.8}.get(dialect, 1.5) * loop.arithmetic, "\n".join(
        loop.lines
    )


@pytest.mark.parametrize("kernel", CASES)
def test_webassembly_multiplies_and_adds_full_vectors(kernel: str, tmp_path: Path) -> None:
    compile_network(build([CASES[kernel]]).network, target("wasm32-wasi")).emit("asm", tmp_path)
    lines = [line.strip() for path in tmp_path.glob("kernels*.s") for line in path.read_text().splitlines()]
    whole = lines.count("f32x4.mul")
    assert whole >= 8
    assert lines.count("f32x4.add") >= whole
    assert lines.count("f32.mul") == 0
    assert lines.count("f32x4.relaxed_madd") == 0  # engines of today need not have it


@pytest.mark.parametrize("name", [pytest.param("x86-64-v3", marks=pytest.mark.slow), "x86-64-v4"])
@pytest.mark.parametrize("kernel", CASES)
def test_vectors_that_wait_on_the_stack_are_aligned(name: str, kernel: str, tmp_path: Path) -> None:
    """Of 64 bytes each would otherwise lie in two lines of the cache."""
    case = LONG_CASES[kernel]
    compile_network(build([case]).network, target(name)).emit("asm", tmp_path)
    text = "\n".join(path.read_text() for path in sorted(tmp_path.glob("kernels*.s")))
    waiting = re.findall(r"vmov([ua])ps\s+(?:-?\d*\(%rsp\), %[yz]mm\d+|%[yz]mm\d+, -?\d*\(%rsp\))", text)
    all_in_registers = not waiting and (name, kernel) == ("x86-64-v3", "product")
    assert all_in_registers or set(waiting) == {"a"}
