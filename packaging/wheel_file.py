"""Files as a wheel: the same files make the same bytes, whenever and wherever they are packed."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["pack_wheel", "unpack_wheel"]

_DATE = (1980, 1, 1, 0, 0, 0)


def pack_wheel(files: Mapping[str, bytes], path: Path) -> Path:
    """Write the wheel `path` with these files, by their names in it, and the list of them that wheels have."""
    (info,) = {name.partition("/")[0] for name in files if ".dist-info/" in name}
    named = {name: data for name, data in sorted(files.items()) if name != f"{info}/RECORD"}
    record = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in named.items()]
    named[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in named.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    return path


def unpack_wheel(path: Path) -> dict[str, bytes]:
    """The files of a wheel by their names in it."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
