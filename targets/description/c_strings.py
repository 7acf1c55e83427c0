"""Writes strings as C literals."""

from __future__ import annotations

from nnefc.support.diagnostics import CompileError

__all__ = ["c_literal", "c_string"]

_OCTAL = {c: f"\\{c:03o}" for c in range(256) if not 32 <= c < 127 or c in b'"\\?'}


def c_string(text: bytes) -> str:
    """Return the content of a C string literal: printable ASCII unchanged, other bytes in octal, which ends after
    three digits.
    """
    return text.decode("latin-1").translate(_OCTAL)


def c_literal(text: str) -> str:
    """Return a text as a C string literal in UTF-8.

    Raises:
        CompileError: the text cannot be a string of C.
    """
    if "\0" in text:
        raise CompileError(f"the name {text!r} holds a null character")
    try:
        return f'"{c_string(text.encode())}"'
    except UnicodeEncodeError:
        raise CompileError(f"the name {text!r} cannot be written as UTF-8") from None
