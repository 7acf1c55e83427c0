"""Maps input files into memory, and releases their pages after they have been read.

A constant of a network is a view of its file until a pass transforms it, so that no copy is made. Resident pages of a
file count as memory of the process, so they are released after use.
"""

from __future__ import annotations

import io
import mmap
import os
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
    "is_mapped",
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
"""By where they begin in memory."""


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


def aligned_copy(array: Array) -> Array:
    """A copy of an array, not to be written to, that begins where tensors of TVM's do: these can share its memory."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    np.copyto(made, array)
    made.flags.writeable = False
    if array.nbytes >= LARGE:
        release_pages()
    return made


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


def release_pages() -> None:
    """Let the system have the pages of all mapped files; they are read again when they are touched again."""
    if hasattr(mmap, "MADV_DONTNEED"):
        for content in list(_live.values()):
            content.madvise(mmap.MADV_DONTNEED)


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
