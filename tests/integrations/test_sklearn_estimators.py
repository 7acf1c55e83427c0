"""Estimators of scikit-learn, compared with the originals; where it and its converter are installed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

pytest.importorskip("skl2onnx")

from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import nnefc
import nnefc.integrations.sklearn
import nnefc.sklearn

X, NUMBERS = make_classification(120, 8, n_informative=6, n_classes=3, random_state=1)
X = X.astype(np.float32)
WORDS = np.array(["ant", "bee", "cat"], object)[NUMBERS]


@pytest.mark.parametrize(
    ("estimator", "y", "methods"),
    [
        (make_pipeline(StandardScaler(), LogisticRegression()), WORDS, ("predict", "predict_proba")),
        (SVC(), NUMBERS, ("predict", "decision_function")),
        (LinearRegression(), NUMBERS, ("predict",)),
        (KMeans(3, n_init=1, random_state=0), None, ("predict", "transform")),
        (make_pipeline(PCA(3)), None, ("transform",)),
        (IsolationForest(n_estimators=3, max_samples=16, random_state=0), None, ("predict", "decision_function")),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.sample(3)
def test_methods_give_what_those_of_the_original_give(estimator: Any, y: Any, methods: tuple[str, ...]) -> None:
    estimator.fit(X[:80], y if y is None else y[:80])
    compiled = nnefc.sklearn.compile(estimator, X[:80], threads=1)
    assert compiled.methods == methods
    for method in methods:
        for samples in (X[80:], X[80:81]):
            found, wanted = getattr(compiled, method)(samples), np.asarray(getattr(estimator, method)(samples))
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            if wanted.dtype == object:
                np.testing.assert_array_equal(found, wanted)
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
    assert set(methods) <= set(dir(compiled))
    with pytest.raises(AttributeError, match=f"it has {methods[0]}"):
        compiled.score_samples(X)


TENTHS = np.round(X.astype(np.float64), 1)
"""Decimal fractions in float64, many of them at thresholds of trees, which round samples to float32."""

BOTH = ("predict", "predict_proba")
BOOSTING = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=3)
TREES = [
    (RandomForestClassifier(7, random_state=0), np.float64, BOTH),
    (GradientBoostingClassifier(n_estimators=2), np.float64, BOTH),
    (BOOSTING, np.float32, BOTH),
    (make_pipeline(PolynomialFeatures(2), StandardScaler(), BOOSTING), np.float64, BOTH),
    pytest.param(HistGradientBoostingRegressor(max_iter=3), np.float64, ("predict",), marks=pytest.mark.slow),
    (AdaBoostRegressor(n_estimators=2, random_state=0), np.float64, ("predict",)),
    (IsolationForest(n_estimators=3, max_samples=16, random_state=0), np.float64, ("predict", "decision_function")),
]


@pytest.mark.parametrize(("estimator", "dtype", "methods"), TREES, ids=lambda value: type(value).__name__)
@pytest.mark.sample(1)
def test_trees_and_boosting_in_both_types_of_floats(estimator: Any, dtype: type, methods: tuple[str, ...]) -> None:
    estimator = clone(estimator).fit(TENTHS[:80], NUMBERS[:80])
    samples = TENTHS.astype(dtype)
    compiled = nnefc.sklearn.compile(estimator, samples[:80], threads=1)
    assert compiled.methods == methods
    assert compiled.model.inputs[0].dtype == np.dtype(dtype).name
    for method in methods:
        wanted = np.asarray(getattr(estimator, method)(samples))
        np.testing.assert_allclose(getattr(compiled, method)(samples), wanted, rtol=1e-5, atol=1e-6)


LINEAR, TREE = LogisticRegression(), DecisionTreeClassifier(max_depth=3, random_state=0)
SOFT = VotingClassifier([("a", LINEAR), ("b", "drop"), ("c", TREE)], voting="soft", weights=[1, 2, 3])
HARD = VotingClassifier([("a", LinearSVC()), ("b", TREE), ("c", LINEAR)], weights=[2, 1, 2])
VOTING = {
    "probabilities": (SOFT, BOTH),
    "in a pipeline": (make_pipeline(StandardScaler(), SOFT), BOTH),
    "in another one": (VotingClassifier([("a", SOFT), ("b", LINEAR)], voting="soft"), BOTH),
    "labels": (HARD, ("predict",)),
}


@pytest.mark.filterwarnings("ignore::nnefc.ModelWarning")  # the probabilities of votes for labels, which have no method
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n in ("in a pipeline", "in another one") else []) for n in VOTING],
)
@pytest.mark.sample(1)
def test_votes(name: str) -> None:
    given, methods = VOTING[name]
    estimator = clone(given).fit(X[:80], WORDS[:80])
    before = repr(estimator)
    compiled = nnefc.sklearn.compile(estimator, X[:80], threads=1)
    assert (compiled.methods, repr(estimator)) == (methods, before)
    np.testing.assert_array_equal(compiled.predict(X), estimator.predict(X))
    if "predict_proba" in methods:
        np.testing.assert_allclose(compiled.predict_proba(X), estimator.predict_proba(X), atol=1e-5)


def test_results_may_be_lists_or_sparse() -> None:
    several = MultiOutputClassifier(LogisticRegression()).fit(X[:80], np.stack([NUMBERS[:80], NUMBERS[:80] > 0], 1))
    found = nnefc.sklearn.compile(several, X[:80], threads=1).predict_proba(X)
    assert isinstance(found, list)
    for one, other in zip(found, several.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    kinds = OneHotEncoder().fit(NUMBERS[:, None].astype(np.float32))
    compiled = nnefc.sklearn.compile(kinds, NUMBERS[:, None].astype(np.float32))
    np.testing.assert_array_equal(compiled.transform(NUMBERS[:9, None]), kinds.transform(NUMBERS[:9, None]).toarray())


def test_an_estimator_without_a_converter_is_named() -> None:
    class Own(LogisticRegression):
        """Of the user's."""

    estimator = VotingClassifier([("a", Own()), ("b", TREE)]).fit(X[:80], NUMBERS[:80])
    with pytest.raises(nnefc.CompileError, match="VotingClassifier: it has no converter for the Own in it"):
        nnefc.sklearn.compile(estimator, X[:80])


class Constant(BaseEstimator):
    """An estimator whose converter writes something else."""

    def predict(self, samples: np.ndarray) -> np.ndarray:
        return samples[:, 0]


def test_a_result_that_no_method_gives_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    two (float[n, 2] X) => (float[n, 1] first, float[n, 2] odd) {
        zero = Constant <value_ints = [0]> () first = Gather <axis = 1> (X, zero) odd = Neg (X) }"""
    monkeypatch.setattr(nnefc.integrations.sklearn, "conversions", lambda *_: (lambda: onnx.parser.parse_model(text),))
    with pytest.warns(nnefc.ModelWarning, match="odd are those of no method"):
        assert nnefc.sklearn.compile(Constant(), X[:5, :2]).methods == ("predict",)


def test_the_library_is_exported(tmp_path: Path) -> None:
    estimator = LinearRegression().fit(X, NUMBERS)
    nnefc.sklearn.compile(estimator, X).export(tmp_path / "line.so")
    found = nnefc.load(tmp_path / "line.so")(X[:5])
    np.testing.assert_allclose(found.ravel(), estimator.predict(X[:5]), rtol=1e-3, atol=1e-4)


def test_columns_of_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer

    frame = pandas.DataFrame({"size": X[:, 0], "kind": WORDS, "age": NUMBERS * 1.5})
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["size", "age"]))
    estimator = make_pipeline(columns, LogisticRegression()).fit(frame, NUMBERS)
    compiled = nnefc.sklearn.compile(estimator, frame)
    np.testing.assert_array_equal(compiled.predict(frame), estimator.predict(frame))
    with pytest.raises(nnefc.CompileError, match="has no column kind, age"):
        compiled.predict(frame[["size"]])


class Frame:
    """What is asked of a data frame."""

    def __init__(self, **columns: list[float]) -> None:
        self.columns = list(columns)
        self._arrays = {name: np.array(values) for name, values in columns.items()}

    def __len__(self) -> int:
        return len(self._arrays[self.columns[0]])

    def __getitem__(self, name: str) -> Any:
        return SimpleNamespace(to_numpy=lambda: self._arrays[name])


class Difference:
    def predict(self, frame: Frame) -> np.ndarray:
        found: np.ndarray = frame["a"].to_numpy() - frame["b"].to_numpy()
        return found


def test_columns_are_known_by_their_names(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    difference (float[n, 1] a, int64[n, 1] b) => (float[n, 1] y) { c = Cast <to = 1> (b) y = Sub (a, c) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "difference.onnx")
    artifact = nnefc.compile(tmp_path / "difference.onnx")
    compiled = nnefc.sklearn.CompiledEstimator(Difference(), artifact, Frame(a=[5, 7], b=[1, 2]), threads=1)
    np.testing.assert_array_equal(compiled.predict(Frame(b=[3.0], more=[0], a=[10])), [7])
    with pytest.raises(nnefc.CompileError, match="no column b"):
        compiled.predict(Frame(a=[1]))
    with pytest.raises(nnefc.CompileError, match="b has values that are not int64"):
        compiled.predict(Frame(a=[1], b=[1.5]))


def test_an_estimator_that_is_not_trained() -> None:
    with pytest.raises(nnefc.CompileError, match="skl2onnx cannot convert LinearRegression"):
        nnefc.sklearn.compile(LinearRegression(), X)
