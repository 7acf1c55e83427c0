"""Descriptions read from the bytes of libraries, of which some are damaged."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from runtime_samples import CONSTANTS, SAMPLE, link, object_file

from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.embedded_metadata import MARK, SIZES, TEXTS, embedded_metadata
from nnefc.targets.description.library import TensorDescription
from nnefc.targets.description.library_file import file_kind, read_metadata

DESCRIPTION = replace(
    SAMPLE,
    source="sha256:0123",
    cpu_features=("avx2", "fma"),
    metadata=(("author", "ünï\n\0"), ("", "")),
    inputs=(TensorDescription('"quoted" ünï\\', "bfloat16", (1, 0, 1 << 40)),),
)


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "library.so"
    path.write_bytes(content)
    return path


def changed(folder: Path, **members: object) -> Path:
    """A file whose metadata has other members; those that are None are missing."""
    text = embedded_metadata(DESCRIPTION)[len(MARK) + 4 :]
    found = {name: value for name, value in {**json.loads(text), **members}.items() if value is not None}
    other = json.dumps(found).encode()
    return file_of(folder, b"\x7fELF" + MARK + struct.pack("<I", len(other)) + other)


def test_a_record_says_what_was_described(tmp_path: Path) -> None:
    metadata = read_metadata(file_of(tmp_path, b"before" + embedded_metadata(DESCRIPTION) + b"after"))
    assert metadata is not None
    found = metadata.description
    for name in (*TEXTS, *SIZES, "inputs", "outputs", "states", "cpu_features", "metadata"):
        assert getattr(found, name) == getattr(DESCRIPTION, name), name


def test_a_linked_library_holds_its_record(tmp_path: Path) -> None:
    path = link([object_file("network.c")], CONSTANTS, SAMPLE, tmp_path / "sample.so")
    metadata = read_metadata(path)
    assert metadata is not None
    assert (metadata.description.model, metadata.description.outputs) == (SAMPLE.model, SAMPLE.outputs)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", MARK[:-1], bytes(5000)])
def test_files_without_a_record_have_none(content: bytes, tmp_path: Path) -> None:
    assert read_metadata(file_of(tmp_path, content)) is None


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 100])
def test_a_record_that_is_cut_off_is_refused(length: int, tmp_path: Path) -> None:
    content = b"\x7fELF" + embedded_metadata(DESCRIPTION)[: len(MARK) + length]
    with pytest.raises(CompileError, match="is damaged"):
        read_metadata(file_of(tmp_path, content))


@pytest.mark.parametrize("length", [1 << 20, (16 << 20) + 1, 0xFFFFFFFF])
def test_a_length_beyond_the_file_is_refused(length: int, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="is damaged"):
        read_metadata(file_of(tmp_path, MARK + struct.pack("<I", length) + b"{}"))


@pytest.mark.parametrize(
    "text", [b"[]", b"null", b"{}", b'"x"', b"\xff\xfe", b"[" * 100_000, b"{" * 99, b"1e999", b'{"model": NaN}']
)
def test_other_json_is_refused(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="is damaged"):
        read_metadata(file_of(tmp_path, MARK + struct.pack("<I", len(text)) + text))


@pytest.mark.parametrize(
    "members",
    [
        {"model": 7},
        {"model": None},
        {"workspace_bytes": -1},
        {"workspace_bytes": 1 << 63},
        {"workspace_bytes": 1.5},
        {"workspace_bytes": True},
        {"inputs": 3},
        {"inputs": [["x", "float32"]]},
        {"inputs": [["x", "float32", [1], 2]]},
        {"inputs": [["x", "complex64", [1]]]},
        {"inputs": [["x", ["float32"], [1]]]},
        {"inputs": [["x", "float32", [-1]]]},
        {"inputs": [["x", "float32", "12"]]},
        {"inputs": ["xyz"]},
        {"cpu_features": [1]},
        {"weights": None},
    ],
)
def test_members_that_cannot_be_are_refused(members: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="is damaged"):
        read_metadata(changed(tmp_path, **members))


def test_a_name_cannot_command_a_terminal(tmp_path: Path) -> None:
    metadata = read_metadata(changed(tmp_path, model="a\x1b[2Jb\nc"))
    assert metadata is not None
    assert metadata.description.model == "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}c"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x7fELF\x02\x01" + bytes(10) + b"\x03\0\xb7\0", "ELF for aarch64"),
        (b"\x7fELF\x02\x02" + bytes(10) + b"\0\x03\0\x16", "ELF for machine 22"),
        (b"\x7fELF", "ELF"),
        (b"MZ" + bytes(58) + b"\x40\0\0\0PE\0\0\x64\x86", "PE for x86_64"),
        (b"MZ" + bytes(58) + b"\xff\xff\xff\xff", None),
        (b"MZ", None),
        (b"\xcf\xfa\xed\xfe\x0c\0\0\x01", "Mach-O for aarch64"),
        (b"\0asm\x01\0\0\0", "WebAssembly"),
        (b"!<arch>\n", "archive of objects"),
        (b"version 1.0;", None),
        (b"", None),
    ],
)
def test_first_bytes_tell_the_kind_of_file(content: bytes, kind: str | None, tmp_path: Path) -> None:
    assert file_kind(file_of(tmp_path, content)) == kind
