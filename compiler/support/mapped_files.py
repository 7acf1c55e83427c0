"""Maps input files into memory, and releases their pages after they have been read.

A constant of a network is a view of its file until a pass transforms it, so that no copy is made. What passes make of
large constants lies in temporary files once there is much of it. Resident pages of a file count as memory of the
process, so they are released after use.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import tvm

__all__ = [
    "ALIGNMENT",
    "LARGE",
    "VIEWED",
    "aligned",
    "aligned_copy",
    "empty_array",
    "is_mapped",
    "kept",
    "map_file",
    "map_path",
    "release_pages",
    "stream_of",
    "tensor_of",
]

Array = npt.NDArray[Any]

ALIGNMENT = 64
"""Bytes, of what code of TVM's reads."""

LARGE = 1 << 16
"""Bytes from which on an array shares the memory of its file, whose pages are released when it has been read."""

VIEWED = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""Types that NumPy's DLPack does not know, and the integers that it is given instead."""

_live: weakref.WeakValueDictionary[int, mmap.mmap] = weakref.WeakValueDictionary()
"""Input files, by where they begin in memory."""

_MAX_IN_MEMORY = 1 << 26
"""Bytes of large arrays that are in the process's own memory at a time; further ones are in temporary files."""

_PART = 1 << 25
"""Bytes of an array that are copied at a time."""

_MIN_FILE = 1 << 26
"""Bytes of a temporary file, which several arrays are in."""


def map_file(descriptor: int, size: int) -> npt.NDArray[np.uint8]:
    """A file's bytes, read when they are touched; `size` is not 0. Not to be written to, though the memory could be."""
    content = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)
    array = np.frombuffer(content, np.uint8)
    _live[array.ctypes.data] = content
    array.flags.writeable = False
    return array


def map_path(path: Path) -> npt.NDArray[np.uint8]:
    """The bytes of the file at `path`, which is not empty, as :func:`map_file` has them.

    Raises:
        OSError: it cannot be opened.
    """
    with path.open("rb") as file:
        return map_file(file.fileno(), os.fstat(file.fileno()).st_size)


def aligned_copy(array: Array, dtype: npt.DTypeLike | None = None) -> Array:
    """A dense copy of an array, not to be written to, that begins where tensors of TVM's do: these can share it.

    Pages of what has been copied are released after each part along the first axis.

    Args:
        dtype: the element type of the copy, if it differs from that of `array`.
    """
    made = empty_array(array.shape, array.dtype if dtype is None else dtype)
    if array.nbytes < LARGE:
        np.copyto(made, array)
    else:
        step = max(1, _PART * len(array) // array.nbytes)
        for start in range(0, len(array), step):
            np.copyto(made[start : start + step], array[start : start + step])
            release_pages()
    made.flags.writeable = False
    return made


class _Arrays:
    """Memory of large arrays: first the process's own, then that of temporary files."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may run in a thread that holds it
        self._in_memory = 0
        self._files: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self._room: npt.NDArray[np.uint8] = np.empty(0, np.uint8)  # what is left of the last file
        self._process = 0  # that made it: a fork shares the file's memory

    def is_full(self, size: int) -> bool:
        """Whether so many further bytes are in a file."""
        return self._in_memory + size > _MAX_IN_MEMORY

    def memory(self, size: int) -> npt.NDArray[np.uint8]:
        """Bytes that begin at a multiple of `ALIGNMENT`."""
        with self._lock:
            if self.is_full(size) and (found := self._in_file(size)) is not None:
                return found
            memory = np.empty(size + ALIGNMENT, np.uint8)
            self._in_memory += size
            weakref.finalize(memory, self._freed, size)
            start = -memory.ctypes.data % ALIGNMENT
            return memory[start : start + size]

    def _freed(self, size: int) -> None:
        with self._lock:
            self._in_memory -= size

    def _in_file(self, size: int) -> npt.NDArray[np.uint8] | None:
        """Bytes of a file without a name; None where there is no room for one."""
        if size > len(self._room) or self._process != os.getpid():
            found = sum(len(content) for content in self._files)
            try:
                content = _temporary_file(max(size, _MIN_FILE, found // 4))  # so that many arrays are in few files
            except OSError:
                return None
            self._files.add(content)
            self._room, self._process = np.frombuffer(content, np.uint8), os.getpid()
        taken = self._room[:size]
        self._room = self._room[-(-size // ALIGNMENT) * ALIGNMENT :]
        return taken

    def release_pages(self) -> None:
        """Lets the system have the pages of the files, which it writes."""
        with self._lock:
            for content in list(self._files):
                content.madvise(mmap.MADV_DONTNEED)


def _temporary_file(size: int) -> mmap.mmap:
    """Maps a new file of a size, which goes away with its mapping.

    Raises:
        OSError: it cannot be made, or there is not so much room: to find that out when pages are written would end the
            process.
    """
    with tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
        return mmap.mmap(file.fileno(), size)


_arrays = _Arrays()


def empty_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An array to be filled, aligned as tensors of TVM's; a large one may be in a temporary file, which its pages go to
    when they are released.
    """
    made = np.dtype(dtype)
    size = math.prod(shape) * made.itemsize
    if size < LARGE:
        return np.empty(shape, made)
    return _arrays.memory(size).view(made).reshape(shape)


def tensor_of(array: Array) -> tvm.runtime.Tensor:
    """Returns a tensor of TVM's; a large one shares the memory of an array that cannot be written to.

    It begins where the array does, in files at any byte: what runs code of TVM's on it calls :func:`aligned` first.
    """
    import tvm
    import tvm_ffi

    viewed = VIEWED.get(str(array.dtype))
    if array.nbytes < LARGE or (array.dtype.kind not in "biuf" and viewed is None):
        return tvm.runtime.tensor(array)
    if array.flags.writeable:
        array = aligned_copy(array)
    shared = array.view(viewed) if viewed else array.view()
    try:
        shared.flags.writeable = True  # as DLPack wants it
    except ValueError:  # memory of somebody who does not allow it
        return tvm.runtime.tensor(array)
    tensor: tvm.runtime.Tensor = tvm_ffi.from_dlpack(shared)
    return tensor._create_view(array.shape, str(array.dtype)) if viewed else tensor


def aligned(tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
    """Returns the tensor itself, or a copy that code of TVM's may read if it begins elsewhere."""
    if tensor.data_ptr() % ALIGNMENT == 0:
        return tensor
    import tvm

    return tvm.runtime.empty(tensor.shape, tensor.dtype).copyfrom(tensor)


def is_mapped(array: Array) -> bool:
    """Returns whether an array is a view of a mapped file."""
    at = array.ctypes.data
    return any(start <= at < start + len(content) for start, content in list(_live.items()))


def kept(tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
    """Returns a tensor that was computed, or where its elements are kept as :func:`empty_array` does."""
    if str(tensor.dtype) in VIEWED:
        return tensor
    array = np.from_dlpack(tensor)
    return tensor_of(aligned_copy(array)) if array.nbytes >= LARGE and _arrays.is_full(array.nbytes) else tensor


def release_pages() -> None:
    """Let the system have the pages of all mapped files; they are read again when they are touched again."""
    if hasattr(mmap, "MADV_DONTNEED"):
        for content in list(_live.values()):
            content.madvise(mmap.MADV_DONTNEED)
        _arrays.release_pages()


def stream_of(array: npt.NDArray[np.uint8]) -> io.BufferedReader:
    """Returns a file to read of bytes in memory, without a copy of them."""
    return io.BufferedReader(_Stream(array))


class _Stream(io.RawIOBase):
    def __init__(self, array: npt.NDArray[np.uint8]) -> None:
        self._content = array.data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._content)}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._content[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)
