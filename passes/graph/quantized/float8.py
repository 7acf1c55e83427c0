"""Finds quantization to floats of 8 bits, and dequantization, so that other passes know what tensors stand for.

    c = quantize_kernel(x, s)                          c = quantize(x, s, 0, "float8_e4m3fn")
    y = dequantize_kernel(c, s, table)          →      y = dequantize(c, s, 0)
    w = dequantize_kernel(constant, t, table)          w = dequantize(constant, t, 0)

Front ends write kernels on codes in uint8, which all machines compute. For tensor cores that multiply these floats, the
codes are tensors of their own type.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, te, tirx

from nnefc.ir.attributes import FLOAT8_TYPE
from nnefc.ir.dataflow import bindings_of
from nnefc.operators.dtypes import numpy_dtype
from nnefc.operators.math.casting import cast_array
from nnefc.passes.graph.quantized.quantized_values import Grid, Quantized, quantized_of
from nnefc.passes.graph.rewriter import Rewriter, array_of, constant, is_call, is_constant, shape_of
from nnefc.support.element_types import FLOAT8

__all__ = ["dequantize_float8_constants", "name_float8"]


def name_float8(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces kernels that quantize to 8-bit floats, or dequantize them, by operators."""
    kernels = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    if not any(_type_of(kernel) is not None for kernel in kernels):
        return mod
    return relax.transform.DeadCodeElimination()(_Namer(mod).transform())


def dequantize_float8_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces dequantized 8-bit float constants by their float32 values."""
    if not any(_is_dequantized_constant(binding.value) for binding in bindings_of(mod["main"])):
        return mod
    return _Dequantizer(mod).transform()


def _type_of(kernel: tirx.PrimFunc) -> str | None:
    """Returns the 8-bit float type that a kernel quantizes to or dequantizes; None for other kernels."""
    return str(kernel.attrs[FLOAT8_TYPE]) if kernel.attrs and FLOAT8_TYPE in kernel.attrs else None


def _is_dequantized_constant(value: relax.Expr) -> bool:
    source = quantized_of(value)
    return source is not None and source.dtype in FLOAT8 and is_constant(source.data)


class _Namer(Rewriter):
    """Rebuilds `main`, and knows the tensors of floats of 8 bits that codes are of."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self._mod = mod
        self._floats: dict[relax.Expr, relax.Expr] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        dtype = _type_of(self._mod[call.args[0]]) if is_call(call, "call_tir") else None
        if dtype is None:
            return call
        data, scale, *_ = call.args[1].fields
        if not is_constant(scale):
            return call
        grid = _grid_of(array_of(scale))
        if grid is None:
            return call
        if str(var.ty.dtype) == "float32":
            return Quantized(self._as_floats(data, dtype), grid).dequantized()
        floats = self._quantized(data, grid, dtype)
        codes = self.emit_te(_same_bits, floats, "uint8", name="codes")
        self._floats[codes] = floats
        return codes

    def _quantized(self, data: relax.Expr, grid: Grid, dtype: str) -> relax.Expr:
        if is_constant(data):
            return constant(cast_array(array_of(data) / _spread(grid, len(shape_of(data))), dtype))
        zero = constant(np.zeros(grid.scale.shape, np.int8))
        return self.builder.emit(relax.op.quantize(data, constant(grid.scale), zero, grid.relax_axis, dtype))

    def _as_floats(self, codes: relax.Expr, dtype: str) -> relax.Expr:
        """Returns codes in their own type."""
        if is_constant(codes):
            return constant(array_of(codes).view(numpy_dtype(dtype)))
        floats = self._floats.get(codes)
        if floats is not None and str(floats.ty.dtype) == dtype:
            return floats
        return self.emit_te(_same_bits, codes, dtype, name="floats")


class _Dequantizer(Rewriter):
    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        source = quantized_of(call)
        if source is None or not _is_dequantized_constant(call):
            return call
        values = array_of(source.data).astype(np.float32)
        return constant(values * _spread(source.grid, values.ndim))


def _grid_of(scales: np.ndarray) -> Grid | None:
    """Returns scales that have as many axes as the tensor, as a grid; None if they are not positive numbers."""
    if not np.isfinite(scales).all() or not (scales > 0).all():
        return None
    axis = next((axis for axis, size in enumerate(scales.shape) if size != 1), None)
    flat = scales.reshape(()) if axis is None else scales.reshape(-1)
    return Grid(flat, np.zeros(flat.shape, np.int64), axis)


def _spread(grid: Grid, rank: int) -> np.ndarray:
    """Returns the scales broadcast to the rank of the tensor."""
    if grid.axis is None:
        return grid.scale
    return grid.scale.reshape([-1 if axis == grid.axis else 1 for axis in range(rank)])


def _same_bits(data: te.Tensor, dtype: str) -> te.Tensor:
    return te.compute(data.shape, lambda *index: tirx.reinterpret(dtype, data(*index)), name="same_bits")
