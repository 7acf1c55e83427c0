"""Lays matrix products out for tensor cores of GPUs that read both operands along the depth.

    y = matmul(x, W, out_dtype="int32")     →     y = multiply_transposed(x, transpose(W))       # W at compile time
    t = permute_dims(k, [0, 2, 3, 1])       →     t = permute_dims(k, [0, 2, 1, 3])
    y = matmul(q, t, out_dtype="int32")           y = multiply_transposed(q, t)

Rows of bytes that are no multiple of what a thread copies at once end in zeros. A depth of dynamic size stays as it is.
Single precision has other instructions, which read operands as they are. So its products stay as they are where their
rows are no such multiple, or are few, and where a computed matrix would have to be transposed.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.compute.fp16_matmul import multiply_transposed
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.quantized.quantized_values import sum_type
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import is_known

__all__ = ["pack_deep_matmul"]

_MIN_ROWS = 8  # fewer are no product for tensor cores


def pack_deep_matmul(mod: tvm.IRModule, at_once: int, types: Collection[str]) -> tvm.IRModule:
    """Rewrites products of bytes with int32 accumulators, and of 8-bit floats and float32 with float32 accumulators.

    Args:
        at_once: bytes of a copy.
        types: of the operands.
    """
    return relax.transform.DeadCodeElimination()(_Packer(mod, at_once, types).transform()) if types else mod


class _Packer(Rewriter):
    def __init__(self, mod: tvm.IRModule, at_once: int, types: Collection[str]) -> None:
        super().__init__(mod)
        self._at_once, self._types = at_once, types

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "matmul") or not all(map(self._is_matrix, call.args)):
            return call
        left, right = call.args
        sums, dtype = str(var.ty.dtype), str(left.ty.dtype)
        if not is_known(shape_of(left)[-1]):
            return call
        if dtype == "float32":
            return self._of_single(call) if sums == str(right.ty.dtype) == dtype else call
        if sums != sum_type(dtype) or sums != sum_type(str(right.ty.dtype)):
            return call
        name = "integer_matmul" if sums == "int32" else "float8_matmul"
        return self._multiplied(self._filled_up(left), self._filled_up(self._transposed(right)), sums, name)

    def _is_matrix(self, expr: relax.Expr) -> bool:
        return str(expr.ty.dtype) in self._types and len(shape_of(expr)) >= 2 and 0 not in shape_of(expr)

    def _of_single(self, call: relax.Call) -> relax.Expr:
        left, right = call.args
        *outer, depth = shape_of(left)
        rows = math.prod(outer) if len(shape_of(right)) == 2 else outer[-1]
        is_few = is_known(rows) and rows < _MIN_ROWS
        if is_few or depth * element_bytes("float32") % self._at_once or not self._is_transposed(right):
            return call
        return self._multiplied(left, self._transposed(right), "float32", "matmul")

    def _is_transposed(self, matrix: relax.Expr) -> bool:
        """Whether a matrix is constant, or is contiguous along the depth before a permutation of axes."""
        if is_constant(matrix):
            return True
        before = self.definition(matrix)
        return is_call(before, "permute_dims") and _axes_of(before)[-2] == len(shape_of(matrix)) - 1

    def _multiplied(self, left: relax.Expr, right: relax.Expr, sums: str, name: str) -> relax.Expr:
        return self.emit_te(multiply_transposed, left, right, sums, name=name, attrs={FUSION: OpPattern.OUT_FUSABLE})

    def _transposed(self, matrix: relax.Expr) -> relax.Expr:
        """Exchanges the last two axes of a tensor; joins that with a permutation of axes before it."""
        rank = len(shape_of(matrix))
        axes = [*range(rank - 2), rank - 1, rank - 2]
        if is_constant(matrix):
            return constant(np.ascontiguousarray(array_of(matrix).transpose(axes)))
        before = self.definition(matrix)
        if is_call(before, "permute_dims"):
            own = _axes_of(before)
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


def _axes_of(call: relax.Call) -> list[int]:
    """Returns the axes of its operand that a `permute_dims` gives to the axes of the result."""
    rank, given = len(shape_of(call.args[0])), call.attrs.axes
    return [*range(rank)][::-1] if given is None else [int(axis) % rank for axis in given]
