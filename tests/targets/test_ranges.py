"""What is proved of indices: against all values that loops let them have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.targets.codegen.cpu.ranges import Ranges

Values = dict[tirx.Var, int]


def number(value: int) -> tirx.IntImm:
    return tirx.IntImm("int64", value)


def loop(var: tirx.Var, extent: tirx.Expr | int) -> tirx.For:
    count = number(extent) if isinstance(extent, int) else extent
    return tirx.For(
        var, tirx.const(0, str(count.expr_ty().dtype)), count, tirx.ForKind.SERIAL, tirx.Evaluate(number(0))
    )


def value_of(expr: tirx.Expr, values: Values) -> int:
    """An expression's value, as TIR defines it."""
    match expr:
        case tirx.IntImm():
            return int(expr)
        case tirx.Var():
            return values[expr]
    a, b = (value_of(part, values) for part in (expr.a, expr.b))
    compute: dict[type, Callable[[int, int], int]] = {
        tirx.Add: lambda a, b: a + b,
        tirx.Sub: lambda a, b: a - b,
        tirx.Mul: lambda a, b: a * b,
        tirx.FloorDiv: lambda a, b: a // b,
        tirx.FloorMod: lambda a, b: a % b,
        tirx.Min: min,
        tirx.Max: max,
        tirx.LT: lambda a, b: int(a < b),
        tirx.LE: lambda a, b: int(a <= b),
        tirx.GT: lambda a, b: int(a > b),
        tirx.GE: lambda a, b: int(a >= b),
        tirx.EQ: lambda a, b: int(a == b),
    }
    return compute[type(expr)](a, b)


def drawn(rng: np.random.Generator, names: list[tirx.Var], depth: int) -> tirx.Expr:
    """A random expression of some variables."""
    if not depth or rng.random() < 0.2:
        return names[rng.integers(len(names))]
    a = drawn(rng, names, depth - 1)
    match rng.integers(7):
        case 0 | 1:
            return tirx.Add(a, drawn(rng, names, depth - 1))
        case 2:
            return tirx.Sub(a, drawn(rng, names, depth - 1))
        case 3:
            return tirx.Mul(a, number(int(rng.integers(-3, 8))))
        case 4:
            return tirx.FloorDiv(a, number(int(rng.integers(1, 6))))
        case 5:
            return tirx.FloorMod(a, number(int(rng.integers(1, 6))))
    return [tirx.Min, tirx.Max][rng.integers(2)](a, drawn(rng, names, depth - 1))


def seen(loops: list[tuple[tirx.Var, tirx.Expr]], conditions: list[tirx.Expr], index: tirx.Expr) -> Iterator[int]:
    """All values of an index inside of loops, where conditions hold."""

    def inner(left: int, values: Values) -> Iterator[int]:
        if left == len(loops):
            if all(value_of(each, values) for each in conditions):
                yield value_of(index, values)
            return
        var, extent = loops[left]
        for k in range(max(0, value_of(extent, values))):
            yield from inner(left + 1, values | {var: k})

    return inner(0, {})


@pytest.mark.parametrize("part", range(4))
def test_what_is_proved_is_so(part: int) -> None:
    proved = 0
    for seed in range(60 * part, 60 * part + 60):
        rng = np.random.default_rng(seed)
        names: list[tirx.Var] = []
        loops: list[tuple[tirx.Var, tirx.Expr]] = []
        ranges = Ranges()
        with ExitStack() as stack:
            for k in range(3):
                var = tirx.Var(f"i{k}", "int64")
                size = number(int(rng.integers(1, 7)))
                extent = tirx.Min(drawn(rng, names, 1), size) if names and rng.random() < 0.5 else size
                loops.append((var, extent))
                stack.enter_context(ranges.within(loop(var, extent)))
                names.append(var)
            conditions = []
            for _ in range(rng.integers(0, 3)):
                kind = [tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ][rng.integers(5)]
                conditions.append(kind(drawn(rng, names, 2), number(int(rng.integers(-3, 20)))))
                stack.enter_context(ranges.under(conditions[-1]))
            index = drawn(rng, names, 3)
            values = list(seen(loops, conditions, index))
            size = max(values, default=0) + int(rng.integers(-2, 3))
            if ranges.is_inside(index, number(size)):
                proved += 1
                assert all(0 <= value < size for value in values), (seed, str(index), size)
    assert proved >= 5


def test_conditions_on_sums_limit_their_multiples() -> None:
    ranges, i, j, k = Ranges(), *(tirx.Var(name, "int64") for name in "ijk")
    row = 8 * i + j
    with ranges.within(loop(i, 8)), ranges.within(loop(j, 8)), ranges.within(loop(k, 100)):
        assert not ranges.is_inside(100 * row + k, number(6000))
        with ranges.under(row < 60):
            assert ranges.is_inside(100 * row + k, number(6000))
            assert not ranges.is_inside(100 * row + k, number(5999))
        with ranges.under(tirx.Not(row < 4)):
            assert ranges.is_inside(100 * (row - 4) + k, number(6000))
            assert not ranges.is_inside(100 * (row - 5) + k, number(6000))


def test_loops_of_the_tail_of_a_block_are_limited() -> None:
    ranges, block, row = Ranges(), tirx.Var("block", "int64"), tirx.Var("row", "int64")
    with ranges.within(loop(block, 2)):
        count = tirx.Var("count", "int64")
        ranges.bind(count, tirx.Min(number(128), 197 - block * 128))
        with ranges.within(loop(row, count // 8)):
            assert ranges.is_inside(768 * (128 * block + 8 * row + 7), number(768 * 197))
            assert not ranges.is_inside(768 * (128 * block + 8 * row + 16), number(768 * 197))


def test_elements_of_tables_are_within_their_ranges_and_conditions() -> None:
    ranges, i = Ranges(), tirx.Var("i", "int64")
    table = tirx.decl_buffer((10,), "int32", name="table")
    ranges.tables[table] = (-1, 99)
    with ranges.within(loop(i, 10)):
        element = tirx.BufferLoad(table, [i])
        assert isinstance(element, TensorLoad)
        channel = element.astype("int64")
        position = channel // 16 * 320 + channel % 16
        assert not ranges.is_inside(position, number(7 * 320))
        with ranges.under(channel >= 0):
            assert ranges.is_inside(position, number(6 * 320 + 16))
            assert not ranges.is_inside(position, number(6 * 320 + 3))


def test_elements_and_quotients_are_0_where_a_check_fails() -> None:
    ranges, i, n = Ranges(), tirx.Var("i", "int64"), tirx.Var("n", "int64")
    table = tirx.decl_buffer((10,), "int64", name="table")
    ranges.tables[table] = (5, 10)
    with ranges.within(loop(i, 8)), ranges.under(tirx.And(n >= 0, n < 6)):
        element = tirx.BufferLoad(table, [i])
        assert ranges.is_inside(element, number(11))
        assert not ranges.is_inside(element - 5, number(6))
        quotient = tirx.FloorDiv(i + 20, n)
        assert not ranges.is_inside(quotient - 4, number(100))
        with ranges.under(n > 0):
            assert ranges.is_inside(quotient - 3, number(100))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_elements_of_tables_may_be_far_apart(dtype: str) -> None:
    ranges, i, limits = Ranges(), tirx.Var("i", "int64"), np.iinfo(dtype)
    table = tirx.decl_buffer((10,), dtype, name="table")
    ranges.tables[table] = (int(limits.min), int(limits.max))
    with ranges.within(loop(i, 10)):
        element = tirx.BufferLoad(table, [i]).astype("int64")
        assert ranges.is_inside(element, number(256)) == (dtype == "uint8")


def test_elements_of_tables_at_changing_positions_have_no_name() -> None:
    ranges, i = Ranges(), tirx.Var("i", "int64")
    table, positions = (tirx.decl_buffer((10,), "int64", name=name) for name in ("table", "slots"))
    ranges.tables[table] = (0, 9)
    with ranges.within(loop(i, 10)):
        element = tirx.BufferLoad(table, [tirx.BufferLoad(positions, [i])])
        with ranges.under(element < 5):
            assert not ranges.is_inside(element, number(5))


def test_indices_that_may_overflow_are_not_proved() -> None:
    ranges, i, j = Ranges(), tirx.Var("i", "int32"), tirx.Var("j", "int32")
    wide = {var: loop(var, tirx.IntImm("int32", 1 << 20)) for var in (i, j)}
    with ranges.within(wide[i]), ranges.within(wide[j]), ranges.under(i * 4096 + j < 100):
        assert not ranges.is_inside(i * 4096 + j, tirx.IntImm("int32", 100))


def test_conditions_end_where_they_do() -> None:
    ranges, i = Ranges(), tirx.Var("i", "int64")
    for size, _ in itertools.product((4, 8), range(2)):
        with ranges.within(loop(i, size)):
            with ranges.under(i < 3):
                assert ranges.is_inside(i, number(3))
            assert not ranges.is_inside(i, number(3))
            assert ranges.is_inside(i, number(size))
