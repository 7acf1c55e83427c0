"""Regular expressions as automata over the bytes of UTF-8, which `targets/runtime/text/match.c` runs.

pattern → tree → automaton that may be in several states → one that is in one state → the smallest such
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnefc.diagnostics import CompileError
from nnefc.operators.base import Array
from nnefc.operators.regex_syntax import Anchor, Choice, Letters, Repeat, Sequence, Tree, parsed

__all__ = ["automaton"]

_MOST_STATES = 1 << 13
_MOST_PARTS = 1 << 16
_MOST_WORK = 1 << 24
"""States of one automaton, of the other, and steps from the one to the other."""

_MOST_MINIMIZED = 1 << 11
"""States of automata of which the smallest is looked for: others are left as they are."""


def automaton(pattern: str, is_part: bool = False) -> Array:
    """The automaton that takes the strings which a pattern matches as a whole, uint8; see `automaton.h`.

    Args:
        pattern: of RE2's.
        is_part: whether matches are parts of a text: then nothing may depend on where this begins and ends.

    Raises:
        CompileError: the pattern is no regular expression of RE2's, has what is not supported, or is too large.
    """
    parts = _Parts(pattern)
    start, end = parts.state(), parts.state()
    parts.add(parsed(pattern), start, end)
    if is_part and any(anchor is not None for free in parts.free for _, anchor in free):
        raise CompileError(f"the pattern {pattern[:80]!r} cannot be compiled: ^ and $ are for whole strings here")
    following, accepting, class_of = _Determined(parts, start, end).tables()
    if len(following) <= _MOST_MINIMIZED:
        following, accepting = _smallest(following, accepting)
    head = np.array(following.shape, "<u4")
    words = np.concatenate([following.reshape(-1), accepting]).astype("<u4")
    return np.frombuffer(head.tobytes() + class_of.tobytes() + words.tobytes(), np.uint8)


class _Parts:
    """An automaton that may be in several states at a time.

    Attributes:
        edges: from each state by a byte in a range to another.
        free: from each state to others without a byte; where an anchor says so, at that end of the text alone.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.edges: list[list[tuple[int, int, int]]] = []
        self.free: list[list[tuple[int, Anchor | None]]] = []

    def state(self) -> int:
        """A new state."""
        if len(self.edges) == _MOST_PARTS:
            raise too_large(self.pattern)
        self.edges.append([])
        self.free.append([])
        return len(self.edges) - 1

    def add(self, tree: Tree, start: int, end: int) -> None:
        """Let a tree lead from a state to another."""
        match tree:
            case Letters(ranges, is_byte):
                for path in [((0, 255),)] if is_byte else _paths(ranges):
                    at = start
                    for place, (low, high) in enumerate(path):
                        after = end if place == len(path) - 1 else self.state()
                        self.edges[at].append((low, high, after))
                        at = after
            case Sequence(parts):
                for part in parts:
                    after = self.state()
                    self.add(part, start, after)
                    start = after
                self.free[start].append((end, None))
            case Choice(parts):
                for part in parts:
                    own = self.state()
                    self.free[start].append((own, None))
                    self.add(part, own, end)
            case Anchor():
                self.free[start].append((end, tree))
            case Repeat(part, least, most):
                self._repeat(part, least, most, start, end)

    def _repeat(self, part: Tree, least: int, most: int | None, start: int, end: int) -> None:
        for _ in range(least):
            after = self.state()
            self.add(part, start, after)
            start = after
        if most is None:
            own, after = self.state(), self.state()
            self.free[start].append((own, None))
            self.add(part, own, after)
            self.free[after].append((own, None))
            start = own
        for _ in range(0 if most is None else most - least):
            self.free[start].append((end, None))
            after = self.state()
            self.add(part, start, after)
            start = after
        self.free[start].append((end, None))

    def reached(self, states: frozenset[int], at_end: bool | None) -> frozenset[int]:
        """What is reached without a byte: at the beginning of the text (False), at its end (True), or between."""
        found, waiting = set(states), list(states)
        while waiting:
            for other, anchor in self.free[waiting.pop()]:
                if other not in found and (anchor is None or anchor.at_end is at_end):
                    found.add(other)
                    waiting.append(other)
        return frozenset(found)


def too_large(pattern: str) -> CompileError:
    """An error, to be raised."""
    return CompileError(
        f"the pattern {pattern[:80]!r} cannot be compiled: its automaton would be too large",
        hint="repeat less often, or use smaller sets of characters",
    )


class _Determined:
    """The same automaton in one state at a time, each a set of those of the other.

    They are numbered as they are met: 0 is the one from which nothing matches, and 1 the first, which no byte leads to,
    for anchors hold there that hold nowhere else.
    """

    def __init__(self, parts: _Parts, start: int, end: int) -> None:
        self._parts = parts
        self._end = end
        self._left = _MOST_WORK
        bounds = {0, 256}
        for edges in parts.edges:
            for low, high, _ in edges:
                bounds |= {low, high + 1}
        self._firsts = sorted(bounds)[:-1]
        self._sets = [frozenset[int](), parts.reached(frozenset([start]), False)]
        self._numbers = {frozenset[int](): 0}

    def tables(self) -> tuple[Array, Array, Array]:
        """Of each state, those after a byte of each class, and whether a text may end there; the class of each byte."""
        following = [list(map(self._number, self._after(states))) for states in self._sets]  # which grows meanwhile
        accepting = [self._end in self._parts.reached(states, True) for states in self._sets]
        accepting[1] = self._takes_nothing()
        class_of = np.searchsorted(self._firsts, np.arange(256), "right") - 1
        return np.array(following), np.array(accepting), class_of.astype(np.uint8)

    def _takes_nothing(self) -> bool:
        """Whether a text without bytes matches: its beginning is its end."""
        before, states = frozenset[int](), self._sets[1]
        while states != before:
            before, states = states, self._parts.reached(self._parts.reached(states, True), False)
        return self._end in states

    def _number(self, states: frozenset[int]) -> int:
        if states not in self._numbers:
            if len(self._sets) == _MOST_STATES:
                raise too_large(self._parts.pattern)
            self._numbers[states] = len(self._sets)
            self._sets.append(states)
        return self._numbers[states]

    def _after(self, states: frozenset[int]) -> Iterator[frozenset[int]]:
        """The states after a byte of each class."""
        edges = [edge for state in states for edge in self._parts.edges[state]]
        for first in self._firsts:
            after = frozenset(other for low, high, other in edges if low <= first <= high)
            found = self._parts.reached(after, None)
            self._left -= len(edges) + len(found) + 1
            if self._left < 0:
                raise too_large(self._parts.pattern)
            yield found


def _smallest(following: Array, accepting: Array) -> tuple[Array, Array]:
    """The automaton of the fewest states that takes the same texts; the first two stay where they are."""
    groups = accepting.astype(np.int64)
    while True:
        rows = np.column_stack([groups, groups[following]])
        _, firsts, made = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        made = made.reshape(-1)
        if len(firsts) == len(np.unique(groups)):
            break
        groups = made
    if made[0] == made[1]:  # no text matches
        return np.zeros((2, following.shape[1]), np.int64), np.zeros(2, bool)
    order = [made[0], made[1], *(group for group in range(len(firsts)) if group not in (made[0], made[1]))]
    place = np.empty(len(firsts), np.int64)
    place[order] = np.arange(len(firsts))
    return place[made[following[firsts[order]]]], accepting[firsts[order]]


def _paths(ranges: tuple[tuple[int, int], ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """The characters of ranges as sequences of ranges of bytes; surrogates have none."""
    for low, high in ranges:
        for first, last in ((0x0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)):
            if max(low, first) <= min(high, last):
                yield from _encoded(max(low, first), min(high, last))


def _encoded(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Of characters of the same number of bytes: split where a byte does not go through all of its values."""
    first, last = chr(low).encode(), chr(high).encode()
    for place in range(1, len(first)):
        span = 1 << (6 * place)  # characters that differ in the last `place` bytes
        if low // span != high // span:
            if low % span:
                yield from _encoded(low, low | (span - 1))
                yield from _encoded((low | (span - 1)) + 1, high)
                return
            if (high + 1) % span:
                yield from _encoded(low, (high // span) * span - 1)
                yield from _encoded((high // span) * span, high)
                return
    yield tuple(zip(first, last, strict=True))
