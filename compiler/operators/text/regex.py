"""Compiles regular expressions to automata over UTF-8 bytes, which `targets/runtime/text/match.c` runs.

pattern → tree → automaton that may be in several states → one that is in one state → the smallest such
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnefc.operators.base import Array
from nnefc.operators.text.regex_syntax import (
    WORD,
    Alternation,
    Anchor,
    Concatenation,
    Letters,
    Neighbor,
    Repeat,
    Tree,
    parsed,
)
from nnefc.support.diagnostics import CompileError

__all__ = ["automaton", "automaton_of_tree"]

_MAX_STATES = 1 << 13
_MAX_PARTS = 1 << 16
_MAX_WORK = 1 << 24
"""States of one automaton, of the other, and steps from the one to the other."""

_MAX_MINIMIZED = 1 << 11
"""States of automata of which the smallest is looked for: others are left as they are."""


def automaton(pattern: str, is_part: bool = False) -> Array:
    """The automaton that takes the strings which a pattern matches as a whole, uint8; see `automaton.h`.

    Args:
        pattern: of RE2's.
        is_part: whether matches are parts of a text: then nothing may depend on where the whole begins and ends.

    Raises:
        CompileError: the pattern is no regular expression of RE2's, has what is not supported, or is too large.
    """
    tree = parsed(pattern)
    if is_part and not _anchors(tree).isdisjoint((Anchor.BEGIN, Anchor.END, Anchor.LINE_BEGIN, Anchor.LINE_END)):
        raise CompileError(f"the pattern {pattern[:80]!r} cannot be compiled: ^ and $ are for whole strings here")
    return automaton_of_tree(tree, pattern)


def automaton_of_tree(tree: Tree, pattern: str) -> Array:
    """Compiles the tree of a pattern, which errors name; otherwise as :func:`automaton`."""
    parts = _Parts(pattern)
    start, end = parts.state(), parts.state()
    parts.add(tree, start, end)
    machine = _Determined(parts, start, end)
    following, accepting, class_of = machine.tables()
    starts = np.array(machine.starts)
    if len(following) <= _MAX_MINIMIZED:
        following, accepting, position = _smallest(following, accepting)
        starts = position[starts]
    head = np.array([*following.shape, *starts], "<u4")
    words = np.concatenate([following.reshape(-1), accepting]).astype("<u4")
    return np.frombuffer(head.tobytes() + class_of.tobytes() + words.tobytes(), np.uint8)


def _anchors(tree: Tree) -> set[Anchor]:
    match tree:
        case Anchor():
            return {tree}
        case Concatenation(parts) | Alternation(parts):
            return set().union(*map(_anchors, parts))
        case Repeat(part, _, _):
            return _anchors(part)
    return set()


class _Parts:
    """An automaton that may be in several states at a time.

    Attributes:
        edges: from each state by a byte in a range to another.
        free: from each state to others without a byte; where there is an anchor, at its positions alone.
        anchors: all of them.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.edges: list[list[tuple[int, int, int]]] = []
        self.free: list[list[tuple[int, Anchor | None]]] = []
        self.anchors: set[Anchor] = set()

    def state(self) -> int:
        """A new state."""
        if len(self.edges) == _MAX_PARTS:
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
                    for position, (low, high) in enumerate(path):
                        after = end if position == len(path) - 1 else self.state()
                        self.edges[at].append((low, high, after))
                        at = after
            case Concatenation(parts):
                for part in parts:
                    after = self.state()
                    self.add(part, start, after)
                    start = after
                self.free[start].append((end, None))
            case Alternation(parts):
                for part in parts:
                    own = self.state()
                    self.free[start].append((own, None))
                    self.add(part, own, end)
            case Anchor():
                self.free[start].append((end, tree))
                self.anchors.add(tree)
            case Repeat(part, minimum, maximum):
                self._repeat(part, minimum, maximum, start, end)

    def _repeat(self, part: Tree, minimum: int, maximum: int | None, start: int, end: int) -> None:
        for _ in range(minimum):
            after = self.state()
            self.add(part, start, after)
            start = after
        if maximum is None:
            own, after = self.state(), self.state()
            self.free[start].append((own, None))
            self.add(part, own, after)
            self.free[after].append((own, None))
            start = own
        for _ in range(0 if maximum is None else maximum - minimum):
            self.free[start].append((end, None))
            after = self.state()
            self.add(part, start, after)
            start = after
        self.free[start].append((end, None))

    def reached(self, states: frozenset[int], sides: tuple[Neighbor, Neighbor] | None = None) -> frozenset[int]:
        """Return the states that are reached without a byte, before the next byte is known, or with both neighbours."""
        found, waiting = set(states), sorted(states)
        while waiting:
            for other, anchor in self.free[waiting.pop()]:
                if other not in found and (anchor is None or (sides is not None and anchor.holds(*sides))):
                    found.add(other)
                    waiting.append(other)
        return frozenset(found)

    def distinguished(self, side: Neighbor) -> Neighbor:
        """The same side, or one for several that no anchor tells apart."""
        needed = {
            Neighbor.EDGE: {Anchor.BEGIN, Anchor.LINE_BEGIN},
            Neighbor.WORD: {Anchor.BOUNDARY, Anchor.NO_BOUNDARY},
            Neighbor.NEWLINE: {Anchor.LINE_BEGIN},
        }.get(side, self.anchors)
        return Neighbor.OTHER if self.anchors.isdisjoint(needed) else side


def too_large(pattern: str) -> CompileError:
    """An error, to be raised."""
    return CompileError(
        f"the pattern {pattern[:80]!r} cannot be compiled: its automaton would be too large",
        hint="repeat less often, or use smaller sets of characters",
    )


class _Determined:
    """The same automaton in one state at a time, each a set of those of the other, and what is before the position.

    What they reach by anchors is found when the byte that follows is known. They are numbered as they are met: 0 is the
    one from which nothing matches.

    Attributes:
        starts: the first state, by the side that is before.
    """

    def __init__(self, parts: _Parts, start: int, end: int) -> None:
        self._parts = parts
        self._end = end
        self._left = _MAX_WORK
        bounds = {0, 256}
        if parts.anchors:
            bounds |= {0x0A, 0x0B, *(bound for low, high in WORD for bound in (low, high + 1))}
        for edges in parts.edges:
            for low, high, _ in edges:
                bounds |= {low, high + 1}
        self._firsts = sorted(bounds)[:-1]
        self._sets: list[tuple[frozenset[int], Neighbor]] = [(frozenset(), Neighbor.OTHER)]
        self._numbers = {self._sets[0]: 0}
        first = parts.reached(frozenset([start]))
        self.starts = [self._number(first, side) for side in Neighbor]

    def tables(self) -> tuple[Array, Array, Array]:
        """Returns for each state the next states by byte class, and a bit for each side that may follow a match.

        The third array has the class of each byte.
        """
        following = [list(self._after(*state)) for state in self._sets]  # which grows meanwhile
        accepting = [
            sum((self._end in self._parts.reached(states, (before, after))) << after.value for after in Neighbor)
            for states, before in self._sets
        ]
        class_of = np.searchsorted(self._firsts, np.arange(256), "right") - 1
        return np.array(following), np.array(accepting), class_of.astype(np.uint8)

    def _number(self, states: frozenset[int], before: Neighbor) -> int:
        key = states, self._parts.distinguished(before) if states else Neighbor.OTHER
        if key not in self._numbers:
            if len(self._sets) == _MAX_STATES:
                raise too_large(self._parts.pattern)
            self._numbers[key] = len(self._sets)
            self._sets.append(key)
        return self._numbers[key]

    def _after(self, states: frozenset[int], before: Neighbor) -> Iterator[int]:
        """The state after a byte of each class."""
        edges: dict[Neighbor, list[tuple[int, int, int]]] = {}
        for first in self._firsts:
            side = _side(first) if self._parts.anchors else Neighbor.OTHER
            if side not in edges:
                here = self._parts.reached(states, (before, side)) if self._parts.anchors else states
                edges[side] = [edge for state in sorted(here) for edge in self._parts.edges[state]]
            after = frozenset(other for low, high, other in edges[side] if low <= first <= high)
            found = self._parts.reached(after)
            self._left -= len(edges[side]) + len(found) + 1
            if self._left < 0:
                raise too_large(self._parts.pattern)
            yield self._number(found, _side(first))


def _side(byte: int) -> Neighbor:
    """The kind of a byte; those of a character that is not of ASCII are of no word."""
    if byte == 0x0A:
        return Neighbor.NEWLINE
    return Neighbor.WORD if any(low <= byte <= high for low, high in WORD) else Neighbor.OTHER


def _smallest(following: Array, accepting: Array) -> tuple[Array, Array, Array]:
    """The automaton of the fewest states that takes the same texts; the last array has the new number of each state.

    The first state stays the first, and of the others each group of equal ones comes where its first one was.
    """
    groups = accepting.astype(np.int64)
    while True:
        rows = np.column_stack([groups, groups[following]])
        _, firsts, made = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        made = made.reshape(-1)
        if len(firsts) == len(np.unique(groups)):
            break
        groups = made
    order = np.argsort(firsts)
    position = np.empty(len(firsts), np.int64)
    position[order] = np.arange(len(firsts))
    return position[made[following[firsts[order]]]], accepting[firsts[order]], position[made]


def _paths(ranges: tuple[tuple[int, int], ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    """The characters of ranges as sequences of ranges of bytes; surrogates have none."""
    for low, high in ranges:
        for first, last in ((0x0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)):
            if max(low, first) <= min(high, last):
                yield from _encoded(max(low, first), min(high, last))


def _encoded(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield byte ranges for characters of the same length in UTF-8, split where a byte's range is partial."""
    first, last = chr(low).encode(), chr(high).encode()
    for position in range(1, len(first)):
        span = 1 << (6 * position)  # characters that differ in the last `position` bytes
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
