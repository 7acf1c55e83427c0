"""Schedules loads between products for cores that issue in order.

Such a core waits where an instruction needs what a load has not brought yet, and some wait, too, where the result of a
load would come before that of a product in front of it. What is needed next is therefore loaded into registers as soon
as they are free: several loads one behind the other, or one after every few products.

    ldp   q16, q17, [x1]                # what the first products need, and the next ones
    ldr   q15, [x0]
    ldp   q13, q14, [x1, #32]
    …
    fmla  v31.4s, v16.4s, v15.s[0]
    …                                   # as long as all is at hand

Pointers are advanced once per iteration, right after the last load: on some cores, a load that moves its pointer waits
for the products in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import QUAD_BYTES, MultiplyAdd
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import MAX_LOADED, Line, Loaded
from nnefc.targets.machine.cpu.costs import InOrder

__all__ = ["WAYS", "Upcoming", "Way", "cycles_of"]

_NEAR = 8  # vectors that are needed soon after another one
_ALL = 64


@dataclass(frozen=True)
class Way:
    """A strategy for placing loads.

    Attributes:
        at_need: loads at once, where something is missing.
        apart: products from a load to the next one, for each vector of it; 0 if all loads are at such positions.
        spare: registers that stay free where a vector is loaded, with its neighbour, that is not needed soon.
        together: right vectors that one instruction loads.
    """

    at_need: int
    apart: int
    spare: int
    together: int


WAYS = (
    *(Way(_ALL, 0, spare, 2) for spare in (0, 6, _ALL)),
    *(
        Way(at_need, apart, spare, together)
        for at_need, apart in ((4, 1), (6, 2), (6, 3))
        for spare in (0, _ALL)
        for together in (2, MAX_LOADED)
    ),
)
"""The strategies that are tried."""


class Upcoming:
    """The vectors that are still to be loaded, in the order in which products need them.

    Args:
        needs: the left vector of each product, and the right one.
    """

    def __init__(self, needs: Sequence[tuple[Loaded, Loaded]]) -> None:
        self._rights = {right.pointer for _, right in needs}
        self._all = [vector for left, right in needs for vector in (right, left)]
        self._next = 0

    def after(self, held: dict[Loaded, int], product: int) -> list[Loaded]:
        """Returns the next vectors, from a product on."""
        self._next = max(self._next, 2 * product)
        while self._next < len(self._all) and self._all[self._next] in held:
            self._next += 1
        return self._all[self._next : self._next + _NEAR]

    def behind(self, vector: Loaded, way: Way) -> list[Loaded]:
        """Returns the following elements in memory that the same instruction may load."""
        maximum = way.together if vector.pointer in self._rights else 2
        count = maximum if vector.size == QUAD_BYTES else 1
        return [Loaded(vector.pointer, vector.position + number * QUAD_BYTES, QUAD_BYTES) for number in range(1, count)]


def cycles_of(product: MultiplyAdd, lines: Sequence[Line], moved: Sequence[int], core: InOrder) -> int:
    """Estimates the cycles of an iteration by the core's issue rules.

    Args:
        moved: bytes that loads move each pointer on, or 0.
    """
    latency, in_a_cycle, ordered = core.floats if product.floating else core.integers
    ready: dict[int, int] = {}
    now, issued, loading, multiplied, written = 0, 0, 0, 0, 0
    for line in lines:
        begin = max([now, *(ready.get(register, 0) for register in line.reads)])
        parts, first = 1, latency
        if line.loads:
            moves = bool(moved[line.loads[0].pointer])
            last, busy = core.loads[len(line.loads).bit_length() - 1]
            parts, first = (2 if len(line.loads) == 2 else 1) + moves, 1 if moves else last
            begin = max(begin, loading, written - first)
        else:
            last = latency
            begin = max(begin, multiplied, written - first if ordered else 0)
        if begin == now and issued and issued + parts > core.width:
            begin += 1
        now, issued = begin, parts + (issued if begin == now else 0)
        if line.loads:
            loading = now + busy
        elif in_a_cycle < core.width:
            multiplied = now + 1
        if line.loads or ordered:
            written = max(written, now + last)
        ready |= dict.fromkeys(line.writes, now + last)
    return now + 1
