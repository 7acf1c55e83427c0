"""Quantization to floats of 8 bits (E4M3, E5M2) and dequantization, whose codes programs keep as uint8.

Each is one kernel with an attribute, by which passes find what tensor cores can multiply as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te

from nnefc.ir.attributes import FLOAT8_TYPE
from nnefc.operators.base import Emitter, Operand, dtype_of, is_empty, shape_of
from nnefc.operators.math.casting import Cast, float_code, float_values
from nnefc.operators.nn.quantization import Dequantization, Quotients

__all__ = ["Float8Dequantization", "Float8Quantization"]


@dataclass(frozen=True)
class Float8Quantization(Quotients):
    """`x / scale`, rounded to even and saturated to the largest number of a float8 type. NaN stays NaN.

    Attributes:
        dtype: one of `FLOAT8`; the result are its codes, uint8.
    """

    dtype: str = "float8_e4m3fn"

    def lower(self, ctx: Emitter, x: Operand, scale: Operand, zero: Operand | None = None) -> Operand:
        """The zero point does not matter: it is zero."""
        self.check(x, scale, zero)
        if not _is_known(self, x, scale) or dtype_of(x) != "float32" or self.work != "float32":
            quotients = ctx.bound(Quotients(self.axis, self.block, self.work).lower(ctx, x, scale, zero))
            return Cast(self.dtype).lower(ctx, quotients)

        def element(t: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            return float_code(self.dtype, t[0](*index) / t[1](*_spread(index, t[1])))

        return _kernel(ctx, self.dtype, element, x, _along(scale, len(shape_of(x)), self.axis), name="quantize")


@dataclass(frozen=True)
class Float8Dequantization(Dequantization):
    """`x * scale` of the codes of a float8 type.

    Attributes:
        source: one of `FLOAT8`, the type of the codes.
    """

    source: str = "float8_e4m3fn"

    def lower(self, ctx: Emitter, x: Operand, scale: Operand, zero: Operand | None = None) -> Operand:
        """The zero point does not matter: it is zero."""
        self.check(x, scale, zero)
        if not _is_known(self, x, scale) or self.dtype != "float32":
            wide = ctx.bound(Cast("float32", self.source).lower(ctx, x))
            return Dequantization(self.axis, self.block, self.dtype).lower(ctx, wide, scale, zero)
        codes = x.view(np.uint8) if isinstance(x, np.ndarray) else x

        def element(t: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            return t[2](t[0](*index).astype("int32")) * t[1](*_spread(index, t[1]))

        scales = _along(scale, len(shape_of(x)), self.axis)
        return _kernel(ctx, self.source, element, codes, scales, float_values(self.source), name="dequantize")


def _is_known(operator: Quotients | Dequantization, x: Operand, scale: Operand) -> bool:
    """Whether a tensor has elements, and a known float32 scale or one for each position of an axis."""
    is_known = isinstance(scale, np.ndarray) and scale.dtype == np.float32
    return is_known and not operator.block and not is_empty(shape_of(x))


def _along(scale: Operand, rank: int, axis: int | None) -> np.ndarray:
    """Returns scales with as many axes as the tensor."""
    assert isinstance(scale, np.ndarray)
    shape = [1] * rank
    if axis is not None:
        shape[axis] = math.prod(scale.shape)
    return scale.reshape(shape)


def _spread(index: Sequence[Any], scale: te.Tensor) -> list[Any]:
    """Returns the index of an element's scale."""
    return [0 if int(size) == 1 else i for i, size in zip(index, scale.shape, strict=True)]


def _kernel(
    ctx: Emitter, dtype: str, element: Callable[..., Any], x: Operand, *others: Operand, name: str
) -> relax.Expr:
    def compute(*tensors: te.Tensor) -> te.Tensor:
        return te.compute(shape_of(x), lambda *index: element(tensors, index), name=name)

    return ctx.compute(compute, x, *others, name=name, attrs={FLOAT8_TYPE: dtype})
