"""Padding is written by the kernel that makes what is padded, and never left undone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy_reference as reference
import pytest
import tvm_ffi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pass_runs import lower
from relax_programs import Case, Graph, Value, build, check, target
from tvm import relax, tirx

from nnefc.backends import backend_of
from nnefc.ir.padding import Border, write_inside
from nnefc.passes.schedule.fill_padding import fill_border
from nnefc.passes.schedule.schedules import root_blocks, schedule_of

TARGETS = ["llvm", "llvm -mcpu=x86-64-v3"]


def values(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(math.prod(shape)).standard_normal(shape) * scale).astype(np.float32)


def filters(outputs: int, inputs: int, *kernel: int) -> np.ndarray:
    return values(outputs, inputs, *kernel, scale=1 / math.sqrt(inputs * math.prod(kernel)))


def blocks_of_kernels(case: Case) -> list[list[str]]:
    """The steps that each scheduled kernel consists of, the kernels in any order."""
    seen: dict[str, object] = {}
    lower(build([case]).network, backend_of(target("llvm")), seen.__setitem__)
    kernels = [schedule_of(func) for func in seen["schedule"].functions.values()]
    return [[str(sch.get(block).name_hint) for block in root_blocks(sch)] for sch in kernels]


def between(make: Callable[[Graph, Value], Value], name: str = "", tolerance: float = 1e-5) -> Case:
    """`make` of a convolution's result; the channels do not fill a block."""
    return Case(
        [values(1, 19, 9, 11)], lambda g, x: make(g, g.convolve(x, filters(21, 19, 1, 1))), tolerance, name or "between"
    )


def depthwise(g: Graph, x: Value, padding: int | list[int] = 1, strides: int = 1) -> Value:
    return g.convolve(x, filters(x.shape[1], 1, 3, 3), groups=x.shape[1], padding=padding, strides=strides)


def dense(g: Graph, x: Value, padding: int | list[int] = 1, outputs: int = 17) -> Value:
    return g.convolve(x, filters(outputs, x.shape[1], 3, 3), padding=padding)


def cropped(g: Graph, x: Value) -> Value:
    """A convolution whose padding is negative before the rows and after the columns."""
    weights = filters(17, x.shape[1], 3, 3)
    expr = relax.op.nn.conv2d(x.expr, relax.const(weights), padding=[-2, 3, 1, -1])
    return g.emit(expr, reference.convolve(x.array[:, :, 2:, :-1], weights, [1, 1], [0, 3, 1, 0], [1, 1], 1))


def cut(g: Graph, x: Value) -> Value:
    """A convolution with nothing but negative padding."""
    weights = filters(17, x.shape[1], 3, 3)
    expr = relax.op.nn.conv2d(x.expr, relax.const(weights), padding=[-2, 0, 0, -1])
    return g.emit(expr, reference.convolve(x.array[:, :, 2:, :-1], weights, [1, 1], [0, 0, 0, 0], [1, 1], 1))


def shuffled(g: Graph, x: Value) -> Value:
    """Channels in another order: the pass that folds that leaves a second name for the value."""
    batch, channels, *sizes = x.shape
    parts = g.transpose(g.reshape(x, (batch, 3, channels // 3, *sizes)), (0, 2, 1, 3, 4))
    return g.reshape(parts, x.shape)


def padded_at_the_end(g: Graph, x: Value) -> list[Value]:
    """Of one block, padding below follows the last row in memory."""
    y = g.unary("sigmoid", g.convolve(x, filters(8, 5, 1, 1)))
    return [depthwise(g, y, [0, 0, 2, 0]), g.unary("tanh", y), y]


WITHOUT_COPY = [
    between(depthwise, "depthwise"),
    between(lambda g, y: depthwise(g, y, [2, 0, 1, 3], 2), "more on one side than on the other"),
    between(lambda g, y: depthwise(g, g.unary("silu", y), [0, 2, 0, 0]), "one dimension alone"),
    between(lambda g, y: depthwise(g, depthwise(g, y)), "one depthwise convolution after another"),
    between(lambda g, y: dense(g, depthwise(g, y)), "a dense one after a depthwise one"),
    between(lambda g, y: dense(g, g.max_pool(y, 3, 2, 1)), "after a pooling"),
    between(lambda g, y: depthwise(g, shuffled(g, y)), "shuffled channels"),
    between(lambda g, y: g.binary("add", dense(g, y), g.unary("relu", dense(g, y))), "two that pad alike"),
]
WITH_COPY = [
    between(lambda g, y: g.binary("add", dense(g, y, outputs=21), y), "the unpadded values are needed too"),
    between(lambda g, y: [dense(g, y), dense(g, y, 2)], "two that pad differently"),
    between(lambda g, y: [depthwise(g, y), y], "an output too"),
    between(cropped, "negative padding"),
    between(cut, "negative padding alone"),
    Case([values(1, 5, 9, 11)], padded_at_the_end, 1e-5, "padded at the end of its memory, and needed without too"),
    between(lambda g, y: dense(g, g.softmax(y, 3)), "after rows"),
    between(lambda g, y: dense(g, g.concatenate([y, y], 1)), "after a concatenation"),
    between(lambda g, y: dense(g, g.slice(y, 2, 1, 8)), "after a slice"),
    between(lambda g, y: dense(g, g.binary("multiply", y, g.reduce("mean", y, [2, 3]))), "after a scale"),
    Case([values(1, 3, 8, 7)], dense, 1e-5, "the network's input"),
    Case([values(2, 5, 17)], lambda g, x: g.convolve(x, filters(6, 5, 4), padding=[2, 1]), 1e-5, "one dimension"),
    Case([values(1, 3, 5, 6, 4)], lambda g, x: g.convolve(x, filters(9, 3, 3, 2, 3), padding=1), 1e-5, "three"),
    Case([], lambda g: dense(g, g.constant(values(1, 16, 6, 5))), 1e-5, "a constant"),
]


@pytest.mark.parametrize(
    ("name", "step"), [(TARGETS[0], 2), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in TARGETS)]
)
def test_what_is_padded_has_zeros_around_it(name: str, step: int) -> None:
    check([*WITHOUT_COPY, *WITH_COPY][::step], name)


@pytest.mark.parametrize("case", WITHOUT_COPY, ids=lambda case: case.name)
@pytest.mark.sample(4)
def test_the_kernel_before_writes_into_the_padding(case: Case) -> None:
    kernels = blocks_of_kernels(case)
    assert any("pad" in steps for steps in kernels)
    assert ["pad"] not in kernels


def test_borders_of_blocks_that_are_shorter_than_a_vector_are_filled_in_whole_blocks() -> None:
    border = Border((0, 0, 1, 1, 0), (0, 0, 1, 1, 0), 3)
    filled = fill_border(schedule_of(write_inside((1, 2, 5, 6, 8), "int8", border)), target("aarch64-linux-gnu"))
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(filled, (tirx.BufferStore, stores.append))
    filling = [store.value for store in stores if isinstance(store.value, tirx.Broadcast)]
    assert [int(value.lanes) for value in filling] == [8] * 4  # above, below, left and right


WIDTHS = st.lists(st.integers(0, 3), min_size=4, max_size=4)


@settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_depthwise_networks(data: st.DataObject) -> None:
    """Sizes, channels, kernels, strides, dilation and padding at random; eight networks in one library."""

    def case(number: int) -> Case:
        channels, height, width = data.draw(st.tuples(st.integers(1, 40), st.integers(7, 20), st.integers(7, 20)))
        layers = [
            (
                data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
                data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
                data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
                data.draw(WIDTHS),
                data.draw(st.sampled_from(["relu", "silu", "clip"])),
            )
            for _ in range(2)
        ]

        def make(g: Graph, x: Value) -> Value:
            for kernel, strides, dilation, padding, function in layers:
                y = g.unary(function, g.convolve(x, filters(channels, x.shape[1], 1, 1)))
                weights = filters(channels, 1, *kernel)
                reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
                room = [
                    e + padding[i] + padding[i + 2] >= r
                    for i, (e, r) in enumerate(zip(y.shape[2:], reach, strict=True))
                ]
                if not all(room):
                    return y
                x = g.convolve(y, weights, list(strides), padding, list(dilation), channels)
            return x

        return Case([values(1, 5, height, width)], make, 1e-5, f"network {number}: {channels}, {layers}")

    check([case(number) for number in range(8)])
