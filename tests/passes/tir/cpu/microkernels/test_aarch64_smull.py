"""Sums of products of bytes on 64-bit Arm without dot products: what loops compute, instruction by instruction."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from byte_products import min_max_operands, product_named, sums_of_bytes

from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, LoopCode
from nnefc.passes.tir.cpu.microkernels.aarch64_smull import code_of
from nnefc.targets.machine.cpu.costs import InOrder, microarchitecture_of

_TRIPS = 3
_IN_ORDER = microarchitecture_of("aarch64", "cortex-a53").in_order


def _steps(rows: int, columns: int, terms: int, pitch: int) -> tuple[Accumulation, ...]:
    """Of rows whose elements lie `pitch` words apart."""
    return tuple(
        Accumulation(4 * (row * columns + column), row * pitch + term, 4 * (term * columns + column))
        for term in range(terms)
        for row in range(rows)
        for column in range(columns)
    )


@pytest.mark.parametrize("name", ["smlal", "smull", "umull"])
@pytest.mark.parametrize(
    ("rows", "columns", "terms", "pitch"),
    [(2, 4, 8, 4), (1, 4, 4, 4), (4, 2, 8, 8), (2, 4, 3, 2), (1, 4, 5, 5), (3, 1, 12, 40), (2, 2, 1, 1)],
)
@pytest.mark.parametrize("once", [False, True])
def test_all_products_are_added_up(name: str, rows: int, columns: int, terms: int, pitch: int, once: bool) -> None:
    """Two of the smallest and the largest bytes have room in 16 bits, if weights are not -128."""
    _check(name, _steps(rows, columns, terms, pitch), 4 * columns * terms * 4, once)


def _check(name: str, steps: tuple[Accumulation, ...], right_step: int, once: bool) -> None:
    """By sums of the smallest and the largest bytes, on all kinds of cores."""
    for core in (None, _IN_ORDER):
        _check_on(core, name, steps, right_step, once)


def _check_on(core: InOrder | None, name: str, steps: tuple[Accumulation, ...], right_step: int, once: bool) -> None:
    product = product_named(name)
    move = (4 * (max(step.left for step in steps) + 1), right_step)
    code = code_of(product, steps, move[1], once, core)
    assert code is not None
    trips = 1 if once else _TRIPS
    operands = min_max_operands(product, name == "umull", (trips * move[0], trips * move[1]))
    found = _executed(code, trips, operands, move)
    assert {number: total.tolist() for number, total in found.items()} == sums_of_bytes(steps, trips, operands, move)


def test_sums_may_have_terms_of_different_numbers_from_any_position_on() -> None:
    """As borders of images leave them out."""
    steps = tuple(step for step in _steps(2, 2, 5, 5) if step.left not in (0, 4, 5) and step.right != 12)
    assert steps[0].left > 0 and steps[0].right > 0
    counts = {sum(step.sum == number for step in steps) for number in (0, 4, 8, 12)}
    assert counts == {2, 3, 4}
    for name in ("smlal", "umull"):
        _check(name, steps, 160, once=False)
        _check(name, steps, 160, once=True)


def test_loads_and_copies_are_few_compared_with_products() -> None:
    steps = _steps(2, 4, 8, 8)
    code = code_of(product_named("smlal"), steps, 8 * 64, False)
    assert code is not None
    assert code.instructions < 1.17 * 6 * len(steps) / 2


@pytest.mark.parametrize(("rows", "columns"), [(2, 4), (4, 2), (1, 4), (5, 1)])
def test_cores_that_are_in_order_do_not_wait_for_what_they_multiplied_last(rows: int, columns: int) -> None:
    steps = _steps(rows, columns, 8, 8)
    other, own = (code_of(product_named("smlal"), steps, 128 * columns, False, core) for core in (None, _IN_ORDER))
    assert other is not None and own is not None
    assert own.instructions <= 1.1 * other.instructions
    assert 2 * _waits(own) < _waits(other)


def _waits(code: LoopCode) -> int:
    """Products and sums that read what one of the last three instructions before has written."""
    lines = code.text.partition('asm "')[2].split("\\0A")
    found = 0
    for number, line in enumerate(lines):
        if line.startswith(("sm", "sada")):
            read = set(re.findall(r"v(\d+)", line))
            written = [
                re.findall(r"[vq](\d+)", each.partition("[")[0])[:1] for each in lines[max(0, number - 3) : number]
            ]
            found += not read.isdisjoint(register for each in written for register in each)
    return found


def test_too_many_sums_have_no_code() -> None:
    assert code_of(product_named("smlal"), _steps(4, 4, 4, 4), 256, False) is None


def _executed(
    code: LoopCode, trips: int, memory: tuple[np.ndarray, np.ndarray], move: tuple[int, int]
) -> dict[int, np.ndarray]:
    """The sums that the function adds to those before, by their positions."""
    lines = re.search(r'asm "([^"]*)"', code.text)
    outputs = re.search(r'asm "[^"]*", "((?:={v\d+},?)+)', code.text)
    assert lines is not None and outputs is not None
    positions = [int(number) // 4 for number in re.findall(r"getelementptr i8, ptr %s, i64 (\d+)", code.text)]
    numbers = [int(number) for number in re.findall(r"{v(\d+)}", outputs[1])]
    moved = [int(number) for number in re.findall(r"= sub i64 %(?:left|right), (\d+)", code.text)]
    machine = _Machine(len(positions), trips, code, memory, move, moved)
    program = lines[1].split("\\0A")
    at = 0
    while at < len(program):
        at = program.index("1:") if machine.step(program[at]) else at + 1
    return {position: machine.vector(register, "i4") for position, register in zip(positions, numbers, strict=True)}


class _Machine:
    """Registers and pointers."""

    def __init__(
        self,
        sums: int,
        trips: int,
        code: LoopCode,
        memory: tuple[np.ndarray, np.ndarray],
        move: tuple[int, int],
        moved: list[int],
    ) -> None:
        self._registers: dict[int, bytes] = {}
        self._memory = [side.tobytes() for side in memory]
        sides = [(0, 4 * element) for element in code.left] + [(1, 4 * element) for element in code.right]
        self._pointers = {f"${sums + n}": list(side) for n, side in enumerate(sides)}
        self._trips = trips
        changed = sums + len(sides) + 1
        self._steps = {f"${changed + n}": move[side] - moved[n] for n, (side, _) in enumerate(sides)}

    def vector(self, register: int, dtype: str) -> np.ndarray:
        return np.frombuffer(self._registers[register], dtype)

    def step(self, line: str) -> bool:
        """Execute an instruction; whether it branches back."""
        name, _, tail = line.partition(" ")
        registers = [int(number) for number in re.findall(r"[vqds](\d+)", tail.partition("[$")[0])]
        sign = "u" if name.startswith("u") else "i"
        match name.removeprefix("s").removeprefix("u") if name not in ("subs",) else name:
            case "1:":
                pass
            case "movi":
                self._registers[registers[0]] = bytes(16)
            case "ld1" | "ldp" | "ldr" | "ldur":
                self._load(tail, registers)
            case "dup":
                lane = int(tail[-2])
                self._registers[registers[0]] = self._registers[registers[1]][4 * lane : 4 * lane + 4] * 4
            case "mull" | "mull2" | "mlal" | "mlal2" as kind:
                half = slice(8, 16) if kind.endswith("2") else slice(0, 8)
                left, right = (self.vector(number, f"{sign}1")[half].astype(f"{sign}4") for number in registers[1:])
                made = left * right + (self.vector(registers[0], f"{sign}2") if kind.startswith("mlal") else 0)
                assert np.array_equal(made, made.astype(f"{sign}2")), "beyond 16 bits"
                self._registers[registers[0]] = made.astype(f"{sign}2").tobytes()
            case "adalp" | "addlp" as kind:
                pairs = self.vector(registers[1], f"{sign}2").astype("i4").reshape(4, 2).sum(axis=1)
                before = self.vector(registers[0], "i4") if kind == "adalp" else 0
                self._registers[registers[0]] = (pairs + before).astype("i4").tobytes()
            case "addp":
                both = np.concatenate([self.vector(number, "i4") for number in registers[1:]])
                self._registers[registers[0]] = both.reshape(4, 2).sum(axis=1).astype("i4").tobytes()
            case "add":
                pointer, same, step = tail.split(", ")
                assert pointer == same
                self._pointers[pointer][1] += self._steps[step]
            case "subs":
                self._trips -= 1
            case "b.ne":
                return self._trips > 0
            case _:
                raise AssertionError(line)
        return False

    def _load(self, tail: str, registers: list[int]) -> None:
        size = {"q": 16, "d": 8, "s": 4, "{": 16}[tail[0]]
        ((name, at, after),) = re.findall(r"\[(\$\d+)(?:, #(\d+))?\](?:, #(\d+))?", tail)
        side, begin = self._pointers[name]
        assert tail[0] != "{" or all(b == a + 1 for a, b in pairwise(registers))
        for number, register in enumerate(registers):
            first = begin + int(at or 0) + number * size
            assert first + size <= len(self._memory[side]), "beyond what is there"
            self._registers[register] = self._memory[side][first : first + size].ljust(16, b"\0")
        self._pointers[name][1] += int(after or 0)
