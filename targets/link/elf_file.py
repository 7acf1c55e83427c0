"""Locates the parts of a little-endian 32- or 64-bit ELF file, as writable views of its bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DYNAMIC", "LAYOUTS", "RELOCATABLE", "ElfFile", "Image", "Layout"]

RELOCATABLE, DYNAMIC = 1, 3
"""Kinds of files: an object, a shared library."""

Image = NDArray[np.uint8]
"""All bytes of a file."""


@dataclass(frozen=True)
class Layout:
    """The offsets of the file header's fields, and the format of table entries."""

    address: str  # format of e_phoff and e_shoff
    header_bytes: int
    segment_table: int  # offset of e_phoff
    segment_count: int  # offset of e_phnum
    section_table: int  # offset of e_shoff
    section_count: int  # offset of e_shnum
    segment: np.dtype[np.void]
    section: np.dtype[np.void]
    symbol: np.dtype[np.void]


def _record(fields: str, **bytes_: int) -> np.dtype[np.void]:
    """Returns an entry of little-endian integers of 4 bytes each, but for those of other sizes."""
    return np.dtype([(name, f"<u{bytes_.get(name, 4)}") for name in fields.split()])


_64 = Layout(
    "<Q", 64, 0x20, 0x38, 0x28, 0x3C,
    _record("type flags offset address physical stored size align",
            offset=8, address=8, physical=8, stored=8, size=8, align=8),
    _record("name type flags address offset size link info align entry",
            flags=8, address=8, offset=8, size=8, align=8, entry=8),
    _record("name info other section value size", info=1, other=1, section=2, value=8, size=8),
)  # fmt: skip
_32 = Layout(
    "<I", 52, 0x1C, 0x2C, 0x20, 0x30,
    _record("type offset address physical stored size flags align"),
    _record("name type flags address offset size link info align entry"),
    _record("name value size info other section", info=1, other=1, section=2),
)  # fmt: skip

LAYOUTS = {True: _64, False: _32}
"""By whether addresses have 64 bits."""


class ElfFile:
    """Views of a file in memory.

    Attributes:
        image: the whole file.
        is_64: whether addresses have 64 bits.
        segments: the table that programs are loaded by, with `type`, `flags`, `offset`, `address`, `physical`, `stored`
            bytes of `size`, and `align`; empty in objects.
        sections: the linker's table: `name`, `type`, `flags`, `address`, `offset`, `size`, `link`, `info`, `align`, and
            the size of an `entry`.
    """

    def __init__(self, image: Image, kind: int) -> None:
        """View `image`.

        Raises:
            ValueError: no little-endian ELF file of this kind.
        """
        head = image[:20].tobytes()
        if not (head[:4] == b"\x7fELF" and head[5] == 1 and head[16:18] == struct.pack("<H", kind)):
            raise ValueError("not such an ELF file")
        self.image = image
        self.is_64 = head[4] == 2
        self._layout = layout = LAYOUTS[self.is_64]
        segments = self._number("<H", layout.segment_count)
        self.segments = np.frombuffer(image, layout.segment, segments, self._table(layout.segment_table))
        sections, start = self._number("<H", layout.section_count), self._table(layout.section_table)
        if sections == 0:  # then the first header has the number
            sections = int(np.frombuffer(image, layout.section, 1, start)[0]["size"])
        self.sections = np.frombuffer(image, layout.section, sections, start)

    def _number(self, form: str, offset: int) -> int:
        return int(struct.unpack_from(form, self.image.data, offset)[0])

    def _table(self, offset: int) -> int:
        return self._number(self._layout.address, offset)

    def part(self, section: np.void, dtype: np.dtype[np.generic]) -> NDArray[np.void]:
        """Returns the content of a section as entries of a table."""
        return np.frombuffer(self.image, dtype, int(section["size"]) // dtype.itemsize, int(section["offset"]))

    def symbols(self, section: np.void) -> NDArray[np.void]:
        """Returns the content of a section of symbols: `name`, `info`, `other`, `section`, `value` and `size`."""
        return self.part(section, self._layout.symbol)
