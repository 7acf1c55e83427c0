"""Writes the beginning of CUDA source: nnefc's declarations in place of those of TVM's code generator.

TVM includes CUDA's headers; sources that need no half precision then need no header at all from NVRTC, and none of the
driver's from nvcc. Its code generator has no option for it, so that its text is cut out of the source.
"""

from __future__ import annotations

import re

__all__ = ["PRELUDE", "replace_prelude"]

PRELUDE = """\
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define __asm__ asm
#define __volatile__ volatile
#else
#include <cstdint>
#endif
typedef unsigned int uint;
typedef unsigned char uchar;
typedef unsigned short ushort;
"""
"""Types that kernels name."""

# CUDA's own `max` and `min` leave out NaN; TIR's take the second operand unless the first is greater,
# or smaller, as they do on CPUs.
_LIMITS = """\
template <class T> __device__ __forceinline__ T nnefc_max(T a, T b) { return a > b ? a : b; }
template <class T> __device__ __forceinline__ T nnefc_min(T a, T b) { return a < b ? a : b; }
#define max nnefc_max
#define min nnefc_min
"""

_OF_TVM = (
    re.compile(r"#ifdef __CUDACC_RTC__\n.*?#include <cuda\.h>\n#endif\n", re.DOTALL),
    re.compile(r"#ifdef _WIN32\n.*?#define ushort unsigned short\n#endif\n", re.DOTALL),
)
_FIRST_FUNCTION = 'extern "C"'


def replace_prelude(source: str) -> str:
    """CUDA source as TVM 0.27 writes it, with `PRELUDE` in place of TVM's, and TIR's `max` and `min` for its
    functions.

    What TVM writes between its prelude and the first function, declarations for some types and instructions, stays.

    Raises:
        RuntimeError: the source does not begin as that of TVM 0.27 does: another TVM needs another file here.
    """
    for part in _OF_TVM:
        source, count = part.subn("", source)
        if count != 1:
            raise RuntimeError(f"TVM's CUDA source has {count} times what it begins with in TVM 0.27: {part.pattern!r}")
    declarations, first, functions = source.partition(_FIRST_FUNCTION)
    if not first:
        raise RuntimeError("TVM's CUDA source has no functions")
    return PRELUDE + declarations.lstrip() + _LIMITS + first + functions
