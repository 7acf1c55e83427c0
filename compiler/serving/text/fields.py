"""Reads single fields of requests, with the reasons for refusing them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnefc.serving.failures import FailureKind, Refused

__all__ = ["flag", "integer", "invalid", "is_number", "number"]


def invalid(reason: str, code: str | None = None) -> Refused:
    """Returns an error, to be raised; `code` is what programs know it by."""
    return Refused(FailureKind.INVALID, reason, code)


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number."""
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def number(given: Mapping[str, Any], name: str, minimum: float, maximum: float) -> float | None:
    """Returns a number within bounds; None without the field.

    Raises:
        Refused: the field has anything else.
    """
    value = given.get(name)
    if value is None:
        return None
    if not is_number(value) or not minimum <= value <= maximum:
        raise invalid(f'"{name}" is not a number from {minimum} to {maximum}')
    return float(value)


def integer(given: Mapping[str, Any], name: str, minimum: int, maximum: int) -> int | None:
    """Returns an integer within bounds; None without the field.

    Raises:
        Refused: the field has anything else.
    """
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not minimum <= value <= maximum:
        raise invalid(f'"{name}" is not an integer from {minimum} to {maximum}')
    return value


def flag(given: Mapping[str, Any], name: str) -> bool:
    """Returns whether a field is true.

    Raises:
        Refused: it is neither true nor false.
    """
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f'"{name}" is not true or false')
    return bool(value)
