"""Reads weights files encrypted with AES-256-GCM, and decrypts them into memory that is not backed by a file.

The layout is that of `targets/link/encrypted_weights.py`, which writes them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .tensors import LoadError

__all__ = ["DecryptedWeights", "WeightsKey", "decrypted_weights"]

WeightsKey = bytes | str | os.PathLike[str] | Callable[[Path], bytes]
"""The 32 bytes of a key, a file of these, or what returns them for the path of a weights file if it is encrypted."""

_MAGIC, _VERSION, _HEADER_BYTES = b"NNEFCWTS", 3, 4096
_PREAMBLE = struct.Struct("<8sIIQ8x11s5x")  # 48 bytes, which two tags of 16 follow
_TAG_BYTES, _KEY_BYTES = 16, 32
_PART = 1 << 20


class DecryptedWeights:
    """Constants in memory of this process alone, aligned to a page.

    Attributes:
        size: in bytes.
        address: where they are, until :meth:`close`.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        bytes_ = size + _TAG_BYTES  # the cipher wants room for a block more than it writes
        if hasattr(mmap, "MAP_PRIVATE"):
            # not shared with what is forked, as Python's own choice would be
            self._memory = mmap.mmap(-1, bytes_, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self._memory = mmap.mmap(-1, bytes_)
        if hasattr(mmap, "MADV_DONTDUMP"):  # a crash's core file is no location for them
            self._memory.madvise(mmap.MADV_DONTDUMP)
        self.view = memoryview(self._memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def close(self) -> None:
        """Give the memory back."""
        self.view.release()
        self._memory.close()


def decrypted_weights(path: Path, key: WeightsKey | None, content: Path | None = None) -> DecryptedWeights | None:
    """Returns the decrypted content of an encrypted weights file; None if the file is not encrypted, or missing.

    `content` is where it is read, if not at `path`.

    Raises:
        LoadError: there is no key or not the right one, the file is damaged or cannot be read, or it is not encrypted
            but there is a key (a function may be asked for none).
    """
    try:
        with open(content or path, "rb", buffering=0, opener=_without_waiting) as file:
            header = file.read(_PREAMBLE.size + 2 * _TAG_BYTES) or b""  # None: a pipe whose writer has not written
            if header[:12] != struct.pack("<8sI", _MAGIC, _VERSION):
                if key is None or callable(key):
                    return None
                raise LoadError(f"{path} is not an encrypted weights file: load the library without a key for it")
            if key is None:
                raise LoadError(
                    f"{path} is encrypted: give its key, load(…, weights_key=FILE), on the command line --weights-key"
                )
            return _decrypted(path, file, header, _bytes_of(key, path))
    except OSError as error:
        if key is None:  # the library says what is wrong with it
            return None
        raise LoadError(f"{path} cannot be read: {error.strerror}") from error


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file as usual; a pipe would have it wait for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _decrypted(path: Path, file: Any, header: bytes, key: bytes) -> DecryptedWeights:
    size = os.fstat(file.fileno()).st_size
    if len(header) < _PREAMBLE.size + 2 * _TAG_BYTES or size < _HEADER_BYTES:
        raise LoadError(f"{path} is cut off: it has {size} bytes; copy it again")
    preamble, of_header, of_constants = header[:48], header[48:64], header[64:80]
    *_, count, randomness = _PREAMBLE.unpack(preamble)
    decryptor_of, wrong = _cryptography()
    try:
        decryptor_of(key, randomness + b"\0", of_header, preamble).finalize()
    except wrong:
        raise LoadError(f"{path} was encrypted with another key, or its first bytes are damaged") from None
    if size != _HEADER_BYTES + count:
        raise LoadError(f"{path} is cut off: it has {size} bytes of {_HEADER_BYTES + count}; copy it again")
    decryptor = decryptor_of(key, randomness + b"\1", of_constants, preamble)
    made = DecryptedWeights(count)
    try:
        file.seek(_HEADER_BYTES)
        part, at = memoryview(bytearray(_PART)), 0
        while at < count and (read := file.readinto(part)) > 0:
            with made.view[at:] as location:
                at += decryptor.update_into(part[: min(read, count - at)], location)
        decryptor.finalize()
    except wrong:
        made.close()
        raise LoadError(f"{path} is damaged, or was changed after it was encrypted; copy it again") from None
    except BaseException:
        made.close()
        raise
    return made


def _bytes_of(key: WeightsKey, path: Path) -> bytes:
    """The key itself."""
    if callable(key):
        found, name = key(path), "what the function weights_key returns"
    elif isinstance(key, (bytes, bytearray)):
        found, name = bytes(key), "weights_key"
    else:
        try:
            with open(key, "rb") as file:
                found, name = file.read(_KEY_BYTES + 1), os.fspath(key)
        except OSError as error:
            raise LoadError(f"the key {os.fspath(key)} cannot be read: {error.strerror}") from error
    if not isinstance(found, (bytes, bytearray)) or len(found) != _KEY_BYTES:
        raise LoadError(f"{name} is not a key of {_KEY_BYTES} bytes, as openssl rand -out KEY {_KEY_BYTES} makes them")
    return bytes(found)


def _cryptography() -> tuple[Callable[[bytes, bytes, bytes, bytes], Any], type[Exception]]:
    """What makes a decryptor of a key, a nonce, a tag and additional data; and what it raises of a wrong tag."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError as error:
        raise LoadError("encrypted weights need the package cryptography: pip install cryptography") from error

    def decryptor_of(key: bytes, nonce: bytes, tag: bytes, preamble: bytes) -> Any:
        decryptor = Cipher(algorithms.AES(key), modes.GCM(nonce, tag)).decryptor()
        decryptor.authenticate_additional_data(preamble)
        return decryptor

    return decryptor_of, InvalidTag
