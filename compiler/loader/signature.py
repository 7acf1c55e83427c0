"""Signs and verifies libraries: a file `NAME.so.sig` next to a library holds a signature of it and its weights file.

    {"nnefc signature": 1, "library": "<SHA-256>", "weights": "<SHA-256, or empty>", "signature": "<Ed25519, base64>"}

The signed message has the two digests (:func:`_message`) but no file names, so the files may be renamed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from .files import weights_next_to
from .private_files import PrivateFile, not_signed, private_copy
from .tensors import LoadError

__all__ = ["check_signature", "checked_copies", "sign_library"]

_MAX_BYTES = 4096


def sign_library(library: Path, key: Path, weights: Path | None = None, password: bytes | None = None) -> Path:
    """Sign a library and its weights file, and return the path of the signature file.

    Args:
        library: the file.
        key: a PEM file with an Ed25519 private key in PKCS #8, as `openssl genpkey -algorithm ed25519` writes it.
        weights: the library's weights file; None: the one in its folder, if it needs one.
        password: of the key's file, if it is encrypted.

    Raises:
        LoadError: a file cannot be read or written, or the key is of another kind.
    """
    ed25519, serialization = _cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        private = serialization.load_pem_private_key(_read(key), password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise LoadError(f"{key} is no private key that can be read: {error}") from error
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise LoadError(f"{key} is a key of another kind: make one with openssl genpkey -algorithm ed25519 -out {key}")
    weights = weights or weights_next_to(library)
    digests = _digest(library), "" if weights is None else _digest(weights)
    signed = base64.b64encode(private.sign(_message(*digests))).decode()
    record = {"nnefc signature": 1, "library": digests[0], "weights": digests[1], "signature": signed}
    path = library.with_name(f"{library.name}.sig")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(record) + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
        raise LoadError(f"{path} cannot be written: {error.strerror}, with {free:,} bytes free") from error
    return path


def check_signature(library: Path, key: Path, weights: Path | None = None) -> None:
    """Check a library, and its weights file if it has one, against the signature file next to it.

    Args:
        library: the file.
        key: the public key, a PEM file as `openssl pkey -pubout` writes it.
        weights: as for :func:`sign_library`.

    Raises:
        LoadError: there is no signature, it was made by another key, or the files are not those that were signed.
    """
    digests = _signed_digests(library, key)
    _check_digest(library, digests[0])
    weights = weights or weights_next_to(library)
    if weights is not None:
        _check_digest(weights, digests[1])


def checked_copies(library: Path, key: Path, weights: Path | None = None) -> tuple[PrivateFile, PrivateFile | None]:
    """Copy a library and its weights file to private files, and check the copies as :func:`check_signature`.

    Returns the copies of the library and of the weights file, the latter None if the library has none.

    Raises:
        LoadError: as :func:`check_signature`, or a file cannot be copied.
    """
    digests = _signed_digests(library, key)
    copy = private_copy(library, digests[0])
    try:
        weights = weights or weights_next_to(library, copy.path)
        return copy, None if weights is None else private_copy(weights, digests[1])
    except BaseException:
        copy.close()
        raise


def _signed_digests(library: Path, key: Path) -> tuple[str, str]:
    """Return the digests of a library and its weights file in the signature file, after verifying the signature."""
    ed25519, serialization = _cryptography()
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    if not library.exists():
        raise LoadError(f"{library} does not exist")
    try:
        public = serialization.load_pem_public_key(_read(key))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise LoadError(f"{key} is no public key that can be read: {error}") from error
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise LoadError(f"{key} is a key of another kind than those that sign libraries, Ed25519")
    path = library.with_name(f"{library.name}.sig")
    if not path.exists():  # the library may be a symbolic link, with the signature next to its target
        real = Path(os.path.realpath(library))
        path = real.with_name(f"{real.name}.sig")
    if not path.exists():
        raise LoadError(f"{library} is not signed: there is no {path.name} next to it; nnefc sign makes one")
    digests, signature = _parsed(path)
    try:
        public.verify(signature, _message(*digests))
    except InvalidSignature:
        raise LoadError(f"{path} was not made by the key of {key}, or was changed since") from None
    return digests


def _check_digest(file: Path, digest: str) -> None:
    if _digest(file) != digest:
        raise not_signed(file)


def _message(library: str, weights: str) -> bytes:
    return f"nnefc signature 1\nlibrary {library}\nweights {weights}\n".encode()


def _parsed(path: Path) -> tuple[tuple[str, str], bytes]:
    try:
        record = json.loads(_read(path))
        if record["nnefc signature"] != 1:
            raise LoadError(f"{path} is a signature of a later version: use a later nnefc")
        digests = record["library"], record["weights"]
        if not all(isinstance(digest, str) and len(digest) in (0, 64) for digest in digests):
            raise ValueError
        return digests, base64.b64decode(record["signature"], validate=True)
    except (ValueError, TypeError, KeyError, RecursionError, binascii.Error):
        raise LoadError(f"{path} is not a signature that nnefc made") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from error


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}") from error


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise LoadError("signatures need the package cryptography: pip install cryptography") from error
    return ed25519, serialization
