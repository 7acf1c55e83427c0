"""Fuses each attention into one kernel, which never writes its scores.

    s = matmul(q, kᵀ);  t = s * 0.125 + mask;  w = softmax(t);  y = matmul(w, v)     →     y = attention(q, k, v, mask)

The transpositions before and after it become part of how it reads and writes. An attention is not
fused if its scores or weights have other uses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.ir.expr import Call

from nnefc.passes.compute.attention.problem import Attended
from nnefc.passes.compute.attention.tiled import attend
from nnefc.passes.graph.attention.choose_attention import attention_tiles
from nnefc.passes.graph.attention.mask_bounds import with_mask_bounds
from nnefc.passes.graph.attention.match_attention import find_attention
from nnefc.passes.graph.attention.softmax_weights import POWER
from nnefc.passes.graph.attention.terms import (
    DEPTH,
    KEY,
    PRODUCT,
    QUERY,
    AttentionOperand,
    Terms,
    heads_sharing,
    terms_of,
)
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter
from nnefc.passes.tir.common.expressions import loads_of, substituted
from nnefc.symbolic.dims import Size, bounds, is_known
from nnefc.targets.machine.cpu.target import Target

__all__ = ["fits", "fuse_attention", "with_kernels"]

Computation = Callable[[Attended, Any, Sequence[te.Tensor]], te.Tensor]
"""Computes an attention of some operands by a choice: the tiles, or the type of the result."""


def fuse_attention(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Fuses each attention of float32 into one kernel."""
    kernels = {gv: func for gv, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)}
    program, found = find_attention(mod["main"], kernels)
    terms = [made for each in found if (made := terms_of(each, program, kernels)) is not None and fits(made)]
    tiles = {
        made.last: (with_mask_bounds(made), sizes) for made in terms if (sizes := _tiles(made, target)) is not None
    }
    return with_kernels(mod, tiles, attend)


def with_kernels(
    mod: tvm.IRModule, chosen: Mapping[relax.Var, tuple[Terms, Hashable]], compute: Computation
) -> tvm.IRModule:
    """Replaces each attention by one kernel; `compute` is called with the choice for it."""
    return relax.transform.DeadCodeElimination()(_Joiner(mod, chosen, compute).transform()) if chosen else mod


def _tiles(terms: Terms, target: Target) -> Hashable | None:
    batch = tuple(size for _, size in terms.batch)
    lengths = terms.queries, terms.keys, int(terms.size), int(terms.width)
    return attention_tiles(batch, *lengths, heads_sharing(terms), target)


def fits(terms: Terms) -> bool:
    """Whether rows have known lengths, none of which is 0, and the products are of float32."""
    sizes = (*terms.shape, terms.keys, terms.size)
    read = [term for term in (terms.query, terms.key, terms.value) if not _is_converted(term)]
    data = [load.source for term in read for load in loads_of(term)]
    data = [source for source in data if "int" not in str(source.dtype)]  # where others are read
    return (
        is_known(terms.size, terms.width)
        and all(bounds(size)[1] > 0 for size in sizes)
        and all(str(source.dtype) == "float32" for source in data)
    )


def _is_converted(term: tirx.Expr) -> bool:
    """Whether an element is converted, or selected from two tensors, when it is read."""
    if isinstance(term, tirx.Mul):
        term = term.a
    return isinstance(term, tirx.Cast | Call)


class _Joiner(Rewriter):
    def __init__(
        self, mod: tvm.IRModule, chosen: Mapping[relax.Var, tuple[Terms, Hashable]], compute: Computation
    ) -> None:
        super().__init__(mod)
        self._chosen, self._compute = chosen, compute
        self._prepared: dict[tuple[relax.Expr, bool, str], relax.Expr] = {}
        self._functions: dict[object, Callable[..., te.Tensor]] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if var not in self._chosen:
            return call
        made = self._attention(*self._chosen[var])
        dtype = str(var.ty.dtype)
        return made if str(made.ty.dtype) == dtype else relax.op.astype(made, dtype)

    def _attention(self, terms: Terms, choice: Hashable) -> relax.Var:
        operands = [self._operand(operand, str(buffer.dtype)) for operand, buffer in terms.operands]
        weight = terms.weight, terms.chosen, terms.defined
        known = [
            terms.query,
            terms.key,
            terms.value,
            terms.score,
            *weight,
            *terms.ends,
            "to",
            *terms.firsts,
            *terms.result,
        ]
        sizes = [size for _, size in terms.batch]
        shapes = [*sizes, terms.queries, terms.keys, terms.size, terms.width, *terms.shape]
        key = (
            *map(str, known),
            terms.empty,
            *shapes,
            *(f"{buffer.dtype}{buffer.shape}" for _, buffer in terms.operands),
            choice,
        )
        made = self._functions.setdefault(key, _function(terms, choice, self._compute))
        tail = [size for size in shapes if isinstance(size, Size)]
        return self.emit_te(made, *operands, *tail, name="attention", attrs={FUSION: OpPattern.OPAQUE})

    def _operand(self, operand: AttentionOperand, dtype: str) -> relax.Expr:
        """Returns an operand with its axes exchanged and in the type that terms read; made once for all readers."""
        key = self.replaced(operand.expr), operand.exchanged, dtype
        if key not in self._prepared:
            expr = key[0]
            if operand.exchanged:
                rank = len(expr.ty.shape)
                expr = self.builder.emit(relax.op.permute_dims(expr, [*range(rank - 2), rank - 1, rank - 2]))
            if str(expr.ty.dtype) != dtype:
                expr = self.builder.emit(relax.op.astype(self._within(expr, dtype), dtype))
            self._prepared[key] = expr
        return self._prepared[key]

    def _within(self, expr: relax.Expr, dtype: str) -> relax.Expr:
        """Clamps integers to the range of a narrower type."""
        if not dtype.startswith("int"):
            return expr
        limits, own = np.iinfo(dtype), str(expr.ty.dtype)
        below = self.builder.emit(relax.op.minimum(expr, relax.const(limits.max, own)))
        return self.builder.emit(relax.op.maximum(below, relax.const(limits.min, own)))


def _function(terms: Terms, choice: Hashable, computation: Computation) -> Callable[..., te.Tensor]:
    """Builds the computation; its parameters are the tensors, then the dynamic dimensions, as TVM requires."""
    problem = _problem(terms)

    def compute(*given: Any) -> te.Tensor:
        return computation(problem, choice, given[: len(terms.operands)])

    return compute


def _problem(terms: Terms) -> Attended:
    """Returns the expressions as functions."""
    buffers = [buffer for _, buffer in terms.operands]
    axes = [var for var, _ in terms.batch]

    def of(expr: tirx.Expr, variables: Sequence[tirx.Var]) -> Callable[..., tirx.Expr]:
        def made(loads: Sequence[Callable[..., tirx.Expr]], batch: Sequence[tirx.Expr], *given: tirx.Expr) -> tirx.Expr:
            def load(buffer: tirx.Var, index: Sequence[tirx.Expr]) -> tirx.Expr:
                position = next(n for n, known in enumerate(buffers) if known.same_as(buffer))
                return loads[position](index)

            values = dict(zip((*axes, *variables), (*batch, *given), strict=True))
            return substituted(expr, values, load)

        return made

    def result(batch: Sequence[tirx.Expr], query: tirx.Expr, offset: tirx.Expr) -> Sequence[tirx.Expr]:
        values = dict(zip((*axes, QUERY, DEPTH), (*batch, query, offset), strict=True))
        return [substituted(index, values) for index in terms.result]

    return Attended(
        tuple(size for _, size in terms.batch),
        terms.queries,
        terms.keys,
        int(terms.size),
        int(terms.width),
        of(terms.query, (QUERY, DEPTH)),
        of(terms.key, (KEY, DEPTH)),
        of(terms.value, (KEY, DEPTH)),
        of(terms.score, (QUERY, KEY, PRODUCT)),
        [of(end, (QUERY,)) for end in terms.ends],
        [of(first, (QUERY,)) for first in terms.firsts],
        tuple(terms.shape),
        result,
        terms.empty,
        terms.defined,
        None if terms.weight.same_as(POWER) else of(terms.weight, (QUERY, KEY, POWER)),
        None if terms.chosen is None else of(terms.chosen, (QUERY, KEY)),
        _is_converted(terms.key) or _is_converted(terms.value),
    )
