"""Reads and checks single fields of requests: numbers, flags, texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnefc.serving.failures import FailureKind, Refused

__all__ = ["are_tokens", "flag", "integer", "invalid", "is_number", "number", "text"]


def invalid(reason: str, param: str | None = None, code: str | None = None) -> Refused:
    """Return an error to raise: `param` is the field that is wrong, `code` OpenAI's error code for programs."""
    return Refused(FailureKind.INVALID, reason, code, param)


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number."""
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def are_tokens(value: Any) -> bool:
    """Return whether a value is a list of integers, at least one."""
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


def number(given: Mapping[str, Any], name: str, minimum: float, maximum: float) -> float | None:
    """Returns a number within bounds; None without the field.

    Raises:
        Refused: the field has anything else.
    """
    value = given.get(name)
    if value is None:
        return None
    if not is_number(value) or not minimum <= value <= maximum:
        raise invalid(f'"{name}" is not a number from {minimum} to {maximum}', name)
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
        raise invalid(f'"{name}" is not an integer from {minimum} to {maximum}', name)
    return value


def flag(given: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a boolean; `default` without the field.

    Raises:
        Refused: the field is neither true nor false.
    """
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f'"{name}" is not true or false', name)
    return default if value is None else value


def text(given: Mapping[str, Any], name: str) -> str | None:
    """Return a string; None without the field.

    Raises:
        Refused: the field has anything else.
    """
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise invalid(f'"{name}" is not a text', name)
    return value
