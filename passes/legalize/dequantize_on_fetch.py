"""Keeps block-quantized matrices in their layout, and dequantizes each element where it is fetched (GPUs).

w = dequantize_blocks(B, scales, zeros)                   y = block_matmul(x, B, scales, zeros)
y = matmul(x, w)                                    →     t = gather_blocks(i, B, scales, zeros)
t = take(permute_dims(w), i)

The kernels have the dequantization as a step before the product, or the gather, which the schedule computes where its
result is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from nnefc.ir.attributes import ADDS_OFFSETS, DEQUANTIZES_BLOCKS
from nnefc.operators.nn.block_quantization import element_of_block
from nnefc.passes.compute.blocked import index_in_range
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, shape_of
from nnefc.passes.legalize.pack_block_matmul import BlockMatrix, matrix_in_blocks
from nnefc.symbolic.dims import Dimension

__all__ = ["fetch_blocks"]

_MULTIPLIED = ("float32", "float16", "bfloat16")


def fetch_blocks(mod: tvm.IRModule) -> tvm.IRModule:
    """Lowers matrix products with constants that are quantized in blocks, and gathers of their rows."""
    if not any(func.attrs and DEQUANTIZES_BLOCKS in func.attrs for func in mod.functions.values()):
        return mod
    return relax.transform.DeadCodeElimination()(_Fetcher(mod).transform())


@dataclass(frozen=True)
class _Elements:
    """How the elements of a matrix `[K, N]` are stored in blocks.

    Attributes:
        bits, block: of an integer, and how many share a scale.
        depth, columns: K and N.
        adds_offsets: whether what is stored besides the scales is added, instead of taken away before.
        is_float: whether integers are floats of 8 bits.
        dtype: that elements are rounded to.
    """

    bits: int
    block: int
    depth: int
    columns: int
    adds_offsets: bool
    is_float: bool
    dtype: str

    def at(self, tensors: Sequence[te.Tensor], k: tirx.Expr, n: tirx.Expr) -> tirx.Expr:
        """Returns an element of the tensors of a `BlockDequantization`."""
        element = element_of_block(tensors, k, n, self.bits, self.block, self.adds_offsets, self.is_float)
        return element.astype(self.dtype)


class _Fetcher(Rewriter):
    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if is_call(call, "matmul"):
            left, matrix = call.args[0], matrix_in_blocks(self, call.args[1])
            if matrix is None or matrix.transposed or str(left.ty.dtype) not in _MULTIPLIED:
                return call
            if len(shape_of(left)) < 2 or 0 in shape_of(left):
                return call
            attrs = {FUSION: OpPattern.OUT_FUSABLE}
            given = *map(_converted, matrix.tensors), _elements(matrix, shape_of(left)[-1])
            return self.emit_te(_multiplied, left, *given, name="block_matmul", attrs=attrs)
        if is_call(call, "take") and call.attrs.axis == 0 and call.attrs.mode in ("clip", "wrap"):
            matrix = matrix_in_blocks(self, call.args[0])
            if matrix is not None and matrix.transposed:
                given = *map(_converted, matrix.tensors), _elements(matrix, shape_of(call.args[0])[1])
                return self.emit_te(_gathered, call.args[1], *given, str(call.attrs.mode), name="gather_blocks")
        return call


def _elements(matrix: BlockMatrix, depth: Dimension) -> _Elements:
    assert isinstance(depth, int)
    columns = int(shape_of(matrix.tensors[0])[0])
    adds_offsets = ADDS_OFFSETS in matrix.kernel
    return _Elements(matrix.bits, matrix.block, depth, columns, adds_offsets, matrix.is_float, matrix.dtype)


def _converted(tensor: relax.Constant) -> relax.Constant:
    """Converts scales, zero points and offsets to half precision, if that is exact."""
    array = array_of(tensor)
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float16) if array.dtype == np.float32 else array
    return constant(narrow) if np.array_equal(narrow.astype(array.dtype), array) else tensor


def _multiplied(x: te.Tensor, *given: Any) -> te.Tensor:
    """Multiplies `[…, K]` by a matrix in blocks; the tensors and the `_Elements` are given."""
    *tensors, elements = given
    wide = te.compute((elements.depth, elements.columns), lambda k, n: elements.at(tensors, k, n), name="dequantized")
    k = te.reduce_axis((0, elements.depth), "k")

    def element(*index: tirx.Var) -> tirx.Expr:
        factors = x(*index[:-1], k), wide(k, index[-1])
        return te.sum(factors[0].astype("float32") * factors[1].astype("float32"), axis=k)

    return te.compute((*x.shape[:-1], elements.columns), element, name="block_matmul")


def _gathered(indices: te.Tensor, *given: Any) -> te.Tensor:
    """Gathers columns by indices, as rows `[…, K]`; indices out of range are treated as by Relax's `take`."""
    *tensors, elements, mode = given

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, k = index
        return elements.at(tensors, k, index_in_range(indices(*outer), elements.columns, mode))

    return te.compute((*indices.shape, elements.depth), element, name="gather_blocks")
