"""Ensembles of decision trees: TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.ml.classifiers import class_labels, labelled
from nnefc.frontends.onnx.operators.tensors import Array, dtype_of, fail, input_at
from nnefc.operators.ml.trees import AGGREGATES, MEMBER, MODES, TRANSFORMS, Leaves, TreeClassifier, TreeEnsemble, Trees

__all__: list[str] = []

_ML = "ai.onnx.ml"

_LEAF = "LEAF"
"""The mode of leaves."""


def _integers(given: Mapping[str, Any], name: str) -> list[int]:
    return [int(element) for element in given.get(name) or ()]


# TreeEnsemble: inner nodes and leaves have tables of their own.


@operator("TreeEnsemble", since=(5,), domain=_ML)
def _tree_ensemble(ctx: Context, node: Node) -> Any:
    x, given = input_at(node, 0), node.attributes
    aggregate, transform = given.get("aggregate_function", 1), given.get("post_transform", 0)
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(TRANSFORMS):
        raise fail(node, f"the aggregation {aggregate} or the transformation {transform} is unknown")
    targets = given.get("n_targets") or 1
    ensemble = TreeEnsemble(_trees(node), (), TRANSFORMS[transform], targets, AGGREGATES[aggregate], dtype_of(x))
    return ctx.apply(ensemble, x)


def _trees(node: Node) -> Trees:
    given = node.attributes
    columns = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
    features, yes, no, yes_leaf, no_leaf = (_integers(given, name) for name in columns)
    modes = [int(mode) for mode in given["nodes_modes"].reshape(-1)]
    targets, weights = _integers(given, "leaf_targetids"), given["leaf_weights"].reshape(-1)
    splits, missing = given["nodes_splits"].reshape(-1), _integers(given, "nodes_missing_value_tracks_true")
    lengths = {len(c) for c in (features, yes, no, yes_leaf, no_leaf, modes, splits, missing or modes)}
    if lengths != {len(features)} or len(targets) != len(weights) or not features:
        raise fail(node, "the tables of its nodes, or of its leaves, differ in their lengths")
    if any(not 0 <= mode < len(MODES) for mode in modes):
        raise fail(node, "a node has an unknown mode")
    return Trees(
        _integers(given, "tree_roots"),
        features,
        modes,
        splits,
        missing or [0] * len(features),
        [_led(node, *pair) for pair in zip(yes, yes_leaf, strict=True)],
        [_led(node, *pair) for pair in zip(no, no_leaf, strict=True)],
        _sets(node, modes, given.get("membership_values")),
        Leaves(np.arange(len(targets) + 1), np.array(targets, np.int64), weights),
    )


def _led(node: Node, position: int, leaf: int) -> int:
    if position < 0:
        raise fail(node, "a tree leads to a node that does not exist")
    return -1 - position if leaf else position


def _sets(node: Node, modes: Sequence[int], values: Array | None) -> list[list[float]]:
    """The sets of the nodes that have one; in the attribute NaN is between them."""
    sets: list[list[float]] = [[]]
    for value in [] if values is None else values.reshape(-1).tolist():
        if value != value:
            sets.append([])
        else:
            sets[-1].append(value)
    wanted = sum(mode == MEMBER for mode in modes)
    if len(sets) - (not sets[-1] and len(sets) > wanted) != wanted and (wanted or sets != [[]]):
        raise fail(node, f"{wanted} nodes need sets, 'membership_values' has {len(sets)}")
    tail = iter(sets)
    return [next(tail) if mode == MEMBER else [] for mode in modes]


# TreeEnsembleRegressor and TreeEnsembleClassifier: nodes by tree and number, leaves among them.


def _named_trees(node: Node, kind: str) -> Trees:
    """`kind` is what the attributes of weights begin with: `target` or `class`."""
    given = node.attributes
    modes = np.asarray(given.get("nodes_modes") or (), object)
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    trees, numbers, features, yes, no = (_column(given, f"nodes_{name}") for name in names)
    splits, missing = _reals(given, "nodes_values"), _column(given, "nodes_missing_value_tracks_true")
    missing = missing if len(missing) else np.zeros(len(modes), np.int64)
    lengths = {len(column) for column in (trees, numbers, features, yes, no, splits, missing)}
    if not len(modes) or lengths != {len(modes)}:
        raise fail(node, "the attributes of its nodes differ in their lengths")
    unknown = set(modes) - {*MODES[:MEMBER], _LEAF}
    keys = _Keys(trees, numbers)
    if unknown or not keys.are_distinct:
        raise fail(node, f"the mode '{min(unknown)}' is unknown" if unknown else "two nodes have the same number")
    numbered = {mode: number for number, mode in enumerate(MODES)} | {_LEAF: len(MODES)}
    codes = np.fromiter(map(numbered.__getitem__, modes), np.int8, len(modes))
    inner, leaves = np.flatnonzero(codes < len(MODES)), np.flatnonzero(codes == len(MODES))
    position = np.empty(len(codes), np.int32 if len(codes) < 1 << 31 else np.int64)
    position[inner], position[leaves] = np.arange(len(inner)), -1 - np.arange(len(leaves))
    weights = _leaf_weights(node, kind, keys, position, len(leaves))
    ways = [keys.find(trees[inner], children[inner]) for children in (yes, no)]
    below = np.zeros(len(codes), bool)
    for children in ways:
        below[children[children >= 0]] = True
    roots, missed = position[~below], any((children < 0).any() for children in ways)
    if missed or len(roots) != len(keys.trees):
        raise fail(
            node, "a tree leads to a node that does not exist" if missed else "a tree does not have exactly one root"
        )
    return Trees(
        roots,
        features[inner],
        codes[inner],
        np.asarray(splits)[inner],
        missing[inner],
        position[ways[0]],
        position[ways[1]],
        None,
        weights,
    )


def _leaf_weights(node: Node, kind: str, keys: _Keys, position: Array, leaves: int) -> Leaves:
    """The targets of leaves and their weights; those of inner nodes count for nothing."""
    columns = [_column(node.attributes, f"{kind}_{name}") for name in ("treeids", "nodeids", "ids")]
    values = _reals(node.attributes, f"{kind}_weights")
    if {len(column) for column in columns} != {len(values)}:
        raise fail(node, "the attributes of its weights differ in their lengths")
    found = keys.find(columns[0], columns[1])
    if (found < 0).any():
        raise fail(node, "a weight belongs to a node that does not exist")
    owners = position[found]
    of_leaves = owners < 0
    return Leaves.of(-1 - owners[of_leaves], columns[2][of_leaves], values[of_leaves], leaves)


class _Keys:
    """Nodes by tree and number.

    Attributes:
        trees: those that there are, ascending.
    """

    def __init__(self, trees: Array, numbers: Array) -> None:
        self.trees, self._numbers = np.unique(trees), np.unique(numbers)
        codes = self._codes(trees, numbers)
        self._order = np.argsort(codes, kind="stable")
        self._sorted = codes[self._order]

    @property
    def are_distinct(self) -> bool:
        """Whether no two nodes are the same."""
        return bool((np.diff(self._sorted) != 0).all())

    def find(self, trees: Array, numbers: Array) -> Array:
        """The positions of nodes; -1 for those that do not exist."""
        codes = self._codes(trees, numbers)
        at = np.minimum(np.searchsorted(self._sorted, codes), len(self._sorted) - 1)
        return np.where((codes >= 0) & (self._sorted[at] == codes), self._order[at], -1)

    def _codes(self, trees: Array, numbers: Array) -> Array:
        """A pair as one integer; -1 for trees or numbers that do not exist."""
        at, known = [], np.ones(len(trees), bool)
        for own, given in ((self.trees, trees), (self._numbers, numbers)):
            at.append(np.minimum(np.searchsorted(own, given), len(own) - 1))
            known &= own[at[-1]] == given
        return np.where(known, at[0] * len(self._numbers) + at[1], -1)


def _column(given: Mapping[str, Any], name: str) -> Array:
    """An attribute of integers."""
    found = given.get(name) or ()
    return np.array(found, np.int64) if isinstance(found, tuple) else np.asarray(found)


def _reals(given: Mapping[str, Any], name: str) -> Array:
    """An attribute of floats, or the tensor that stands for it."""
    tensor = given.get(f"{name}_as_tensor")
    return np.asarray(given.get(name) or (), np.float32) if tensor is None else tensor.reshape(-1)


def _base(node: Node) -> tuple[float, ...]:
    return tuple(map(float, _reals(node.attributes, "base_values")))


@operator("TreeEnsembleRegressor", since=(1, 3, 5), domain=_ML)
def _regressor(ctx: Context, node: Node) -> Any:
    given, trees = node.attributes, _named_trees(node, "target")
    targets = given.get("n_targets") or 1
    aggregate, transform = given["aggregate_function"], given["post_transform"]
    return ctx.apply(TreeEnsemble(trees, _base(node), transform, targets, aggregate, "float32"), input_at(node, 0))


@operator("TreeEnsembleClassifier", since=(1, 3, 5), domain=_ML)
def _classifier(ctx: Context, node: Node) -> Any:
    labels = class_labels(node, "classlabels_int64s", "classlabels_strings")
    trees, transform = _named_trees(node, "class"), node.attributes["post_transform"]
    made = ctx.apply(TreeClassifier(trees, _base(node), transform, len(labels)), input_at(node, 0))
    return labelled(ctx, made, labels)
