"""Estimators of scikit-learn, beside the originals; where it and its converter are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")

from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import nnefc
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
        (IsolationForest(n_estimators=9, random_state=0), None, ("predict", "decision_function")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_methods_give_what_those_of_the_original_give(estimator: Any, y: Any, methods: tuple[str, ...]) -> None:
    estimator.fit(X[:80], y if y is None else y[:80])
    compiled = nnefc.sklearn.compile(estimator, X[:80], threads=1)
    assert compiled.methods == methods
    for method in methods:
        for samples in (X[80:], X[80:81]):
            found, wanted = getattr(compiled, method)(samples), np.asarray(getattr(estimator, method)(samples))
            assert found.shape == wanted.shape
            if wanted.dtype == object:
                np.testing.assert_array_equal(found, wanted)
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
    assert set(methods) <= set(dir(compiled))
    with pytest.raises(AttributeError, match=f"it has {methods[0]}"):
        compiled.score_samples(X)


def test_the_library_is_exported(tmp_path: Path) -> None:
    estimator = LinearRegression().fit(X, NUMBERS)
    nnefc.sklearn.compile(estimator, X).export(tmp_path / "line.so")
    found = nnefc.load(tmp_path / "line.so")(X[:5])
    np.testing.assert_allclose(found.ravel(), estimator.predict(X[:5]), rtol=1e-3, atol=1e-4)


def test_columns_of_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.preprocessing import OneHotEncoder

    frame = pandas.DataFrame({"size": X[:, 0], "kind": WORDS, "age": NUMBERS * 1.5})
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["size", "age"]))
    estimator = make_pipeline(columns, LogisticRegression()).fit(frame, NUMBERS)
    compiled = nnefc.sklearn.compile(estimator, frame)
    np.testing.assert_array_equal(compiled.predict(frame), estimator.predict(frame))
    with pytest.raises(nnefc.CompileError, match="has 1 columns"):
        compiled.predict(frame[["size"]])


def test_an_estimator_that_is_not_trained() -> None:
    with pytest.raises(nnefc.CompileError, match="skl2onnx cannot convert LinearRegression"):
        nnefc.sklearn.compile(LinearRegression(), X)
