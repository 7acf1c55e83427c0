"""Floats of 16 bits and less, read as float32.

Passes store matrices in 16 bits again where these hold all elements exactly.
"""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tensor_types.tensor_type import Bytes, TensorType
from nnefc.operators.base import Array

__all__ = ["BF16", "F16", "F32", "F64", "FP8_E4M3", "FP8_E5M2"]


def _of(dtype: str) -> TensorType:
    """Returns a float that NumPy has."""
    size = np.dtype(dtype).itemsize

    def decode(blocks: Bytes) -> Array:
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(blocks).view(dtype).astype(np.float32)

    return TensorType(f"F{8 * size}", 1, size, decode, "float16" if size == 2 else "float32")


def _bfloat16(blocks: Bytes) -> Array:
    """The upper 16 bits of float32."""
    return (np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _eight_bits(exponent_bits: int, has_infinities: bool) -> Array:
    """Returns the 256 numbers of a float of 8 bits (Micikevicius et al., "FP8 Formats for Deep Learning", 2022)."""
    codes = np.arange(256)
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    normal = np.ldexp(1 + mantissa, exponent - bias)
    values = np.where(exponent > 0, normal, np.ldexp(mantissa, 1 - bias))
    top = exponent == (1 << exponent_bits) - 1
    if has_infinities:
        values = np.where(top, np.where(mantissa == 0, np.inf, np.nan), values)
    else:
        values = np.where(codes & 127 == 127, np.nan, values)
    return np.where(codes >= 128, -values, values).astype(np.float32)


def _from_table(name: str, table: Array) -> TensorType:
    return TensorType(name, 1, 1, lambda blocks: table[blocks], "float32")


F32, F16, F64 = _of("<f4"), _of("<f2"), _of("<f8")
BF16 = TensorType("BF16", 1, 2, _bfloat16, "bfloat16")
FP8_E4M3 = _from_table("F8_E4M3", _eight_bits(4, has_infinities=False))
FP8_E5M2 = _from_table("F8_E5M2", _eight_bits(5, has_infinities=True))
