"""Emits AArch64 assembly for int8 contractions without dot-product instructions: products in int16 (`smull`).

A word of four bytes of the left operand, for four neighbouring terms, is put into all lanes of a register and
multiplied with a vector of the right one, the same terms of four sums. Its products of 16 bits are first added to those
of the next word, which they have room for if no weight is -128, and then in pairs to two vectors of 32 bits. These are
joined behind the loop:

    dup     v12.4s, v8.s[0]             # the word
    dup     v13.4s, v8.s[1]             # the next one
    smull   v14.8h, v12.8b, v0.8b       # of the first two sums
    smull2  v15.8h, v12.16b, v0.16b     # of the other two
    smlal   v14.8h, v13.8b, v4.8b
    smlal2  v15.8h, v13.16b, v4.16b
    sadalp  v31.4s, v14.8h
    sadalp  v23.4s, v15.8h
    …
    addp    v31.4s, v31.4s, v23.4s      # behind the loop

LLVM would keep these products, but not so many of the vectors: it stores sums on the stack. For cores that issue
instructions in order, products of several sums stand between those of one, if that costs fewer cycles
(`passes/tir/cpu/microkernels/aarch64_smull_scheduler.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nnefc.passes.tir.cpu.microkernels import aarch64_smull_scheduler as pair_order
from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import QUAD_BYTES, REGISTERS, MultiplyAdd
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import (
    MAX_LOADED,
    POINTERS,
    Accumulation,
    Line,
    Loaded,
    LoopCode,
    body_of,
    covering,
    function_of,
    pointers_of,
)
from nnefc.passes.tir.cpu.microkernels.aarch64_smull_scheduler import Chain
from nnefc.passes.tir.cpu.microkernels.in_order_scheduler import cycles_of
from nnefc.targets.machine.cpu.costs import InOrder

__all__ = ["Pair", "code_of", "parts_of"]

_WORDS = 2  # registers of words in all lanes
_PRODUCTS = 4  # registers of products on their way
_MORE = 1.1  # times as many instructions at most, where they take fewer cycles

Pair = tuple[Accumulation, ...]
"""Two steps of one sum, or its last step alone."""


@functools.lru_cache(1024)
def code_of(
    product: MultiplyAdd,
    steps: tuple[Accumulation, ...],
    right_step: int | None,
    once: bool,
    core: InOrder | None = None,
) -> LoopCode | None:
    """Returns the loop of these steps; see :func:`.aarch64_fma.code_of`. None where registers or addresses do not
    suffice.
    """
    sums = sorted({step.sum for step in steps})
    lefts, rights = (
        pointers_of(sorted(elements), product, side)
        for side, elements in enumerate(zip(*((step.left, step.right) for step in steps), strict=True))
    )
    parts = list(parts_of(steps))
    maximum = max(len({step.right for pair in part for step in pair}) for part in parts)
    free = REGISTERS - 2 * len(sums) - maximum - _WORDS - _PRODUCTS
    if free < 1 or len(lefts) + len(rights) > POINTERS:
        return None
    elements = {element: (vector, lane) for vector, lane, element in covering(lefts, product)}
    vectors = {
        element: Loaded(len(lefts) + n, (element - group[0]) * product.element, QUAD_BYTES)
        for n, group in enumerate(rights)
        for element in group
    }
    low = {number: REGISTERS - 1 - position for position, number in enumerate(sums)}
    high = {number: register - len(sums) for number, register in low.items()}
    made = []
    for together in (MAX_LOADED, 2):
        left = _LeftElements(
            range(maximum, maximum + free),
            [elements[step.left][0] for part in parts for row in _rows(part) for step in row[0]],
        )
        begun: set[int] = set() if once else {*low.values(), *high.values()}
        lines: list[Line] = []
        for part in parts:
            held = _loaded(sorted({step.right for pair in part for step in pair}), vectors, together, lines)
            for row in _rows(part):
                for register, step in enumerate(row[0], maximum + free):
                    vector, lane = elements[step.left]
                    source = left.register(vector, lines)
                    lines.append(Line(f"dup v{register}.4s, v{source}.s[{lane}]", (register,), (source,)))
                lines += _products(product, row, held, (low, high), maximum + free, begun)
        body = body_of(product, lines, len(lefts), len(rights), right_step, once)
        made += [] if body is None else [body]
    if not made:
        return None
    body, cycles = min(made, key=lambda body: body.instructions), 0
    if core is not None:
        free = REGISTERS - 2 * len(sums)
        for lines in _in_turn(product, parts, elements, vectors, (low, high), free, once):
            placed = body_of(product, lines, len(lefts), len(rights), right_step, once, True)
            made += [] if placed is None else [placed]
        few = [each for each in made if each.instructions <= _MORE * body.instructions]
        taken = [cycles_of(product, each.lines, each.moved, core) for each in few]
        cycles, body = min(zip(taken, few, strict=True), key=lambda both: (both[0], both[1].instructions))
    before = [] if once else [f"movi v{register}.2d, #0" for side in (low, high) for register in side.values()]
    after = [f"addp v{low[n]}.4s, v{low[n]}.4s, v{high[n]}.4s" for n in sums]
    code = function_of(product, sums, low, body, (lefts, rights), REGISTERS - len(sums), once, (before, after))
    return replace(code, cycles=cycles)


def parts_of(steps: Sequence[Accumulation]) -> Iterator[list[Pair]]:
    """Groups the steps into parts: two steps of each sum, then the next two, and so on; sums with the same left
    elements follow each other.
    """
    of_sum: dict[int, list[Accumulation]] = {}
    for step in steps:
        of_sum.setdefault(step.sum, []).append(step)
    for begin in range(0, max(map(len, of_sum.values())), 2):
        pairs = [tuple(own[begin : begin + 2]) for own in of_sum.values() if own[begin:]]
        yield sorted(pairs, key=lambda pair: [step.left for step in pair])


def _rows(part: Sequence[Pair]) -> list[list[Pair]]:
    """Returns the products of a part that have the same left elements."""
    return [list(row) for _, row in itertools.groupby(part, lambda pair: [step.left for step in pair])]


def _in_turn(
    product: MultiplyAdd,
    parts: Sequence[Sequence[Pair]],
    elements: Mapping[int, tuple[Loaded, int]],
    vectors: Mapping[int, Loaded],
    sums: tuple[Mapping[int, int], Mapping[int, int]],
    free: int,
    once: bool,
) -> Iterator[list[Line]]:
    """Returns instructions in orders for in-order cores.

    Args:
        elements, vectors: where left elements are, and right ones.
        sums: the registers of the lower and the upper two elements of each sum.
        free: the other ones.
    """
    words: list[tuple[Loaded, int]] = []
    rights: list[list[Loaded]] = []
    chains: list[Chain] = []
    for part in parts:
        needed = sorted({step.right for pair in part for step in pair})
        number = {element: position for position, element in enumerate(needed, sum(map(len, rights)))}
        rights.append([vectors[element] for element in needed])
        for row in _rows(part):
            begin = len(words)
            words += [elements[step.left] for step in row[0]]
            for pair in row:
                terms = [(begin + n, number[step.right]) for n, step in enumerate(pair)]
                for together in [terms] if product.joined else [[term] for term in terms]:
                    both = zip(*together, strict=True)
                    first, second = map(tuple, both)
                    chains += [Chain(total[pair[0].sum], half, first, second) for half, total in enumerate(sums)]
    for registers in pair_order.choices(free, max(map(len, rights)), len({vector for vector, _ in words})):
        begun: set[int] = set() if once else {register for total in sums for register in total.values()}
        lines = pair_order.in_turn(product, chains, words, rights, registers, begun)
        if lines is not None:
            yield lines


def _loaded(elements: Sequence[int], vectors: Mapping[int, Loaded], together: int, lines: list[Line]) -> dict[int, int]:
    """Returns the registers of right elements, from 0 on, into which neighbours are loaded by one instruction."""
    begin = 0
    while begin < len(elements):
        first, count = vectors[elements[begin]], 1
        following = [Loaded(first.pointer, first.position + n * QUAD_BYTES, QUAD_BYTES) for n in range(together)]
        while (
            count < together
            and [vectors[element] for element in elements[begin : begin + 2 * count]] == following[: 2 * count]
        ):
            count *= 2
        lines.append(Line("", tuple(range(begin, begin + count)), loads=tuple(following[:count])))
        begin += count
    return {element: register for register, element in enumerate(elements)}


def _products(
    product: MultiplyAdd,
    row: Sequence[Pair],
    held: Mapping[int, int],
    sums: tuple[Mapping[int, int], Mapping[int, int]],
    words: int,
    begun: set[int],
) -> Iterator[Line]:
    """Returns the products of two words, in the registers from `words` on, and their additions to sums.

    Args:
        held: the registers of right elements.
        sums: of the lower and the upper two elements of each sum.
        begun: registers of sums that something was added to; where nothing was, they are made of the products.
    """
    first, in_turn = words + _WORDS, _PRODUCTS // 2 if product.joined else 1
    for begin in range(0, len(row), in_turn):
        multiply: list[list[Line]] = [[], []]
        add: list[Line] = []
        for position, pair in enumerate(row[begin : begin + in_turn]):
            for number, step in enumerate(pair):
                joined = product.joined and number > 0
                made = first + 2 * (position if product.joined else number)
                for half, registers in enumerate(sums):
                    factors = (words + number, held[step.right])
                    multiply[joined].append(pair_order.multiplied(product, half, joined, made + half, factors))
                    total = registers[step.sum]
                    if not joined:
                        add.append(pair_order.added(product, total, made + half, total in begun))
                        begun.add(total)
        yield from (*multiply[0], *multiply[1], *add)


class _LeftElements:
    """The registers that hold vectors of left elements.

    Args:
        needs: the vectors in the order in which they are asked for.
    """

    def __init__(self, registers: Sequence[int], needs: Sequence[Loaded]) -> None:
        self._registers = registers
        self._holds: dict[int, Loaded] = {}
        self._uses: dict[Loaded, list[int]] = {}
        for position in reversed(range(len(needs))):
            self._uses.setdefault(needs[position], []).append(position)

    def register(self, vector: Loaded, lines: list[Line]) -> int:
        """Returns the register that holds a vector; loads it first, with its neighbour, if none does."""
        self._uses[vector].pop()
        own = next((register for register, held in self._holds.items() if held == vector), None)
        if own is not None:
            return own
        idle = [n for n in self._registers if n not in self._holds or not self._uses[self._holds[n]]]
        after = Loaded(vector.pointer, vector.position + QUAD_BYTES, QUAD_BYTES)
        vectors = [vector]
        if vector.size == QUAD_BYTES and self._uses.get(after) and after not in self._holds.values():
            vectors.append(after)
        if not idle:  # that which is needed last
            idle = [max(self._registers, key=lambda n: self._uses[self._holds[n]][-1])]
        loaded = dict(zip(idle, vectors, strict=False))
        self._holds |= loaded
        lines.append(Line("", tuple(loaded), loads=tuple(loaded.values())))
        return idle[0]
