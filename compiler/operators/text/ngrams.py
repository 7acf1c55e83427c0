"""Counts the n-grams in rows of words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tvm import tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, is_empty, shape_of
from nnefc.operators.ml.lookup import Positions, search
from nnefc.operators.statements import T, each, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import bounds, expression

__all__ = ["NgramCounts"]

_MAX_COLUMNS = 1 << 24


@dataclass(frozen=True, eq=False)
class NgramCounts(Operator):
    """How often n-grams occur in each row of words, with up to `skips` words between two of theirs, float32.

    ONNX `TfIdfVectorizer`. Each number of words between them counts by itself. A table in ascending order leads from
    each n-gram by a further word to a longer one.

    Attributes:
        vocabulary: words, integers or strings; none twice.
        grams: for n = 1, 2, …, the n-grams, as positions in the vocabulary, int64 `[count, n]`.
        columns: of each n-gram, the column of the result.
        weights: of each n-gram.
        lengths: the smallest and the largest n that count.
        skips: the maximum number of words between.
        mode: counts ("TF"), weights of those that occur ("IDF"), or weighted counts ("TFIDF").
    """

    vocabulary: Array
    grams: tuple[Array, ...]
    columns: Array
    weights: Array
    lengths: tuple[int, int]
    skips: int
    mode: Literal["TF", "IDF", "TFIDF"]

    def shape(self, x: Shape) -> Shape:
        """A column for each n-gram, of a row `[words]` or of rows `[rows, words]`."""
        if len(x) not in (1, 2) or is_empty(x):
            raise CompileError(f"the input {list(x)} is neither a row nor a matrix of words")
        count, columns = sum(map(len, self.grams)), self.columns
        if count != len(columns) or not count or columns.min() < 0 or columns.max() >= _MAX_COLUMNS:
            raise CompileError(f"{len(columns)} columns do not fit {count} n-grams")
        if len(self.weights) != count:
            raise CompileError(f"there are {len(self.weights)} weights for {count} n-grams")
        if not 1 <= self.lengths[0] <= self.lengths[1] or self.skips < 0:
            minimum, maximum = self.lengths
            raise CompileError(f"n-grams of {minimum} to {maximum} words with {self.skips} between are not possible")
        return (*x[:-1], int(columns.max()) + 1)

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape = self.shape(shape_of(x))
        rows, width, length = math.prod(shape[:-1]), shape[-1], expression(shape_of(x)[-1])
        factors = np.zeros(width, np.float32)
        factors[self.columns] = self.weights
        levels = self._levels()
        words = ctx.apply(Positions(self.vocabulary), x)
        steps = min(self.skips, bounds(shape_of(x)[-1])[1]) + 1 if len(levels) > 1 else 1
        more = len(self.vocabulary) + 1

        def write(x: Any, factors: Any, *tail: Any) -> None:
            *tables, out, cells = tail
            with each(rows, rows * 64 * steps) as row:
                with T.serial(0, width) as column:
                    out[row * width + column] = tirx.const(0, "float32")
                with T.serial(0, length) as start, T.serial(0, steps) as between:
                    node = 2 * row
                    cells[node] = x[row * length + start]
                    with T.If(between == 0), T.Then():
                        _count(out, row * width, tables[0], cells[node])
                    for n in range(2, len(levels) + 1):
                        keys, columns, count = tables[2 * n - 3], tables[2 * n - 2], len(levels[n - 1][0])
                        position = start + (n - 1) * (between + 1)
                        with T.If(tirx.all(cells[node] < len(levels[n - 2][1]) - 1, position < length)):
                            with T.Then():
                                key = cells[node] * more + x[row * length + tirx.min(position, length - 1)]
                                search(keys, count, key, cells, node + 1)
                                cells[node] = cells[node + 1]
                                _count(out, row * width, columns, cells[node])
                            with T.Else():
                                cells[node] = tirx.const(count, "int64")
                if self.mode != "TF":
                    with T.serial(0, width) as column:
                        position = row * width + column
                        occurs = (
                            tirx.min(out[position], tirx.const(1, "float32")) if self.mode == "IDF" else out[position]
                        )
                        out[position] = occurs * factors[column]

        tables = [part for level in levels for part in level][1:]
        results = [(shape, "float32"), ((rows, 2), "int64")]
        return looped(ctx, write, [words, factors, *tables], results, "count_ngrams")[0]

    def _levels(self) -> list[tuple[Array, Array]]:
        """Return, for n = 1, 2, …, the keys of n-grams, and their columns (-1 for prefixes of longer n-grams only).

        An n-gram is a number: its word's for n = 1, else its position among keys, `shorter * (words + 1) + word`, in
        ascending order. One more number is none, and has no column.
        """
        first = 0
        paths: list[dict[tuple[int, ...], int]] = []
        for n, grams in enumerate(self.grams[: self.lengths[1]], 1):
            for number, gram in enumerate(grams.tolist(), first):
                paths += [{} for _ in range(n - len(paths))]
                if n >= self.lengths[0]:
                    for part in range(1, n):
                        paths[part - 1].setdefault(tuple(gram[:part]), -1)
                    if paths[n - 1].get(tuple(gram), -1) >= 0:
                        raise CompileError(f"the n-gram {[self.vocabulary[word] for word in gram]} is there twice")
                    paths[n - 1][tuple(gram)] = int(self.columns[number])
            first += len(grams)
        words = len(self.vocabulary)
        numbers: dict[tuple[int, ...], int] = {(word,): word for word in range(words)}
        columns = np.full(words + 1, -1, np.int64)
        for (word,), column in paths[0].items() if paths else ():
            columns[word] = column
        levels = [(np.arange(words), columns)]
        for level in paths[1:]:
            keyed = sorted((numbers[path[:-1]] * (words + 1) + path[-1], path) for path in level)
            numbers = {path: position for position, (_, path) in enumerate(keyed)}
            keys = np.array([key for key, _ in keyed] or [-1], np.int64)
            columns = np.array([*(level[path] for _, path in keyed), *[-1] * (1 if keyed else 2)], np.int64)
            levels.append((keys, columns))
        return levels


def _count(out: Any, first: Any, columns: Any, gram: Any) -> None:
    """Add 1 to the column of an n-gram, if it has one."""
    with T.If(columns[gram] >= 0), T.Then():
        position = first + columns[gram]
        out[position] = out[position] + tirx.const(1, "float32")
