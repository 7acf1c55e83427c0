"""Rounds numbers by a sum while they are quantized: units that convert and round have a quarter of the rate of sums.

    int32(min(max(nearbyint(x) + z, -128), 127))
        → reinterpret(int32, min(max(x, -128 - z), 127 - z) + 3 · 2²²) - (bits of 3 · 2²² - z)

The last bits of a float32 between 2²³ and 2²⁴ are those of an integer: a sum in this range is rounded to one, ties to
even. Limits are integers, so that a number may be clamped before it is rounded. Sums, limits and bits are vectors
where their operands are, which roundings are not in TVM.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.match_requantize import RoundedNumber

__all__ = ["round_by_sum"]

_LARGE = 12582912.0  # 3 · 2²²
_LARGE_BITS = 0x4B400000


def round_by_sum(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel that rounds numbers by sums where it clamps them and makes them int32."""
    return tvm_ffi.structural_map(func, (tirx.Cast, _rounded))


def _rounded(cast: tirx.Cast) -> tirx.Expr:
    found = RoundedNumber.of(cast.value) if str(cast.expr_ty().dtype) == "int32" else None
    if found is None:
        return cast
    number = found.number
    for kind, limit in found.limits:
        number = kind(number, tirx.const(limit - found.zero, "float32"))
    bits = tirx.reinterpret("int32", number + tirx.const(_LARGE, "float32"))
    return bits - tirx.const(_LARGE_BITS - found.zero, "int32")
