"""Writes trained values to a separate file encrypted with AES-256-GCM, which the loader decrypts.

The file is a header of a page, then the constants, encrypted:

     0  "NNEFCWTS"
     8  uint32: version of this layout, 3        12  uint32: bytes before the constants, 4096
    16  uint64: bytes of the constants           24  zeros
    32  11 random bytes                          43  zeros
    48  the tag of the header                    64  the tag of the constants
    80  zeros

Numbers are little-endian. There are two messages under the file's key, with the first 48 bytes as their additional
data: an empty one, whose tag tells whether a key is the right one, and the constants. Their nonces are the random bytes
and a byte that is 0 for the former, 1 for the latter.
"""

from __future__ import annotations

import secrets
import struct
from pathlib import Path
from typing import Any

from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.constants import Constants

__all__ = ["read_key", "write_encrypted_weights"]

_MAGIC, _VERSION, _HEADER_BYTES = b"NNEFCWTS", 3, 4096
_PREAMBLE = struct.Struct("<8sIIQ8x11s5x")
_KEY_BYTES = 32
_MAX_BYTES = (1 << 36) - 32
"""Of a message: what one nonce of GCM is good for (NIST SP 800-38D, section 5.2.1.1)."""


def read_key(path: Path) -> bytes:
    """Returns the key in a file that consists of its 32 bytes.

    Raises:
        CompileError: it cannot be read, or has another size.
    """
    try:
        with path.open("rb") as file:
            key = file.read(_KEY_BYTES + 1)
    except OSError as error:
        raise CompileError(f"the key {path} cannot be read: {error.strerror}") from error
    return _checked(key, str(path))


def write_encrypted_weights(constants: Constants, key: bytes, path: Path) -> None:
    """Writes the file `path` with `constants`, of which nothing is in any file that is not encrypted.

    Raises:
        CompileError: a key of another size than 32 bytes, constants of more than 64 GiB, or there is no `cryptography`.
    """
    _checked(key, "the key")
    if constants.size > _MAX_BYTES:
        raise CompileError(f"the constants have {constants.size} bytes, and {_MAX_BYTES} at most can be encrypted")
    randomness = secrets.token_bytes(11)
    preamble = _PREAMBLE.pack(_MAGIC, _VERSION, _HEADER_BYTES, constants.size, randomness)
    of_header = _encryptor(key, randomness + b"\0", preamble)
    of_header.finalize()
    encryptor = _encryptor(key, randomness + b"\1", preamble)
    with path.open("wb") as file:
        file.seek(_HEADER_BYTES)
        for piece in constants.pieces():
            file.write(encryptor.update(piece))
        encryptor.finalize()
        file.truncate(_HEADER_BYTES + constants.size)
        file.seek(0)
        file.write(preamble + of_header.tag + encryptor.tag)


def _checked(key: bytes, name: str) -> bytes:
    if len(key) != _KEY_BYTES:
        size = f"{len(key)} bytes" if len(key) <= _KEY_BYTES else f"more than {_KEY_BYTES} bytes"
        raise CompileError(f"{name} has {size}, but a key has {_KEY_BYTES}", hint="openssl rand -out KEY 32 makes one")
    return key


def _encryptor(key: bytes, nonce: bytes, preamble: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError as error:
        raise CompileError("encrypting needs the package cryptography", hint="pip install cryptography") from error
    encryptor = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(preamble)
    return encryptor
