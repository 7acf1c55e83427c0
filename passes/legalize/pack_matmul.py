"""Packs the right factor of a matrix product in the order in which its kernel reads it.

    y = matmul(x, W)     →     y = multiply_packed(x, pack(W))     # W[K, N] as [N / b, K, b]

Large products with constants become seven products of submatrices (`passes/compute/strassen.py`) where that was chosen,
or outer products (`outer_product_matmul.py`) where the target has a unit for them.

Constants are packed here, at compile time; a factor that is computed is packed by a kernel of its own, which fusion
joins with the transposition that often comes before it.

    e = take(T, i)                                 e = gather_columns(i, pack(W))
    y = matmul(x, W)     # W = permute_dims(T)  →  y = multiply_packed(x, pack(W))

A table of embeddings that the network also multiplies by is stored once: its rows are gathered from the packed factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.attributes import CONVERTS_CONSTANTS, GATHERS_ROWS
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.compute.blocked import multiply
from nnefc.passes.compute.matmul import (
    gather_columns,
    multiply_packed,
    pack_right,
    pack_right_array,
    padded_rows,
    smallest_block,
)
from nnefc.passes.compute.outer_products import BLOCK
from nnefc.passes.compute.strassen import combine_left, combine_right, multiply_submatrices
from nnefc.passes.compute.tile_sizes import choose_tile
from nnefc.passes.graph.algorithms.choose_matmul import constant_factor, multiplied_type
from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.quantized.narrow_constants import dequantized_for
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.passes.legalize.outer_product_matmul import is_by_outer_products, multiply_by_outer_products
from nnefc.support.mapped_files import release_pages
from nnefc.symbolic.dims import Dimension, element_count, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["pack_matmul"]

_MIN_ROWS = 4  # that make packing a computed factor worth its while
_MIN_TABLE = 1 << 14  # elements of a table that is not stored twice
_COMPARED_ROWS = 64  # of a table and a factor at once: few of them are enough to tell most tables apart
_HELD_ROWS = 1 << 13  # whose pages are in memory at a time: a page of the factor has thousands of columns


def pack_matmul(mod: tvm.IRModule, target: Target, algorithms: FastAlgorithms) -> tvm.IRModule:
    """Lowers matrix products of floats to packed ones."""
    return relax.transform.DeadCodeElimination()(_Packer(mod, target, algorithms).transform())


class _Factor(NamedTuple):
    """A constant right factor.

    Attributes:
        weights: `[K, N]`, as they are stored.
        block: columns of a block that it is packed in.
    """

    weights: np.ndarray
    block: int

    def has_columns(self, table: np.ndarray) -> bool:
        """Whether the columns are bit for bit the rows of a table."""
        columns = self.weights.T
        if table.shape != columns.shape or table.dtype != columns.dtype:
            return False
        bits = f"u{table.dtype.itemsize}"
        for start in range(0, len(table), _COMPARED_ROWS):
            rows = slice(start, start + _COMPARED_ROWS)
            if not np.array_equal(table[rows].view(bits), columns[rows].view(bits)):
                return False
            if rows.stop % _HELD_ROWS == 0:
                release_pages()
        return True


class _Packer(Rewriter):
    def __init__(self, mod: tvm.IRModule, target: Target, algorithms: FastAlgorithms) -> None:
        super().__init__(mod)
        self._target = target
        self._algorithms = algorithms
        self._packed_constants: dict[object, relax.Expr] = {}
        self._sums: dict[object, relax.Var] = {}
        self._factors = self._large_factors()

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "matmul"):
            return self._gathered(call) if self._factors else call
        left, right = call.args
        if not self._fits(left, right):
            return call
        columns, rows = shape_of(right)[-1], shape_of(left)[-2]
        size = self._block_size(columns, str(right.ty.dtype))
        weights = constant_factor(right, len(shape_of(left)), self.definition)
        if weights is not None and self._is_by_outer_products(left, weights):
            packed = self._packed(weights, pack_right_array, BLOCK)
            return multiply_by_outer_products(self.builder, left, packed, weights.shape[1], ("float32", "float32"))
        if weights is not None and self._algorithms.by_strassen(weights):
            return self._by_strassen(left, weights, size)
        if weights is not None:
            height = size_hint(element_count(shape_of(left)[:-1]))
            packed = dequantized_for(self, self._packed(weights, pack_right_array, size), height, self._target)
        elif size_hint(rows) >= _MIN_ROWS:
            packed = self.emit_te(pack_right, right, size)
        else:
            return call
        axis = -2 if weights is None else _row_axis(shape_of(left))
        padded = padded_rows(shape_of(left)[axis], self._target.vectors.registers)
        given = (left, packed, columns, padded, multiply, axis)
        return self.emit_te(multiply_packed, *given, name="matmul", attrs={FUSION: OpPattern.OUT_FUSABLE})

    def _large_factors(self) -> list[_Factor]:
        """Returns the large constant factors that are going to be packed."""
        found = []
        values = {binding.var: binding.value for binding in bindings_of(self.old)}
        for call in values.values():
            if is_call(call, "matmul") and self._fits(*call.args):
                left, right = call.args
                weights = constant_factor(right, len(shape_of(left)), lambda expr: values.get(expr, expr))
                if weights is None or weights.size < _MIN_TABLE or self._is_by_outer_products(left, weights):
                    continue
                if not self._algorithms.by_strassen(weights):
                    found.append(_Factor(weights, self._block_size(weights.shape[1], str(right.ty.dtype))))
        return found

    def _gathered(self, call: relax.Call) -> relax.Expr:
        """Gathers rows of a constant table from a packed factor that has them as columns, if there is one."""
        mode = self._mode_of(call)
        if mode not in ("clip", "wrap", "fast"):
            return call
        source, indices = call.args[1].fields if is_call(call, "call_tir") else call.args
        table = self._stored(source)
        factor = next((each for each in self._factors if table is not None and each.has_columns(table)), None)
        if factor is None:
            return call
        packed = self._packed(factor.weights, pack_right_array, factor.block)
        return self.emit_te(
            gather_columns, indices, packed, factor.weights.shape[1], "wrap" if mode == "wrap" else "clip"
        )

    def _mode_of(self, call: relax.Call) -> str | None:
        """Returns the mode of indices out of range, if a call gathers rows."""
        if is_call(call, "take"):
            return str(call.attrs.mode) if call.attrs.axis == 0 else None
        kernel = self.builder.get()[call.args[0]] if is_call(call, "call_tir") else None
        return str(kernel.attrs[GATHERS_ROWS]) if kernel is not None and GATHERS_ROWS in (kernel.attrs or ()) else None

    def _stored(self, expr: relax.Expr) -> np.ndarray | None:
        """Returns a constant as it is stored, before a kernel dequantizes it."""
        definition = self.definition(expr)
        if is_call(definition, "call_tir"):
            kernel, read, *_ = definition.args
            if CONVERTS_CONSTANTS not in (self.builder.get()[kernel].attrs or ()) or len(read.fields) != 1:
                return None
            definition = read.fields[0]
        return array_of(definition) if is_constant(definition) else None

    def _by_strassen(self, left: relax.Expr, weights: np.ndarray, size: int) -> relax.Var:
        """Multiplies by Strassen's algorithm; the sums of submatrices of `left` are computed once for all products that
        read it.
        """
        height, columns = shape_of(left)[-2], weights.shape[1]
        rows = padded_rows(-(-height // 2), self._target.vectors.registers)
        tile = choose_tile(1, rows, columns // (2 * size), self._target).rows
        if (left, tile) not in self._sums:
            attrs = {FUSION: OpPattern.OPAQUE}
            self._sums[left, tile] = self.emit_te(combine_left, left, rows, tile, size, attrs=attrs)
        sums, packed = self._sums[left, tile], self._packed(weights, combine_right, size)
        attrs = {FUSION: OpPattern.OUT_FUSABLE}
        return self.emit_te(multiply_submatrices, sums, packed, height, name="matmul_strassen", attrs=attrs)

    def _packed(self, weights: np.ndarray, pack: Callable[[np.ndarray, int], np.ndarray], size: int) -> relax.Expr:
        """Packs a constant factor, once for all its uses: a recurrent network uses its own in every step."""
        key = (weights.ctypes.data, weights.shape, weights.strides, pack, size)
        if key not in self._packed_constants:
            factor = weights.astype(multiplied_type(weights, self._target), copy=False)
            self._packed_constants[key] = constant(pack(factor, size))
        return self._packed_constants[key]

    def _is_by_outer_products(self, left: relax.Expr, weights: np.ndarray) -> bool:
        return str(left.ty.dtype) == multiplied_type(weights, self._target) == "float32" and is_by_outer_products(
            left, "float32", weights.shape[1], self._target
        )

    def _fits(self, left: relax.Expr, right: relax.Expr) -> bool:
        dtypes = {str(left.ty.dtype), str(right.ty.dtype)}
        matrices = len(shape_of(left)) >= 2 and len(shape_of(right)) >= 2
        return matrices and len(dtypes) == 1 and dtypes <= {"float32", "float64"} and 0 not in shape_of(left)

    def _block_size(self, columns: int, dtype: str) -> int:
        """Returns the columns of a block: a vector, or half a vector where that divides the columns and a full one does
        not.

        Compiled for size, as many as leave little room unused.
        """
        lanes = self._target.block_lanes(dtype)
        if self._target.small:
            return smallest_block(lanes, columns)
        return lanes // 2 if columns % lanes and columns % (lanes // 2) == 0 and lanes > 4 else lanes


def _row_axis(left: Sequence[Dimension]) -> int:
    """Returns the axis, from the end, of the rows that one factor multiplies: the rows of matrices, or a batch of
    one-row matrices, as recurrent layers that put time first have.
    """
    return -3 if len(left) > 2 and left[-2] == 1 else -2
