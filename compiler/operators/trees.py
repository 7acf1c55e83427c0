"""Ensembles of decision trees, as tables; each sample goes from the root of each tree to a leaf, in one kernel:

here = root
while here is an inner node:
    here = yes[here] if x[feature[here]] compares as mode[here] with split[here] else no[here]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from nnefc.diagnostics import CompileError
from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.indexing import Gather
from nnefc.operators.reduction import ArgExtreme
from nnefc.operators.scores import TRANSFORMS, transformed
from nnefc.operators.statements import T, looped

__all__ = ["AGGREGATES", "MEMBER", "MODES", "TRANSFORMS", "TreeClassifier", "TreeEnsemble", "Trees"]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""How a value is compared with a split, or looked for in a set."""

MEMBER = MODES.index("BRANCH_MEMBER")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees as tables.

    Attributes:
        roots: of each tree: an inner node, or leaf `i` as `-1 - i`, as everywhere.
        features, modes, splits, missing: of each inner node: what it looks at, how, and whether NaN says yes.
        yes, no: where it leads.
        members: of each inner node, the values of its set; for `BRANCH_MEMBER`.
        leaves: of each leaf, its targets and their weights.
    """

    roots: Sequence[int]
    features: Sequence[int]
    modes: Sequence[int]
    splits: Array
    missing: Sequence[int]
    yes: Sequence[int]
    no: Sequence[int]
    members: Sequence[Sequence[float]]
    leaves: Sequence[Sequence[tuple[int, float]]]

    def check(self, features: int, targets: int) -> None:
        """Check that every place exists, and that from a root each node is reached at most once: each way ends.

        Raises:
            CompileError: it does not.
        """
        count = len(self.features)
        if any(not 0 <= feature < features for feature in self.features):
            raise CompileError(f"a tree tests a feature that the input does not have: it has {features}")
        if any(not 0 <= target < targets for leaf in self.leaves for target, _ in leaf):
            raise CompileError(f"a leaf has a target that does not exist: there are {targets}")
        seen = [False] * count
        waiting = list(self.roots)
        while waiting:
            place = waiting.pop()
            if not -len(self.leaves) <= place < count:
                raise CompileError("a tree leads to a node that does not exist")
            if place < 0:
                continue
            if seen[place]:
                raise CompileError("two branches lead to the same node of a tree")
            seen[place] = True
            waiting += [self.yes[place], self.no[place]]


# How a value compares with a split, as bits; and which of them mean yes, by the number of the mode.
_LESS, _EQUAL, _GREATER, _MISSING, _IN_SET = 1, 2, 4, 8, 16
_YES = (_LESS | _EQUAL, _LESS, _GREATER | _EQUAL, _GREATER, _EQUAL, _LESS | _GREATER | _MISSING, _IN_SET)


def _walked(at: Emitter, x: Operand, trees: Trees) -> Operand:
    """The leaf that each sample comes to in each tree, int32 `[samples, trees]`."""
    (samples, width), work = shape_of(x), dtype_of(x)
    accepted = [_YES[m] | (_MISSING if nan else 0) for m, nan in zip(trees.modes, trees.missing, strict=True)]
    members = [value for own in trees.members for value in own]
    columns = (
        (trees.roots, "int32"),
        (trees.features, "int32"),
        (accepted, "int32"),
        (trees.yes, "int32"),
        (trees.no, "int32"),
        (np.cumsum([0, *map(len, trees.members)]), "int32"),
        (trees.splits, work),
        (members, work),
    )
    tables = [np.array(column if len(column) else [0], dtype) for column, dtype in columns]
    ways, sets = len(trees.roots), MEMBER in trees.modes

    def write(*buffers: Any) -> None:
        x, roots, features, accepted, yes, no, ends, splits, members, out, state = buffers
        less, equal, greater, missing = (tirx.const(bit, "int32") for bit in (_LESS, _EQUAL, _GREATER, _MISSING))
        with T.serial(0, samples) as sample, T.serial(0, ways) as tree:
            state[0] = roots[tree]
            with T.While(state[0] >= 0):
                here = T.bind(state[0])
                value = T.bind(x[sample * width + features[here]])
                split = T.bind(splits[here])
                ordered = tirx.Select(value < split, less, tirx.Select(value == split, equal, greater))
                state[1] = tirx.Select(tirx.isnan(value), missing, ordered)
                if sets:
                    with T.serial(0, ends[here + 1] - ends[here]) as k:
                        found = (value == members[ends[here] + k]).astype("int32")
                        state[1] = state[1] | (found * tirx.const(_IN_SET, "int32"))
                state[0] = tirx.Select((state[1] & accepted[here]) != 0, yes[here], no[here])
            out[sample * ways + tree] = tirx.const(-1, "int32") - state[0]

    return looped(at, write, [x, *tables], [((samples, ways), "int32"), ((2,), "int32")], "walk_trees")[0]


def _scores(at: Emitter, leaves: Operand, trees: Trees, targets: int, aggregate: str, dtype: str) -> Operand:
    """What the leaves add up to, `[samples, targets]`."""
    samples, ways = shape_of(leaves)
    begin = np.cumsum([0, *map(len, trees.leaves)]).astype(np.int32)
    flat = [pair for leaf in trees.leaves for pair in leaf] or [(0, 0.0)]
    ids = np.array([target for target, _ in flat], np.int32)
    weights = np.array([weight for _, weight in flat], dtype)

    def write(leaves: Any, begin: Any, ids: Any, weights: Any, out: Any, hit: Any) -> None:
        with T.serial(0, samples * targets) as place:
            out[place] = tirx.const(0, dtype)
            hit[place] = tirx.const(0, "int32")
        with T.serial(0, samples) as sample, T.serial(0, ways) as tree:
            leaf = T.bind(leaves[sample * ways + tree])
            with T.serial(0, begin[leaf + 1] - begin[leaf]) as k:
                weight = T.bind(weights[begin[leaf] + k])
                place = T.bind(sample * targets + ids[begin[leaf] + k])
                if aggregate in ("SUM", "AVERAGE"):
                    out[place] = out[place] + weight
                else:
                    better = weight < out[place] if aggregate == "MIN" else weight > out[place]
                    out[place] = tirx.Select(tirx.any(hit[place] == 0, better), weight, out[place])
                hit[place] = tirx.const(1, "int32")

    shape = (samples, targets)
    scores, _ = looped(at, write, [leaves, begin, ids, weights], [(shape, dtype), (shape, "int32")], "add_leaves")
    if aggregate == "AVERAGE":
        return at.emit(relax.op.divide(at.expr(scores), at.expr(at.number(ways, scores))))
    return scores


def _cast(at: Emitter, x: Operand, dtype: str) -> Operand:
    x = at.bound(x)
    return x if dtype_of(x) == dtype else at.emit(relax.op.astype(at.expr(x), dtype))


@dataclass(frozen=True, eq=False)
class _Ensemble(Operator):
    """What ensembles have in common.

    Attributes:
        trees: the trees.
        base: added to the scores, one for each target, or none.
        transform: one of `TRANSFORMS`.
    """

    trees: Trees
    base: tuple[float, ...]
    transform: str

    def _added(self, at: Emitter, x: Operand, targets: int, aggregate: str) -> Operand:
        """The scores of samples `[samples, features]`, or of one as a vector, in float32 or float64."""
        if len(shape_of(x)) == 1:
            x = at.reshaped(x, (1, *shape_of(x)))
        if len(shape_of(x)) != 2 or 0 in shape_of(x):
            raise CompileError(f"the input {list(shape_of(x))} is not a matrix of samples and features")
        self.trees.check(shape_of(x)[1], targets)
        work = "float64" if dtype_of(x) == "float64" else "float32"
        x = _cast(at, x, work)
        return _scores(at, _walked(at, x, self.trees), self.trees, targets, aggregate, work)

    def _with_base(self, at: Emitter, scores: Operand) -> Operand:
        count = shape_of(scores)[1]
        if not self.base:
            return scores
        if len(self.base) != count:
            raise CompileError(f"there are {len(self.base)} base values for {count} scores")
        base = np.array([self.base]).astype(at.number(0, scores).dtype)
        return at.emit(relax.op.add(at.expr(scores), at.expr(base)))


@dataclass(frozen=True, eq=False)
class TreeEnsemble(_Ensemble):
    """What the leaves that a sample comes to add up to, `[samples, targets]`.

    ai.onnx.ml `TreeEnsemble`, `TreeEnsembleRegressor`.

    Attributes:
        targets: how many.
        aggregate: how the weights of leaves become a score, one of `AGGREGATES`.
        dtype: of the result.
    """

    targets: int
    aggregate: str
    dtype: str

    def shape(self, x: Shape) -> Shape:
        """A row for each sample."""
        return (x[0] if len(x) == 2 else 1, self.targets)

    def lower(self, at: Emitter, x: Operand) -> Operand:
        if self.aggregate not in AGGREGATES:
            raise CompileError(f"the aggregation '{self.aggregate}' is unknown")
        scores = self._with_base(at, self._added(at, x, self.targets, self.aggregate))
        return _cast(at, transformed(at, scores, self.transform), self.dtype)


@dataclass(frozen=True, eq=False)
class TreeClassifier(_Ensemble):
    """The class with the highest score, int64, and all scores, float32. ai.onnx.ml `TreeEnsembleClassifier`.

    Attributes:
        labels: what classes are called.
    """

    labels: tuple[int, ...]

    def shape(self, x: Shape) -> tuple[Shape, Shape]:
        """A label, and a row of scores, for each sample."""
        samples = x[0] if len(x) == 2 else 1
        return (samples,), (samples, len(self.labels))

    def lower(self, at: Emitter, x: Operand) -> tuple[Operand, Operand]:
        scores = self._added(at, x, len(self.labels), "SUM")
        if len(self.labels) == 2 and {target for leaf in self.trees.leaves for target, _ in leaf} == {0}:
            return self._of_two(at, scores)
        scores = self._with_base(at, scores)
        best = at.apply(ArgExtreme((1,)), scores)
        return self._labelled(at, best), transformed(at, _cast(at, scores, "float32"), self.transform)

    def _labelled(self, at: Emitter, classes: Operand) -> Operand:
        return at.apply(Gather(), np.array(self.labels, np.int64), classes)

    def _of_two(self, at: Emitter, scores: Operand) -> tuple[Operand, Operand]:
        """Two classes, weights of one: its score is a probability if no weight is negative, else its sign decides.

        So do engines; the standard does not say.
        """
        if len(self.base) > 1 or self.transform not in ("NONE", "LOGISTIC"):
            raise CompileError(
                f"two classes with the weights of one, {len(self.base)} base values and '{self.transform}'"
            )
        positive = all(weight >= 0 for leaf in self.trees.leaves for _, weight in leaf)
        samples, dtype = shape_of(scores)[0], dtype_of(scores)
        shift = tirx.const(sum(self.base), dtype)

        def place(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            return (tensors[0](index[0], 0) + shift > tirx.const(0.5 if positive else 0.0, dtype)).astype("int64")

        def both(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            score = tensors[0](index[0], 0) + shift
            other = tirx.const(1 if positive else 0, dtype) - score
            return tirx.Select(index[1] == 1, score, other).astype("float32")

        pair = at.emit(at.elements((samples, 2), both, scores, name="scores"))
        best = at.emit(at.elements((samples,), place, scores, name="best"))
        return self._labelled(at, best), pair if positive else transformed(at, pair, self.transform)
