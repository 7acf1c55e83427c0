"""Lay a matrix that is quantized in blocks out as a product's kernel reads it, and widen it there.

w = dequantize_blocks(B, scales, zeros)                   y = multiply_blocks(x, pack(B), pack(scales), pack(zeros))
y = matmul(x, w)                                    →

Where the model lets x be rounded to 8 bits, and the target has an instruction for products of four bytes, x is:

r = max(abs(x)) / 127, for each block;  q = round(x / r);  y = multiply_blocks_of_bytes(q, r, r sum(q), …)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.operators.block_quantization import DEQUANTIZES_BLOCKS, MAY_BE_WIDE, MAY_NARROW_ROWS
from nnefc.passes.compute.block_matmul import (
    multiply_blocks,
    multiply_blocks_of_bytes,
    pack_blocks,
    pack_bytes,
    pack_items,
    sums_of_blocks,
)
from nnefc.passes.compute.dot_product import Multiplication, multiplication_of
from nnefc.passes.compute.matmul import padded_rows
from nnefc.passes.compute.packed_items import looks_up_items
from nnefc.passes.graph.packed_operands import packed_data
from nnefc.passes.graph.patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.sizes import expression
from nnefc.targets.machine.target import Target

_LEAST = 1e-30  # the largest number of a block is taken to be no less


__all__ = ["PackBlockMatmul", "WidenBlocks"]


@tvm.transform.module_pass(opt_level=0, name="PackBlockMatmul")
class PackBlockMatmul:
    """Lower matrix products with constants that are quantized in blocks."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not any(func.attrs and DEQUANTIZES_BLOCKS in func.attrs for func in mod.functions.values()):
            return mod
        return relax.transform.DeadCodeElimination()(_Packer(mod, self._target).transform())


@tvm.transform.module_pass(opt_level=0, name="WidenBlocks")
class WidenBlocks:
    """Let matrices that may be wide be computed at compile time: those that products with blocks have not taken."""

    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        found = {gv: func for gv, func in mod.functions.items() if func.attrs and MAY_BE_WIDE in func.attrs}
        if found:
            mod = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
        for gv, func in found.items():
            mod.update_func(gv, func.without_attr(MAY_BE_WIDE).without_attr(DEQUANTIZES_BLOCKS))
        return mod


class _Packer(Rewriter):
    def __init__(self, mod: tvm.IRModule, target: Target) -> None:
        super().__init__(mod)
        self._target = target
        self._packed: dict[relax.Expr, list[relax.Expr]] = {}
        self._bytes: dict[relax.Expr, list[relax.Expr]] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "matmul"):
            return call
        left, right = call.args
        definition: Any = self.definition(right)
        bits = self._bits(definition)
        if not bits or len(shape_of(left)) < 2 or 0 in shape_of(left) or str(left.ty.dtype) != "float32":
            return call
        data, scales, *zeros = definition.args[1].fields
        block = shape_of(data)[2] * 8 // bits
        missing = shape_of(data)[1] * block - shape_of(left)[-1]
        if missing:
            widths = [0, 0] * (len(shape_of(left)) - 1) + [0, missing]
            left = self.builder.emit(relax.op.nn.pad(left, widths))
        how = self._multiplication(definition)
        if right not in self._packed:
            lanes, codes = self._target.lanes("float32"), array_of(data)
            items = pack_items(codes, bits, lanes) if how is None else pack_bytes(codes, bits, lanes, how.signed)
            parts = [pack_blocks(_narrow(array_of(part), self._target), lanes) for part in (scales, *zeros)]
            self._packed[right] = [constant(tensor) for tensor in (items, *parts)]
        rows = padded_rows(shape_of(left)[-2], self._target.vector_registers)
        packed, *parts = self._packed[right]
        attrs = {FUSION: OpPattern.OUT_FUSABLE}
        rest: tuple[Any, ...] = bits, shape_of(data)[0], rows
        if how is not None:
            given = [*self._in_bytes(left, block, how), packed, *parts]
            return self.emit_te(multiply_blocks_of_bytes, *given, *rest, how, name="block_matmul", attrs=attrs)
        if zeros:
            parts.insert(1, self.emit_te(sums_of_blocks, left, block))
        rest = *rest, looks_up_items(self._target)
        return self.emit_te(multiply_blocks, left, packed, *parts, *rest, name="block_matmul", attrs=attrs)

    def _multiplication(self, definition: Any) -> Multiplication | None:
        """How bytes are multiplied, if the other factor may be bytes, and one instruction multiplies four of them."""
        if MAY_NARROW_ROWS not in self.builder.get()[definition.args[0]].attrs:
            return None
        found = [multiplication_of(self._target, "int8", weights) for weights in ("uint8", "int8")]
        return next((how for how in found if how.terms == 4 and not how.offset), None)

    def _in_bytes(self, left: relax.Expr, block: int, how: Multiplication) -> list[relax.Expr]:
        """Rows rounded to 8 bits, as packed dot operands; each block's scale, and the sum of what it stands for."""
        if left in self._bytes:
            return self._bytes[left]
        *outer, depth = shape_of(left)
        emit, op = self.builder.emit, relax.op
        parts = emit(op.reshape(left, [expression(size) for size in (*outer, depth // block, block)]))
        largest = emit(op.max(op.abs(parts), axis=[-1], keepdims=True))
        ranges = emit(op.multiply(op.maximum(largest, relax.const(_LEAST, "float32")), relax.const(1 / 127, "float32")))
        items = emit(op.astype(op.round(op.divide(parts, ranges)), "int8"))
        sums = emit(op.multiply(op.sum(op.astype(items, "float32"), axis=[-1], keepdims=True), ranges))
        rows = packed_data(self.builder, emit(op.reshape(items, [expression(size) for size in (*outer, depth)])), how)
        flat = [expression(size) for size in (*outer, depth // block)]
        self._bytes[left] = [rows, *(emit(op.reshape(tensor, flat)) for tensor in (ranges, sums))]
        return self._bytes[left]

    def _bits(self, definition: Any) -> int:
        """Bits of the integers of a matrix that a call dequantizes, all of them constants; 0 for anything else."""
        if not is_call(definition, "call_tir") or not all(map(is_constant, definition.args[1].fields)):
            return 0
        kernel = self.builder.get()[definition.args[0]]
        return int(kernel.attrs.get(DEQUANTIZES_BLOCKS, 0)) if kernel.attrs else 0


def _narrow(array: np.ndarray, target: Target) -> np.ndarray:
    """Scales in half precision if that is exact and the target widens it quickly; zero points in bytes."""
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
