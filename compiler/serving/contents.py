"""Reads the typed value lists of gRPC tensors, one field per element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["values_of"]

_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field of `InferTensorContents` that holds values of an element type; there is none for FP16 and BF16."""


def values_of(given: Any) -> Sequence[Any] | None:
    """Return the listed values of a tensor message; None for an element type that is sent as raw bytes only."""
    field = _CONTENTS.get(given.datatype)
    return None if field is None else getattr(given.contents, field)
