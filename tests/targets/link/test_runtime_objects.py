"""The runtime's objects: compiled once for each kind of machine, and again whenever that is not certain."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from runtime_samples import ZIG_TARGET

from nnefc.targets.link import runtime_objects as module
from nnefc.targets.link.runtime_objects import runtime_objects
from nnefc.targets.link.zig import run_compiler, zig


class Runtime:
    """Three sources, of which two lie next to the header that all include; counts what is compiled of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.compiled = folder, 0
        self.command = [*zig(), "cc", "-target", ZIG_TARGET, "-g0"]  # else the names of folders are in objects
        self.cache = folder / "cache"
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.cache))
        monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(Path.home() / ".cache" / "zig"))  # its stubs take seconds
        monkeypatch.setattr(module, "run_compiler", self._run)
        (folder / "r" / "more").mkdir(parents=True)
        (folder / "r" / "value.h").write_text("#define VALUE 1\n")
        for name in ("one", "two", "more/three"):
            text = f'#include "value.h"\nint {Path(name).name}(void) {{ return VALUE; }}\n'
            (folder / "r" / f"{name}.c").write_text(text)

    def _run(self, command: Sequence[str], folder: Path) -> None:
        self.compiled += 1
        run_compiler(command, folder)

    def make(self, name: str, *flags: str, joined: bool = False) -> list[bytes]:
        """The objects' contents."""
        sources = [self.folder / "r" / f"{source}.c" for source in ("one", "two", "more/three")]
        position = self.folder / name
        position.mkdir()
        objects = runtime_objects(sources, self.folder / "r", [*self.command, *flags], position, joined)
        assert [path.name for path in objects] == (["runtime.o"] if joined else ["runtime_two.o", "runtime_three.o"])
        return [path.read_bytes() for path in objects]

    def kept(self) -> Path:
        """The only file in the cache."""
        (path,) = (self.cache / "nnefc").iterdir()
        return path


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    return Runtime(tmp_path, monkeypatch)


def test_they_are_compiled_once_and_the_same_each_time(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "nnefc")
    first = runtime.make("a")
    assert (runtime.make("b"), runtime.compiled) == (first, 2)
    assert [name in first[0] for name in (b"one", b"two", b"three")] == [True, True, False]
    assert caplog.messages == ["compiling the runtime and the C library: once for each kind of machine"]


def test_they_may_be_one_object_with_what_is_in_each(runtime: Runtime) -> None:
    (first,) = runtime.make("a", joined=True)
    assert (runtime.make("b", joined=True), runtime.compiled) == ([first], 1)
    assert all(name in first for name in (b"one", b"two", b"three"))
    assert len(runtime.make("c")) == 2  # which are kept next to it


@pytest.mark.parametrize("changed", ["one.c", "value.h"])
def test_a_changed_file_is_compiled_again(changed: str, runtime: Runtime) -> None:
    runtime.make("a")
    path = runtime.folder / "r" / changed
    path.write_text(path.read_text() + "\n")
    runtime.make("b")
    assert runtime.compiled == 4


def test_other_options_and_compilers_are_other_objects(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    default = runtime.make("a")
    assert runtime.make("b", "-DVALUE_OF=2", "-O3") != default
    monkeypatch.setattr(module, "_zig_version", lambda: "another")
    runtime.make("c")
    assert runtime.compiled == 6


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "folder"])
def test_what_is_not_whole_is_compiled_again(damage: str, runtime: Runtime) -> None:
    first = runtime.make("a")
    kept = runtime.kept()
    content = kept.read_bytes()
    match damage:
        case "cut":
            kept.write_bytes(content[:-7])
        case "changed":
            kept.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        case "empty":
            kept.write_bytes(b"")
        case "folder":
            kept.unlink()
            kept.mkdir()
    assert (runtime.make("b"), runtime.compiled) == (first, 4)
    assert runtime.kept().name == kept.name  # nothing is left behind
    if damage != "folder":
        assert kept.read_bytes() == content


def test_without_a_cache_they_are_compiled_each_time(runtime: Runtime) -> None:
    runtime.cache.touch()
    first = runtime.make("a")
    assert (runtime.make("b"), runtime.compiled) == (first, 4)


def test_a_cache_that_is_somebody_elses_is_left_alone(runtime: Runtime) -> None:
    runtime.cache.mkdir()
    (runtime.cache / "nnefc").write_text("somebody's")
    first = runtime.make("a")
    assert (runtime.make("b"), runtime.compiled) == (first, 4)
    assert os.listdir(runtime.cache) == ["nnefc"]
