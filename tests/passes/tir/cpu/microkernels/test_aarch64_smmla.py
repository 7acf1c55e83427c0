"""Sums of products of pairs of rows and columns on 64-bit Arm: what loops compute, instruction by instruction."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import product_of
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, LoopCode
from nnefc.passes.tir.cpu.microkernels.aarch64_smmla import code_of
from nnefc.passes.tir.cpu.row_pairs import pairs_in_memory

_TRIPS, _COLUMNS = 3, 8
_GAP = 8  # bytes after the rows of a tile


def _steps(rows: int, parts: int, taps: int) -> tuple[Accumulation, ...]:
    """Of rows of 8 or 16 bytes, and taps that are a row apart; in elements of four bytes."""
    return tuple(
        Accumulation(
            4 * (number * _COLUMNS // 2 + column),
            2 * parts * (tap + (pair.begin if pair.load != "ld1" else pair.rows[0])),
            4 * ((tap * parts + part) * _COLUMNS // 2 + column),
            (pair.load, pair.register + part),
        )
        for tap in range(taps)
        for part in range(parts)
        for column in range(_COLUMNS // 2)
        for number, pair in enumerate(pairs_in_memory(rows, parts))
    )


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("rows", "parts", "taps"), [(8, 2, 1), (7, 2, 3), (5, 2, 2), (1, 2, 1), (8, 1, 3), (3, 1, 2)])
def test_sums_are_those_of_rows_and_columns(rows: int, parts: int, taps: int, once: bool) -> None:
    rng, trips = np.random.default_rng(0), 1 if once else _TRIPS
    product = product_of("smmla")
    assert product is not None
    row, left_step, right_step = 8 * parts, 8 * parts * (rows + taps) + _GAP, taps * parts * _COLUMNS * 8
    code = code_of(product, _steps(rows, parts, taps), right_step, once)
    assert code is not None and code.left == code.right == (0,)
    left = rng.integers(-128, 128, trips * left_step).astype(np.int8)
    right = rng.integers(-128, 128, trips * right_step).astype(np.int8)
    expected = np.zeros((rows, _COLUMNS), np.int64)
    for trip in range(trips):
        for tap in range(taps):
            for part in range(parts):
                begin = trip * right_step + (tap * parts + part) * _COLUMNS * 8
                columns = right[begin : begin + _COLUMNS * 8].reshape(_COLUMNS, 8).astype(np.int64)
                for n in range(rows):
                    first = trip * left_step + (n + tap) * row + part * 8
                    expected[n] += columns @ left[first : first + 8].astype(np.int64)
    sums = _run(code, left, right, trips, left_step, right_step)
    for number, pair in enumerate(pairs_in_memory(rows, parts)):
        own = sums[number * _COLUMNS // 2 : (number + 1) * _COLUMNS // 2].reshape(-1, 2, 2)
        for n, r in enumerate(pair.rows):
            np.testing.assert_array_equal(own[:, n].reshape(-1), expected[r])


def test_loads_move_their_pointers() -> None:
    product = product_of("smmla")
    assert product is not None
    code = code_of(product, _steps(8, 2, 3), 3 * 2 * _COLUMNS * 8, False)
    assert code is not None
    words = [line.split()[0] for line in _lines(code)]
    assert sorted(set(words)) == ["b.ne", "ld1", "ld4", "smmla", "subs"]
    assert (words.count("ld4"), words.count("ld1"), words.count("smmla")) == (6, 6, 96)


def test_more_sums_than_registers_are_no_assembly() -> None:
    product = product_of("smmla")
    assert product is not None
    assert code_of(product, _steps(16, 2, 1), 128, False) is None


def _lines(code: LoopCode) -> list[str]:
    match = re.search(r'asm "([^"]*)"', code.text)
    assert match is not None
    return [line for line in match[1].split("\\0A") if line != "1:"]


def _run(
    code: LoopCode, left: np.ndarray, right: np.ndarray, trips: int, left_step: int, right_step: int
) -> np.ndarray:
    """Returns the sums, four numbers each."""
    arguments = re.search(r'"\((i64 %d0.*)\) noduplicate', code.text)
    constraints = re.search(r'", "(.*?)"\(', code.text)
    assert arguments is not None and constraints is not None
    held = [name[2:-1] for name in constraints[1].split(",") if name.startswith("={")]
    moved = [int(number) for number in re.findall(r"%d\d = sub i64 %\w+, (-?\d+)", code.text)]
    given = arguments[1].split(", ")
    first = len(held) + 3
    values = {f"${len(held)}": 0, f"${len(held) + 1}": 0, f"${first}": left_step - moved[0]}
    values[f"${first + 1}"] = right_step - moved[1]
    values |= {f"${first + n}": int(text[4:]) for n, text in enumerate(given) if re.fullmatch(r"i64 -?\d+", text)}
    memory = {f"${len(held)}": left, f"${len(held) + 1}": right}
    vectors = {f"v{n}": np.zeros(16, np.int8) for n in range(32)}
    totals = {name: np.zeros((2, 2), np.int64) for name in held}
    for _ in range(trips):
        for line in _lines(code):
            name, *operands = re.findall(r"[\w$.]+|#-?\d+", line)
            if name == "smmla":
                total, a, b = (operand.split(".")[0] for operand in operands)
                x, y = (vectors[each].reshape(2, 8).astype(np.int64) for each in (a, b))
                totals[total] = totals[total] + x @ y.T
            elif name.startswith("ld"):
                registers = [each.split(".")[0] for each in operands if each.startswith("v")]
                pointer, *by = [each for each in operands if not each.startswith("v")]
                loaded = _loaded(name, memory[pointer][values[pointer] :], len(registers))
                vectors |= dict(zip(registers, loaded, strict=True))
                values[pointer] += 0 if not by else int(by[0][1:]) if by[0][0] == "#" else values[by[0]]
    return np.array([totals[name].reshape(-1) for name in held])


def _loaded(name: str, data: np.ndarray, count: int) -> list[np.ndarray]:
    if name.endswith("r"):
        return [np.tile(data[8 * n : 8 * n + 8], 2) for n in range(count)]
    if name == "ld1":
        return [data[16 * n : 16 * n + 16] for n in range(count)]
    words = data[: 16 * count].reshape(2, count, 8)
    return [words[:, n].reshape(-1) for n in range(count)]
