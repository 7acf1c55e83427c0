"""Every target that can be run: networks compiled for it, run under its emulator, compared with NumPy."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pytest
from emulation import MACHINES, Machine, run_on
from random_networks import random_case
from relax_programs import Case, Graph, Value, build, differences, network_of, opened, program, target

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.driver.options import CodeOptions

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


# Another way to the same code, or a processor that is much like others, of which a digit is enough.
ALIKE = {
    *("x86-64-v2", "x86-64-v3", "cortex-a76", "riscv64"),
    *("aarch64-opened", "armv7-opened", "riscv64-opened"),
}


def machines(slow: set[str]) -> list[object]:
    marks = [pytest.mark.slow]
    return [pytest.param(each, id=each.name, marks=marks if each.name in slow else []) for each in MACHINES]


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Machine:
    found: Machine = request.param
    if found.missing:
        pytest.skip(f"needs: {found.missing}")
    return found


def check_on(machine: Machine, cases: list[Case]) -> None:
    built = build(cases)
    artifact = compile_network(
        built.network, target(machine.target), CodeOptions(memory_budget=math.inf)
    )  # Winograd's too
    outputs = run_on(machine, artifact, built.inputs)
    wrong = differences(built.expected, outputs)
    assert not wrong, "\n".join(wrong)


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def sampled_cases() -> list[Case]:
    """One of each kind of kernel, some in full vectors, some not."""
    rng = np.random.default_rng(11)
    x, odd, rows = random(rng, 1, 32, 13, 15), random(rng, 2, 7, 9, 11), random(rng, 3, 5, 40)
    near_one = [(name, random(rng, 3, 77)) for name in ("exp", "tanh", "sigmoid", "erf", "sin", "sqrt", "log", "atan")]

    def scaled(*shape: int) -> np.ndarray:
        return random(rng, *shape) / np.float32(np.sqrt(np.prod(shape[1:])))

    def winograd(graph: Graph, value: Value) -> Value:
        return graph.convolve(value, scaled(64, 32, 3, 3), padding=1)

    def strided(graph: Graph, value: Value) -> Value:
        return graph.unary("relu", graph.convolve(value, scaled(48, 32, 3, 3), strides=2, padding=1))

    def pointwise(graph: Graph, value: Value) -> Value:
        return graph.convolve(value, scaled(40, 32, 1, 1))

    def depthwise(graph: Graph, value: Value) -> Value:
        return graph.convolve(value, scaled(32, 1, 5, 5), padding=2, groups=32)

    def awkward(graph: Graph, value: Value) -> Value:
        return graph.convolve(value, scaled(6, 7, 3, 2), padding=[1, 0, 0, 1], dilation=2)

    def product(graph: Graph, value: Value) -> Value:
        return graph.binary("add", graph.matmul(value, graph.constant(scaled(40, 33))), graph.constant(scaled(33)))

    def attention(graph: Graph, q: Value, k: Value, v: Value) -> Value:
        seen = np.where(np.tri(*q.shape[1:2], k.shape[1], k.shape[1] - q.shape[1], bool), np.float32(0), -np.inf)
        scores = graph.binary("add", graph.matmul(q, graph.transpose(k, (0, 2, 1))), graph.constant(seen.astype("f")))
        return graph.matmul(graph.softmax(scores, 2), v)

    def elementary(name: str, values: np.ndarray) -> Case:
        domain = np.abs(values) + np.float32(0.1) if name in ("sqrt", "log") else values
        return Case([domain], lambda graph, value: graph.unary(name, value), 3e-6, name)

    return [
        Case([x], winograd, 2e-5, "winograd"),
        Case([x], strided, name="strided"),
        Case([x], pointwise, name="pointwise"),
        Case([x], depthwise, name="depthwise"),
        Case([odd], awkward, name="awkward convolution"),
        Case([x], lambda graph, value: graph.max_pool(value, 3, 2, 1), name="max pooling"),
        Case([odd], lambda graph, value: graph.average_pool(value, 2, 2), name="average pooling"),
        Case([rows], product, name="product"),
        Case([rows], lambda graph, value: graph.matmul(value, graph.transpose(value, [0, 2, 1])), name="own product"),
        Case([rows], lambda graph, value: graph.softmax(value, 2), name="softmax"),
        Case([odd], lambda graph, value: graph.softmax(value, 1), name="softmax over channels"),
        Case([odd], lambda graph, value: graph.reduce("mean", value, [2, 3]), name="mean"),
        Case([random(rng, 2, n, size) for n, size in ((75, 17), (80, 17), (80, 9))], attention, name="attention"),
        Case([random(rng, 3, n, 32) for n in (1, 40, 40)], attention, name="attention of one query"),
        *(elementary(name, values) for name, values in near_one),
    ]


# Every kernel runs on one of the machines, of which two have 64 bits and two 32; a few run on Windows, too. Where slow
# tests run, every machine runs all of them.
SHARES = {
    "aarch64": slice(0, None, 4),
    "armv7": slice(1, None, 4),
    "riscv64gcv": slice(2, None, 4),
    "wasm32": slice(3, None, 4),
    "windows": slice(2, None, 8),
}


@pytest.mark.parametrize("machine", [m for m in machines(set()) if m.id in SHARES], indirect=True)
def test_some_networks_have_the_right_values(machine: Machine) -> None:
    check_on(machine, sampled_cases()[SHARES[machine.name]])


@pytest.mark.slow
@pytest.mark.parametrize("machine", machines(set()), indirect=True)
def test_networks_have_the_right_values(machine: Machine) -> None:
    check_on(machine, sampled_cases())


@pytest.mark.slow
@pytest.mark.parametrize("machine", machines(set()), indirect=True)
def test_random_networks_have_the_right_values(machine: Machine) -> None:
    first = 1000 + 10 * MACHINES.index(machine)
    check_on(machine, [random_case(seed, steps=8) for seed in range(first, first + 3)])


# One of each word size; the runtime itself is tried on others too.
DYNAMIC_SIZES_ON = {"aarch64", "wasm32"}


@pytest.mark.parametrize("machine", machines({m.name for m in MACHINES} - DYNAMIC_SIZES_ON), indirect=True)
def test_one_library_takes_every_size(machine: Machine) -> None:
    """A product in tiles with a remainder, and rows of dynamic length."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((5, 7, 24)).astype(np.float32), rng.standard_normal((24, 20)).astype(np.float32) / 5
    text = """x["n", "s", 24] -> y, z
    a = R.matmul(x, w)
    b = R.nn.relu(a)
    y = R.nn.softmax(b, 1)
    z = R.sum(a, [0, 2])"""
    artifact = compile_network(opened(network_of(program(text, w=w))), target(machine.target))
    outputs = run_on(machine, artifact, {"x": x})
    a = x @ w
    exponentials = np.exp(np.maximum(a, 0) - np.maximum(a, 0).max(1, keepdims=True))
    np.testing.assert_allclose(outputs["y0"], exponentials / exponentials.sum(1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(outputs["y1"], a.sum((0, 2)), atol=1e-4)


@functools.cache
def digit() -> tuple[np.ndarray, int, np.ndarray]:
    """An image, its label, and what the network makes of it here."""
    held_back = np.load(DIGITS / "test.npz")
    image = held_back["images"][7:8].astype(np.float32) / 16
    with nnefc.compile(DIGITS / "model.nnef").load() as here:
        return image, held_back["labels"][7], here(image)


@pytest.mark.parametrize("machine", machines({each.name for each in MACHINES} - ALIKE), indirect=True)
@pytest.mark.sample(1)
def test_a_digit_is_recognized(machine: Machine) -> None:
    image, label, expected = digit()
    probability = run_on(machine, nnefc.compile(DIGITS / "model.nnef", machine.target), {"image": image})["probability"]
    np.testing.assert_allclose(probability, expected, atol=2e-5)
    assert probability.argmax() == label
