"""Drops the fp16 conversion functions that TVM adds to every LLVM module, if no code needs them.

    define weak dso_local half @__truncsfhf2(float %a0) … { … }     →     nothing
    define weak dso_local float @__extendhfsf2(half %a0) … { … }

Compilers call them on processors without fp16 instructions. TVM 0.27 adds them for any code and processor. LLVM takes
4.5 ms to compile the two, longer than for a small kernel (Zen 3).
"""

from __future__ import annotations

import re

__all__ = ["without_fp16_conversions"]

_CONVERSION = re.compile(r"^define weak [^@\n]*@__(?:truncsfhf2|extendhfsf2)\(.*\{\n(?:(?!\}).*\n)*\}\n", re.MULTILINE)

_FP16 = re.compile(r"^(?!declare |attributes |!).*(?:\bhalf\b|fp16)", re.MULTILINE)
"""Matches code that may call a conversion: it has the type or the name of an intrinsic."""


def without_fp16_conversions(source: str) -> str:
    """Return the text of an LLVM module without TVM's fp16 conversions; unchanged if other functions use fp16."""
    remainder = _CONVERSION.sub("", source)
    return source if _FP16.search(remainder) else remainder
