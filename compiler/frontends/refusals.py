"""Translates errors of TVM and NumPy about operands that are too large or that fit none of their rules."""

from __future__ import annotations

import re

from nnefc.support.diagnostics import ran_out_of_memory
from nnefc.symbolic.expressions import in_python

__all__ = ["REFUSALS", "raised_by_tvm", "reason_of"]

# TVM's own errors are RuntimeErrors. Others, such as a KeyError, would be mistakes of this compiler.
REFUSALS = (ArithmeticError, IndexError, MemoryError, RuntimeError, TypeError, ValueError)


def raised_by_tvm(error: Exception) -> bool:
    """Returns whether TVM refuses what it was asked for."""
    trace, raised = error.__traceback__, False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        # The last frames are TVM's C++, under names of its own, after the one that calls it.
        raised = "tvm_ffi" in file or (raised and "frontends" not in file)
        trace = trace.tb_next
    return raised


def reason_of(error: Exception) -> str:
    """Return an error's reason in a line: TVM's comes last, after a trace, and only this compiler's hints follow it."""
    if ran_out_of_memory(error):
        return "it takes more memory than there is"
    lines = [line.strip() for line in str(error).splitlines()]
    reasons = [line.removeprefix("error: ") for line in lines if line and not line.startswith("hint: ")]
    return in_python(_OPERATOR.sub(r"\1", reasons[-1])) if reasons else type(error).__name__


_OPERATOR = re.compile(r"ir\.Op\(span=None.*?name=\"relax\.([\w.]+)\".*?support_level=\d+\)")
"""How TVM writes operators into its messages."""
