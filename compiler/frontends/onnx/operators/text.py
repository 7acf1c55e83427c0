"""String operators: StringConcat, StringSplit, StringNormalizer, RegexFullMatch; and TfIdfVectorizer."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.ml.labels import positions
from nnefc.frontends.onnx.operators.tensors import Array, fail, input_at, spell
from nnefc.operators.tensor.shape import Reshape
from nnefc.operators.text.ngrams import NgramCounts
from nnefc.operators.text.strings import ChangeCase, JoinStrings, RegexMatch, SplitStrings
from nnefc.operators.text.tokens import Tokens

__all__: list[str] = []

_MODES = ("TF", "IDF", "TFIDF")


@operator("StringConcat", since=(20,))
def _string_concat(ctx: Context, node: Node) -> Any:
    return ctx.apply(JoinStrings(), input_at(node, 0), input_at(node, 1), dtype="string")


@operator("StringSplit", since=(20,))
def _string_split(ctx: Context, node: Node) -> list[Value]:
    given = node.attributes
    cuts = given.get("maxsplit")
    split = SplitStrings(given.get("delimiter") or "", -1 if cuts is None else cuts)
    pieces, counts = ctx.apply(split, input_at(node, 0))
    return [ctx.text(pieces), counts]


@operator("RegexFullMatch", since=(20,))
def _regex_full_match(ctx: Context, node: Node) -> Any:
    return ctx.apply(RegexMatch(node.attributes.get("pattern") or ""), input_at(node, 0))


@operator("Tokenizer", since=(1,), domain=DOMAIN)
def _tokenizer(ctx: Context, node: Node) -> Value:
    """Separators without characters ask for single characters."""
    given = node.attributes
    separators, expression = tuple(given.get("separators") or ()), given.get("tokenexp")
    if bool(separators) == bool(expression):
        raise fail(node, "it needs either 'separators' or 'tokenexp'")
    if given["mincharnum"] < 1:
        raise fail(node, f"tokens of {given['mincharnum']} characters are not possible")
    patterns = separators or (expression,)
    if separators == ("",):
        separators, patterns = (), ("(?s).",)
    tokens = Tokens(patterns, not separators, given["mincharnum"], bool(given["mark"]), given["pad_value"])
    return ctx.text(ctx.apply(tokens, input_at(node, 0)))


@operator("StringNormalizer", since=(10,))
def _string_normalizer(ctx: Context, node: Node) -> Value:
    """Without stop words, which are compared in lower case unless case counts; one empty string in place of none."""
    x, given = input_at(node, 0), node.attributes
    action, stops = given["case_change_action"], list(given.get("stopwords") or ())
    if action not in ("NONE", "LOWER", "UPPER"):
        raise fail(node, f"the change of case '{action}' is unknown")
    if x.rank not in (1, 2) or (x.rank == 2 and x.shape[0] != 1):
        raise fail(node, f"{spell(x.shape)} is neither a row of strings nor one with a dimension of 1 before it")
    flat: Value = ctx.apply(Reshape((x.shape[-1],)), x)
    if x.shape[-1] == 0:
        return ctx.known(np.full((1,) * x.rank, "", object))
    changed = flat if action == "NONE" else ctx.apply(ChangeCase(action), flat, dtype="string")
    if stops:
        compared = flat
        if not given["is_case_sensitive"]:
            compared = changed if action == "LOWER" else ctx.apply(ChangeCase("LOWER"), flat, dtype="string")
            stops = [word.lower() for word in stops]
        changed = _without(ctx, changed, compared, np.array(stops, object))
    made: Value = ctx.apply(Reshape((*x.shape[:-1], changed.shape[0])), changed)
    return made


def _without(ctx: Context, x: Value, compared: Value, stops: Array) -> Value:
    """The elements whose strings to compare are no stop words; an empty string if there are none."""
    indices = positions(ctx, compared, stops)
    (kept,) = ctx.call("Equal", indices, ctx.known(np.int64(len(stops))))
    (number,) = ctx.call("Cast", kept, to=_INT64)
    (maximum,) = ctx.call("ReduceMax", number, ctx.known(np.array([0])), keepdims=1)
    (none,) = ctx.call("Equal", maximum, ctx.known(np.int64(0)))
    (elements,) = ctx.call("Concat", x, ctx.known(np.array([""], object)), axis=0)
    (flags,) = ctx.call("Concat", kept, none, axis=0)
    (made,) = ctx.call("Compress", elements, flags, axis=0)
    assert isinstance(made, Value)
    return made


_INT64 = 7  # of TensorProto


@operator("TfIdfVectorizer", since=(9,))
def _tf_idf_vectorizer(ctx: Context, node: Node) -> Any:
    x, given = input_at(node, 0), node.attributes
    pool, columns = _pool(node, x.dtype == "string"), np.array(given["ngram_indexes"], np.int64)
    if given["mode"] not in _MODES:
        raise fail(node, f"the mode '{given['mode']}' is not supported")
    vocabulary, numbers = np.unique(pool, return_inverse=True)
    counts = NgramCounts(
        vocabulary.astype(x.dtype) if vocabulary.dtype != object else vocabulary,
        _grams(node, numbers.reshape(-1).astype(np.int64), list(given["ngram_counts"])),
        columns,
        np.array(given.get("weights") or np.ones(len(columns)), np.float32),
        (given["min_gram_length"], given["max_gram_length"]),
        given["max_skip_count"],
        given["mode"],
    )
    return ctx.apply(counts, x)


def _pool(node: Node, is_text: bool) -> Array:
    """The words of all n-grams, one after the other."""
    pool = node.attributes.get("pool_strings" if is_text else "pool_int64s")
    if not pool:
        raise fail(node, f"it has no pool of {'strings' if is_text else 'integers'}")
    return np.array(pool, object if is_text else np.int64)


def _grams(node: Node, pool: Array, starts: list[int]) -> tuple[Array, ...]:
    """Return the n-grams of the pool for n = 1, 2, …, each `[count, n]`."""
    found = []
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % n:
            raise fail(node, f"'ngram_counts' {spell(starts)} does not divide a pool of {len(pool)} into n-grams")
        found.append(pool[begin:end].reshape(-1, n))
    return tuple(found)
