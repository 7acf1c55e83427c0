"""The runtime's decoders of images: on damaged and hostile files, under sanitizers and with addresses of 32 bits."""

from __future__ import annotations

import struct
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from emulation import MACHINES
from runtime_samples import C_SOURCES, ZIG_CC
from test_runtime_sanitizers import COMPILERS, compiles_without_warnings, each_compiler, needs

from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.machine.cpu.parsing import parse_target

SOURCES = sorted((RUNTIME / "images").glob("*.c"))
FILES = Path(__file__).parents[2] / "data" / "images.npz"


def tiff(data: bytes, **changed: int) -> bytes:
    """One strip of gray samples of 8 bits."""
    fields = {"width": 256, "height": 257, "bits": 258, "packed": 259, "colour": 262, "at": 273, "channels": 277}
    tags = {**fields, "size": 279, "predictor": 317}
    usual = {"height": 1, "bits": 8, "packed": 1, "colour": 1, "at": 14 + 12 * len(tags), "channels": 1, "predictor": 1}
    values = {**usual, "size": len(data), **changed}
    entries = [struct.pack("<HHII", tag, 4, 1, values[name]) for name, tag in tags.items()]
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4) + data


def png(width: int, data: bytes) -> bytes:
    """One row of four samples of 16 bits a pixel."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, 1, 16, 6, 0, 0, 0)),
        (b"IDAT", zlib.compress(data)),
        (b"IEND", b""),
    )
    packed = (struct.pack(">I", len(part)) + name + part + bytes(4) for name, part in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def bmp(width: int, data: bytes) -> bytes:
    """One row of 24 bits a pixel."""
    return struct.pack("<2sIIIIIIHHIIIIII", b"BM", 0, 0, 54, 40, width, 1, 1, 24, 0, 0, 0, 0, 0, 0) + data


CLEARED = "100000000" * 600 + f"{7:09b}"  # codes of LZW that make nothing, and one that makes a sample
HOSTILE = {
    # the bits of a row are 2^32 and some more
    "wide.tiff": tiff(bytes(64), width=2**26 + 1, channels=8, predictor=2),
    "wide.png": png(2**26 + 1, bytes(9)),
    "wide.bmp": bmp(2**32 // 24 + 1, bytes(16)),
    # many strips that share such bytes would take the square of the file's size
    "empty.tiff": tiff(int(CLEARED + "0" * 7, 2).to_bytes(len(CLEARED) // 8 + 1, "big"), width=1, packed=5),
}


def build(command: Sequence[str], folder: Path) -> None:
    command = [*command, "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}", *map(str, SOURCES)]
    made = subprocess.run(
        [*command, str(C_SOURCES / "images.c"), "-o", str(folder / "images")], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr


def refuses_hostile_files(folder: Path, *emulator: str) -> None:
    for name, content in HOSTILE.items():
        (folder / name).write_bytes(content)
        done = subprocess.run(
            [*emulator, "./images", "0", name], cwd=folder, capture_output=True, text=True, timeout=120
        )
        assert (name, done.returncode, done.stdout, done.stderr) == (name, 0, "ok\n", "")


@each_compiler
def test_damaged_files_do_no_harm(compiler: str, tmp_path: Path) -> None:
    flag = "-fsanitize=address,undefined"
    needs(compiler, flag)
    build([compiler, flag, "-fno-sanitize-recover=all"], tmp_path)
    refuses_hostile_files(tmp_path)
    with np.load(FILES) as files:
        names = [name for name in files if not name.startswith("pixels")]
        for name in names:
            files[name].tofile(tmp_path / name)
    done = subprocess.run(["./images", "300", *names], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.slow
def test_addresses_of_32_bits_do_no_harm(tmp_path: Path) -> None:
    machine = next(machine for machine in MACHINES if machine.name == "armv7")
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    build([*ZIG_CC, "-target", parse_target(machine.target).zig_target], tmp_path)
    refuses_hostile_files(tmp_path, *machine.command)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.sample(1)
def test_they_compile_without_warnings(compiler: str, tmp_path: Path) -> None:
    compiles_without_warnings(compiler, SOURCES, tmp_path)
