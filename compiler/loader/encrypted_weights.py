"""Reads weights files encrypted with AES-256-GCM, and decrypts them into memory that is not backed by a file.

`targets/link/encrypted_weights.py` writes these files, and documents their layout.
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
"""A key of 32 bytes, a file with the key, or a function that returns the key for the path of an encrypted file."""

_MAGIC, _VERSION, _HEADER_BYTES = b"NNEFCWTS", 3, 4096
_PREAMBLE = struct.Struct("<8sIIQ8x11s5x")  # 48 bytes, followed by two tags of 16 bytes
_TAG_BYTES, _KEY_BYTES = 16, 32
_PART = 1 << 20


class DecryptedWeights:
    """Constants in private memory of this process, aligned to a page.

    Attributes:
        size: in bytes.
        view: the memory, with room for a cipher block after the constants.
        address: of the memory, valid until :meth:`close`.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        bytes_ = size + _TAG_BYTES  # the cipher requires a buffer with a block more than it writes
        if hasattr(mmap, "MAP_PRIVATE"):
            # Python's default, MAP_SHARED, would share the memory with forked processes
            self._memory = mmap.mmap(-1, bytes_, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self._memory = mmap.mmap(-1, bytes_)
        if hasattr(mmap, "MADV_DONTDUMP"):  # keep the decrypted constants out of core dumps
            self._memory.madvise(mmap.MADV_DONTDUMP)
        self.view = memoryview(self._memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def close(self) -> None:
        """Free the memory."""
        self.view.release()
        self._memory.close()


def decrypted_weights(path: Path, key: WeightsKey | None, content: Path | None = None) -> DecryptedWeights | None:
    """Return the decrypted content of an encrypted weights file; None if the file is not encrypted, or missing.

    Args:
        path: of the weights file, for messages and for the function `key`.
        key: by which it is encrypted; None: it must not be encrypted.
        content: the file to read, a copy; None: `path`.

    Raises:
        LoadError: the file is encrypted and the key is missing or wrong; the file is damaged or cannot be read; or it
            is not encrypted although a key, not a function, is given.
    """
    try:
        with open(content or path, "rb", buffering=0, opener=_without_waiting) as file:
            header = file.read(_PREAMBLE.size + 2 * _TAG_BYTES) or b""  # None: a pipe without data yet
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
        if key is None:  # the library itself reports that the file cannot be read
            return None
        raise LoadError(f"{path} cannot be read: {error.strerror}") from error


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking: opening a pipe would wait for a writer."""
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
            with made.view[at:] as target:
                at += decryptor.update_into(part[: min(read, count - at)], target)
        decryptor.finalize()
    except wrong:
        made.close()
        raise LoadError(f"{path} is damaged, or was changed after it was encrypted; copy it again") from None
    except BaseException:
        made.close()
        raise
    return made


def _bytes_of(key: WeightsKey, path: Path) -> bytes:
    """Return the 32 bytes of a key.

    Raises:
        LoadError: the key's file cannot be read, or the key has another length.
    """
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
    """Return a function that makes a decryptor, and the error that the decryptor raises for a wrong tag.

    The function takes the key, the nonce, the tag and the additional authenticated data.

    Raises:
        LoadError: the package `cryptography` is not installed.
    """
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
