"""Sums of products of bytes on 32-bit Arm: what loops compute, instruction by instruction."""

from __future__ import annotations

import re

import numpy as np
import pytest
from byte_products import min_max_operands, product_named, sums_of_bytes

from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, LoopCode
from nnefc.passes.tir.cpu.microkernels.arm32_smlad import code_of

_TRIPS = 3


def _steps(rows: int, columns: int, terms: int, pitch: int, apart: int = 0) -> tuple[Accumulation, ...]:
    """Of rows whose elements lie `pitch` words apart, and of columns in turn, or each `apart` elements behind the
    other."""
    return tuple(
        Accumulation(
            4 * (row * columns + column),
            row * pitch + term,
            4 * term + apart * column if apart else 4 * (term * columns + column),
        )
        for term in range(terms)
        for row in range(rows)
        for column in range(columns)
    )


@pytest.mark.parametrize("name", ["vmlal_s8", "vmull_s8", "vmull_u8"])
@pytest.mark.parametrize(
    ("rows", "columns", "terms", "pitch"),
    [(2, 2, 8, 8), (1, 2, 4, 4), (4, 1, 8, 80), (2, 2, 3, 2), (1, 4, 5, 5), (3, 1, 12, 40), (2, 1, 9, 1)],
)
@pytest.mark.parametrize("once", [False, True])
def test_all_products_are_added_up(name: str, rows: int, columns: int, terms: int, pitch: int, once: bool) -> None:
    """Two of the smallest and the largest bytes have room in 16 bits, if weights are not -128."""
    _check(name, _steps(rows, columns, terms, pitch), once)


@pytest.mark.parametrize("once", [False, True])
def test_columns_may_be_far_apart(once: bool) -> None:
    _check("vmlal_s8", _steps(2, 2, 6, 6, apart=400), once)


@pytest.mark.parametrize("once", [False, True])
def test_windows_of_neighbours_share_words(once: bool) -> None:
    """Of a filter of 3 x 3 taps over rows of 20 pixels of a word: the second pixel of one is the first of the other."""
    taps = [(y, x) for y in range(3) for x in range(3)]
    steps = tuple(
        Accumulation(4 * (2 * row + column), 20 * y + x + row, 4 * (2 * number + column))
        for number, (y, x) in enumerate(taps)
        for row in range(2)
        for column in range(2)
    )
    _check("vmlal_s8", steps, once)
    code = code_of(product_named("vmlal_s8"), steps, None, once)
    assert code is not None
    assert code.text.count("[]}") < 2 * len(taps)


def test_sums_may_have_terms_of_different_numbers_from_any_position_on() -> None:
    """As borders of images leave them out."""
    steps = tuple(step for step in _steps(3, 1, 5, 5) if step.left not in (0, 4, 5) and step.right != 12)
    assert {sum(step.sum == number for step in steps) for number in (0, 4, 8)} == {2, 3, 4}
    for name in ("vmlal_s8", "vmull_u8"):
        _check(name, steps, once=False)
        _check(name, steps, once=True)


def test_loads_are_few_compared_with_products() -> None:
    steps = _steps(2, 2, 8, 8)
    code = code_of(product_named("vmlal_s8"), steps, 8 * 32, False)
    assert code is not None
    assert code.instructions < 1.3 * 6 * len(steps) / 2


def test_what_registers_do_not_hold_has_no_code() -> None:
    assert code_of(product_named("vmlal_s8"), _steps(3, 2, 4, 4), 128, False) is None
    assert code_of(product_named("vmlal_s8"), _steps(2, 2, 4, 4), 128, False) is not None


def _check(name: str, steps: tuple[Accumulation, ...], once: bool) -> None:
    """By sums of the smallest and the largest bytes; the right step may be known."""
    right_step = 4 * (max(step.right for step in steps) + 4)
    for known in (right_step, None):
        product = product_named(name)
        move = (4 * (max(step.left for step in steps) + 1), right_step)
        code = code_of(product, steps, known, once)
        assert code is not None
        trips = 1 if once else _TRIPS
        operands = min_max_operands(product, name == "vmull_u8", (trips * move[0], trips * move[1]))
        found = _executed(code, trips, operands, move)
        expected = sums_of_bytes(steps, trips, operands, move)
        assert {number: total.tolist() for number, total in found.items()} == expected


def _executed(
    code: LoopCode, trips: int, memory: tuple[np.ndarray, np.ndarray], move: tuple[int, int]
) -> dict[int, np.ndarray]:
    """The sums that the function adds to those before, by their positions."""
    lines = re.search(r'asm "([^"]*)"', code.text)
    outputs = re.search(r'asm "[^"]*", "((?:={q\d+},?)+)', code.text)
    given = re.search(r'asm "[^"]*", "[^"]*"\(([^)]*)\)', code.text)
    assert lines is not None and outputs is not None and given is not None
    positions = [int(number) // 4 for number in re.findall(r"getelementptr i8, ptr %s, i32 (\d+)", code.text)]
    numbers = [int(number) for number in re.findall(r"{q(\d+)}", outputs[1])]
    machine = _Machine(code, len(positions), trips, memory, given[1], move)
    program = lines[1].split("\\0A")
    at = 0
    while at < len(program):
        at = program.index("1:") if machine.step(program[at]) else at + 1
    return {position: machine.quad(register, "i4") for position, register in zip(positions, numbers, strict=True)}


class _Machine:
    """Registers of 64 bits, and of integers."""

    def __init__(
        self,
        code: LoopCode,
        sums: int,
        trips: int,
        memory: tuple[np.ndarray, np.ndarray],
        given: str,
        move: tuple[int, int],
    ) -> None:
        self._registers: dict[int, bytes] = {}
        self._memory = [side.tobytes() for side in memory]
        sides = [(0, 4 * element) for element in code.left] + [(1, 4 * element) for element in code.right]
        self._pointers = {f"${sums + n}": list(side) for n, side in enumerate(sides)}
        operands = [operand.split() for operand in given.split(", ")]
        has_counter = ["i32", "%trips"] in operands
        self._counter = f"${sums + len(sides)}"
        self._integers = {self._counter: trips} if has_counter else {}
        assert has_counter or trips == 1
        for n, (kind, name) in enumerate(operands):
            if kind == "i32" and name != "%trips":
                self._integers[f"${sums + len(sides) + has_counter + n}"] = _value(code.text, name, move)

    def quad(self, register: int, dtype: str) -> np.ndarray:
        return np.frombuffer(self._registers[2 * register] + self._registers[2 * register + 1], dtype)

    def _set_quad(self, register: int, value: np.ndarray) -> None:
        content = value.tobytes()
        self._registers[2 * register], self._registers[2 * register + 1] = content[:8], content[8:]

    def step(self, line: str) -> bool:
        """Execute an instruction; whether it branches back."""
        name, _, tail = line.partition(" ")
        registers = [int(number) for number in re.findall(r"[qd](\d+)", tail)]
        sign = "u" if ".u" in name else "i"
        match re.sub(r"\.[su]", ".", name):
            case "1:":
                pass
            case "vmov.i32":
                self._set_quad(registers[0], np.zeros(4, "i4"))
            case "vld1.32":
                self._load(tail, registers)
            case "vmull.8" | "vmlal.8" as kind:
                left, right = (
                    np.frombuffer(self._registers[number], f"{sign}1").astype("i4") for number in registers[1:]
                )
                made = left * right + (self.quad(registers[0], f"{sign}2") if kind.startswith("vmlal") else 0)
                assert np.array_equal(made, made.astype(f"{sign}2")), "beyond 16 bits"
                self._set_quad(registers[0], made.astype(f"{sign}2"))
            case "vpadal.16" | "vpaddl.16" as kind:
                pairs = self.quad(registers[1], f"{sign}2").astype("i4").reshape(4, 2).sum(axis=1)
                before = self.quad(registers[0], "i4") if kind.startswith("vpadal") else 0
                self._set_quad(registers[0], (pairs + before).astype("i4"))
            case "vpadd.i32":
                both = b"".join(self._registers[number] for number in registers[1:])
                self._registers[registers[0]] = (
                    np.frombuffer(both, "i4").reshape(2, 2).sum(axis=1).astype("i4").tobytes()
                )
            case "add" | "sub":
                pointer, same, number = tail.split(", ")
                assert pointer == same
                self._pointers[pointer][1] += int(number[1:]) * (1 if name == "add" else -1)
            case "subs":
                self._integers[self._counter] -= 1
            case "bne":
                return self._integers[self._counter] > 0
            case _:
                raise AssertionError(line)
        return False

    def _load(self, tail: str, registers: list[int]) -> None:
        ((name, whole, step),) = re.findall(r"\[(\$\d+)\](!?)(?:, (\$\d+))?", tail)
        side, begin = self._pointers[name]
        is_word = "[]" in tail
        size = 4 if is_word else 8 * len(registers)
        assert begin >= 0 and begin + size <= len(self._memory[side]), "beyond what is there"
        content = self._memory[side][begin : begin + size]
        assert is_word or registers == list(range(registers[0], registers[0] + len(registers)))
        for n, register in enumerate(registers):
            self._registers[register] = content * 2 if is_word else content[8 * n : 8 * n + 8]
        self._pointers[name][1] += size if whole else self._integers[step] if step else 0


def _value(text: str, name: str, move: tuple[int, int]) -> int:
    """What a register holds in which a function has its own number."""
    if not name.startswith("%"):
        return int(name)
    found = re.search(rf"{name} = sub i32 %(left|right)32, (-?\d+)", text)
    assert found is not None
    return move[0 if found[1] == "left" else 1] - int(found[2])
