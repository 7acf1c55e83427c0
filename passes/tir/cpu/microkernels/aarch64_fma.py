"""Emits AArch64 assembly that multiplies vectors by lanes and adds the products to accumulators in registers.

The input is the list of products of one iteration: accumulator, left element, right vector.
From this follow the vectors that hold the left elements, an order of the products in which what is loaded stays in
registers until it is no longer needed, and loads of two neighbours by one instruction. LLVM knows all of this too, but
keeps other things in mind: of 26 sums and 6 vectors it stores some on the stack.

    sums of a tile of 7 × 2 vectors of float32, 8 products each per iteration:

    1:  ld1   {v0.16b, … v3.16b}, [x1], #64    # four vectors of B
        ld1   {v4.16b, … v7.16b}, [x0], #64    # eight numbers of each of two rows of A
        fmla  v31.4s, v0.4s, v4.s[0]
        fmla  v30.4s, v1.4s, v4.s[0]
        …                                      # 112 products in all, 8 loads
        add   x0, x0, x3
        subs  x2, x2, #1
        b.ne  1b

Vectors of SVE, of a length that is known, are multiplied by lanes too: those of each 128 bits by a lane of the same 128
bits of the other vector, into all of which the left elements are loaded (`ld1rqw`).

For cores that issue instructions in order, loads are placed in several ways, of which that is taken that costs the
fewest cycles with hardly more instructions (`passes/tir/cpu/microkernels/in_order_scheduler.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import QUAD_BYTES, REGISTERS, MultiplyAdd
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import (
    MAX_LOADED,
    POINTERS,
    Accumulation,
    Line,
    Loaded,
    LoopBody,
    LoopCode,
    body_of,
    covering,
    function_of,
    pointers_of,
)
from nnefc.passes.tir.cpu.microkernels.in_order_scheduler import WAYS, Upcoming, Way, cycles_of
from nnefc.targets.machine.cpu.costs import InOrder

__all__ = ["code_of"]

_ROWS_AT_ONCE = (2, 3, 4)  # whose products are made one after the other, where not all rows are at hand
_SUMS_IN_TURN = 4
_MAX_INSTRUCTIONS = 1.03  # for cores that are in order, of the fewest


@functools.lru_cache(1024)
def code_of(
    product: MultiplyAdd,
    steps: tuple[Accumulation, ...],
    right_step: int | None,
    once: bool,
    together: int = 2,
    core: InOrder | None = None,
) -> LoopCode | None:
    """Returns the loop of these steps, whose right elements begin at 0; None where registers or addresses do not
    suffice.

    Args:
        right_step: bytes that the right elements are further in the next iteration, if that is known.
        once: whether there is one iteration.
        together: vectors that one instruction shall load, 2 or 4; of SVE it loads one.
        core: that it is for, if that issues instructions in order.
    """
    sums = sorted({step.sum for step in steps})
    free = REGISTERS - len(sums)
    lefts, rights = (
        pointers_of(sorted(elements), product, side)
        for side, elements in enumerate(zip(*((step.left, step.right) for step in steps), strict=True))
    )
    if free < 2 or len(lefts) + len(rights) > POINTERS:
        return None
    elements = {element: (vector, lane) for vector, lane, element in covering(lefts, product)}
    vectors = {
        element: Loaded(len(lefts) + n, (element - group[0]) * product.element, product.size)
        for n, group in enumerate(rights)
        for element in group
    }
    register = {number: REGISTERS - 1 - position for position, number in enumerate(sums)}

    def plan(order: Sequence[Accumulation], ways: tuple[int, int] | Way) -> LoopBody | None:
        needs = [(elements[step.left][0], vectors[step.right]) for step in order]
        lanes = [elements[step.left][1] for step in order]
        targets = [register[step.sum] for step in order]
        registers = _Registers(free, len(lefts) if product.low < REGISTERS else 0, product.low)
        lines = _lines(product, targets, needs, lanes, registers, ways)
        placed = isinstance(ways, Way)
        return None if lines is None else body_of(product, lines, len(lefts), len(rights), right_step, once, placed)

    several = [1] if product.scale else sorted({2, together})
    counts = list(itertools.product(several, several))
    plans = [(body, order) for order, ways in itertools.product(_orders(steps), counts) if (body := plan(order, ways))]
    if not plans:
        return None
    body, order = min(plans, key=lambda found: found[0].instructions)
    if core is not None and not product.scale:
        maximum = body.instructions * _MAX_INSTRUCTIONS
        placed = [body, *(plan(order, way) for way in WAYS)]
        body = min(
            (found for found in placed if found is not None and found.instructions <= maximum),
            key=lambda found: (cycles_of(product, found.lines, found.moved, core), found.instructions),
        )
    return function_of(product, sums, register, body, (lefts, rights), free, once)


def _orders(steps: Sequence[Accumulation]) -> Iterator[list[Accumulation]]:
    """Returns the orders in which the products can be computed: term after term, or all terms of a few rows first."""
    yield list(steps)
    first: dict[int, int] = {}
    number: dict[int, int] = {}
    terms = []
    for step in steps:
        first[step.sum] = min(step.left, first.get(step.sum, step.left))
        terms.append(number.get(step.sum, 0))
        number[step.sum] = terms[-1] + 1
    rows = sorted(set(first.values()))
    for count in _ROWS_AT_ONCE:  # as many sums in turn as products take cycles
        if count < len(rows) and count * len(first) >= _SUMS_IN_TURN * len(rows):
            group = {row: position // count for position, row in enumerate(rows)}
            order = sorted(range(len(steps)), key=lambda n: (group[first[steps[n].sum]], terms[n], n))
            yield [steps[n] for n in order]


@dataclass
class _Registers:
    """The contents of registers during emission.

    Attributes:
        free: how many there are besides those of sums.
        in_low: what the first so many pointers point to has to be in some of the first `low`.
        uses: when each vector is needed, the next time last.
        holds: the vector in each.
        position: of the vectors that are in one.
    """

    free: int
    in_low: int
    low: int
    uses: dict[Loaded, list[int]] = field(default_factory=dict)
    holds: dict[int, Loaded] = field(default_factory=dict)
    position: dict[Loaded, int] = field(default_factory=dict)

    def of(self, vector: Loaded) -> int | None:
        return self.position.get(vector)

    def take(self, loaded: Mapping[int, Loaded]) -> None:
        """Assigns new contents to registers."""
        for number, vector in loaded.items():
            if number in self.holds:
                del self.position[self.holds[number]]
            self.holds[number], self.position[vector] = vector, number

    def _fit(self, vector: Loaded) -> range:
        return range(min(self.free, self.low) if vector.pointer < self.in_low else self.free)

    def without_use(self, vector: Loaded) -> list[int]:
        """Returns registers whose content is dead; for vectors that may be in any register, the last ones first."""
        idle = [n for n in self._fit(vector) if n not in self.holds or not self.uses[self.holds[n]]]
        return idle[::-1] if vector.pointer >= self.in_low > 0 else idle

    def last_needed(self, vector: Loaded, kept: set[Loaded]) -> int | None:
        """Returns the register, usable for this vector, whose content is needed last."""
        others = [n for n in self._fit(vector) if n in self.holds and self.holds[n] not in kept]
        return max(others, key=lambda n: self.uses[self.holds[n]][-1], default=None)


def _lines(
    product: MultiplyAdd,
    sums: Sequence[int],
    needs: Sequence[tuple[Loaded, Loaded]],
    lanes: Sequence[int],
    registers: _Registers,
    ways: tuple[int, int] | Way,
) -> list[Line] | None:
    """Returns products and loads in order, each load before its first use or placed by a strategy.

    Args:
        sums: the register of each product's sum.
        needs: the vectors that hold its left element and its right ones.
        lanes: of the left element.
        ways: left and right vectors that one instruction loads; or how loads are placed.
    """
    for position in reversed(range(len(needs))):
        for vector in needs[position]:
            registers.uses.setdefault(vector, []).append(position)
    made: list[Line] = []
    upcoming, wait = Upcoming(needs), 0
    for number, (total, both, lane) in enumerate(zip(sums, needs, lanes, strict=True)):
        if isinstance(ways, Way):
            maximum = (2, 2)
            missing = any(registers.of(vector) is None for vector in both)
            if missing or (ways.apart and wait <= 0):
                loaded = [
                    count
                    for _ in range(ways.at_need if missing else 1)
                    if (count := _load_next(upcoming, number, registers, made, ways))
                ]
                wait = ways.apart * sum(loaded)
            wait -= 1
        else:
            maximum = ways
        for vector, count in zip(both[::-1], maximum[::-1], strict=True):
            if registers.of(vector) is None and not _load(vector, registers, made, set(both), count):
                return None
        for vector in both:
            registers.uses[vector].pop()
        left, right = (registers.of(vector) for vector in both)
        assert left is not None and right is not None
        made.append(Line(product.text.format(total, right, left, lane), (), (left, right)))
    return made


def _load(vector: Loaded, registers: _Registers, made: list[Line], kept: set[Loaded], maximum: int) -> bool:
    """Loads a vector, together with the following ones that are needed too, as far as registers are free."""
    idle = registers.without_use(vector)
    following = [vector]
    while vector.size == QUAD_BYTES and len(following) < maximum:
        after = Loaded(vector.pointer, following[-1].position + QUAD_BYTES, QUAD_BYTES)
        if not registers.uses.get(after) or registers.of(after) is not None:
            break
        following.append(after)
    loaded: dict[int, Loaded] = {}
    if len(following) == MAX_LOADED:
        loaded = dict(zip(_in_a_row(idle), following, strict=False))
    if not loaded and idle:
        loaded = dict(zip(idle[:2], following, strict=False))
    if not loaded:
        taken = registers.last_needed(vector, kept)
        if taken is None:
            return False
        loaded = {taken: vector}
    registers.take(loaded)
    made.append(Line("", tuple(loaded), loads=tuple(loaded.values())))
    return True


def _in_a_row(idle: Sequence[int]) -> list[int]:
    """Returns consecutive registers, as many as one instruction loads at most; none if there are none."""
    free = sorted(idle)
    runs = (free[n : n + MAX_LOADED] for n in range(len(free) - MAX_LOADED + 1))
    return next((run for run in runs if run[-1] - run[0] == MAX_LOADED - 1), [])


def _load_next(upcoming: Upcoming, product: int, registers: _Registers, made: list[Line], way: Way) -> int:
    """Loads the next vector that is needed and in no register, if there is room; returns the number of vectors
    loaded.
    """
    soon = upcoming.after(registers.position, product)
    if not soon:
        return 0
    vector, idle = soon[0], registers.without_use(soon[0])
    following = [vector]
    for after in upcoming.behind(vector, way):
        if not registers.uses.get(after) or registers.of(after) is not None:
            break
        following.append(after)
    if len(following) == MAX_LOADED:
        taken = _in_a_row(idle)
    else:
        following = following[:2]
        taken = idle[: len(following)]
        if len(following) > 1 and following[1] not in soon and len(idle) - 2 < way.spare:
            taken = taken[:1]
        elif len(taken) < len(following):
            return 0
    if not taken:
        return 0
    loaded = dict(zip(taken, following, strict=False))
    registers.take(loaded)
    made.append(Line("", tuple(loaded), loads=tuple(loaded.values())))
    return len(loaded)
