"""Operators of onnxruntime's own domain: inverses, hashes, crops, n-gram repetition masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import Emitter, Operand, Operator, SameShape, Shape, dtype_of, shape_of
from nnefc.operators.math.elementwise import broadcast_shapes, element_at, fitted
from nnefc.operators.statements import T, looped
from nnefc.operators.text.strings import text_call
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import expression
from nnefc.symbolic.unification import unify_dims, unify_shapes

__all__ = ["ComplexProduct", "CropAndResize", "Inverse", "MurmurHash", "NGramBlock"]


@dataclass(frozen=True)
class Inverse(Operator):
    """The inverses of square matrices, by elimination with pivots; of singular ones no numbers."""

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        if len(x) < 2 or not unify_dims(x[-1], x[-2]):
            raise CompileError(f"{list(x)} is not a square matrix")
        return x

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, dtype = self.shape(shape_of(x)), dtype_of(x)
        size, count = expression(shape[-1]), expression(math.prod(shape[:-2]))

        def write(x: Any, out: Any, work: Any, spare: Any) -> None:
            with T.serial(0, count) as m, T.serial(0, size) as r, T.serial(0, size) as c:
                position = (m * size + r) * size + c
                work[position] = x[position]
                out[position] = tirx.Select(r == c, tirx.const(1, dtype), tirx.const(0, dtype))
            with T.serial(0, count) as m, T.serial(0, size) as k:
                base = m * size * size
                with (
                    T.serial(0, size) as r,
                    T.If(tirx.all(r > k, tirx.abs(work[base + r * size + k]) > tirx.abs(work[base + k * size + k]))),
                    T.Then(),
                    T.serial(0, size) as c,
                ):
                    _exchange(work, spare, base + k * size + c, base + r * size + c)
                    _exchange(out, spare, base + k * size + c, base + r * size + c)
                spare[0] = work[base + k * size + k]
                with T.serial(0, size) as c:
                    work[base + k * size + c] = work[base + k * size + c] / spare[0]
                    out[base + k * size + c] = out[base + k * size + c] / spare[0]
                with T.serial(0, size) as r, T.If(r != k), T.Then():
                    spare[0] = work[base + r * size + k]
                    with T.serial(0, size) as c:
                        row, pivot = base + r * size + c, base + k * size + c
                        work[row] = work[row] - spare[0] * work[pivot]
                        out[row] = out[row] - spare[0] * out[pivot]

        return looped(ctx, write, [x], [(shape, dtype), (shape, dtype), ((1,), dtype)], "inverse")[0]


def _exchange(elements: Any, spare: Any, one: Any, other: Any) -> None:
    spare[0] = elements[one]
    elements[one] = elements[other]
    elements[other] = spare[0]


@dataclass(frozen=True)
class NGramBlock(Operator):
    """Scores of the next word, minus infinity for what would end a sequence of `length` words for a second time."""

    length: int

    def shape(self, words: Shape, scores: Shape) -> Shape:
        """Return the shape of the scores, `[N, vocabulary]`; of words `[N, L]`."""
        if len(words) != 2 or len(scores) != 2 or not unify_dims(words[0], scores[0]) or self.length < 1:
            raise CompileError(f"{self.length} of the words {list(words)} do not fit the scores {list(scores)}")
        return scores

    def lower(self, ctx: Emitter, words: Operand, scores: Operand) -> Operand:
        shape, dtype = self.shape(shape_of(words), shape_of(scores)), dtype_of(scores)
        batch, count, vocabulary = map(expression, (shape[0], shape_of(words)[1], shape[1]))
        before = self.length - 1

        def write(words: Any, scores: Any, out: Any) -> None:
            with T.serial(0, batch * vocabulary) as i:
                out[i] = scores[i]
            with T.serial(0, batch) as n, T.serial(0, tirx.max(count - before, 0)) as start:
                same = [words[n * count + start + j] == words[n * count + count - before + j] for j in range(before)]
                word = words[n * count + start + before].astype("int64")
                with T.If(tirx.all(*same, word >= 0, word < vocabulary)), T.Then():
                    out[n * vocabulary + word] = tirx.const(-math.inf, dtype)

        return looped(ctx, write, [words, scores], [(shape, dtype)], "ngram_block")[0]


@dataclass(frozen=True)
class MurmurHash(SameShape):
    """MurmurHash3_x86_32 (Appleby, 2008) of the bytes of each number, or of each string.

    Attributes:
        seed: 32 bits.
        positive: whether results are uint32; else int32.
        of_strings: whether the operand holds strings.
    """

    seed: int
    positive: bool
    of_strings: bool = False

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        if self.of_strings:
            return self._of_strings(ctx, ctx.expr(x))
        bits = np.dtype(dtype_of(x)).itemsize * 8

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            scalar = tensors[0](*index)
            whole = scalar if "uint" in str(scalar.ty) else tirx.reinterpret(f"uint{bits}", scalar)
            made: Any = _wide(self.seed & 0xFFFFFFFF)
            for shift in range(0, bits, 32):
                word = _low(whole.astype("uint64") >> _wide(shift))
                key = _times(_rotated(_times(word, 0xCC9E2D51), 15), 0x1B873593)
                made = _low(_times(_rotated(made ^ key, 13), 5) + _wide(0xE6546B64))
            made = made ^ _wide(bits // 8)
            for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
                made = _times(made ^ (made >> _wide(shift)), factor)
            made = (made ^ (made >> _wide(16))).astype("uint32")
            return made if self.positive else tirx.reinterpret("int32", made)

        return ctx.elements(shape_of(x), element, x, name="murmur_hash")

    def _of_strings(self, ctx: Emitter, x: relax.Expr) -> relax.Expr:
        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            seed = tirx.const(self.seed & 0xFFFFFFFF, "uint32")
            made = text_call(ctx, "nnefc_text_hash", "uint32", tensors[0](*index), seed)
            return made if self.positive else tirx.reinterpret("int32", made)

        return ctx.elements(shape_of(x), element, x, name="text_hash")


# Arithmetic modulo 2³² in uint64: TVM simplifies products of uint32 as if they did not wrap around.


def _wide(value: int) -> tirx.Expr:
    return tirx.const(value, "uint64")


def _low(x: Any) -> Any:
    return x & _wide(0xFFFFFFFF)


def _times(x: Any, factor: int) -> Any:
    return _low(x * _wide(factor))


def _rotated(x: Any, count: int) -> Any:
    return _low(x << _wide(count)) | (x >> _wide(32 - count))


@dataclass(frozen=True)
class ComplexProduct(Operator):
    """Products of complex numbers, whose parts are along the last dimension.

    Attributes:
        conjugate: of the second factor.
    """

    conjugate: bool

    def shape(self, a: Shape, b: Shape) -> Shape:
        """The common shape."""
        if not (a and b and unify_dims(a[-1], 2) and unify_dims(b[-1], 2)):
            raise CompileError(f"{list(a)} and {list(b)} do not have real and imaginary parts in the last dimension")
        return broadcast_shapes(a, b)

    def lower(self, ctx: Emitter, a: Operand, b: Operand) -> relax.Expr:
        shape = self.shape(shape_of(a), shape_of(b))
        a, b = (fitted(ctx, x, shape) for x in (a, b))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            (ar, ai), (br, bi) = (
                [element_at(tensor, (*index[:-1], part), shape) for part in range(2)] for tensor in tensors
            )
            bi = -bi if self.conjugate else bi
            return tirx.Select(index[-1] == 0, ar * br - ai * bi, ar * bi + ai * br)

        return ctx.elements(shape, element, a, b, name="complex_product")


@dataclass(frozen=True)
class CropAndResize(Operator):
    """Regions of images in a size that all have, `[R, C, *size]`; the corners of a region are those of its result.

    Attributes:
        size: height and width.
        nearest: whether the nearest element is taken; else four are interpolated.
        outside: what is taken outside of the image.
    """

    size: tuple[int, int]
    nearest: bool = False
    outside: float = 0.0

    def shape(self, x: Shape, regions: Shape, images: Shape) -> Shape:
        """Return the shape for `[N, C, H, W]`, boxes `[R, 4]` (y1, x1, y2, x2; shares of the image), and `[R]`."""
        fits = len(x) == 4 and len(images) == 1 and unify_shapes(regions, (images[0], 4))
        if not fits or min(self.size) < 1:
            raise CompileError(f"the regions {list(regions)} of the images {list(images)} do not fit {list(x)}")
        return (regions[0], x[1], *self.size)

    def lower(self, ctx: Emitter, x: Operand, regions: Operand, images: Operand) -> relax.Expr:
        """Which image each region is of; what is no image gives what is outside."""
        shape, dtype = self.shape(shape_of(x), shape_of(regions), shape_of(images)), dtype_of(x)
        count, _, *sizes = map(expression, shape_of(x))

        def position(box: te.Tensor, region: Any, i: Any, axis: int) -> Any:
            low, high = box(region, axis), box(region, axis + 2)
            last = (sizes[axis] - 1).astype(dtype)
            if self.size[axis] == 1:
                return tirx.const(0.5, dtype) * (low + high) * last
            return low * last + i.astype(dtype) * ((high - low) * last / tirx.const(self.size[axis] - 1, dtype))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            data, box, images = tensors
            region, channel, *inner = index
            positions = [position(box, region, i, axis) for axis, i in enumerate(inner)]
            image = images(region).astype("int64")
            inside = [image >= 0, image < count]
            for where, size in zip(positions, sizes, strict=True):
                inside += [where >= tirx.const(0, dtype), where <= (size - 1).astype(dtype)]

            def read(corner: Sequence[Any]) -> Any:
                near = [_kept(c.astype("int64"), size) for c, size in zip(corner, sizes, strict=True)]
                return data(_kept(image, count), channel, *near)

            if self.nearest:
                value = read([tirx.floor(where + tirx.const(0.5, dtype)) for where in positions])
            else:
                value = _interpolated(read, positions)
            return tirx.Select(tirx.all(*inside), value, tirx.const(self.outside, dtype))

        return ctx.elements(shape, element, x, regions, images, name="crop_and_resize")


def _kept(position: Any, size: Any) -> Any:
    """The nearest position that there is."""
    return tirx.max(tirx.min(position, size - 1), tirx.const(0, "int64"))


def _interpolated(read: Any, positions: Sequence[Any]) -> Any:
    """Between the elements above and below, and left and right of a position."""
    (top, left), (bottom, right) = [tirx.floor(p) for p in positions], [tirx.ceil(p) for p in positions]
    down, across = positions[0] - top, positions[1] - left
    upper = read((top, left)) + (read((top, right)) - read((top, left))) * across
    lower = read((bottom, left)) + (read((bottom, right)) - read((bottom, left))) * across
    return upper + (lower - upper) * down
