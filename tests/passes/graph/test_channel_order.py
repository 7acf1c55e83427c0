"""Shuffles and groups of channels: which kernels are left of them, and the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulation import run_on, with_glibc
from relax_programs import Case, Graph, Value, build, check, differences, program, summary, target
from tvm import te

from nnefc.driver.compile import compile_network
from nnefc.driver.options import CodeOptions
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.compute.channel_order import (
    arrange_array,
    chains_of_operands,
    convolve_gathered,
    gathered_filters,
    merge_groups,
    operands_of_groups,
)
from nnefc.passes.compute.dot.dot_product import Multiplication, multiplication_of
from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.layout.assign_layouts import assign_layouts
from nnefc.passes.graph.layout.blocked_layout import EMPTY, FOREIGN, Blocked
from nnefc.passes.graph.layout.choose_block_size import channels_of_a_block
from nnefc.passes.graph.layout.fold_permutations import fold_permutations
from nnefc.passes.graph.layout.rules.group_reads import reads_of
from nnefc.passes.graph.layout.rules.low_precision_convolution import fills_blocks
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu.partial_sums import part_of_sum
from nnefc.passes.tir.dot.dot_instructions import FLOAT16_PART


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def filters(outputs: int, inputs: int, *kernel: int) -> np.ndarray:
    return (values(outputs, inputs, *kernel) / np.sqrt(inputs * np.prod(kernel))).astype(np.float32)


# Layouts.


def test_each_group_begins_a_block() -> None:
    layout = Blocked.of(6, 4, groups=2)
    assert layout.order == (0, 1, 2, EMPTY, 3, 4, 5, EMPTY)
    assert layout.slots.tolist() == [0, 1, 2, 4, 5, 6]
    assert not layout.is_full


def test_a_permutation_of_channels_moves_names_and_no_data() -> None:
    data, sources = values(6, 3), [3, 0, 4, 1, 5, 2]
    layout = Blocked.of(6, 4, groups=2)
    stored = arrange_array(data, 0, layout.order, 4)
    shuffled = layout.gathered(sources)
    assert np.array_equal(arrange_array(data[sources], 0, shuffled.order, 4), stored)


def test_blocks_after_blocks_hold_channels_after_channels() -> None:
    parts = Blocked.of(3, 4), Blocked.of(5, 4).gathered([4, 3, 2, 1, 0])
    joined = Blocked.joined(parts)
    assert joined.order == (0, 1, 2, EMPTY, 7, 6, 5, 4, 3, EMPTY, EMPTY, EMPTY)
    assert joined.channels == 8


def test_parts_of_whole_blocks_keep_their_order() -> None:
    joined = Blocked.joined([Blocked.of(3, 4), Blocked.of(8, 4, groups=2), Blocked.of(8, 4).gathered(range(7, -1, -1))])
    parts = joined.split([3, 11])
    assert parts == [Blocked.of(3, 4), Blocked.of(8, 4, groups=2), Blocked.of(8, 4).gathered(range(7, -1, -1))]
    assert joined.split([4]) is None
    assert Blocked.of(8, 4).gathered(range(7, -1, -1)).split([4]) is None


def test_merged_groups_have_zeros_for_what_they_do_not_share() -> None:
    weights = values(6, 2, 3)
    merged = merge_groups(weights, 1, 3)
    assert merged.shape == (6, 6, 3)
    for output in range(6):
        first = output // 2 * 2
        assert np.array_equal(merged[output, first : first + 2], weights[output])
        assert not np.delete(merged[output], [first, first + 1], 0).any()


def test_groups_find_their_channels_in_the_operands_that_hold_them() -> None:
    """Those of other groups in the same operand count as zero, and so does what fills a shorter list up."""
    groups, inputs, terms = 3, 5, 4
    channels = np.concatenate([np.random.default_rng(1).permutation(groups * inputs), [EMPTY, FOREIGN, EMPTY]])
    slots = [0, 1, 2, 3, 15, 4, 5, 16, 6, 7, 8, 9, 10, 11, 17, 12, 13, 14]
    order = [*channels[slots].tolist(), EMPTY, EMPTY]
    table, weights = operands_of_groups(order, groups, terms), values(6, inputs, 1)
    spread = gathered_filters(weights, order, table, terms)
    data = values(len(order))
    by_channel = data[[order.index(channel) for channel in range(groups * inputs)]].reshape(groups, inputs)
    read = data[(np.maximum(table, 0)[..., None] * terms + np.arange(terms)).reshape(groups, -1)]
    for output in range(6):
        group = output // 2
        np.testing.assert_allclose(
            spread[output, :, 0] @ read[group], weights[output, :, 0] @ by_channel[group], rtol=1e-5
        )


@pytest.mark.parametrize("length", [1, 2, 3, 5, 9])
def test_chains_bring_every_operand_of_a_group_once(length: int) -> None:
    rng = np.random.default_rng(length)
    own = [np.sort(rng.choice(11, count, replace=False)) for count in (4, 7, 1, 11)]
    table = np.full((4, 11), -1, np.int32)
    for row, operands in zip(table, own, strict=True):
        row[: len(operands)] = operands
    first, held = chains_of_operands(table, length, 11)
    read = (first[..., None] + np.arange(length)).reshape(4, -1)
    assert read.min() >= 0 and read.max() < 11 and held.shape == read.shape
    assert ((held == -1) | (held == read)).all()
    for row, operands in zip(held, own, strict=True):
        assert sorted(row[row >= 0].tolist()) == operands.tolist()


# Recognizing permutations.

SHUFFLES = {
    "a shuffle": (
        """x[2, 6, 5, 4] -> c
        a = R.reshape(x, R.shape([2, 3, 2, 5, 4]))
        b = R.permute_dims(a, axes=[0, 2, 1, 3, 4])
        c = R.reshape(b, R.shape([2, 6, 5, 4]))""",
        [0, 2, 4, 1, 3, 5],
    ),
    "with positions in one dimension": (
        """x[2, 6, 5, 4] -> c
        a = R.reshape(x, R.shape([2, 3, 2, 20]))
        b = R.permute_dims(a, axes=[0, 2, 1, 3])
        c = R.reshape(b, R.shape([2, 6, 5, 4]))""",
        [0, 2, 4, 1, 3, 5],
    ),
    "with one image in the dimension of channels": (
        """x[1, 6, 5, 4] -> c
        a = R.reshape(x, R.shape([2, 3, 20]))
        b = R.permute_dims(a, axes=[1, 0, 2])
        c = R.reshape(b, R.shape([1, 6, 5, 4]))""",
        [0, 3, 1, 4, 2, 5],
    ),
    "two shuffles": (
        """x[1, 6, 5] -> f
        a = R.reshape(x, R.shape([1, 3, 2, 5]))
        b = R.permute_dims(a, axes=[0, 2, 1, 3])
        c = R.reshape(b, R.shape([1, 6, 5]))
        d = R.reshape(c, R.shape([1, 3, 2, 5]))
        e = R.permute_dims(d, axes=[0, 2, 1, 3])
        f = R.reshape(e, R.shape([1, 6, 5]))""",
        [0, 4, 3, 2, 1, 5],
    ),
    "the second half of a shuffle, as a slice of another dimension": (
        """x[1, 6, 5, 4] -> e
        a = R.reshape(x, R.shape([3, 2, 20]))
        b = R.permute_dims(a, axes=[1, 0, 2])
        c = R.reshape(b, R.shape([2, 1, 3, 5, 4]))
        d = R.strided_slice(c, (0,), (1,), (2,), (1,))
        e = R.squeeze(d, axis=[0])""",
        [1, 3, 5],
    ),
    "the second half of a shuffle, as a part": (
        """x[1, 6, 5, 4] -> e
        a = R.reshape(x, R.shape([3, 2, 20]))
        b = R.permute_dims(a, axes=[1, 0, 2])
        c = R.split(b, indices_or_sections=2, axis=0)
        d = c[1]
        e = R.reshape(d, R.shape([1, 3, 5, 4]))""",
        [1, 3, 5],
    ),
    "images are permuted": (
        """x[2, 6, 5, 4] -> c
        a = R.reshape(x, R.shape([2, 3, 2, 5, 4]))
        b = R.permute_dims(a, axes=[1, 2, 0, 3, 4])
        c = R.reshape(b, R.shape([2, 6, 5, 4]))""",
        None,
    ),
    "rows are permuted": (
        """x[1, 6, 4, 4] -> c
        a = R.reshape(x, R.shape([1, 3, 2, 4, 4]))
        b = R.permute_dims(a, axes=[0, 2, 1, 4, 3])
        c = R.reshape(b, R.shape([1, 6, 4, 4]))""",
        None,
    ),
    "positions become channels": (
        """x[1, 4, 4, 4] -> c
        a = R.reshape(x, R.shape([1, 4, 16]))
        b = R.permute_dims(a, axes=[0, 2, 1])
        c = R.reshape(b, R.shape([1, 4, 4, 4]))""",
        None,
    ),
}


@pytest.mark.parametrize(("text", "order"), SHUFFLES.values(), ids=SHUFFLES)
def test_what_moves_whole_channels_becomes_one_gather(text: str, order: list[int] | None) -> None:
    folded = fold_permutations(program(text))
    bindings = [binding.value for binding in bindings_of(folded["main"])]
    gathers = [call for call in bindings if getattr(call, "op", None) is not None and call.op.name == "relax.take"]
    if order is None:
        assert not gathers
    else:
        assert gathers[-1].args[1].value.numpy().tolist() == order
        assert "permute_dims" not in summary(folded)


# Kernels that are left.


def test_a_shuffle_between_grouped_convolutions_leaves_no_kernel() -> None:
    text = """x[1, 6, 5, 5] -> f
    a = R.nn.conv2d(x, G, groups=2)
    b = R.reshape(a, R.shape([1, 2, 9, 5, 5]))
    c = R.permute_dims(b, axes=[0, 2, 1, 3, 4])
    d = R.reshape(c, R.shape([1, 18, 5, 5]))
    e = R.nn.conv2d(d, D, groups=18)
    f = R.nn.conv2d(e, H, groups=2)"""
    module = program(text, G=filters(18, 3, 1, 1), D=filters(18, 1, 3, 3), H=filters(6, 9, 1, 1))
    changed = assign_layouts(fold_permutations(module), target("llvm -mcpu=x86-64-v3"), FastAlgorithms())
    kernels = [line.split(" = ")[1].split("(")[0] for line in summary(changed).splitlines()[:-1]]
    assert [name for name in kernels if not name.startswith("lv")] == [
        "block", "convolution", "depthwise_convolution", "convolution1", "unblock",
    ]  # fmt: skip


# The numbers.


def shuffled(graph: Graph, x: Value, groups: int) -> Value:
    batch, channels, *spatial = x.shape
    y = graph.reshape(x, (batch, groups, channels // groups, *spatial))
    y = graph.transpose(y, (0, 2, 1, *range(3, 3 + len(spatial))))
    return graph.reshape(y, x.shape)


def unit(groups: int, inputs: int, outputs: int, shuffle: int, rank: int) -> Case:
    """A unit of ShuffleNet, with more users of its tensors than it has."""
    width, one, three = groups * outputs, (1,) * rank, (3,) * rank

    def make(graph: Graph, x: Value) -> list[Value]:
        y = graph.convolve(x, filters(width, inputs, *one), groups=groups)
        y = graph.unary("relu", graph.binary("add", y, graph.constant(values(1, width, *one))))
        short = y = shuffled(graph, y, shuffle)
        y = graph.convolve(y, filters(width, 1, *three), padding=1, groups=width)
        y = graph.convolve(y, filters(width, outputs, *three), padding=1, groups=groups)
        joined = graph.binary("add", y, short)
        dense = graph.convolve(joined, filters(9, width, *three), padding=1)
        pooled = graph.average_pool(short, 3, 1, 1)
        everything = graph.concatenate([joined, pooled, dense], 1)
        last = graph.convolve(shuffled(graph, everything, 1), filters(5, everything.shape[1], *one))
        mean = graph.reduce("mean", shuffled(graph, joined, shuffle), range(2, 2 + rank), False)
        return [everything, last, mean, graph.unary("exp", graph.unary("tanh", short))]

    sizes = (6, 5, 3)[:rank]
    return Case([values(2, groups * inputs, *sizes, seed=1)], make, 1e-4, f"{groups} x {inputs} to {outputs}")


UNITS = [
    (3, 5, 7, 3, 2), (4, 34, 34, 4, 2), (2, 3, 8, 2, 1), (8, 4, 4, 4, 2), (6, 1, 3, 9, 3), (5, 16, 16, 5, 2),
    (2, 32, 16, 4, 2), (3, 20, 20, 4, 1), (64, 3, 3, 8, 2), (1, 24, 24, 3, 2), (1, 16, 32, 8, 2), (7, 9, 1, 7, 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "units"),
    [
        pytest.param("llvm", UNITS[::4], id="llvm"),
        pytest.param("llvm -mcpu=x86-64-v3", UNITS[1::4], id="x86-64-v3", marks=pytest.mark.slow),
        pytest.param("llvm", [*UNITS[1::2], *UNITS[2::4]], id="llvm, the others", marks=pytest.mark.slow),
        pytest.param("llvm -mcpu=x86-64-v3", [*UNITS[::2], *UNITS[3::4]], id="v3, the others", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_shuffled_groups_have_the_same_values(name: str, units: list[tuple[int, ...]]) -> None:
    check([unit(*sizes) for sizes in units], name)


def split_channels(batch: int, half: int) -> Case:
    """Units of ShuffleNet v2, with other users of parts of their channels."""
    first, dense = filters(2 * half, 7, 1, 1), filters(half, half, 1, 1)

    def make(graph: Graph, x: Value) -> list[Value]:
        x = graph.unary("relu", graph.convolve(x, first))
        for _ in range(3):
            left, right = graph.split(x, [half], 1)
            y = graph.unary("relu", graph.convolve(right, dense))
            y = graph.convolve(y, filters(half, 1, 3, 3), padding=1, groups=half)
            y = graph.unary("relu", graph.convolve(y, dense))
            x = shuffled(graph, graph.concatenate([left, y], 1), 2)
        some = graph.slice(x, 1, 1, 2 * half, 3)
        some = graph.binary("add", graph.unary("exp", graph.unary("tanh", some)), some)
        last = graph.convolve(some, filters(5, some.shape[1], 3, 3), padding=1)
        return [x, graph.reduce("mean", x, [2, 3], False), last, graph.unary("relu", graph.slice(x, 1, 0, 3))]

    return Case([values(batch, 7, 6, 5)], make, 1e-4, f"halves of {half} channels")


SPLITS = [(1, 58), (2, 29), (1, 16), (2, 24), (1, 5)]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        pytest.param("llvm", SPLITS[:2], id="llvm", marks=pytest.mark.slow),
        pytest.param("llvm -mcpu=x86-64-v3", SPLITS[2:], id="x86-64-v3"),
        pytest.param("llvm", SPLITS[2:], id="llvm, the others", marks=pytest.mark.slow),
        pytest.param("llvm -mcpu=x86-64-v3", SPLITS[:2], id="v3, the others", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_split_channels_that_are_shuffled_have_the_same_values(name: str, sizes: list[tuple[int, int]]) -> None:
    check([split_channels(*size) for size in sizes], name)


def test_shuffled_groups_have_the_same_values_by_lane() -> None:
    """Where vectors are multiplied by lanes, groups read full vectors or blocks, and slots of others count nothing."""
    machine = with_glibc("arm", "cortex-a76", "qemu-aarch64", "-cpu", "cortex-a76")
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    built = build([unit(3, 20, 20, 4, 1), split_channels(2, 29)])
    artifact = compile_network(built.network, target(machine.target))
    assert not differences(built.expected, run_on(machine, artifact, built.inputs))


FLOATS = Multiplication("float32", "float32")


@pytest.mark.parametrize(("groups", "inputs"), [(4, 34), (3, 20), (2, 29)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_groups_read_several_slots_at_once_where_vectors_are_multiplied_by_lanes(
    groups: int, inputs: int, dtype: str
) -> None:
    layout, arm, others = Blocked.of(groups * inputs, 8), target("cortex-a76"), target("llvm")
    how, elsewhere = (
        FLOATS if dtype == "float32" else multiplication_of(machine, dtype, dtype) for machine in (arm, others)
    )
    reads = reads_of(layout, groups, how, (3, 3), arm)
    assert reads is not None and reads.run > how.terms
    reads = reads_of(layout, groups, elsewhere, (3, 3), others)
    assert reads is not None and reads.run == elsewhere.terms


@pytest.mark.parametrize("inputs", [64, 88, 136, 184, 8 * 37])
def test_sums_of_float16_are_made_in_parts_whatever_the_number_of_blocks(inputs: int) -> None:
    """A block is read twice, by weights of zero, where that gives the blocks a divisor."""
    machine = target("cortex-a76 -precision=fp16")
    how = multiplication_of(machine, "float16", "float16")
    reads = reads_of(Blocked.of(inputs, 8), 1, how, (1, 1), machine)
    assert reads is not None and reads.run == 8 and reads.elements <= inputs + 32
    assert (
        part_of_sum(list(reads.steps((1, 1), how)), FLOAT16_PART, FLOAT16_PART // 4) or reads.elements <= FLOAT16_PART
    )


@pytest.mark.parametrize(
    ("name", "inputs", "filled"),
    [("cortex-a53", 24, True), ("cortex-a53", 16, True), ("cortex-a53", 4, False), ("x86-64-v3", 24, False)],
)
def test_blocks_of_bytes_are_filled_up_where_that_adds_at_most_half(name: str, inputs: int, filled: bool) -> None:
    machine = target(name)
    assert fills_blocks(multiplication_of(machine, "int8", "int8"), inputs, 16, machine) == filled


@pytest.mark.parametrize(
    ("name", "channels", "size"),
    [("cortex-a76", 34, 4), ("cortex-a53", 34, 4), ("aarch64-linux-gnu --multi", 34, 8)],
)
def test_blocks_are_one_vector_where_groups_would_leave_much_of_longer_ones_empty(
    name: str, channels: int, size: int
) -> None:
    network = build([unit(4, channels, channels, 4, 2)]).network
    machine = target(name.removesuffix(" --multi"))
    machine = replace(machine, block_bytes=32) if name.endswith("--multi") else machine
    assert channels_of_a_block(network.module, machine) == size


def test_a_group_with_fewer_runs_than_another_reads_no_channel_of_another_tensor() -> None:
    order = (*[FOREIGN] * 8, *range(14), *[EMPTY] * 2, 14, 15, *[EMPTY] * 6, *range(16, 32))
    reads = reads_of(Blocked(order, 8), 2, FLOATS, (1, 1), target("cortex-a76"))
    assert reads is not None and not np.isin(order, FOREIGN)[reads.slots()].any()
    data = np.where(np.asarray(order) == FOREIGN, np.inf, 1)
    spread = gathered_filters(filters(6, 16), order, reads.held, reads.run).reshape(2, 3, -1)
    read = data[reads.slots()].reshape(2, -1, 1)
    np.testing.assert_allclose((spread @ read).ravel(), filters(6, 16).sum(axis=1), rtol=1e-5)


def test_runs_with_a_channel_of_another_tensor_are_read_slot_by_slot() -> None:
    order = (*range(8), *[FOREIGN] * 8, FOREIGN, *range(8, 16), *[EMPTY] * 7)
    reads = reads_of(Blocked(order, 8), 2, FLOATS, (1, 1), target("cortex-a76"))
    assert reads is not None and reads.run == 1


def test_no_pair_of_float16_holds_a_channel_of_another_tensor() -> None:
    """Of bytes, which are all finite, some may."""
    machine, layout = target("znver5 -precision=bf16"), Blocked((*range(15), *[FOREIGN] * 17), 16)
    split_channels, data_bytes = (multiplication_of(machine, dtype, dtype) for dtype in ("bfloat16", "int8"))
    assert reads_of(layout, 1, split_channels, (1, 1), machine) is None
    assert reads_of(layout, 1, data_bytes, (1, 1), machine) is not None


def test_infinities_stay_among_the_channels_that_were_left_out() -> None:
    identity = np.eye(32, dtype=np.float32).reshape(32, 32, 1, 1)

    def make(graph: Graph, x: Value) -> list[Value]:
        left, right = graph.split(shuffled(graph, graph.convolve(x, identity), 2), [16], 1)
        return [graph.convolve(left, filters(8, 16, 3, 3), padding=1), graph.unary("abs", right)]

    data = np.abs(values(1, 32, 16, 16)) + 1
    data[:, 8:16] = data[:, 24:] = 3e38
    identity[8:16] *= 2
    identity[24:] *= 2
    with np.errstate(over="ignore", invalid="ignore"):
        built = build([Case([data], make, 1e-5)])
    with compile_network(built.network, target("llvm")).load(threads=1) as model:
        left, right = model.run(built.inputs).values()
    assert np.isfinite(left).all()
    assert np.isinf(right).all()


def multiplied(channels: int, times: int) -> Case:
    weights = filters(channels * times, 1, 3, 3)

    def make(graph: Graph, x: Value) -> Value:
        return graph.convolve(x, weights, strides=2, padding=1, groups=channels)

    return Case([values(1, channels, 7, 6)], make, 1e-5, f"{channels} channels, {times} times")


def test_groups_of_one_channel_may_have_several_results() -> None:
    check([multiplied(*sizes) for sizes in [(3, 2), (16, 2), (5, 3), (8, 16), (4, 17), (12, 5)]])


def test_strict_compilation_keeps_an_infinity_in_its_group() -> None:
    data = values(1, 4, 3, 3)
    data[0, 0, 1, 1] = np.inf
    case = Case([data], lambda graph, x: graph.convolve(x, filters(8, 1, 1, 1), groups=4))
    built = build([case])
    with compile_network(built.network, target("llvm"), CodeOptions(strict=True)).load(threads=1) as model:
        (result,) = model.run(built.inputs).values()
    assert np.isfinite(result[:, 2:]).all()


def test_one_group_reads_its_channels_for_all_results_at_once() -> None:
    """After a concatenation of parts that end within a block: what is read depends on pixels alone."""
    shapes = (1, 4, 9, 9, 16), (2, 48, 3, 3, 1, 16)
    data, weights = (te.placeholder(shape) for shape in shapes)
    table = te.placeholder((1, 48), "int32")
    func = te.create_prim_func([data, weights, table, convolve_gathered(data, weights, table, (2, 2), (1, 1))])
    (step,) = KernelAnalysis(func).reductions
    assert step.contraction is not None and not step.contraction.both
    assert [step.sizes[axis] for axis in step.contraction.reduced] == [48, 3, 3]


def test_a_convolution_of_parts_that_end_within_a_block_is_right() -> None:
    def make(graph: Graph, x: Value, y: Value) -> Value:
        parts = [graph.convolve(part, filters(24, 5, 3, 3)) for part in (x, y)]
        return graph.convolve(graph.concatenate(parts, axis=1), filters(40, 48, 3, 3), strides=2)

    check([Case([values(1, 5, 20, 23), values(1, 5, 20, 23, seed=1)], make, 1e-4)], "llvm")
