"""Lay the right factor of a matrix product out as its kernel reads it.

    y = matmul(x, W)     →     y = multiply_packed(x, pack(W))     # W[K, N] as [N / b, K, b]

Constants are packed here, at compile time; a factor that is computed is packed by a kernel of its own, which fusion
joins with the transposition that often comes before it.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.compute.matmul import multiply_packed, pack_right, pack_right_array
from nnefc.passes.graph.patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.targets.target import Target

__all__ = ["PackMatmul"]

_LEAST_ROWS = 4  # that make packing a computed factor worth its while


@tvm.transform.module_pass(opt_level=0, name="PackMatmul")
class PackMatmul:
    """Lower matrix products of floats to packed ones."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        return relax.transform.DeadCodeElimination()(_Packer(mod, self._target).transform())


class _Packer(Rewriter):
    def __init__(self, mod: tvm.IRModule, target: Target) -> None:
        super().__init__(mod)
        self._target = target
        self._packed_constants: dict[object, relax.Expr] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "matmul"):
            return call
        left, right = call.args
        if not self._fits(left, right):
            return call
        columns, rows = shape_of(right)[-1], shape_of(left)[-2]
        size = self._block_size(columns, str(right.ty.dtype))
        weights = self._constant_factor(right)
        if weights is not None:
            packed = self._packed(weights, size)
        elif rows >= _LEAST_ROWS:
            packed = self.emit_te(pack_right, right, size)
        else:
            return call
        padded = self._padded_rows(rows)
        attrs = {FUSION: OpPattern.OUT_FUSABLE}
        return self.emit_te(multiply_packed, left, packed, columns, padded, name="matmul", attrs=attrs)

    def _packed(self, weights: np.ndarray, size: int) -> relax.Expr:
        """A constant factor, packed once however often it is used (a recurrent network uses its own at every step)."""
        key = (weights.ctypes.data, weights.shape, weights.strides, size)
        if key not in self._packed_constants:
            self._packed_constants[key] = constant(pack_right_array(weights, size))
        return self._packed_constants[key]

    def _fits(self, left: relax.Expr, right: relax.Expr) -> bool:
        dtypes = {str(left.ty.dtype), str(right.ty.dtype)}
        matrices = len(shape_of(left)) >= 2 and len(shape_of(right)) >= 2
        return matrices and len(dtypes) == 1 and dtypes <= {"float32", "float64"} and 0 not in shape_of(left)

    def _constant_factor(self, expr: relax.Expr) -> np.ndarray | None:
        """The value of `expr`, if it is one constant matrix, or the transposition of one."""
        source = self.definition(expr)
        if is_constant(source):
            weights = array_of(source)
        elif is_call(source, "permute_dims") and is_constant(source.args[0]):
            axes = source.attrs.axes
            weights = np.transpose(array_of(source.args[0]), None if axes is None else [int(axis) for axis in axes])
        else:
            return None
        return weights if weights.ndim == 2 else None

    def _block_size(self, columns: int, dtype: str) -> int:
        """Columns in a vector: half a vector where that divides them and a whole one does not."""
        lanes = self._target.lanes(dtype)
        return lanes // 2 if columns % lanes and columns % (lanes // 2) == 0 and lanes > 4 else lanes

    def _padded_rows(self, rows: int) -> int:
        """The least number from `rows` on that divides into tiles of a good height."""
        tallest = self._target.vector_registers // 2 - 2
        if rows <= tallest:
            return rows
        return min(-(-rows // height) * height for height in range(tallest // 2 + 1, tallest + 1))
