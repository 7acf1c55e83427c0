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
"""The field that has values of a type; FP16 and BF16 have none."""


def values_of(given: Any) -> Sequence[Any] | None:
    """The values of a message's tensor, by its type; None if this comes as raw bytes alone."""
    field = _CONTENTS.get(given.datatype)
    return None if field is None else getattr(given.contents, field)
