"""Every estimator and transformer of scikit-learn that skl2onnx has a converter for, trained on little data."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from skl2onnx._supported_operators import sklearn_operator_name_map
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import f_classif
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils import all_estimators
from sklearn.utils._tags import get_tags

__all__ = ["classes", "samples_for", "trained"]

ROWS, TRAINED = 90, 60

X, CLASSES = make_classification(ROWS, 6, n_informative=4, n_classes=3, n_redundant=0, random_state=1)
COUNTS = np.minimum(np.abs(np.round(2 * X)), 3)
WORDS = np.array(["ant bee", "bee", "cat ant cat", "dog, bee"], object)[CLASSES]
TARGETS = X @ np.linspace(-1, 1, 6) + 0.1 * CLASSES
SEVERAL = np.stack([CLASSES > 0, CLASSES > 1], axis=1).astype(np.int64)

_WITH: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "ColumnTransformer": lambda: {"transformers": [("a", StandardScaler(), [0, 2]), ("b", MinMaxScaler(), [1])]},
    "FeatureUnion": lambda: {"transformer_list": [("a", StandardScaler()), ("b", MinMaxScaler())]},
    "Pipeline": lambda: {"steps": [("a", StandardScaler()), ("b", LogisticRegression())]},
    "VotingClassifier": lambda: {"estimators": [("a", LogisticRegression()), ("b", LogisticRegression(C=0.1))]},
    "VotingRegressor": lambda: {"estimators": [("a", LinearRegression()), ("b", Ridge())]},
    "StackingClassifier": lambda: {"estimators": [("a", LogisticRegression()), ("b", LogisticRegression(C=0.1))]},
    "StackingRegressor": lambda: {"estimators": [("a", LinearRegression()), ("b", Ridge())]},
    "GridSearchCV": lambda: {"estimator": LogisticRegression(), "param_grid": {"C": [0.1, 1.0]}},
    "RandomizedSearchCV": lambda: {
        "estimator": LogisticRegression(),
        "param_distributions": {"C": [0.1, 1.0]},
        "n_iter": 1,
    },
    "RFE": lambda: {"estimator": LogisticRegression(), "n_features_to_select": 3},
    "RFECV": lambda: {"estimator": LogisticRegression()},
    "SelectFromModel": lambda: {"estimator": LogisticRegression()},
    "GenericUnivariateSelect": lambda: {"score_func": f_classif, "mode": "k_best", "param": 3},
    "SelectKBest": lambda: {"k": 3},
    "MultiOutputClassifier": lambda: {"estimator": LogisticRegression()},
    "MultiOutputRegressor": lambda: {"estimator": Ridge()},
    "RegressorChain": lambda: {"estimator": Ridge()},
    "ClassifierChain": lambda: {"estimator": LogisticRegression()},
    "SparseCoder": lambda: {"dictionary": np.eye(6)[:3]},
    "FunctionTransformer": dict,
    "KMeans": lambda: {"n_clusters": 3, "n_init": 1},
    "MiniBatchKMeans": lambda: {"n_clusters": 3, "n_init": 1},
    "GaussianMixture": lambda: {"n_components": 2},
    "QuantileTransformer": lambda: {"n_quantiles": 10},
    "FeatureHasher": lambda: {"n_features": 8, "input_type": "string"},
    "TunedThresholdClassifierCV": lambda: {"estimator": LogisticRegression()},
    "KBinsDiscretizer": lambda: {"n_bins": 3, "encode": "ordinal", "quantile_method": "averaged_inverted_cdf"},
    "LocalOutlierFactor": lambda: {"novelty": True},
    "NearestNeighbors": lambda: {"radius": None},
    "OrthogonalMatchingPursuitCV": lambda: {"max_iter": 3},
    "SelectPercentile": lambda: {"percentile": 50},
    "Perceptron": lambda: {"max_iter": 20},
    "RadiusNeighborsClassifier": lambda: {"radius": 9.0},
    "RadiusNeighborsRegressor": lambda: {"radius": 9.0},
    "HistGradientBoostingClassifier": lambda: {"max_iter": 3, "min_samples_leaf": 3},
    "HistGradientBoostingRegressor": lambda: {"max_iter": 3, "min_samples_leaf": 3},
}
"""Arguments of classes that cannot be made without, or would be large."""

_SMALL = {"n_estimators": 3, "random_state": 0, "n_components": 2, "max_iter": 200}
"""Arguments of all classes that have them."""

_COUNTS = ("MultinomialNB", "ComplementNB", "BernoulliNB", "CategoricalNB", "PoissonRegressor", "GammaRegressor")
_COUNTS += ("TweedieRegressor", "LatentDirichletAllocation", "NMF", "MiniBatchNMF", "AdditiveChi2Sampler")
_COUNTS += ("TfidfTransformer", "OrdinalEncoder", "OneHotEncoder", "TargetEncoder", "KBinsDiscretizer")
_TEXTS = ("CountVectorizer", "TfidfVectorizer", "HashingVectorizer", "FeatureHasher")
_BINARY = ("GaussianProcessClassifier", "TargetEncoder", "TunedThresholdClassifierCV")
_LABELS = ("LabelEncoder", "LabelBinarizer")
_OF_SEVERAL = ("MultiTask", "MultiOutput", "RegressorChain", "ClassifierChain", "CCA", "PLSCanonical")


def classes() -> dict[str, type]:
    """Returns the classes by name, sorted."""
    found = {made.__name__: made for _, made in all_estimators() if made in sklearn_operator_name_map}
    found |= {made.__name__: made for made in (ColumnTransformer, FeatureUnion, Pipeline)}
    return dict(sorted(found.items()))


def samples_for(name: str, dtype: type) -> Any:
    """Returns what an estimator of this name is trained on and tried with."""
    if name in _TEXTS:
        return WORDS[:, None] if name == "FeatureHasher" else WORDS
    if name in _LABELS:
        return CLASSES
    if name == "IsotonicRegression":
        return X[:, :1].astype(dtype)
    if name == "MultiLabelBinarizer":
        return [{int(number)} for number in CLASSES]
    if name == "DictVectorizer":
        return [{"a": float(row[0]), "b": float(row[1])} for row in X]
    if name == "KernelCenterer":
        return (X[:TRAINED] @ X[:TRAINED].T).astype(dtype)
    return (COUNTS if name in _COUNTS else X).astype(dtype)


def trained(made: type, dtype: type) -> tuple[Any, Any]:
    """Returns a trained estimator and its samples."""
    name = made.__name__
    parameters = inspect.signature(made).parameters
    arguments = {key: value for key, value in _SMALL.items() if key in parameters} | dict(_WITH.get(name, dict)())
    if "estimator" in parameters and parameters["estimator"].default is inspect.Parameter.empty:
        arguments.setdefault("estimator", LogisticRegression())
    estimator = made(**arguments)
    samples = samples_for(name, dtype)
    y: Any = CLASSES > 0 if name in _BINARY else CLASSES if get_tags(estimator).classifier_tags is not None else TARGETS
    if name.startswith(_OF_SEVERAL):
        y = (
            SEVERAL
            if "Regressor" not in name and name not in ("CCA", "PLSCanonical")
            else np.stack([TARGETS, X[:, 1]], 1)
        )
        y = np.stack([TARGETS, X[:, 1]], 1) if name.startswith("MultiTask") else y
    if name in ("GridSearchCV", "RandomizedSearchCV", "RFE", "RFECV", "SelectFromModel", "Pipeline"):
        y = CLASSES
    if get_tags(estimator).target_tags.positive_only:
        y = np.exp(TARGETS / 4)
    if get_tags(estimator).transformer_tags is not None and get_tags(estimator).target_tags.required:
        y = CLASSES > 0 if name in _BINARY else CLASSES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", FutureWarning)
        if name in _LABELS or name == "MultiLabelBinarizer":
            estimator.fit(samples[:TRAINED])
        else:
            estimator.fit(samples[:TRAINED], y[:TRAINED])
    return estimator, samples
