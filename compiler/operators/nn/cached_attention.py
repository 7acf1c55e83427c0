"""Attention of new positions to earlier ones, whose keys and values are cached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from nnefc.ir.attributes import UPDATES
from nnefc.operators.base import Emitter, Operand, Operator, SameShape, Shape, dtype_of, is_empty, rank_of, shape_of
from nnefc.operators.math.elementwise import element_at
from nnefc.operators.nn.attention import Attention, MergeHeads
from nnefc.operators.nn.normalization import RootMeanSquare
from nnefc.operators.nn.quantization import RANGES, clamped
from nnefc.operators.nn.rotary import RotaryEmbedding
from nnefc.operators.statements import T, each, looped, report
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, expression
from nnefc.symbolic.unification import unify_dims, unify_shapes

__all__ = ["AdvancePositions", "AppendToCache", "CachedAttention", "FirstPositions", "PaddingMask", "WriteToCache"]


@dataclass(frozen=True)
class PaddingMask(Operator):
    """A mask to add to scores: `padding` for keys that are padding, 0 for others.

    Attributes:
        padding: what is added for keys that are padding.
        batch, keys: N, and how many keys there are.
    """

    padding: float
    batch: Dimension
    keys: Dimension

    def shape(self, given: Shape) -> Shape:
        """`[N, 1, 1, S]`, or with queries `[N, 1, L, S]`."""
        if len(given) == 1 and (self._has_starts(given) or unify_dims(given[0], self.batch)):
            return (self.batch, 1, 1, self.keys)
        if len(given) not in (2, 3) or not unify_shapes((given[0], given[-1]), (self.batch, self.keys)):
            raise CompileError(f"the mask {list(given)} does not fit {self.batch} times {self.keys} keys")
        return (self.batch, 1, *(given[1:-1] or (1,)), self.keys)

    def _has_starts(self, given: Shape) -> bool:
        return given[0] != self.batch and given[0] == 2 * self.batch

    def lower(self, ctx: Emitter, given: Operand) -> Operand:
        """Emit the mask from integers: `[N, S]` or `[N, L, S]`, 0 for padding; or `[N]`, the ends of elements' keys.

        `[2 N]` are the ends, then the starts.
        """
        shape, rank = self.shape(shape_of(given)), rank_of(given)
        starts = rank == 1 and self._has_starts(shape_of(given))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            (mask,), (scalar, _, query, key) = tensors, index
            if rank > 1:
                seen = mask(scalar, query, key) > 0 if rank == 3 else mask(scalar, key) > 0
            else:
                offset = key.astype("int64")
                seen = offset < mask(scalar).astype("int64")
                if starts:
                    seen = tirx.all(seen, offset >= mask(scalar + expression(self.batch)).astype("int64"))
            return tirx.Select(seen, tirx.const(0, "float32"), tirx.const(self.padding, "float32"))

        return ctx.elements(shape, element, given, name="padding_mask")


@dataclass(frozen=True)
class FirstPositions(SameShape):
    """`[N]`, int64: how many positions come before those of this run, which are `length`; 0 where these are all."""

    length: Dimension

    def lower(self, ctx: Emitter, last: Operand, total: Operand) -> relax.Expr:
        """The last position of each batch element, and how many positions the longest has, an integer."""
        length, zeros = expression(self.length), [0] * rank_of(total)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            before = tirx.max(tensors[0](*index).astype("int64") + 1 - length, tirx.const(0, "int64"))
            return tirx.Select(tensors[1](*zeros).astype("int64") == length, tirx.const(0, "int64"), before)

        return ctx.elements(shape_of(last), element, last, total, name="first_positions")


@dataclass(frozen=True)
class AppendToCache(Operator):
    """A cache with new positions: each batch element's old ones up to the first new one, the new ones, then zeros.

    Attributes:
        total: how many positions the result has.
    """

    total: Dimension

    def shape(self, new: Shape, cache: Shape | None, first: Shape) -> Shape:
        """`[N, G, T, E]`."""
        fits = cache is None or (len(cache) == 4 and unify_shapes((*cache[:2], cache[3]), (*new[:2], new[3])))
        if not fits or not unify_shapes(first, new[:1]):
            raise CompileError(f"a cache {list(cache or ())} does not fit new positions {list(new)}")
        return (*new[:2], self.total, *new[3:])

    def lower(self, ctx: Emitter, new: Operand, cache: Operand | None, first: Operand) -> Operand:
        """Emit the cache from `new`, `[N, G, S, E]`, `cache`, `[N, G, P, E]`, and the first new positions, `[N]`."""
        shape = self.shape(shape_of(new), None if cache is None else shape_of(cache), shape_of(first))
        count, cache = shape_of(new)[2], None if cache is None or is_empty(shape_of(cache)) else cache
        if cache is None and count == self.total:
            return new
        zero = tirx.const(0, dtype_of(new))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            scalar, group, position, e = index
            offset = position.astype("int64")
            start = tensors[1](scalar).astype("int64")
            own = tirx.max(tirx.min(offset - start, expression(count) - 1), tirx.const(0, "int64"))
            made = tirx.Select(offset < start + expression(count), tensors[0](scalar, group, own, e), zero)
            if cache is None:
                return made
            kept = tirx.min(offset, expression(shape_of(cache)[2]) - 1)
            return tirx.Select(offset < start, tensors[2](scalar, group, kept, e), made)

        return ctx.elements(shape, element, new, first, *([] if cache is None else [cache]), name="append_to_cache")


@dataclass(frozen=True)
class AdvancePositions(Operator):
    """How many positions sequences have after new ones, `[N]`, int64; a run fails with more than a cache has room for.

    Attributes:
        context: for how many positions there is room.
    """

    context: int

    def shape(self, before: Shape, lengths: Shape) -> Shape:
        """Return the shape of both."""
        if not unify_shapes(before, lengths):
            raise CompileError(f"the numbers of new positions {list(lengths)} do not fit those before {list(before)}")
        return before

    def lower(self, ctx: Emitter, before: Operand, lengths: Operand) -> Operand:
        shape = self.shape(shape_of(before), shape_of(lengths))

        def write(before: Any, lengths: Any, after: Any) -> None:
            with each(shape[0], shape[0]) as n:
                after[n] = before[n].astype("int64") + lengths[n].astype("int64")
                with T.If(after[n] > self.context), T.Then():
                    report(f"a sequence would have more tokens than its context of {self.context:,}")

        return looped(ctx, write, [before, lengths], [(shape, "int64")], "advance_positions")[0]


@dataclass(frozen=True)
class WriteToCache(Operator):
    """A cache with new positions instead of those that it has there; what lies beyond its end is left out.

    Where the cache is a state, and this its new value, nothing but the new positions is touched.
    """

    def shape(self, new: Shape, cache: Shape, first: Shape, elements: Shape | None = None) -> Shape:
        """Return the shape of the cache."""
        own = cache if elements is None else (*elements, *cache[1:])
        if (
            len(cache) != 4
            or not unify_shapes((*own[:2], own[3]), (*new[:2], new[3]))
            or not unify_shapes(first, new[:1])
        ):
            raise CompileError(f"a cache {list(cache)} does not fit new positions {list(new)}")
        return cache

    def lower(
        self, ctx: Emitter, new: Operand, cache: Operand, first: Operand, elements: Operand | None = None
    ) -> Operand:
        """Emit the cache from `new`, `[N, G, S, E]`, and `cache`, `[M, G, P, E]`.

        `first`, `[N]`, is the first new position of each batch element, and `elements`, `[N]`, int64, are the cache's
        own numbers of them, all different; without these, N is M.
        """
        given = [new, first, cache, *([] if elements is None else [elements])]
        shape = self.shape(*map(shape_of, [new, cache, first, *given[3:]]))
        kept, groups, maximum, width = map(expression, shape)
        batch, _, count, _ = shape_of(new)
        lines = batch * shape[1] * count

        def write(new: Any, first: Any, cache: Any, *others: Any) -> None:
            *numbers, result = others
            with each(lines, lines * shape[3]) as line:
                row, offset = tirx.floordiv(line, expression(count)), tirx.floormod(line, expression(count))
                scalar = tirx.floordiv(row, groups)
                position = first[scalar].astype("int64") + offset
                there, fits = row, [position >= 0, position < maximum]
                if numbers:
                    own = numbers[0][scalar]
                    there = own * groups + tirx.floormod(row, groups)
                    fits += [own >= 0, own < kept]
                with T.If(tirx.all(*fits)), T.Then(), T.serial(width) as e:
                    result[(there * maximum + position) * width + e] = new[line * width + e]

        return looped(ctx, write, given, [(shape, dtype_of(cache))], "write_to_cache", {UPDATES: 2})[0]


@dataclass(frozen=True)
class CachedAttention(Operator):
    """Attention of new positions to themselves and to those in a cache, in groups of heads, with rotary embeddings.

    Attributes:
        attention: what it is besides.
        total: how many positions the caches have afterwards.
        rotary: how queries and new keys are rotated; None if they are not.
        epsilon: of the root mean squares that queries and keys are divided by, where these have weights.
    """

    attention: Attention
    total: Dimension
    rotary: RotaryEmbedding | None = None
    epsilon: float = 1e-6

    def shape(self, query: Shape, key: Shape, value: Shape) -> tuple[Shape, Shape, Shape]:
        """`[N, S, H E]`, and the caches, `[N, G, T, E]`."""
        batch, length, heads, size = query
        keys, values = ((batch, part[2], self.total, part[3]) for part in (key, value))
        return (batch, length, heads * size), keys, values

    def lower(
        self,
        ctx: Emitter,
        parts: Sequence[Operand],
        caches: Sequence[Operand | None],
        first: Operand,
        angles: Sequence[Operand] = (),
        positions: Operand | None = None,
        weights: Sequence[Operand | None] = (None, None),
        mask: Operand | None = None,
        sink: Operand | None = None,
        steps: Sequence[Operand | None] = (None, None),
    ) -> tuple[Operand, ...]:
        """Lower it.

        Args:
            ctx: where to build.
            parts: queries, keys and values of the new positions: `[N, S, H, E]`, `[N, S, G, E]` twice.
            caches: of keys and values, `[N, G, P, E]`.
            first: `[N]`, the first new position of each batch element.
            angles: tables of cosines and sines by position.
            positions: `[N, S]`, rows of these tables; None for those of the new positions.
            weights: of the normalization of queries and keys, `[E]`, or None.
            mask: see :class:`Attention`.
            sink: see :class:`Attention`.
            steps: between the numbers that integers in the caches stand for, `[1, G or 1, 1, E or 1]`; None for
                caches of floats.
        """
        query, key, value = (
            part if scale is None else ctx.apply(RootMeanSquare((3,), self.epsilon), part, scale)
            for part, scale in zip(parts, (*weights, None), strict=True)
        )
        if self.rotary is not None:
            tables = _at_positions(ctx, angles, positions, query, first)
            query, key = (ctx.apply(self.rotary, part, *tables) for part in (query, key))
        query, key, value = (ctx.apply(Transpose((0, 2, 1, 3)), part) for part in (query, key, value))
        news = (
            part if step is None else _in_steps(ctx, part, step) for part, step in zip((key, value), steps, strict=True)
        )
        append = AppendToCache(self.total)
        kept = [ctx.apply(append, new, cache, first) for new, cache in zip(news, caches, strict=True)]
        key, value = (
            part if step is None else _of_steps(ctx, part, step) for part, step in zip(kept, steps, strict=True)
        )
        lengths = None
        if not self.attention.causal:
            count = expression(shape_of(query)[2])
            lengths = ctx.emit(
                ctx.elements(shape_of(first), lambda t, i: t[0](*i).astype("int64") + count, first, name="lengths")
            )
        made = self.attention.lower(ctx, query, key, value, mask, lengths, first, sink)
        result, *scores = made if isinstance(made, tuple) else (made,)
        return (MergeHeads().lower(ctx, result), *kept, *scores)


def _in_steps(ctx: Emitter, x: Operand, step: Operand) -> Operand:
    """Numbers as int8: how many steps they are, rounded to even ones where two are as near."""
    shape = shape_of(x)

    def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        count = tirx.nearbyint(tensors[0](*index) / element_at(tensors[1], index, shape))
        return clamped(count, *RANGES["int8"]).astype("int8")

    return ctx.emit(ctx.elements(shape, element, x, step, name="in_steps"))


def _of_steps(ctx: Emitter, x: Operand, step: Operand) -> Operand:
    """The numbers that integers stand for."""
    shape = shape_of(x)

    def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
        return tensors[0](*index).astype("float32") * element_at(tensors[1], index, shape)

    return ctx.emit(ctx.elements(shape, element, x, step, name="of_steps"))


def _at_positions(
    ctx: Emitter, angles: Sequence[Operand], positions: Operand | None, query: Operand, first: Operand
) -> list[Operand]:
    """Rows of tables of angles, `[N, S, 1, P]`, at given positions or those of the queries."""
    if positions is None:
        shape = shape_of(query)[:2]
        positions = ctx.emit(
            ctx.elements(shape, lambda t, i: t[0](i[0]).astype("int64") + i[1].astype("int64"), first, name="positions")
        )
    rows = (ctx.apply(Gather(0), table, positions) for table in angles)
    return [ctx.reshaped(row, (*shape_of(row)[:2], 1, shape_of(row)[2])) for row in rows]
