"""Drops the conversions of fp16 that TVM adds to every module of LLVM's, where no code needs them.

    define weak dso_local half @__truncsfhf2(float %a0) … { … }     →     nothing
    define weak dso_local float @__extendhfsf2(half %a0) … { … }

They are what compilers call on processors without instructions for fp16. TVM 0.27 adds them whatever the code and the
processor are. LLVM takes 4.5 ms for the two, more than for a small kernel (Zen 3).
"""

from __future__ import annotations

import re

__all__ = ["without_fp16_conversions"]

_CONVERSION = re.compile(r"^define weak [^@\n]*@__(?:truncsfhf2|extendhfsf2)\(.*\{\n(?:(?!\}).*\n)*\}\n", re.MULTILINE)

_FP16 = re.compile(r"^(?!declare |attributes |!).*(?:\bhalf\b|fp16)", re.MULTILINE)
"""What code for which LLVM may call a conversion has in its text: the type, or the name of an intrinsic."""


def without_fp16_conversions(source: str) -> str:
    """Returns LLVM's text of a module without TVM's conversions of fp16; unchanged where other functions have such
    numbers.
    """
    remainder = _CONVERSION.sub("", source)
    return source if _FP16.search(remainder) else remainder
