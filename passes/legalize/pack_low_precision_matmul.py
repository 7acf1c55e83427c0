"""Legalizes int8 products with int32 accumulators, and 16-bit float ones with float32 accumulators, as dot products.

    y = matmul(x, W, out_dtype="int32")     →     y = multiply_packed(packed(x), pack(W)) + c

`packed` reads neighbouring bytes of a row as one int32, `pack` lays W[K, N] out as such [N / b, K / 4, b]; pairs of
16-bit floats likewise. Where the instruction wants data of the other sign, 128 is added to them or taken away; `c`
makes up for that: 128 times the sum of each column of W.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax, te, topi

from nnefc.ir.kernel_calls import emit_te
from nnefc.passes.compute.dot.dot_accumulate import filled_up, multiply_lanes, pack_columns, vector_elements
from nnefc.passes.compute.dot.dot_product import Multiplication, multiplication_of
from nnefc.passes.compute.dot.matrix_units import filled, in_tiles, paired_terms
from nnefc.passes.compute.dot.pack_dot_operands import pack_dot_matrix, packed_array
from nnefc.passes.compute.dot.paired_weights import multiply_paired, pair_terms
from nnefc.passes.compute.dot.quad_pairs import QUAD, by_quad_pairs, has_quad_pairs, multiply_quads, pair_quads
from nnefc.passes.compute.matmul import multiply_packed, pack_right, pack_right_array, padded_rows, smallest_block
from nnefc.passes.compute.outer_products import BLOCK
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.quantized.byte_ranges import byte_range
from nnefc.passes.graph.quantized.packed_operands import (
    BYTES,
    NARROW,
    converted,
    packed_bytes,
    packed_data,
    packed_weights,
)
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.passes.legalize.outer_product_matmul import is_by_outer_products, multiply_by_outer_products
from nnefc.symbolic.dims import Dimension, Size, dimension, expression, is_known, may_exceed
from nnefc.targets.machine.cpu.target import Target

__all__ = ["pack_low_precision_matmul"]

_WORD = 4  # bytes that are one number of packed factors
_FEW_ROWS = 3
"""Products of up to this many rows take as long as loading their weights from memory."""

_SIDE_BY_SIDE = 8
"""The fewest elements of a row that one instruction should sum up: below it, a copy of the row padded with zeros costs
less.
"""


def pack_low_precision_matmul(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Lowers matrix products of narrow numbers to packed ones."""
    return relax.transform.DeadCodeElimination()(_Packer(mod, target).transform())


class _Packer(Rewriter):
    def __init__(self, mod: tvm.IRModule, target: Target) -> None:
        super().__init__(mod)
        self._target = target

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "matmul") or not all(_is_narrow_matrix(arg) for arg in call.args):
            return call
        left, right = call.args
        is_whole = is_constant(right) and len(shape_of(right)) == 2
        if self._target.summed_bytes and is_whole and {str(arg.ty.dtype) for arg in call.args} <= set(BYTES):
            return self._summed(left, array_of(right))
        if is_whole and is_by_outer_products(left, str(right.ty.dtype), shape_of(right)[-1], self._target):
            return self._by_outer_products(left, array_of(right))
        in_quads = self._in_quads(left, array_of(right)) if is_whole else None
        if in_quads is not None:
            return in_quads
        how = multiplication_of(self._target, str(left.ty.dtype), str(right.ty.dtype))
        if is_constant(right):
            how = how.of_values(array_of(right))
        columns, rows = shape_of(right)[-1], shape_of(left)[-2]
        size = self._target.block_lanes(how.lane)
        if self._target.small and not in_tiles(how, self._target):
            size = smallest_block(size, columns)
        terms = self._paired_terms(right, rows, how)
        packed = self._packed(right, size, how, terms)
        source = packed_data(self.builder, self._padded_rows(converted(self.builder, left, how), how), how)
        # tiles of the last rows are shorter
        padded = rows if in_tiles(how, self._target) else padded_rows(rows, self._target.vectors.registers)
        # a dynamic size has another variable in the kernel: assembler reads no rows that are limited one by one
        of_data = (
            (self._target.vectors.by_lane or how.is_long) and isinstance(rows, Size) and shape_of(source)[-2] == rows
        )

        def multiplied(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            multiply = multiply_paired if terms else multiply_packed
            return multiply(a, b, columns, dimension(a.shape[-2]) if of_data else padded, how.product)

        product = emit_te(
            self.builder,
            multiplied,
            source,
            packed,
            name="integer_matmul",
            attrs={FUSION: OpPattern.OUT_FUSABLE},
        )
        if not how.offset:
            return product
        return relax.op.subtract(product, self._column_sums(right, how.offset))

    def _summed(self, left: relax.Expr, right: np.ndarray) -> relax.Expr:
        """Multiplies by instructions that take two vectors along the depth and add up all products of their lanes."""
        (depth, columns), vector = right.shape, self._target.summed_bytes
        missing = 0 if vector_elements(depth, vector) >= _SIDE_BY_SIDE else filled_up(depth, vector) - depth
        elements = vector_elements(depth + missing, vector, same_sign=str(left.ty.dtype) == str(right.dtype))
        packed = pack_columns(np.pad(right, [(0, missing), (0, 0)]), self._target.lanes("int32"), elements)
        return emit_te(
            self.builder,
            lambda a, b: multiply_lanes(a, b, columns),
            self._with_zeros(left, lambda _: missing),
            constant(packed),
            name="integer_matmul",
            attrs={FUSION: OpPattern.OUT_FUSABLE},
        )

    def _by_outer_products(self, left: relax.Expr, right: np.ndarray) -> relax.Expr:
        """Multiplies bytes of any signs by outer products, four terms at a time."""
        words = packed_bytes(self.builder, self._with_zeros(left, lambda depth: -depth % _WORD))
        packed = constant(pack_right_array(packed_array(right, 0, _WORD), BLOCK))
        types = (str(left.ty.dtype), str(right.dtype))
        return multiply_by_outer_products(self.builder, words, packed, right.shape[1], types)

    def _in_quads(self, left: relax.Expr, right: np.ndarray) -> relax.Expr | None:
        """Multiplies by pairs of quads; returns None where other instructions are faster."""
        (depth, columns), rows = right.shape, shape_of(left)[-2]
        if not has_quad_pairs(self._target) or str(right.dtype) != "int8" or str(left.ty.dtype) not in BYTES:
            return None
        if not may_exceed(rows, _FEW_ROWS):
            return None
        how, largest = by_quad_pairs(str(left.ty.dtype), byte_range(left, self.definition))
        quads = how.filled(depth) // QUAD
        filled_columns = np.pad(right, [(0, QUAD * quads - depth), (0, 0)]).T.reshape(columns, quads, QUAD)
        lanes = self._target.lanes("int32")  # one vector, also where other levels of the library have longer ones
        pairs = pair_quads(filled_columns, np.arange(quads), lanes, largest)
        if pairs is None:
            return None
        source = packed_data(self.builder, self._padded_rows(converted(self.builder, left, how), how), how)
        product = emit_te(
            self.builder,
            lambda a, table, b, ends: multiply_quads(a, table, b, ends, pairs.kinds, columns),
            source,
            constant(pairs.table),
            constant(pairs.weights),
            constant(pairs.ends),
            name="integer_matmul",
            attrs={FUSION: OpPattern.OUT_FUSABLE},
        )
        shift = pairs.shift[:columns] - how.offset * right.astype(np.int64).sum(0)
        return relax.op.add(product, constant(shift.astype(np.int32)))

    def _paired_terms(self, right: relax.Expr, rows: Dimension, how: Multiplication) -> int:
        """Returns how many dot operands of a column follow each other in packed weights; 0 for vector order, which
        products of one row always have.
        """
        terms = paired_terms(how, self._target)
        if not terms or not is_constant(right) or len(shape_of(right)) != 2 or not may_exceed(rows, 1):
            return 0
        steps = filled(how, shape_of(right)[0], self._target) // how.terms
        return terms if steps % terms == 0 else 0

    def _packed(self, right: relax.Expr, size: int, how: Multiplication, terms: int) -> relax.Expr:
        if is_constant(right) and len(shape_of(right)) == 2:
            weights = array_of(right)
            more = filled(how, weights.shape[0], self._target) - weights.shape[0]
            packed_array = pack_right_array(packed_weights(np.pad(weights, [(0, more), (0, 0)]), 0, how), size)
            return constant(pair_terms(packed_array, terms) if terms else packed_array)
        if str(right.ty.dtype) != how.weights:
            right = self.builder.emit(relax.op.astype(right, how.weights))

        def packed(t: te.Tensor) -> te.Tensor:
            rows = filled(how, dimension(t.shape[-2]), self._target)
            return pack_right(t, size, rows) if how.terms == 1 else pack_dot_matrix(t, size, how.terms, rows)

        name = "pack_right" if how.terms == 1 else "pack_dot_operands"
        return emit_te(self.builder, packed, right, name=name)

    def _padded_rows(self, left: relax.Expr, how: Multiplication) -> relax.Expr:
        """Pads the rows of `left` with zeros to full packed operands."""
        return self._with_zeros(left, lambda depth: filled(how, depth, self._target) - depth)

    def _with_zeros(self, left: relax.Expr, missing: Callable[[Dimension], Dimension]) -> relax.Expr:
        """Pads each row of `left` with this number of zeros."""
        *outer, depth = shape_of(left)
        if missing(depth) == 0:
            return left
        if is_known(depth):
            return self.builder.emit(relax.op.nn.pad(left, [0, 0] * len(outer) + [0, missing(depth)]))
        after = [0] * len(outer)

        def padded(t: te.Tensor) -> te.Tensor:
            return topi.nn.pad(t, [0] * len(t.shape), [*after, expression(missing(dimension(t.shape[-1])))])

        return emit_te(self.builder, padded, left, name="pad")

    def _column_sums(self, right: relax.Expr, factor: int) -> relax.Expr:
        """Returns `factor` times the sum of each column."""
        if is_constant(right):
            sums = array_of(right).astype(np.int64).sum(axis=-2, keepdims=True) * factor
            return constant(sums.astype(np.int32))
        sums = relax.op.sum(relax.op.astype(right, "int32"), axis=[-2], keepdims=True)
        return self.builder.emit(relax.op.multiply(sums, relax.const(factor, "int32")))


def _is_narrow_matrix(expr: relax.Expr) -> bool:
    return str(expr.ty.dtype) in NARROW and len(shape_of(expr)) >= 2 and 0 not in shape_of(expr)
