"""Lays matrix products of bytes out for tensor cores of GPUs, which read both operands along the depth.

    y = matmul(x, W, out_dtype="int32")     →     y = multiply_transposed(x, transpose(W))       # W at compile time
    t = permute_dims(k, [0, 2, 3, 1])       →     t = permute_dims(k, [0, 2, 1, 3])
    y = matmul(q, t, out_dtype="int32")           y = multiply_transposed(q, t)

Rows that are no multiple of what a thread copies at once end in zeros. A depth of dynamic size stays as it is.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.compute.fp16_matmul import multiply_transposed
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.quantized.packed_operands import EIGHT_BITS
from nnefc.passes.graph.quantized.quantized_values import sum_type
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.symbolic.dims import is_known

__all__ = ["pack_byte_matmul"]


def pack_byte_matmul(mod: tvm.IRModule, at_once: int) -> tvm.IRModule:
    """Rewrites products of bytes with sums in int32, and of floats of 8 bits with sums in float32.

    Args:
        at_once: bytes of a copy.
    """
    return relax.transform.DeadCodeElimination()(_Packer(mod, at_once).transform())


class _Packer(Rewriter):
    def __init__(self, mod: tvm.IRModule, at_once: int) -> None:
        super().__init__(mod)
        self._at_once = at_once

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "matmul") or not all(map(_is_byte_matrix, call.args)):
            return call
        left, right = call.args
        sums = str(var.ty.dtype)
        if sums != sum_type(str(left.ty.dtype)) or sums != sum_type(str(right.ty.dtype)):
            return call
        depth = shape_of(left)[-1]
        if not is_known(depth):
            return call
        operands = (self._filled_up(side) for side in (left, self._transposed(right)))
        name = "integer_matmul" if sums == "int32" else "float8_matmul"
        return self.emit_te(multiply_transposed, *operands, sums, name=name, attrs={FUSION: OpPattern.OUT_FUSABLE})

    def _transposed(self, matrix: relax.Expr) -> relax.Expr:
        """Returns a tensor with its last two axes exchanged; what permutes axes already permutes them once."""
        rank = len(shape_of(matrix))
        axes = [*range(rank - 2), rank - 1, rank - 2]
        if is_constant(matrix):
            return constant(np.ascontiguousarray(array_of(matrix).transpose(axes)))
        before = self.definition(matrix)
        if is_call(before, "permute_dims"):
            given = before.attrs.axes
            own = [*range(rank)][::-1] if given is None else [int(axis) % rank for axis in given]
            matrix, axes = before.args[0], [own[axis] for axis in axes]
        return matrix if axes == [*range(rank)] else self.builder.emit(relax.op.permute_dims(matrix, axes))

    def _filled_up(self, matrix: relax.Expr) -> relax.Expr:
        """Returns a matrix with zeros behind each row, up to a multiple of the bytes of a copy."""
        *outer, depth = shape_of(matrix)
        missing = -depth % self._at_once
        if not missing:
            return matrix
        if is_constant(matrix):
            return constant(np.pad(array_of(matrix), [*[(0, 0)] * len(outer), (0, missing)]))
        return self.builder.emit(relax.op.nn.pad(matrix, [0, 0] * len(outer) + [0, missing]))


def _is_byte_matrix(expr: relax.Expr) -> bool:
    return str(expr.ty.dtype) in EIGHT_BITS and len(shape_of(expr)) >= 2 and 0 not in shape_of(expr)
