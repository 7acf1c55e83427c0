"""What tests of mistakes share: a command run as a user would run it, and its one message."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

from click.testing import CliRunner

from nnefc.cli import main

__all__ = ["field", "message", "safetensors", "write", "zipped"]


def message(*arguments: object, status: int = 1) -> str:
    """What the command writes to stderr, without its last line end; it must fail with `status`, and say one error."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "internal error" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if "error: " in line.lower()]) == 1, result.stderr
    return result.stderr.removesuffix("\n")


def write(path: Path, content: bytes | str) -> Path:
    """The file with this content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def zipped(*names: str) -> bytes:
    """A zip archive with empty members of these names."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return held.getvalue()


def field(number: int, content: bytes | int) -> bytes:
    """A field of a protobuf message."""
    key = number << 3 | (0 if isinstance(content, int) else 2)
    return _varint(key) + (_varint(content) if isinstance(content, int) else _varint(len(content)) + content)


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def safetensors() -> bytes:
    """A file of one tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)
