"""The binary file is not believed: types, sizes, checksums, compression."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from pnnx_files import annotation, run, write_bin, write_network

from nnefc.frontends.pnnx import load
from nnefc.support.diagnostics import CompileError

VALUE = np.arange(12, dtype=np.float32).reshape(3, 4)


def network(folder: Path, value: np.ndarray = VALUE, type: str | None = None) -> Path:
    lines = [f"pnnx.Attribute w 0 1 0 @data={type or annotation(value)}", "pnnx.Output out 1 0 0"]
    return write_network(folder, lines, {"w.data": value})


def refused(path: Path) -> str:
    with pytest.raises(CompileError) as caught:
        load(path)
    return caught.value.message


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"])
def test_tensors_of_every_type(dtype: str, tmp_path: Path) -> None:
    value = (VALUE > 5) if dtype == "bool" else VALUE.astype(dtype)
    result = run(load(network(tmp_path, value)), [])[0]
    assert result.dtype == value.dtype
    np.testing.assert_array_equal(result, value)


def test_zip64_entries_are_read(tmp_path: Path) -> None:
    path = network(tmp_path)
    with (
        zipfile.ZipFile(tmp_path / "model.pnnx.bin", "w") as archive,
        archive.open("w.data", "w", force_zip64=True) as f,
    ):
        f.write(VALUE.tobytes())
    np.testing.assert_array_equal(run(load(path), [])[0], VALUE)


def test_sizes_must_be_those_of_the_param_file(tmp_path: Path) -> None:
    assert "has 48 bytes, by the param file it should have 40" in refused(network(tmp_path, type="(10)f32"))
    assert "should have 4,000,000,000,000" in refused(network(tmp_path, type="(1000000000000)f32"))


def test_damaged_tensors_are_refused(tmp_path: Path) -> None:
    path = network(tmp_path)
    binary = tmp_path / "model.pnnx.bin"
    data = bytearray(binary.read_bytes())
    data[data.index(VALUE.tobytes()[4:]) + 3] ^= 1
    binary.write_bytes(data)
    assert "is damaged" in refused(path)


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    path = network(tmp_path)
    with zipfile.ZipFile(tmp_path / "model.pnnx.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.data", VALUE.tobytes())
    assert "stored, not compressed" in refused(path)


def test_a_name_of_another_length_is_not_repeated_whole(tmp_path: Path) -> None:
    path = network(tmp_path)
    binary = tmp_path / "model.pnnx.bin"
    with zipfile.ZipFile(binary, "a") as archive:
        archive.writestr("more", bytes(5000))
    data = bytearray(binary.read_bytes())
    data[26:28] = (4000).to_bytes(2, "little")  # of the first name, before the tensor
    binary.write_bytes(data)
    message = refused(path)
    assert "is damaged: File name in directory" in message and len(message) < 400


def test_members_do_not_have_two_sizes(tmp_path: Path) -> None:
    path = network(tmp_path)
    binary = tmp_path / "model.pnnx.bin"
    data = bytearray(binary.read_bytes())
    offset = data.index(b"PK\1\2") + 20  # the compressed size in the directory
    data[offset : offset + 4] = (1 << 31).to_bytes(4, "little")
    binary.write_bytes(data)
    assert "is damaged: it has two sizes" in refused(path)


def test_missing_files_and_tensors_are_reported_apart(tmp_path: Path) -> None:
    path = network(tmp_path)
    write_bin(tmp_path / "model.pnnx.bin", {"v.data": VALUE})
    assert "has no tensor 'w.data'" in refused(path)
    (tmp_path / "model.pnnx.bin").unlink()
    assert "there is no file" in refused(path)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = network(tmp_path)
    binary = tmp_path / "model.pnnx.bin"
    whole = binary.read_bytes()
    for data in (b"", b"PK", whole[: len(whole) // 2], whole[:-5], b"\0" * 100):
        binary.write_bytes(data)
        assert "zip archive" in refused(path)


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    big = np.zeros(1000, np.float32)
    lines = [f"pnnx.Attribute w{i} 0 1 {i} @data=(1000)f32" for i in range(3)] + ["pnnx.Output out 3 0 0 1 2"]
    path = write_network(tmp_path, lines, {"w0.data": big})
    binary = tmp_path / "model.pnnx.bin"
    with zipfile.ZipFile(binary) as archive:
        first = archive.getinfo("w0.data")
    with zipfile.ZipFile(binary, "a") as archive:  # entries of the directory that point to one position
        for name in ("w1.data", "w2.data"):
            other = zipfile.ZipInfo(name)
            other.header_offset, other.CRC = first.header_offset, first.CRC
            other.file_size = other.compress_size = first.file_size
            archive.filelist.append(other)
            archive.NameToInfo[name] = other
            archive._didModify = True  # type: ignore[attr-defined]
    assert refused(path)


def test_the_other_sizes_of_an_empty_tensor_are_bounded(tmp_path: Path) -> None:
    assert "'data' of 'w' is too large" in refused(network(tmp_path, type="(0,1099511627776,1099511627776)f32"))


def test_booleans_are_zero_or_one(tmp_path: Path) -> None:
    assert "0 or 1" in refused(network(tmp_path, np.array([0, 1, 2, 1], np.uint8), "(4)bool"))


def test_unknown_and_complex_types_are_refused(tmp_path: Path) -> None:
    assert "complex64" in refused(network(tmp_path, type="(6)c64"))
    assert "unknown size" in refused(network(tmp_path, type="(3,?)f32"))
