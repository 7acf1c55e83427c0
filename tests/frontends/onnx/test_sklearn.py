"""Models of scikit-learn, LightGBM and XGBoost as their converters write them: compared with the models themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nnefc

for name in ("onnxmltools", "lightgbm", "xgboost", "skl2onnx", "sklearn"):  # what is missing most often first
    pytest.importorskip(name)
pipelines = pytest.importorskip("sklearn_pipelines")

QUICK = (
    "ColumnTransformer and RandomForestClassifier",
    "HistGradientBoostingRegressor",
    "SVC, probabilities",
    "StandardScaler, PCA and SVR",
    "XGBoost classifier",
)


def check(name: str, folder: Path) -> None:
    trained = pipelines.train(pipelines.PIPELINES[name])
    path = folder / "model.onnx"
    trained.write(path)
    tolerance = trained.pipeline.tolerance
    with nnefc.compile(path).load(threads=1) as model:
        for samples in (trained.samples, trained.samples[:1]):
            found, wanted = model.run({"x": samples}), trained.results(samples)
            assert len(found) >= len(wanted)  # of some, only the first result has a method in scikit-learn
            for one, other in zip(found.values(), wanted, strict=False):
                assert one.size == other.size
                if other.dtype.kind in "iuOU":
                    np.testing.assert_array_equal(one.reshape(other.shape), other)
                else:
                    np.testing.assert_allclose(one.reshape(other.shape), other, rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUICK)
def test_models_agree_with_scikit_learn(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in pipelines.PIPELINES if name not in QUICK])
def test_all_models_agree_with_scikit_learn(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
