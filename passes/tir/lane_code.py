"""Assembler of 64-bit Arm that adds products of vectors by lanes of others to sums in registers.

Given is what a loop adds in a round: to which sum, which item of the left operand, which vector of the right one. From
this follow the vectors that hold the left items, an order of the products in which what is loaded stays in registers
until it is no longer needed, and loads of two neighbours by one instruction. LLVM knows all of this too, but keeps
other things in mind: of 26 sums and 6 vectors it stores some on the stack.

    sums of a tile of 7 × 2 vectors of float32, 8 products each in a round:

    1:  ld1   {v0.16b, … v3.16b}, [x1], #64    # four vectors of B
        ld1   {v4.16b, … v7.16b}, [x0], #64    # eight numbers of each of two rows of A
        fmla  v31.4s, v0.4s, v4.s[0]
        fmla  v30.4s, v1.4s, v4.s[0]
        …                                      # 112 products in all, 8 loads
        add   x0, x0, x3
        subs  x2, x2, #1
        b.ne  1b

Vectors of SVE, of a length that is known, are multiplied by lanes too: those of each 128 bits by a lane of the same 128
bits of the other vector, into all of which the left items are loaded (`ld1rqw`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nnefc.passes.tir.lane_loops import (
    MOST_LOADED,
    POINTERS,
    Code,
    Line,
    Loaded,
    Step,
    body_of,
    covering,
    function_of,
    pointers_of,
)
from nnefc.passes.tir.lane_products import QUAD_BYTES, REGISTERS, Product

__all__ = ["code_of"]

_ROWS_AT_ONCE = (2, 3, 4)  # whose products are made one after the other, where not all rows are at hand
_SUMS_IN_TURN = 4


@functools.lru_cache(1024)
def code_of(
    product: Product, steps: tuple[Step, ...], right_step: int | None, once: bool, together: int = 2
) -> Code | None:
    """The loop of these steps, the right items of which begin at 0; None where registers or addresses do not suffice.

    Args:
        right_step: bytes that the right items are further in the next round, if that is known.
        once: whether there is one round.
        together: vectors that one instruction shall load, 2 or 4; of SVE it loads one.
    """
    sums = sorted({step.sum for step in steps})
    free = REGISTERS - len(sums)
    lefts, rights = (
        pointers_of(sorted(items), product, side)
        for side, items in enumerate(zip(*((step.left, step.right) for step in steps), strict=True))
    )
    if free < 2 or len(lefts) + len(rights) > POINTERS:
        return None
    items = {item: (vector, lane) for vector, lane, item in covering(lefts, product)}
    vectors = {
        item: Loaded(len(lefts) + n, (item - group[0]) * product.item, product.size)
        for n, group in enumerate(rights)
        for item in group
    }
    register = {number: REGISTERS - 1 - place for place, number in enumerate(sums)}
    plans = []
    for order in _orders(steps):
        for of_left, of_right in itertools.product([1] if product.scale else sorted({2, together}), repeat=2):
            needs = [(items[step.left][0], vectors[step.right]) for step in order]
            lanes = [items[step.left][1] for step in order]
            targets = [register[step.sum] for step in order]
            registers = _Registers(free, len(lefts) if product.low < REGISTERS else 0, product.low)
            lines = _lines(product, targets, needs, lanes, registers, (of_left, of_right))
            body = None if lines is None else body_of(product, lines, len(lefts), len(rights), right_step, once)
            if body is not None:
                plans.append(body)
    if not plans:
        return None
    body = min(plans, key=lambda body: body.instructions)
    return function_of(product, sums, register, body, (lefts, rights), free, once)


def _orders(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Orders that the products may be made in: term after term, or all terms of a few rows first."""
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
            group = {row: place // count for place, row in enumerate(rows)}
            order = sorted(range(len(steps)), key=lambda n: (group[first[steps[n].sum]], terms[n], n))
            yield [steps[n] for n in order]


@dataclass
class _Registers:
    """What registers hold, while instructions are written.

    Attributes:
        free: how many there are besides those of sums.
        in_low: what the first so many pointers point to has to be in some of the first `low`.
        uses: when each vector is needed, the next time last.
        holds: the vector in each.
        place: of the vectors that are in one.
    """

    free: int
    in_low: int
    low: int
    uses: dict[Loaded, list[int]] = field(default_factory=dict)
    holds: dict[int, Loaded] = field(default_factory=dict)
    place: dict[Loaded, int] = field(default_factory=dict)

    def of(self, vector: Loaded) -> int | None:
        return self.place.get(vector)

    def take(self, loaded: Mapping[int, Loaded]) -> None:
        """Registers get new contents."""
        for number, vector in loaded.items():
            if number in self.holds:
                del self.place[self.holds[number]]
            self.holds[number], self.place[vector] = vector, number

    def _fit(self, vector: Loaded) -> range:
        return range(min(self.free, self.low) if vector.pointer < self.in_low else self.free)

    def without_use(self, vector: Loaded) -> list[int]:
        """Registers for a vector whose content nobody needs; for those that may be in any, the last ones first."""
        idle = [n for n in self._fit(vector) if n not in self.holds or not self.uses[self.holds[n]]]
        return idle[::-1] if vector.pointer >= self.in_low > 0 else idle

    def least_urgent(self, vector: Loaded, kept: set[Loaded]) -> int | None:
        """The register for a vector whose content is needed last."""
        others = [n for n in self._fit(vector) if n in self.holds and self.holds[n] not in kept]
        return max(others, key=lambda n: self.uses[self.holds[n]][-1], default=None)


def _lines(
    product: Product,
    sums: Sequence[int],
    needs: Sequence[tuple[Loaded, Loaded]],
    lanes: Sequence[int],
    registers: _Registers,
    most: tuple[int, int],
) -> list[Line] | None:
    """Products, and loads, each where what it loads is needed first.

    Args:
        sums: the register of each product's sum.
        needs: the vectors that hold its left item and its right ones.
        lanes: of the left item.
        most: left and right vectors that one instruction loads.
    """
    for place in reversed(range(len(needs))):
        for vector in needs[place]:
            registers.uses.setdefault(vector, []).append(place)
    made: list[Line] = []
    for total, both, lane in zip(sums, needs, lanes, strict=True):
        for vector, count in zip(both[::-1], most[::-1], strict=True):
            if registers.of(vector) is None and not _load(vector, registers, made, set(both), count):
                return None
        for vector in both:
            registers.uses[vector].pop()
        left, right = (registers.of(vector) for vector in both)
        assert left is not None and right is not None
        made.append(Line(product.text.format(total, right, left, lane), (), (left, right)))
    return made


def _load(vector: Loaded, registers: _Registers, made: list[Line], kept: set[Loaded], most: int) -> bool:
    """Load a vector, with those after it that are needed too as far as there is room."""
    idle = registers.without_use(vector)
    following = [vector]
    while vector.size == QUAD_BYTES and len(following) < most:
        after = Loaded(vector.pointer, following[-1].place + QUAD_BYTES, QUAD_BYTES)
        if not registers.uses.get(after) or registers.of(after) is not None:
            break
        following.append(after)
    loaded: dict[int, Loaded] = {}
    if len(following) == MOST_LOADED:
        free = sorted(idle)
        runs = (free[n : n + MOST_LOADED] for n in range(len(free) - MOST_LOADED + 1))
        loaded = next(
            (dict(zip(run, following, strict=True)) for run in runs if run[-1] - run[0] == MOST_LOADED - 1), {}
        )
    if not loaded and idle:
        loaded = dict(zip(idle[:2], following, strict=False))
    if not loaded:
        taken = registers.least_urgent(vector, kept)
        if taken is None:
            return False
        loaded = {taken: vector}
    registers.take(loaded)
    made.append(Line("", tuple(loaded), loads=tuple(loaded.values())))
    return True
