"""Element types of tensor files that the standard does not have: blocks of integers with scales, and short floats.

The upper half of the header's element type is a vendor, the lower one the format: of `TR` (0x5452), tract's numbers for
Q4_0 and Q8_1; of `GG` (0x4747), those of ggml. Blocks run along the flattened axes after the first.
"""

from __future__ import annotations

from nnefc.frontends.tensor_types import TensorType, type_numbered
from nnefc.frontends.tensor_types.blocks_of_32 import Q4_0, Q4_0_PAIRS, Q8_1

__all__ = ["GGML", "TRACT", "block_format_of"]

TRACT, GGML = 0x5452, 0x4747

_TRACT_FORMATS = {0x3040: Q4_0, 0x2040: Q4_0_PAIRS, 0x3080: Q8_1, 0x3081: Q8_1}


def block_format_of(code: int) -> TensorType | None:
    """The format that a header's element type says; None for a type of the standard's."""
    vendor, number = code >> 16, code & 0xFFFF
    if vendor == TRACT:
        return _TRACT_FORMATS.get(number)
    return type_numbered(number) if vendor == GGML else None
