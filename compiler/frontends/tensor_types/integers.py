"""Integers as safetensors have them: codes of quantized weights, indices, sizes. No network has them as weights."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tensor_types.tensor_type import Bytes, TensorType
from nnefc.operators.base import Array

__all__ = ["INTEGERS", "integers_of"]

_DTYPES = {
    "BOOL": "?",
    "I8": "i1",
    "U8": "u1",
    "I16": "<i2",
    "U16": "<u2",
    "I32": "<i4",
    "U32": "<u4",
    "I64": "<i8",
    "U64": "<u8",
}


def _of(name: str) -> TensorType:
    dtype = np.dtype(_DTYPES[name])

    def decode(blocks: Bytes) -> Array:
        return np.ascontiguousarray(blocks).view(dtype).astype(np.float32)

    return TensorType(name, 1, dtype.itemsize, decode, "float32")


INTEGERS = {name: _of(name) for name in _DTYPES}
"""Integer types by their names in safetensors."""


def integers_of(name: str, data: Bytes, shape: tuple[int, ...]) -> Array:
    """Returns the elements of a tensor of one of these types, by its name, in their own type."""
    return np.ascontiguousarray(data).view(_DTYPES[name]).reshape(shape)
