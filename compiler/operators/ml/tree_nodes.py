"""Encodes decision trees as records that a kernel walks without branches: `next = first + (x[column] > split)`.

A node is two words: its split, and the position of the first of its two children, which lie next to each other, with
the column that it looks at. A leaf leads to itself, by a column that nothing is less than, and has a payload instead of
a split. So a walk may take more steps than a path has, and several walks in step are one sequence of instructions.

All comparisons become `>`: `x < s` is `-x > -s`, in a column of negative values; `x == s` and sets are several nodes,
one for each position where the answer changes. Missing values become infinities in their column, so that they go the
way that is meant for them, or ones in a column of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from nnefc.operators.base import Array
from nnefc.support.diagnostics import CompileError

__all__ = ["LANES", "MEMBER", "MODES", "Columns", "Filling", "Leaves", "PackedTrees", "Trees", "packed"]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""How a value is compared with a split, or looked for in a set."""

_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, MEMBER = range(len(MODES))

LANES, FEW_LANES = 32, 8
"""Trees that are walked through in step, so that their loads overlap; and of what is left of them."""

_WORD = 32


@dataclass(frozen=True, eq=False)
class Leaves:
    """The contributions of leaves to scores: for each leaf any number of pairs of a target and a weight.

    Attributes:
        begins: the index of each leaf's first pair, followed by the number of all pairs.
        targets: the target of each pair; integers.
        weights: the weight of each pair.
    """

    begins: Array
    targets: Array
    weights: Array

    @classmethod
    def of(cls, owners: Array, targets: Array, weights: Array, count: int) -> Leaves:
        """Groups pairs by their leaves; those of one leaf keep their order.

        Args:
            owners: of each pair, the number of its leaf.
            targets, weights: of each pair.
            count: how many leaves there are.
        """
        if (np.diff(owners) < 0).any():
            order = np.argsort(owners, kind="stable")
            targets, weights = targets[order], weights[order]
        return cls(np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]), targets, weights)

    def __len__(self) -> int:
        return len(self.begins) - 1

    @property
    def sizes(self) -> Array:
        """How many pairs each leaf has."""
        return np.diff(self.begins)

    def without_zeros(self) -> Leaves:
        """Returns the leaves without the pairs whose weight is 0."""
        kept = self.weights != 0
        if kept.all():
            return self
        begins = np.concatenate([[0], np.cumsum(kept)])[self.begins]
        return Leaves(begins, self.targets[kept], self.weights[kept])

    def first(self, column: Array, otherwise: float) -> Array:
        """Returns for each leaf the element of a column, `targets` or `weights`, of its first pair."""
        made = np.full(len(self), otherwise, column.dtype)
        (some,) = np.nonzero(self.sizes)
        made[some] = column[self.begins[some]]
        return made


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees as tables.

    Attributes:
        roots: of each tree: an inner node, or leaf `i` as `-1 - i`, as everywhere.
        features, modes, splits, missing: of each inner node: what it looks at, how, and whether NaN says yes.
        yes, no: where it leads.
        members: of each inner node, the values of its set; for `BRANCH_MEMBER`. None if no node has one.
        leaves: what the leaves add to scores.
    """

    roots: Sequence[int] | Array
    features: Sequence[int] | Array
    modes: Sequence[int] | Array
    splits: Array
    missing: Sequence[int] | Array
    yes: Sequence[int] | Array
    no: Sequence[int] | Array
    members: Sequence[Sequence[float]] | None
    leaves: Leaves

    def check(self, features: int, targets: int) -> None:
        """Check that every position exists, and that from a root each node is reached at most once: each way ends.

        Raises:
            CompileError: it does not.
        """
        count = len(self.features)
        looked = np.asarray(self.features, np.int64)
        if ((looked < 0) | (looked >= features)).any():
            raise CompileError(f"a tree tests a feature that the input does not have: it has {features}")
        if ((self.leaves.targets < 0) | (self.leaves.targets >= targets)).any():
            raise CompileError(f"a leaf has a target that does not exist: there are {targets}")
        ways = np.stack([np.asarray(self.yes, np.int64), np.asarray(self.no, np.int64)])
        seen = np.zeros(count, bool)
        level = np.asarray(self.roots, np.int64)
        while len(level):
            if (level < -len(self.leaves)).any() or (level >= count).any():
                raise CompileError("a tree leads to a node that does not exist")
            level = level[level >= 0]
            if seen[level].any() or len(np.unique(level)) < len(level):
                raise CompileError("two branches lead to the same node of a tree")
            seen[level] = True
            level = ways[:, level].reshape(-1)


class Filling(IntEnum):
    """The kind of a column: how it holds its feature, and what it holds where the feature is missing."""

    HIGH = 0
    """The value; infinity where it is missing."""
    LOW = 1
    """The value; minus infinity where it is missing."""
    NEGATIVE_HIGH = 2
    """The negative value; infinity where it is missing."""
    NEGATIVE_LOW = 3
    """The negative value; minus infinity where it is missing."""
    MISSING = 4
    """1 where it is missing, else 0."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns that nodes compare; a last column, of minus infinity, is for leaves.

    Attributes:
        features, fillings: the feature and the `Filling` of each column, int32.
    """

    features: Array
    fillings: Array

    @property
    def count(self) -> int:
        """The number of columns, the one for leaves included."""
        return len(self.features) + 1


@dataclass(frozen=True, eq=False)
class PackedTrees:
    """Trees as records, in groups of similar height: the first of a few each, the others of `LANES`.

    Attributes:
        few: how many groups are of a few.
        lanes: how many these are: `FEW_LANES`, or all trees if there are fewer.
        columns: what nodes look at.
        words: of each node, its split or payload and its link: `[nodes, 2]`, uint32 of float32 or int64 of float64.
        shift: bits of a column in a link; above them is the position of the first child.
        roots: int32, of all groups.
        steps: of each group, the longest path, int32 `[groups]`.
        order: of each root, the number of its tree; -1 for one that is there to fill its group.
    """

    few: int
    lanes: int
    columns: Columns
    words: Array
    shift: int
    roots: Array
    steps: Array
    order: Array


def packed(trees: Trees, payloads: Array, filler: float | int, dtype: str) -> PackedTrees:
    """Pack trees that were checked.

    Args:
        payloads: of leaves: weights of `dtype`, or int32 numbers.
        filler: the payload of the one leaf of trees that fill a group.
        dtype: of the values that are compared: float32 or float64.

    Raises:
        CompileError: they have too many nodes.
    """
    tests = _tests(trees, dtype)
    heights = _heights(trees, tests)
    order = np.argsort(heights, kind="stable")
    lanes = min(FEW_LANES, max(1, len(order)))
    few = -(-(len(order) % LANES) // lanes)
    order = np.concatenate([np.full(few * lanes - len(order) % LANES, -1), order])
    roots = np.where(order < 0, -1 - len(payloads), np.asarray(trees.roots, np.int64)[order])
    payloads = np.append(payloads, np.array(filler, payloads.dtype))
    positions, begins, count = _positions(tests, roots)
    columns, looked = _columns(tests)
    shift = max(1, (columns.count - 1).bit_length())
    wide = dtype == "float64" or count << shift > 1 << _WORD
    if count >= 1 << 30:
        raise CompileError(f"trees of {count} nodes are too many")
    shift = _WORD if wide else shift
    splits, contents = _contents(tests, payloads, wide)
    words = np.zeros((count, 2), np.int64 if wide else np.uint32)
    inner = np.flatnonzero(positions >= 0)
    slots = np.concatenate([begins, positions[inner], positions[inner] + 1])
    refs = np.concatenate([roots, tests.left[inner], tests.right[inner]])
    is_leaf = refs < 0
    test, leaf = np.where(is_leaf, 0, refs), np.where(is_leaf, -1 - refs, 0)
    first = np.where(is_leaf, slots, np.append(positions, 0)[test])
    column = np.where(is_leaf, columns.count - 1, np.append(looked, 0)[test])
    words[slots, 0] = np.where(is_leaf, contents[leaf], splits[test])
    words[slots, 1] = (first << shift) | column
    parts = np.split(np.append(heights, 0)[order], [few * lanes])
    steps = np.concatenate([part.reshape(-1, n).max(1) for part, n in zip(parts, (lanes, LANES), strict=True)])
    return PackedTrees(few, lanes, columns, words, shift, begins.astype(np.int32), steps.astype(np.int32), order)


@dataclass(eq=False)
class _Tests:
    """Nodes that compare with `>`: those of the trees first, by their numbers, then others that these need.

    Attributes:
        features, fillings, splits: of each node.
        left, right: where it leads if the value is not greater, or is.
        more: of nodes that need others, by how many their paths grow.
    """

    features: Array
    fillings: Array
    splits: Array
    left: Array
    right: Array
    more: dict[int, int] = field(default_factory=dict)


def _tests(trees: Trees, dtype: str) -> _Tests:
    features, modes, yes, no, missing = (
        np.asarray(column, np.int64) for column in (trees.features, trees.modes, trees.yes, trees.no, trees.missing)
    )
    splits = np.asarray(trees.splits).astype(dtype).reshape(-1)
    negated, swapped = (modes == _LT) | (modes == _GTE), (modes == _GT) | (modes == _LT)
    high = (missing != 0) == swapped  # missing values go right
    made = _Tests(
        features,
        np.where(negated, Filling.NEGATIVE_HIGH, Filling.HIGH) + ~high,
        np.where(negated, -splits, splits),
        np.where(swapped, no, yes),
        np.where(swapped, yes, no),
    )
    odd = np.flatnonzero(~np.isfinite(splits) | (modes >= _EQ))
    if len(odd):
        _Expansion(trees, made, splits).expand(odd)
    return made


class _Expansion:
    """Makes several tests of each node that is not a comparison of order with a finite number."""

    def __init__(self, trees: Trees, tests: _Tests, splits: Array) -> None:
        self._trees, self._tests, self._splits = trees, tests, splits
        self._rows: list[tuple[int, int, float, int, int]] = []
        self._first = len(splits)

    def expand(self, nodes: Array) -> None:
        """Replace these nodes."""
        for node in map(int, nodes):
            before = len(self._rows)
            row = self._row(node)
            tests = self._tests
            tests.features[node], tests.fillings[node], tests.splits[node], tests.left[node], tests.right[node] = row
            tests.more[node] = (len(self._rows) - before).bit_length() + 1
        tests, columns = self._tests, list(zip(*self._rows, strict=True)) or [()] * 5
        for name, column in zip(("features", "fillings", "splits", "left", "right"), columns, strict=True):
            own = getattr(tests, name)
            setattr(tests, name, np.append(own, np.array(column, own.dtype)))

    def _row(self, node: int) -> tuple[int, int, float, int, int]:
        """The test that replaces the node."""
        trees = self._trees
        feature, missing = int(trees.features[node]), bool(trees.missing[node])
        positions, answers = self._answers(node)
        wanted = missing or trees.modes[node] == _NEQ
        ways = [int(trees.yes[node]) if answer else int(trees.no[node]) for answer in answers]
        high = answers[-1] == wanted
        if positions and (high or answers[0] == wanted):
            return self._between(feature, positions, ways, high)
        tail = ways[0] if not positions else self._added(self._between(feature, positions, ways, True))
        return feature, Filling.MISSING, 0.5, tail, int(trees.yes[node] if wanted else trees.no[node])

    def _added(self, row: tuple[int, int, float, int, int]) -> int:
        self._rows.append(row)
        return self._first + len(self._rows) - 1

    def _between(
        self, feature: int, positions: list[tuple[float, bool]], ways: list[int], high: bool
    ) -> tuple[int, int, float, int, int]:
        """A test of the position in the middle, with others of those on its sides."""
        middle = len(positions) // 2
        split, behind = positions[middle]
        below = self._way(feature, positions[:middle], ways[: middle + 1], high)
        above = self._way(feature, positions[middle + 1 :], ways[middle + 1 :], high)
        if behind:
            return feature, Filling.HIGH if high else Filling.LOW, split, below, above
        return feature, Filling.NEGATIVE_LOW if high else Filling.NEGATIVE_HIGH, -split, above, below

    def _way(self, feature: int, positions: list[tuple[float, bool]], ways: list[int], high: bool) -> int:
        return self._added(self._between(feature, positions, ways, high)) if positions else ways[0]

    def _answers(self, node: int) -> tuple[list[tuple[float, bool]], list[bool]]:
        """Return the thresholds where a node changes its answer, each with its side, and the answers between."""
        mode, split = int(self._trees.modes[node]), float(self._splits[node])
        if mode == MEMBER:
            assert self._trees.members is not None
            numbers = np.asarray(self._trees.members[node]).astype(self._splits.dtype)
        else:
            numbers = self._splits[node : node + 1]
        numbers = np.unique(numbers[~np.isnan(numbers)])
        if mode in (_EQ, _NEQ, MEMBER):
            positions = [(float(number), behind) for number in numbers for behind in (False, True)]
            answers = [bool(i % 2) != (mode == _NEQ) for i in range(len(positions) + 1)]
        elif math.isnan(split):
            positions, answers = [], [False]
        else:
            positions = [(split, mode in (_LEQ, _GT))]
            answers = [mode in (_LEQ, _LT), mode in (_GT, _GTE)]
        if positions and positions[-1] == (math.inf, True):  # nothing is behind
            positions, answers = positions[:-1], answers[:-1]
        if positions and positions[0] == (-math.inf, False):
            positions, answers = positions[1:], answers[1:]
        return positions, answers


def _heights(trees: Trees, tests: _Tests) -> Array:
    """Returns an upper bound of the tests on the longest path of each tree."""
    cost = np.ones(len(trees.features), np.int64)
    for node, more in tests.more.items():
        cost[node] = more
    ways = np.stack([np.asarray(trees.yes, np.int64), np.asarray(trees.no, np.int64)])
    levels = []
    level = np.asarray(trees.roots, np.int64)
    while len(level := level[level >= 0]):
        levels.append(level)
        level = ways[:, level].reshape(-1)
    heights = np.zeros(len(cost) + 1, np.int64)  # the last is that of leaves
    for level in reversed(levels):
        below = np.where(ways[:, level] < 0, len(cost), ways[:, level])
        heights[level] = cost[level] + heights[below].max(0)
    roots = np.asarray(trees.roots, np.int64)
    return heights[np.where(roots < 0, len(cost), roots)]


def _positions(tests: _Tests, roots: Array) -> tuple[Array, Array, int]:
    """Return the positions of each test's children (-1: unreachable), the positions of roots, and the number of nodes.

    Trees lie one after the other, each breadth-first.
    """
    ranks = np.full(len(tests.left), -1)
    owners = np.zeros(len(tests.left), np.int64)
    sizes = np.zeros(len(roots), np.int64)
    level, owner = roots, np.arange(len(roots))
    while len(level):
        fresh = np.flatnonzero(level >= 0)
        fresh = fresh[ranks[level[fresh]] < 0]
        fresh = fresh[np.sort(np.unique(level[fresh], return_index=True)[1])]
        level, owner = level[fresh], owner[fresh]  # by their trees, in ascending order
        ranks[level] = sizes[owner] + np.arange(len(level)) - np.searchsorted(owner, owner)
        owners[level] = owner
        sizes += np.bincount(owner, minlength=len(roots))
        level = np.stack([tests.left[level], tests.right[level]], 1).reshape(-1)
        owner = np.repeat(owner, 2)
    ends = np.cumsum(2 + 2 * sizes)
    begins = ends - 2 - 2 * sizes
    return np.where(ranks < 0, -1, begins[owners] + 2 + 2 * ranks), begins, int(ends[-1])


def _columns(tests: _Tests) -> tuple[Columns, Array]:
    """The columns that occur, by filling, then feature; and that of each test."""
    width = int(tests.features.max(initial=0)) + 1
    keys, looked = np.unique(tests.fillings * width + tests.features, return_inverse=True)
    return Columns((keys % width).astype(np.int32), (keys // width).astype(np.int32)), looked.reshape(-1)


def _contents(tests: _Tests, payloads: Array, wide: bool) -> tuple[Array, Array]:
    """Splits and payloads as words."""
    real, word = (np.float64, np.int64) if wide else (np.float32, np.uint32)
    splits = np.append(tests.splits, 0).astype(real).view(word)
    if payloads.dtype.kind == "f":
        return splits, payloads.astype(real).view(word)
    return splits, payloads.astype(word)
