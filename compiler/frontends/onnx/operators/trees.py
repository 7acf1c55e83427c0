"""Ensembles of decision trees: TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.classifiers import class_labels, labelled
from nnefc.frontends.onnx.operators.tensors import Array, dtype_of, fail, input_at
from nnefc.operators.trees import AGGREGATES, MEMBER, MODES, TRANSFORMS, TreeClassifier, TreeEnsemble, Trees

__all__: list[str] = []

_ML = "ai.onnx.ml"


def _integers(given: Mapping[str, Any], name: str) -> list[int]:
    return [int(item) for item in given.get(name) or ()]


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
        [[(target, float(weight))] for target, weight in zip(targets, weights, strict=True)],
    )


def _led(node: Node, place: int, leaf: int) -> int:
    if place < 0:
        raise fail(node, "a tree leads to a node that does not exist")
    return -1 - place if leaf else place


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
    rest = iter(sets)
    return [next(rest) if mode == MEMBER else [] for mode in modes]


# TreeEnsembleRegressor and TreeEnsembleClassifier: nodes by tree and number, leaves among them.


def _named_trees(node: Node, kind: str) -> Trees:
    """`kind` is what the attributes of weights begin with: `target` or `class`."""
    given = node.attributes
    modes: Sequence[str] = given.get("nodes_modes") or ()
    keys = list(zip(_integers(given, "nodes_treeids"), _integers(given, "nodes_nodeids"), strict=False))
    features, yes, no = (_integers(given, f"nodes_{n}") for n in ("featureids", "truenodeids", "falsenodeids"))
    splits = _reals(given, "nodes_values")
    missing = _integers(given, "nodes_missing_value_tracks_true") or [0] * len(modes)
    if not modes or {len(c) for c in (keys, features, yes, no, splits, missing)} != {len(modes)}:
        raise fail(node, "the attributes of its nodes differ in their lengths")
    unknown = set(modes) - {*MODES[:MEMBER], "LEAF"}
    if unknown or len(set(keys)) != len(keys):
        raise fail(node, f"the mode '{min(unknown)}' is unknown" if unknown else "two nodes have the same number")
    inner = [index for index, mode in enumerate(modes) if mode != "LEAF"]
    leaves = [index for index, mode in enumerate(modes) if mode == "LEAF"]
    place = {keys[index]: number for number, index in enumerate(inner)}
    place |= {keys[index]: -1 - number for number, index in enumerate(leaves)}
    weights: list[list[tuple[int, float]]] = [[] for _ in leaves]
    columns = [_integers(given, f"{kind}_{name}") for name in ("treeids", "nodeids", "ids")]
    values = _reals(given, f"{kind}_weights")
    if {len(c) for c in columns} != {len(values)}:
        raise fail(node, "the attributes of its weights differ in their lengths")
    for tree, number, target, weight in zip(*columns, values, strict=True):
        leaf = place.get((tree, number))
        if leaf is None:
            raise fail(node, "a weight belongs to a node that does not exist")
        if leaf < 0:  # those of inner nodes count for nothing
            weights[-1 - leaf].append((target, float(weight)))
    children = dict.fromkeys((keys[i][0], c) for i in inner for c in (yes[i], no[i]))
    roots = [place[key] for key in keys if key not in children]
    missed = [child for child in children if child not in place]
    if missed or len(roots) != len({tree for tree, _ in keys}):
        raise fail(
            node, "a tree leads to a node that does not exist" if missed else "a tree does not have exactly one root"
        )
    return Trees(
        roots,
        [features[i] for i in inner],
        [MODES.index(modes[i]) for i in inner],
        np.asarray(splits)[inner],
        [missing[i] for i in inner],
        [place[keys[i][0], yes[i]] for i in inner],
        [place[keys[i][0], no[i]] for i in inner],
        [[] for _ in inner],
        weights,
    )


def _reals(given: Mapping[str, Any], name: str) -> Array:
    """An attribute of floats, or the tensor that stands in its place."""
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
