"""Convolutions in groups of a few channels, of which each lane of a vector reads its own."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from relax_programs import Case, Graph, Value, build, check, program, summary, target

from nnefc.driver.compile import compile_network
from nnefc.passes.compute.permuted_lanes import permuted_filters
from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.layout.assign_layouts import assign_layouts


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def filters(outputs: int, inputs: int, *kernel: int) -> np.ndarray:
    return (values(outputs, inputs, *kernel) / np.sqrt(inputs * np.prod(kernel))).astype(np.float32)


def kernels(channels: int, inputs: int, machine: str) -> list[str]:
    text = f"""x[1, 24, 9, 9] -> c
    a = R.nn.conv2d(x, D)
    b = R.nn.conv2d(a, G, groups={channels // inputs})
    c = R.nn.conv2d(b, E)"""
    arrays = {"D": filters(channels, 24, 1, 1), "G": filters(channels, inputs, 3, 3), "E": filters(8, channels, 1, 1)}
    changed = assign_layouts(program(text, **arrays), target(machine), FastAlgorithms())
    named = [line.split(" = ")[1].split("(")[0] for line in summary(changed).splitlines()[:-1]]
    return [name for name in named if not name.startswith("lv")]


@pytest.mark.parametrize(
    ("machine", "permuted"),
    [
        ("x86-64-v3", [2, 4]),
        ("x86-64-v4", [2, 4, 8]),
        ("x86-64-v2", []),
        ("cortex-a76", []),
        ("riscv64gcv-linux-gnu", []),
    ],
)
def test_groups_of_up_to_half_a_vector_are_read_by_turns(machine: str, permuted: list[int]) -> None:
    for inputs in (2, 4, 8, 16):
        found = kernels(48, inputs, machine)
        assert ("grouped_convolution" in found) == (inputs in permuted), inputs
        if inputs in permuted:  # in the layout of what is read, whatever that is
            assert found[:3] == ["block", "convolution", "grouped_convolution"]
            assert found[-2:] == ["convolution1", "unblock"]


def case(groups: int, inputs: int, kernel: tuple[int, ...], strides: int, dilation: int) -> Case:
    channels, rank = groups * inputs, len(kernel)
    shape = (2, 7, *(13, 23, 9)[-rank:])

    def make(graph: Graph, x: Value) -> list[Value]:
        y = graph.convolve(x, filters(channels, 7, *(1,) * rank))
        z = graph.convolve(
            y, filters(channels, inputs, *kernel), groups=groups, strides=strides, padding=1, dilation=dilation
        )
        unfused = graph.convolve(
            graph.unary("exp", graph.unary("tanh", x)), filters(7, 7, *kernel), groups=1, padding=1
        )
        shifted = graph.unary("relu", graph.binary("add", z, graph.constant(values(1, channels, *(1,) * rank))))
        return [shifted, unfused]

    return Case([values(*shape, seed=1)], make, 1e-5, f"{groups} groups of {inputs}, {kernel}")


CASES = [
    (5, 4, (3, 3), 1, 1), (3, 2, (3, 3), 2, 1), (13, 8, (3, 3), 1, 2), (6, 4, (5,), 1, 1), (4, 8, (2, 3, 3), 1, 1),
    (9, 4, (1, 1), 1, 1), (3, 8, (9, 9), 1, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "step"),
    [
        ("llvm -mcpu=x86-64-v3", 2),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("llvm", "llvm -mcpu=x86-64-v3")),
    ],
)
def test_small_groups_have_the_same_values(machine: str, step: int) -> None:
    check([case(*sizes) for sizes in CASES[::step]], machine)


def test_groups_of_an_input_have_the_same_values() -> None:
    """Row-major data, several groups to a block, the last block of groups not full."""

    def make(graph: Graph, x: Value) -> Value:
        return graph.convolve(x, filters(20, 4, 3, 3), groups=5)

    check([Case([values(1, 20, 9, 8)], make, 1e-5)])


def test_groups_that_are_scattered_over_blocks_are_not_read_by_turns() -> None:
    weights = filters(8, 4, 3, 3)
    assert permuted_filters(weights, range(8), 8) is not None
    assert permuted_filters(weights, [4, 5, 6, 7, 3, 2, 1, 0], 8) is not None
    assert permuted_filters(weights, [0, 2, 4, 6, 1, 3, 5, 7], 8) is None


def test_lanes_are_permuted_in_registers(tmp_path: Path) -> None:
    """No element of a vector is loaded by itself."""
    weights = filters(32, 4, 3, 3)
    built = build([Case([values(1, 32, 9, 32)], lambda graph, x: graph.convolve(x, weights, groups=8))])
    compile_network(built.network, target("x86-64-v4")).emit("asm", tmp_path)
    code = "".join(path.read_text() for path in tmp_path.glob("kernels*.s"))
    found = re.search(r"parallel_lambda:\n(.*?)\.size", code, re.DOTALL)
    assert found is not None
    words = Counter(found[1].split())
    permuted = sum(count for word, count in words.items() if word.startswith(("vperm", "vshuf", "vpshuf")))
    assert permuted >= 3 * 8  # of six neighbouring results, which read eight positions of a row
    assert not words["vinsertps"] and not words["vgatherdps"]
