"""Discrete Fourier transforms of any length, including lengths that are known only at run time.

A length that is a power of two is transformed by Stockham's algorithm. Any other length N becomes a convolution with a
chirp (Bluestein, 1970), computed by transforms whose length M is the next power of two from 2 N - 1 on:

    X[k] = w[k] * sum(x[n] w[n] * conj(w[k - n]) for n < N),  where w[n] = exp(-i pi n**2 / N)

Two kernels: one computes tables, which depend on the length alone, the other one transforms the rows. Where the length
is known, the tables are constants of the library, at most 60 bytes an element: of what is symmetric they have one part.

    exp(-2 pi i (k + M / 4) / M) = -i exp(-2 pi i k / M)        w[N - n] = (-1)**N w[n]        W[M - k] = W[k]

where W is the transform of conj(w).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from nnefc.operators.base import Emitter, Operand, dtype_of, shape_of
from nnefc.operators.statements import T, each, hinted, looped
from nnefc.symbolic.dims import Dimension, ceil_div, expression, greatest, is_known, minimum, size_hint

__all__ = ["fourier_of_any_length"]

_MAX_CHUNKS = 16
"""Parts into which rows are divided. Each may run on a thread of its own, and has a workspace of its own."""

_WIDE = "float64"
"""The type of intermediate results: frequencies may be far smaller than the terms that cancel out in their sums."""

_SHORT = 8
"""Runs of fewer elements are not worth a loop of their own."""


def fourier_of_any_length(
    ctx: Emitter,
    rows: Operand,
    length: Dimension,
    bins: Dimension,
    parts: Dimension,
    inverse: bool = False,
    half: bool = False,
) -> Operand:
    """Transforms rows, `[R, count * parts]` → `[R, bins * 2]`, or `[R, length]` where the results are real.

    Args:
        ctx: where it is computed.
        rows: signals or spectra; zeros follow them up to the length, and what is beyond it is left out.
        length: of the transform, at least 1.
        bins: how many elements of each result are wanted.
        parts: 2 where the real and the imaginary part follow each other, 1 for real numbers alone; or one of both.
        inverse: whether spectra are transformed to signals, which are divided by the length.
        half: whether rows hold the lower half of spectra of real signals, the results.
    """
    plan = _Plan(length)
    *tables, _ = looped(ctx, plan.write_tables, [], plan.tables, "fourier_tables")
    lines, elements = shape_of(rows)
    result = (lines, length if half else bins * 2)
    transform = _Transform(plan, lines, elements // parts, bins, parts, inverse, half)
    work = (transform.chunks * plan.workspace,), _WIDE
    return looped(ctx, transform.write, [rows, *tables], [(result, dtype_of(rows)), work], "fourier_transform")[0]


@dataclass(frozen=True)
class _Complex:
    """Complex numbers in a flat buffer: real parts from `start` on, imaginary parts behind `size` of them."""

    buffer: Any
    start: Any
    size: Dimension

    def load(self, index: Any) -> tuple[Any, Any]:
        """Returns the real and the imaginary part of an element, as they are now."""
        here = self.start + index
        return T.bind(self.buffer[here]), T.bind(self.buffer[here + self.size])

    def store(self, index: Any, real: Any, imaginary: Any) -> None:
        here = self.start + index
        self.buffer[here] = real
        self.buffer[here + self.size] = imaginary


def _product(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _int(value: Any) -> Any:
    return tirx.const(value, "int64")


@dataclass(frozen=True)
class _Plan:
    """The quantities of transforms that depend on their length N alone.

    M, the length of the transforms by powers of two, is N itself or less than 4 N.

    Attributes:
        length: N.
    """

    length: Dimension

    @property
    def room(self) -> Dimension:
        """How many numbers there is room for in a buffer of M."""
        if not is_known(self.length):
            return self.length * 4
        return self.length if self._is_power else 1 << (2 * self.length - 2).bit_length()

    @property
    def _is_power(self) -> bool:
        return is_known(self.length) and self.length & (self.length - 1) == 0

    @property
    def _counts(self) -> tuple[Dimension, Dimension, Dimension]:
        """How many numbers the tables have: roots, chirp and its transform."""
        if self._is_power:
            return greatest(1, self.room // 4), 1, 1
        return greatest(1, self.room // 4), self.length // 2 + 1, self.room // 2 + 1

    @property
    def workspace(self) -> Dimension:
        """Numbers in the workspace of a transform: it reads from one half of it and writes into the other."""
        return self.room * 4

    @property
    def tables(self) -> list[tuple[tuple[Dimension, ...], str]]:
        """The binary logarithm of M; exp(-2 pi i k / M) for k < M / 4; halves of the chirp and its transform; work."""
        return [((1,), "int64"), *(((2 * count,), _WIDE) for count in (*self._counts, self.room * 2))]

    def write_tables(self, stages: Any, roots: Any, chirp: Any, kernel: Any, work: Any) -> None:
        length = expression(self.length)
        stages[0] = _int(0)
        with T.serial(0, 40):
            is_power = tirx.shift_left(_int(1), stages[0]) == length
            with T.If(tirx.all(tirx.Not(is_power), tirx.shift_left(_int(1), stages[0]) < 2 * length - 1)), T.Then():
                stages[0] = stages[0] + 1
        size = T.bind(tirx.shift_left(_int(1), stages[0]))
        with self._hinted(self._quarter(size), 1) as k:
            self._roots(roots).store(k, *self._root(2 * k, size))
        if self._is_power:
            return
        with T.If(size != length), T.Then():
            with self._hinted(tirx.floordiv(length, 2) + 1, 1) as n:
                self._chirp(chirp).store(n, *self._root(tirx.floormod(n * n, 2 * length), length))
            self._write_kernel(stages[0], size, roots, chirp, kernel, _Complex(work, _int(0), self.room))

    def _write_kernel(self, stages: Any, size: Any, roots: Any, chirp: Any, kernel: Any, work: _Complex) -> None:
        """The transform of the conjugated chirp, divided by M for the transform back."""
        length = expression(self.length)
        zero, scale = tirx.const(0, _WIDE), 1 / size.astype(_WIDE)
        with self._hinted(size - 2 * length + 1, 2) as n:
            work.store(length + n, zero, zero)
        with self._hinted(length, 1) as n:
            real, imaginary = self.wave(chirp, n)
            work.store(n, real, -imaginary)
            with T.If(n > 0), T.Then():
                work.store(size - n, real, -imaginary)
        self.transform(work, stages, size, roots)
        made = self.after(work, stages)
        with self._hinted(tirx.floordiv(size, 2) + 1, 2) as n:
            self.kernel(kernel).store(n, *(part * scale for part in made.load(n)))

    def _root(self, numerator: Any, denominator: Any) -> tuple[Any, Any]:
        """exp(-pi i a / b), of a fraction."""
        angle = T.bind(numerator.astype(_WIDE) * (math.pi / denominator.astype(_WIDE)))
        return tirx.cos(angle), -tirx.sin(angle)

    def _hinted(self, count: Any, usual: int) -> Any:
        return hinted(count, size_hint(self.length) * usual)

    def _quarter(self, size: Any) -> Any:
        """M / 4, or 1 if that is less."""
        return tirx.max(tirx.floordiv(size, 4), _int(1))

    def _roots(self, buffer: Any) -> _Complex:
        return _Complex(buffer, _int(0), self._counts[0])

    def _chirp(self, buffer: Any) -> _Complex:
        return _Complex(buffer, _int(0), self._counts[1])

    def kernel(self, buffer: Any) -> _Complex:
        """The first half of the transform of the chirp, up to M / 2."""
        return _Complex(buffer, _int(0), self._counts[2])

    def wave(self, buffer: Any, n: Any) -> tuple[Any, Any]:
        """An element of the chirp."""
        length = expression(self.length)
        is_mirrored = T.bind(2 * n > length)
        real, imaginary = self._chirp(buffer).load(tirx.Select(is_mirrored, length - n, n))
        if is_known(self.length) and self.length % 2 == 0:
            return real, imaginary
        is_negative = T.bind(tirx.all(is_mirrored, tirx.floormod(length, 2) == 1))
        return tuple(T.bind(tirx.Select(is_negative, -part, part)) for part in (real, imaginary))

    def after(self, work: _Complex, stages: Any) -> _Complex:
        """Return the buffer that holds the results of a transform that began in `work`."""
        moved = tirx.floormod(stages, 2) * expression(self.room * 2)
        return _Complex(work.buffer, T.bind(work.start + moved), self.room)

    def transform(self, work: _Complex, stages: Any, size: Any, roots: Any) -> None:
        """Stockham's algorithm: each stage reads one half of the workspace and writes the other."""
        half, quarter = T.bind(tirx.floordiv(size, 2)), T.bind(self._quarter(size))
        with hinted(stages, max(1, (2 * size_hint(self.length)).bit_length())) as stage:
            there = expression(self.room * 2)
            source = _Complex(work.buffer, T.bind(work.start + tirx.floormod(stage, 2) * there), self.room)
            target = _Complex(work.buffer, T.bind(work.start + tirx.floormod(stage + 1, 2) * there), self.room)
            run = T.bind(tirx.shift_left(_int(1), stage))

            def butterfly(index: Any, start: Any, root: tuple[Any, Any]) -> None:
                one, other = source.load(index), source.load(index + half)
                target.store(index + start, one[0] + other[0], one[1] + other[1])
                target.store(index + start + run, *_product((one[0] - other[0], one[1] - other[1]), root))

            def runs(first: Any, twiddles: Callable[[Any, Any], tuple[Any, Any]]) -> None:
                """All of a quarter of M, from `first` on; `twiddles` makes their roots of those in the table."""
                with T.If(run < _SHORT):
                    with T.Then(), self._hinted(quarter, 1) as index:
                        start = T.bind(tirx.bitwise_and(index, -run))
                        butterfly(index + first, start + first, twiddles(*self._roots(roots).load(start)))
                    with T.Else(), self._hinted(tirx.shift_right(quarter, stage), 1) as number:
                        start = T.bind(number * run)
                        root = twiddles(*self._roots(roots).load(start))
                        with self._hinted(run, 1) as index:
                            butterfly(start + index + first, start + first, root)

            with T.If(run <= tirx.floordiv(half, 2)):
                with T.Then():
                    runs(_int(0), lambda real, imaginary: (real, imaginary))
                    runs(quarter, lambda real, imaginary: (imaginary, -real))
                with T.Else(), self._hinted(half, 1) as index:  # the last stage
                    butterfly(index, _int(0), self._roots(roots).load(_int(0)))


@dataclass(frozen=True)
class _Transform:
    """The kernel that transforms rows; its attributes are the arguments of :func:`fourier_of_any_length`."""

    plan: _Plan
    lines: Dimension
    count: Dimension
    bins: Dimension
    parts: Dimension
    inverse: bool
    half: bool

    @property
    def chunks(self) -> Dimension:
        return minimum(self.lines, _MAX_CHUNKS)

    def write(self, rows: Any, stages: Any, roots: Any, chirp: Any, kernel: Any, out: Any, work: Any) -> None:
        plan = self.plan
        size = T.bind(tirx.shift_left(_int(1), stages[0]))
        with each(self.chunks, self.lines * plan.length * 64) as chunk:
            own = _Complex(work, T.bind(chunk * plan.workspace), plan.room)
            first = T.bind(tirx.floordiv(chunk * self.lines, expression(greatest(1, self.chunks))))
            after = T.bind(tirx.floordiv((chunk + 1) * self.lines, expression(greatest(1, self.chunks))))
            with hinted(after - first, max(1, size_hint(ceil_div(self.lines, _MAX_CHUNKS)))) as line:
                row = T.bind(first + line)
                tables = (stages, roots, chirp, kernel)
                if is_known(plan.length):
                    way = self._transform if plan.room == plan.length else self._convolve
                    way(rows, row, own, size, tables, out)
                else:
                    with T.If(size == expression(plan.length)):
                        with T.Then():
                            self._transform(rows, row, own, size, tables, out)
                        with T.Else():
                            self._convolve(rows, row, own, size, tables, out)

    def _transform(self, rows: Any, row: Any, own: _Complex, size: Any, tables: tuple[Any, ...], out: Any) -> None:
        """The transform of a power of two."""
        plan, (stages, roots, *_) = self.plan, tables
        self._load(rows, row, own.store)
        plan.transform(own, stages[0], size, roots)
        self._store(out, row, plan.after(own, stages[0]).load)

    def _convolve(self, rows: Any, row: Any, own: _Complex, size: Any, tables: tuple[Any, ...], out: Any) -> None:
        """The transform by a chirp."""
        plan, (stages, roots, chirp, kernel) = self.plan, tables
        self._load(rows, row, lambda n, *value: own.store(n, *_product(value, plan.wave(chirp, n))))
        zero = tirx.const(0, _WIDE)
        with hinted(size - plan.length, 2 * size_hint(plan.length)) as n:
            own.store(plan.length + n, zero, zero)
        plan.transform(own, stages[0], size, roots)
        made = plan.after(own, stages[0])
        half = T.bind(tirx.floordiv(size, 2))

        def multiply(n: Any, factor: tuple[Any, Any]) -> None:
            real, imaginary = _product(made.load(n), factor)
            own.store(n, imaginary, real)  # exchanged before and after, a transform is one back

        for n in (_int(0), half):
            multiply(n, plan.kernel(kernel).load(n))
        with hinted(half - 1, size_hint(plan.length)) as n:
            factor = plan.kernel(kernel).load(n + 1)
            multiply(n + 1, factor)
            multiply(size - 1 - n, factor)
        plan.transform(own, stages[0], size, roots)
        self._store(out, row, lambda k: _product(made.load(k)[::-1], plan.wave(chirp, k)))

    def _load(self, rows: Any, row: Any, store: Callable[[Any, Any, Any], None]) -> None:
        """Reads a row; of the numbers of spectra, the parts are exchanged, for a transform back."""
        length, zero = self.plan.length, tirx.const(0, _WIDE)
        start = T.bind(row * (self.count * self.parts))

        def put(n: Any, real: Any, imaginary: Any) -> None:
            store(n, *((imaginary, real) if self.inverse else (real, imaginary)))

        def wide(position: Any) -> Any:
            return T.bind(rows[position].astype(_WIDE))

        def read(index: Any) -> tuple[Any, Any]:
            position = T.bind(start + index * self.parts)
            if is_known(self.parts):
                return wide(position), wide(position + 1) if self.parts == 2 else zero
            both = expression(self.parts) == 2
            return wide(position), T.bind(tirx.if_then_else(both, rows[position + 1].astype(_WIDE), zero))

        count = minimum(self.count, length // 2 + 1 if self.half else length)
        with hinted(expression(length), size_hint(length)) as n:
            put(n, zero, zero)
        with hinted(expression(count), size_hint(count)) as n:
            real, imaginary = read(n)
            if not self.half:
                put(n, real, imaginary)
            else:
                is_real = tirx.any(n == 0, 2 * n == expression(length))
                with T.If(is_real):
                    with T.Then():
                        put(n, real, zero)
                    with T.Else():
                        put(n, real, imaginary)
                        put(length - n, real, -imaginary)

    def _store(self, out: Any, row: Any, load: Callable[[Any], tuple[Any, Any]]) -> None:
        length = self.plan.length
        scale = 1 / expression(length).astype(_WIDE)
        with hinted(expression(self.bins), size_hint(self.bins)) as k:
            real, imaginary = load(k)
            if self.inverse:
                real, imaginary = imaginary * scale, real * scale
            if self.half:
                out[row * length + k] = real.astype(out.dtype)
            else:
                out[(row * self.bins + k) * 2] = real.astype(out.dtype)
                out[(row * self.bins + k) * 2 + 1] = imaginary.astype(out.dtype)
