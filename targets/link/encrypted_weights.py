"""Writes trained values to a separate file, encrypted.

Images for machines without an operating system, and for C source, are encrypted with AES in EAX mode: their layout is
in `description/encrypted_image.py`, which decrypts them. Files for libraries are encrypted with AES-256-GCM, and the
loader decrypts them. Such a file is a header of a page, then the constants, encrypted:

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
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.encrypted_image import encrypted_header
from nnefc.targets.description.weights_image import WeightsImage
from nnefc.targets.link.constants import Constants

__all__ = ["check_encryption", "encrypt_eax", "read_key", "write_encrypted_image", "write_encrypted_weights"]

_MAGIC, _VERSION, _HEADER_BYTES = b"NNEFCWTS", 3, 4096
_PREAMBLE = struct.Struct("<8sIIQ8x11s5x")
_KEY_BYTES, _IMAGE_KEY_BYTES = (32,), (16, 32)
_MAX_BYTES = (1 << 36) - 32
"""Of a message: what one nonce of GCM is good for (NIST SP 800-38D, section 5.2.1.1)."""


def read_key(path: Path) -> bytes:
    """Returns the key in a file that consists of its 32 bytes, or its 16 bytes: images may have a key of AES-128.

    Raises:
        CompileError: it cannot be read, or has another size.
    """
    try:
        with path.open("rb") as file:
            key = file.read(max(_IMAGE_KEY_BYTES) + 1)
    except OSError as error:
        raise CompileError(f"the key {path} cannot be read: {error.strerror}") from error
    return _checked(key, str(path), _IMAGE_KEY_BYTES)


def check_encryption(key: bytes | None, weights: str, constants: Constants | None) -> None:
    """Refuses a key where there are no constants in a file of their own.

    Raises:
        CompileError: constants in the library, or a network without any.
    """
    if key is not None and weights != "separate":
        raise CompileError(
            "constants in the library cannot be encrypted", hint="have them in a file, weights='separate'"
        )
    if key is not None and constants is None:
        raise CompileError("the network has no constants that could be encrypted", hint="write it without a key")


def write_encrypted_weights(constants: Constants, key: bytes, path: Path) -> None:
    """Writes the file `path` with `constants`, of which nothing is in any file that is not encrypted.

    Raises:
        CompileError: a key of another size than 32 bytes, constants of more than 64 GiB, or there is no `cryptography`.
    """
    _checked(key, "the key", _KEY_BYTES)
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


def write_encrypted_image(constants: Constants, image: WeightsImage, key: bytes, version: int, path: Path) -> None:
    """Writes the file `path` with an encrypted image.

    Args:
        constants: the trained values.
        image: what the code expects of them.
        key: 16 or 32 bytes.
        version: of the weights, by which devices may refuse older ones.
        path: the file.

    Raises:
        CompileError: a key of another size, a version that has more than 32 bits, or there is no `cryptography`.
    """
    _checked(key, "the key", _IMAGE_KEY_BYTES)
    if not 0 <= version < 1 << 32:
        raise CompileError(f"the version of the weights is {version}", hint="give a number from 0 to 4294967295")
    header, nonce = encrypted_header(image.size, image.identity, version), secrets.token_bytes(16)
    head: list[bytes | memoryview] = [image.header(constants.pieces())]
    pieces = chain(head, constants.pieces())
    with path.open("wb") as file:
        file.write(header + nonce + bytes(16))
        tag = encrypt_eax(key, nonce, header, pieces, file.write)
        file.seek(len(header) + len(nonce))
        file.write(tag)


def encrypt_eax(
    key: bytes, nonce: bytes, header: bytes, message: Iterable[bytes | memoryview], write: Callable[[bytes], object]
) -> bytes:
    """Encrypts a message by AES in EAX mode; returns the tag, of 16 bytes.

    Args:
        key: of AES.
        nonce: which no other message under this key has.
        header: what the tag vouches for besides.
        message: in pieces.
        write: is called with each piece, encrypted.
    """
    ciphers = _ciphers()

    def mac(number: int) -> Any:
        made = ciphers.cmac.CMAC(ciphers.algorithms.AES(key))
        made.update(bytes([*[0] * 15, number]))
        return made

    of_nonce, of_header, of_message = map(mac, range(3))
    of_nonce.update(nonce)
    of_header.update(header)
    first = of_nonce.finalize()
    encryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CTR(first)).encryptor()
    for piece in message:
        encrypted = encryptor.update(piece)
        of_message.update(encrypted)
        write(encrypted)
    tags = first, of_header.finalize(), of_message.finalize()
    return bytes(a ^ b ^ c for a, b, c in zip(*tags, strict=True))


def _checked(key: bytes, name: str, sizes: tuple[int, ...]) -> bytes:
    if len(key) not in sizes:
        size = f"{len(key)} bytes" if len(key) <= max(sizes) else f"more than {max(sizes)} bytes"
        raise CompileError(
            f"{name} has {size}, but a key has {' or '.join(map(str, sizes))}",
            hint=f"openssl rand -out KEY {max(sizes)} makes one",
        )
    return key


def _ciphers() -> SimpleNamespace:
    """Returns what is needed of `cryptography`."""
    try:
        from cryptography.hazmat.primitives import cmac
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError as error:
        raise CompileError("encrypting needs the package cryptography", hint="pip install cryptography") from error
    return SimpleNamespace(cmac=cmac, Cipher=Cipher, algorithms=algorithms, modes=modes)


def _encryptor(key: bytes, nonce: bytes, preamble: bytes) -> Any:
    ciphers = _ciphers()
    encryptor = ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(preamble)
    return encryptor
