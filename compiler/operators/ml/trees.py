"""Evaluates ensembles of decision trees: each sample walks from each root to a leaf, and leaf weights add up to scores.

    for blocks of trees and samples, on several threads:
        for each group of 32 trees:               # their nodes stay in the cache while the samples pass
            for each sample:
                for step in longest path, lane in 32:
                    node[lane] = first[node[lane]] + (x[column[node[lane]]] > split[node[lane]])
                scores[sample] += weights[node[0]] + … + weights[node[31]]

`tree_nodes.py` says what nodes are. Sums are of float64 and in one order, whatever the samples and the threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.reduction import ArgMinMax
from nnefc.operators.ml.features import as_samples
from nnefc.operators.ml.scores import TRANSFORMS, of_two, positive, transformed
from nnefc.operators.ml.tree_nodes import LANES, MEMBER, MODES, Columns, Filling, Leaves, PackedTrees, Trees, packed
from nnefc.operators.statements import T, each, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, ceil_div, expression

__all__ = ["AGGREGATES", "MEMBER", "MODES", "TRANSFORMS", "Leaves", "TreeClassifier", "TreeEnsemble", "Trees"]

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

_ROWS = 32
"""Samples that pass a group of trees before the next group."""

_MIN_STEPS, _MAX_BLOCKS = 1 << 13, 8
"""Steps of all trees from which on they are divided into blocks, each of its own thread; and how many."""


@dataclass(frozen=True, eq=False)
class _Weights:
    """The contributions of leaves to scores, as arrays of the library.

    Attributes:
        payloads: each leaf's weight, of `dtype`, if each tree has one target; else the leaf's number, int32.
        targets: each tree's target, int32; None if trees have several.
        begins, ids, values: where each leaf's pairs begin, their targets and weights; None if trees have one target.
    """

    payloads: Array
    targets: Array
    begins: Array | None = None
    ids: Array | None = None
    values: Array | None = None


def _weights(trees: Trees, aggregate: str, dtype: str) -> _Weights:
    sums = aggregate in ("SUM", "AVERAGE")
    leaves = trees.leaves.without_zeros() if sums else trees.leaves
    single = _targets_of_trees(trees, leaves) if sums or (leaves.sizes == 1).all() else None
    if single is not None:
        return _Weights(leaves.first(leaves.weights, 0).astype(dtype), single)
    begins = np.append(leaves.begins, leaves.begins[-1]).astype(np.int32)  # one more, of trees that fill a group
    ids, values = leaves.targets.astype(np.int32), leaves.weights.astype(dtype)
    if not len(ids):
        ids, values = np.zeros(1, np.int32), np.zeros(1, dtype)
    numbers = np.arange(len(leaves), dtype=np.int32)
    return _Weights(numbers, np.zeros(len(trees.roots), np.int32), begins, ids, values)


def _targets_of_trees(trees: Trees, leaves: Leaves) -> Array | None:
    """The target of each tree, if all its leaves have one and the same at most."""
    if (leaves.sizes > 1).any():
        return None
    if not (leaves.targets != leaves.targets[:1]).any():
        return np.full(len(trees.roots), leaves.targets[0] if len(leaves.targets) else 0, np.int32)
    ways = np.stack([np.asarray(trees.yes, np.int64), np.asarray(trees.no, np.int64)])
    own = leaves.first(leaves.targets, -1)
    found = np.full(len(trees.roots), -1)
    level, owner = np.asarray(trees.roots, np.int64), np.arange(len(trees.roots))
    while len(level):
        ends = level < 0
        target, tree = own[-1 - level[ends]], owner[ends]
        target, tree = target[target >= 0], tree[target >= 0]
        found[tree] = np.where(found[tree] < 0, target, found[tree])
        if (found[tree] != target).any():
            return None
        level, owner = ways[:, level[~ends]].T.reshape(-1), np.repeat(owner[~ends], 2)
    targets: Array = np.maximum(found, 0).astype(np.int32)
    return targets


def _prepared(ctx: Emitter, x: Operand, columns: Columns) -> Operand:
    """The columns that nodes look at, `[samples, columns]`."""
    (samples, width), dtype, count = shape_of(x), dtype_of(x), columns.count
    runs = [(int(f), np.flatnonzero(columns.fillings == f)) for f in np.unique(columns.fillings)]
    low, high, one, zero = (tirx.const(v, dtype) for v in (-math.inf, math.inf, 1, 0))

    def filled(value: Any, filling: int) -> Any:
        missing = tirx.isnan(value)
        if filling == Filling.MISSING:
            return tirx.Select(missing, one, zero)
        signed = zero - value if filling in (Filling.NEGATIVE_HIGH, Filling.NEGATIVE_LOW) else value
        return tirx.Select(missing, high if filling in (Filling.HIGH, Filling.NEGATIVE_HIGH) else low, signed)

    def write(x: Any, features: Any, out: Any) -> None:
        with each(samples, samples * count) as sample:
            for filling, positions in runs:
                first, length = int(positions[0]), len(positions)
                straight = np.array_equal(columns.features[positions], np.arange(length))
                with T.serial(0, length) as k:
                    feature = k if straight else features[first + k]
                    out[sample * count + first + k] = filled(x[sample * width + feature], filling)
            out[sample * count + count - 1] = low

    features = columns.features if len(columns.features) else np.zeros(1, np.int32)
    return looped(ctx, write, [x, features], [((samples, count), dtype)], "prepare_columns")[0]


@dataclass(frozen=True, eq=False)
class _Walk:
    """The kernel that walks through packed trees.

    Attributes:
        trees, weights: the trees, and what their leaves add.
        targets: how many scores a sample has.
        aggregate: one of `AGGREGATES`.
        samples: how many there are.
    """

    trees: PackedTrees
    weights: _Weights
    targets: int
    aggregate: str
    samples: Dimension

    @property
    def _wide(self) -> bool:
        return self.trees.words.dtype == np.int64

    @property
    def _work(self) -> str:
        return "float64" if self._wide else "float32"

    @property
    def _blocks(self) -> int:
        return max(1, min(_MAX_BLOCKS, self._steps // _MIN_STEPS, len(self.trees.steps) - self.trees.few))

    @property
    def _steps(self) -> int:
        """Returns the number of node tests in all trees for one sample."""
        few = self.trees.few
        return int(self.trees.steps[:few].sum()) * self.trees.lanes + int(self.trees.steps[few:].sum()) * LANES

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        """The scores `[samples, targets]`, float64, of prepared columns `[samples, columns]`."""
        blocks, trees, weights = self._blocks, self.trees, self.weights
        x = ctx.apply(Cast(self._work), x)
        own = np.where(trees.order < 0, 0, weights.targets[trees.order]).astype(np.int32)
        lists = [c for c in (weights.begins, weights.ids, weights.values) if c is not None]
        shape = (blocks, self.samples, self.targets)

        def write(x: Any, words: Any, roots: Any, steps: Any, own: Any, *tail: Any) -> None:
            *lists, out = tail
            tables = _Tables(x, words, roots, steps, own, lists, out)
            chunks = ceil_div(self.samples, _ROWS)
            with each(chunks * blocks, self.samples * self._steps) as task:
                block, chunk = (0, task) if blocks == 1 else (task % blocks, task // blocks)
                self._write_block(tables, block, chunk)

        operands = [x, trees.words, trees.roots, trees.steps, own, *lists]
        parts = looped(ctx, write, operands, [(shape, "float64")], "walk_trees")[0]
        return self._joined(ctx, parts)

    def _write_block(self, tables: _Tables, block: Any, chunk: Any) -> None:
        samples, few, lanes = expression(self.samples), self.trees.few, self.trees.lanes
        groups = len(self.trees.steps) - few
        size = -(-groups // self._blocks)
        rows = tirx.min(samples - chunk * _ROWS, tirx.const(_ROWS, "int64"))
        first = T.bind(chunk * _ROWS)
        begin = T.bind((block * samples + first) * self.targets)
        with T.serial(0, rows * self.targets) as position:
            tables.out[begin + position] = tirx.const(self._identity, "float64")
        count = groups if self._blocks == 1 else tirx.max(tirx.min(groups - block * size, size), 0)
        if few:
            with self._in_first(block), T.serial(0, few) as group, T.serial(0, rows) as row:
                scores = begin + row * self.targets
                self._write_sample(tables, group, group * lanes, lanes, first + row, scores)
        if groups:
            with T.serial(0, count) as g, T.serial(0, rows) as row:
                number = T.bind(block * size + g)
                root = number * LANES + few * lanes
                self._write_sample(tables, number + few, root, LANES, first + row, begin + row * self.targets)

    @contextmanager
    def _in_first(self, block: Any) -> Iterator[None]:
        """A block of statements that are run for the first block of trees only."""
        if self._blocks == 1:
            yield
            return
        with T.If(block == 0), T.Then():
            yield

    def _write_sample(self, tables: _Tables, group: Any, root: Any, lanes: int, sample: Any, scores: Any) -> None:
        """Add what the trees of a group say of a sample to its scores, which begin at `scores`."""
        positions = self._walked(tables, group, root, lanes, sample * self.trees.columns.count)
        if self.targets == 1 and not tables.lists:
            weights = [self._real(tables.words[position * 2]).astype("float64") for position in positions]
            while len(weights) > 1:  # not one after the other: each would wait for the one before
                pairs = zip(weights[::2], weights[1::2], strict=False)
                weights = [T.bind(self._of(*pair)) for pair in pairs] + weights[len(weights) & ~1 :]
            tables.out[scores] = self._of(tables.out[scores], weights[0])
            return
        for lane, position in enumerate(positions):
            self._add(tables, position, scores, root + lane)

    def _walked(self, tables: _Tables, group: Any, root: Any, lanes: int, sample: Any) -> list[Any]:
        """Returns the leaves that a sample reaches in the trees of a group, from `root` on, as indices."""
        here = T.buffer_proxy(T.alloc_buffer((lanes,), "int32", scope="local"))
        base = T.bind(sample)
        for lane in range(lanes):
            here[lane] = tables.roots[root + lane]
        with T.serial(0, tables.steps[group]):
            for lane in range(lanes):
                link = T.bind(tables.words[here[lane] * 2 + 1])
                split = self._real(tables.words[here[lane] * 2])
                shift, mask = (tirx.const(n, link.ty.dtype) for n in (self.trees.shift, (1 << self.trees.shift) - 1))
                column, child = (link & mask).astype("int64"), (link >> shift).astype("int32")
                here[lane] = child + (tables.x[base + column] > split).astype("int32")
        return [T.bind(here[lane]) for lane in range(lanes)]

    def _real(self, word: Any) -> Any:
        return tirx.reinterpret(self._work, word)

    def _add(self, tables: _Tables, position: Any, scores: Any, root: Any) -> None:
        """Add what a leaf has to the scores of a sample, which begin at `scores`."""
        word = tables.words[position * 2]
        if not tables.lists:
            self._combine(tables.out, scores + tables.own[root].astype("int64"), self._real(word))
            return
        begins, ids, values = tables.lists
        leaf = T.bind(word.astype("int64"))
        with T.serial(0, begins[leaf + 1] - begins[leaf]) as k:
            pair = T.bind(begins[leaf] + k)
            self._combine(tables.out, scores + ids[pair].astype("int64"), values[pair])

    def _combine(self, out: Any, position: Any, weight: Any) -> None:
        out[position] = self._of(out[position], weight.astype("float64"))

    def _of(self, one: Any, other: Any) -> Any:
        match self.aggregate:
            case "MIN":
                return tirx.min(one, other)
            case "MAX":
                return tirx.max(one, other)
        return one + other

    @property
    def _identity(self) -> float:
        return {"MIN": math.inf, "MAX": -math.inf}.get(self.aggregate, 0.0)

    def _joined(self, ctx: Emitter, parts: Operand) -> Operand:
        """The scores of all blocks; a target that no leaf has is 0."""
        blocks, trees = self._blocks, int((self.trees.order >= 0).sum())

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            total = tensors[0](0, *index)
            for block in range(1, blocks):
                total = self._of(total, tensors[0](block, *index))
            if self.aggregate == "AVERAGE":
                return total / tirx.const(trees, "float64")
            if self.aggregate == "SUM":
                return total
            return tirx.Select(total == tirx.const(self._identity, "float64"), tirx.const(0, "float64"), total)

        return ctx.emit(ctx.elements((self.samples, self.targets), element, parts, name="join_blocks"))


@dataclass(frozen=True, eq=False)
class _Tables:
    """Buffers of the kernel; see `PackedTrees` and `_Weights`. `own` are the targets of roots."""

    x: Any
    words: Any
    roots: Any
    steps: Any
    own: Any
    lists: list[Any]
    out: Any


@dataclass(frozen=True, eq=False)
class _Ensemble(Operator):
    """The base of tree ensembles.

    Attributes:
        trees: the trees.
        base: added to the scores, one for each target, or none.
        transform: one of `TRANSFORMS`.
    """

    trees: Trees
    base: tuple[float, ...]
    transform: str

    def _added(self, ctx: Emitter, x: Operand, targets: int, aggregate: str) -> Operand:
        """The scores `[samples, targets]`, float64, of samples `[samples, features]`, or of one as a vector."""
        x = as_samples(ctx, x)
        self.trees.check(shape_of(x)[1], targets)
        if np.asarray(self.trees.splits).dtype == np.float64:
            x = ctx.apply(Cast("float64"), x)
        weights = _weights(self.trees, aggregate, dtype_of(x))
        filler = math.inf if aggregate == "MIN" else -math.inf if aggregate == "MAX" else 0.0
        filler = filler if weights.begins is None else len(self.trees.leaves)
        trees = packed(self.trees, weights.payloads, filler, dtype_of(x))
        walk = _Walk(trees, weights, targets, aggregate, shape_of(x)[0])
        return walk.lower(ctx, _prepared(ctx, x, trees.columns))

    def _with_base(self, ctx: Emitter, scores: Operand) -> Operand:
        count = shape_of(scores)[1]
        if not self.base:
            return scores
        if len(self.base) != count:
            raise CompileError(f"there are {len(self.base)} base values for {count} scores")
        return ctx.emit(relax.op.add(ctx.expr(scores), ctx.expr(np.array([self.base], np.float64))))


@dataclass(frozen=True, eq=False)
class TreeEnsemble(_Ensemble):
    """Scores `[samples, targets]`: aggregates of the leaves that each sample reaches.

    ai.onnx.ml `TreeEnsemble`, `TreeEnsembleRegressor`.

    Attributes:
        targets: the number of targets.
        aggregate: how the weights of leaves become a score, one of `AGGREGATES`.
        dtype: of the result.
    """

    targets: int
    aggregate: str
    dtype: str

    def shape(self, x: Shape) -> Shape:
        """A row for each sample."""
        return (x[0] if len(x) == 2 else 1, self.targets)

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if self.aggregate not in AGGREGATES:
            raise CompileError(f"the aggregation '{self.aggregate}' is unknown")
        scores = self._with_base(ctx, self._added(ctx, x, self.targets, self.aggregate))
        work = "float64" if self.dtype == "float64" else "float32"
        made = ctx.apply(Cast(work), scores)
        return Cast(self.dtype).lower(ctx, ctx.bound(transformed(ctx, made, self.transform)))


@dataclass(frozen=True, eq=False)
class TreeClassifier(_Ensemble):
    """The number of the class with the highest score, int64, and all scores, float32. `TreeEnsembleClassifier`.

    Attributes:
        classes: how many there are.
    """

    classes: int

    def shape(self, x: Shape) -> tuple[Shape, Shape]:
        """A number, and a row of scores, for each sample."""
        samples = x[0] if len(x) == 2 else 1
        return (samples,), (samples, self.classes)

    def lower(self, ctx: Emitter, x: Operand) -> tuple[Operand, Operand]:
        scores = self._added(ctx, x, self.classes, "SUM")
        targets = self.trees.leaves.targets
        if self.classes == 2 and not (targets != targets[:1]).any():
            return self._of_one(ctx, scores, int(targets[0]) if len(targets) else 0)
        scores = ctx.apply(Cast("float32"), self._with_base(ctx, scores))
        return ctx.apply(ArgMinMax((1,)), scores), transformed(ctx, scores, self.transform)

    def _of_one(self, ctx: Emitter, scores: Operand, column: int) -> tuple[Operand, Operand]:
        """Two classes, weights of one: its score is a probability if no weight is negative, else its sign decides.

        Weights of the first class mean the second one, and the first has what the score lacks of 1, or its negative;
        with weights of the second class the first has no score. So do engines; the standard does not say.
        """
        probability = bool((self.trees.leaves.weights >= 0).all())
        base = self.base[min(column, len(self.base) - 1)] if self.base else 0.0
        shift = tirx.const(base, "float64")

        def one(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            return (tensors[0](index[0], column) + shift).astype("float32")

        score = ctx.emit(ctx.elements((shape_of(scores)[0], 1), one, scores, name="score"))
        best = positive(ctx, score, 0.5 if probability else 0.0)
        if column == 1:
            both = (0.0 if len(self.base) < 2 else self.base[0], base)
            pair = ctx.apply(Cast("float32"), replace(self, base=both)._with_base(ctx, scores))
            return best, transformed(ctx, pair, self.transform)
        complement = self.transform == "PROBIT" or (probability and self.transform == "NONE")
        return best, of_two(ctx, score, self.transform, "complement" if complement else "negative")
