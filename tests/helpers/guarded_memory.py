"""Libraries in whose sessions every buffer ends at a protected page, and runs in a process that may die.

    with guarded():
        artifact = nnefc.compile(path)
    outputs = run_apart(artifact, [feeds, feeds])

What a kernel reads or writes beyond the end of a buffer kills the process. Buffers begin at multiples of 64 bytes, so
that what is read beyond the end by less than that may stay unseen.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import patch

import numpy as np

import nnefc
from nnefc.targets.link import toolchain

__all__ = ["CAN_GUARD", "guarded", "run_apart"]

CAN_GUARD = sys.platform == "linux" and mmap.PAGESIZE == 4096
_SOURCE = Path(__file__).parents[1] / "targets" / "runtime" / "c" / "guarded.c"
_RENAMED = {
    "system.c": ("nnefc_allocate_aligned unguarded_allocate", "nnefc_free_aligned unguarded_free"),
    "layout.c": ("nnefc_lay_out unguarded_lay_out",),
    "workspace.c": ("nnefc_workspace_fit unguarded_workspace_fit",),
}
"""What the runtime's own functions are called, so that others take their locations; callers of these in the same
file."""


@contextmanager
def guarded() -> Iterator[None]:
    """Inside, libraries of networks with dynamic sizes are linked with such memory."""
    with tempfile.TemporaryDirectory() as name:
        unguarded = toolchain.runtime_sources

        def renamed(source: Path) -> Path:
            """The file with other names; the compiler's cache tells files by what is in them."""
            if source.name not in _RENAMED:
                return source
            made = Path(name) / source.name
            lines = [f"#define {words}" for words in _RENAMED[source.name]]
            made.write_text("\n".join([*lines, source.read_text()]))
            return made

        def sources(description: toolchain.LibraryDescription) -> list[Path]:
            found = unguarded(description)
            return [*map(renamed, found), _SOURCE] if description.is_dynamic else found

        with patch.object(toolchain, "runtime_sources", sources):
            yield


def run_apart(
    artifact: nnefc.Artifact, feeds: Sequence[Mapping[str, np.ndarray]], threads: int = 1
) -> list[dict[str, np.ndarray] | str]:
    """The outputs of runs of one session, or the message of a run that fails.

    Raises:
        AssertionError: the process died.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(artifact, feeds, threads, theirs))
    process.start()
    theirs.close()
    made: list[dict[str, np.ndarray] | str] = []
    for number in range(len(feeds)):
        try:
            made.append(ours.recv())
        except EOFError:
            process.join()
            raise AssertionError(f"run {number} ended with status {process.exitcode}") from None
    process.join()
    return made


def _run(
    artifact: nnefc.Artifact, feeds: Sequence[Mapping[str, np.ndarray]], threads: int, connection: Connection
) -> None:
    with artifact.load(threads=threads) as library:
        for feed in feeds:
            try:
                connection.send(library.run({name: _at_the_end(array) for name, array in feed.items()}))
            except nnefc.RunError as error:
                connection.send(str(error))


def _at_the_end(array: np.ndarray) -> np.ndarray:
    """A copy that ends at a protected page."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + size), mmap.PAGESIZE, 0) == 0
    made = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes).reshape(array.shape)
    made[...] = array
    return made
