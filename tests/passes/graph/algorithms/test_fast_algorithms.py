"""Algorithms that need larger constants: which ones are taken within a budget, and what a network then weighs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pass_runs import optimized
from relax_programs import Case, Graph, Value, build, check, differences, program, target, with_fast_memory

import nnefc
from nnefc.backends import backend_of
from nnefc.driver.compile import compile_network
from nnefc.driver.options import CodeOptions
from nnefc.passes.graph.algorithms import choose_algorithms as choosing
from nnefc.passes.graph.algorithms.choose_algorithms import choose_algorithms
from nnefc.passes.graph.algorithms.fast_algorithms import Candidate, best_saving
from nnefc.passes.plan.program import program_of
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.multiversioning import with_levels
from nnefc.targets.machine.cpu.target import Target


@pytest.fixture
def no_network_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "SMALL_NETWORK", 0)
    monkeypatch.setattr(choosing, "_largest_data", lambda _module: 0)


FORMS = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 100_000)), min_size=1, max_size=3)
CANDIDATES = st.lists(FORMS, max_size=5).map(
    lambda constants: [
        Candidate(position, (2, 2), float(saved), added)
        for position, forms in enumerate(constants)
        for saved, added in forms
    ]
)


def saved(candidates: list[Candidate]) -> float:
    return sum(candidate.saved for candidate in candidates)


def added(candidates: list[Candidate]) -> int:
    return sum(candidate.added for candidate in candidates)


@settings(max_examples=200, deadline=None)
@given(CANDIDATES, st.floats(0, 1))
def test_the_choice_keeps_to_the_budget_and_saves_as_much_as_any(candidates: list[Candidate], share: float) -> None:
    """But for the rounding of sizes, by which each may count as one unit more."""
    allowance = share * added(candidates)
    chosen = best_saving(candidates, allowance)
    assert added(chosen) <= allowance
    assert len({candidate.constant for candidate in chosen}) == len(chosen)
    unit = -(-added(candidates) // 4096)
    forms = [[None, *group] for _, group in itertools.groupby(candidates, lambda candidate: candidate.constant)]
    choices = [[form for form in choice if form is not None] for choice in itertools.product(*forms)]
    minimum = max(saved(some) for some in choices if added(some) + unit * len(some) <= max(allowance - unit, 0))
    assert saved(chosen) >= minimum


@settings(max_examples=100, deadline=None)
@given(CANDIDATES, st.lists(st.integers(0, 1_500_000), min_size=2, max_size=6))
def test_more_memory_never_saves_less(candidates: list[Candidate], allowances: list[int]) -> None:
    savings = [saved(best_saving(candidates, allowance)) for allowance in sorted(allowances)]
    assert savings == sorted(savings)


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def network(graph: Graph, image: Value, rows: Value) -> list[Value]:
    """Convolutions with filters of two sizes, and two products with one factor."""
    small, large, factor = values(16, 16, 3, 3), values(48, 16, 3, 3), graph.constant(values(64, 64))
    wide = graph.convolve(graph.convolve(image, small, padding=1), large, padding=1)
    return [wide, graph.matmul(graph.matmul(rows, factor), factor)]


CASE = Case([values(1, 16, 24, 24), values(128, 64)], network, 1e-4)
MACHINE = with_fast_memory(target("llvm"))
SMALL, LARGE, FACTOR = 4 * 16 * 16 * 9, 4 * 48 * 16 * 9, 4 * 64 * 64
MODEL = SMALL + LARGE + FACTOR


def constant_bytes(budget: float) -> int:
    """Bytes of the trained values of a library."""
    with MACHINE.to_tvm():
        made = optimized(build([CASE]).network, backend_of(MACHINE), None, memory_budget=budget)
    return sum(array.nbytes for array in program_of(made).constants)


@pytest.mark.parametrize(("size", "tile"), [(28, (2, 2)), (256, (4, 4))])
def test_constants_may_grow_by_a_part_of_the_largest_layer(size: int, tile: tuple[int, int]) -> None:
    text = f"x[1, 256, {size}, {size}] -> y\ny = R.nn.conv2d(x, W, padding=[1, 1, 1, 1])"
    module = program(text, W=values(256, 256, 3, 3))
    assert [*choose_algorithms([module], target("znver3"), 1.25).tiles.values()] == [tile]


@pytest.mark.usefixtures("no_network_is_small")
def test_constants_grow_within_the_budget_and_not_at_all_without_one() -> None:
    sizes = {budget: constant_bytes(budget) for budget in (1, 1.6, 2.5, math.inf)}
    assert sizes[1] == MODEL
    assert all(size <= budget * MODEL for budget, size in sizes.items())
    assert sizes[1] < sizes[1.6] < sizes[2.5] < sizes[math.inf]
    assert sizes[math.inf] == 4 * SMALL + 4 * LARGE + FACTOR * 7 // 4


@pytest.mark.usefixtures("no_network_is_small")
def test_a_filter_becomes_as_much_larger_as_there_is_room_for() -> None:
    filters = values(128, 128, 3, 3)
    module = program("x[1, 128, 56, 56] -> y\ny = R.nn.conv2d(x, W, padding=[1, 1, 1, 1])", W=filters)
    tiles = {
        budget: list(choose_algorithms([module], MACHINE, budget).tiles.values()) for budget in (1.7, 1.8, 2.6, 2.7, 4)
    }
    assert tiles == {1.7: [], 1.8: [(2, 2)], 2.6: [(2, 2)], 2.7: [(2, 4)], 4: [(4, 4)]}


@pytest.mark.usefixtures("no_network_is_small")
@pytest.mark.parametrize(
    ("machine", "narrow"),
    [
        ("znver5 -precision=bf16", True),
        ("znver5", False),
        ("znver5 -precision=fp16", False),  # no instruction multiplies pairs of it
        ("sapphirerapids -precision=fp16", False),  # sums of tiles leave its range
        ("sapphirerapids -precision=bf16", False),  # its unit multiplies full tiles of the direct sum
        ("emeraldrapids -precision=fp16", False),
    ],
)
def test_transformed_tiles_are_multiplied_in_bfloat16_where_pairs_are_faster(machine: str, narrow: bool) -> None:
    module = program("x[1, 128, 28, 28] -> y\ny = R.nn.conv2d(x, W, padding=[1, 1, 1, 1])", W=values(128, 128, 3, 3))
    found = choose_algorithms([module], target(machine), math.inf)
    assert bool(found.narrow) == narrow
    assert not narrow or [*found.tiles.values()] == [(2, 2)]
    wide = choose_algorithms([module], target(machine).with_wide(["first"]), math.inf)
    assert not wide.narrow and (not narrow or [*wide.tiles.values()] == [(4, 4)])
    assert not choose_algorithms([module], target(machine), 1).tiles


def test_a_small_network_may_grow_by_a_part_of_a_larger_one() -> None:
    share = 3 * (SMALL + LARGE) + 3 / 4 * FACTOR
    assert constant_bytes(1) == MODEL
    assert constant_bytes(1 + 1.01 * share / choosing.SMALL_NETWORK) == MODEL + share
    assert constant_bytes(1 + 0.5 * share / choosing.SMALL_NETWORK) < MODEL + share


@pytest.mark.usefixtures("no_network_is_small")
def test_a_constant_that_several_computations_read_is_added_once() -> None:
    module = build([CASE]).network.module
    room = 1 + 3 / 4 * FACTOR / MODEL * 1.01  # for the products' factor alone; a convolution's takes more
    assert len(choose_algorithms([module], MACHINE, room).strassen) == 1
    assert not choose_algorithms([module], MACHINE, 1 + 0.9 * (room - 1)).strassen


@pytest.mark.parametrize(("rows", "chosen"), [("128", 1), ("'rows'", 0)])
def test_a_factor_that_open_rows_are_multiplied_with_stays_as_it_is(rows: str, chosen: int) -> None:
    module = program(
        f"""x[128, 768]; z[{rows}, 768] -> y, w
            y = R.matmul(x, A)
            w = R.matmul(z, A)""",
        A=np.ones((768, 768), np.float32),
    )
    assert len(choose_algorithms([module], MACHINE, math.inf).strassen) == chosen


def test_a_filter_that_a_strided_or_dilated_convolution_reads_too_stays_as_it_is() -> None:
    """As where one filter looks at several scales."""

    def scales(graph: Graph, x: Value) -> list[Value]:
        filters = graph.constant(values(64, 64, 3, 3))
        alike = [graph.convolve(x, filters, padding=1) for _ in range(2)]
        return [*alike, graph.convolve(x, filters, strides=2), graph.convolve(x, filters, dilation=2)]

    check([Case([values(1, 64, 28, 28)], scales, 1e-4)], MACHINE)


@pytest.mark.usefixtures("no_network_is_small")
@pytest.mark.parametrize("budget", [1.6, math.inf])
@pytest.mark.sample(1)
def test_results_are_right_whatever_the_budget(budget: float) -> None:
    built = build([CASE])
    with compile_network(built.network, MACHINE, CodeOptions(memory_budget=budget)).load(threads=1) as model:
        assert not differences(built.expected, model.run(built.inputs))


@pytest.mark.parametrize("budget", [0.99, 0, -1, math.nan])
def test_a_budget_below_the_trained_values_is_refused(budget: float) -> None:
    with pytest.raises(CompileError, match="1 keeps it as it is"):
        nnefc.compile("no such model.onnx", memory_budget=budget)


def test_transposed_convolutions_whose_phases_are_3_by_3_are_chosen_too() -> None:
    text = "x[1, 64, 28, 28] -> y\ny = R.nn.conv2d_transpose(x, W, strides=[2, 2], padding=[2, 2, 2, 2])"
    for kernel, expected in ((6, 1), (4, 0)):
        module = program(text, W=values(64, 64, kernel, kernel))
        assert len(choose_algorithms([module], target("llvm"), math.inf).tiles) == expected


@pytest.mark.usefixtures("no_network_is_small")
def test_choices_and_loops_share_the_budget_with_the_network_around_them() -> None:
    body = program("x[1, 64, 28, 28] -> y\ny = R.nn.conv2d(x, W, padding=[1, 1, 1, 1])", W=values(64, 64, 3, 3))
    around = program("x[1, 64, 28, 28] -> y\ny = R.nn.conv2d(x, W, padding=[1, 1, 1, 1])", W=values(64, 64, 3, 3))
    assert [len(choose_algorithms([around, body], target("llvm"), b).tiles) for b in (1.3, 1.5, 1.8)] == [0, 1, 2]


@pytest.mark.usefixtures("no_network_is_small")
@pytest.mark.parametrize(("budget", "alone"), [(1.2, 1), (math.inf, 4)])
def test_levels_whose_blocks_are_several_vectors_have_no_products_of_submatrices(budget: float, alone: int) -> None:
    """Of few rows, where Strassen's algorithm saves time on the oldest processors alone."""
    levels = with_levels(target("x86-64")).levels
    factors = {"A": values(768, 3072), "B": values(3072, 768), "C": values(768, 3072) + 1, "D": values(3072, 768) + 1}
    products = "a = R.matmul(x, A)\nb = R.matmul(a, B)\nc = R.matmul(b, C)\ny = R.matmul(c, D)"
    module = program(f"x[128, 768] -> y\n{products}", **factors)
    assert len(choose_algorithms([module], target("x86-64"), budget).strassen) == alone
    assert not any(choose_algorithms([module], level, budget, levels).strassen for level in levels)


def test_a_level_takes_no_choice_that_no_newer_one_has_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three levels does without what is best for itself; so the first, which would take that, too."""
    oldest, second, newest = levels = [target(name) for name in ("x86-64", "x86-64-v2", "x86-64-v3")]
    saved = {oldest: (100, 98, 0), second: (0, 51, 50), newest: (0, 0, 50)}
    tiles = (4, 4), (2, 4), (2, 2)

    def forms(_modules: object, _size: int, level: Target) -> dict[object, Candidate]:
        made = [Candidate(1, tile, float(saves), 1) for tile, saves in zip(tiles, saved[level], strict=True)]
        return {(one.constant, one.tile, one.narrow): one for one in made}

    monkeypatch.setattr(choosing, "_forms", forms)
    monkeypatch.setattr(choosing, "_cycles", lambda *_: 100.0)
    module = program("x[1, 4] -> y\ny = R.matmul(x, A)", A=values(4, 4))
    chosen = [choose_algorithms([module], level, math.inf, levels).tiles for level in levels]
    assert [[*found.values()] for found in chosen] == [[(4, 4)], [(2, 2)], [(2, 2)]]
