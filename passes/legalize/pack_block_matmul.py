"""Packs a block-quantized matrix in the order in which a product's kernel reads and dequantizes it.

w = dequantize_blocks(B, scales, zeros)                   y = multiply_blocks(x, pack(B), pack(scales), pack(zeros))
y = matmul(x, w)                                    →     t = gather_rows(i, pack(B), pack(scales), pack(zeros))
t = take(permute_dims(w), i)

e = experts(x, chosen, permute_dims(w))             →     e = multiply_chosen_blocks(chosen, x, pack(B), …)

Where the target has an instruction for products of four bytes, or one that adds up two whose left factor has 7 bits, as
integers of 2 and 4 bits have, and those of 8 bits whose limits are near enough, x is rounded to as many bytes as the
model lets it be, one or two. With the latter instruction, magnitudes of other integers are multiplied by single bytes:

r = max(abs(x)) / 127, for each block;  q = round(x / r);  y = multiply_blocks(q, …, r sum(q), r)

Of elements of 8 bits that are 16 different ones at most, such as those of NF4 and IQ4_NL, the library has the numbers
in a table, 4 bits each, where an instruction of the target looks them up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.attributes import (
    ADDS_OFFSETS,
    DEQUANTIZES_BLOCKS,
    EXPERT_PRODUCTS,
    FLOAT_BLOCKS,
    MAY_BE_WIDE,
    ROW_BYTES,
)
from nnefc.operators.nn.block_quantization import with_factors
from nnefc.passes.compute.block_matmul import (
    FLOAT_SCALE,
    Blocks,
    gather_rows,
    multiply_blocks,
    multiply_chosen_blocks,
    pack_blocks,
    sums_of_blocks,
)
from nnefc.passes.compute.dot.dot_product import Multiplication, multiplication_of
from nnefc.passes.compute.dot.packed_int4 import (
    byte_table_lanes,
    float_table_lanes,
    group_of,
    joins_words,
    looks_up_elements,
)
from nnefc.passes.compute.dot.quad_pairs import has_quad_pairs
from nnefc.passes.compute.matmul import padded_rows
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.quantized.packed_operands import packed_data
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.passes.tir.dot.byte_split import LARGEST, split_bytes
from nnefc.passes.tir.dot.dot_instructions import PMADDUBSW_PAIRS, PMADDUBSW_SIGNED, PMADDUBSW_SMALL
from nnefc.support.mapped_files import empty_array, release_pages
from nnefc.symbolic.dims import ceil_div, element_count, expression
from nnefc.targets.machine.cpu.target import Target

_MIN = 1e-30  # the largest number of a block is taken to be no less
_SAME_SETS = 2048
"""Rows that are a multiple of this many bytes apart map to two sets of an L1 cache whose set and offset are 12 bits of
the address.
"""
_ENTRIES = 16  # of a table for codes of 4 bits
_SMALL = (PMADDUBSW_SMALL, PMADDUBSW_PAIRS)


__all__ = ["BlockMatrix", "matrix_in_blocks", "pack_block_matmul", "widen_blocks"]


def pack_block_matmul(mod: tvm.IRModule, target: Target, strict: bool = False) -> tvm.IRModule:
    """Lowers matrix products with constants that are quantized in blocks.

    Args:
        strict: round the other factor only where the model lets that be done.
    """
    if not any(func.attrs and DEQUANTIZES_BLOCKS in func.attrs for func in mod.functions.values()):
        return mod
    return relax.transform.DeadCodeElimination()(_Packer(mod, target, strict).transform())


def widen_blocks(mod: tvm.IRModule) -> tvm.IRModule:
    """Allows dequantizing matrices at compile time, if no product by blocks reads them."""
    found = {gv: func for gv, func in mod.functions.items() if func.attrs and MAY_BE_WIDE in func.attrs}
    if found:
        mod = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for gv, func in found.items():
        mod.update_func(gv, func.without_attr(MAY_BE_WIDE).without_attr(DEQUANTIZES_BLOCKS))
    return mod


@dataclass(frozen=True)
class BlockMatrix:
    """A matrix `[K, N]`, or its transposition, that a kernel dequantizes.

    Attributes:
        kernel: the attributes of the kernel.
        tensors: integers, scales, and what is stored besides them, all constants; those of int8 with their factors.
        transposed: whether it is `[N, K]`.
        dtype: that its elements are rounded to, a 16-bit float; or float32.
    """

    kernel: Any
    tensors: tuple[relax.Constant, ...]
    transposed: bool
    dtype: str

    @property
    def bits(self) -> int:
        """Returns the bits of an integer."""
        return int(self.kernel[DEQUANTIZES_BLOCKS])

    @property
    def is_float(self) -> bool:
        """Whether integers are floats of 8 bits."""
        return FLOAT_BLOCKS in self.kernel

    @property
    def block(self) -> int:
        """Elements that share a scale."""
        return int(shape_of(self.tensors[0])[2]) * 8 // self.bits


def matrix_in_blocks(rewriter: Rewriter, expr: relax.Expr) -> BlockMatrix | None:
    """Returns the block-quantized constant that an expression is; None for others."""
    transposed, dtype = False, str(expr.ty.dtype)
    definition: Any = rewriter.definition(expr)
    while is_call(definition, "permute_dims", "astype") and len(shape_of(definition.args[0])) == 2:
        if is_call(definition, "astype"):
            if str(definition.args[0].ty.dtype) != "float32":
                return None
        else:
            axes = definition.attrs.axes
            transposed ^= axes is None or [int(axis) for axis in axes] == [1, 0]
        definition = rewriter.definition(definition.args[0])
    if not is_call(definition, "call_tir") or not all(map(is_constant, definition.args[1].fields)):
        return None
    attrs = rewriter.builder.get()[definition.args[0]].attrs
    if not attrs or not attrs.get(DEQUANTIZES_BLOCKS, 0):
        return None
    return BlockMatrix(attrs, tuple(definition.args[1].fields), transposed, dtype)


class _Packer(Rewriter):
    def __init__(self, mod: tvm.IRModule, target: Target, strict: bool) -> None:
        super().__init__(mod)
        self._target, self._strict = target, strict
        self._tables: dict[relax.Constant, tuple[int, ...] | None] = {}
        self._ranges: dict[relax.Constant, tuple[int, int]] = {}
        self._packed: dict[tuple[relax.Constant, Any], relax.Expr] = {}
        self._bytes: dict[tuple[relax.Expr, int, int, float], list[relax.Expr]] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if is_call(call, "matmul"):
            left, right = call.args
            matrix = self._matrix(right)
            if matrix is None or matrix.transposed or len(shape_of(left)) < 2 or 0 in shape_of(left):
                return call
            return call if str(left.ty.dtype) != "float32" else self._product(left, matrix)
        if is_call(call, "take") and call.attrs.axis == 0 and call.attrs.mode in ("clip", "wrap"):
            matrix = self._matrix(call.args[0])
            if matrix is not None and matrix.transposed:
                blocks = self._blocks(matrix)
                given = call.args[1], *self._tensors(matrix, blocks)
                return self.emit_te(gather_rows, *given, blocks, shape_of(call.args[0])[1], str(call.attrs.mode))
        if is_call(call, "call_tir"):
            attrs = self.builder.get()[call.args[0]].attrs
            count = int(attrs.get(EXPERT_PRODUCTS, 0)) if attrs else 0
            return self._of_experts(var, call, count) if count else call
        return call

    def _matrix(self, expr: relax.Expr) -> BlockMatrix | None:
        """Returns the block-quantized constant that an expression is, if the target converts its elements quickly."""
        found = matrix_in_blocks(self, expr)
        if found is None or found.dtype != "float32":
            return None
        return None if found.is_float and not self._target.widens("float16") else found

    def _of_experts(self, var: relax.Var, call: relax.Call, count: int) -> relax.Expr:
        """Multiplies rows by the matrices that are chosen for each of them."""
        left, chosen, weights, *_ = call.args[1].fields  # sizes may follow
        matrix = self._matrix(weights)
        outputs = shape_of(weights)[0] // count
        is_full = outputs % self._target.block_lanes("float32") == 0
        if matrix is None or not matrix.transposed or not is_full or 0 in shape_of(var):
            return call
        *outer, depth = shape_of(left)
        results = element_count(shape_of(chosen))
        each = 1 if len(outer) == 2 else shape_of(chosen)[1]
        left = self.builder.emit(relax.op.reshape(left, [expression(size) for size in (element_count(outer), depth)]))
        flat = self.builder.emit(relax.op.reshape(chosen, [expression(results)]))
        blocks, given = self._operands(left, matrix)
        made = self.emit_te(multiply_chosen_blocks, flat, *given, blocks, count, each, name="expert_block_matmul")
        return self.builder.emit(relax.op.reshape(made, [expression(size) for size in shape_of(var)]))

    def _product(self, left: relax.Expr, matrix: BlockMatrix) -> relax.Expr:
        blocks, given = self._operands(left, matrix)
        rows = padded_rows(shape_of(left)[-2], self._target.vectors.registers // blocks.digits)
        attrs = {FUSION: OpPattern.OUT_FUSABLE}
        return self.emit_te(multiply_blocks, *given, blocks, rows, name="block_matmul", attrs=attrs)

    def _operands(self, left: relax.Expr, matrix: BlockMatrix) -> tuple[Blocks, list[relax.Expr]]:
        """Returns the operands of a product's kernels; the first one is the left factor, padded to full blocks."""
        blocks, block = self._blocks(matrix), matrix.block
        missing = shape_of(matrix.tensors[0])[1] * block - shape_of(left)[-1]
        if missing:
            left = self._padded(left, missing)
        given = [left, *self._tensors(matrix, blocks)]
        if blocks.how is not None:
            given[0], sums, ranges = self._in_bytes(left, block, blocks.how, blocks)
            given += [sums, ranges] if blocks.has_offsets else [ranges]
        elif blocks.has_offsets:
            given.append(self.emit_te(sums_of_blocks, left, block, blocks.sum_factor))
        return blocks, given

    def _blocks(self, matrix: BlockMatrix) -> Blocks:
        columns, stored = shape_of(matrix.tensors[0])[0], len(with_factors(matrix.tensors[1:])) > 1
        points = ("offsets" if ADDS_OFFSETS in matrix.kernel else "zeros") if stored else "nothing"
        how, digits = self._multiplication(matrix)
        looks_up = looks_up_elements(self._target)
        lanes = float_table_lanes(self._target) if how is None else byte_table_lanes(self._target)
        table = self._table(matrix) if lanes else None
        is_small = matrix.bits == 8 and how is not None and how.dot in _SMALL
        lower = self._range(matrix)[0] if is_small else 0
        bits = matrix.bits if table is None else 4
        if table is None and matrix.bits == 8 and how is not None and joins_words(self._target):
            bits, lower = self._bits(matrix) or (bits, lower)
        return Blocks(bits, columns, points, how, looks_up, digits, table, lanes, matrix.is_float, lower)

    def _bits(self, matrix: BlockMatrix) -> tuple[int, int] | None:
        """Returns the 5 or 6 bits that hold a matrix's 8-bit elements, and the number to subtract from these; None if
        they need more bits.

        What is subtracted does not depend on the matrix, so that those of one type are multiplied by one kernel.
        """
        lower, upper = self._range(matrix)
        for bits, first in ((5, 0), (5, 128 - 16), (6, 0), (6, 128 - 32)):
            is_full = matrix.block // 4 % group_of(bits)[1] == 0
            if is_full and first <= lower and upper < first + (1 << bits):
                return bits, first
        return None

    def _table(self, matrix: BlockMatrix) -> tuple[int, ...] | None:
        """Returns the distinct elements of an 8-bit matrix, padded to 16 by repetition; None if there are more."""
        data = matrix.tensors[0]
        if matrix.bits != 8 or matrix.block % 8 or matrix.is_float:
            return None
        if data not in self._tables:
            self._tables[data] = _different(array_of(data).reshape(-1))
        return self._tables[data]

    def _tensors(self, matrix: BlockMatrix, blocks: Blocks) -> list[relax.Expr]:
        """Returns the tensors of a matrix as kernels read them; tensors that several products share are packed once."""
        data, *others = matrix.tensors
        lanes = self._target.block_lanes("float32")
        order = blocks.bits, blocks.how, blocks.is_float, blocks.lower
        factor = FLOAT_SCALE if blocks.is_float else 1
        if (data, order) not in self._packed:
            self._packed[data, order] = constant(_packed_in_slices(blocks, array_of(data), lanes))
        for part in others:
            if (part, factor) not in self._packed:
                scaled = array_of(part) if factor == 1 else array_of(part) * np.float32(factor)
                self._packed[part, factor] = constant(pack_blocks(_narrow(scaled, self._target), lanes))
        return [self._packed[data, order], *(self._packed[part, factor] for part in others)]

    def _multiplication(self, matrix: BlockMatrix) -> tuple[Multiplication | None, int]:
        """Returns the dot product of four bytes, if there is one, and the bytes per element of the other factor."""
        if matrix.is_float:
            return None, 1
        found = [multiplication_of(self._target, "int8", weights) for weights in ("uint8", "int8")]
        how = next((how for how in found if how.terms == 4 and not how.offset), None) or self._of_small(matrix)
        if how is None or matrix.kernel[ROW_BYTES] == 1:
            return how, 1
        fits = matrix.block * ((1 << matrix.bits) - 1) * LARGEST < 1 << 31
        quick = how.dot in _SMALL or (how.dot is not None and how.dot.intrinsics and how.dot.accumulates)
        may = matrix.kernel[ROW_BYTES] == 2 and not self._strict
        return (how, 2) if quick and fits and may else (None, 1)

    def _of_small(self, matrix: BlockMatrix) -> Multiplication | None:
        """Returns an instruction that multiplies bytes of limited range, for targets whose dot product does not take
        any four bytes; None if there is none.
        """
        if not has_quad_pairs(self._target):
            return None
        lower, upper = self._range(matrix)
        if upper - lower > 127:  # of one byte, the other factor is never -128
            return Multiplication("int8", "int8", 0, PMADDUBSW_SIGNED) if matrix.kernel[ROW_BYTES] == 1 else None
        of_half = matrix.block // 2 * (upper - lower) * 128  # the maximum that half of a block's products add up to
        return Multiplication("int8", "uint8", 0, PMADDUBSW_PAIRS if of_half < 1 << 15 else PMADDUBSW_SMALL)

    def _range(self, matrix: BlockMatrix) -> tuple[int, int]:
        """Returns the limits of the stored integers."""
        data = matrix.tensors[0]
        if matrix.bits < 8:
            return 0, (1 << matrix.bits) - 1
        if data not in self._ranges:
            codes = array_of(data)
            self._ranges[data] = int(codes.min(initial=255)), int(codes.max(initial=0))
        return self._ranges[data]

    def _padded(self, rows: relax.Expr, missing: int) -> relax.Expr:
        """Returns rows with this number of zeros after each."""
        return self.builder.emit(relax.op.nn.pad(rows, [0, 0] * (len(shape_of(rows)) - 1) + [0, missing]))

    def _in_bytes(self, left: relax.Expr, block: int, how: Multiplication, blocks: Blocks) -> list[relax.Expr]:
        """Rounds rows to bytes: returns them as packed dot operands, the sum of each block's values times a factor, and
        its scale.

        Rows that would lie in the same few sets of the first cache get another line, so that it holds those of a tile.
        """
        digits, factor = blocks.digits, blocks.sum_factor
        key = left, block, digits, factor
        if key in self._bytes:
            return self._bytes[key]
        *outer, depth = shape_of(left)
        emit, op = self.builder.emit, relax.op
        parts = emit(op.reshape(left, [expression(size) for size in (*outer, depth // block, block)]))
        largest = emit(op.max(op.abs(parts), axis=[-1], keepdims=True))
        maximum = 127 if digits == 1 else LARGEST
        ranges = emit(
            op.multiply(op.maximum(largest, relax.const(_MIN, "float32")), relax.const(1 / maximum, "float32"))
        )
        numbers = emit(op.round(op.divide(parts, ranges)))
        flat = [expression(size) for size in (*outer, depth)]
        if digits == 1:
            narrow = emit(op.astype(numbers, "int8"))
            elements, numbers = emit(op.reshape(narrow, flat)), op.astype(narrow, "float32")
        else:
            elements = self.emit_te(split_bytes, emit(op.reshape(numbers, flat)))
        if shape_of(left)[-2] != 1 and digits * depth % _SAME_SETS == 0:
            elements = self._padded(elements, self._target.costs.line_bytes)
        of_sums = ranges if factor == 1 else emit(op.multiply(ranges, relax.const(factor, "float32")))
        sums = emit(op.multiply(op.sum(numbers, axis=[-1], keepdims=True), of_sums))
        rows = packed_data(self.builder, elements, how)
        each = [expression(size) for size in (*outer, depth // block)]
        self._bytes[key] = [rows, *(emit(op.reshape(tensor, each)) for tensor in (sums, ranges))]
        return self._bytes[key]


_SLICE_BYTES = 1 << 22


def _packed_in_slices(blocks: Blocks, codes: np.ndarray, lanes: int) -> np.ndarray:
    """Packs a matrix some rows at a time, so that intermediate arrays, several times as large, are small."""
    step = max(1, _SLICE_BYTES // codes[:1].nbytes // lanes) * lanes
    first = blocks.pack(codes[:step], lanes)
    if len(codes) <= step:
        return first
    made = empty_array((ceil_div(len(codes), lanes), *first.shape[1:]), first.dtype)
    made[: len(first)] = first
    for start in range(step, len(codes), step):
        made[start // lanes :][: step // lanes] = blocks.pack(codes[start : start + step], lanes)
        release_pages()
    made.flags.writeable = False
    return made


def _different(elements: np.ndarray) -> tuple[int, ...] | None:
    """Returns the distinct bytes in order, padded to 16 by repeating the last; None if there are more."""
    is_there = np.zeros(256, bool)
    start, step = 0, 1 << 10
    while start < len(elements):  # many matrices have more among the first
        is_there[elements[start : start + step]] = True
        if is_there.sum() > _ENTRIES:
            return None
        start, step = start + step, min(2 * step, 1 << 20)
    found = np.flatnonzero(is_there).tolist()
    return (*found, *found[-1:] * (_ENTRIES - len(found)))


def _narrow(array: np.ndarray, target: Target) -> np.ndarray:
    """Stores scales in half precision if that is exact and the target converts it quickly, and zero points in bytes."""
    if array.dtype != np.float32:
        return array
    for dtype in (np.uint8, np.float16):
        if dtype is np.float16 and not target.widens("float16"):
            continue
        with np.errstate(all="ignore"):
            narrow = array.astype(dtype)
        if np.array_equal(narrow.astype(np.float32), array):
            return narrow
    return array
