"""Reads and writes JSON: by orjson where it is installed and takes the value, else by Python's own module.

Both read the same values but for integers beyond 64 bits, which orjson reads as floats. orjson writes a float32 by the
fewest digits that read back as it, and knows neither NaN nor infinities, which Python's module writes by these names.
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
    """Reads a text of JSON.

    Raises:
        ValueError, RecursionError: it is none, or not in UTF-8.
    """
    if orjson is not None:
        try:
            return orjson.loads(text)
        except ValueError:  # orjson takes no NaN, no lone surrogates and no UTF-16; json knows them
            pass
    return json.loads(bytes(text))


def write_json(value: Any) -> bytes | None:
    """Writes a value with arrays of numbers in it; None if there is NaN, an infinity or None in it, an array that is no
    C-contiguous one of numbers, or no orjson.
    """
    if orjson is None:
        return None
    try:
        text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        return None
    return None if _NULL in text else text
