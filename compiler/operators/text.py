"""Texts as numbers: integers stand for words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from tvm import relax, tirx

from nnefc.diagnostics import CompileError
from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.statements import T, looped

__all__ = ["NgramCounts"]

_MOST_COLUMNS = 1 << 24

_MOST_SKIPS = 1024
"""Words between those of an n-gram: each number of them is code of its own."""


@dataclass(frozen=True, eq=False)
class NgramCounts(Operator):
    """How often n-grams occur in each row of words, with up to `skips` words between two of theirs, float32.

    ONNX `TfIdfVectorizer`. Each number of words between them counts by itself.

    Attributes:
        grams: for n = 1, 2, …, the n-grams, int64 `[count, n]`.
        columns: of each n-gram, the column of the result.
        weights: of each n-gram.
        lengths: the least and the largest n that count.
        skips: the most words between.
        mode: counts ("TF"), weights of those that occur ("IDF"), or weighted counts ("TFIDF").
    """

    grams: tuple[Array, ...]
    columns: Array
    weights: Array
    lengths: tuple[int, int]
    skips: int
    mode: Literal["TF", "IDF", "TFIDF"]

    def shape(self, x: Shape) -> Shape:
        """A column for each n-gram, of a row `[words]` or of rows `[rows, words]`."""
        if len(x) not in (1, 2) or 0 in x:
            raise CompileError(f"the input {list(x)} is neither a row nor a matrix of words")
        count, columns = sum(map(len, self.grams)), self.columns
        if count != len(columns) or not count or columns.min() < 0 or columns.max() >= _MOST_COLUMNS:
            raise CompileError(f"{len(columns)} places do not fit {count} n-grams")
        if len(self.weights) != count:
            raise CompileError(f"there are {len(self.weights)} weights for {count} n-grams")
        if not 1 <= self.lengths[0] <= self.lengths[1] or self.skips < 0:
            least, most = self.lengths
            raise CompileError(f"n-grams of {least} to {most} words with {self.skips} between are not possible")
        if min(self.skips, x[-1]) > _MOST_SKIPS:
            raise CompileError(f"{self.skips} words between those of an n-gram are more than {_MOST_SKIPS}")
        return (*x[:-1], int(columns.max()) + 1)

    def lower(self, at: Emitter, x: Operand) -> Operand:
        shape = self.shape(shape_of(x))
        rows, width, length = math.prod(shape[:-1]), shape[-1], shape_of(x)[-1]
        factors = np.zeros(width, np.float32)
        factors[self.columns] = self.weights
        firsts = accumulate((len(grams) for grams in self.grams), initial=0)
        begins = accumulate((grams.size for grams in self.grams), initial=0)
        least, most = self.lengths
        wanted = [
            (n, len(grams), first, begin)
            for n, (grams, first, begin) in enumerate(zip(self.grams, firsts, begins, strict=False), 1)
            if least <= n <= most and len(grams)
        ]

        def write(x: Any, pool: Any, columns: Any, factors: Any, out: Any) -> None:
            with T.serial(0, rows * width) as place:
                out[place] = tirx.const(0, "float32")
            for n, count, first, begin in wanted:
                for step in range(1, 2 if n == 1 else min(self.skips, length) + 2):
                    starts = length - (n - 1) * step
                    if starts <= 0:
                        continue
                    with T.serial(0, rows) as row, T.serial(0, starts) as start, T.serial(0, count) as gram:
                        same = [x[row * length + start + i * step] == pool[begin + gram * n + i] for i in range(n)]
                        with T.If(tirx.all(*same)), T.Then():
                            place = row * width + columns[first + gram]
                            out[place] = out[place] + tirx.const(1, "float32")
            if self.mode == "TF":
                return
            with T.serial(0, rows) as row, T.serial(0, width) as column:
                place = row * width + column
                occurs = tirx.min(out[place], tirx.const(1, "float32")) if self.mode == "IDF" else out[place]
                out[place] = occurs * factors[column]

        words = at.expr(x) if dtype_of(x) == "int64" else at.emit(relax.op.astype(at.expr(x), "int64"))
        pool = np.concatenate([grams.reshape(-1) for grams in self.grams])
        operands = [words, pool, self.columns.astype(np.int32), factors]
        return looped(at, write, operands, [(shape, "float32")], "count_ngrams")[0]
