"""The loader on other systems, as far as this one can stand for them; and files that are for other systems or none."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import platform
import shutil
import struct
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runtime_samples import WEIGHTS, sample_library

from nnefc.loader import LoadError, library, load

X = np.ones(1024, np.float32)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What Python has on Windows and what it lacks there; returns the handles that FreeLibrary gets."""
    freed: list[int] = []
    close, open_here = _ctypes.dlclose, ctypes.CDLL

    def free(handle: int) -> None:
        freed.append(handle)
        close(handle)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(library, "check_file", lambda *_: None)  # it is a library of this system
    monkeypatch.delattr(os, "RTLD_NOW")
    monkeypatch.delattr(os, "RTLD_LOCAL")
    monkeypatch.setattr(library, "_ctypes", SimpleNamespace(FreeLibrary=free))
    monkeypatch.setattr(ctypes, "CDLL", lambda path: open_here(path))
    return freed


def test_libraries_are_opened_and_closed_in_the_way_of_windows(windows: list[int]) -> None:
    with load(sample_library(), threads=1) as model:
        assert np.array_equal(model(X)[0], WEIGHTS)
        assert windows == []
    assert len(windows) == 1


def test_windows_has_no_second_library_of_one_path(windows: list[int], tmp_path: Path) -> None:
    path = Path(shutil.copy(sample_library(), tmp_path / "model.so"))
    with load(path, threads=1):
        os.replace(shutil.copy(sample_library(), tmp_path / "new.so"), path)
        with pytest.raises(LoadError, match="was loaded before it was replaced, and is still open: close that model"):
            load(path)
    with load(path, threads=1) as model:
        assert np.array_equal(model(X)[0], WEIGHTS)


# --- files


def elf(machine: int) -> bytes:
    return b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack("<HH", 3, machine) + bytes(100)


def pe(machine: int) -> bytes:
    return b"MZ".ljust(60, b"\0") + struct.pack("<I", 128) + bytes(64) + b"PE\0\0" + struct.pack("<H", machine)


def mach_o(machine: int) -> bytes:
    return struct.pack("<II", 0xFEEDFACF, machine) + bytes(100)


def refusal(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(LoadError) as raised:
        load(path)
    assert str(path) in str(raised.value)
    return str(raised.value)


@pytest.fixture(params=["linux", "darwin", "win32"])
def system(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the loader believes to be: on a processor of x86-64."""
    monkeypatch.setattr(sys, "platform", request.param)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sysconfig, "get_platform", lambda: "win-amd64")
    return {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}[request.param]


HERE = {"Linux": ".so", "macOS": ".dylib", "Windows": ".dll"}


def test_libraries_of_other_systems_are_reported_by_name(system: str, tmp_path: Path) -> None:
    others = {"Linux": elf(62), "macOS": mach_o(0x01000007), "Windows": pe(0x8664), "WebAssembly": b"\0asm\1\0\0\0"}
    del others[system]
    for name, content in others.items():
        text = refusal(tmp_path / "net.so", content)
        assert f"was compiled for {name}, but this is {system}: compile the model for this machine" in text


def test_libraries_for_other_processors_are_reported_by_name(system: str, tmp_path: Path) -> None:
    content = {"Linux": elf(183), "macOS": mach_o(0x0100000C), "Windows": pe(0xAA64)}[system]
    text = refusal(tmp_path / "net.so", content)
    assert "was compiled for aarch64, but this is x86_64: compile the model for this machine" in text


def test_other_files_of_nnefc_are_reported_from_libraries(system: str, tmp_path: Path) -> None:
    write = f"write a shared one, nnefc compile MODEL -o net{HERE[system]}"
    assert f"is a static library, to be linked into a program: {write}" in refusal(tmp_path / "net.a", b"!<arch>\n")
    assert "load the library that was written next to it" in refusal(tmp_path / "net.weights", b"NNEFCWTS" + bytes(99))


@pytest.mark.parametrize("name", ["net.onnx", "net.nnef", "net.nnef.tgz", "net.pnnx.param"])
def test_models_are_to_be_compiled_first(system: str, name: str, tmp_path: Path) -> None:
    text = refusal(tmp_path / name, b"a model, or so")
    assert f"is a model, and this loads what is compiled: nnefc compile {tmp_path / name} -o net" in text


def test_a_folder_of_a_model_is_to_be_compiled_first(tmp_path: Path) -> None:
    (tmp_path / "net.nnef").mkdir()
    (tmp_path / "net.nnef" / "graph.nnef").touch()
    with pytest.raises(LoadError, match="is a model, and this loads what is compiled"):
        load(tmp_path / "net.nnef")


@pytest.mark.parametrize(("python", "works"), [("win-amd64", True), ("win-arm64", False), ("win32", False)])
def test_windows_may_emulate_the_processor_that_python_was_made_for(
    python: str, works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(platform, "machine", lambda: pytest.fail("asks a service of Windows'"))
    monkeypatch.setattr(sysconfig, "get_platform", lambda: python)
    text = refusal(tmp_path / "net.dll", pe(0x8664))
    assert ("was compiled for" not in text) == works
    assert ("was compiled for x86_64" in text) != works
