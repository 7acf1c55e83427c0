"""Models of scikit-learn, LightGBM and XGBoost, trained on small data, and the ONNX files of their converters.

`PIPELINES` says of each how it is made, the data that it is trained on, and what is particular in its conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx.helper
import sklearn.calibration as calibration
import sklearn.cluster as cluster
import sklearn.compose as compose
import sklearn.cross_decomposition as cross_decomposition
import sklearn.decomposition as decomposition
import sklearn.discriminant_analysis as discriminant
import sklearn.ensemble as ensemble
import sklearn.feature_selection as selection
import sklearn.gaussian_process as gaussian
import sklearn.impute as impute
import sklearn.linear_model as linear
import sklearn.mixture as mixture
import sklearn.naive_bayes as bayes
import sklearn.neighbors as neighbors
import sklearn.neural_network as network
import sklearn.preprocessing as prep
import sklearn.svm as svm
import sklearn.tree as tree
from sklearn.datasets import make_classification, make_regression
from sklearn.pipeline import make_pipeline

__all__ = ["PIPELINES", "Pipeline", "Trained", "train"]

_SAMPLES, _FEATURES, _CLASSES = 400, 10, 3
_OPSETS = {"": 21, "ai.onnx.ml": 3}


@dataclass(frozen=True)
class Pipeline:
    """How a model is made.

    Attributes:
        make: the model, not trained yet.
        data: the name of the data that it is trained on, one of `_DATA`.
        methods: of the model, in the order of the outputs of the converted one.
        options: of skl2onnx.
        tolerance: of results, relative to their magnitude.
        converter: what converts it.
    """

    make: Callable[[], Any]
    data: str = "classes"
    methods: tuple[str, ...] = ("predict", "predict_proba")
    options: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5
    converter: str = "skl2onnx"


@dataclass(frozen=True)
class Trained:
    """A trained model, samples that it has not seen, and its results for these, in the order of the ONNX outputs."""

    pipeline: Pipeline
    model: Any
    samples: np.ndarray

    def results(self, samples: np.ndarray | None = None) -> list[np.ndarray]:
        """What scikit-learn computes."""
        given = self.samples if samples is None else samples
        return [np.asarray(getattr(self.model, method)(given)) for method in self.pipeline.methods]

    def write(self, path: Path) -> None:
        """Convert to ONNX, with the number of samples open."""
        path.write_bytes(_converted(self).SerializeToString())


def train(pipeline: Pipeline) -> Trained:
    """Train a model on the first half of its data; the others are its samples."""
    x, y = _DATA[pipeline.data]()
    half = len(x) // 2
    model = pipeline.make()
    model.fit(x[:half], y[:half])
    return Trained(pipeline, model, x[half:])


def _converted(trained: Trained) -> Any:
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType

    width, whole = trained.samples.shape[1], trained.samples.dtype == np.int64
    borders = [("x", (Int64TensorType if whole else FloatTensorType)([None, width]))]
    match trained.pipeline.converter:
        case "lightgbm":
            from onnxmltools import convert_lightgbm
            from onnxmltools.convert.common.data_types import FloatTensorType as Floats

            return convert_lightgbm(trained.model, initial_types=[("x", Floats([None, width]))], zipmap=False)
        case "xgboost":
            from onnxmltools import convert_xgboost
            from onnxmltools.convert.common.data_types import FloatTensorType as Floats

            return convert_xgboost(trained.model, initial_types=[("x", Floats([None, width]))])
    from skl2onnx import convert_sklearn

    options = {id(trained.model): dict(trained.pipeline.options)} if trained.pipeline.options else None
    with patch("onnx.helper.make_attribute", _attribute):
        return convert_sklearn(trained.model, initial_types=borders, options=options, target_opset=_OPSETS)


def _attribute(key: str, value: Any, *more: Any, **named: Any) -> Any:
    """An attribute; of booleans, which skl2onnx gives for missing values, newer versions of protobuf make none."""
    if isinstance(value, list) and any(isinstance(item, bool | np.bool_) for item in value):
        value = list(map(int, value))
    return _MAKE_ATTRIBUTE(key, value, *more, **named)


_MAKE_ATTRIBUTE = onnx.helper.make_attribute


def _classes(count: int = _CLASSES) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_classification(_SAMPLES, _FEATURES, n_informative=6, n_classes=count, random_state=7)
    return x.astype(np.float32), y


def _values() -> tuple[np.ndarray, np.ndarray]:
    x, y = make_regression(_SAMPLES, _FEATURES, n_informative=6, noise=0.1, random_state=7)
    return x.astype(np.float32), (y / 100).astype(np.float32)


def _with_gaps(data: Callable[[], tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    x, y = data()
    x[np.random.default_rng(3).random(x.shape) < 0.1] = np.nan
    return x, y


def _categories() -> tuple[np.ndarray, np.ndarray]:
    """Columns of small integers, whose sum modulo the number of classes is the class."""
    x = np.random.default_rng(4).integers(0, 5, (_SAMPLES, 4))
    return x, (x.sum(1) + (x[:, 0] > 2)) % _CLASSES


def _mixed() -> tuple[np.ndarray, np.ndarray]:
    """Measured columns, and categories in the last two."""
    x, y = _classes()
    whole, _ = _categories()
    return np.concatenate([x[:, :8], whole[:, :2].astype(np.float32)], 1), y


def _counts() -> tuple[np.ndarray, np.ndarray]:
    x, y = _classes()
    return np.floor(np.abs(x) * 3), y


_DATA: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "classes": _classes,
    "two classes": lambda: _classes(2),
    "values": _values,
    "classes with gaps": lambda: _with_gaps(_classes),
    "values with gaps": lambda: _with_gaps(_values),
    "categories": _categories,
    "mixed": _mixed,
    "counts": _counts,
}

_VALUE: Mapping[str, Any] = {"data": "values", "methods": ("predict",)}
_STEP: Mapping[str, Any] = {"methods": ("transform",)}
_SEED = 0


def _columns() -> Any:
    """Measured columns are filled in and scaled, categories become columns of zeros and ones."""
    measured = make_pipeline(impute.SimpleImputer(), prep.StandardScaler())
    categories = prep.OneHotEncoder(handle_unknown="ignore")
    return compose.ColumnTransformer([("m", measured, list(range(8))), ("c", categories, [8, 9])])


def _several() -> list[tuple[str, Any]]:
    return [
        ("logistic", linear.LogisticRegression(max_iter=500)),
        ("tree", tree.DecisionTreeClassifier(max_depth=4, random_state=_SEED)),
        ("bayes", bayes.GaussianNB()),
    ]


def _lightgbm(kind: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        import lightgbm

        return getattr(lightgbm, kind)(n_estimators=20, random_state=_SEED, verbose=-1, n_jobs=1, **options)

    return make


def _xgboost(kind: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        import xgboost

        return getattr(xgboost, kind)(n_estimators=20, max_depth=4, random_state=_SEED, n_jobs=1, **options)

    return make


PIPELINES: dict[str, Pipeline] = {
    "LinearRegression": Pipeline(linear.LinearRegression, **_VALUE),
    "Ridge": Pipeline(linear.Ridge, **_VALUE),
    "Lasso": Pipeline(lambda: linear.Lasso(0.01), **_VALUE),
    "ElasticNet": Pipeline(lambda: linear.ElasticNet(0.01), **_VALUE),
    "BayesianRidge": Pipeline(linear.BayesianRidge, **_VALUE),
    "LogisticRegression": Pipeline(lambda: linear.LogisticRegression(max_iter=500)),
    "LogisticRegression, two classes": Pipeline(linear.LogisticRegression, "two classes"),
    "SGDClassifier": Pipeline(lambda: linear.SGDClassifier(loss="log_loss", random_state=_SEED), "two classes"),
    "RidgeClassifier": Pipeline(linear.RidgeClassifier, methods=("predict",)),
    "LinearSVC": Pipeline(svm.LinearSVC, methods=("predict", "decision_function")),
    "LinearSVR": Pipeline(svm.LinearSVR, **_VALUE),
    "SVC": Pipeline(svm.SVC, methods=("predict", "decision_function"), options={"raw_scores": True}),
    "SVC, probabilities": Pipeline(lambda: svm.SVC(probability=True, random_state=_SEED), tolerance=1e-4),
    "SVC, polynomial": Pipeline(
        lambda: svm.SVC(kernel="poly"), methods=("predict", "decision_function"), options={"raw_scores": True}
    ),
    "NuSVC": Pipeline(svm.NuSVC, methods=("predict", "decision_function"), options={"raw_scores": True}),
    "SVR": Pipeline(svm.SVR, **_VALUE),
    "NuSVR": Pipeline(svm.NuSVR, **_VALUE),
    "OneClassSVM": Pipeline(svm.OneClassSVM, methods=("predict",)),
    "DecisionTreeClassifier": Pipeline(lambda: tree.DecisionTreeClassifier(random_state=_SEED)),
    "DecisionTreeRegressor": Pipeline(lambda: tree.DecisionTreeRegressor(random_state=_SEED), **_VALUE),
    "RandomForestClassifier": Pipeline(lambda: ensemble.RandomForestClassifier(30, random_state=_SEED)),
    "RandomForestRegressor": Pipeline(lambda: ensemble.RandomForestRegressor(30, random_state=_SEED), **_VALUE),
    "ExtraTreesClassifier": Pipeline(lambda: ensemble.ExtraTreesClassifier(30, random_state=_SEED)),
    "ExtraTreesRegressor": Pipeline(lambda: ensemble.ExtraTreesRegressor(30, random_state=_SEED), **_VALUE),
    "GradientBoostingClassifier": Pipeline(lambda: ensemble.GradientBoostingClassifier(n_estimators=20)),
    "GradientBoostingClassifier, two classes": Pipeline(
        lambda: ensemble.GradientBoostingClassifier(n_estimators=20), "two classes"
    ),
    "GradientBoostingRegressor": Pipeline(lambda: ensemble.GradientBoostingRegressor(n_estimators=20), **_VALUE),
    "HistGradientBoostingClassifier": Pipeline(
        lambda: ensemble.HistGradientBoostingClassifier(max_iter=20), "classes with gaps"
    ),
    "HistGradientBoostingRegressor": Pipeline(
        lambda: ensemble.HistGradientBoostingRegressor(max_iter=20), "values with gaps", ("predict",)
    ),
    "AdaBoostClassifier": Pipeline(lambda: ensemble.AdaBoostClassifier(n_estimators=10, random_state=_SEED)),
    "BaggingClassifier": Pipeline(lambda: ensemble.BaggingClassifier(random_state=_SEED)),
    "IsolationForest": Pipeline(
        lambda: ensemble.IsolationForest(n_estimators=30, random_state=_SEED), methods=("predict", "decision_function")
    ),
    "VotingClassifier": Pipeline(lambda: ensemble.VotingClassifier(_several(), voting="soft", flatten_transform=False)),
    "StackingClassifier": Pipeline(lambda: ensemble.StackingClassifier(_several())),
    "CalibratedClassifierCV": Pipeline(lambda: calibration.CalibratedClassifierCV(bayes.GaussianNB())),
    "KNeighborsClassifier": Pipeline(neighbors.KNeighborsClassifier),
    "KNeighborsRegressor": Pipeline(neighbors.KNeighborsRegressor, **_VALUE),
    "GaussianNB": Pipeline(bayes.GaussianNB),
    "MultinomialNB": Pipeline(bayes.MultinomialNB, "counts"),
    "BernoulliNB": Pipeline(bayes.BernoulliNB),
    "MLPClassifier": Pipeline(lambda: network.MLPClassifier((20,), max_iter=100, random_state=_SEED)),
    "MLPRegressor": Pipeline(
        lambda: network.MLPRegressor(hidden_layer_sizes=(20,), max_iter=100, random_state=_SEED), **_VALUE
    ),
    "GaussianProcessRegressor": Pipeline(
        lambda: gaussian.GaussianProcessRegressor(
            gaussian.kernels.RBF(3.0) + gaussian.kernels.WhiteKernel(0.1), optimizer=None
        ),
        **_VALUE,
        tolerance=1e-4,
    ),
    "LinearDiscriminantAnalysis": Pipeline(discriminant.LinearDiscriminantAnalysis),
    "QuadraticDiscriminantAnalysis": Pipeline(lambda: discriminant.QuadraticDiscriminantAnalysis(reg_param=0.1)),
    "KMeans": Pipeline(lambda: cluster.KMeans(4, n_init=1, random_state=_SEED), methods=("predict", "transform")),
    "GaussianMixture": Pipeline(lambda: mixture.GaussianMixture(3, reg_covar=1e-2, random_state=_SEED)),
    "PLSRegression": Pipeline(cross_decomposition.PLSRegression, **_VALUE),
    "PCA": Pipeline(lambda: decomposition.PCA(5), **_STEP),
    "TruncatedSVD": Pipeline(lambda: decomposition.TruncatedSVD(5, random_state=_SEED), **_STEP),
    "StandardScaler": Pipeline(prep.StandardScaler, **_STEP),
    "MinMaxScaler": Pipeline(prep.MinMaxScaler, **_STEP),
    "MaxAbsScaler": Pipeline(prep.MaxAbsScaler, **_STEP),
    "RobustScaler": Pipeline(prep.RobustScaler, **_STEP),
    "Normalizer": Pipeline(prep.Normalizer, **_STEP),
    "Binarizer": Pipeline(prep.Binarizer, **_STEP),
    "PolynomialFeatures": Pipeline(prep.PolynomialFeatures, **_STEP),
    "KBinsDiscretizer": Pipeline(
        lambda: prep.KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"), **_STEP
    ),
    "PowerTransformer": Pipeline(prep.PowerTransformer, **_STEP, tolerance=1e-4),
    "OneHotEncoder": Pipeline(lambda: prep.OneHotEncoder(sparse_output=False), "categories", **_STEP),
    "OrdinalEncoder": Pipeline(prep.OrdinalEncoder, "categories", **_STEP),
    "SimpleImputer": Pipeline(impute.SimpleImputer, "classes with gaps", **_STEP),
    "SelectKBest": Pipeline(lambda: selection.SelectKBest(k=4), **_STEP),
    "VarianceThreshold": Pipeline(lambda: selection.VarianceThreshold(1.5), **_STEP),
    "ColumnTransformer and LogisticRegression": Pipeline(
        lambda: make_pipeline(_columns(), linear.LogisticRegression(max_iter=500)), "mixed"
    ),
    "ColumnTransformer and RandomForestClassifier": Pipeline(
        lambda: make_pipeline(_columns(), ensemble.RandomForestClassifier(20, random_state=_SEED)), "mixed"
    ),
    "StandardScaler, PCA and SVR": Pipeline(
        lambda: make_pipeline(prep.StandardScaler(), decomposition.PCA(5), svm.SVR()), **_VALUE
    ),
    "LightGBM classifier": Pipeline(_lightgbm("LGBMClassifier"), "classes with gaps", converter="lightgbm"),
    "LightGBM classifier, categories": Pipeline(
        _lightgbm("LGBMClassifier", categorical_feature=[8, 9]), "mixed", converter="lightgbm"
    ),
    "LightGBM regressor": Pipeline(
        _lightgbm("LGBMRegressor"), "values with gaps", methods=("predict",), converter="lightgbm"
    ),
    "XGBoost classifier": Pipeline(_xgboost("XGBClassifier"), "classes with gaps", converter="xgboost"),
    "XGBoost classifier, two classes": Pipeline(_xgboost("XGBClassifier"), "two classes", converter="xgboost"),
    "XGBoost regressor": Pipeline(
        _xgboost("XGBRegressor"), "values with gaps", methods=("predict",), converter="xgboost"
    ),
}
