"""Element types by the numbers that files of GGUF call them by."""

from __future__ import annotations

from nnefc.frontends.tensor_types.blocks_of_32 import IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
from nnefc.frontends.tensor_types.floats import BF16, F16, F32, F64
from nnefc.frontends.tensor_types.requantized import REQUANTIZED
from nnefc.frontends.tensor_types.small_blocks import NVFP4, Q1_0, Q2_0
from nnefc.frontends.tensor_types.super_blocks import IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ1_0, TQ2_0
from nnefc.frontends.tensor_types.tensor_type import TensorType

__all__ = ["GGML_TYPES", "type_numbered"]

GGML_TYPES: dict[int, TensorType] = {
    0: F32,
    1: F16,
    2: Q4_0,
    3: Q4_1,
    6: Q5_0,
    7: Q5_1,
    8: Q8_0,
    10: Q2_K,
    11: Q3_K,
    12: Q4_K,
    13: Q5_K,
    14: Q6_K,
    16: REQUANTIZED["IQ2_XXS"],
    17: REQUANTIZED["IQ2_XS"],
    18: REQUANTIZED["IQ3_XXS"],
    19: REQUANTIZED["IQ1_S"],
    20: IQ4_NL,
    21: REQUANTIZED["IQ3_S"],
    22: REQUANTIZED["IQ2_S"],
    23: IQ4_XS,
    28: F64,
    29: REQUANTIZED["IQ1_M"],
    30: BF16,
    34: TQ1_0,
    35: TQ2_0,
    39: MXFP4,
    40: NVFP4,
    41: Q1_0,
    42: Q2_0,
}


def type_numbered(number: int) -> TensorType | None:
    """Returns the element type of a number; None for one that is not known."""
    return GGML_TYPES.get(number)
