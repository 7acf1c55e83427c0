"""Emits AArch64 assembly that multiplies pairs of rows by pairs of columns (`smmla`, `ummla`, `bfmmla`).

    sums of a tile of 8 rows × 8 columns, 16 products of each per iteration:

    1:  ld4    {v0.2d, … v3.2d}, [x0], #64     # of 16 bytes of rows 0 to 3: both halves of 0 and 2, and of 1 and 3
        ld1    {v4.16b, … v7.16b}, [x1], #64   # eight columns
        smmla  v31.4s, v0.16b, v4.16b
        …
        ld4    {v8.2d, … v11.2d}, [x0], x5     # of rows 4 to 7; the next iteration begins x5 bytes further
        …                                      # 32 products in all, 4 loads
        subs   x2, x2, #1
        b.ne   1b

Each load moves its pointer to where the next one begins, so that no instruction is needed for addresses.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import QUAD_BYTES, REGISTERS, MultiplyAdd
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import (
    MAX_LOADED,
    Accumulation,
    Line,
    Loaded,
    LoopBody,
    LoopCode,
    ahead,
    function_of,
)
from nnefc.passes.tir.cpu.row_pairs import LOADS

__all__ = ["code_of"]

_LEFT, _RIGHT = 0, 1  # pointers
_LOOP = 2  # instructions of the loop counter
_END = 1 << 30  # number of a product after all
_MAX_DISTANCES = 8  # from a load to the next one, each of which is in a register


@functools.lru_cache(1024)
def code_of(
    product: MultiplyAdd, steps: tuple[Accumulation, ...], right_step: int | None, once: bool
) -> LoopCode | None:
    """Returns the loop of these steps; None where registers do not suffice.

    Args:
        right_step: bytes that the right elements are further in the next iteration, if that is known.
        once: whether there is one iteration.
    """
    sums = sorted({step.sum for step in steps})
    target = {number: REGISTERS - 1 - position for position, number in enumerate(sums)}
    needs = [(_rows(step), _Vector(_RIGHT, "ld1", 0, step.right)) for step in steps]
    registers = _Registers(REGISTERS - len(sums))
    lines = _lines(product, [target[step.sum] for step in steps], needs, registers)
    if lines is None:
        return None
    positions = [
        [line.loads[0].position for line in lines if line.loads[:1] and line.loads[0].pointer == p] for p in (0, 1)
    ]
    moved = tuple(each[-1] - each[0] for each in positions)
    after = [None, None if right_step is None else right_step - moved[_RIGHT]]
    distances = [
        [*(b - a for a, b in pairwise(each)), 0 if once else last] for each, last in zip(positions, after, strict=True)
    ]
    texts, constants = _texts(ahead(lines), distances)
    if len(constants) > _MAX_DISTANCES:
        return None
    count = len(lines) + (0 if once else _LOOP)
    body = LoopBody(tuple(texts), moved, (False, False), len(texts), count, tuple(lines))
    left, right = ([[each[0] // product.element]] for each in positions)
    return function_of(product, sums, target, body, (left, right), registers.used, once, constants=constants)


def _texts(lines: Sequence[Line], distances: Sequence[list[int | None]]) -> tuple[list[str], list[int]]:
    """Returns the instructions, each load moving its pointer on, and the distances that are in registers.

    Args:
        distances: of the loads through each pointer, from where one begins to where the next one does; None where that
            is known at run time.
    """
    texts, constants = [], dict[int, int]()
    left = [iter(each) for each in distances]
    for line in lines:
        by = ""
        if line.loads:
            pointer, size = line.loads[0].pointer, sum(vector.size for vector in line.loads)
            distance = next(left[pointer])
            if distance is None:
                by = f", {{d{pointer}}}"
            elif distance == size:
                by = f", #{size}"
            elif distance:
                by = f", {{c{constants.setdefault(distance, len(constants))}}}"
        texts.append(line.text + by)
    return texts, [*constants]


@dataclass(frozen=True)
class _Vector:
    """Pairs of rows, or of columns, in one register.

    Attributes:
        pointer: to what it is loaded from.
        load: the instruction, see `LOADS`.
        register: of those that it loads.
        begin: the element that the instruction begins with.
    """

    pointer: int
    load: str
    register: int
    begin: int


def _rows(step: Accumulation) -> _Vector:
    """Returns the pair of rows that is multiplied."""
    load, register = step.form or ("ld1", 0)
    return _Vector(_LEFT, load, register, step.left)


@dataclass
class _Registers:
    """The contents of registers during emission.

    Attributes:
        free: how many there are besides those of sums.
        uses: when each vector is needed, the next time last.
        holds: the vector in each.
        used: so many are, from the first on.
    """

    free: int
    uses: dict[_Vector, list[int]] = field(default_factory=dict)
    holds: dict[int, _Vector] = field(default_factory=dict)
    used: int = 0

    def of(self, vector: _Vector) -> int | None:
        """Returns the register that holds a vector; None if none does."""
        return next((number for number, held in self.holds.items() if held == vector), None)

    def take(self, vectors: Sequence[_Vector], after: float) -> bool:
        """Assigns consecutive registers to vectors: those whose contents are needed latest, and later than `after`."""
        runs = [range(first, first + len(vectors)) for first in range(self.free - len(vectors) + 1)]
        run = max(runs, key=self._needed, default=None)
        if run is None or self._needed(run) <= after:
            return False
        self.holds |= dict(zip(run, vectors, strict=True))
        self.used = max(self.used, run.stop)
        return True

    def _needed(self, run: range) -> float:
        """Returns when the contents of registers are needed next, infinity for never."""
        held = (self.uses[self.holds[number]] for number in run if number in self.holds)
        return min((uses[-1] for uses in held if uses), default=math.inf)


def _lines(
    product: MultiplyAdd, sums: Sequence[int], needs: Sequence[tuple[_Vector, _Vector]], registers: _Registers
) -> list[Line] | None:
    """Returns products and loads in order, each load before its first use; None where registers do not suffice.

    Args:
        sums: the register of each product's sum.
        needs: the vectors that are multiplied.
    """
    for number in reversed(range(len(needs))):
        for vector in needs[number]:
            registers.uses.setdefault(vector, []).append(number)
    made: list[Line] = []
    for number, (total, both) in enumerate(zip(sums, needs, strict=True)):
        for vector in both:
            if registers.of(vector) is None:
                line = _load(vector, registers, product.element, number)
                if line is None:
                    return None
                made.append(line)
        left, right = (registers.of(vector) for vector in both)
        assert left is not None and right is not None
        made.append(Line(product.text.format(total, left, right), (), (left, right)))
        for vector in both:
            registers.uses[vector].pop()
    return made


def _load(vector: _Vector, registers: _Registers, element: int, now: int) -> Line | None:
    """Loads a vector, with the others that the same instruction loads; None if there are too few registers.

    Args:
        now: the number of the product that needs it.
    """
    pointer, load, begin = vector.pointer, vector.load, vector.begin
    several = [_Vector(pointer, load, number, begin) for number in range(LOADS[load].registers)]
    if load == "ld1":
        several = list(_following(vector, registers, QUAD_BYTES // element))
    for each in several:
        registers.uses.setdefault(each, [])
    while not registers.take(several, _END if len(several) > LOADS[load].registers else now):
        if len(several) == LOADS[load].registers:
            return None
        several.pop()
    taken = [number for each in several if (number := registers.of(each)) is not None]
    into = ", ".join(f"v{number}.2d" for number in taken)
    size = QUAD_BYTES // 2 if load.endswith("r") else QUAD_BYTES
    loads = tuple(Loaded(pointer, begin * element + n * size, size) for n in range(len(taken)))
    return Line(f"{load} {{{{{into}}}}}, [{{p{pointer}}}]", tuple(taken), loads=loads)


def _following(vector: _Vector, registers: _Registers, elements: int) -> Iterator[_Vector]:
    """Yields a vector and the following ones in memory that are needed too."""
    for number in range(MAX_LOADED):
        after = _Vector(vector.pointer, vector.load, 0, vector.begin + number * elements)
        if not registers.uses.get(after) or registers.of(after) is not None:
            return
        yield after
