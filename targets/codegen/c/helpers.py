"""Defines the C functions that generated code calls for operations that C99 has no operators for.

Each is `static inline`, and written to a file only if something calls it. All names begin with `nnefc__`, which is
replaced by the network's prefix when the file is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from nnefc.targets.codegen.c.texts import TEXT_HELPERS

__all__ = ["HELPERS", "LOAD_WORD", "PREFIX", "UPPER_PREFIX", "called_helpers", "dsp_source", "min_max"]

PREFIX, UPPER_PREFIX = "nnefc__", "NNEFC__"

LOAD_WORD = f"{PREFIX}load_word"
"""The function that loads four bytes, which may be unaligned, as an int32."""

_LOAD = """\
static inline {type} {name}(const void *address) {{
    {type} word;
    NNEFC__COPY(&word, address, sizeof word);
    return word;
}}
"""

_BITS = """\
static inline {to} {name}({of} value) {{
    {to} result;
    NNEFC__COPY(&result, &value, sizeof result);
    return result;
}}
"""

_MIN_MAX = """\
static inline {type} {name}({type} a, {type} b) {{ return a {order} b ? a : b; }}
"""

_NEARBYINT = """\
/* Rounds to the nearest integer, to even where two are. Numbers from 2^{digits} on have no fraction. */
static inline {type} {name}({type} value) {{
    const {type} large = {large};
    const {type} magnitude = value < {zero} ? -value : value;
    if (!(magnitude < large)) {{
        return value;
    }}
{other}    if (value < {zero}) {{
        return -((magnitude + large) - large);
    }}
    return magnitude > {zero} ? (magnitude + large) - large : value;
{end}}}
"""

_NEARBYINT_OF_SDCC = """\
#if defined(__SDCC) /* It takes a + b - b for a, and does not round sums to the nearest. */
    const int32_t whole = (int32_t)magnitude;
    const float rest = magnitude - (float)whole;
    const float nearest = (float)(rest > 0.5f || (rest == 0.5f && (whole & 1) != 0) ? whole + 1 : whole);
    return value < 0.0f ? -nearest : magnitude > 0.0f ? nearest : value;
#else
"""

_HALF_TO_FLOAT = """\
/* Returns the value of a float16. */
static inline float nnefc__half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t tail = half & 0x7fffu;
    if (tail >= 0x7c00u) {
        return nnefc__float_of_bits(sign | 0x7f800000u | (tail << 13));
    }
    if (tail >= 0x0400u) {
        return nnefc__float_of_bits(sign | ((tail << 13) + 0x38000000u));
    }
    return nnefc__float_of_bits(sign | nnefc__bits_of_float((float)tail * 5.9604645e-08f));
}
"""

_FLOAT_TO_HALF = """\
/* Returns the nearest float16, to even where two are. */
static inline uint16_t nnefc__float_to_half(float value) {
    const uint32_t bits = nnefc__bits_of_float(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t tail = bits & 0x7fffffffu;
    if (tail > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (tail >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7c00u);
    }
    if (tail < 0x38800000u) {
        return (uint16_t)(sign | (nnefc__bits_of_float(nnefc__float_of_bits(tail) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((tail + 0x0fffu + ((tail >> 13) & 1u) - 0x38000000u) >> 13));
}
"""

_DOUBLE_TO_HALF = """\
/* Returns the nearest float16: the last bit of the float32 between notes whether anything was cut off. */
static inline uint16_t nnefc__double_to_half(double value) {
    float single = (float)value;
    uint32_t bits = nnefc__bits_of_float(single);
    if ((double)single != value && (bits & 0x7f800000u) != 0x7f800000u) {
        if (((double)single > value) == (value > 0.0) && (bits & 0x7fffffffu) != 0u) {
            bits -= 1u;
        }
        bits |= 1u;
        single = nnefc__float_of_bits(bits);
    }
    return nnefc__float_to_half(single);
}
"""

_SATURATED_SUM = """\
static inline int32_t nnefc__saturated_sum(int32_t a, int32_t b) {
    const int64_t sum = (int64_t)a + (int64_t)b;
    return sum > 2147483647 ? 2147483647 : sum < (-2147483647 - 1) ? (-2147483647 - 1) : (int32_t)sum;
}
"""

_POPCOUNT = """\
static inline int32_t nnefc__popcount(uint64_t value) {
    int32_t count = 0;
    while (value != 0u) {
        value &= value - 1u;
        count += 1;
    }
    return count;
}
"""

_LEADING_ZEROS = """\
static inline int32_t nnefc__leading_zeros(uint64_t value, int32_t width) {
    int32_t count = width;
    while (value != 0u) {
        value >>= 1;
        count -= 1;
    }
    return count;
}
"""

_MIN_MAX_TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": "float",
    "float64": "double",
}


def min_max(which: str, dtype: str) -> str:
    """Return the name of the function `min` or `max` for a type.

    If a number is NaN, the result is the second operand, as in TIR.
    """
    return f"{PREFIX}{which}_{dtype}"


def _nearbyint(name: str, dtype: str) -> str:
    single = dtype == "float"
    large, digits = ("8388608.0f", 23) if single else ("4503599627370496.0", 52)
    return _NEARBYINT.format(
        name=f"{PREFIX}{name}",
        type=dtype,
        large=large,
        digits=digits,
        zero="0.0f" if single else "0.0",
        other=_NEARBYINT_OF_SDCC if single else "",  # which has no float64
        end="#endif\n" if single else "",
    )


def _bits(name: str, to: str, of: str) -> str:
    return _BITS.format(name=f"{PREFIX}{name}", to=to, of=of)


HELPERS: dict[str, str] = {
    LOAD_WORD: _LOAD.format(type="int32_t", name=LOAD_WORD),
    f"{PREFIX}bits_of_float": _bits("bits_of_float", "uint32_t", "float"),
    f"{PREFIX}float_of_bits": _bits("float_of_bits", "float", "uint32_t"),
    f"{PREFIX}bits_of_double": _bits("bits_of_double", "uint64_t", "double"),
    f"{PREFIX}double_of_bits": _bits("double_of_bits", "double", "uint64_t"),
    **{
        min_max(which, dtype): _MIN_MAX.format(name=min_max(which, dtype), type=type_, order=order)
        for which, order in (("min", "<"), ("max", ">"))
        for dtype, type_ in _MIN_MAX_TYPES.items()
    },
    f"{PREFIX}nearbyintf": _nearbyint("nearbyintf", "float"),
    f"{PREFIX}nearbyint": _nearbyint("nearbyint", "double"),
    f"{PREFIX}half_to_float": _HALF_TO_FLOAT,
    f"{PREFIX}float_to_half": _FLOAT_TO_HALF,
    f"{PREFIX}double_to_half": _DOUBLE_TO_HALF,
    f"{PREFIX}saturated_sum": _SATURATED_SUM,
    f"{PREFIX}popcount": _POPCOUNT,
    f"{PREFIX}leading_zeros": _LEADING_ZEROS,
    f"{PREFIX}load_long": _LOAD.format(type="uint64_t", name=f"{PREFIX}load_long"),
    **TEXT_HELPERS,
}
"""The functions by their names, each after those that it calls."""


@dataclass(frozen=True)
class _Instruction:
    """An instruction of Arm's DSP extension: the macro for CMSIS's function, that for ACLE's, and portable C."""

    cmsis: str
    acle: str
    portable: str


_ROTATED = """\
static inline int32_t nnefc__rotated(int32_t a, int32_t bits) {
    return (int32_t)(((uint32_t)a >> bits) | ((uint32_t)a << (32 - bits)));
}
"""

_SXTB16 = """\
static inline int32_t nnefc__sxtb16(int32_t a) {
    const uint32_t low = (uint32_t)(int8_t)(uint8_t)((uint32_t)a & 0xffu) & 0xffffu;
    const uint32_t high = (uint32_t)(int8_t)(uint8_t)(((uint32_t)a >> 16) & 0xffu) << 16;
    return (int32_t)(low | high);
}
"""

_UXTB16 = """\
static inline int32_t nnefc__uxtb16(int32_t a) { return (int32_t)((uint32_t)a & 0x00ff00ffu); }
"""

_SMLAD = """\
static inline int32_t nnefc__smlad(int32_t a, int32_t b, int32_t sum) {
    const int32_t low = (int32_t)(int16_t)(uint16_t)((uint32_t)a & 0xffffu) *
                        (int32_t)(int16_t)(uint16_t)((uint32_t)b & 0xffffu);
    const int32_t high = (int32_t)(int16_t)(uint16_t)((uint32_t)a >> 16) *
                         (int32_t)(int16_t)(uint16_t)((uint32_t)b >> 16);
    return (int32_t)((uint32_t)sum + (uint32_t)low + (uint32_t)high);
}
"""

_DSP = {
    f"{PREFIX}rotated": _Instruction(
        "nnefc__rotated(a, bits) ((int32_t)__ROR((uint32_t)(a), (uint32_t)(bits)))",
        "nnefc__rotated(a, bits) ((int32_t)__ror((uint32_t)(a), (uint32_t)(bits)))",
        _ROTATED,
    ),
    f"{PREFIX}sxtb16": _Instruction(
        "nnefc__sxtb16(a) ((int32_t)__SXTB16((uint32_t)(a)))",
        "nnefc__sxtb16(a) ((int32_t)__sxtb16((int8x4_t)(a)))",
        _SXTB16,
    ),
    f"{PREFIX}uxtb16": _Instruction(
        "nnefc__uxtb16(a) ((int32_t)__UXTB16((uint32_t)(a)))",
        "nnefc__uxtb16(a) ((int32_t)__uxtb16((uint8x4_t)(a)))",
        _UXTB16,
    ),
    f"{PREFIX}smlad": _Instruction(
        "nnefc__smlad(a, b, sum) ((int32_t)__SMLAD((uint32_t)(a), (uint32_t)(b), (uint32_t)(sum)))",
        "nnefc__smlad(a, b, sum) ((int32_t)__smlad((int16x2_t)(a), (int16x2_t)(b), (int32_t)(sum)))",
        _SMLAD,
    ),
}

_DSP_COMMENT = """\
/* Instructions of Arm's DSP extension. NNEFC__CMSIS is the name of a header with CMSIS's functions for them, such as
 * "cmsis_compiler.h"; without it they are those of <arm_acle.h> where the compiler generates code for a processor that
 * has them, and portable arithmetic elsewhere, with the same results. */
"""


def dsp_source(text: str) -> str:
    """Returns the definitions of the DSP instructions that C code calls; empty for none."""
    called = [instruction for name, instruction in _DSP.items() if f"{name}(" in text]
    if not called:
        return ""
    return _DSP_COMMENT + "\n".join(
        [
            "#if defined(NNEFC__CMSIS)",
            "#include NNEFC__CMSIS",
            *(f"#define {instruction.cmsis}" for instruction in called),
            "#elif defined(__ARM_FEATURE_DSP) && (defined(__GNUC__) || defined(__ARMCC_VERSION))",
            "#include <arm_acle.h>",
            *(f"#define {instruction.acle}" for instruction in called),
            "#else",
            *(instruction.portable.rstrip() for instruction in called),
            "#endif",
            "",
        ]
    )


def called_helpers(text: str) -> set[str]:
    """Returns the helpers that C code calls, and those that these call."""
    found: set[str] = set()
    waiting = _called(text)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting |= _called(HELPERS[name]) - found
    return found


def _called(text: str) -> set[str]:
    return {name for name in _names(text) if name in HELPERS}


def _names(text: str) -> Iterable[str]:
    return re.findall(rf"\b{PREFIX}\w+", text)
