"""Random number operators: uniform and normal distributions, sampling, dropout in training.

The generator is Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3; 2011), a function of a
key and a counter that gives four words. The counter is made of the position in the tensor and of the number of runs
that the session has done, the operand `runs`, int64 without dimensions. So a new session, and one that is reset, draws
the same numbers again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tvm import relax, tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, shape_of, zeros
from nnefc.operators.dtypes import numpy_dtype
from nnefc.operators.statements import T, looped
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import ceil_div, expression, known_less

__all__ = [
    "Bernoulli",
    "Dropout",
    "Key",
    "Multinomial",
    "RandomNormal",
    "RandomUniform",
    "drawn_words",
    "key_of_seed",
    "own_key",
]

Key: TypeAlias = tuple[int, int]
"""Two words of 32 bits that tell one generator from another."""

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)  # what each iteration adds to the key
_MIXING_STEPS = 10
_UNSEEDED = 0x6E6E6566  # the second word of keys that no seed gives
_MAX = 1 << 33  # elements of a tensor


def key_of_seed(seed: float) -> Key:
    """The key that a seed, a number in float32, stands for."""
    return int(np.float32(seed).view(np.uint32)), 0


def own_key(number: int) -> Key:
    """The key of the operator with this number among those of a network that draw without a seed."""
    return number, _UNSEEDED


def _word(number: int) -> tirx.Expr:
    return tirx.const(number & 0xFFFFFFFF, "uint32")


def _product(word: Any, factor: int) -> tuple[tirx.Expr, tirx.Expr]:
    """The upper and the lower word of a product; that of a known number is computed here, as TVM's are of 63 bits."""
    if isinstance(word, int):
        return _word(word * factor >> 32), _word(word * factor)
    product = T.bind(word.astype("uint64") * tirx.const(factor, "uint64"))
    return (product >> tirx.const(32, "uint64")).astype("uint32"), product.astype("uint32")


def _philox(counter: Sequence[Any], key: Key) -> list[Any]:
    """Four words of uint32, as variables bound by the IR builder, from four expressions of uint32 or known numbers."""
    words = list(counter)
    for index in range(_MIXING_STEPS):
        keys = [_word(k + index * step) for k, step in zip(key, _WEYL, strict=True)]
        high, low = zip(*(_product(words[k], f) for k, f in zip((0, 2), _MULTIPLIERS, strict=True)), strict=True)
        words = [_word(word) if isinstance(word, int) else word for word in words]
        words = [T.bind(high[1] ^ words[1] ^ keys[0]), low[1], T.bind(high[0] ^ words[3] ^ keys[1]), low[0]]
    return words


def _parts(number: Any) -> list[tirx.Expr]:
    """The lower and the upper word of a uint64."""
    return [(number >> tirx.const(shift, "uint64")).astype("uint32") for shift in (0, 32)]


def _after_runs(block: Any, runs: Any) -> list[tirx.Expr]:
    """A counter whose lower half is the block of four words, and its upper half the run."""
    return [*_parts(block), *_parts(runs)]


def drawn_words(
    ctx: Emitter,
    runs: Operand,
    key: Key,
    count: int,
    counter: Callable[[Any, Any], Sequence[Any]] = _after_runs,
) -> Operand:
    """`count` words of uint32, or a few more.

    Args:
        counter: gives the four words of uint32, or known numbers, for a block of four words and a run, both uint64.
    """
    if known_less(_MAX, count):
        raise CompileError(f"{count} random numbers are too many for one tensor")
    blocks = ceil_div(count, 4)

    def write(runs: Any, out: Any) -> None:
        with T.serial(0, expression(blocks)) as block:
            words = counter(block.astype("uint64"), runs[0].astype("uint64"))
            for lane, word in enumerate(_philox(words, key)):
                out[block * 4 + lane] = word

    return looped(ctx, write, [runs], [((blocks * 4,), "uint32")], "random_words")[0]


def _from_words(
    ctx: Emitter,
    runs: Operand,
    key: Key,
    shape: Shape,
    each: int,
    scalar: Callable[[Sequence[tirx.Expr]], tirx.Expr],
    name: str,
) -> relax.Expr:
    """A tensor of which each element is made of `each` words; bound to a variable."""
    words = drawn_words(ctx, runs, key, each * math.prod(shape))

    def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        position: Any = tirx.const(0, "int64")
        for i, size in zip(index, shape, strict=True):
            position = position * size + i
        return scalar([tensors[0](position * each + word) for word in range(each)])

    return ctx.emit(ctx.elements(shape, element, words, name=name))


def _uniform(ctx: Emitter, runs: Operand, key: Key, shape: Shape, dtype: str) -> Operand:
    """Numbers from 0 to below 1, all multiples of 2⁻²⁴ alike; for float64 of 2⁻⁵³."""
    if 0 in shape:
        return zeros(shape, dtype)

    def single(words: Sequence[tirx.Expr]) -> tirx.Expr:
        return (words[0] >> tirx.const(8, "uint32")).astype("float32") * tirx.const(2.0**-24, "float32")

    def double(words: Sequence[tirx.Expr]) -> tirx.Expr:
        high, low = (w >> tirx.const(shift, "uint32") for w, shift in zip(words, (5, 6), strict=True))
        whole = high.astype("float64") * tirx.const(2.0**26, "float64") + low.astype("float64")
        return whole * tirx.const(2.0**-53, "float64")

    wide = dtype == "float64"
    return _from_words(ctx, runs, key, shape, 2 if wide else 1, double if wide else single, "uniform")


def _computed_in(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _cast(ctx: Emitter, x: Operand, dtype: str) -> Operand:
    x = ctx.bound(x)
    if dtype_of(x) == dtype:
        return x
    return x.astype(numpy_dtype(dtype)) if isinstance(x, np.ndarray) else ctx.emit(relax.op.astype(ctx.expr(x), dtype))


@dataclass(frozen=True)
class _Random(Operator):
    """The base of operators that draw random numbers.

    Attributes:
        key: the key of the generator.
    """

    key: Key


@dataclass(frozen=True)
class _Distribution(_Random):
    """Numbers that are all drawn alike.

    Attributes:
        result: the shape of the result.
        dtype: its element type, of floating-point numbers.
    """

    result: Shape
    dtype: str

    def __post_init__(self) -> None:
        if any(size < 0 for size in self.result):
            raise CompileError(f"the shape {list(self.result)} has a negative dimension")
        if "float" not in self.dtype or numpy_dtype(self.dtype).itemsize < 2:
            raise CompileError(f"random numbers are floating-point numbers, not {self.dtype}")

    def shape(self, runs: Shape) -> Shape:
        """The one that is given."""
        return self.result


@dataclass(frozen=True)
class RandomUniform(_Distribution):
    """Uniformly distributed numbers from `low` to below `high`."""

    low: float = 0.0
    high: float = 1.0

    def lower(self, ctx: Emitter, runs: Operand) -> Operand:
        low, high = self.low, self.high
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise CompileError(f"'low' is {low} and 'high' is {high}: not a range")
        work = _computed_in(self.dtype)
        drawn = _uniform(ctx, runs, self.key, self.result, work)
        # What rounding brings up to `high` is cut to the number before it.
        kind = numpy_dtype(self.dtype).type
        last = float(np.nextafter(kind(high), kind(low))) if kind(low) < kind(high) else float(kind(low))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            number = tirx.const(low, work) + tensors[0](*index) * tirx.const(high - low, work)
            return tirx.min(number, tirx.const(last, work))

        if isinstance(drawn, np.ndarray):
            return _cast(ctx, drawn, self.dtype)
        return _cast(ctx, ctx.elements(self.result, element, drawn, name="random_uniform"), self.dtype)


@dataclass(frozen=True)
class RandomNormal(_Distribution):
    """Normally distributed numbers: of two uniform ones, one is the radius and one the angle (Box, Muller, 1958)."""

    mean: float = 0.0
    scale: float = 1.0

    def lower(self, ctx: Emitter, runs: Operand) -> Operand:
        if 0 in self.result:
            return zeros(self.result, numpy_dtype(self.dtype))
        work = _computed_in(self.dtype)

        def scalar(words: Sequence[tirx.Expr]) -> tirx.Expr:
            first, second = (word.astype(work) for word in words)
            part = (first + tirx.const(1, work)) * tirx.const(2.0**-32, work)  # never 0
            radius = tirx.sqrt(tirx.const(-2, work) * tirx.log(part))
            value = radius * tirx.cos(second * tirx.const(2 * math.pi * 2.0**-32, work))
            return tirx.const(self.mean, work) + tirx.const(self.scale, work) * value

        return _cast(ctx, _from_words(ctx, runs, self.key, self.result, 2, scalar, "random_normal"), self.dtype)


@dataclass(frozen=True)
class Bernoulli(_Random):
    """1 with the probability that each element of the operand is, else 0.

    Attributes:
        dtype: of the result.
    """

    dtype: str

    def shape(self, x: Shape, runs: Shape) -> Shape:
        """Return the shape of the probabilities."""
        return x

    def lower(self, ctx: Emitter, x: Operand, runs: Operand) -> Operand:
        work = _computed_in(dtype_of(x))
        drawn = _uniform(ctx, runs, self.key, shape_of(x), work)
        if isinstance(drawn, np.ndarray):
            return _cast(ctx, drawn, self.dtype)
        return _cast(ctx, ctx.emit(relax.op.less(ctx.expr(drawn), ctx.expr(_cast(ctx, x, work)))), self.dtype)


@dataclass(frozen=True)
class Dropout(_Random):
    """Dropout: zeros with the probability `rate`, the other elements divided by `1 - rate` (Srivastava et al.,
    2014).

    The second result says which elements stay. Outside of training there is nothing to compute.
    """

    rate: float

    def shape(self, x: Shape, runs: Shape) -> tuple[Shape, Shape]:
        """Return the shape of the operand, twice."""
        return x, x

    def lower(self, ctx: Emitter, x: Operand, runs: Operand) -> tuple[Operand, Operand]:
        if not 0 <= self.rate < 1:
            raise CompileError(f"the ratio {self.rate} is not from 0 to below 1")
        drawn = _uniform(ctx, runs, self.key, shape_of(x), "float32")
        if isinstance(drawn, np.ndarray):
            return x, drawn.astype(bool)
        mask = ctx.emit(relax.op.greater_equal(drawn, ctx.expr(ctx.number(self.rate, drawn))))
        factor = ctx.expr(ctx.number(1 / (1 - self.rate), x))
        factors = ctx.emit(relax.op.multiply(ctx.expr(_cast(ctx, mask, dtype_of(x))), factor))
        return relax.op.multiply(ctx.expr(x), factors), mask


@dataclass(frozen=True)
class Multinomial(_Random):
    """Classes by the inverse of their cumulated probabilities, int32 or int64 `[rows, samples]`.

    The operand, `[rows, classes]`, holds logarithms of the probabilities, up to a constant for each row.

    Attributes:
        samples: how many classes are drawn for each row.
        dtype: of the result.
    """

    samples: int
    dtype: str

    def shape(self, x: Shape, runs: Shape) -> Shape:
        """A row for each row of the operand."""
        if len(x) != 2 or 0 in x or self.samples < 0:
            raise CompileError(
                f"{list(x)} is not a matrix with a column for each class, or {self.samples} samples are not possible"
            )
        if self.dtype not in ("int32", "int64"):
            raise CompileError(f"classes are numbers of int32 or int64, not of {self.dtype}")
        return x[0], self.samples

    def lower(self, ctx: Emitter, x: Operand, runs: Operand) -> Operand:
        result, work = self.shape(shape_of(x), shape_of(runs)), _computed_in(dtype_of(x))
        rows, classes = shape_of(x)
        drawn = _uniform(ctx, runs, self.key, result, work)
        chances = ctx.emit(relax.op.nn.softmax(ctx.expr(_cast(ctx, x, work)), 1))

        def write(chances: Any, drawn: Any, out: Any, sums: Any) -> None:
            """Returns how many cumulated probabilities each drawn number has reached; the last one counts as 1."""
            with T.serial(0, rows) as row:
                sums[0] = chances[row * classes]
                with T.serial(1, classes) as k:
                    sums[k] = sums[k - 1] + chances[row * classes + k]
                with T.serial(0, self.samples) as sample:
                    position = row * self.samples + sample
                    out[position] = tirx.const(0, self.dtype)
                    with T.serial(0, classes - 1) as k:
                        reached = sums[k] <= drawn[position] * sums[classes - 1]
                        out[position] = out[position] + reached.astype(self.dtype)

        return looped(ctx, write, [chances, drawn], [(result, self.dtype), ((classes,), work)], "multinomial")[0]
