"""Ensembles of decision trees: TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor.

Trees become tables. Each sample goes from the root of each tree to a leaf, in one kernel:

    here = root
    while here is an inner node:
        here = yes[here] if x[feature[here]] compares as mode[here] with split[here] else no[here]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from tvm import tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import converted
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.loops import T, looped
from nnefc.frontends.onnx.operators.tensors import Array, compute, dtype_of, fail, input_at, known, reshaped, shape_of

__all__: list[str] = []

_ML = "ai.onnx.ml"
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_MEMBER = _MODES.index("BRANCH_MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(frozen=True)
class _Trees:
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


def _check(node: Node, trees: _Trees, features: int, targets: int) -> None:
    """Every place exists, and from a root every node is reached once at most, so that each way ends."""
    count = len(trees.features)
    if any(not 0 <= feature < features for feature in trees.features):
        raise fail(node, f"a tree looks at a feature that the input, with {features}, does not have")
    if any(not 0 <= target < targets for leaf in trees.leaves for target, _ in leaf):
        raise fail(node, f"a leaf has a target that is none of the {targets}")
    seen = [False] * count
    waiting = list(trees.roots)
    while waiting:
        place = waiting.pop()
        if not -len(trees.leaves) <= place < count:
            raise fail(node, "a tree leads to a node that does not exist")
        if place < 0:
            continue
        if seen[place]:
            raise fail(node, "two ways lead to one node of a tree")
        seen[place] = True
        waiting += [trees.yes[place], trees.no[place]]


# How a value lies to a split, as bits; and which of them mean yes, by the number of the mode.
_LESS, _EQUAL, _GREATER, _MISSING, _IN_SET = 1, 2, 4, 8, 16
_YES = (_LESS | _EQUAL, _LESS, _GREATER | _EQUAL, _GREATER, _EQUAL, _LESS | _GREATER | _MISSING, _IN_SET)


def _walked(ctx: Context, x: Value, trees: _Trees) -> Value:
    """The leaf that each sample comes to in each tree, int32 `[samples, trees]`."""
    samples, width = shape_of(x)
    work = dtype_of(x)
    ends = np.cumsum([0, *map(len, trees.members)])
    tables = [
        np.array(column, dtype)
        for column, dtype in (
            (trees.roots, np.int32),
            (trees.features or [0], np.int32),
            (
                [_YES[m] | (_MISSING if nan else 0) for m, nan in zip(trees.modes, trees.missing, strict=True)] or [0],
                np.int32,
            ),
            (trees.yes or [0], np.int32),
            (trees.no or [0], np.int32),
            (ends, np.int32),
        )
    ]
    splits = np.asarray(trees.splits if len(trees.splits) else [0], work)
    members = np.array([v for own in trees.members for v in own] or [0], work)
    ways = len(trees.roots)
    sets = _MEMBER in trees.modes

    def write(*buffers: Any) -> None:
        x, roots, features, accepted, yes, no, ends, splits, members, out, state = buffers
        with T.serial(0, samples) as sample, T.serial(0, ways) as tree:
            state[0] = roots[tree]
            with T.While(state[0] >= 0):
                here = T.bind(state[0])
                value = T.bind(x[sample * width + features[here]])
                split = T.bind(splits[here])
                less, equal, greater, missing = (
                    tirx.const(bit, "int32") for bit in (_LESS, _EQUAL, _GREATER, _MISSING)
                )
                ordered = tirx.Select(value < split, less, tirx.Select(value == split, equal, greater))
                state[1] = tirx.Select(tirx.isnan(value), missing, ordered)
                if sets:
                    with T.serial(0, ends[here + 1] - ends[here]) as k:
                        found = (value == members[ends[here] + k]).astype("int32")
                        state[1] = state[1] | (found * tirx.const(_IN_SET, "int32"))
                state[0] = tirx.Select((state[1] & accepted[here]) != 0, yes[here], no[here])
            out[sample * ways + tree] = tirx.const(-1, "int32") - state[0]

    values = [x, *(known(ctx, table) for table in (*tables, splits, members))]
    return looped(ctx, write, values, [((samples, ways), "int32"), ((2,), "int32")], "walk_trees")[0]


def _scores(
    ctx: Context, leaves: Value, trees: _Trees, targets: int, aggregate: str, dtype: str
) -> tuple[Value, Value]:
    """What the leaves add up to, `[samples, targets]`, and which targets had any: 0 or 1."""
    (samples, ways), work = shape_of(leaves), dtype
    begin = np.cumsum([0, *map(len, trees.leaves)]).astype(np.int32)
    flat = [pair for leaf in trees.leaves for pair in leaf] or [(0, 0.0)]
    ids = np.array([target for target, _ in flat], np.int32)
    weights = np.array([weight for _, weight in flat], work)

    def write(leaves: Any, begin: Any, ids: Any, weights: Any, out: Any, hit: Any) -> None:
        with T.serial(0, samples * targets) as place:
            out[place] = tirx.const(0, work)
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

    values = [leaves, *(known(ctx, table) for table in (begin, ids, weights))]
    shape = (samples, targets)
    scores, hits = looped(ctx, write, values, [(shape, work), (shape, "int32")], "add_leaves")
    if aggregate == "AVERAGE":
        scores = binary(ctx, "Div", scores, known(ctx, np.array(ways, work)))
    return scores, hits


def _transformed(ctx: Context, node: Node, scores: Value, transform: str) -> Value:
    match transform:
        case "NONE":
            return scores
        case "SOFTMAX":
            return cast(Value, ctx.call("Softmax", scores, axis=1)[0])
        case "LOGISTIC":
            return cast(Value, ctx.call("Sigmoid", scores)[0])
        case "SOFTMAX_ZERO":
            return _softmax_of_others(ctx, scores)
    raise fail(node, f"the transformation '{transform}' of scores is not supported")


def _softmax_of_others(ctx: Context, scores: Value) -> Value:
    """A softmax of the scores that are not zero; the others stay so."""
    used = compute(
        ctx,
        shape_of(scores),
        lambda t, i: tirx.Select(t[0](*i) != tirx.const(0, dtype_of(scores)), *_one_and_zero(dtype_of(scores))),
        scores,
        name="used",
    )
    most = ctx.call("ReduceMax", scores, known(ctx, np.array([1])), keepdims=1)[0]
    powers = binary(ctx, "Mul", cast(Value, ctx.call("Exp", ctx.call("Sub", scores, most)[0])[0]), used)
    total = cast(Value, ctx.call("ReduceSum", powers, known(ctx, np.array([1])), keepdims=1)[0])
    some = compute(
        ctx,
        shape_of(total),
        lambda t, i: tirx.Select(
            t[0](*i) > tirx.const(0, dtype_of(scores)), t[0](*i), _one_and_zero(dtype_of(scores))[0]
        ),
        total,
        name="total",
    )
    return binary(ctx, "Div", powers, some)


def _one_and_zero(dtype: str) -> tuple[Any, Any]:
    return tirx.const(1, dtype), tirx.const(0, dtype)


def _samples(ctx: Context, node: Node, work: str) -> Value:
    """The input as a matrix of reals; one sample may be a vector."""
    x = input_at(node, 0)
    if len(shape_of(x)) == 1:
        x = reshaped(ctx, x, (1, *shape_of(x)))
    if len(shape_of(x)) != 2 or 0 in shape_of(x):
        raise fail(node, f"the input {list(shape_of(x))} is no matrix of samples and features")
    return converted(ctx, x, work)


# TreeEnsemble: inner nodes and leaves have tables of their own.


@operator("TreeEnsemble", since=(5,), domain=_ML)
def _tree_ensemble(ctx: Context, node: Node) -> Value:
    given = node.attributes
    dtype = dtype_of(input_at(node, 0))
    x = _samples(ctx, node, "float64" if dtype == "float64" else "float32")
    columns = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
    features, yes, no, yes_leaf, no_leaf = (_integers(given, name) for name in columns)
    modes = [int(mode) for mode in given["nodes_modes"].reshape(-1)]
    targets, weights = _integers(given, "leaf_targetids"), given["leaf_weights"].reshape(-1)
    splits, missing = given["nodes_splits"].reshape(-1), _integers(given, "nodes_missing_value_tracks_true")
    lengths = {len(c) for c in (features, yes, no, yes_leaf, no_leaf, modes, splits, missing or modes)}
    if lengths != {len(features)} or len(targets) != len(weights) or not features:
        raise fail(node, "the tables of its nodes, or of its leaves, differ in their lengths")
    if any(not 0 <= mode < len(_MODES) for mode in modes):
        raise fail(node, "a node has an unknown mode")
    trees = _Trees(
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
    count = given.get("n_targets") or 1
    aggregate, transform = given.get("aggregate_function", 1), given.get("post_transform", 0)
    if not 0 <= aggregate < len(_AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        raise fail(node, f"the aggregation {aggregate} or the transformation {transform} is unknown")
    _check(node, trees, shape_of(x)[1], count)
    scores, _ = _scores(ctx, _walked(ctx, x, trees), trees, count, _AGGREGATES[aggregate], dtype_of(x))
    return converted(ctx, _transformed(ctx, node, scores, _TRANSFORMS[transform]), dtype)


def _integers(given: Mapping[str, Any], name: str) -> list[int]:
    return [int(item) for item in given.get(name) or ()]


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
    wanted = sum(mode == _MEMBER for mode in modes)
    if len(sets) - (not sets[-1] and len(sets) > wanted) != wanted and (wanted or sets != [[]]):
        raise fail(node, f"{wanted} nodes need sets, 'membership_values' has {len(sets)}")
    rest = iter(sets)
    return [next(rest) if mode == _MEMBER else [] for mode in modes]


# TreeEnsembleRegressor and TreeEnsembleClassifier: nodes by tree and number, leaves among them.


def _named_trees(node: Node, kind: str) -> _Trees:
    """`kind` is what the attributes of weights begin with: `target` or `class`."""
    given = node.attributes
    modes: Sequence[str] = given.get("nodes_modes") or ()
    keys = list(zip(_integers(given, "nodes_treeids"), _integers(given, "nodes_nodeids"), strict=False))
    features, yes, no = (_integers(given, f"nodes_{n}") for n in ("featureids", "truenodeids", "falsenodeids"))
    splits = _reals(given, "nodes_values")
    missing = _integers(given, "nodes_missing_value_tracks_true") or [0] * len(modes)
    if not modes or {len(c) for c in (keys, features, yes, no, splits, missing)} != {len(modes)}:
        raise fail(node, "the attributes of its nodes differ in their lengths")
    unknown = set(modes) - {*_MODES[:_MEMBER], "LEAF"}
    if unknown or len(set(keys)) != len(keys):
        raise fail(node, f"the mode '{unknown.pop()}' is unknown" if unknown else "two nodes have one number")
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
            raise fail(node, "a weight is of a node that does not exist")
        if leaf < 0:  # those of inner nodes count for nothing
            weights[-1 - leaf].append((target, float(weight)))
    children = {(keys[i][0], c) for i in inner for c in (yes[i], no[i])}
    roots = [place[key] for key in keys if key not in children]
    missed = [child for child in children if child not in place]
    if missed or len(roots) != len({tree for tree, _ in keys}):
        raise fail(node, "a tree leads to a node that does not exist" if missed else "a tree has not exactly one root")
    return _Trees(
        roots,
        [features[i] for i in inner],
        [_MODES.index(modes[i]) for i in inner],
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


def _work(node: Node) -> str:
    double = dtype_of(input_at(node, 0)) == "float64"
    return "float64" if double else "float32"


def _with_base(ctx: Context, node: Node, scores: Value, count: int) -> Value:
    base = _reals(node.attributes, "base_values")
    if not base.size:
        return scores
    if base.size != count:
        raise fail(node, f"there are {base.size} base values for {count} scores")
    return binary(ctx, "Add", scores, known(ctx, base.astype(dtype_of(scores)).reshape(1, count)))


@operator("TreeEnsembleRegressor", since=(1, 3, 5), domain=_ML)
def _regressor(ctx: Context, node: Node) -> Value:
    x, trees = _samples(ctx, node, _work(node)), _named_trees(node, "target")
    count = node.attributes.get("n_targets") or 1
    _check(node, trees, shape_of(x)[1], count)
    aggregate = node.attributes["aggregate_function"]
    if aggregate not in _AGGREGATES:
        raise fail(node, f"the aggregation '{aggregate}' is unknown")
    scores, _ = _scores(ctx, _walked(ctx, x, trees), trees, count, aggregate, dtype_of(x))
    scores = _transformed(ctx, node, _with_base(ctx, node, scores, count), node.attributes["post_transform"])
    return converted(ctx, scores, "float32")


@operator("TreeEnsembleClassifier", since=(1, 3, 5), domain=_ML)
def _classifier(ctx: Context, node: Node) -> list[Value]:
    """Labels are integers."""
    labels = _integers(node.attributes, "classlabels_int64s")
    if not labels:
        raise fail(node, "labels that are strings are not supported")
    x, trees = _samples(ctx, node, _work(node)), _named_trees(node, "class")
    _check(node, trees, shape_of(x)[1], len(labels))
    scores, _ = _scores(ctx, _walked(ctx, x, trees), trees, len(labels), "SUM", dtype_of(x))
    transform = node.attributes["post_transform"]
    if len(labels) == 2 and {target for leaf in trees.leaves for target, _ in leaf} == {0}:
        return _of_two(ctx, node, trees, scores, labels, transform)
    scores = _with_base(ctx, node, scores, len(labels))
    best = cast(Value, ctx.call("ArgMax", scores, axis=1, keepdims=0)[0])
    return [_labels(ctx, labels, best), _transformed(ctx, node, converted(ctx, scores, "float32"), transform)]


def _labels(ctx: Context, labels: Sequence[int], places: Value) -> Value:
    return cast(Value, ctx.call("Gather", known(ctx, np.array(labels, np.int64)), places, axis=0)[0])


def _of_two(
    ctx: Context, node: Node, trees: _Trees, scores: Value, labels: Sequence[int], transform: str
) -> list[Value]:
    """Two classes, weights of one: its score is a probability if no weight is negative, else it decides by its sign.

    So do engines; the standard does not say.
    """
    base = _reals(node.attributes, "base_values")
    if base.size > 1 or transform not in ("NONE", "LOGISTIC"):
        raise fail(node, f"two classes with the weights of one, {base.size} base values and '{transform}'")
    positive = all(weight >= 0 for leaf in trees.leaves for _, weight in leaf)
    shift = float(base[0]) if base.size else 0.0
    limit = 0.5 if positive else 0.0
    samples, dtype = shape_of(scores)[0], dtype_of(scores)

    def place(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        score = tensors[0](index[0], 0) + tirx.const(shift, dtype)
        return (score > tirx.const(limit, dtype)).astype("int64")

    def both(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        score = tensors[0](index[0], 0) + tirx.const(shift, dtype)
        other = tirx.const(1, dtype) - score if positive else tirx.const(0, dtype) - score
        return tirx.Select(index[1] == 1, score, other).astype("float32")

    pair = compute(ctx, (samples, 2), both, scores, name="scores")
    best = compute(ctx, (samples,), place, scores, name="best")
    return [_labels(ctx, labels, best), pair if positive else _transformed(ctx, node, pair, transform)]
