"""Signed libraries: what is accepted, and every way in which it is not."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("cryptography", reason="needs: nnefc[sign]")

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from runtime_samples import CONSTANTS, SAMPLE, WEIGHTS, ZIG_TARGET, object_file, sample_library

from nnefc.cli import main
from nnefc.loader import LoadError, load
from nnefc.loader.signature import check_signature, sign_library
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network

PASSWORD = b"secret"


def write_keys(folder: Path, name: str, password: bytes | None = None) -> tuple[Path, Path]:
    private = ed25519.Ed25519PrivateKey.generate()
    kept = BestAvailableEncryption(password) if password else NoEncryption()
    paths = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    paths[0].write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, kept))
    paths[1].write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return paths


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_keys(tmp_path_factory.mktemp("keys"), "key")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "model.so"
    path.write_bytes(sample_library().read_bytes())
    return path


@pytest.fixture
def with_weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.so"
    blob = Constants.of(CONSTANTS)
    write_network([object_file("network.c")], blob, SAMPLE, path, zig_target=ZIG_TARGET, weights="separate")
    return path


def test_a_signed_library_loads(library: Path, keys: tuple[Path, Path]) -> None:
    assert sign_library(library, keys[0]) == library.with_name("model.so.sig")
    with load(library, key=keys[1]) as model:
        assert np.array_equal(model(np.ones(1024, np.float32))[0], WEIGHTS)


def test_what_is_checked_is_what_a_link_leads_to(with_weights: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    sign_library(with_weights, keys[0])
    link = tmp_path / "current" / with_weights.name
    link.parent.mkdir()
    link.symlink_to(with_weights)
    check_signature(link, keys[1])
    weights = with_weights.with_suffix(".weights")
    link.with_name(weights.name).write_bytes(weights.read_bytes())
    weights.write_bytes(b"changed")
    with pytest.raises(LoadError, match="not the file that was signed"):
        check_signature(link, keys[1])


def test_files_may_be_renamed_together(library: Path, keys: tuple[Path, Path]) -> None:
    sign_library(library, keys[0]).rename(library.with_name("other.so.sig"))
    check_signature(library.rename(library.with_name("other.so")), keys[1])


def test_a_library_without_a_signature(library: Path, keys: tuple[Path, Path]) -> None:
    with pytest.raises(LoadError, match=r"is not signed: there is no model\.so\.sig beside it"):
        load(library, key=keys[1])


def test_another_key(library: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    sign_library(library, write_keys(tmp_path, "other")[0])
    with pytest.raises(LoadError, match="was not made by the key of"):
        load(library, key=keys[1])


def test_a_changed_library(library: Path, keys: tuple[Path, Path]) -> None:
    sign_library(library, keys[0])
    content = bytearray(library.read_bytes())
    content[5000] ^= 1
    library.write_bytes(content)
    with pytest.raises(LoadError, match="is not the file that was signed"):
        load(library, key=keys[1])


def test_a_changed_weights_file(with_weights: Path, keys: tuple[Path, Path]) -> None:
    sign_library(with_weights, keys[0])
    load(with_weights, key=keys[1]).close()
    weights = with_weights.with_suffix(".weights")
    weights.write_bytes(weights.read_bytes() + b"x")
    with pytest.raises(LoadError, match=r"model\.weights is not the file that was signed"):
        load(with_weights, key=keys[1])


def test_weights_elsewhere(with_weights: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    sign_library(with_weights, keys[0])
    elsewhere = with_weights.with_suffix(".weights").rename(tmp_path / "elsewhere")
    load(with_weights, key=keys[1], weights=elsewhere).close()


def test_a_digest_that_is_exchanged_is_not_what_was_signed(library: Path, keys: tuple[Path, Path]) -> None:
    path = sign_library(library, keys[0])
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"library": "0" * 64}))
    with pytest.raises(LoadError, match="or was changed since"):
        load(library, key=keys[1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"nnefc signature": 1}',
        '{"nnefc signature": 1, "library": 3, "weights": "", "signature": ""}',
        '{"nnefc signature": 1, "library": "", "weights": "", "signature": "?"}',
        "[" * 4000,
    ],
)
def test_files_that_are_no_signatures(text: str, library: Path, keys: tuple[Path, Path]) -> None:
    library.with_name("model.so.sig").write_text(text)
    with pytest.raises(LoadError, match="is not a signature that nnefc made"):
        load(library, key=keys[1])


def test_a_signature_of_nothing(library: Path, keys: tuple[Path, Path]) -> None:
    said = {"nnefc signature": 1, "library": "", "weights": "", "signature": base64.b64encode(bytes(64)).decode()}
    library.with_name("model.so.sig").write_text(json.dumps(said))
    with pytest.raises(LoadError, match="was not made by the key"):
        load(library, key=keys[1])


def test_a_later_version(library: Path, keys: tuple[Path, Path]) -> None:
    library.with_name("model.so.sig").write_text('{"nnefc signature": 2}')
    with pytest.raises(LoadError, match="a later version"):
        load(library, key=keys[1])


def test_keys_of_other_kinds(library: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    private, public = tmp_path / "ec.pem", tmp_path / "ec.pub.pem"
    private.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(LoadError, match="a key of another kind: make one with openssl genpkey -algorithm ed25519"):
        sign_library(library, private)
    sign_library(library, keys[0])
    with pytest.raises(LoadError, match="a key of another kind than those that sign"):
        load(library, key=public)
    with pytest.raises(LoadError, match="no public key that can be read"):
        load(library, key=keys[0])
    with pytest.raises(LoadError, match="no private key that can be read"):
        sign_library(library, keys[1])


def test_the_commands(library: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "locked", PASSWORD)
    refused = CliRunner().invoke(main, ["sign", str(library), "--key", str(private)])
    assert refused.exit_code == 1
    assert "no private key that can be read" in refused.output
    made = CliRunner().invoke(
        main, ["sign", str(library), "--key", str(private), "--ask-password"], input=PASSWORD.decode() + "\n"
    )
    assert made.exit_code == 0, made.output
    assert CliRunner().invoke(main, ["verify", str(library), "--key", str(public)]).exit_code == 0
    library.with_name("model.so.sig").unlink()
    missing = CliRunner().invoke(main, ["verify", str(library), "--key", str(public)])
    assert missing.exit_code == 1
    assert "is not signed" in missing.output
