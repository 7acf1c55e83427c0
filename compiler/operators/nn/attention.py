"""Scaled dot-product attention, and the multi-head attention layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, rank_of, shape_of
from nnefc.operators.dtypes import FLOAT16_TYPES
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import fitted
from nnefc.operators.math.matrix import Gemm, MatMul, broadcasts_to
from nnefc.operators.nn.activation import Softmax
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import expression, is_known
from nnefc.symbolic.unification import divides, unify_dims, unify_shapes

__all__ = [
    "Attention",
    "AttentionScores",
    "AttentionValues",
    "MergeHeads",
    "MultiHeadAttention",
    "RepeatHeads",
    "SplitHeads",
]

Stage = Literal["scores", "capped", "masked", "weights"]
"""The stages of scores that can be a second result: products, soft-capped, masked, and the softmax's weights."""


@dataclass(frozen=True)
class SplitHeads(Operator):
    """`[N, L, heads · E]` as `[N, heads, L, E]`."""

    heads: int

    def shape(self, x: Shape) -> Shape:
        """Return `[N, heads, L, E / heads]` for `[N, L, E]`."""
        if len(x) != 3 or self.heads < 1 or not unify_dims(x[2] % self.heads, 0):
            raise CompileError(f"{list(x)} cannot be divided among {self.heads} heads")
        return (x[0], self.heads, x[1], x[2] // self.heads)

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        batch, heads, length, width = self.shape(shape_of(x))
        return Transpose((0, 2, 1, 3)).lower(ctx, ctx.reshaped(x, (batch, length, heads, width)))


@dataclass(frozen=True)
class MergeHeads(Operator):
    """`[N, heads, L, E]` as `[N, L, heads · E]`."""

    def shape(self, x: Shape) -> Shape:
        """Without the dimension of heads."""
        return (x[0], x[2], x[1] * x[3])

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return ctx.reshaped(ctx.apply(Transpose((0, 2, 1, 3)), x), self.shape(shape_of(x)))


def _shares(a: Shape, b: Shape) -> bool:
    """Returns whether heads on the left share those on the right in groups."""
    return len(a) == len(b) > 2 and is_known(a[-3], b[-3]) and 0 < b[-3] < a[-3]


def _product_shape(a: Shape, b: Shape) -> Shape:
    """The shape of `_product`."""
    if _shares(a, b):
        if a[-3] % b[-3]:
            raise CompileError(f"{b[-3]} heads of keys do not divide {a[-3]} heads of queries")
        b = (*b[:-3], a[-3], *b[-2:])
    return MatMul().shape(a, b)


def _product(ctx: Emitter, a: Operand, b: Operand, transpose_b: bool = False) -> Operand:
    """Products of `[…, H, L, k]` and `[…, G, k, n]`, in which `H / G` neighbours on the left share one on the right.

    They lie one after the other, as rows of one product.
    """
    product = MatMul(transpose_b=transpose_b)
    if not _shares(shape_of(a), shape_of(b)):
        return ctx.apply(product, a, b)
    (*batch, heads, length, inner), shared = shape_of(a), shape_of(b)[-3]
    made = ctx.apply(product, ctx.reshaped(a, (*batch, shared, heads // shared * length, inner)), b)
    return ctx.reshaped(made, (*shape_of(made)[:-3], heads, length, shape_of(made)[-1]))


@dataclass(frozen=True)
class RepeatHeads(Operator):
    """`[…, G, S, E]` as `[…, count, S, E]`: each head `count / G` times, for the heads of queries that share it.

    Attributes:
        count: a multiple of `G`, both of which may be dynamic.
    """

    count: int
    moves: ClassVar[bool] = True

    def shape(self, x: Shape) -> Shape:
        """Return `[…, count, S, E]`."""
        if len(x) < 3 or not divides(x[-3], self.count):
            raise CompileError(f"{self.count} heads of queries cannot share those of {list(x)}")
        return (*x[:-3], self.count, *x[-2:])

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, shared = self.shape(shape_of(x)), shape_of(x)[-3]

        def element(tensors: tuple[te.Tensor, ...], position: tuple[tirx.Var, ...]) -> tirx.Expr:
            *batch, head, step, inner = position
            own = tirx.floordiv(head.astype("int64") * expression(shared), expression(self.count))
            return tensors[0](*batch, own, step, inner)

        return ctx.elements(shape, element, x, name="repeat_heads")


@dataclass(frozen=True)
class AttentionScores(Operator):
    """`scale · query · keyᵀ` of `[…, H, L, E]` and `[…, G, S, E]`; `H / G` heads of queries share one of keys.

    Attributes:
        scale: None for `1 / sqrt(E)`.
    """

    scale: float | None = None

    def shape(self, query: Shape, key: Shape) -> Shape:
        """`[…, H, L, S]`."""
        return _product_shape(query, (*key[:-2], key[-1], key[-2]))

    def lower(self, ctx: Emitter, query: Operand, key: Operand) -> Operand:
        """The factor goes into the queries: they are fewer than the scores."""
        self.shape(shape_of(query), shape_of(key))
        size = shape_of(query)[-1]
        if self.scale is None and not is_known(size):
            factor = ctx.emit(ctx.of_sizes(lambda own: _inverse_root(own, dtype_of(query)), size, name="scale"))
            query = ctx.emit(relax.op.multiply(ctx.expr(query), factor))
            return _product(ctx, query, key, transpose_b=True)
        scale = 1 / math.sqrt(size) if self.scale is None else self.scale
        if scale != 1:
            query = ctx.emit(relax.op.multiply(ctx.expr(query), ctx.expr(ctx.number(scale, query))))
        return _product(ctx, query, key, transpose_b=True)


def _inverse_root(size: int, dtype: str) -> te.Tensor:
    real = expression(size).astype("float64")
    return te.compute((), lambda: (tirx.const(1, "float64") / tirx.sqrt(real)).astype(dtype), name="scale")


@dataclass(frozen=True)
class AttentionValues(Operator):
    """`weights · value` of `[…, H, L, S]` and `[…, G, S, V]`; `H / G` heads share one of values."""

    def shape(self, weights: Shape, value: Shape) -> Shape:
        """`[…, H, L, V]`."""
        return _product_shape(weights, value)

    def lower(self, ctx: Emitter, weights: Operand, value: Operand) -> Operand:
        self.shape(shape_of(weights), shape_of(value))
        return _product(ctx, weights, value)


@dataclass(frozen=True)
class Attention(Operator):
    """`softmax(scale · query · keyᵀ + mask) · value` (Vaswani et al., "Attention Is All You Need", 2017).

    Heads of queries may share one of keys and values (Ainslie et al., "GQA", 2023). A query that sees no key gives
    zeros. ONNX `Attention`, `torch.nn.functional.scaled_dot_product_attention`.

    Attributes:
        scale: of the scores; None for `1 / sqrt(E)`.
        causal: whether a query sees no key after its own position.
        past: the position of the first query among the keys, where their number is not given at run time.
        left, right: how many keys before and after its position a query sees; None for all.
        softcap: scores become `softcap · tanh(score / softcap)`; 0 leaves them.
        precision: the type that the softmax is computed in; None for that of the operands, but float32 for 16-bit
            floats.
        stage: what the second result is, if there is one.
    """

    scale: float | None = None
    causal: bool = False
    past: int = 0
    left: int | None = None
    right: int | None = None
    softcap: float = 0.0
    precision: str | None = None
    stage: Stage | None = None

    def shape(
        self, query: Shape, key: Shape, value: Shape, mask: Shape | None = None, lengths: Shape | None = None
    ) -> Shape | tuple[Shape, Shape]:
        """`[…, H, L, V]`, and `[…, H, L, S]` if there is a second result."""
        if min(map(len, (query, key, value))) < 2 or not (
            unify_dims(query[-1], key[-1]) and unify_dims(key[-2], value[-2])
        ):
            raise CompileError(f"the query {list(query)}, the key {list(key)} and the value {list(value)} do not fit")
        scores = AttentionScores().shape(query, key)
        result = AttentionValues().shape(scores, value)
        if mask is not None and not broadcasts_to(mask, scores):
            raise CompileError(f"the mask {list(mask)} does not broadcast to {list(scores)}")
        if lengths is not None and not unify_shapes(lengths, query[:1]):
            raise CompileError(f"the numbers of keys {list(lengths)} do not fit the query {list(query)}")
        return (result, scores) if self.stage is not None else result

    def lower(
        self,
        ctx: Emitter,
        query: Operand,
        key: Operand,
        value: Operand,
        mask: Operand | None = None,
        lengths: Operand | None = None,
        first: Operand | None = None,
        sink: Operand | None = None,
    ) -> Any:
        """Lower it.

        Args:
            ctx: where to build.
            query, key, value: `[…, H, L, E]`, `[…, G, S, E]` and `[…, G, S, V]`.
            mask: broadcasts to `[…, H, L, S]`: booleans, false for what is not seen, or numbers that are added.
            lengths: `[N]`, of an integer type: how many keys of each batch element there are; the others are not seen,
                and the last query is at the position of the last key, if `first` does not say otherwise.
            first: `[N]`, of an integer type: the position of the first query of each batch element.
            sink: `[H]`: a score of each head that has a share in the softmax, but no value.
        """
        optional = (None if x is None else shape_of(x) for x in (mask, lengths))
        self.shape(shape_of(query), shape_of(key), shape_of(value), *optional)
        dtype = dtype_of(query)
        if dtype in FLOAT16_TYPES:
            query, key, value = (ctx.apply(Cast("float32"), x) for x in (query, key, value))
        stages: dict[str, Operand] = {"scores": AttentionScores(self.scale).lower(ctx, query, key)}
        stages["capped"] = self._capped(ctx, stages["scores"])
        stages["masked"] = self._masked(ctx, stages["capped"], mask, lengths, first)
        stages["weights"] = self._softmax(ctx, stages["masked"], self._hides_all(mask, lengths), sink)
        made = ctx.apply(AttentionValues(), stages["weights"], value)
        results = [made] if self.stage is None else [made, stages[self.stage]]
        if dtype in FLOAT16_TYPES:
            results = [ctx.apply(Cast(dtype), result) for result in results]
        return results[0] if self.stage is None else tuple(results)

    def _capped(self, ctx: Emitter, scores: Operand) -> Operand:
        if self.softcap == 0:
            return scores
        down, up = (ctx.expr(ctx.number(factor, scores)) for factor in (1 / self.softcap, self.softcap))
        inner = ctx.emit(relax.op.tanh(ctx.emit(relax.op.multiply(ctx.expr(scores), down))))
        return ctx.emit(relax.op.multiply(inner, up))

    def _hides(self, lengths: Operand | None) -> bool:
        """Returns whether the positions of keys may hide all of them from a query."""
        return lengths is not None or self.left is not None or self.right is not None

    def _hides_all(self, mask: Operand | None, lengths: Operand | None) -> bool:
        """Returns whether there may be a query that sees no key."""
        if mask is None or self._hides(lengths):
            return self._hides(lengths)
        if self.causal or not isinstance(mask, np.ndarray):
            return True
        return bool((~mask if mask.dtype == bool else np.isneginf(mask)).all(-1).any())

    def _masked(
        self, ctx: Emitter, scores: Operand, mask: Operand | None, lengths: Operand | None, first: Operand | None
    ) -> Operand:
        """Scores of minus infinity for what is not seen."""
        mask = None if mask is None else fitted(ctx, mask, shape_of(scores))
        if mask is not None and dtype_of(mask) == "bool":
            minus = ctx.expr(ctx.number(-math.inf, scores))
            scores = ctx.emit(relax.op.where(ctx.expr(mask), ctx.expr(scores), minus))
        elif mask is not None:
            added = ctx.expr(ctx.apply(Cast(dtype_of(scores)), mask))
            scores = ctx.emit(relax.op.add(ctx.expr(scores), added))
        return self._hidden(ctx, scores, lengths, first) if self.causal or self._hides(lengths) else scores

    def _hidden(self, ctx: Emitter, scores: Operand, lengths: Operand | None, first: Operand | None) -> Operand:
        """Return the scores, minus infinity where the positions of query and key hide the key."""
        queries, minus = shape_of(scores)[-2], tirx.const(-math.inf, dtype_of(scores))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            query, key = (i.astype("int64") for i in index[-2:])
            position, seen = query + self.past, []
            if lengths is not None:
                count = tensors[1](index[0]).astype("int64")
                position = query + count - queries
                seen.append(key < count)
            if first is not None:
                position = query + tensors[-1](index[0]).astype("int64")
            seen += [key <= position] if self.causal else []
            seen += [key >= position - self.left] if self.left is not None else []
            seen += [key <= position + self.right] if self.right is not None else []
            return tirx.Select(tirx.all(*seen), tensors[0](*index), minus)

        given = [operand for operand in (scores, lengths, first) if operand is not None]
        return ctx.emit(ctx.elements(shape_of(scores), element, *given, name="mask"))

    def _softmax(self, ctx: Emitter, scores: Operand, empty: bool, sink: Operand | None) -> Operand:
        """The softmax of rows; zeros in one that is `empty`, of which all is minus infinity."""
        dtype, axis = dtype_of(scores), rank_of(scores) - 1
        scores = ctx.apply(Cast(self.precision or dtype), scores)
        if sink is not None:
            made = _softmax_with_sink(ctx, scores, ctx.apply(Cast(dtype_of(scores)), sink))
        elif not empty:
            made = Softmax((axis,)).lower(ctx, scores)
        else:
            # The largest power is 1. A largest score that is finite makes powers of 0 from minus infinity.
            minimum = ctx.expr(ctx.number(float(np.finfo(dtype_of(scores)).min), scores))
            largest = ctx.emit(relax.op.max(ctx.expr(scores), [axis], keepdims=True))
            shifted = relax.op.subtract(ctx.expr(scores), ctx.emit(relax.op.maximum(largest, minimum)))
            powers = ctx.emit(relax.op.exp(ctx.emit(shifted)))
            total = ctx.emit(relax.op.sum(powers, [axis], keepdims=True))
            made = relax.op.divide(powers, ctx.emit(relax.op.maximum(total, ctx.expr(ctx.number(1, total)))))
        return ctx.apply(Cast(dtype), ctx.bound(made))


def _softmax_with_sink(ctx: Emitter, scores: Operand, sink: Operand) -> relax.Expr:
    """The softmax of rows and of one more score for each head, which is not in the result."""
    axis = rank_of(scores) - 1
    own = ctx.expr(ctx.reshaped(sink, (*shape_of(sink), 1, 1)))
    largest = ctx.emit(relax.op.maximum(ctx.emit(relax.op.max(ctx.expr(scores), [axis], keepdims=True)), own))
    powers = ctx.emit(relax.op.exp(ctx.emit(relax.op.subtract(ctx.expr(scores), largest))))
    tail = ctx.emit(relax.op.exp(ctx.emit(relax.op.subtract(own, largest))))
    total = ctx.emit(relax.op.add(ctx.emit(relax.op.sum(powers, [axis], keepdims=True)), tail))
    return relax.op.divide(powers, total)


@dataclass(frozen=True)
class MultiHeadAttention(Operator):
    """Attention of projections of the operands, in several heads, projected again. `torch.nn.MultiheadAttention`.

    Attributes:
        heads: how many.
        zero: whether a key and a value of zeros are added.
    """

    heads: int
    zero: bool = False

    def shape(self, query: Shape, key: Shape, value: Shape, *parameters: Shape) -> tuple[Shape, Shape]:
        """Return the shape of the query, and of the weights, `[N, heads, L, S]`, to which added keys come."""
        return query, (query[0], self.heads, query[1], key[1] + self.zero)

    def lower(
        self,
        ctx: Emitter,
        operands: Sequence[Operand],
        weights: Sequence[Array],
        biases: Sequence[Array | None],
        added: Sequence[Array] = (),
        mask: Operand | None = None,
    ) -> tuple[Operand, Operand]:
        """Lower it.

        Args:
            ctx: where to build.
            operands: query, key and value, each `[N, L, width]`.
            weights: of the projections of the query, the key, the value, `[E, width]`, and of the result.
            biases: of the same.
            added: a key and a value, `[1, 1, E]`, that come after the others, or nothing.
            mask: broadcasts to `[N, heads, L, S]`.
        """
        linear = Gemm(transpose_b=True)
        query, *others = (ctx.apply(linear, *parts) for parts in zip(operands, weights[:3], biases[:3], strict=True))
        batch, embedding = shape_of(query)[0], shape_of(query)[2]
        zeros = np.zeros((1, 1, embedding), np.float32)
        rows = ([added] if added else []) + ([(zeros, zeros)] if self.zero else [])
        for pair in rows:
            more = (np.repeat(row, batch, 0) for row in pair)
            others = [ctx.apply(Concat(1), x, row) for x, row in zip(others, more, strict=True)]
        first, *tail = [ctx.apply(SplitHeads(self.heads), x) for x in (query, *others)]
        made, shares = Attention(stage="weights").lower(ctx, first, tail[0], tail[1], mask)
        joined = MergeHeads().lower(ctx, made)
        return linear.lower(ctx, joined, weights[3], biases[3]), shares
