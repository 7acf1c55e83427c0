"""Texts as numbers: TfIdfVectorizer, on integers that stand for words."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.tensors import Array, fail, input_at, spell
from nnefc.operators.text import NgramCounts

__all__: list[str] = []

_MODES = ("TF", "IDF", "TFIDF")


@operator("TfIdfVectorizer", since=(9,))
def _tf_idf_vectorizer(ctx: Context, node: Node) -> Any:
    given = node.attributes
    pool, columns = given.get("pool_int64s"), np.array(given["ngram_indexes"], np.int64)
    if pool is None:
        raise fail(node, "only pools of integers are supported")
    if given["mode"] not in _MODES:
        raise fail(node, f"the mode '{given['mode']}' is not supported")
    counts = NgramCounts(
        _grams(node, np.array(pool, np.int64), list(given["ngram_counts"])),
        columns,
        np.array(given.get("weights") or np.ones(len(columns)), np.float32),
        (given["min_gram_length"], given["max_gram_length"]),
        given["max_skip_count"],
        given["mode"],
    )
    return ctx.apply(counts, input_at(node, 0))


def _grams(node: Node, pool: Array, starts: list[int]) -> tuple[Array, ...]:
    """For n = 1, 2, …, the n-grams of the pool, `[count, n]`."""
    found = []
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % n:
            raise fail(node, f"'ngram_counts' {spell(starts)} does not divide a pool of {len(pool)} into n-grams")
        found.append(pool[begin:end].reshape(-1, n))
    return tuple(found)
