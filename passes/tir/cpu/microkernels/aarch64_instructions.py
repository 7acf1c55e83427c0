"""Describes the AArch64 instructions that multiply a vector by a lane, of NEON and SVE.

Those of SVE multiply each 128 bits of a vector by a lane of the same 128 bits of the other. Older processors multiply
bytes to numbers of 16 bits alone, from which several instructions make a sum: see `aarch64_smull.py`; so do those of
32-bit Arm: see `arm32_smlad.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "FAR_PAIR",
    "FAR_QUAD",
    "FAR_VECTOR",
    "OPERATORS",
    "QUAD_BYTES",
    "REGISTERS",
    "MultiplyAdd",
    "is_long",
    "product_of",
]

REGISTERS = 32
QUAD_BYTES = 16
"""Bytes of a NEON vector, and of the segments within which SVE instructions index lanes."""

FAR_PAIR = 1008
"""The largest offset, in bytes, of a load of two vectors."""

FAR_QUAD, FAR_VECTOR = 112, 255
"""The largest offsets of SVE: in bytes, of a load into each 128 bits; in vectors, of a vector."""

_LOW = 16  # registers of which an element of 16 bits can be a factor
_LOW_OF_SVE = 8  # the same of all elements


@dataclass(frozen=True)
class MultiplyAdd:
    """An instruction that multiplies a vector by one element, and adds to another vector.

    Attributes:
        text: its operands are the registers of a sum, of a vector, and of the one that holds the element, and its
            position; "" where it takes several instructions.
        total: LLVM's type of the elements of a sum.
        element: bytes of an element.
        low: registers that may hold an element.
        scale: of vectors of SVE, how many times 128 bits they have; else 0.
        long: what names begin with of instructions that multiply bytes to numbers of 16 bits, `s` or `u`; else "".
        joined: whether these have room for two products.
        short: whether it is of 32-bit Arm.
        pairs: whether it multiplies two rows by two columns: operands are then the registers of sums, rows and columns.
    """

    text: str
    total: str
    element: int
    low: int = REGISTERS
    scale: int = 0
    long: str = ""
    joined: bool = False
    short: bool = False
    pairs: bool = False

    @property
    def floating(self) -> bool:
        """Whether it multiplies floats."""
        return self.total != "i32"

    @property
    def right_element(self) -> int:
        """Bytes of an element of the vector in memory."""
        return self.element

    @property
    def lanes(self) -> int:
        """The number of elements of a vector."""
        return self.size // self.element

    @property
    def size(self) -> int:
        """Bytes of a vector."""
        return QUAD_BYTES * max(1, self.scale)

    @property
    def quad(self) -> int:
        """The number of elements that one load puts into the lanes of 128 bits."""
        return QUAD_BYTES // self.element

    @property
    def sum(self) -> str:
        """LLVM's type of a sum."""
        return f"<{self.lanes} x {self.total}>"

    @property
    def far(self) -> tuple[int, int]:
        """The offsets, in bytes, that loads of left and of right elements reach."""
        return (FAR_QUAD + QUAD_BYTES, FAR_VECTOR * self.size) if self.scale else (FAR_PAIR, FAR_PAIR)


_NEON = {
    "float32": MultiplyAdd("fmla v{}.4s, v{}.4s, v{}.s[{}]", "float", 4),
    "float16": MultiplyAdd("fmla v{}.8h, v{}.8h, v{}.h[{}]", "half", 2, _LOW),
    "nnefc.sdot": MultiplyAdd("sdot v{}.4s, v{}.16b, v{}.4b[{}]", "i32", 4),
    "nnefc.udot": MultiplyAdd("udot v{}.4s, v{}.16b, v{}.4b[{}]", "i32", 4),
    "smmla": MultiplyAdd("smmla v{}.4s, v{}.16b, v{}.16b", "i32", 4, pairs=True),
    "ummla": MultiplyAdd("ummla v{}.4s, v{}.16b, v{}.16b", "i32", 4, pairs=True),
    "bfmmla": MultiplyAdd("bfmmla v{}.4s, v{}.8h, v{}.8h", "float", 4, pairs=True),
    "nnefc.smlal": MultiplyAdd("", "i32", 4, long="s", joined=True),
    "nnefc.smull": MultiplyAdd("", "i32", 4, long="s"),
    "nnefc.umull": MultiplyAdd("", "i32", 4, long="u"),
    "nnefc.vmlal_s8": MultiplyAdd("", "i32", 4, long="s", joined=True, short=True),
    "nnefc.vmull_s8": MultiplyAdd("", "i32", 4, long="s", short=True),
    "nnefc.vmull_u8": MultiplyAdd("", "i32", 4, long="u", short=True),
}
"""The instruction for each float type, each dot-product operator, and each product of pairs of rows."""

_SVE = {
    "float32": ("fmla z{}.s, z{}.s, z{}.s[{}]", "float", 4),
    "float16": ("fmla z{}.h, z{}.h, z{}.h[{}]", "half", 2),
    "nnefc.sve_sdot": ("sdot z{}.s, z{}.b, z{}.b[{}]", "i32", 4),
    "nnefc.sve_udot": ("udot z{}.s, z{}.b, z{}.b[{}]", "i32", 4),
    "nnefc.sve_bfdot": ("bfdot z{}.s, z{}.h, z{}.h[{}]", "float", 4),
}

OPERATORS = frozenset(name for name in (*_NEON, *_SVE) if name.startswith("nnefc."))


def product_of(kind: str, scale: int = 0) -> MultiplyAdd | None:
    """Returns the instruction for a kind of product on vectors of NEON, or on those of SVE of `scale` times
    128 bits.
    """
    if not scale:
        return _NEON.get(kind)
    return MultiplyAdd(*_SVE[kind], low=_LOW_OF_SVE, scale=scale) if kind in _SVE else None


def is_long(kind: str) -> bool:
    """Whether products of a kind are computed by several instructions, through 16-bit numbers."""
    found = _NEON.get(kind)
    return found is not None and bool(found.long)
