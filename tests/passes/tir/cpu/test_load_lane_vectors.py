"""Which factors of a sum are lanes of loaded vectors, read off the code of Arm's processors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from emulation import run_on, with_glibc
from relax_programs import Case, Graph, Value, build, differences, target

from nnefc.driver.compile import compile_network


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def convolution(inputs: int, outputs: int, size: int, kernel: int, strides: int = 1) -> Case:
    def make(graph: Graph, x: Value) -> Value:
        return graph.convolve(x, values(outputs, inputs, kernel, kernel), strides=strides)

    return Case([values(1, inputs, size, size)], make, 1e-4)


def product(rows: int, depth: int, columns: int) -> Case:
    return Case([values(rows, depth)], lambda graph, x: graph.matmul(x, graph.constant(values(depth, columns))), 1e-4)


def innermost_loops(assembly: str) -> list[list[str]]:
    """The instructions of each loop that has none inside."""
    lines, found, begin = [line.split("//")[0].strip() for line in assembly.splitlines()], [], {}
    for number, line in enumerate(lines):
        if label := re.match(r"(\.L\w+):", line):
            begin[label[1]] = number
        jump = re.match(r"(?:b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, #\d+,)\s*(\.L\w+)", line)
        if jump and jump[1] in begin:
            body = lines[begin[jump[1]] + 1 : number + 1]
            if not any(part.endswith(":") for part in body):
                found.append(body)
    return found


def longest(case: Case, name: str, folder: Path) -> list[str]:
    """The innermost loop with the maximum multiply-adds."""
    compile_network(build([case]).network, target(name)).emit("asm", folder)
    loops = [loop for path in folder.glob("kernels*.s") for loop in innermost_loops(path.read_text())]
    return max(loops, key=lambda loop: sum(line.startswith("fmla") for line in loop))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(product(28, 96, 64), id="full tiles", marks=pytest.mark.slow),
        pytest.param(product(26, 96, 48), id="two rows left"),
        pytest.param(convolution(64, 64, 14, 1), id="convolution", marks=pytest.mark.slow),
        pytest.param(convolution(32, 32, 9, 3, strides=2), id="strided convolution"),
    ],
)
@pytest.mark.parametrize("name", ["cortex-a53", "cortex-a76"])
@pytest.mark.sample(2)
def test_four_numbers_are_loaded_at_once_and_nothing_is_spilled(case: Case, name: str, tmp_path: Path) -> None:
    loop = longest(case, name, tmp_path)
    sums = [line for line in loop if line.startswith("fmla")]
    assert {line[-3:] for line in sums} == {"[0]", "[1]", "[2]", "[3]"}
    assert len(loop) <= 1.4 * len(sums), loop
    assert not any("[sp" in line or line.startswith("ld1r") for line in loop)


def test_neighbours_along_rows_are_loaded_at_once() -> None:
    """Three input channels: not of four neighbours in the sum, and one after the other in a row of pixels. A row of
    many columns: those of the next term are far away."""
    cases = [convolution(3, 16, 17, 3), convolution(3, 16, 17, 3, strides=2), convolution(2, 8, 7, 1), product(7, 5, 8)]
    cases.append(product(1, 24, 1000))
    built = build(cases)
    machine = with_glibc("aarch64", "aarch64-linux-gnu", "qemu-aarch64")
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    artifact = compile_network(built.network, target(machine.target))
    assert not differences(built.expected, run_on(machine, artifact, built.inputs))
