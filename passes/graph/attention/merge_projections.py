"""Computes the queries, keys and values of an attention by one product where all are products of one tensor.

    q = matmul(x, Wq) + bq                    y = matmul(x, [Wq, Wk, Wv]) + [bq, bk, bv]
    k = matmul(x, Wk) + bk            →       q, k, v = split(y)
    v = matmul(x, Wv) + bv                    attention(q, k, v)
    attention(q, k, v)

An attention that is one kernel reads the parts where they lie. Products that anything else reads stay apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.attention.fuse_for_gpu import attentions_of
from nnefc.passes.graph.attention.match_attention import AttentionProgram
from nnefc.passes.graph.attention.terms import Terms
from nnefc.passes.graph.index_maps import SHAPES
from nnefc.passes.graph.precision.use_16bit_floats import narrowable
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.passes.graph.stored_weights import weights_of

__all__ = ["merge_projections"]

_BETWEEN = (*SHAPES, "permute_dims", "broadcast_to", "strided_slice", "multiply", "divide")
"""Operators that may stand between a projection and the products of an attention: they move or scale elements."""


@dataclass(frozen=True)
class _Projection:
    """A product with constant weights, and the bias that is added to it.

    Attributes:
        var: what is bound to the result.
        product: what is bound to the product.
        data: the other factor.
        weights, bias: with one column, and one element, for each element of a row of the result.
    """

    var: relax.Var
    product: relax.Var
    data: relax.Var
    weights: np.ndarray
    bias: np.ndarray | None

    @property
    def columns(self) -> int:
        """Elements of a row of the result."""
        return int(self.weights.shape[1])


def merge_projections(mod: tvm.IRModule, longest: int, keep_wide: Collection[str] = ()) -> tvm.IRModule:
    """Merges the projections of each attention; `longest` and `keep_wide` as of `fuse_attention_for_gpu`."""
    kernels = {gv: func for gv, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)}
    program, found = attentions_of(mod, kernels, longest)
    if not found:
        return mod
    same = {b.var for b in narrowable(bindings_of(mod["main"]), keep_wide)}
    groups: list[list[_Projection]] = []
    taken: set[relax.Var] = set()
    for _, terms in found:
        for group in _groups(terms, program):
            if not taken & {each.var for each in group} and same >= {each.product for each in group}:
                groups.append(group)
                taken |= {each.var for each in group}
    return relax.transform.DeadCodeElimination()(_Merger(mod, groups).transform()) if groups else mod


def _groups(terms: Terms, program: AttentionProgram) -> list[list[_Projection]]:
    """Returns the projections of an attention that share their data, if there are several."""
    known = {buffer: operand.expr for operand, buffer in terms.operands}
    read: dict[relax.Var, None] = {}
    for term in (terms.query, terms.key, terms.value):
        factor = term.a if isinstance(term, tirx.Mul) else term  # without what scales queries
        if isinstance(factor, TensorLoad) and isinstance(known[factor.source], relax.Var):
            read[known[factor.source]] = None
    found = [made for var in read if (made := _projection(var, program)) is not None]
    by_data: dict[relax.Var, list[_Projection]] = {}
    for each in found:
        by_data.setdefault(each.data, []).append(each)
    return [group for group in by_data.values() if len(group) > 1]


def _projection(var: relax.Var, program: AttentionProgram) -> _Projection | None:
    """Returns the projection that computes a variable, if only an attention reads it."""
    value, product, bias = program.definitions.get(var), var, None
    if is_call(value, "add"):
        sides = [arg for arg in value.args if isinstance(arg, relax.Var)]
        others = [arg for arg in value.args if is_constant(arg)]
        if len(sides) != 1 or len(others) != 1 or program.uses[sides[0]] != 1:
            return None
        product, bias = sides[0], array_of(others[0])
        value = program.definitions.get(product)
    if not is_call(value, "matmul") or not isinstance(value.args[0], relax.Var) or not _is_of_attention(var, program):
        return None
    weights = weights_of(value.args[1], lambda expr: program.definitions.get(expr, expr))
    if weights is None or weights.ndim != 2 or str(value.args[0].ty.dtype) != "float32":
        return None
    if bias is not None:
        if bias.size != weights.shape[1] or bias.shape[-1:] != weights.shape[1:] or bias.dtype != np.float32:
            return None
        bias = bias.reshape(-1)
    return _Projection(var, product, value.args[0], weights, bias)


def _is_of_attention(var: relax.Var, program: AttentionProgram) -> bool:
    """Whether a variable is only moved and scaled until a product reads it."""
    while (user := program.only_user(var)) is not None:
        value = program.definitions[user]
        if is_call(value, "matmul"):
            return True
        if not is_call(value, *_BETWEEN):
            return False
        var = user
    return False


class _Merger(Rewriter):
    def __init__(self, mod: tvm.IRModule, groups: Sequence[Sequence[_Projection]]) -> None:
        super().__init__(mod)
        self._first = {each.product: group for group in groups for each in group}
        self._parts: dict[relax.Var, relax.Expr] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        group = self._first.get(var)
        if group is not None and group[0].var not in self._parts:
            self._parts |= self._merged(group)
        return self._parts.get(var, call)

    def _merged(self, group: Sequence[_Projection]) -> dict[relax.Var, relax.Expr]:
        """Returns the parts of the merged product, by the variables that they replace."""
        weights = np.concatenate([each.weights for each in group], axis=1, dtype=np.float32)
        made = self.builder.emit(relax.op.matmul(self.replaced(group[0].data), constant(weights)))
        if any(each.bias is not None for each in group):
            zeros = (np.zeros(each.columns, np.float32) for each in group)
            biases = [zero if each.bias is None else each.bias for each, zero in zip(group, zeros, strict=True)]
            made = self.builder.emit(relax.op.add(made, constant(np.concatenate(biases))))
        ends = np.cumsum([each.columns for each in group])[:-1].tolist()
        parts = self.builder.emit(relax.op.split(made, ends, axis=len(shape_of(made)) - 1))
        return {each.var: self.builder.emit(relax.TupleGetItem(parts, n)) for n, each in enumerate(group)}
