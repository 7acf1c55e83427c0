"""Tables of texts and numbers, and texts, in pipelines of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")

from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

import nnefc
import nnefc.sklearn
from nnefc.integrations.sklearn_samples import columns_of, converted_to, table_of
from nnefc.integrations.sklearn_texts import token_expression
from nnefc.loader import Tensor

RNG = np.random.default_rng(0)
ROWS, TRAINED = 80, 60
KINDS, CITIES = ["ant", "bee", "cat"], ["Köln", "Paris", "Rio", "Oslo"]
WORDS = ["naïve", "a", "café", "dog", "x", "Hund", "is", "nice", "été", "b2"]
LABELS = RNG.integers(0, 3, ROWS)
TABLE = np.empty((ROWS, 5), object)
TABLE[:, 0] = [KINDS[label] for label in LABELS]
TABLE[:, 1] = [CITIES[i] for i in RNG.integers(0, 4, ROWS)]
TABLE[:, 2] = [", ".join(RNG.choice(WORDS[: 7 + label], 6)) for label in LABELS]
TABLE[:, 3] = (LABELS + RNG.standard_normal(ROWS)).tolist()
TABLE[:, 4] = RNG.integers(18, 80, ROWS).tolist()
TABLE[TRAINED, :2] = "ibex", "Bonn"  # which training does not know
TABLE[TRAINED + 1, 2] = "ein Wort, das niemand kennt: π"

NUMBERS = ("numbers", StandardScaler(), [3, 4])
UNKNOWN = {"handle_unknown": "use_encoded_value", "unknown_value": -1}
PIPELINES = {
    "one-hot": ([("kinds", OneHotEncoder(handle_unknown="ignore"), [0, 1]), NUMBERS], LogisticRegression()),
    "ordinal": ([("kinds", OrdinalEncoder(**UNKNOWN), [0, 1]), NUMBERS], RandomForestClassifier(3, random_state=0)),
    "words": ([("words", TfidfVectorizer(ngram_range=(1, 2)), 2), NUMBERS], LogisticRegression()),
    "all": (
        [
            ("kinds", make_pipeline(OrdinalEncoder(**UNKNOWN), MinMaxScaler()), [1]),
            ("words", CountVectorizer(binary=True, lowercase=False), 2),
            ("same", "passthrough", [4]),
        ],
        LogisticRegression(max_iter=500),
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.sample(2)
def test_pipelines_of_tables_give_what_the_originals_give(name: str) -> None:
    steps, last = PIPELINES[name]
    estimator = Pipeline([("columns", ColumnTransformer(steps)), ("last", last)]).fit(TABLE[:TRAINED], LABELS[:TRAINED])
    compiled = nnefc.sklearn.compile(estimator, TABLE[:TRAINED], threads=1)
    assert set(compiled.methods) == {"predict", "predict_proba"}
    assert [tensor.dtype for tensor in compiled.model.inputs] == ["string"] * 3 + ["float64", "int64"]
    np.testing.assert_array_equal(compiled.predict(TABLE), estimator.predict(TABLE))
    np.testing.assert_allclose(compiled.predict_proba(TABLE), estimator.predict_proba(TABLE), rtol=0, atol=1e-5)


TEXTS = ["The naïve café is a nice x", "a dog, a Hund; été!", "dog_1 x 2 b2 café café"] * 3
OTHERS = [*TEXTS, "niemand is a nice x dog", "", "Café\nÉTÉ ÇA π²", "x"]


@pytest.mark.parametrize(
    "vectorizer",
    [
        CountVectorizer(ngram_range=(1, 3)),
        TfidfVectorizer(ngram_range=(2, 2), token_pattern=r"(?u)\b\w+\b", sublinear_tf=True),
        CountVectorizer(stop_words=["is", "the"]),
    ],
    ids=["words of two letters", "pairs of words", "stop words"],
)
@pytest.mark.sample(2)
def test_words_of_any_language(vectorizer: CountVectorizer) -> None:
    vectorizer.fit(TEXTS)
    compiled = nnefc.sklearn.compile(vectorizer, TEXTS, threads=1)
    np.testing.assert_allclose(compiled.transform(OTHERS), vectorizer.transform(OTHERS).toarray(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("vectorizer", "words"),
    [
        (HashingVectorizer(n_features=64), "it has no converter for the HashingVectorizer"),
        (CountVectorizer(analyzer="char_wb"), "CountVectorizer with analyzer='char_wb'"),
        (TfidfVectorizer(stop_words=["is"], ngram_range=(1, 2)), "no operator leaves out words of a text"),
        (CountVectorizer(tokenizer=str.split, token_pattern=None), "CountVectorizer with a tokenizer of its own"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_vectorizers_that_onnx_cannot_express_are_refused_by_name(vectorizer: Any, words: str) -> None:
    with pytest.raises(nnefc.CompileError, match=words):
        nnefc.sklearn.compile(make_pipeline(vectorizer, LogisticRegression(max_iter=999)).fit(TEXTS, range(9)), TEXTS)


def test_columns_of_missing_values_are_refused_by_name() -> None:
    samples = np.array([[1, np.nan], [2, 3], [4, 5]])
    imputer = SimpleImputer(add_indicator=True)
    with pytest.raises(nnefc.CompileError, match="SimpleImputer with add_indicator=True"):
        nnefc.sklearn.compile(make_pipeline(imputer, StandardScaler()).fit(samples), samples)


def test_patterns_that_re2_reads_in_another_way_are_warned_of() -> None:
    assert token_expression(CountVectorizer(token_pattern="[a-z]+")) == "[a-z]+"
    with pytest.warns(nnefc.ModelWarning, match="know ASCII alone"):
        token_expression(CountVectorizer(token_pattern=r"\w{3,}"))
    with pytest.warns(nnefc.ModelWarning, match="white space"):
        assert token_expression(CountVectorizer(analyzer="char")) == "(?s)."


def test_samples_become_arrays_and_columns() -> None:
    assert table_of(["a", "bc"]).dtype == object and table_of([[1, 2], [3, 4]]).shape == (2, 2)
    assert table_of(np.array([[1, 2.5]], object)).dtype == np.float64
    assert columns_of(table_of(np.array([["a", "b"]], object))) is None
    found = columns_of(np.array([["a", 1, 2.5, True]], object)) or {}
    assert [array.dtype.kind for array in found.values()] == ["O", "i", "f", "b"]
    for samples in ([{"a": 1}], [{1, 2}], {"a": [1]}, [], "text", [[1], [2, 3]]):
        with pytest.raises(nnefc.CompileError, match="they must be an array or a data frame"):
            table_of(samples)
    with pytest.raises(nnefc.CompileError, match="the column x0 has values of NoneType, str"):
        columns_of(np.array([["a", 1], [None, 2]], object))


def test_other_values_than_those_of_training_are_refused() -> None:
    with pytest.raises(nnefc.CompileError, match="kind has values that are no texts"):
        converted_to(Tensor("kind", "string", ("n", 1)), np.array([[1]]))
    with pytest.raises(nnefc.CompileError, match="age has values that are not int64"):
        converted_to(Tensor("age", "int64", ("n", 1)), np.array([["a"]], object))


def test_columns_of_a_data_frame_by_their_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({name: TABLE[:, n] for n, name in enumerate(("kind", "the city", "text", "size", "age"))})
    frame = frame.astype({"size": np.float64, "age": np.int32, "kind": "category"})
    frame["unused"] = frame["size"] > 1
    named = [
        ("kinds", OneHotEncoder(handle_unknown="ignore"), ["the city", "kind", "unused"]),
        ("words", TfidfVectorizer(), "text"),
        ("numbers", StandardScaler(), ["age", "size"]),
    ]
    estimator = Pipeline([("columns", ColumnTransformer(named)), ("last", LogisticRegression())])
    estimator.fit(frame[:TRAINED], LABELS[:TRAINED])
    compiled = nnefc.sklearn.compile(estimator, frame[:TRAINED], threads=1)
    np.testing.assert_allclose(compiled.predict_proba(frame), estimator.predict_proba(frame), rtol=0, atol=1e-5)
