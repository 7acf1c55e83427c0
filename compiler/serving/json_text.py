"""Reads and writes JSON by orjson where it is installed and supports the value, else by Python's `json`.

Both read the same values, except that orjson reads integers beyond 64 bits as floats. orjson writes a float32 with the
fewest digits that read back as the same value. It has no NaN and no infinity, which `json` writes by their names.
"""

from __future__ import annotations

import json
from typing import Any

try:
    import orjson
except ModuleNotFoundError:
    orjson = None  # type: ignore[assignment, unused-ignore]

__all__ = ["parse_json", "write_json"]

_NULL = b"null"


def parse_json(text: bytes | bytearray | memoryview) -> Any:
    """Parse JSON.

    Raises:
        ValueError, RecursionError: `text` is not JSON, is nested too deeply, or is not in UTF-8.
    """
    if orjson is not None:
        try:
            return orjson.loads(text)
        except ValueError:  # orjson takes no NaN, no lone surrogates and no UTF-16; json knows them
            pass
    return json.loads(bytes(text))


def write_json(value: Any) -> bytes | None:
    """Serialize a value, in which NumPy arrays of numbers may occur, by orjson.

    Returns None where the caller has to use Python's `json`: orjson is not installed, the value has an array that is
    not numeric and C-contiguous, or the text has a null, which orjson also writes for NaN and infinities.
    """
    if orjson is None:
        return None
    try:
        text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        return None
    return None if _NULL in text else text
