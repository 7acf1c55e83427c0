"""Decision trees and n-grams, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_models import info, save

import nnefc
from nnefc.frontends.onnx import load
from nnefc.support.diagnostics import CompileError

ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


class Forest:
    """Random trees, in the attributes of TreeEnsembleRegressor and TreeEnsembleClassifier."""

    def __init__(self, seed: int, features: int, targets: int, modes: tuple[str, ...] = MODES, low: float = -1) -> None:
        self.random = np.random.default_rng(seed)
        self.features, self.targets, self.modes, self.low = features, targets, modes, low
        names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids", "modes", "values")
        self.nodes: dict[str, list[Any]] = {name: [] for name in (*names, "missing_value_tracks_true")}
        self.weights: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

    def grow(self, tree: int, depth: int, counter: list[int]) -> int:
        own, counter[0] = counter[0], counter[0] + 1
        row = len(self.nodes["modes"])
        leaf = depth == 0 or (self.random.random() < 0.2 and own > 0)
        values = (tree, own, int(self.random.integers(self.features)), 0, 0)
        for name, value in zip(self.nodes, values, strict=False):
            self.nodes[name].append(value)
        self.nodes["modes"].append("LEAF" if leaf else str(self.random.choice(self.modes)))
        self.nodes["values"].append(float(self.random.integers(-3, 4)) / 2)
        self.nodes["missing_value_tracks_true"].append(int(self.random.integers(2)))
        if leaf:
            for target in self.random.permutation(self.targets)[: self.random.integers(1, self.targets + 1)]:
                weight = float(np.float32(self.random.uniform(self.low, 1)))
                for name, value in zip(self.weights, (tree, own, int(target), weight), strict=True):
                    self.weights[name].append(value)
            return own
        self.nodes["truenodeids"][row] = self.grow(tree, depth - 1, counter)
        self.nodes["falsenodeids"][row] = self.grow(tree, depth - 1, counter)
        return own

    def attributes(self, kind: str, trees: int) -> dict[str, Any]:
        for tree in range(trees):
            self.grow(tree, 4, [0])
        found = {f"nodes_{name}": values for name, values in self.nodes.items()}
        for name, values in self.weights.items():
            found[f"{kind}_{name}"] = values
        return found


def compare(
    folder: Path, op: str, x: np.ndarray, kinds: list[int], domain: str = ML, version: int = 3, **attributes: Any
) -> None:
    names = [f"y{index}" for index in range(len(kinds))]
    made = helper.make_node(op, ["x"], names, domain=domain, **attributes)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    graph = helper.make_graph([made], "g", [info("x", x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))], outputs)
    imports = [helper.make_opsetid("", 19)] + ([helper.make_opsetid(domain, version)] if domain else [])
    path = save(helper.make_model(graph, opset_imports=imports, ir_version=9), folder)
    wanted = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with nnefc.compile(path).load() as model:
        found = list(model.run({"x": x}).values())
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def samples(dtype: type = np.float32, missing: bool = True) -> np.ndarray:
    """Halves and wholes, so that splits are met exactly, and values that are missing."""
    random = np.random.default_rng(2)
    x = (random.integers(-4, 5, (37, 5)) / 2).astype(dtype)
    if missing:
        x[random.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize(
    ("aggregate", "transform", "dtype"),
    [("SUM", "NONE", np.float32), ("AVERAGE", "LOGISTIC", np.float64), ("MIN", "NONE", np.float32)],
)
@pytest.mark.sample(1)
def test_regressors_agree_with_onnxruntime(tmp_path: Path, aggregate: str, transform: str, dtype: type) -> None:
    forest = Forest(1, 5, 3).attributes("target", 6)
    base = {} if aggregate == "MIN" else {"base_values": [0.5, -1.0, 2.0]}
    more = {"aggregate_function": aggregate, "post_transform": transform, "n_targets": 3, **base}
    compare(tmp_path, "TreeEnsembleRegressor", samples(dtype), [TensorProto.FLOAT], **forest, **more)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.sample(1)
def test_classifiers_agree_with_onnxruntime(tmp_path: Path, transform: str) -> None:
    forest = Forest(2, 5, 3).attributes("class", 5)
    more = {"classlabels_int64s": [10, 7, -3], "post_transform": transform}
    kinds = [TensorProto.INT64, TensorProto.FLOAT]
    compare(tmp_path, "TreeEnsembleClassifier", samples(), kinds, **forest, **more)


@pytest.mark.parametrize(("low", "transform"), [(0, "NONE"), (-1, "NONE"), (-1, "LOGISTIC")])
@pytest.mark.sample(1)
def test_two_classes_with_the_weights_of_one_agree_with_onnxruntime(tmp_path: Path, low: int, transform: str) -> None:
    forest = Forest(3, 5, 1, ("BRANCH_LEQ",), low).attributes("class", 2)
    more = {"classlabels_int64s": [4, 9], "post_transform": transform}
    kinds = [TensorProto.INT64, TensorProto.FLOAT]
    compare(tmp_path, "TreeEnsembleClassifier", samples(), kinds, **forest, **more)


def regressor(folder: Path, features: int, forest: dict[str, Any], n_targets: int = 1, **more: Any) -> Path:
    graph = helper.make_graph(
        [helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=n_targets, **forest, **more)],
        "g",
        [info("x", ("n", features))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    imports = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 3)]
    return save(helper.make_model(graph, opset_imports=imports, ir_version=9), folder)


def test_trees_that_do_not_end_are_refused(tmp_path: Path) -> None:
    forest = Forest(4, 5, 1, ("BRANCH_LEQ",)).attributes("target", 1)
    forest["nodes_modes"][-1] = "BRANCH_LEQ"  # and leads to the root
    with pytest.raises(CompileError, match=r"exactly one root|two ways"):
        load(regressor(tmp_path, 5, forest))


def test_features_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    forest = Forest(5, 9, 1, ("BRANCH_LEQ",)).attributes("target", 4)
    with pytest.raises(CompileError, match="a feature that the input does not have: it has 3"):
        load(regressor(tmp_path, 3, forest))


def walked(forest: dict[str, Any], x: np.ndarray, targets: int, aggregate: str = "SUM") -> np.ndarray:
    """What the trees of a regressor come to, node by node."""
    nodes = {
        key: (feature, mode, value, yes, no, missing)
        for *key_, feature, yes, no, mode, value, missing in zip(
            *(forest[f"nodes_{n}"] for n in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")),
            *(forest[f"nodes_{n}"] for n in ("modes", "values", "missing_value_tracks_true")),
            strict=True,
        )
        for key in [tuple(key_)]
    }
    weights: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for tree, node, target, weight in zip(*(forest[f"target_{n}"] for n in NAMES), strict=True):
        weights.setdefault((tree, node), []).append((target, weight))
    functions = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    compared = dict(zip(MODES, functions, strict=True))
    found = np.zeros((len(x), targets))
    for sample, row in enumerate(x):
        votes: list[list[float]] = [[] for _ in range(targets)]
        for tree in sorted({tree for tree, _ in nodes}):
            here = 0
            while nodes[tree, here][1] != "LEAF":
                feature, mode, value, yes, no, missing = nodes[tree, here]
                element = row[feature]
                answer = compared[mode](element, np.float32(value)) or (np.isnan(element) and missing)
                here = yes if answer else no
            for target, weight in weights.get((tree, here), []):
                votes[target].append(weight)
        reduce = {"SUM": sum, "MIN": min, "MAX": max, "AVERAGE": lambda s: sum(s) / len({t for t, _ in nodes})}
        found[sample] = [reduce[aggregate](elements) if elements else 0.0 for elements in votes]
    return found


NAMES = ("treeids", "nodeids", "ids", "weights")


@pytest.mark.parametrize(
    ("aggregate", "targets"),
    [
        ("SUM", 1),
        pytest.param("SUM", 3, marks=pytest.mark.slow),
        ("MIN", 3),
        pytest.param("AVERAGE", 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.sample(1)
def test_groups_and_blocks_of_trees_come_to_what_single_nodes_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aggregate: str, targets: int
) -> None:
    """All comparisons, with numbers that are missing, infinite, and met exactly, on both sides."""
    monkeypatch.setattr("nnefc.operators.ml.trees._MIN_STEPS", 100)
    forest = Forest(7, 5, targets)
    given = forest.attributes("target", 75)
    for position in forest.random.integers(len(given["nodes_values"]), size=60):
        given["nodes_values"][position] = float(forest.random.choice([np.inf, -np.inf]))
    x = np.concatenate([samples(), samples()[::-1]])
    x[3, :3], x[40, 2:] = np.inf, -np.inf
    wanted = walked(given, x, targets, aggregate)
    path = regressor(tmp_path, 5, given, n_targets=targets, aggregate_function=aggregate)
    with nnefc.compile(path).load(threads=2) as model:
        for count in (1, 33, 74):
            (found,) = model.run({"x": x[:count]}).values()
            np.testing.assert_allclose(found, wanted[:count], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("column", "low"),
    [(0, -1), (1, 0), pytest.param(0, 0, marks=pytest.mark.slow), pytest.param(1, -1, marks=pytest.mark.slow)],
)
@pytest.mark.sample(1)
def test_weights_of_either_class_agree_with_onnxruntime(tmp_path: Path, column: int, low: int) -> None:
    forest = Forest(8, 5, 1, ("BRANCH_LEQ",), low).attributes("class", 2)
    forest["class_ids"] = [column] * len(forest["class_ids"])
    kinds = [TensorProto.INT64, TensorProto.FLOAT]
    for transform in ("NONE", "LOGISTIC"):
        base = {"base_values": [0.25]} if column == 0 else {}
        more = {"classlabels_int64s": [4, 9], "post_transform": transform, **base}
        compare(tmp_path, "TreeEnsembleClassifier", samples(), kinds, **forest, **more)


def test_thresholds_of_double_precision_are_not_rounded(tmp_path: Path) -> None:
    edge = 1 + 2.0**-40
    table = {
        "tree_roots": [0],
        "nodes_featureids": [0],
        "nodes_splits": helper.make_tensor("s", TensorProto.DOUBLE, [1], [edge]),
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, [1], [0]),
        "nodes_truenodeids": [0],
        "nodes_trueleafs": [1],
        "nodes_falsenodeids": [1],
        "nodes_falseleafs": [1],
        "leaf_targetids": [0, 0],
        "leaf_weights": helper.make_tensor("w", TensorProto.DOUBLE, [2], [0.1, 0.2]),
    }
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain=ML, n_targets=1, **table)
    kind = TensorProto.DOUBLE
    graph = helper.make_graph([node], "g", [info("x", ("n", 1), kind)], [info("y", ("n", 1), kind)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 5)]
    path = save(helper.make_model(graph, opset_imports=imports, ir_version=10), tmp_path)
    x = np.array([[1.0], [edge], [1 + 2.0**-39]])
    with nnefc.compile(path).load() as model:
        np.testing.assert_array_equal(model.run({"x": x})["y"], [[0.1], [0.1], [0.2]])


@pytest.mark.parametrize(("mode", "skips", "minimum"), [("TF", 0, 1), ("IDF", 2, 2), ("TFIDF", 5, 1)])
@pytest.mark.parametrize("shape", [pytest.param((23,), marks=pytest.mark.slow), (4, 19)])
@pytest.mark.sample(1)
def test_ngrams_agree_with_onnxruntime(
    tmp_path: Path, mode: str, skips: int, minimum: int, shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(6).integers(0, 4, shape).astype(np.int32 if skips else np.int64)
    more = {
        "mode": mode,
        "min_gram_length": minimum,
        "max_gram_length": 3,
        "max_skip_count": skips,
        "ngram_counts": [0, 3, 9],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6, 7],
        "pool_int64s": [2, 3, 7, 0, 1, 3, 3, 2, 0, 1, 2, 3, 0, 0, 1],
        "weights": [0.5, 2.0, 1.0, 3.0, 0.25, 1.5, 4.0, 0.75],
    }
    compare(tmp_path, "TfIdfVectorizer", x, [TensorProto.FLOAT], "", **more)
