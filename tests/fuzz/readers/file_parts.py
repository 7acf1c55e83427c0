"""Several files of a folder as one input of a fuzzer: each as the number of its bytes, u32, and these."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["joined", "parts_of", "written"]


def joined(files: Mapping[str, bytes], names: Sequence[str]) -> bytes:
    """Returns the files as one input, in the order of `names`; one that is missing is empty."""
    return b"".join(struct.pack("<I", len(files.get(name, b""))) + files.get(name, b"") for name in names)


def parts_of(content: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Returns the files of an input; those beyond its end are empty."""
    found = {}
    for name in names:
        length, content = int.from_bytes(content[:4], "little"), content[4:]
        found[name], content = content[:length], content[length:]
    return found


def written(content: bytes, folder: Path, names: Sequence[str]) -> None:
    """Writes the files of an input; those that are empty are not there."""
    for name, part in parts_of(content, names).items():
        path = folder / name
        path.unlink(missing_ok=True)
        if part:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(part)
