"""Operands of sums of 8-bit products, brought to what the target's instruction reads."""

from __future__ import annotations

import numpy as np
from tvm import relax

from nnefc.passes.compute.dot_product import Multiplication, convert, words, words_array
from nnefc.passes.graph.patterns import FUSION, OpPattern
from nnefc.passes.schedule.in_place import SAME_BYTES

__all__ = ["converted", "data_words", "weights_words"]


def converted(builder: relax.BlockBuilder, data: relax.Expr, how: Multiplication) -> relax.Expr:
    """Data in the type that the instruction reads; without an instruction, as they are."""
    if str(data.ty.dtype) == how.data:
        return data
    return builder.emit_te(lambda t: convert(t, how.data), data, primfunc_name_hint="convert")


def data_words(builder: relax.BlockBuilder, data: relax.Expr, how: Multiplication) -> relax.Expr:
    """Converted data as words along their last axis, which must be a whole number of them."""
    if how.dot is None:
        return data
    attrs = {FUSION: OpPattern.OPAQUE, SAME_BYTES: True}
    return builder.emit_te(words, data, primfunc_name_hint="words", primfunc_attrs=attrs)


def weights_words(weights: np.ndarray, axis: int, how: Multiplication) -> np.ndarray:
    """Constant weights as words along an axis, their bytes side by side; as items without an instruction."""
    items = weights.astype(how.stored or how.weights)
    return items if how.dot is None else words_array(items, axis, how.terms)
