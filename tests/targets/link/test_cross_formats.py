"""Libraries for systems that are not here: their format, their symbols, and what they need."""

from __future__ import annotations

import functools
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from elf import read
from emulation import MACHINES, run_on
from mach_o import broken_pages
from relax_programs import target
from runtime_samples import folder

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.loader.exports import missing_export
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import LibraryDescription
from nnefc.targets.description.library_file import file_kind, read_metadata
from nnefc.targets.description.library_functions import public_symbols
from nnefc.targets.link.android import android_functions
from nnefc.targets.link.elf_file import DYNAMIC, ElfFile

FUNCTIONS = public_symbols(LibraryDescription("digits", "", "", (), (), cancellable=True, logs=True))

SOURCE = """version 1.0;
graph digits(image) -> (probability)
{
    image = external<scalar>(shape = [1, 1, 8, 8]);
    probability = softmax(reshape(image, shape = [1, 64]));
}
"""


@functools.cache
def compiled(name: str = "llvm") -> Artifact:
    model = folder("cross-formats") / "digits.nnef"
    model.write_text(SOURCE)
    return nnefc.compile(model, name)


def library_for(name: str, folder: Path) -> Path:
    path = folder / f"digits{target(name).format.suffix}"
    compiled(name).export(path)
    content = path.read_bytes()
    if content[:4] != b"\0asm":
        assert missing_export(content, sorted(FUNCTIONS)) is None
        assert missing_export(content, ["nnefc_run", "malloc"]) == "malloc"
    metadata = read_metadata(path)
    assert metadata is not None
    assert (metadata.description.model, metadata.description.target) == ("digits", name)
    return path


def text_at(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


def pages_of(path: Path) -> set[int]:
    """The largest pages that an ELF file can be loaded with."""
    segments = ElfFile(np.fromfile(path, np.uint8), DYNAMIC).segments
    return set(segments[segments["type"] == 1]["align"].tolist())


def test_a_library_for_macos(tmp_path: Path) -> None:
    path = library_for("aarch64-macos", tmp_path)
    assert file_kind(path) == "Mach-O for aarch64"
    data = path.read_bytes()
    kind, count = struct.unpack_from("<II", data, 12)
    assert kind == 6  # a dynamic library
    exported, needed, own_name, start, signed = set(), [], "", 32, False
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, start)
        if command in (0xC, 0xD):  # LC_LOAD_DYLIB, LC_ID_DYLIB
            name = text_at(data, start + struct.unpack_from("<I", data, start + 8)[0])
            if command == 0xD:
                own_name = name
            else:
                needed.append(name)
        if command == 0x2:  # LC_SYMTAB: entries of 16 bytes
            first, symbols, strings, _ = struct.unpack_from("<IIII", data, start + 8)
            for i in range(symbols):
                name_at, flags, section = struct.unpack_from("<IBB", data, first + 16 * i)
                if flags & 1 and not flags & 0xE0 and section:  # external, no debugging, defined here
                    exported.add(text_at(data, strings + name_at))
        signed |= command == 0x1D  # LC_CODE_SIGNATURE, without which Apple's processors run nothing
        start += size
    of_the_linker = {"__mh_dylib_header", "___dso_handle"}
    assert exported - of_the_linker == {f"_{name}" for name in FUNCTIONS}
    assert needed == ["/usr/lib/libSystem.B.dylib"]
    assert own_name == "@rpath/digits.dylib"
    assert signed
    assert broken_pages(data) == []
    assert len(broken_pages(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])) == 1


@pytest.mark.parametrize(("name", "page"), [("aarch64-linux-gnu", 64), ("armv7-linux-gnueabihf", 16)])
def test_a_library_loads_where_pages_are_large_and_carries_no_zeros_for_larger_ones(
    name: str, page: int, tmp_path: Path
) -> None:
    path = library_for(name, tmp_path)
    segments = ElfFile(np.fromfile(path, np.uint8), DYNAMIC).segments
    loads = segments[segments["type"] == 1]
    assert set(loads["align"].tolist()) == {page << 10}
    assert path.stat().st_size < loads["stored"].sum() + 4096 + 2 * (page << 10)


def test_a_library_for_windows(tmp_path: Path) -> None:
    path = library_for("x86_64-windows-gnu", tmp_path)
    assert file_kind(path) == "PE for x86_64"
    data = path.read_bytes()
    (header,) = struct.unpack_from("<I", data, 60)
    sections, optional, characteristics = struct.unpack_from("<H12xHH", data, header + 6)
    assert characteristics & 0x2000  # a library
    directories = header + 24 + 112
    table = header + 24 + optional

    def offset_of(address: int) -> int:
        for i in range(sections):
            size, start, stored, offset = struct.unpack_from("<IIII", data, table + 40 * i + 8)
            if start <= address < start + max(size, stored):
                return int(address - start + offset)
        raise AssertionError(f"no section holds {address:#x}")

    exports = offset_of(struct.unpack_from("<I", data, directories)[0])
    count, names = struct.unpack_from("<I4xI", data, exports + 24)
    exported = {
        text_at(data, offset_of(address)) for address in struct.unpack_from(f"<{count}I", data, offset_of(names))
    }
    assert exported == set(FUNCTIONS)
    imports, needed = offset_of(struct.unpack_from("<I", data, directories + 8)[0]), set()
    while name := struct.unpack_from("<I", data, imports + 12)[0]:
        needed.add(text_at(data, offset_of(name)).lower())
        imports += 20
    assert all(name == "kernel32.dll" or name.startswith("api-ms-win-crt-") for name in needed), needed
    thread_local = struct.unpack_from("<II", data, directories + 8 * 9)
    assert thread_local == (0, 0)  # nothing that Windows would have to do when a program's threads begin and end


@pytest.mark.parametrize(
    "name", ["aarch64-linux-android", "armv7-linux-androideabi", "x86_64-linux-android", "i686-linux-android"]
)
def test_libraries_for_android_are_linked_without_its_ndk(name: str, tmp_path: Path) -> None:
    artifact = compiled(name)
    artifact.export(tmp_path / "digits.so")
    machine = {"armv7": "arm"}.get(name.partition("-")[0], name.partition("-")[0])
    assert file_kind(tmp_path / "digits.so") == f"ELF for {machine}"
    assert pages_of(tmp_path / "digits.so") == {16 << 10}
    artifact.export(tmp_path / "digits.a", name="digits")
    assert (tmp_path / "digits.h").is_file()
    content = (tmp_path / "digits.a").read_bytes()
    assert content.startswith(b"!<arch>\n")
    assert b"digits_create" in content
    if machine not in ("arm", "i686"):  # of 32 bits
        found = read(tmp_path / "digits.so")
        assert found.exported == frozenset(FUNCTIONS)
        assert set(found.needed) <= {"libc.so", "libm.so"}
        assert found.imported <= {each for names in android_functions().values() for each in names}


@pytest.mark.slow
def test_x86_of_32_bits_computes_what_that_of_64_bits_does() -> None:
    (machine,) = (machine for machine in MACHINES if machine.name == "musl-i686")
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    artifact = compiled(machine.target)
    (given,) = artifact.inputs
    data = {given.name: np.random.default_rng(5).standard_normal(given.shape).astype(np.float32)}
    for mine, other in zip(run_on(machine, artifact, data).values(), compiled().run(data).values(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_what_androids_header_declares_is_in_its_libraries() -> None:
    found = android_functions()
    assert {"pthread_create", "__errno", "__sched_cpualloc", "stderr", "fstat", "abort"} <= set(found["libc.so"])
    assert {"expf", "pow", "fmaf", "atan2f"} <= set(found["libm.so"])
    assert found["libdl.so"] == ("dladdr",)


def test_another_compiler_links_for_android(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m ziglang cc -target aarch64-linux-musl"
    compiled("aarch64-linux-android").export(tmp_path / "digits.so", cc=command)
    assert file_kind(tmp_path / "digits.so") == "ELF for aarch64"
    assert read(tmp_path / "digits.so").exported == frozenset(FUNCTIONS)
    assert pages_of(tmp_path / "digits.so") == {16 << 10}


@pytest.mark.parametrize(
    ("command", "message"),
    [("", "is empty"), ("cc 'x", "ends inside a quotation"), ("/no/such/compiler", "cannot run the compiler"),
     (f"'{sys.executable}' -c 'import sys; sys.exit(\"boom\")'", "boom")],
)  # fmt: skip
def test_a_compiler_that_does_not_work_is_an_error(command: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as raised:
        compiled().export(tmp_path / "digits.so", cc=command)
    assert message in raised.value.message
    assert not list(tmp_path.iterdir())


def test_a_compiler_without_relaxed_simd_makes_the_trial_of_its_dot_product(tmp_path: Path) -> None:
    command = f"{sys.executable} -m ziglang cc -target wasm32-wasi -mcpu=baseline"
    compiled("wasm32-relaxed-udot").export(tmp_path / "digits.wasm", cc=command)
    instruction = b"\xfd\x93\x02"  # i32x4.relaxed_dot_i8x16_i7x16_add_s, of which a network of floats has none
    assert instruction in (tmp_path / "digits.wasm").read_bytes()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs: gcc")
def test_the_systems_compiler_can_stand_in_for_zig(tmp_path: Path) -> None:
    compiled().export(tmp_path / "digits.so", cc="gcc")
    with nnefc.load(tmp_path / "digits.so") as model:
        assert model.run({"image": np.zeros((1, 1, 8, 8), np.float32)})["probability"].sum() == pytest.approx(1)


def leb(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of WebAssembly, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def test_a_module_of_webassembly_needs_nothing(tmp_path: Path) -> None:
    data = library_for("wasm32-wasi", tmp_path).read_bytes()
    assert data[:8] == b"\0asm\x01\0\0\0"
    at, exported, imported = 8, set(), 0
    while at < len(data):
        section = data[at]
        size, at = leb(data, at + 1)
        if section == 2:
            imported, _ = leb(data, at)
        if section == 7:
            count, position = leb(data, at)
            for _ in range(count):
                length, position = leb(data, position)
                exported.add(data[position : position + length].decode())
                _, position = leb(data, position + length + 1)
        at += size
    assert imported == 0
    of_modules = public_symbols(LibraryDescription("digits", "", "", (), ()))
    assert exported == {*of_modules, "memory", "malloc", "free", "_initialize", "nnefc_warm_up"}


def test_a_module_with_threads_needs_memory_alone_and_says_how_much(tmp_path: Path) -> None:
    data = library_for("wasm32-threads", tmp_path).read_bytes()
    at, imports, noted = 8, b"", b""
    while at < len(data):
        section = data[at]
        size, at = leb(data, at + 1)
        content = data[at : at + size]
        imports = content if section == 2 else imports
        noted = content if section == 0 and content[1:].startswith(b"nnefc.memory") else noted
        at += size
    assert imports.startswith(b"\1\3env\6memory\2\3")  # one import: a memory that is shared and has a limit
    first, position = leb(imports, 14)
    assert struct.unpack("<II", noted[13:]) == (first, leb(imports, position)[0])


def test_an_archive_of_webassembly_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as raised:
        compiled("wasm32-wasi").export(tmp_path / "digits.a")
    assert ".wasm" in (raised.value.hint or "")


def test_a_library_for_another_processor_says_so_when_loaded(tmp_path: Path) -> None:
    path = library_for("aarch64-linux-gnu", tmp_path)
    if file_kind(path) == file_kind(Path("/proc/self/exe")):
        pytest.skip("this is such a machine")
    with pytest.raises(nnefc.LoadError, match="was compiled for aarch64, but this is"):
        nnefc.load(path)
