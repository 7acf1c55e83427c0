"""Objects and archives in the formats Mach-O and COFF: what is visible, that two networks link into one program, and
that it runs where Windows' programs do."""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from mach_o import commands, undefined_names
from runtime_samples import folder

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.coff_object import join_coff
from nnefc.targets.link.linking import LINKING
from nnefc.targets.link.mach_o_symbols import hide_mach_o_symbols
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.machine.system import FileFormat

ZIG = [sys.executable, "-m", "ziglang"]
TEXT = "version 1.0;\ngraph net(x) -> (y) { x = external(shape = [8]); y = softmax(x, axes = [0]); }\n"
PROGRAM = """
#include <stdio.h>
#include "first.h"
#include "second.h"

static int call(const nnefc_interface *network) {
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[8];
    const void *inputs[] = {x};
    void *outputs[] = {y};
    nnefc_session *session = NULL;
    if (network->create(NULL, &session) != NNEFC_OK || network->run(session, inputs, outputs) != NNEFC_OK) return 1;
    printf("%.4f\\n", y[7]);
    return network->destroy(session) != NNEFC_OK;
}

int main(void) {
    const nnefc_interface networks[] = {NNEFC_INTERFACE(first), NNEFC_INTERFACE(second)};
    return call(&networks[0]) || call(&networks[1]);
}
"""


@functools.cache
def compiled(target: str) -> Artifact:
    model = folder("object-files") / "net.nnef"
    model.write_text(TEXT)
    return nnefc.compile(model, target)


def program(target: str, machine: str, folder: Path, *words: str) -> Path:
    """A program with the network twice: as an object and as an archive."""
    compiled(target).export(folder / "first.o", name="first")
    compiled(target).export(folder / "libsecond.a", name="second")
    (folder / "main.c").write_text(PROGRAM)
    inputs = [str(folder / name) for name in ("main.c", "first.o", "libsecond.a")]
    output = folder / "program"
    command = [*ZIG, "cc", "-target", machine, f"-I{folder}", *inputs, "-o", str(output), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return output


def visible(data: bytes) -> set[str]:
    """The symbols of a Mach-O object that others see, defined in it."""
    symbols, count, strings = struct.unpack_from("<III", commands(data)[0x2], 8)
    found = set()
    for number in range(count):
        name, kind, section = struct.unpack_from("<IBB", data, symbols + 16 * number)
        if kind & 1 and section:
            found.add(data[strings + name :].split(b"\0", 1)[0].decode())
    return found


@pytest.mark.parametrize(("target", "platform"), [("aarch64-macos", 1), ("aarch64-ios", 2)])
def test_an_object_for_apples_systems_shows_its_functions_alone(target: str, platform: int, tmp_path: Path) -> None:
    compiled(target).export(tmp_path / "first.o", name="first")
    data = (tmp_path / "first.o").read_bytes()
    assert struct.unpack_from("<I", data, 12)[0] == 1
    assert struct.unpack_from("<I", commands(data)[0x32], 8)[0] == platform
    names = visible(data)
    assert {"_first_create", "_first_run"} <= names
    assert all(name.startswith("_first_") for name in names)
    assert not any("nnefc" in name or "TVM" in name for name in undefined_names(data))
    local, _, _, undefined = struct.unpack_from("<4I", commands(data)[0xB], 12)
    _, count, _ = struct.unpack_from("<III", commands(data)[0x2], 8)
    assert undefined < count
    assert local > len(names)


def test_two_networks_link_into_a_program_for_macos(tmp_path: Path) -> None:
    data = program("aarch64-macos", "aarch64-macos.11.0", tmp_path).read_bytes()
    assert struct.unpack_from("<I", data, 12)[0] == 2  # a program
    assert not any("first" in name for name in undefined_names(data))


ENTRY = """
#include "first.h"
#include "second.h"
#include <windows.h>

static int call(const nnefc_interface *network) {
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[8] = {0};
    const void *inputs[] = {x};
    void *outputs[] = {y};
    nnefc_session *session = NULL;
    if (network->create(NULL, &session) != NNEFC_OK || network->run(session, inputs, outputs) != NNEFC_OK) return 1;
    return network->destroy(session) != NNEFC_OK || y[7] < 0.6323f || y[7] > 0.6324f ? 2 : 0;
}

void program_start(void) {
    const nnefc_interface networks[] = {NNEFC_INTERFACE(first), NNEFC_INTERFACE(second)};
    ExitProcess(10 + call(&networks[0]) + 3 * call(&networks[1]));
}
"""


def test_two_networks_link_into_a_program_for_windows(tmp_path: Path) -> None:
    """Linked without MinGW's C library, as networks are, which zig would compile first, for minutes."""
    target, alone = "x86_64-windows-gnu", LINKING[FileFormat.PE].alone
    assert alone is not None
    compiled(target).export(tmp_path / "first.o", name="first")
    compiled(target).export(tmp_path / "libsecond.a", name="second")
    (tmp_path / "main.c").write_text(ENTRY)
    command = [*ZIG, "cc", "-target", target, "-O1", "-s", f"-I{tmp_path}", f"-I{RUNTIME}", "-fno-sanitize=all"]
    for source in (tmp_path / "main.c", *(RUNTIME / name for name in alone.sources)):
        subprocess.run(
            [*command, "-c", str(source), "-o", str(tmp_path / f"{source.stem}.obj")], check=True, timeout=120
        )
    program = tmp_path / "program.exe"
    inputs = [*map(str, sorted(tmp_path.glob("*.obj"))), str(tmp_path / "first.o"), str(tmp_path / "libsecond.a")]
    flags = ["-nostdlib", "-Wl,--entry,program_start", "-Wl,--subsystem,console"]
    linked = subprocess.run(
        [*command, *flags, *inputs, *alone.libraries, "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert linked.returncode == 0, linked.stderr
    if shutil.which("wine") is None:
        pytest.skip("needs: wine")
    (tmp_path / "wine").mkdir()
    (tmp_path / "wine" / ".update-timestamp").write_text("disable\n")
    settings = {"WINEPREFIX": str(tmp_path / "wine"), "WINEBOOTSTRAPMODE": "1", "WINEDEBUG": "-all"}
    done = subprocess.run(["wine", str(program)], env={**os.environ, **settings}, check=False, timeout=120)
    assert done.returncode == 10


def objects(sources: dict[str, str], target: str, folder: Path) -> list[tuple[str, bytes]]:
    made = []
    for name, text in sources.items():
        (folder / f"{name}.c").write_text(text)
        command = [*ZIG, "cc", "-target", target, "-Os", "-g0", "-fno-sanitize=all", "-ffunction-sections", "-c"]
        subprocess.run([*command, f"{name}.c", "-o", f"{name}.o"], cwd=folder, check=True, timeout=120)
        made.append((f"{name}.o", (folder / f"{name}.o").read_bytes()))
    return made


def symbols_of(data: bytes) -> dict[str, tuple[int, int]]:
    """Section and storage class of each symbol of a COFF object."""
    table, count = struct.unpack_from("<II", data, 8)
    strings, found, at = table + 18 * count, {}, table
    while at < strings:
        raw, _, section, _, storage, more = struct.unpack_from("<8sIhHBB", data, at)
        long = struct.unpack("<I", raw[4:])[0] if raw[:4] == bytes(4) else None
        name = raw.rstrip(b"\0") if long is None else data[strings + long :].split(b"\0", 1)[0]
        found[name.decode()] = section, storage
        at += 18 * (1 + more)
    return found


def test_coff_objects_are_joined(tmp_path: Path) -> None:
    """A name that both define for the linker to keep one of, a hidden function, and a function of the system."""
    shared = "__declspec(selectany) int nnefc_once = 3;\n"
    parts = {
        "a": shared + "int nnefc_hidden(int); int function_of_the_system(int);\n"
        "int long_name_of_the_interface(int x) { return nnefc_hidden(x) + nnefc_once + function_of_the_system(x); }\n",
        "b": shared + "int nnefc_hidden(int x) { static int calls; return x * nnefc_once + calls++; }\n",
    }
    made = objects(parts, "x86_64-windows-gnu", tmp_path)
    joined = join_coff(made, ["long_name_of_the_interface"])
    assert joined == join_coff(made, ["long_name_of_the_interface"])
    found = symbols_of(joined)
    assert found["long_name_of_the_interface"][1] == 2
    assert found["nnefc_hidden"][1] == 3
    assert found["function_of_the_system"] == (0, 2)
    external = {name for name, (_, storage) in found.items() if storage == 2}
    assert external == {"long_name_of_the_interface", "function_of_the_system"}
    assert found["nnefc_once"][0] > 0
    with pytest.raises(CompileError, match="do not define other"):
        join_coff(made, ["other"])
    with pytest.raises(CompileError, match="needs nnefc_hidden, which nothing defines"):
        join_coff(made[:1], ["long_name_of_the_interface"])
    with pytest.raises(CompileError, match="both define nnefc_hidden"):
        join_coff([*made, made[1]], ["long_name_of_the_interface"])


def test_other_files_are_no_mach_o_objects() -> None:
    with pytest.raises(CompileError, match="no Mach-O object"):
        hide_mach_o_symbols(b"\x7fELF" + bytes(60), [])
