"""Decompresses gzip files up to a size limit, so that a small file cannot exhaust memory.

Large contents are unpacked to a temporary file without a name, whose pages can leave memory when they have been read.
"""

from __future__ import annotations

import gzip
import io
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import map_file, release_pages, stream_of
from nnefc.support.output_files import temporary_errors

__all__ = ["GZIP", "MAX_RATIO", "largest_content", "unpacked"]

GZIP = b"\x1f\x8b"
"""The first bytes of every file of gzip."""

MAX_RATIO = 100
"""Bytes, at most, that a byte of a compressed file unpacks to, beyond `MIN_UNPACKED_BYTES`: weights hardly shrink."""

MIN_UNPACKED_BYTES = 256 << 20
"""Bytes that any compressed file may unpack to, however small it is."""

MAX_UNPACKED_BYTES = 16 << 30
"""Bytes, at most, that a compressed file may unpack to; larger models have to be given uncompressed."""

_PIECE = 1 << 22

_IN_MEMORY = 1 << 24
"""Bytes that are unpacked in memory; larger contents go to a temporary file."""

Bytes = npt.NDArray[np.uint8]


def largest_content(size: int) -> int:
    """The bytes that a compressed file of so many bytes may unpack to."""
    return min(MAX_UNPACKED_BYTES, max(MIN_UNPACKED_BYTES, MAX_RATIO * size))


def unpacked(
    path: Path, content: bytes | Bytes, maximum: int, hint: str, check: Callable[[bytes], None] = lambda _head: None
) -> Bytes:
    """Decompresses a file, no further than up to a bound.

    Args:
        path: how messages call the file.
        content: what it holds.
        maximum: number of bytes that it may unpack to.
        hint: what to do with a file that unpacks to more.
        check: raises an error for the first bytes of what cannot be the content.

    Raises:
        CompileError: it is damaged, unpacks to more than that, or there is no room for it.
    """
    with temporary_errors(), tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="nnefc-") as whole:
        try:
            with gzip.GzipFile(fileobj=_stream(content)) as packed:
                while piece := packed.read(_PIECE):
                    if whole.tell() == 0:
                        check(piece)
                    if whole.tell() + len(piece) > maximum:
                        raise CompileError(
                            f"'{path}' unpacks to more than {maximum:,} bytes, from {len(content):,}", hint=hint
                        )
                    whole.write(piece)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise CompileError(f"'{path}' is not valid gzip data: {error}") from None
        except MemoryError:
            raise CompileError(f"'{path}' does not fit into memory when it is unpacked", hint=hint) from None
        finally:
            release_pages()
        size = whole.tell()
        if size > _IN_MEMORY:
            whole.flush()
            return map_file(whole.fileno(), size)
        whole.seek(0)
        return np.frombuffer(whole.read(), np.uint8)


def _stream(content: bytes | Bytes) -> BinaryIO:
    return io.BytesIO(content) if isinstance(content, bytes) else cast(BinaryIO, stream_of(content))
