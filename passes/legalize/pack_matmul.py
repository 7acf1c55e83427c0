"""Lay the right factor of a matrix product out as its kernel reads it.

    y = matmul(x, W)     →     y = multiply_packed(x, pack(W))     # W[K, N] as [N / b, K, b]

Large products with constants become seven products of quarters (`passes/compute/strassen.py`), unless that is ruled
out.

Constants are packed here, at compile time; a factor that is computed is packed by a kernel of its own, which fusion
joins with the transposition that often comes before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from nnefc.passes.compute.matmul import multiply_packed, pack_right, pack_right_array, padded_rows
from nnefc.passes.compute.strassen import combine_left, combine_right, multiply_quarters
from nnefc.passes.graph.narrow_constants import weights_of, widened_for
from nnefc.passes.graph.patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.passes.schedule.cpu.contraction import choose_tile
from nnefc.targets.machine.target import Target

__all__ = ["PackMatmul"]

_LEAST_ROWS = 4  # that make packing a computed factor worth its while

# Of products by quarters. One vector multiply-add takes a cycle; so do, roughly, two loads or stores of vectors.
_LEAST_QUARTER_ROWS = 96  # fewer do not make up for reading three quarters more of trained values from memory
_SUM_CYCLES = 4  # for a vector of A: half the loads and stores of its share of the seven sums
_RESULT_CYCLES = 6  # for a vector of C
_LEAST_SAVING = 2  # cycles saved for each cycle spent


@tvm.transform.module_pass(opt_level=0, name="PackMatmul")
class PackMatmul:
    """Lower matrix products of floats to packed ones."""

    def __init__(self, target: Target, strict: bool = False) -> None:
        self._target = target
        self._strict = strict

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        return relax.transform.DeadCodeElimination()(_Packer(mod, self._target, self._strict).transform())


class _Packer(Rewriter):
    def __init__(self, mod: tvm.IRModule, target: Target, strict: bool) -> None:
        super().__init__(mod)
        self._target = target
        self._strict = strict
        self._packed_constants: dict[object, relax.Expr] = {}
        self._sums: dict[object, relax.Var] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "matmul"):
            return call
        left, right = call.args
        if not self._fits(left, right):
            return call
        columns, rows = shape_of(right)[-1], shape_of(left)[-2]
        size = self._block_size(columns, str(right.ty.dtype))
        weights = self._constant_factor(right, len(shape_of(left)))
        wide = weights if weights is not None and str(weights.dtype) == str(right.ty.dtype) else None
        if wide is not None and not self._strict and self._quarters_pay(left, wide):
            return self._by_quarters(left, wide, size)
        if weights is not None:
            height = math.prod(shape_of(left)[:-1])
            packed = widened_for(self, self._packed(weights, pack_right_array, size), height, self._target)
        elif rows >= _LEAST_ROWS:
            packed = self.emit_te(pack_right, right, size)
        else:
            return call
        padded = padded_rows(rows, self._target.vector_registers)
        attrs = {FUSION: OpPattern.OUT_FUSABLE}
        return self.emit_te(multiply_packed, left, packed, columns, padded, name="matmul", attrs=attrs)

    def _by_quarters(self, left: relax.Expr, weights: np.ndarray, size: int) -> relax.Var:
        """The sums of quarters of `left` are computed once, however many products they are for."""
        height, columns = shape_of(left)[-2], weights.shape[1]
        rows = padded_rows(-(-height // 2), self._target.vector_registers)
        tile = choose_tile(1, rows, columns // (2 * size), self._target).rows
        if (left, tile) not in self._sums:
            attrs = {FUSION: OpPattern.OPAQUE}
            self._sums[left, tile] = self.emit_te(combine_left, left, rows, tile, size, attrs=attrs)
        sums, packed = self._sums[left, tile], self._packed(weights, combine_right, size)
        attrs = {FUSION: OpPattern.OUT_FUSABLE}
        return self.emit_te(multiply_quarters, sums, packed, height, name="matmul_by_quarters", attrs=attrs)

    def _quarters_pay(self, left: relax.Expr, weights: np.ndarray) -> bool:
        """Whether an eighth of the multiply-adds is worth more than the sums, and the longer factor, that it costs.

        Where two multiply-adds begin in a cycle, loads and stores are what a product waits for, and there are more of
        these: on an Intel core of that kind BERT base takes 1.16 times as long by quarters.
        """
        if self._target.paired:
            return False
        *batch, rows, _ = shape_of(left)
        depth, columns = weights.shape
        lanes = self._target.lanes(str(left.ty.dtype))
        if (
            any(extent != 1 for extent in batch)
            or rows < _LEAST_QUARTER_ROWS
            or depth % (2 * lanes)
            or columns % (2 * lanes)
        ):
            return False
        spent = _SUM_CYCLES * depth + _RESULT_CYCLES * columns
        return bool(depth * columns / 8 > _LEAST_SAVING * spent)

    def _packed(self, weights: np.ndarray, pack: Callable[[np.ndarray, int], np.ndarray], size: int) -> relax.Expr:
        """A constant factor, packed once however often it is used (a recurrent network uses its own at every step)."""
        key = (weights.ctypes.data, weights.shape, weights.strides, pack, size)
        if key not in self._packed_constants:
            self._packed_constants[key] = constant(pack(weights, size))
        return self._packed_constants[key]

    def _fits(self, left: relax.Expr, right: relax.Expr) -> bool:
        dtypes = {str(left.ty.dtype), str(right.ty.dtype)}
        matrices = len(shape_of(left)) >= 2 and len(shape_of(right)) >= 2
        return matrices and len(dtypes) == 1 and dtypes <= {"float32", "float64"} and 0 not in shape_of(left)

    def _constant_factor(self, expr: relax.Expr, rank: int) -> np.ndarray | None:
        """The value of `expr`, if it is one constant matrix, or a transposed one, to multiply a tensor of `rank`.

        It may be stored in a narrower type, which the product widens.
        """
        source = self.definition(expr)
        stored = weights_of(source)
        if stored is not None:
            weights = stored if self._target.widens(str(stored.dtype)) else stored.astype(str(expr.ty.dtype))
        elif is_call(source, "permute_dims") and is_constant(source.args[0]):
            axes = source.attrs.axes
            weights = np.transpose(array_of(source.args[0]), None if axes is None else [int(axis) for axis in axes])
        else:
            return None
        *batch, depth, columns = weights.shape if 2 <= weights.ndim <= rank else (0, 0, 0)
        return weights.reshape(depth, columns) if all(extent == 1 for extent in batch) else None

    def _block_size(self, columns: int, dtype: str) -> int:
        """Columns in a vector: half a vector where that divides them and a whole one does not."""
        lanes = self._target.lanes(dtype)
        return lanes // 2 if columns % lanes and columns % (lanes // 2) == 0 and lanes > 4 else lanes
