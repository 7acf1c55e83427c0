"""Fuses each attention into one kernel of a GPU, which multiplies 16-bit floats where the precision says so.

    s = matmul(q * 0.125, kᵀ);  t = s + mask          q' = astype(q, "float16");  k' = …;  v' = …
    w = softmax(t);  y = matmul(w, v)             →     y = attention(q', k', v', mask), of scores p * 0.125 + mask

Queries, keys and values are converted by the kernels that compute them; parameters of the network and caches that few
queries read are converted by the attention. Its result is a 16-bit float where only products read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import UPDATES
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.compute.attention.by_query import attend_by_query
from nnefc.passes.graph.attention.fuse_attention import fits, with_kernels
from nnefc.passes.graph.attention.mask_bounds import with_mask_bounds
from nnefc.passes.graph.attention.match_attention import AttentionProgram, Found, find_attention
from nnefc.passes.graph.attention.terms import PRODUCT, AttentionOperand, Terms, terms_of
from nnefc.passes.graph.precision.use_16bit_floats import MOVES, narrowable
from nnefc.passes.graph.rewriter import array_of, constant, is_call, is_constant
from nnefc.passes.graph.rewriter import operands as operands_of
from nnefc.passes.tir.common.expressions import substituted
from nnefc.symbolic.dims import size_hint

__all__ = ["attentions_of", "fuse_attention_for_gpu"]

_FEW_QUERIES = 16
"""The fewest queries for which converting all keys and values ahead of them pays."""

Kernels = Mapping[object, tirx.PrimFunc]
Load = Callable[[tirx.Var, Sequence[tirx.Expr]], tirx.Expr]


def fuse_attention_for_gpu(
    mod: tvm.IRModule, longest: int, dtype: str | None = None, keep_wide: Collection[str] = ()
) -> tvm.IRModule:
    """Fuses each attention of float32 into one kernel.

    Args:
        longest: of queries, keys and values, what a block of threads has room for.
        dtype: the 16-bit float to multiply, or None for float32.
        keep_wide: products that multiply float32, as of `use_16bit_floats`.
    """
    kernels = {gv: func for gv, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)}
    program, found = attentions_of(mod, kernels, longest)
    narrow = {b.var for b in narrowable(bindings_of(mod["main"]), keep_wide)} if dtype is not None and found else set()
    chosen: dict[relax.Var, tuple[Terms, str]] = {}
    for each, terms in found:
        terms = _read_in_order(with_mask_bounds(_scaled_later(terms)))
        result = "float32"
        if dtype is not None and narrow >= {each.last, _first_product(each, program)}:
            terms = _in_16_bits(terms, dtype, program, kernels)
            result = dtype if _is_multiplied(terms.last, program, narrow) else result
        chosen[terms.last] = terms, result
    return with_kernels(mod, chosen, attend_by_query)


def attentions_of(
    mod: tvm.IRModule, kernels: Kernels, longest: int
) -> tuple[AttentionProgram, list[tuple[Found, Terms]]]:
    """Returns the attentions that become one kernel each, in order."""
    program, found = find_attention(mod["main"], kernels)
    pairs = [(each, terms_of(each, program, kernels)) for each in found]
    return program, [
        (each, terms)
        for each, terms in pairs
        if terms is not None and fits(terms) and max(int(terms.size), int(terms.width)) <= longest
    ]


def _first_product(found: Found, program: AttentionProgram) -> relax.Var:
    """Returns the variable of the product that scores are made of."""
    var = found.scores
    while not is_call(value := program.definitions[var], "matmul"):
        var = next(arg for arg in operands_of(value) if isinstance(arg, relax.Var) and arg in program.scores)
    return var


def _is_multiplied(var: relax.Var, program: AttentionProgram, narrow: Collection[relax.Var]) -> bool:
    """Whether nothing but a product of 16-bit floats reads a variable, or what it is moved to."""
    while (user := program.only_user(var)) is not None:
        value = program.definitions[user]
        if is_call(value, "matmul"):
            return user in narrow
        if not is_call(value, *MOVES):
            return False
        var = user
    return False


def _scaled_later(terms: Terms) -> Terms:
    """Returns the terms with the factor of queries applied to products, so that queries are read as they are stored."""
    query = terms.query
    if not isinstance(query, tirx.Mul) or not isinstance(query.b, tirx.FloatImm):
        return terms
    score = substituted(terms.score, {PRODUCT: PRODUCT * query.b})
    return replace(terms, query=query.a, score=score)


def _with_loads(terms: Terms, changes: Mapping[tirx.Var, tuple[AttentionOperand, tirx.Var, Load]]) -> Terms:
    """Returns the terms with other operands, and buffers for these, in place of loads from the old ones."""

    def load(buffer: tirx.Var, index: Sequence[tirx.Expr]) -> tirx.Expr:
        return changes[buffer][2](changes[buffer][1], index) if buffer in changes else tirx.BufferLoad(buffer, index)

    def changed(expr: tirx.Expr) -> tirx.Expr:
        return substituted(expr, {}, load)

    return replace(
        terms,
        operands=[
            changes[buffer][:2] if buffer in changes else (operand, buffer) for operand, buffer in terms.operands
        ],
        query=changed(terms.query),
        key=changed(terms.key),
        value=changed(terms.value),
        score=changed(terms.score),
        weight=changed(terms.weight),
        chosen=None if terms.chosen is None else changed(terms.chosen),
        ends=list(map(changed, terms.ends)),
        firsts=list(map(changed, terms.firsts)),
    )


def _read_in_order(terms: Terms) -> Terms:
    """Returns the terms with masks in the order that they have in memory, where neighbouring threads read neighbouring
    keys, and with indices of 32 bits in place of tensors of 64-bit integers."""
    changes: dict[tirx.Var, tuple[AttentionOperand, tirx.Var, Load]] = {}
    for operand, buffer in terms.operands:
        is_wide = str(buffer.dtype) == "int64"
        if not operand.exchanged and not is_wide:
            continue
        expr = _in_32_bits(operand.expr) if is_wide else operand.expr
        shape = list(buffer.shape)
        shape = [*shape[:-2], shape[-1], shape[-2]] if operand.exchanged else shape
        dtype = "int32" if is_wide else str(buffer.dtype)
        load = _loads(operand.exchanged, str(buffer.dtype) if is_wide else None)
        own = tirx.decl_buffer(shape, dtype, str(buffer.name))
        changes[buffer] = AttentionOperand(expr, False), own, load
    return _with_loads(terms, changes) if changes else terms


def _loads(exchanged: bool, dtype: str | None) -> Load:
    """Returns how an element is loaded from a tensor with its axes in another order, or in another type."""

    def load(buffer: tirx.Var, index: Sequence[tirx.Expr]) -> tirx.Expr:
        index = [*index[:-2], index[-1], index[-2]] if exchanged else list(index)
        value = tirx.BufferLoad(buffer, index)
        return value if dtype is None else tirx.Cast(dtype, value)

    return load


def _in_32_bits(expr: relax.Expr) -> relax.Expr:
    """Returns a constant of 64-bit integers in 32 bits; other tensors are converted where they are read.

    Numbers that 32 bits cannot hold are no index of any tensor of a GPU.
    """
    if not is_constant(expr):
        return expr
    limits = np.iinfo(np.int32)
    return constant(np.clip(array_of(expr), limits.min, limits.max).astype(np.int32))


def _in_16_bits(terms: Terms, dtype: str, program: AttentionProgram, kernels: Kernels) -> Terms:
    """Returns the terms with queries, keys and values that are read as 16-bit floats."""
    known = {buffer: operand for operand, buffer in terms.operands}
    changes: dict[tirx.Var, tuple[AttentionOperand, tirx.Var, Load]] = {}
    for term in (terms.query, terms.key, terms.value):
        if not isinstance(term, TensorLoad) or str(term.source.dtype) != "float32":
            continue
        operand = known[term.source]
        is_query = term is terms.query
        if not is_query and size_hint(terms.queries) < _FEW_QUERIES and _is_kept(operand.expr, program, kernels):
            continue
        own = tirx.decl_buffer(list(term.source.shape), dtype, str(term.source.name))
        changes[term.source] = operand, own, _loads(False, "float32")
    return _with_loads(terms, changes) if changes else terms


def _is_kept(expr: relax.Expr, program: AttentionProgram, kernels: Kernels) -> bool:
    """Whether a tensor is a parameter of the network, or a cache that is written in place."""
    value = program.definitions.get(expr) if isinstance(expr, relax.Var) else None
    if value is None:
        return True
    kernel = kernels.get(value.args[0]) if is_call(value, "call_tir") else None
    return kernel is not None and bool(kernel.attrs) and UPDATES in kernel.attrs
