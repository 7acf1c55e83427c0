"""Converts the operands of low-precision contractions to the types that the target's dot product reads."""

from __future__ import annotations

import numpy as np
from tvm import relax

from nnefc.ir.attributes import SAME_BYTES
from nnefc.ir.kernel_calls import emit_te
from nnefc.passes.compute.dot.dot_product import Multiplication, convert
from nnefc.passes.compute.dot.pack_dot_operands import pack_dot_operands, packed_array
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.support.element_types import BYTES, EIGHT_BITS

NARROW = (*BYTES, "bfloat16", "float16")
"""Types of operands that are packed."""

__all__ = ["BYTES", "EIGHT_BITS", "NARROW", "converted", "packed_bytes", "packed_data", "packed_weights"]


def converted(builder: relax.BlockBuilder, data: relax.Expr, how: Multiplication) -> relax.Expr:
    """Converts data to the type that the instruction reads; without an instruction they stay as they are."""
    if str(data.ty.dtype) == how.data:
        return data
    return emit_te(builder, lambda t: convert(t, how.data, how.offset), data, name="convert")


def packed_data(builder: relax.BlockBuilder, data: relax.Expr, how: Multiplication) -> relax.Expr:
    """Packs converted data along their last axis, a multiple of the terms; single elements stay as they are."""
    return data if how.terms == 1 else packed_bytes(builder, data)


def packed_bytes(builder: relax.BlockBuilder, data: relax.Expr) -> relax.Expr:
    """Packs data along their last axis, which has full packed operands, whatever instruction multiplies them."""
    attrs = {FUSION: OpPattern.OPAQUE, SAME_BYTES: True}
    return emit_te(builder, pack_dot_operands, data, name="dot_operands", attrs=attrs)


def packed_weights(weights: np.ndarray, axis: int, how: Multiplication) -> np.ndarray:
    """Packs constant weights along an axis; single elements stay as they are."""
    elements = weights.astype(how.stored or how.weights)
    return elements if how.terms == 1 else packed_array(elements, axis, how.terms)
