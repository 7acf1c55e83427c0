"""Schedules the instructions of `aarch64_smull.py` for cores that issue in order.

A sum is made by instructions that wait for each other: its first products, those that are added to them, and both added
in pairs to the sum. Where these stand one behind the other, such a core waits for each. Here, the instructions of
several sums stand between them:

    sadalp  v31.4s, v14.8h              # of the fourth sum before
    smlal   v12.8h, v11.8b, v4.8b       # of the second one before
    smull   v14.8h, v10.8b, v0.8b       # of this one

Words and vectors are loaded as soon as what their registers held is no longer needed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import QUAD_BYTES, MultiplyAdd
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Line, Loaded

__all__ = ["Chain", "Registers", "added", "choices", "in_turn", "multiplied"]

_WORDS = 3  # registers of words in all lanes: of two that are multiplied with, and of the next one
_PRODUCTS = (4, 5, 6)  # registers of products on their way


@dataclass(frozen=True)
class Chain:
    """The products with a half of one sum's vectors.

    Attributes:
        total: the register of the sum.
        half: 0 or 1: of the vectors.
        words: of each product, the word that is put into all lanes: a number.
        rights: the vector that it is multiplied with: a number.
    """

    total: int
    half: int
    words: tuple[int, ...]
    rights: tuple[int, ...]


@dataclass(frozen=True)
class Registers:
    """The registers of right vectors, of vectors of words, of broadcast words, and of products."""

    rights: range
    lefts: range
    words: range
    products: range


def choices(free: int, rights: int, lefts: int) -> Iterator[Registers]:
    """Returns the possible assignments of the free registers, from 0 on.

    Args:
        rights: vectors of the right operand that are multiplied in turn.
        lefts: vectors of words.
    """
    for products, count in itertools.product(_PRODUCTS, (rights, rights + 2)):
        ends = [count, min(free - products - _WORDS, count + lefts)]
        if ends[0] < ends[1]:
            ends += [ends[1] + _WORDS, ends[1] + _WORDS + products]
            yield Registers(*map(range, [0, *ends[:3]], ends))


def in_turn(
    product: MultiplyAdd,
    chains: Sequence[Chain],
    words: Sequence[tuple[Loaded, int]],
    rights: Sequence[Sequence[Loaded]],
    registers: Registers,
    begun: set[int],
) -> list[Line] | None:
    """Returns all instructions of an iteration in order; None if the registers do not suffice.

    Args:
        words: the vector and the lane of each.
        rights: the vectors, those together that are multiplied in turn; neighbours in memory one behind the other.
        begun: registers of sums that something was added to; where nothing was, they are made of the products.
    """
    last = max(len(chain.words) for chain in chains)
    order = list(_staged(chains, last, len(registers.products)))
    read: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    for position, (number, stage) in enumerate(order):
        if stage < last:
            one = chains[number]
            for positions, element in zip(read, (one.words[stage], one.rights[stage]), strict=True):
                positions.setdefault(element, []).append(position)
    pairs = _pairs(rights, read[1])
    right_at = _placed(pairs, read[1], registers.rights)
    if right_at is None:
        pairs = sorted(([element] for pair in pairs for element in pair), key=lambda pair: read[1][pair[0]][0])
        right_at = _placed(pairs, read[1], registers.rights)
    word_at = _placed([[word] for word in sorted(read[0])], read[0], registers.words)
    if word_at is None or right_at is None:
        return None
    vectors = [vector for part in rights for vector in part]
    loads = [
        (Line("", tuple(right_at[n][0] for n in pair), loads=tuple(vectors[n] for n in pair)), right_at[pair[0]][1])
        for pair in pairs
    ]
    lines: list[Line] = []
    waiting = [iter([*each, (None, 0)]) for each in (loads, _copies(words, word_at, registers.lefts))]
    upcoming = [next(each) for each in waiting]
    for position, (number, stage) in enumerate(order):
        for kind, each in enumerate(waiting):
            while (line := upcoming[kind][0]) is not None and upcoming[kind][1] <= position:
                lines.append(line)
                upcoming[kind] = next(each)
        one, made = chains[number], registers.products[number % len(registers.products)]
        if stage < last:
            factors = (word_at[one.words[stage]][0], right_at[one.rights[stage]][0])
            lines.append(multiplied(product, one.half, stage > 0, made, factors))
        else:
            lines.append(added(product, one.total, made, one.total in begun))
            begun.add(one.total)
    return lines


def multiplied(product: MultiplyAdd, half: int, joined: bool, made: int, factors: tuple[int, int]) -> Line:
    """Returns the instruction that multiplies a half of two vectors, one with a word in all lanes; it adds to the
    previous product if `joined`.
    """
    name = f"{product.long}{'mlal' if joined else 'mull'}{'2' * half}"
    word, right = (f"v{factor}.{('8b', '16b')[half]}" for factor in factors)
    return Line(f"{name} v{made}.8h, {word}, {right}", (made,), (*factors, made) if joined else factors)


def added(product: MultiplyAdd, total: int, made: int, begun: bool) -> Line:
    """Returns the instruction that adds neighbouring products to a sum, or makes the sum of them."""
    text = f"{product.long}{'adalp' if begun else 'addlp'} v{total}.4s, v{made}.8h"
    return Line(text, (total,), (made, total) if begun else (made,))


def _staged(chains: Sequence[Chain], last: int, products: int) -> Iterator[tuple[int, int]]:
    """Yields the schedule: the chain whose first products, second products or sum are at each position.

    Args:
        last: the stage of sums.
        products: chains that are begun before the first one is added to its sum, as many as there are registers.
    """
    later = [(last, products), *((stage, (products + 1) // 2) for stage in range(1, last))]
    stages = [*(later[::-1] if products % 2 else later), (0, 0)]
    for turn in range(len(chains) + products):
        for stage, behind in stages:
            chain = turn - behind
            if 0 <= chain < len(chains) and (stage == last or stage < len(chains[chain].words)):
                yield chain, stage


def _pairs(rights: Sequence[Sequence[Loaded]], read: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Returns the vectors that one instruction loads together, those first that are needed first."""
    pairs: list[list[int]] = []
    element = 0
    for part in rights:
        before = None
        for vector in part:
            if before == Loaded(vector.pointer, vector.position - QUAD_BYTES, QUAD_BYTES):
                pairs[-1].append(element)
                before = None
            else:
                pairs.append([element])
                before = vector
            element += 1
    return sorted(pairs, key=lambda pair: min(read[element][0] for element in pair))


def _placed(
    groups: Sequence[Sequence[int]], read: Mapping[int, Sequence[int]], registers: range
) -> dict[int, tuple[int, int]] | None:
    """Returns the register of each element and the instruction before which it may be written; None if there are too
    few registers.

    Args:
        groups: elements that are written together, in the order in which they are.
        read: the instructions that read each.
    """
    idle = dict.fromkeys(registers, 0)
    made: dict[int, tuple[int, int]] = {}
    before = 0
    for group in groups:
        taken = sorted(idle, key=lambda register: idle[register])[: len(group)]
        before = max(before, *(idle[register] for register in taken))
        if len(taken) < len(group) or before > min(read[element][0] for element in group):
            return None
        for register, element in zip(taken, group, strict=True):
            made[element], idle[register] = (register, before), read[element][-1] + 1
    return made


def _copies(
    words: Sequence[tuple[Loaded, int]], word_at: Mapping[int, tuple[int, int]], registers: range
) -> Iterator[tuple[Line, int]]:
    """Returns copies of words to all lanes and loads of the vectors with these words, with the instruction before which
    each may be.
    """
    needs = [words[element][0] for element in word_at]
    holds: dict[int, Loaded] = {}
    read = dict.fromkeys(registers, 0)  # copies up to the last one from each register
    loads: list[list[Line]] = [[] for _ in range(len(needs) + 1)]  # behind so many copies
    sources = []
    for number, vector in enumerate(needs):
        source = next((register for register, held in holds.items() if held == vector), None)
        if source is None:
            source = max(registers, key=lambda register: _next_need(needs, number, holds.get(register)))
            holds[source] = vector
            loads[read[source]].append(Line("", (source,), loads=(vector,)))
        read[source] = number + 1
        sources.append(source)
    before = 0
    for number, (element, source) in enumerate(zip(word_at, sources, strict=True)):
        yield from ((line, before) for line in loads[number])
        register, before = word_at[element]
        yield Line(f"dup v{register}.4s, v{source}.s[{words[element][1]}]", (register,), (source,)), before


def _next_need(needs: Sequence[Loaded], number: int, vector: Loaded | None) -> int:
    """Returns when a vector is needed again; a late time if it is not."""
    return next((n for n in range(number, len(needs)) if needs[n] == vector), len(needs))
