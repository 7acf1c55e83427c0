"""Files compressed with gzip: unpacked in memory, and never to more than a file of their size may hold."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from nnefc.diagnostics import CompileError

__all__ = ["GZIP", "MAX_RATIO", "largest_content", "unpacked"]

GZIP = b"\x1f\x8b"
"""The first bytes of every file of gzip."""

MAX_RATIO = 100
"""What each byte of a compressed file may unpack to, beyond `MIN_UNPACKED_BYTES`: trained values hardly shrink."""

MIN_UNPACKED_BYTES = 256 << 20
"""What any compressed file may unpack to, however small it is."""

MAX_UNPACKED_BYTES = 16 << 30
"""What a compressed file may unpack to in memory; larger models are given unpacked."""

_PIECE = 1 << 24


def largest_content(size: int) -> int:
    """The bytes that a compressed file of so many bytes may unpack to."""
    return min(MAX_UNPACKED_BYTES, max(MIN_UNPACKED_BYTES, MAX_RATIO * size))


def unpacked(
    path: Path, content: BinaryIO, size: int, most: int, hint: str, check: Callable[[bytes], None] = lambda _head: None
) -> io.BytesIO:
    """Decompresses a file, no further than up to a bound.

    Args:
        path: how messages call the file.
        content: what it holds.
        size: of that, in bytes.
        most: bytes that it may unpack to.
        hint: what to do with a file that unpacks to more.
        check: raises an error for the first bytes of what cannot be the content.

    Raises:
        CompileError: it is damaged, unpacks to more than that, or does not fit into memory.
    """
    whole = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=content) as packed:
            while piece := packed.read(_PIECE):
                if whole.tell() == 0:
                    check(piece)
                if whole.tell() + len(piece) > most:
                    raise CompileError(f"'{path}' unpacks to more than {most:,} bytes, from {size:,}", hint=hint)
                whole.write(piece)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CompileError(f"'{path}' is not valid gzip data: {error}") from None
    except MemoryError:
        raise CompileError(f"'{path}' does not fit into memory when it is unpacked", hint=hint) from None
    return whole
