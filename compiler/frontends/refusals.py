"""What TVM and NumPy raise for operands that fit none of their rules."""

from __future__ import annotations

__all__ = ["REFUSALS", "reason_of"]

# TVM's own errors are RuntimeErrors. Others, such as a KeyError, would be mistakes of this compiler.
REFUSALS = (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError)


def reason_of(error: Exception) -> str:
    """What an error says in one line: TVM's reasons come last, after a trace."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
