"""Weights images: the constants of a network apart from its code, for programs that have no files.

A program keeps the image in flash or in memory, and gives its address to each run. An image fits code by its identity,
a digest of that code: a network that was trained again has other constants and, as a rule, the same code, so that the
image alone is replaced.

    0    "NNEFCIMG"
    8    uint32: 1, the version of this layout
    12   uint32: bytes of the image, this header among them
    16   uint64: the identity of the code
    24   uint32: CRC-32 of the bytes behind the header
    28   zeros
    64   the constants

Numbers are little-endian. Runs compare the first 24 bytes, and the function `NAME_check_weights` all of them.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnefc.targets.description.encrypted_image import decrypt_declaration, decrypt_functions, encrypted_macro

__all__ = [
    "HEADER_BYTES",
    "UNFIT",
    "WeightsImage",
    "check_declaration",
    "check_functions",
    "identity_of",
    "image_macros",
]

HEADER_BYTES = 64
UNFIT = -1
"""The status of a run whose image does not match the code."""

_MAGIC, _VERSION = b"NNEFCIMG", 1


@dataclass(frozen=True)
class WeightsImage:
    """The image that code expects.

    Attributes:
        identity: a digest of the code, 64 bits.
        size: of the whole image, in bytes.
        alignment: of its address.
        encrypted: whether files have it encrypted, so that programs need a function that decrypts it.
    """

    identity: int
    size: int
    alignment: int
    encrypted: bool = False

    def header(self, pieces: Iterable[bytes | memoryview]) -> bytes:
        """Return the header of an image with these constants."""
        sum_ = 0
        for piece in pieces:
            sum_ = zlib.crc32(piece, sum_)
        return self._expected + struct.pack("<I", sum_) + bytes(HEADER_BYTES - 28)

    @property
    def _expected(self) -> bytes:
        """The first 24 bytes."""
        return struct.pack("<8sIIQ", _MAGIC, _VERSION, self.size, self.identity)

    @property
    def words(self) -> tuple[int, ...]:
        """The first 24 bytes as words of 32 bits."""
        return struct.unpack("<6I", self._expected)


def identity_of(parts: Iterable[bytes]) -> int:
    """Return the identity of code that consists of these parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return int.from_bytes(digest.digest()[:8], "little")


def image_macros(prefix: str, image: WeightsImage) -> list[str]:
    """Return the macros for an image, for a header."""
    upper = prefix.upper()
    return [
        f"#define {upper}_WEIGHTS_BYTES {image.size} /* of the weights, a file of their own */",
        f"#define {upper}_WEIGHTS_ALIGNMENT {image.alignment} /* what their address is a multiple of */",
        f"#define {upper}_WEIGHTS_IDENTITY 0x{image.identity:016x}ull /* of this code, and of weights that fit it */",
        *[encrypted_macro(prefix, image.size)] * image.encrypted,
    ]


def check_declaration(prefix: str, image: WeightsImage) -> list[str]:
    """Return the declarations of the functions that check and decrypt an image, for a header."""
    return [
        "/* Compares weights of so many bytes with what the code expects: 0 if they fit and are",
        " * whole, 1 if they are no weights or cut off, 2 if they are for other code, 3 if bytes have changed. Runs",
        f" * compare the first bytes alone, and return {UNFIT} if these do not fit. */",
        f"int {prefix}_check_weights(const void *weights, uint32_t bytes);",
        *(["", *decrypt_declaration(prefix)] if image.encrypted else []),
    ]


def check_functions(prefix: str, image: WeightsImage, names: str) -> list[str]:
    """Return the definitions of the functions that check and decrypt an image, and of the check in each run.

    Args:
        prefix: of the functions that programs call.
        image: that they expect.
        names: prefix of the file's own functions.
    """
    words = image.words
    table = [_table_entry(nibble) for nibble in range(16)]
    return [
        f"static int {names}fits(const void *weights, uint32_t first, uint32_t last) {{",
        f"    static const uint32_t expected[6] = {{{_listed(words)}}};",
        "    const uint32_t *const head = (const uint32_t *)weights;",
        "    int fit = weights != 0;",
        "    uint32_t i;",
        "    for (i = first; fit && i < last; ++i) {",
        "        fit = head[i] == expected[i];",
        "    }",
        "    return fit;",
        "}",
        "",
        f"int {prefix}_check_weights(const void *weights, uint32_t bytes) {{",
        f"    static const uint32_t table[16] = {{{_listed(table[:8])},",
        f"                                       {_listed(table[8:])}}};",
        "    const uint8_t *const from = (const uint8_t *)weights;",
        "    uint32_t sum = 0xffffffffu, i;",
        f"    if (bytes < {HEADER_BYTES}u || !{names}fits(weights, 0u, 3u)) {{",
        "        return 1;",
        "    }",
        f"    if (!{names}fits(weights, 3u, 6u)) {{",
        "        return 2;",
        "    }",
        f"    if (bytes < {image.size}u) {{",
        "        return 1;",
        "    }",
        f"    for (i = {HEADER_BYTES}u; i < {image.size}u; ++i) {{",
        "        sum ^= (uint32_t)from[i];",
        "        sum = (sum >> 4) ^ table[sum & 15u];",
        "        sum = (sum >> 4) ^ table[sum & 15u];",
        "    }",
        "    return ((const uint32_t *)weights)[6] == (sum ^ 0xffffffffu) ? 0 : 3;",
        "}",
        "",
        *(decrypt_functions(prefix, image.size, image.identity, names) if image.encrypted else []),
    ]


def _listed(words: Sequence[int]) -> str:
    return ", ".join(f"0x{word:08x}u" for word in words)


def _table_entry(nibble: int) -> int:
    """Return the CRC-32 of four bits, with reversed bits."""
    for _ in range(4):
        nibble = (nibble >> 1) ^ (0xEDB88320 if nibble & 1 else 0)
    return nibble
