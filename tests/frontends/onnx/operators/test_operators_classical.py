"""Operators of ai.onnx.ml on features, linear models and support vector machines, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, helper
from onnx_models import FLOAT, INT64, info, loaded, save

import nnefc
from nnefc.cli.commands.inspect import library_lines
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError

ML = "ai.onnx.ml"
RNG = np.random.default_rng(5)


class Nodes:
    """Nodes that read one input, `x`, and their outputs, so that a library is compiled once for all of them."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []

    def add(self, op: str, outputs: int = 1, **attributes: Any) -> None:
        names = [f"{op}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, ["x"], names, domain=ML, **attributes))

    def model(self, dtype: Any, shape: tuple[Any, ...]) -> Any:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        whole = dtype == np.int64
        outputs = [
            info(name, None, INT64 if len(node.output) - i == 2 or (whole and node.op_type == "Imputer") else FLOAT)
            for node in self.nodes
            for i, name in enumerate(node.output)
        ]
        graph = helper.make_graph(self.nodes, "g", [info("x", shape, kind)], outputs)
        imports = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=9)

    def compare(self, folder: Path, x: np.ndarray) -> None:
        """With the first dimension open, for all samples and for the first.

        In onnxruntime's formula, probits near 0 are differences of nearly equal float32 numbers.
        """
        probits = {
            name
            for node in self.nodes
            if any(attribute.s == b"PROBIT" for attribute in node.attribute)
            for name in node.output
        }
        proto = self.model(x.dtype, ("samples", *x.shape[1:]))
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        with nnefc.compile(save(proto, folder)).load() as model:
            for given in (x, x[:1]):
                found = model.run({"x": given})
                for (name, one), other in zip(found.items(), session.run(None, {"x": given}), strict=True):
                    assert (one.dtype, one.shape) == (other.dtype, other.shape), name
                    atol = 1e-3 if name in probits else 2e-5
                    np.testing.assert_allclose(one, other, rtol=2e-5, atol=atol, err_msg=name)


def reals(*shape: int) -> list[float]:
    flat: list[float] = RNG.standard_normal(shape).astype(np.float32).reshape(-1).tolist()
    return flat


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.sample(1)
def test_features_are_prepared_as_by_onnxruntime(tmp_path: Path, dtype: type) -> None:
    x = (RNG.standard_normal((7, 4)) * 10).astype(dtype)
    x[0] = 0
    nodes = Nodes()
    nodes.add("Scaler", offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 3.0, 4.0])
    nodes.add("Scaler", offset=[0.5], scale=[2.0])
    for norm in ("MAX", "L1", "L2"):
        nodes.add("Normalizer", norm=norm)
    nodes.add("OneHotEncoder", cats_int64s=[-5, 1, 0, 3, 12])
    if dtype is np.int64:
        nodes.add("Imputer", imputed_value_int64s=[7], replaced_value_int64=0)
    nodes.compare(tmp_path, x)


def test_missing_values_are_replaced_as_by_onnxruntime(tmp_path: Path) -> None:
    x = RNG.integers(-2, 3, (7, 4)).astype(np.float32)
    x[2, 1] = x[3, 3] = np.nan
    nodes = Nodes()
    nodes.add("Imputer", imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan"))
    nodes.add("Imputer", imputed_value_floats=[7.0], replaced_value_float=0.0)
    nodes.compare(tmp_path, x)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_linear_models_agree_with_onnxruntime(tmp_path: Path, whole: bool) -> None:
    """All transforms, each of regressors and classifiers of two and more classes where `whole` is set."""
    nodes = Nodes()
    for number, transform in enumerate(("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")):
        three = {"intercepts": [0.1, 0.2, 0.3], "post_transform": transform}
        if whole or number % 2 == 0:
            nodes.add("LinearRegressor", targets=3, coefficients=reals(12), **three)
        if whole or number % 2 == 1:
            nodes.add("LinearClassifier", 2, classlabels_ints=[3, 5, 9], coefficients=reals(12), **three)
        two = {"intercepts": [0.1, 0.2], "post_transform": transform}
        if whole or number % 2 == 0:
            nodes.add("LinearClassifier", 2, classlabels_ints=[0, 1], coefficients=reals(8), **two)
    for transform in ("NONE", "LOGISTIC"):
        one = {"intercepts": [0.1], "post_transform": transform}
        nodes.add("LinearClassifier", 2, classlabels_ints=[3, 5], coefficients=reals(4), **one)
    nodes.compare(tmp_path, RNG.standard_normal((9, 4)).astype(np.float32))


def support_vectors(classes: int, kernel: str, platt: bool, transform: str = "NONE") -> dict[str, Any]:
    vectors, pairs = 3 * classes, classes * (classes - 1) // 2
    given: dict[str, Any] = {"prob_a": [-abs(a) for a in reals(pairs)], "prob_b": reals(pairs)} if platt else {}
    return given | {
        "kernel_type": kernel,
        "kernel_params": [0.3, 0.5, 3.0],
        "vectors_per_class": [3] * classes,
        "support_vectors": reals(vectors, 4),
        "coefficients": reals(classes - 1, vectors),
        "rho": reals(pairs),
        "classlabels_ints": list(range(10, 10 + classes)),
        "post_transform": transform,
    }


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_support_vector_machines_agree_with_onnxruntime(tmp_path: Path, whole: bool) -> None:
    """All kernels; two and more classes; votes, and probabilities by Platt's formula."""
    nodes = Nodes()
    for number, kernel in enumerate(("LINEAR", "POLY", "RBF", "SIGMOID")):
        if whole or number % 2 == 1:
            nodes.add("SVMClassifier", 2, **support_vectors(3, kernel, platt=False))
        for one_class in (0, 1) if whole else (number // 2,)[number % 2 :]:
            given = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 3.0], "rho": [0.3], "one_class": one_class}
            nodes.add("SVMRegressor", n_supports=5, support_vectors=reals(20), coefficients=reals(5), **given)
    for classes in (2, 5) if whole else (2,):
        nodes.add("SVMClassifier", 2, **support_vectors(classes, "RBF", platt=True))
        if whole:
            nodes.add("SVMClassifier", 2, **support_vectors(classes, "RBF", platt=False))
    nodes.add("SVMClassifier", 2, **support_vectors(4, "RBF", platt=True, transform="SOFTMAX"))
    linear = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "rho": [0.2]}
    nodes.add("SVMRegressor", n_supports=0, coefficients=reals(4), **linear)
    nodes.compare(tmp_path, RNG.standard_normal((9, 4)).astype(np.float32))


def test_similar_vectors_far_from_the_origin_are_reported_apart(tmp_path: Path) -> None:
    """Where squares of distances are differences of large products, nothing is left of them."""
    nodes = Nodes()
    center = np.full(4, 3000.0)
    vectors = center + RNG.standard_normal((5, 4))
    given = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0], "rho": [0.0], "coefficients": [1.0] * 5}
    nodes.add("SVMRegressor", n_supports=5, support_vectors=vectors.reshape(-1).tolist(), **given)
    x = (center + RNG.standard_normal((6, 4))).astype(np.float32)
    distances = ((x[:, None].astype(np.float64) - vectors.astype(np.float32)) ** 2).sum(2)
    with nnefc.compile(save(nodes.model(np.float32, x.shape), tmp_path)).load() as model:
        (found,) = model.run({"x": x}).values()
    np.testing.assert_allclose(found[:, 0], np.exp(-0.5 * distances).sum(1), rtol=1e-4)


def test_features_of_several_tensors_are_joined(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    node = helper.make_node("FeatureVectorizer", names, ["y"], domain=ML, inputdimensions=[2, 3, 1])
    inputs = [info("a", ("n", 2), FLOAT), info("b", ("n", 2), FLOAT), info("c", ("n", 4), FLOAT)]
    graph = helper.make_graph([node], "g", inputs, [info("y", None, FLOAT)])
    imports = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 1)]
    a, b, c = (RNG.standard_normal((3, width)).astype(np.float32) for width in (2, 2, 4))
    with nnefc.compile(save(helper.make_model(graph, opset_imports=imports), tmp_path)).load() as model:
        (found,) = model.run({"a": a, "b": b, "c": c}).values()
    np.testing.assert_array_equal(found, np.concatenate([a, b, np.zeros((3, 1)), c[:, :1]], 1))


def test_elements_of_no_category_fail_the_run_where_zeros_are_not_allowed(tmp_path: Path) -> None:
    nodes = Nodes()
    nodes.add("OneHotEncoder", cats_int64s=[4, 9], zeros=0)
    with nnefc.compile(save(nodes.model(np.int64, ("n", 2)), tmp_path)).load() as model:
        (found,) = model.run({"x": np.array([[9, 4]])}).values()
        np.testing.assert_array_equal(found, [[[0, 1], [1, 0]]])
        with pytest.raises(RunError, match="of no category"):
            model.run({"x": np.array([[9, 5]])})


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Scaler", {"offset": [1.0, 2.0]}, "2 offsets for the features"),
        ("Normalizer", {"norm": "L3"}, "'L3' is unknown"),
        ("Imputer", {"imputed_value_int64s": [1]}, "no 'imputed_value_floats'"),
        ("LinearClassifier", {"coefficients": [1.0] * 7, "classlabels_ints": [1, 2, 3]}, "7 coefficients"),
        ("LinearRegressor", {"coefficients": [1.0] * 6}, "do not fit the features"),
        ("SVMRegressor", {"coefficients": [1.0], "n_supports": 3, "rho": [0.0]}, "support vectors"),
        ("SVMClassifier", {"coefficients": [1.0], "classlabels_ints": [0, 1]}, "no 'rho'"),
        ("ZipMap", {"classlabels_int64s": [0, 1]}, "2 labels for the values"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(
    tmp_path: Path, op: str, attributes: dict[str, Any], message: str
) -> None:
    nodes = Nodes()
    nodes.add(op, 2 if op.endswith("Classifier") else 1, **attributes)
    with pytest.raises(CompileError, match=message):
        loaded(nodes.model(np.float32, (2, 4)), tmp_path)


def test_maps_that_are_known_become_rows(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DictVectorizer", ["m"], ["a"], domain=ML, int64_vocabulary=[5, 1, 3]),
        helper.make_node("CastMap", ["m"], ["b"], domain=ML, cast_to="TO_INT64"),
        helper.make_node("CastMap", ["m"], ["c"], domain=ML, map_form="SPARSE", max_map=5),
    ]
    kind = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, None))
    outputs = [info("a", None, FLOAT), info("b", None, INT64), info("c", None, FLOAT)]
    graph = helper.make_graph(nodes, "g", [helper.make_value_info("m", kind)], outputs)
    imports = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 1)]
    path = save(helper.make_model(graph, opset_imports=imports, ir_version=9), tmp_path)
    with nnefc.compile(path, values={"m": {3: 2.5, 1: 0.5}}).load() as model:
        found = list(model.run({}).values())
    for one, wanted in zip(found, ([[0, 0.5, 2.5]], [[0, 2]], [[0, 0.5, 0, 2.5, 0]]), strict=True):
        np.testing.assert_array_equal(one, wanted)
    with pytest.raises(CompileError, match="the key '1' of a map is not of type int64"):
        nnefc.compile(path, values={"m": {"1": 0.5}})


def test_zip_map_gives_its_values_and_names_their_columns(tmp_path: Path) -> None:
    labels = [7, -2, 40]
    given = {"classlabels_ints": labels, "coefficients": reals(12), "intercepts": reals(3)}
    classify = helper.make_node("LinearClassifier", ["x"], ["label", "scores"], domain=ML, **given)
    zipped = helper.make_node("ZipMap", ["scores"], ["maps"], domain=ML, classlabels_int64s=labels)
    of_float = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, None))
    maps = helper.make_value_info("maps", helper.make_sequence_type_proto(of_float))
    graph = helper.make_graph([classify, zipped], "g", [info("x", ("n", 4))], [info("label", None, INT64), maps])
    imports = [helper.make_opsetid("", 19), helper.make_opsetid(ML, 1)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=9)
    x = RNG.standard_normal((5, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    label, rows = session.run(None, {"x": x})
    nnefc.compile(save(proto, tmp_path)).export(tmp_path / "model.so")
    assert any("maps: 7, -2, 40" in line for line in library_lines(tmp_path / "model.so"))
    with nnefc.load(tmp_path / "model.so") as model:
        assert model.labels == {"maps": tuple(labels)}
        found = model.run({"x": x})
    np.testing.assert_array_equal(found["label"], label)
    wanted = [[row[key] for key in labels] for row in rows]
    np.testing.assert_allclose(found["maps"], wanted, rtol=1e-5, atol=1e-6)
