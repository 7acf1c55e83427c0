"""Operators that make strings or read them: compared with onnxruntime, the standard's own evaluator and Python."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnx_strings import STRING, WORDS, check, model_of, node, texts

import nnefc
from nnefc.loader import Model, RunError
from nnefc.operators.text import regex
from nnefc.operators.text.case_mapping import case_table
from nnefc.operators.text.regex import automaton
from nnefc.support.diagnostics import CompileError

BOOL, DOUBLE, FLOAT, INT8, INT64, UINT64 = (
    getattr(TensorProto, name) for name in ("BOOL", "DOUBLE", "FLOAT", "INT8", "INT64", "UINT64")
)
RNG = np.random.default_rng(8)


def compiled(
    folder: Path, nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, int], **values: Any
) -> Model:
    path = folder / "model.onnx"
    path.write_bytes(model_of(nodes, inputs, outputs, **values).SerializeToString())
    return nnefc.compile(path).load(threads=2)


def onnxruntime_session(folder: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


def test_strings_are_joined_and_split(tmp_path: Path) -> None:
    """By white space and by delimiters, as often as they occur or a few times; what is made of them is used again."""
    nodes = [
        node("StringConcat", "x y", "z"),
        node("StringConcat", "z space", "spaced"),
        node("StringSplit", "spaced", "words numbers"),
        node("StringSplit", "z", "some few", delimiter="ab", maxsplit=2),
        node("StringSplit", "x", "none one", maxsplit=1),
        node("StringConcat", "words dot", "again"),
        node("Equal", "some dot", "equal"),
    ]
    kinds = {"z": STRING, "words": STRING, "numbers": INT64, "some": STRING, "few": INT64, "none": STRING, "one": INT64}
    inputs = {"x": (STRING, ["n", 3]), "y": (STRING, ["n", 1])}
    constants = {"space": np.array("\u2003\t end ", object), "dot": np.array(["."], object)}
    proto = model_of(nodes, inputs, {**kinds, "again": STRING, "equal": BOOL}, **constants)
    words = ("", " ", "a", "ab", "abab", " a  b", "\u00a0日 本\u3000", "aab ", "é" * 40, "x y z ab ")
    check(proto, tmp_path, *({"x": texts(n, 3, words=words), "y": texts(n, 1, words=words)} for n in (5, 1, 60)))


def test_a_string_has_any_number_of_pieces(tmp_path: Path) -> None:
    nodes = [node("StringSplit", "x", "y n"), node("StringConcat", "y dot", "z")]
    with compiled(tmp_path, nodes, {"x": (STRING, [1])}, {"z": STRING}, dot=np.array(".", object)) as library:
        for count in (3, 100_000, 1, 0, 5):
            assert library(["a " * count]).tolist() == [["a."] * count]


@pytest.mark.filterwarnings("ignore:.*must be no less than 2")
@pytest.mark.parametrize("limit", [{}, {"maxsplit": 7}])
def test_a_piece_that_is_not_there_fails_the_run(limit: dict[str, int], tmp_path: Path) -> None:
    """An index that is known, of a dimension whose size is data-dependent."""
    nodes = [
        node("StringSplit", "x", "words n", **limit),
        node("Gather", "words second", "y", axis=1),
        node("GatherND", "words last", "z"),
        node("StringConcat", "y z", "joined"),
    ]
    constants = {"second": np.array(1), "last": np.array([[0, -1]])}
    with compiled(tmp_path, nodes, {"x": (STRING, [1])}, {"joined": STRING}, **constants) as library:
        assert library(["a bc d"]).tolist() == ["bcd"]
        for text in ("alone", "", "  "):
            with pytest.raises(RunError, match=r"an index is out of range|it takes 2 to|there is nothing to take"):
                library([text])
        assert library(["a b"]).tolist() == ["bb"]


def test_patterns_match_whole_strings(tmp_path: Path) -> None:
    patterns = [
        r"a*b|", r"[\w.]+@[a-z]+\.(com|org)", "[^a-c]{2,}", "é|日+", "(?i)straße|k+", r"(ab|a)(c|bcd)*", "^a.b$",
        r"\d+(\.\d*)?", r"[[:alpha:]]+\s?", r"(?s).*", r"\p{Lu}\PL*", r"\x41\x{65e5}?", "(^)*a", r"\Qa.b\E*", "[]a-]+",
        r"\bab?\b.*", r"(\w+\b\W*)+", r".*\Bb\B.*", r"(?s).*\b", r"(?ms).*^a.*$", r"(?m)(^a$|\n|b)*",
        r"\b|\B0", r"(\bé\b|日)*",
    ]  # fmt: skip
    nodes = [node("RegexFullMatch", "x", f"y{i}", pattern=pattern) for i, pattern in enumerate(patterns)]
    letters = list("abcABCkKs\u212a\u017fßé日 .com@w1-]z\n0")
    x = np.array(["".join(RNG.choice(letters, RNG.integers(0, 6))) for _ in range(400)], object)
    x[:8] = ["a.b", "joe.b@mail.com", "straße", "STRASSE", "STRAßE", "3.14", "A日", "Éa"]
    outputs = {f"y{i}": BOOL for i in range(len(patterns))}
    with compiled(tmp_path, nodes, {"x": (STRING, ["n"])}, outputs) as library:
        found = library.run({"x": x})
        expected = onnxruntime_session(tmp_path).run(None, {"x": x})
        for pattern, result, right in zip(patterns, found.values(), expected, strict=True):
            assert x[result != right].tolist() == [], pattern
        assert library(np.array([b"\xff", b"a\xff", b"\xc3"], object))[9].tolist() == [False] * 3  # no UTF-8


def test_hashes_of_strings(tmp_path: Path) -> None:
    nodes = [
        node("MurmurHash3", "x", "unsigned", domain="com.microsoft"),
        node("MurmurHash3", "x", "signed", domain="com.microsoft", positive=0, seed=7),
    ]
    outputs = {"unsigned": TensorProto.UINT32, "signed": TensorProto.INT32}
    x = np.array(["", "a", "ab", "abc", "abcd", "abcde", "é日本", "x\0y", "a" * 33], object)
    with compiled(tmp_path, nodes, {"x": (STRING, ["n"])}, outputs) as library:
        for found, wanted in zip(library(x), onnxruntime_session(tmp_path).run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_patterns_that_cannot_be_compiled_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex, "_MAX_STATES", 1 << 10)
    monkeypatch.setattr(regex, "_MAX_PARTS", 1 << 12)
    monkeypatch.setattr(regex, "_MAX_WORK", 1 << 19)
    for pattern, message in (
        ("a(b", r"a '\)' is missing"),
        ("a)", r"a '\)' without a '\('"),
        ("*a", "nothing to repeat"),
        ("a**", "two repetitions"),
        ("[a", "ends too early"),
        ("[b-a]", "is empty"),
        (r"(a)\1", "references to groups"),
        (r"(?=a)", "is no group of RE2's"),
        (r"\p{Greek}", "scripts are not supported"),
        ("a{1001}", "up to 1000 are possible"),
        ("(" * 300, "nested more than"),
        (".{1000}{1000}", "two repetitions|too large"),
        ("(.{500}){500}", "too large"),
        ("(a|b)*a(a|b){20}", "too large"),
    ):
        with pytest.raises(CompileError, match=message):
            automaton(pattern)


def test_case_changes_as_in_python(tmp_path: Path) -> None:
    """Letters that become several, a sigma at the end of a word, and whatever has a case."""
    strange = ["ΑΣ", "ΑΣ'Σ", "Σ", "aΣ.b", "'Σ", "İI", "ßﬃ", "ǅ", "ŉ", "ΐ", "𐐀𐐨", "a\u0345Σ"]
    cased = [c for n in range(0x1F000) if (c := chr(n)).lower() != c or c.upper() != c]
    x = np.array([*strange, *WORDS, *("".join(cased[i : i + 60]) for i in range(0, len(cased), 60))], object)
    nodes = [node("StringNormalizer", "x", kind, case_change_action=kind) for kind in ("LOWER", "UPPER", "NONE")]
    kinds = {"LOWER": STRING, "UPPER": STRING, "NONE": STRING}
    with compiled(tmp_path, nodes, {"x": (STRING, ["n"])}, kinds) as library:
        lower, upper, same = library(x)
        assert lower.tolist() == [word.lower() for word in x]
        assert upper.tolist() == [word.upper() for word in x]
        assert same.tolist() == x.tolist()
        odd = np.array([b"\xffA\xc3", b"\xce"], object)
        assert library(odd)[0].tolist() == ["\udcffa\udcc3", "\udcce"]
    assert unicodedata.unidata_version and len(case_table("UPPER")) < 1 << 16


@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.sample(1)
def test_stop_words_are_left_out(sensitive: int, tmp_path: Path) -> None:
    nodes = [
        node("StringNormalizer", "x", action, case_change_action=action, is_case_sensitive=sensitive,
             stopwords=["Monday", "ÉTÉ", "b"])
        for action in ("LOWER", "UPPER", "NONE")
    ]  # fmt: skip
    words = ("monday", "Monday", "été", "ÉTÉ", "b", "B", "tuesday", "a b", "")
    kinds = {"LOWER": STRING, "UPPER": STRING, "NONE": STRING}
    with compiled(tmp_path, nodes, {"x": (STRING, [1, 6])}, kinds) as library:
        for x in (texts(1, 6, words=words), texts(1, 6, words=words), np.full((1, 6), "b", object)):
            kept = [w for w in x[0] if (w if sensitive else w.lower()) not in (
                {"Monday", "ÉTÉ", "b"} if sensitive else {"monday", "été", "b"})] or [""]  # fmt: skip
            lower, upper, same = library(x)
            assert (lower.tolist(), upper.tolist()) == ([[w.lower() for w in kept]], [[w.upper() for w in kept]])
            assert same.tolist() == [kept]


def test_numbers_become_strings_as_in_onnxruntime_and_come_back(tmp_path: Path) -> None:
    reals = np.array([1, 0.1, 1e10, np.pi, 1e-7, np.nan, np.inf, -np.inf, -0.0, 123456789, 1e38, 1 / 3])
    given = {
        "f": reals.astype(np.float32),
        "d": reals * 1e20,
        "b": np.array([True, False]),
        "i": np.array([-(1 << 63), 0, 42]),
        "c": np.array([-128, 7], np.int8),
        "u": np.array([(1 << 64) - 1], np.uint64),
    }
    kinds = {"f": FLOAT, "d": DOUBLE, "b": BOOL, "i": INT64, "c": INT8, "u": UINT64}
    nodes = [node("Cast", name, f"{name}s", to=STRING) for name in given]
    nodes += [node("Cast", f"{name}s", f"{name}2", to=kinds[name]) for name in given]
    outputs = {f"{name}s": STRING for name in given} | {f"{name}2": kinds[name] for name in given}
    inputs = {name: (kinds[name], array.shape) for name, array in given.items()}
    with compiled(tmp_path, nodes, inputs, outputs) as library:
        found = library.run(given)
    del outputs["b2"]  # which onnxruntime cannot read
    for name, expected in zip(outputs, onnxruntime_session(tmp_path).run(list(outputs), given), strict=True):
        np.testing.assert_array_equal(found[name], expected, name)
    np.testing.assert_array_equal(found["b2"], given["b"])
    known = [node("Cast", "k", "y", to=STRING), node("Identity", "x", "z")]
    with compiled(tmp_path, known, {"x": (STRING, [1])}, {"y": STRING, "z": STRING}, k=given["f"]) as library:
        np.testing.assert_array_equal(library(["a"])[0], found["fs"])


def test_strings_that_are_no_numbers_fail_the_run(tmp_path: Path) -> None:
    nodes = [node("Cast", "x", "f", to=FLOAT), node("Cast", "x", "i", to=INT8)]
    with compiled(tmp_path, nodes, {"x": (STRING, [2])}, {"f": FLOAT, "i": INT8}) as library:
        real, whole = library([" 1e1\n", "-7.9"])
        assert (real.tolist(), whole.tolist()) == ([10, np.float32(-7.9)], [10, -7])
        for text in ("abc", "", " ", "1.5x", "0x10", "nan(1)", "1,5", "1" * 500, "1\0", "128", "inf", "--1"):
            with pytest.raises(RunError, match=r"is not a number|is out of the range of its type"):
                library(["1", text])
        assert library(["3", "4"])[1].tolist() == [3, 4]


def ngrams(words: Any, kind: str, **more: Any) -> onnx.NodeProto:
    """Counts of 5 words, 4 pairs and 2 triples."""
    pool = [*words[:5], *words[0:2], *words[1:3], words[0], words[0], words[2], words[4], *words[0:3], *words[2:5]]
    given = {"min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 0, "ngram_counts": [0, 5, 13]}
    given |= {"ngram_indexes": [3, 0, 1, 2, 4, 9, 6, 7, 8, 5, 10], f"pool_{kind}": pool, "mode": "TF"}
    return node("TfIdfVectorizer", "x", "y", **{**given, **more})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_skip_count": 3},
        {"min_gram_length": 2, "max_gram_length": 2, "max_skip_count": 10},
        {"mode": "TFIDF", "weights": [0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "max_skip_count": 1},
    ],
)
@pytest.mark.parametrize("kind", ["strings", "int64s"])
@pytest.mark.sample(2)
def test_ngrams_of_strings_and_integers(kind: str, more: dict[str, Any], tmp_path: Path) -> None:
    words: Any = ["a", "Ärger", "日本", "", "long" * 50, "unknown"] if kind == "strings" else [7, -1, 1 << 40, 0, 5, 99]
    input_ = (STRING if kind == "strings" else INT64, ["n", "m"])
    with compiled(tmp_path, [ngrams(words, kind, **more)], {"x": input_}, {"y": FLOAT}) as library:
        session = onnxruntime_session(tmp_path)
        for shape in ((1, 1), (3, 30), (40, 7)):
            x = RNG.choice(np.array(words, object if kind == "strings" else np.int64), shape)
            np.testing.assert_allclose(library(x), session.run(None, {"x": x})[0], rtol=1e-6)


def test_a_pipeline_from_a_sentence_to_counts(tmp_path: Path) -> None:
    """Lower case, split into words, none of them a stop word: with data-dependent sizes."""
    nodes = [
        node("StringNormalizer", "x", "lower", case_change_action="LOWER"),
        node("StringSplit", "lower", "words number"),
        node("StringNormalizer", "words", "kept", stopwords=["the", "a"], is_case_sensitive=1),
        node("TfIdfVectorizer", "kept", "y", pool_strings=["cat", "mat", "cat", "sat"], ngram_counts=[0, 2],
             ngram_indexes=[0, 1, 2], min_gram_length=1, max_gram_length=2, max_skip_count=0, mode="TF"),
    ]  # fmt: skip
    with compiled(tmp_path, nodes, {"x": (STRING, [1])}, {"y": FLOAT, "kept": STRING}) as library:
        for sentence, counts in (("The CAT sat on a Mat", [1, 1, 1]), ("the a", [0, 0, 0]), ("cat cat sat", [2, 0, 1])):
            assert library([sentence])[0].tolist() == [counts]


TOKENIZERS: list[dict[str, Any]] = [
    {"tokenexp": "[a-zA-Z0-9_]+"},
    {"tokenexp": "é|日.|a*", "mincharnum": 2, "mark": 1},
    {"separators": [""], "mark": 1},
    {"separators": [" ", ",+|b"]},
    {"tokenexp": r"\b[a-z]\w*\b"},
    {"tokenexp": r"\B\w|\bé"},
    {"separators": [r"\b", "a"]},
    {"separators": ["a", " *"], "mincharnum": 2},
]


def test_tokens_are_those_of_onnxruntime(tmp_path: Path) -> None:
    """Matches, characters, and what is between separators, one after the other; as many as the longest string has."""
    nodes = [
        node("Tokenizer", "x", f"y{i}", "com.microsoft", **{"mark": 0, "mincharnum": 1, "pad_value": "#", **given})
        for i, given in enumerate(TOKENIZERS)
    ]
    proto = model_of(nodes, {"x": (STRING, ["n"])}, {f"y{i}": STRING for i in range(len(nodes))})
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    letters = np.array(list("aab é日_, ,0Z\n"))
    with nnefc.compile(path).load(threads=1) as library:
        for count in (1, 30, 5):
            x = np.array(["x", *("".join(RNG.choice(letters, RNG.integers(0, 12))) for _ in range(count))], object)
            found, expected = library(x), onnxruntime_session(tmp_path).run(None, {"x": x})
            for given, result, right in zip(TOKENIZERS, found, expected, strict=True):
                assert result.tolist() == right.tolist(), given


def test_tokens_that_cannot_be_found_are_refused(tmp_path: Path) -> None:
    for given, message in (
        ({}, "either 'separators' or 'tokenexp'"),
        ({"tokenexp": "a", "separators": ["b"]}, "either 'separators' or 'tokenexp'"),
        ({"tokenexp": "a", "mincharnum": 0}, "tokens of 0 characters"),
        ({"tokenexp": "(?m)^a"}, "are for whole strings"),
    ):
        made = node("Tokenizer", "x", "y", "com.microsoft", **{"mark": 0, "mincharnum": 1, "pad_value": "", **given})
        proto = model_of([made], {"x": (STRING, [1])}, {"y": STRING})
        proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
        with pytest.raises(CompileError, match=message):
            nnefc.compile(tmp_path / "model.onnx")
