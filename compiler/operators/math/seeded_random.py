"""Random numbers as TensorFlow's generators draw them: the same bits for the same two seeds.

The generator is that of `random.py`. The first seed is the key, the second one the upper half of the counter; the lower
half counts blocks of four words over all runs of a session. Reals are 23 bits of a word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of, zeros
from nnefc.operators.math.random import drawn_words
from nnefc.operators.statements import T, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, ceil_div, expression

__all__ = ["SeededMultinomial", "SeededNormal", "SeededUniform", "Seeds"]

_WORD = 0xFFFFFFFF
_BITS = (1 << 23) - 1
_SKIPPED = 512
"""Blocks that a run of a multinomial skips for each sample."""


@dataclass(frozen=True)
class Seeds:
    """Two numbers of 64 bits, of which a generator is made."""

    first: int
    second: int

    def words(self, ctx: Emitter, runs: Operand, count: Dimension, blocks: Dimension) -> Operand:
        """`count` words of uint32, or a few more.

        Args:
            blocks: of four words, that each run takes.
        """
        key = self.first & _WORD, self.first >> 32 & _WORD

        def counter(block: Any, runs: Any) -> Sequence[Any]:
            number = T.bind(runs * expression(blocks).astype("uint64") + block)
            low, high = (number >> tirx.const(shift, "uint64") for shift in (0, 32))
            upper = [self.second >> shift & _WORD for shift in (0, 32)]
            return [low.astype("uint32"), high.astype("uint32"), *upper]

        return drawn_words(ctx, runs, key, count, counter)


def _real(word: Any) -> tirx.Expr:
    """Return a multiple of 2⁻²³ in [0, 1)."""
    return (word & tirx.const(_BITS, "uint32")).astype("float32") * tirx.const(2.0**-23, "float32")


@dataclass(frozen=True)
class _Seeded(Operator):
    """Numbers that are all drawn alike, float32.

    Attributes:
        seeds: of the generator.
        result: the shape of the result.
    """

    seeds: Seeds
    result: Shape

    name: ClassVar[str]

    def shape(self, runs: Shape) -> Shape:
        """The one that is given."""
        return self.result

    def lower(self, ctx: Emitter, runs: Operand) -> Operand:
        if is_empty(self.result):
            return zeros(self.result, np.float32)
        count = math.prod(self.result)
        words = self.seeds.words(ctx, runs, count, ceil_div(count, 4))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            position: Any = tirx.const(0, "int64")
            for i, size in zip(index, self.result, strict=True):
                position = position * expression(size) + i
            return self._number(tensors[0], position)

        return ctx.elements(self.result, element, words, name=self.name)

    def _number(self, words: Any, position: Any) -> tirx.Expr:
        raise NotImplementedError


@dataclass(frozen=True)
class SeededUniform(_Seeded):
    """Uniformly distributed numbers from 0 to below 1. TensorFlow `RandomUniform`."""

    name: ClassVar[str] = "random_uniform"

    def _number(self, words: Any, position: Any) -> tirx.Expr:
        return _real(words(position))


@dataclass(frozen=True)
class SeededNormal(_Seeded):
    """Normally distributed numbers, in pairs of a sine and a cosine (Box, Muller, 1958). TensorFlow
    `RandomStandardNormal`.
    """

    name: ClassVar[str] = "random_normal"

    def _number(self, words: Any, position: Any) -> tirx.Expr:
        two = tirx.const(2, "int64")
        first = position - tirx.floormod(position, two)
        part = tirx.max(_real(words(first)), tirx.const(1e-7, "float32"))
        radius = tirx.sqrt(tirx.const(-2, "float32") * tirx.log(part))
        angle = _real(words(first + tirx.const(1, "int64"))) * tirx.const(2 * math.pi, "float32")
        return tirx.Select(first == position, tirx.sin(angle), tirx.cos(angle)) * radius


@dataclass(frozen=True)
class SeededMultinomial(Operator):
    """Classes by the inverse of their cumulated probabilities, `[rows, samples]`. TensorFlow `Multinomial`.

    The operand, float32 `[rows, classes]`, holds logarithms of the probabilities, up to a constant for each row; what
    is not finite has none.

    Attributes:
        seeds: of the generator.
        samples: how many classes are drawn for each row.
        dtype: int32 or int64, of the result.
    """

    seeds: Seeds
    samples: int
    dtype: str

    def shape(self, x: Shape, runs: Shape) -> Shape:
        """A row for each row of the operand."""
        if len(x) != 2 or 0 in x or self.samples < 0 or self.dtype not in ("int32", "int64"):
            raise CompileError(f"{self.samples} classes, {self.dtype}, cannot be drawn by a tensor {list(x)}")
        return x[0], self.samples

    def lower(self, ctx: Emitter, x: Operand, runs: Operand) -> Operand:
        result = self.shape(shape_of(x), shape_of(runs))
        if is_empty(result):
            return zeros(result, self.dtype)
        if dtype_of(x) != "float32":
            raise CompileError(f"logarithms of probabilities are float32, not {dtype_of(x)}")
        rows, classes = (expression(size) for size in shape_of(x))
        step = result[0] * (-(-self.samples // 4) * 4 * _SKIPPED)
        words = self.seeds.words(ctx, runs, 2 * math.prod(result), step)
        none, wide = tirx.const(0, self.dtype), tirx.const(0, "float64")

        def write(x: Any, words: Any, out: Any, sums: Any, largest: Any) -> None:
            with T.serial(0, rows) as row:
                largest[0] = tirx.const(-np.finfo(np.float32).max, "float32")
                with T.serial(0, classes) as k:
                    value = x[row * classes + k]
                    largest[0] = tirx.Select(_is_finite(value), tirx.max(largest[0], value), largest[0])
                with T.serial(0, classes) as k:
                    value = x[row * classes + k]
                    power = tirx.exp(value.astype("float64") - largest[0].astype("float64"))
                    before = tirx.if_then_else(k > 0, sums[tirx.max(k - 1, 0)], wide)
                    sums[k] = before + tirx.Select(_is_finite(value), power, wide)
                with T.serial(0, self.samples) as sample:
                    position = row * self.samples + sample
                    wanted = T.bind(_real_of_pair(words, position) * sums[classes - 1])
                    out[position] = none
                    with T.serial(0, classes) as k:
                        out[position] = out[position] + (sums[k] <= wanted).astype(self.dtype)

        results = [(result, self.dtype), ((shape_of(x)[1],), "float64"), ((1,), "float32")]
        return looped(ctx, write, [x, words], results, "multinomial")[0]


def _is_finite(x: Any) -> tirx.Expr:
    return tirx.abs(x) <= tirx.const(float(np.finfo(np.float32).max), "float32")


def _real_of_pair(words: Any, position: Any) -> tirx.Expr:
    """Return a multiple of 2⁻⁵² in [0, 1), from 20 bits of one word and all bits of the next one."""
    high = words[position * 2] & tirx.const((1 << 20) - 1, "uint32")
    whole = high.astype("float64") * tirx.const(2.0**32, "float64") + words[position * 2 + 1].astype("float64")
    return whole * tirx.const(2.0**-52, "float64")
