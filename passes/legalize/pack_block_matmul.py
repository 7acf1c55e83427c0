"""Lay a matrix that is quantized in blocks out as a product's kernel reads it, and widen it there.

w = dequantize_blocks(B, scales, zeros)                   y = multiply_blocks(x, pack(B), pack(scales), pack(zeros))
y = matmul(x, w)                                    →
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.operators.block_quantization import DEQUANTIZES_BLOCKS, MAY_BE_WIDE
from nnefc.passes.compute.block_matmul import multiply_blocks, pack_blocks, pack_items, sums_of_blocks
from nnefc.passes.compute.matmul import padded_rows
from nnefc.passes.compute.packed_items import looks_up_items
from nnefc.passes.graph.patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.targets.machine.target import Target

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

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not is_call(call, "matmul"):
            return call
        left, right = call.args
        definition: Any = self.definition(right)
        bits = self._bits(definition)
        if not bits or len(shape_of(left)) < 2 or 0 in shape_of(left) or str(left.ty.dtype) != "float32":
            return call
        data, scales, *zeros = definition.args[1].fields
        if right not in self._packed:
            lanes = self._target.lanes("float32")
            tensors = [pack_items(array_of(data), bits, lanes)]
            tensors += [pack_blocks(_narrow(array_of(part), self._target), lanes) for part in (scales, *zeros)]
            self._packed[right] = [constant(tensor) for tensor in tensors]
        block = shape_of(data)[2] * 8 // bits
        depth = shape_of(data)[1] * shape_of(data)[2] * 8 // bits
        missing = depth - shape_of(left)[-1]
        if missing:
            widths = [0, 0] * (len(shape_of(left)) - 1) + [0, missing]
            left = self.builder.emit(relax.op.nn.pad(left, widths))
        factor, *more = self._packed[right]
        if zeros:
            more.insert(1, self.emit_te(sums_of_blocks, left, block))
        rows = padded_rows(shape_of(left)[-2], self._target.vector_registers)
        rest = (bits, shape_of(data)[0], rows, looks_up_items(self._target))
        attrs = {FUSION: OpPattern.OUT_FUSABLE}
        return self.emit_te(multiply_blocks, left, factor, *more, *rest, name="block_matmul", attrs=attrs)

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
