"""Inputs for fuzzing what reads libraries and what is next to them: records, signatures, keys, weights, targets."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from runtime_samples import CONSTANTS, DYNAMIC_SAMPLE, SAMPLE, ZIG_TARGET, object_file

from nnefc.loader import load
from nnefc.loader.encrypted_weights import decrypted_weights
from nnefc.loader.files import check_file, labels_of, weights_next_to
from nnefc.loader.signature import check_signature, sign_library
from nnefc.targets.description.embedded_metadata import MARK, embedded_metadata
from nnefc.targets.description.library_file import file_kind, read_metadata
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.encrypted_weights import write_encrypted_weights
from nnefc.targets.link.outputs import write_network
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["INSTRUMENTED", "TARGETS", "mutate", "seeds"]

INSTRUMENTED = [
    "nnefc.loader.encrypted_weights",
    "nnefc.loader.files",
    "nnefc.loader.signature",
    "nnefc.targets.description.library_file",
    "nnefc.targets.machine",
]
KEY = bytes(range(32))

_kept = TemporaryDirectory(prefix="nnefc-fuzz-libraries-")
FOLDER = Path(_kept.name)
LIBRARY = FOLDER / "model.so"


def _made() -> None:
    """Write what inputs are changed from, once for a process."""
    if LIBRARY.exists():
        return
    blob, objects = Constants.of(CONSTANTS), [object_file("network.c")]
    write_network(objects, blob, SAMPLE, LIBRARY, zig_target=ZIG_TARGET, weights="separate")
    write_encrypted_weights(blob, KEY, FOLDER / "encrypted")
    private = Ed25519PrivateKey.generate()
    (FOLDER / "key").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (FOLDER / "key.pub").write_bytes(public)
    sign_library(LIBRARY, FOLDER / "key")
    (FOLDER / "signed").write_bytes((FOLDER / "model.so.sig").read_bytes())


def library(content: bytes, folder: Path) -> None:
    """A library: what is looked at before the system loads it."""
    path = folder / "model.so"
    path.write_bytes(content)
    file_kind(path)
    _read_record(path)
    check_file(path)


def record(content: bytes, folder: Path) -> None:
    """The text of a record in a file of nothing else."""
    path = folder / "record"
    path.write_bytes(MARK + struct.pack("<I", len(content)) + content)
    _read_record(path)


def _read_record(path: Path) -> None:
    read_metadata(path)
    labels_of(path)
    weights_next_to(path)


def signature(content: bytes, folder: Path) -> None:
    """The file that says who signed a library."""
    _made()
    (FOLDER / "model.so.sig").write_bytes(content)
    check_signature(LIBRARY, FOLDER / "key.pub")


def key(content: bytes, folder: Path) -> None:
    """The key that a signature is looked at with, and a private one that signs."""
    _made()
    (folder / "key").write_bytes(content)
    if b"PRIVATE" in content:
        sign_library(LIBRARY, folder / "key")
    else:
        (FOLDER / "model.so.sig").write_bytes((FOLDER / "signed").read_bytes())
        check_signature(LIBRARY, folder / "key")


def weights(content: bytes, folder: Path) -> None:
    """A weights file, which the runtime in C looks at."""
    _made()
    path = folder / "w"
    path.write_bytes(content)
    load(LIBRARY, weights=path, threads=1, weights_key=lambda _path: KEY).close()


def encrypted(content: bytes, folder: Path) -> None:
    """An encrypted one."""
    (folder / "w").write_bytes(content)
    found = decrypted_weights(folder / "w", KEY)
    if found is not None:
        found.close()


def target(content: bytes, folder: Path) -> None:
    """A target in words."""
    text = content.decode("utf-8", "replace")
    if not text.endswith(".json"):
        parse_any_target(text)


def target_file(content: bytes, folder: Path) -> None:
    """A target in JSON."""
    (folder / "t.json").write_bytes(content)
    parse_any_target(str(folder / "t.json"))


TARGETS = {
    b"L": library,
    b"R": record,
    b"S": signature,
    b"K": key,
    b"W": weights,
    b"X": encrypted,
    b"M": target,
    b"J": target_file,
}

WORDS = (
    *("llvm", "native", "cuda", "-multi", "x86-64-v3", "raspberrypi4", "cortex-m4", "wasm32-wasi", "sapphirerapids"),
    *("-mcpu=cortex-a72", "-mtriple=aarch64-linux-gnu", "-mattr=+dotprod,-fp16", "-precision=bf16"),
    *("-arch=sm_90", "-host=x86-64", "-mtriple=", "-mcpu=", "-mattr=+", "riscv64-linux-gnu", "-keys=", "'", '"', "\0"),
)
VALUES: tuple[Any, ...] = (
    0,
    -1,
    1 << 31,
    1 << 63,
    1 << 64,
    1e400,
    1.5,
    "",
    "x",
    "é\0",
    None,
    True,
    [],
    {},
    [[]],
    [0],
    [""],
)


def seeds() -> list[bytes]:
    """Valid inputs of every kind."""
    _made()
    records = [embedded_metadata(description) for description in (SAMPLE, DYNAMIC_SAMPLE)]
    machines = [
        {"name": "board", "triple": "aarch64-linux-gnu", "cpu": "cortex-a76", "attributes": ["-dotprod"]},
        {"triple": "x86_64-linux-gnu", "l1_bytes": 32768, "l2_bytes": 1 << 20},
    ]
    words = (
        "llvm",
        "x86-64-v3",
        "x86-64 -multi",
        "cuda -arch=sm_90",
        "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    )
    return [
        b"L" + LIBRARY.read_bytes(),
        *(b"R" + text[len(MARK) + 4 :] for text in records),
        b"S" + (FOLDER / "signed").read_bytes(),
        *(b"K" + (FOLDER / name).read_bytes() for name in ("key", "key.pub")),
        b"W" + (FOLDER / "model.weights").read_bytes(),
        b"X" + (FOLDER / "encrypted").read_bytes(),
        *(b"M" + text.encode() for text in words),
        *(b"J" + json.dumps(machine).encode() for machine in machines),
    ]


def mutate(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A neighbour of an input, of the same kind."""
    kind, content = data[:1], data[1:]
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if kind in b"RSJ" and random.random() < 0.7:
            content = _change_json(content, random)
        elif kind == b"M":
            words = content.decode("utf-8", "replace").split()
            words.insert(random.randrange(len(words) + 1), random.choice(WORDS))
            if random.random() < 0.5:
                del words[random.randrange(len(words))]
            content = " ".join(words).encode()
            if random.random() < 0.3:
                content = _change_bytes(content, random)
        else:
            content = _change_bytes(content, random)
    return kind + content


def _change_json(data: bytes, random: Random) -> bytes:
    """Change, remove or repeat one value of a JSON document."""
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        return _change_bytes(data, random)
    at = whole
    for _ in range(random.randint(0, 4)):
        inside = [each for each in _elements(at) if isinstance(each, (dict, list)) and each]
        if not inside:
            break
        at = random.choice(inside)
    if not isinstance(at, (dict, list)) or not at:
        return json.dumps(random.choice(VALUES)).encode()
    key: Any = random.choice(list(at)) if isinstance(at, dict) else random.randrange(len(at))
    match random.randrange(4):
        case 0:
            del at[key]
        case 1 if isinstance(at, list):
            at.insert(key, at[random.randrange(len(at))])
        case _:
            at[key] = random.choice(VALUES)
    return json.dumps(whole).encode()


def _elements(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _change_bytes(data: bytes, random: Random) -> bytes:
    """Some other bytes, mostly in the first ones, which are headers."""
    at, length = random.randrange(len(data) + 1), random.choice((1, 1, 2, 4, 16))
    if random.random() < 0.6:
        at = random.randrange(min(len(data), 96) + 1)
    match random.randrange(5):
        case 0:
            return data[:at] + data[at + length :]
        case 1:
            return data[:at] + random.randbytes(length) + data[at:]
        case 2:
            return (
                data[:at]
                + random.choice([b"\xff" * 8, bytes(8), b"\1" + bytes(7), b"\xff\xff\xff\x7f"])
                + data[at + 8 :]
            )
        case 3:
            return data[:at] + random.randbytes(length) + data[at + length :]
    return data[:at]
