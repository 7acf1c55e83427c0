"""Operators of ai.onnx.ml that look strings and numbers up, compared with onnxruntime and the standard's own
evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from onnx_strings import ML, STRING, WORDS, check, model_of, node, texts

import nnefc
from nnefc.loader import RunError
from nnefc.operators.ml.lookup import Positions
from nnefc.support.diagnostics import CompileError

FLOAT, DOUBLE, INT16, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT16, TensorProto.INT64
RNG = np.random.default_rng(4)

KEYS: dict[str, tuple[int, list[Any]]] = {
    "strings": (STRING, ["a", "", "Ärger", "日本語", "long" * 300, "eightbyt", "null\0byte"]),
    "int64s": (INT64, [3, -1, 1 << 40, 0, 7, -(1 << 63), 9]),
    "floats": (FLOAT, [0.5, -1.0, float("inf"), float("nan"), 0.0, -3.25, 1e-30]),
}


def encoder(source: str, target: str, **more: Any) -> Any:
    values = KEYS[target][1][::-1] if target != "floats" else [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, -0.5]
    given = {f"keys_{source}": KEYS[source][1], f"values_{target}": values}
    return node("LabelEncoder", source, f"{source}_{target}", ML, **given, **more)


def feeds(size: int) -> dict[str, np.ndarray]:
    others = {"int64s": [1, 2, (1 << 63) - 1], "floats": [0.25, -float("inf"), -0.0]}
    arrays = {name: RNG.choice(np.array([*KEYS[name][1], *more]), (size, 2)) for name, more in others.items()}
    return {"strings": texts(size, 2), "int64s": arrays["int64s"], "floats": arrays["floats"].astype(np.float32)}


def test_label_encoders_of_all_pairs_of_types(tmp_path: Path) -> None:
    """Dynamic sizes; several hundred elements, so that several threads look them up."""
    pairs = [(source, target) for source in KEYS for target in KEYS]
    nodes = [encoder(*pair, **({"default_string": "none"} if pair[1] == "strings" else {})) for pair in pairs]
    kinds = {f"{source}_{target}": KEYS[target][0] for source, target in pairs}
    proto = model_of(nodes, {name: (kind, ["n", 2]) for name, (kind, _) in KEYS.items()}, kinds)
    given = [feeds(size) for size in (5, 1, 2000)]
    numbers = [{**feed, "floats": np.nan_to_num(feed["floats"])} for feed in given]
    artifact = check(proto, tmp_path, *numbers)  # the evaluator never finds NaN
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    found = artifact.run(given[2])
    for name, expected in zip(found, session.run(None, given[2]), strict=True):
        if expected.dtype == object:  # onnxruntime's Python cuts strings off at null bytes
            expected[expected == "null"] = "null\0byte"
        if name.startswith("floats"):
            np.testing.assert_array_equal(found[name], expected)


def test_label_encoders_of_tensors_mappers_and_one_hot_encoders(tmp_path: Path) -> None:
    def tensor(*elements: Any, dtype: Any = object) -> Any:
        return numpy_helper.from_array(np.array(elements, dtype))

    words, numbers = ["a", "b", "日本語"], [5, -2, 7]
    nodes = [
        node("LabelEncoder", "d", "e", ML, keys_tensor=tensor(1, 2.5, dtype=np.float64), values_tensor=tensor("é", ""),
             default_tensor=tensor("?")),
        node("LabelEncoder", "s", "i", ML, keys_tensor=tensor(*words), values_tensor=tensor(*numbers, dtype=np.int16),
             default_tensor=tensor(42, dtype=np.int16)),
        node("CategoryMapper", "s", "c", ML, cats_strings=words, cats_int64s=numbers, default_int64=-9),
        node("CategoryMapper", "c", "w", ML, cats_strings=words, cats_int64s=numbers, default_string="nothing"),
        node("OneHotEncoder", "w", "o", ML, cats_strings=words, zeros=1),
        node("LabelEncoder", "d", "n", ML, keys_tensor=tensor(np.nan, dtype=np.float64), values_tensor=tensor("nan"),
             default_tensor=tensor("")),
    ]  # fmt: skip
    inputs = {"d": (DOUBLE, [6]), "s": (STRING, [3, 4])}
    proto = model_of(nodes, inputs, {"e": STRING, "i": INT16, "c": INT64, "w": STRING, "o": FLOAT, "n": STRING})
    artifact_path = tmp_path / "model.onnx"
    artifact_path.write_bytes(proto.SerializeToString())
    given = {"d": np.array([1, 2.5, 2, np.nan, -1, 1]), "s": texts(3, 4)}
    found = nnefc.compile(artifact_path).run(given)
    positions = {word: position for position, word in enumerate(words)}
    assert found["e"].tolist() == ["é", "", "?", "?", "?", "é"]
    assert found["n"].tolist() == ["", "", "", "nan", "", ""]
    mapped = [[numbers[positions[word]] if word in positions else -9 for word in row] for row in given["s"]]
    np.testing.assert_array_equal(found["c"], mapped)
    np.testing.assert_array_equal(found["i"], np.where(found["c"] == -9, 42, found["c"]))
    np.testing.assert_array_equal(found["w"], np.where(found["c"] == -9, "nothing", given["s"]))
    np.testing.assert_array_equal(found["o"], found["w"][..., None] == np.array(words, object))


def test_an_unknown_category_may_fail_the_run(tmp_path: Path) -> None:
    nodes = [node("OneHotEncoder", "s", "o", ML, cats_strings=["a", "b"], zeros=0)]
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(nodes, {"s": (STRING, [2])}, {"o": FLOAT}).SerializeToString())
    with nnefc.compile(path).load(threads=1) as library:
        np.testing.assert_array_equal(library(["b", "a"]), [[0, 1], [1, 0]])
        with pytest.raises(RunError, match="an element is of no category"):
            library(["b", "c"])


def test_encoders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for attributes, message in (
        ({"keys_strings": ["a"], "values_int64s": [1, 2]}, "it has 1 keys and 2 values"),
        ({"keys_int64s": [1], "values_int64s": [1]}, "its keys do not fit a tensor of string"),
    ):
        path = tmp_path / "model.onnx"
        proto = model_of([node("LabelEncoder", "s", "y", ML, **attributes)], {"s": (STRING, [2])}, {"y": INT64})
        path.write_bytes(proto.SerializeToString())
        with pytest.raises(CompileError, match=message):
            nnefc.compile(path)


def test_many_strings_are_found_in_a_table(tmp_path: Path) -> None:
    """As many as a vocabulary has, some with the same first bytes; and what is known at compile time the same way."""
    words = [f"{'prefix' * (i % 3)}{i}" for i in range(3000)]
    nodes = [node("LabelEncoder", "s", "y", ML, keys_strings=words, values_int64s=list(range(3000)))]
    given = texts(500, words=[*words, *WORDS, "2999 ", "prefix"])
    check(model_of(nodes, {"s": (STRING, [500])}, {"y": INT64}), tmp_path, {"s": given})
    keys = np.array(words, object)
    found = Positions(keys).lower(None, given)  # type: ignore[arg-type]
    assert [int(position) for position in found] == [words.index(word) if word in words else 3000 for word in given]


def test_classifiers_have_labels_that_are_strings(tmp_path: Path) -> None:
    labels = ["Setosa", "é", "日本語"]
    coefficients = RNG.standard_normal((3, 4)).astype(np.float32)
    linear = node("LinearClassifier", "x", "l p", ML, coefficients=coefficients.ravel().tolist(),
                  intercepts=[0.1, 0.2, -0.1], classlabels_strings=labels)  # fmt: skip
    nodes: dict[str, list[Any]] = {"treeids": [0] * 3, "nodeids": [0, 1, 2], "featureids": [1, 0, 0]}
    nodes |= {"modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "values": [0.0] * 3}
    nodes |= {"truenodeids": [1, 0, 0], "falsenodeids": [2, 0, 0]}
    leaves = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [2, 0], "class_weights": [1.0, 1.0]}
    trees = node("TreeEnsembleClassifier", "x", "t q", ML, classlabels_strings=labels, **leaves,
                 **{f"nodes_{name}": values for name, values in nodes.items()})  # fmt: skip
    kinds = {"l": STRING, "p": FLOAT, "t": STRING, "q": FLOAT}
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([linear, trees], {"x": (FLOAT, [None, 4])}, kinds).SerializeToString())
    x = RNG.standard_normal((20, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = nnefc.compile(path).run({"x": x})
    for result, expected in zip(found.values(), session.run(None, {"x": x}), strict=True):
        if expected.dtype == object:
            assert result.tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(result, expected, rtol=1e-5)
