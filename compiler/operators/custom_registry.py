"""Finds the operators that users have registered, without what registering them takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnefc.operators.custom_declaration import DeclaredOperator

__all__ = ["FORMATS", "REGISTERED", "custom_operator", "custom_operators"]

FORMATS = ("onnx", "nnef", "pnnx", "tflite")

REGISTERED: dict[tuple[str, str], DeclaredOperator] = {}
"""By format and name; `nnefc.operators.custom` adds and removes them."""


def custom_operator(format_: str, name: str) -> DeclaredOperator | None:
    """Returns the operator that is registered under a name of a format; None if there is none."""
    return REGISTERED.get((format_, name))


def custom_operators(format_: str) -> list[str]:
    """Returns the names that are registered for a format."""
    return [name for known, name in REGISTERED if known == format_]
