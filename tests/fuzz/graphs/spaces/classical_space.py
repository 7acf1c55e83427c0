"""Operators of the domain of classical models: scalers, linear models, support vectors, trees, encoders."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.declared import I32, I64, F, computed_indices, some, space

_DOMAIN = "ai.onnx.ml"
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def _table(w: Walk) -> Tensor:
    """A row of features for each example."""
    if w.floats != F:
        raise Rejected("features are of float32 or float64")
    return w.pick(ranks=[2], minimum=1)


def _reals(w: Walk, *shape: int) -> list[float]:
    """Random numbers of an attribute."""
    return [float(value) for value in np.ravel(w.random(shape))]


def _add(w: Walk, name: str, *inputs: Tensor, outputs: int = 1, **attributes: Any) -> list[Tensor]:
    return w.add(name, *inputs, outputs=outputs, domain=_DOMAIN, **attributes)


@space("Scaler")
def _scaler(w: Walk, name: str) -> object:
    x = _table(w)
    count = w.one(1, x.shape[1])
    return _add(w, name, x, offset=_reals(w, count), scale=_reals(w, count))


@space("Normalizer")
def _normalizer(w: Walk, name: str) -> object:
    return _add(w, name, _table(w), norm=w.one("MAX", "L1", "L2"))


@space("Binarizer")
def _binarizer(w: Walk, name: str) -> object:
    return _add(w, name, _table(w), **some(w, threshold=w.real(-1, 1)))


@space("Imputer")
def _imputer(w: Walk, name: str) -> object:
    x = _table(w)
    return _add(w, name, x, imputed_value_floats=_reals(w, w.one(1, x.shape[1])), replaced_value_float=float("nan"))


@space("ArrayFeatureExtractor")
def _features(w: Walk, name: str) -> object:
    x = _table(w)
    return _add(w, name, x, computed_indices(w, (1, w.number(1, 4)), x.shape[1]))


@space("FeatureVectorizer")
def _joined(w: Walk, name: str) -> object:
    first = _table(w)
    tables = [first, *(w.constant(w.random((first.shape[0], w.number(1, 5)))) for _ in range(w.number(0, 2)))]
    return _add(w, name, *tables, inputdimensions=[table.shape[1] for table in tables])


@space("LinearRegressor")
def _linear_regressor(w: Walk, name: str) -> object:
    x = _table(w)
    targets = w.number(1, 4)
    coefficients, intercepts = _reals(w, targets, x.shape[1]), _reals(w, targets)
    return _add(w, name, x, coefficients=coefficients, intercepts=intercepts, targets=targets)


@space("LinearClassifier")
def _linear_classifier(w: Walk, name: str) -> object:
    x = _table(w)
    classes = w.number(3, 5)
    return _add(
        w,
        name,
        x,
        outputs=2,
        coefficients=_reals(w, classes, x.shape[1]),
        intercepts=_reals(w, classes),
        classlabels_ints=_labels(w, classes),
        post_transform=w.one("NONE", "SOFTMAX", "LOGISTIC"),
    )


def _labels(w: Walk, count: int) -> list[int]:
    return [int(label) for label in w.rng.permutation(50)[:count]]


@space("SVMRegressor")
def _support_vectors(w: Walk, name: str) -> object:
    x = _table(w)
    count = w.number(1, 6)
    return _add(
        w,
        name,
        x,
        coefficients=_reals(w, count),
        support_vectors=_reals(w, count, x.shape[1]),
        n_supports=count,
        rho=_reals(w, 1),
        kernel_type=w.one(*_KERNELS),
        kernel_params=[w.real(0.05, 0.3), w.real(-0.5, 0.5), float(w.number(1, 3))],
    )


def _trees(w: Walk, features: int) -> tuple[dict[str, list[Any]], list[tuple[int, int]]]:
    """The inner nodes and leaves of some trees as attributes; of each leaf, its tree and its number in it."""
    parts = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{part}": [] for part in parts}
    leaves = []
    for tree in range(w.number(1, 4)):
        made, waiting = 1, [(0, w.number(0, 3))]
        while waiting:
            number, depth = waiting.pop()
            is_leaf = depth == 0 or w.chance(0.2)
            below = (0, 0) if is_leaf else (made, made + 1)
            mode = "LEAF" if is_leaf else w.one(*_MODES)
            row = (tree, number, w.number(0, features - 1), mode, w.real(-2, 2), *below)
            for part, value in zip(nodes.values(), row, strict=True):
                part.append(value)
            if is_leaf:
                leaves.append((tree, number))
            else:
                made += 2
                waiting += [(child, depth - 1) for child in below]
    return nodes, leaves


@space("TreeEnsembleRegressor")
def _tree_regressor(w: Walk, name: str) -> object:
    x = _table(w)
    nodes, leaves = _trees(w, x.shape[1])
    targets = w.number(1, 3)
    return _add(
        w,
        name,
        x,
        **nodes,
        n_targets=targets,
        target_treeids=[tree for tree, _ in leaves],
        target_nodeids=[number for _, number in leaves],
        target_ids=[w.number(0, targets - 1) for _ in leaves],
        target_weights=_reals(w, len(leaves)),
        aggregate_function=w.one("SUM", "SUM", "AVERAGE", "MIN", "MAX"),
        **some(w, base_values=_reals(w, targets)),
    )


@space("TreeEnsembleClassifier")
def _tree_classifier(w: Walk, name: str) -> object:
    x = _table(w)
    nodes, leaves = _trees(w, x.shape[1])
    classes = w.number(3, 5)
    if len(leaves) < 2:
        raise Rejected("the reference takes one class alone for one of two")
    return _add(
        w,
        name,
        x,
        outputs=2,
        **nodes,
        class_treeids=[tree for tree, _ in leaves],
        class_nodeids=[number for _, number in leaves],
        class_ids=[0, 1, *(w.number(0, classes - 1) for _ in leaves[2:])],
        class_weights=_reals(w, len(leaves)),
        classlabels_int64s=_labels(w, classes),
        post_transform=w.one("NONE", "SOFTMAX", "LOGISTIC"),
    )


@space("OneHotEncoder")
def _one_hot(w: Walk, name: str) -> object:
    x = w.pick([I64, I32], ranks=range(1, 4))
    if w.floats != F:
        raise Rejected("it gives float32")
    return _add(w, name, x, cats_int64s=[int(each) for each in w.rng.permutation(12)[: w.number(1, 8)] - 5], zeros=1)


@space("LabelEncoder")
def _encoded(w: Walk, name: str) -> object:
    x = w.pick([I64], ranks=range(4))
    keys = [int(each) for each in w.rng.permutation(12)[: w.number(1, 8)] - 5]
    if w.floats == F and w.chance(0.5):
        values = {"values_floats": _reals(w, len(keys)), "default_float": w.real(-1, 1)}
    else:
        values = {"values_int64s": [w.number(-99, 99) for _ in keys], "default_int64": w.number(-9, 9)}
    return _add(w, name, x, keys_int64s=keys, **values)


@space("TfIdfVectorizer")
def _word_counts(w: Walk, name: str) -> object:
    """Of words that are numbers, alone and in pairs with others between them."""
    if w.floats != F:
        raise Rejected("of float32 alone")
    x = w.new_input(tuple(w.number(1, 9) for _ in range(w.number(1, 2))), w.one(I32, I64))
    singles = w.rng.choice(np.arange(-9, 10), w.number(1, 6), replace=False).tolist()
    pairs = w.rng.choice(np.arange(-9, 10), (w.number(1, 4), 2)).tolist()
    pairs = [list(pair) for pair in dict.fromkeys(map(tuple, pairs))]
    count = len(singles) + len(pairs)
    given = {
        "mode": w.one("TF", "IDF", "TFIDF"),
        "min_gram_length": w.number(1, 2),
        "max_gram_length": 2,
        "max_skip_count": w.number(0, 3),
        "pool_int64s": [*singles, *(word for pair in pairs for word in pair)],
        "ngram_counts": [0, len(singles)],
        "ngram_indexes": w.rng.permutation(count).tolist(),
    }
    return w.add(name, x, **given, **some(w, weights=[w.real(0.1, 3) for _ in range(count)]))
