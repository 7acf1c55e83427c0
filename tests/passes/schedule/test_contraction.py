"""Tiles in registers: how large they are chosen, and that nothing else is unrolled."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_runs import lower
from relax_programs import Case, build, check, network_of, opened, program, target
from tvm import s_tir, te, tirx
from tvm.sym import Analyzer

from nnefc.backends import backend_of
from nnefc.ir.attributes import DYNAMIC_DIMENSIONS, RULE
from nnefc.passes.compute.matmul import multiply_packed
from nnefc.passes.compute.tile_sizes import (
    USUAL_EXTENTS,
    USUAL_IMAGES,
    RegisterTile,
    choose_dynamic_tile,
    choose_tile,
    choose_uneven_tile,
    full_blocks,
)
from nnefc.passes.graph.algorithms.choose_convolution import Shape, blocks_to_add, columns_to_add, winograd_saving
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.rule import scheduled
from nnefc.passes.tir.common.expressions import int64, substituted, variables_of
from nnefc.passes.tir.common.peel_tail_tiles import tiled_axes
from nnefc.symbolic.dims import DynamicSize, Range, Size, dimension, ranges, size_hint
from nnefc.targets.machine.cpu.multiversioning import with_levels
from nnefc.targets.machine.cpu.target import Target

SIZES = st.integers(1, 3000)


def machine(registers: int, fused: bool = True) -> Target:
    """One with so many vector registers."""
    machine = target("llvm -mcpu=x86-64-v3")
    return replace(machine, vectors=replace(machine.vectors, registers=registers, fused=fused))


@pytest.mark.parametrize(
    ("core", "tile"), [("cortex-a72", RegisterTile(1, 2, 4)), ("cortex-a53", RegisterTile(1, 4, 2))]
)
def test_cores_that_are_in_order_read_fewer_vectors_of_weights(core: str, tile: RegisterTile) -> None:
    """A load takes them a cycle, as a copy of a word does; others execute fewer instructions."""
    assert choose_uneven_tile(1, 56, 4, target(core), "nnefc.smlal") == (tile, 0)


@settings(max_examples=500, deadline=None)
@given(SIZES, SIZES, SIZES, st.sampled_from([8, 16, 32]))
def test_a_tile_divides_the_sizes_and_fits_the_registers(outer: int, rows: int, columns: int, registers: int) -> None:
    tile = choose_tile(outer, rows, columns, machine(registers))
    assert outer % tile.outer_rows == rows % tile.rows == columns % tile.columns == 0
    assert tile.outer_rows * tile.rows * tile.columns + tile.columns < registers


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20))
def test_more_registers_never_make_a_tile_smaller(outer: int, rows: int, columns: int) -> None:
    few, many = (choose_tile(outer, rows, columns, machine(registers)) for registers in (16, 32))
    assert many.outer_rows * many.rows * many.columns >= few.outer_rows * few.rows * few.columns


def test_tiles_do_not_cut_the_blocks_that_levels_share() -> None:
    for level in with_levels(target("x86-64")).levels:
        block = level.block_lanes("float32") // level.lanes("float32")
        for columns in range(block, 97, block):
            found = choose_tile(1, 128, full_blocks(columns, level), level).columns
            assert columns % found == 0 and (found % block == 0 or block % found == 0), level.name


@pytest.mark.parametrize(
    ("sizes", "registers", "area"),
    [((56, 56, 4), 32, 28), ((56, 56, 4), 16, 8), ((1, 1, 64), 32, 4), ((1, 1, 1), 32, 1)],
)
def test_well_known_sizes_use_the_registers(sizes: tuple[int, int, int], registers: int, area: int) -> None:
    tile = choose_tile(*sizes, machine(registers))
    assert tile.outer_rows * tile.rows * tile.columns >= area


@pytest.mark.parametrize("extent", [7, 11, 13, 14, 26, 28, 56])
def test_tiles_of_one_column_leave_registers_free_where_there_are_16(extent: int) -> None:
    tile = choose_tile(extent, extent, 64, machine(16))
    assert tile.columns > 1 or tile.outer_rows * tile.rows <= 10


def test_engines_keep_registers_for_what_llvm_reads_after_a_sum_of_integers() -> None:
    engine = target("wasm32-wasi")
    machines = (engine, engine.for_sums("int32"), engine.made_small().for_sums("int32"))
    floats, integers, small = (choose_tile(14, 14, 2, machine) for machine in machines)
    assert floats == integers == RegisterTile(2, 2, 2)
    assert small == RegisterTile(1, 2, 2)  # two columns, which become one vector of narrow numbers


def test_a_machine_without_multiply_adds_keeps_a_register_for_products() -> None:
    tile = choose_tile(1, 24, 4, machine(16, fused=False))
    assert tile.rows * tile.columns + tile.columns + 1 < 16


@pytest.mark.parametrize("outer", [False, True])
def test_rows_of_a_tile_stay_in_the_first_cache_together(outer: bool) -> None:
    """Lines that are a way of the cache apart have the same set."""
    machine = target("llvm -mcpu=znver4")
    way = machine.costs.l1_bytes // machine.costs.l1_ways
    extents, columns = ((50, 1) if outer else (1, 50)), 48
    for apart in (way, 3 * way, 256 * way):
        tile = choose_tile(*extents, columns, machine, pitches=(apart, 0) if outer else (0, apart))
        assert tile.outer_rows * tile.rows <= machine.costs.l1_ways and tile.share(machine) > 0.9
    for apart in (way // 2 + 64, way + 64, 64):
        pitches = (apart, 0) if outer else (0, apart)
        assert choose_tile(*extents, columns, machine, pitches=pitches) == choose_tile(*extents, columns, machine)


def test_rows_of_a_tile_of_a_dynamic_extent_stay_in_the_first_cache_together() -> None:
    machine, n = target("llvm -mcpu=znver4"), tirx.Var("n", "int64")
    way = machine.costs.l1_bytes // machine.costs.l1_ways
    with ranges({n: Range(1, 4096, 14)}):
        for apart in (way, 3 * way):
            tile, smaller = choose_dynamic_tile(dimension(n), 48, apart // 4, machine, pitch=apart)
            assert max(tile.rows, *smaller) <= machine.costs.l1_ways and tile.share(machine) > 0.9
        assert choose_dynamic_tile(dimension(n), 48, 3072, machine)[0].rows > machine.costs.l1_ways


def unrolled_extents(shape: str, depth: int, columns: int) -> list[int]:
    """Of the loops of a product with constants, on a machine whose first cache has ways of 4 KB."""
    network = network_of(program(f"x[{shape}] -> y\ny = R.matmul(x, w)", w=np.ones((depth, columns), np.float32)))
    seen: dict[str, tvm.IRModule] = {}
    lower(network, backend_of(target("llvm -mcpu=znver4")), seen.__setitem__)
    (func,) = [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule"]
    found: list[int] = []

    def visit(loop: tirx.For) -> None:
        if loop.kind == tirx.ForKind.UNROLLED:
            found.append(int(loop.extent))

    tvm_ffi.structural_walk(func.body, (tirx.For, visit))
    return found


def test_the_distance_of_rows_is_that_in_memory() -> None:
    """Of a product with 3,072 terms, 12 KB: 25 rows would have one set of the first cache."""
    assert 25 not in unrolled_extents("50, 3072", 3072, 768)
    assert 25 in unrolled_extents("50, 3056", 3056, 768)


def test_rows_of_sequences_that_put_time_first_are_in_tiles() -> None:
    assert max(unrolled_extents("37, 1, 48", 48, 64)) > 1
    x, w = (np.random.default_rng(0).random(shape, np.float32) for shape in ((2, 37, 1, 48), (48, 70)))
    check([Case([x], lambda graph, value: graph.unary("relu", graph.matmul(value, graph.constant(w))))])


def test_sizes_without_small_divisors_take_tiles_of_columns() -> None:
    assert choose_tile(1, 37, 4, machine(32)) == RegisterTile(1, 1, 4)


def unrolled_iterations(stmt: tirx.Stmt) -> int:
    """The largest number of iterations of unrolled loops inside one another."""
    match stmt:
        case tirx.For():
            trips = int(stmt.extent) if stmt.kind == tirx.ForKind.UNROLLED else 1
            return trips * unrolled_iterations(stmt.body)
        case tirx.SeqStmt():
            return max(map(unrolled_iterations, stmt.seq))
        case s_tir.SBlockRealize():
            return unrolled_iterations(stmt.block.body)
        case tirx.IfThenElse():
            return unrolled_iterations(stmt.then_case)
    return 1


@pytest.mark.parametrize("name", ["llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"])
@pytest.mark.sample(1)
def test_no_more_than_a_tile_is_unrolled(name: str) -> None:
    """Rows that do not divide well, one column, one row: the loops around the tile stay loops."""
    rng = np.random.default_rng(0)

    def convolution(channels: int, size: int, kernel: int) -> Case:
        weights = rng.standard_normal((channels, 16, kernel, kernel)).astype(np.float32)
        return Case([rng.random((1, 16, size, size), np.float32)], lambda g, x: g.convolve(x, weights, strides=2))

    def product(rows: int, columns: int) -> Case:
        weights = rng.standard_normal((19, columns)).astype(np.float32)
        return Case([rng.random((3, rows, 19), np.float32)], lambda g, x: g.matmul(x, g.constant(weights)))

    cases = [convolution(c, e, k) for c, e, k in [(16, 41, 3), (48, 40, 1), (16, 26, 5)]]
    cases += [product(r, c) for r, c in [(16, 10), (1, 64), (37, 16), (24, 40)]]
    seen: dict[str, tvm.IRModule] = {}
    lower(build(cases).network, backend_of(target(name)), seen.__setitem__)
    contractions = [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule"]
    assert len(contractions) == len(cases)
    for func in contractions:
        assert unrolled_iterations(func.body) < target(name).vectors.registers, func


def test_prime_widths_get_columns_that_make_them_divisible_and_good_ones_none() -> None:
    machine = target("llvm -mcpu=x86-64-v4")
    assert [columns_to_add(width, width, 6, machine) for width in (37, 73, 109, 149)] == [1, 2, 1, 1]
    assert all(columns_to_add(56, width, 4, machine) == 0 for width in (7, 14, 28, 55, 56, 112))
    assert columns_to_add(1, 1, 64, machine) == 0


def test_prime_numbers_of_blocks_over_few_pixels_get_blocks_that_make_them_divisible() -> None:
    machine = target("llvm -mcpu=znver5")
    assert [blocks_to_add(1, 4, blocks, machine) for blocks in (17, 18, 23)] == [1, 0, 1]
    assert all(blocks_to_add(56, 56, blocks, machine) == 0 for blocks in (1, 4, 17, 23))
    width = Size(tirx.Var("n", "int64"))
    few = target("x86-64-v3")
    assert [blocks_to_add(1, width, blocks, few) for blocks in (65, 64, 66, 1)] == [1, 0, 0, 0]
    assert blocks_to_add(1, width, 65, machine) == 0


def test_a_prime_length_gets_the_tiles_of_one_that_divides_well() -> None:
    """Of one dimension as of two: a tile of one column waits for loads most of the time."""
    weights = np.ones((64, 1, 5), np.float32)
    case = Case([np.ones((1, 1, 6 * 1008 + 5), np.float32)], lambda g, x: g.convolve(x, weights, strides=6))
    seen: dict[str, tvm.IRModule] = {}
    lower(build([case]).network, backend_of(target("llvm -mcpu=x86-64-v4")), seen.__setitem__)
    (func,) = [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule"]
    assert unrolled_iterations(func.body) >= 20


def test_winograd_multiplies_full_blocks_of_channels_and_pays_only_where_they_are_there() -> None:
    machine = target("llvm -mcpu=x86-64-v4")

    def pays(inputs: int) -> bool:
        shape = Shape(1, 112, 112, inputs, -(-inputs // 16), 4, (3, 3), (1, 1), (1, 1), 1)
        return winograd_saving(shape, (4, 4), machine.costs.memory_bytes_per_cycle, machine) > 0

    assert [pays(inputs) for inputs in (1, 3, 32, 64)] == [False, False, True, True]


def test_winograd_counts_what_the_third_cache_does_not_hold_as_memory() -> None:
    machine = target("llvm -mcpu=znver5")
    small = replace(machine, costs=replace(machine.costs, l3_bytes=16 << 20))
    for size, equal in ((112, True), (224, False)):
        shape = Shape(1, size, size, 64, 4, 4, (3, 3), (1, 1), (1, 1), 1)
        assert (winograd_saving(shape, (4, 4), 9, small) == winograd_saving(shape, (4, 4), 9, machine)) == equal


@pytest.mark.parametrize(("size", "once"), [(160, True), (40, False)])
def test_images_that_no_second_cache_holds_are_read_once_for_all_panels(size: int, once: bool) -> None:
    """The iterations of a tile of rows follow each other, or those of a panel."""
    weights = np.ones((192, 32, 1, 1), np.float32)
    case = Case([np.ones((1, 32, size, size), np.float32)], lambda g, x: g.convolve(x, weights))
    seen: dict[str, tvm.IRModule] = {}
    lower(build([case]).network, backend_of(target("llvm -mcpu=znver5")), seen.__setitem__)
    (func,) = [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule"]
    found: list[s_tir.SBlockRealize | tirx.For] = []
    tvm_ffi.structural_walk(func.body, ((s_tir.SBlockRealize, tirx.For), found.append))
    (update,) = [
        node for node in found if getattr(node, "block", None) and str(node.block.name_hint) == "convolution_update"
    ]
    (trips,) = [node.loop_var for node in found if getattr(node, "kind", None) == tirx.ForKind.PARALLEL]
    axes = dict(zip((str(axis.var.name) for axis in update.block.iter_vars), update.iter_values, strict=True))
    zeros = dict.fromkeys(variables_of([axes["v_o"]]), int64(0))
    first, second = (Analyzer().simplify(substituted(axes["v_o"], zeros | {trips: int64(count)})) for count in range(2))
    assert (int(first) != int(second)) == once


@pytest.mark.parametrize("triple", ["llvm -mcpu=znver5", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("rows", [48, 6000])
def test_the_loop_over_tiles_of_an_open_axis_stays_one(triple: str, rows: int) -> None:
    """Only then does the last tile read nothing that is not there; also where a factor is read once for all panels."""
    n = tirx.Var("n", "int64")
    with ranges({n: Range(1, 1 << 16, rows)}):
        factor, weights = te.placeholder((36, 8, n, 16)), te.placeholder((36, 8, 128, 16))
        block, element = te.reduce_axis((0, 8)), te.reduce_axis((0, 16))
        product = te.compute(
            (36, 8, n, 16),
            lambda a, o, t, i: te.sum(
                factor(a, block, t, element) * weights(a, o, block * 16 + element, i), axis=[block, element]
            ),
        )
        func = te.create_prim_func([factor, weights, product])
        made = scheduled(KernelAnalysis(func.with_attr(DYNAMIC_DIMENSIONS, [n])), CPU_RULES, target(triple))
    assert made.attrs[RULE] == "ContractionRule"
    (axis,) = tiled_axes(made)
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(made.body, (tirx.For, loops.append))
    assert [loop for loop in loops if loop.extent.same_as(axis.count)]


@pytest.mark.parametrize(
    ("triple", "stored", "is_written_out"),
    [
        ("llvm -mcpu=znver3", "float16", True),
        ("llvm -mcpu=znver3", "float32", False),  # in assembler
        ("llvm -mcpu=znver4", "float16", False),
    ],
)
def test_short_sums_of_a_dynamic_number_of_rows_are_written_out_where_llvm_has_16_registers(
    triple: str, stored: str, is_written_out: bool
) -> None:
    n, machine = tirx.Var("n", "int64"), target(triple)
    with ranges({n: Range(1, 1 << 16, 224)}):
        factor, weights = te.placeholder((n, 27, 7)), te.placeholder((13, 27, 7, 8), stored)
        block, element = te.reduce_axis((0, 27)), te.reduce_axis((0, 7))
        product = te.compute(
            (13, n, 8),
            lambda o, t, i: te.sum(
                factor(t, block, element) * weights(o, block, element, i).astype("float32"), axis=[block, element]
            ),
        )
        func = te.create_prim_func([factor, weights, product])
        made = scheduled(KernelAnalysis(func.with_attr(DYNAMIC_DIMENSIONS, [n])), CPU_RULES, machine)
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(made.body, (tirx.For, loops.append))
    kinds = {loop.kind for loop in loops if size_hint(dimension(loop.extent)) == 7}
    assert kinds == {tirx.ForKind.UNROLLED if is_written_out else tirx.ForKind.SERIAL}


def test_windows_along_open_rows_share_what_they_overlap_in() -> None:
    weights = np.ones((32, 1, 3, 3), np.float32)
    text = """x[1, 32, "h", "w"] -> z
    y = R.nn.conv2d(x, f, groups=32)
    z = R.nn.max_pool2d(y, (3, 3))"""
    network = opened(network_of(program(text, f=weights)))
    seen: dict[str, tvm.IRModule] = {}
    with ranges({d.var: d.values for d in network.dynamic_dimensions}):
        lower(network, backend_of(target("llvm -mcpu=x86-64-v4")), seen.__setitem__)
    windows = [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "WindowsRule"]
    assert len(windows) == 2
    assert all(unrolled_iterations(func.body) >= 9 * 7 for func in windows)


def test_rows_whose_count_seems_to_be_less_than_none_are_tiled() -> None:
    """As of spectra: the frames of a batch of signals, of which bounds say that they may be fewer than none."""
    batch, frames = tirx.Var("batch", "int64"), tirx.Var("frames", "int64")
    with ranges({batch: DynamicSize().values, frames: Range(0, 1 << 20, 64)}):
        rows = Size(batch) * (Size(frames) - 1)
        left, packed = te.placeholder((rows, 40)), te.placeholder((21, 40, 16))
        func = te.create_prim_func([left, packed, multiply_packed(left, packed, 322, rows)])
        kernel = KernelAnalysis(func.with_attr(DYNAMIC_DIMENSIONS, [batch, frames]))
        made = scheduled(kernel, CPU_RULES, target("llvm -mcpu=x86-64-v4"))
    assert made.attrs[RULE] == "ContractionRule"


def test_axes_of_size_one_that_no_factor_reads_are_loops_like_others() -> None:
    """As of windows of which an image has one, where the batch is open."""
    text = 'x["n", 1, 1, 7, 7, 64] -> y\ny = R.matmul(x, w)'
    network = opened(network_of(program(text, w=np.ones((64, 96), np.float32))))
    seen: dict[str, tvm.IRModule] = {}
    with ranges({d.var: d.values for d in network.dynamic_dimensions}):
        lower(network, backend_of(target("llvm -mcpu=x86-64-v4")), seen.__setitem__)
    assert "ContractionRule" in [f.attrs[RULE] for f in seen["schedule"].functions.values()]


def test_columns_that_a_cache_does_not_hold_are_few_in_a_tile_of_an_open_extent() -> None:
    """They are read again for each tile of rows, of which a row of a small image has one or two."""
    machine, n = target("llvm -mcpu=sapphirerapids"), tirx.Var("n", "int64")
    with ranges({n: Range(1, 4096, 14)}):
        few, many = (choose_dynamic_tile(dimension(n), 32, terms, machine)[0] for terms in (64, 4608))
    held = machine.costs.l2_bytes // machine.vectors.bytes // 2
    assert many.columns * 4608 <= held < 4 * 4608
    assert few.columns > many.columns and few.rows * few.columns >= 24


def test_images_have_fewer_small_tiles_than_sentences() -> None:
    """What is left of some hundred pixels is little, and code for it takes time to compile."""
    machine, n = target("llvm -mcpu=sapphirerapids"), tirx.Var("n", "int64")
    with ranges({n: Range(1, 4096, 1)}):
        for columns in (1, 2, 8):
            made = [
                choose_dynamic_tile(dimension(n), columns, 64, machine, usual=r) for r in (USUAL_EXTENTS, USUAL_IMAGES)
            ]
            (_, any_rows), (_, pixels) = made
            assert len(pixels) <= len(any_rows)
            assert pixels[-1] == any_rows[-1] == 1


def test_a_product_of_one_row_computes_no_other() -> None:
    network = opened(network_of(program('x["n", 48] -> y\ny = R.matmul(x, w)', w=np.ones((48, 64), np.float32))))
    seen: dict[str, tvm.IRModule] = {}
    with ranges({d.var: d.values for d in network.dynamic_dimensions}):
        lower(network, backend_of(target("llvm -mcpu=x86-64-v4")), seen.__setitem__)
    (func,) = [f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule"]
    (axis,) = tiled_axes(func)
    assert axis.remainders[-1] == 1


def with_small_caches() -> Target:
    """A machine whose caches hold little of the small convolutions of tests."""
    machine = target("llvm -mcpu=x86-64-v3")
    return replace(machine, costs=replace(machine.costs, l1_bytes=1 << 14, l2_bytes=1 << 18))


def wide_convolution(
    inputs: int, outputs: int, kernel: tuple[int, int], size: tuple[int, int], **attributes: Any
) -> Case:
    random = np.random.default_rng(inputs)
    filters = (random.standard_normal((outputs, inputs, *kernel)) / np.sqrt(inputs)).astype(np.float32)
    x = random.standard_normal((1, inputs, *size)).astype(np.float32)
    return Case([x], lambda graph, value: graph.unary("relu", graph.convolve(value, filters, **attributes)), 1e-5)


WIDE = [
    wide_convolution(520, 80, (1, 1), (11, 36)),
    wide_convolution(64, 24, (9, 3), (17, 11), padding=[4, 1, 4, 1]),
    wide_convolution(48, 32, (3, 3), (8, 12), dilation=2, padding=2),
    wide_convolution(96, 17, (1, 5), (1, 40)),
    wide_convolution(520, 80, (1, 1), (3, 144)),
    wide_convolution(520, 80, (1, 1), (50, 4)),
]


def test_long_sums_of_wide_lines_are_right_where_caches_are_small() -> None:
    check(WIDE, with_small_caches())


@pytest.mark.parametrize(
    ("case", "groups", "panel"), [(0, "i0_0_0", "% 5"), (4, "i0_0_i1_0_0", "% 5"), (5, "i0_0_0", "% 10 // 2")]
)
def test_what_lines_are_computed_of_stays_in_the_caches(case: int, groups: str, panel: str) -> None:
    """A line, a part of one, and two lines, each for all five panels."""
    seen: dict[str, tvm.IRModule] = {}
    lower(build(WIDE[case : case + 1]).network, backend_of(with_small_caches()), seen.__setitem__)
    (kernel,) = (f for f in seen["schedule"].functions.values() if f.attrs[RULE] == "ContractionRule")
    script = re.sub(r"T\.int64\((\d+)\)", r"\1", kernel.script())
    parallel = re.search(r"for (\w+) in T.parallel", script)
    assert parallel is not None
    assert parallel[1].startswith(f"n_{groups}_o_0")  # panels are read for each group, not the image for each panel
    assert f"{parallel[1]} {panel} * 2 + o_1" in script
    assert re.findall(r"\b(rc_0|i1_0(?:_1)?)\b", script)[0] == "rc_0"  # parts of sums are made for all tiles of a line
