"""Texts as numbers: TfIdfVectorizer, on integers that stand for words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.loops import T, looped
from nnefc.frontends.onnx.operators.tensors import cast, fail, input_at, known, shape_of, spell

__all__: list[str] = []

_MODES = ("TF", "IDF", "TFIDF")
_MOST = 1 << 24  # places of a result's row


@operator("TfIdfVectorizer", since=(9,))
def _tf_idf_vectorizer(ctx: Context, node: Node) -> Value:
    """How often the n-grams of the pool occur in each row, with up to `max_skip_count` words between two of theirs."""
    x, given = input_at(node, 0), node.attributes
    pool, indexes = given.get("pool_int64s"), np.array(given["ngram_indexes"], np.int64)
    if pool is None:
        raise fail(node, "only pools of integers are supported")
    if len(shape_of(x)) not in (1, 2) or 0 in shape_of(x):
        raise fail(node, f"the input {spell(shape_of(x))} is neither a row nor a matrix of words")
    least, most, skips = (int(given[name]) for name in ("min_gram_length", "max_gram_length", "max_skip_count"))
    grams = _grams(node, np.array(pool, np.int64), [int(start) for start in given["ngram_counts"]])
    count = sum(len(words) for words in grams)
    if count != len(indexes) or (indexes < 0).any() or (indexes >= _MOST).any() or not count:
        raise fail(node, f"{len(indexes)} places do not fit {count} n-grams")
    if not 1 <= least <= most or skips < 0 or given["mode"] not in _MODES:
        raise fail(node, f"n-grams of {least} to {most} words with {skips} between, or the mode, are not possible")
    width = int(indexes.max()) + 1
    weights = np.array(given.get("weights") or np.ones(count), np.float32)
    if len(weights) != count:
        raise fail(node, f"there are {len(weights)} weights for {count} n-grams")
    factors = np.zeros(width, np.float32)
    factors[indexes] = weights
    rows, length = math.prod(shape_of(x)[:-1]), shape_of(x)[-1]
    if min(skips, length) > _MOST_SKIPS:
        raise fail(node, f"{skips} words between those of an n-gram are more than {_MOST_SKIPS}")
    skips = min(skips, length)
    wanted = [(n, words) for n, words in enumerate(grams, 1) if least <= n <= most and len(words)]

    def write(x: Any, pool: Any, indexes: Any, factors: Any, out: Any) -> None:
        with T.serial(0, rows * width) as place:
            out[place] = tirx.const(0, "float32")
        for n, words in wanted:
            first, begin = _places(grams, n)
            for step in range(1, 2 if n == 1 else skips + 2):
                starts = length - (n - 1) * step
                if starts <= 0:
                    continue
                with T.serial(0, rows) as row, T.serial(0, starts) as start, T.serial(0, len(words)) as gram:
                    same = [x[row * length + start + word * step] == pool[begin + gram * n + word] for word in range(n)]
                    with T.If(tirx.all(*same)), T.Then():
                        place = row * width + indexes[first + gram]
                        out[place] = out[place] + tirx.const(1, "float32")
        if given["mode"] == "TF":
            return
        with T.serial(0, rows) as row, T.serial(0, width) as column:
            place = row * width + column
            occurs = tirx.min(out[place], tirx.const(1, "float32")) if given["mode"] == "IDF" else out[place]
            out[place] = occurs * factors[column]

    tables = [np.concatenate([words.reshape(-1) for words in grams]), indexes.astype(np.int32), factors]
    values = [cast(ctx, x, "int64"), *(known(ctx, table) for table in tables)]
    return looped(ctx, write, values, [((*shape_of(x)[:-1], width), "float32")], "count_ngrams")[0]


_MOST_SKIPS = 1024
"""Words between those of an n-gram: each number of them is code of its own."""


def _grams(node: Node, pool: np.ndarray, starts: list[int]) -> list[np.ndarray]:
    """For n = 1, 2, …, the n-grams of the pool, `[count, n]`."""
    found = []
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        if not 0 <= begin <= end <= len(pool) or (end - begin) % n:
            raise fail(node, f"'ngram_counts' {spell(starts)} does not divide a pool of {len(pool)} into n-grams")
        found.append(pool[begin:end].reshape(-1, n))
    return found


def _places(grams: list[np.ndarray], n: int) -> tuple[int, int]:
    """Where the n-grams begin: among all of them, and in the pool."""
    before = grams[: n - 1]
    return sum(len(words) for words in before), sum(words.size for words in before)
