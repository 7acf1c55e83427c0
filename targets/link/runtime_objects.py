"""Compiles the runtime's objects once per kind of machine, and caches them.

They are in the user's cache, `nnefc/runtime-DIGEST.objects` under the folder where zig keeps the stubs of C libraries,
about 60 KB for each kind of machine. The digest is of all that they are made from: what is there is never out of date.
It may be removed at any time. Where no cache can be written, they are compiled for every library.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnefc.support.distribution import versions_of
from nnefc.support.user_folders import user_cache
from nnefc.targets.link.zig import run_compiler, zig

__all__ = ["SHARED", "joined_sources", "runtime_objects"]

_LOG = logging.getLogger(__name__)

SHARED = ("", "machine", "threads")
"""Folders of the runtime whose files all libraries share, but for what a device or a small library leaves out."""

_TOGETHER = (
    SHARED,
    ("run_control", "log", "shared_threads", "states", "profile", "levels", "selection", "checked"),
    ("open",),
    ("text",),
)
"""Folders whose files are compiled as one: in each group, all that is in a file has a name of its own."""

_CHECKSUM_BYTES, _SIZE_BYTES = 32, 8

_NOTE = "compiling the runtime and the C library: once for each kind of machine"
_NOTE_WITHOUT_CACHE = "compiling the runtime: each time, for there is no cache that can be written"


def runtime_objects(
    sources: Sequence[Path], headers: Path, command: Sequence[str], folder: Path, joined: bool
) -> list[Path]:
    """Objects of C files of the runtime: one of each group of `_TOGETHER`, and one of each other file.

    Together they compile in a third of the time: one compiler is started, and reads the headers once.

    Args:
        sources: the C files, each of another name.
        headers: the folder, where what they include is found.
        command: zig's, with all options that say how to compile.
        folder: where the objects are put, and what else the compiler writes.
        joined: whether they become one object, which is sooner read and linked; zig makes it for the format ELF alone.

    Raises:
        CompileError: the compiler cannot be run, or fails.
        OSError: `folder` cannot be written.
    """
    units = _units(sources, headers)
    names = [f"runtime_{last.stem}" for *_, last in units]
    objects = [folder / "runtime.o"] if joined else [folder / f"{name}.o" for name in names]
    kept = _kept(_digest(sources, headers, [*command, *["-r"] * joined, *names]))
    if kept is None or not _unpacked(kept, objects):
        _LOG.info(_NOTE if kept is not None else _NOTE_WITHOUT_CACHE)
        words = [*command, f"-I{headers}"]
        files = [_one_file(unit, headers, folder / f"{name}.c") for unit, name in zip(units, names, strict=True)]
        if joined:  # one compiler is started for all, and links them
            run_compiler([*words, "-r", *map(str, files), "-o", str(objects[0])], folder)
        else:

            def compiled(file: Path, output: Path) -> None:
                run_compiler([*words, "-c", str(file), "-o", str(output)], folder)

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(compiled, files, objects))
        if kept is not None:
            _keep(objects, kept)
    return objects


def _units(sources: Sequence[Path], headers: Path) -> list[list[Path]]:
    """Returns the files of each group of folders, and each other file by itself."""
    groups = [{headers / folder for folder in folders} for folders in _TOGETHER]
    together = [[source for source in sources if source.parent in group] for group in groups]
    others = [source for source in sources if not any(source in unit for unit in together)]
    return [*filter(None, together), *([source] for source in others)]


def _one_file(unit: Sequence[Path], headers: Path, path: Path) -> Path:
    """Returns the only file of a unit, or writes one that includes all of them."""
    if len(unit) == 1:
        return unit[0]
    lines = [f'#include "{source.relative_to(headers).as_posix()}"' for source in unit]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def joined_sources(sources: Sequence[Path], headers: Path, folder: Path) -> list[Path]:
    """Returns C files of the runtime for another compiler: one in `folder` that includes those that all libraries
    share, which compile together in less than half of the time, and the others.
    """
    shared = [source for source in sources if source.parent in {headers / name for name in SHARED}]
    if not shared:
        return list(sources)
    lines = ["#if !defined(_WIN32)", "#define _GNU_SOURCE", "#endif"]
    lines += [f'#include "{source.as_posix()}"' for source in shared]
    (folder / "runtime.c").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return [folder / "runtime.c", *(source for source in sources if source not in shared)]


def _digest(sources: Sequence[Path], headers: Path, command: Sequence[str]) -> str:
    """Hashes the compiler, its options, and every file that it reads."""
    digest = hashlib.sha256()
    files = [*sources, *sorted(headers.rglob("*.h"))]
    for part in (_zig_version(), *command[len(zig()) :], *(path.name for path in files)):
        digest.update(f"{part}\0".encode())
    for path in files:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


@functools.cache  # to find it, every folder of packages is listed
def _zig_version() -> str:
    """Returns the version of zig; an empty text if it is not installed, which running it will say."""
    return versions_of(["ziglang"]).get("ziglang", "")


def _kept(digest: str) -> Path | None:
    """Returns the file of these objects, whether it is there or not; None without a cache."""
    cache = user_cache()
    return cache / "nnefc" / f"runtime-{digest}.objects" if cache is not None else None


def _unpacked(kept: Path, objects: Sequence[Path]) -> bool:
    """Writes the objects that are in `kept`; False if it is not there, or not whole."""
    try:
        content = kept.read_bytes()
    except OSError:
        return False
    checksum, body = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
    if hashlib.sha256(body).digest() != checksum:
        return False
    for path in objects:
        size, body = int.from_bytes(body[:_SIZE_BYTES], "little"), body[_SIZE_BYTES:]
        path.write_bytes(body[:size])
        body = body[size:]
    return True


def _keep(objects: Sequence[Path], kept: Path) -> None:
    """Puts the objects into the cache, whole or not at all: others may read and write it at the same time."""
    contents = [path.read_bytes() for path in objects]
    body = b"".join(len(content).to_bytes(_SIZE_BYTES, "little") + content for content in contents)
    with contextlib.suppress(OSError):  # a full disk, or a folder of another user: then they are compiled again
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=kept.parent) as scratch:
            new = Path(scratch) / kept.name
            new.write_bytes(hashlib.sha256(body).digest() + body)
            new.replace(kept)
