"""Signed libraries: what is accepted, and every way in which it is not."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
import tempfile
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

import nnefc
from nnefc.cli import main
from nnefc.cli.commands.serve import samples
from nnefc.loader import LoadError, load, signature
from nnefc.loader.private_files import PrivateFile
from nnefc.loader.signature import check_signature, sign_library
from nnefc.serving.metrics import Metrics
from nnefc.serving.served import Served
from nnefc.serving.settings import Policy
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network

PASSWORD = b"secret"
X = np.ones(1024, np.float32)


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


@pytest.fixture(params=["memory", "folder"])
def copies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where copies lie in a folder, as on macOS and Windows, this one."""
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    if request.param == "folder":
        monkeypatch.delattr(os, "memfd_create")
    return folder


def test_what_was_checked_is_what_is_loaded(
    with_weights: Path, keys: tuple[Path, Path], copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though both files are changed as soon as they have been read."""
    sign_library(with_weights, keys[0])
    weights = with_weights.with_suffix(".weights")
    content = with_weights.read_bytes(), weights.read_bytes()
    copied = signature.private_copy

    def then_changed(source: Path, digest: str) -> PrivateFile:
        copy = copied(source, digest)
        source.write_bytes(b"changed")
        return copy

    monkeypatch.setattr(signature, "private_copy", then_changed)
    with load(with_weights, key=keys[1], threads=1) as model:
        assert with_weights.read_bytes() == weights.read_bytes() == b"changed"
        assert np.array_equal(model(X)[0], WEIGHTS)
        with model.session(threads=1) as other:
            assert np.array_equal(other(X)[0], WEIGHTS)
        assert model.file.read_bytes() == content[0]
        if "proc" in str(model.file):
            with pytest.raises(OSError), model.file.open("r+b") as file:
                file.write(b"x")
            assert not list(copies.iterdir())
        else:
            assert stat.S_IMODE(model.file.parent.stat().st_mode) == 0o700
    assert not list(copies.iterdir())


def test_several_signed_libraries_are_open_at_a_time(keys: tuple[Path, Path], tmp_path: Path) -> None:
    """Numbers of descriptors are used again, and the system's loader knows libraries by their paths."""
    paths = []
    for scale in (1.0, 2.0, 3.0):
        paths.append(Path(shutil.copy(sample_library(f"scaled{scale:g}", scale), tmp_path / f"{scale:g}.so")))
        sign_library(paths[-1], keys[0])
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with load(paths[0], key=keys[1], threads=1) as first, load(paths[1], key=keys[1], threads=1) as second:
            assert np.array_equal(second(X)[0], 2 * WEIGHTS)
            second.close()
            with load(paths[2], key=keys[1], threads=1) as third:
                assert np.array_equal(third(X)[0], 3 * WEIGHTS)
            assert np.array_equal(first(X)[0], WEIGHTS)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("command", ["run", "bench", "profile"])
def test_commands_demand_signatures(command: str, library: Path, keys: tuple[Path, Path]) -> None:
    arguments = {"run": ["--random", "0"], "bench": ["--runs", "1"], "profile": ["--runs", "1"]}[command]
    called = [command, str(library), "--key", str(keys[1]), *arguments]
    refused = CliRunner().invoke(main, called)
    assert refused.exit_code == 1 and "is not signed" in refused.output
    sign_library(library, keys[0])
    taken = CliRunner().invoke(main, called)
    assert taken.exit_code == 0 or "no times of its kernels" in taken.output, taken.output


def test_comparing_and_serving_demand_signatures(keys: tuple[Path, Path], tmp_path: Path) -> None:
    model, library = tmp_path / "m.nnef", tmp_path / "m.so"
    model.write_text("version 1.0; graph m(x) -> (y) { x = external<scalar>(shape = [2]); y = exp(x); }")
    nnefc.compile(model).export(library)
    called = ["compare", str(model), "--library", str(library), "--reference", "plain", "--key", str(keys[1])]
    assert "is not signed" in CliRunner().invoke(main, called).output
    serve = ["serve", str(library), "--key", str(keys[1]), "--port", "0", "--no-grpc"]
    assert "is not signed" in CliRunner().invoke(main, serve).output
    sign_library(library, keys[0])
    assert CliRunner().invoke(main, called).exit_code == 0
    Served(library, Policy(threads=1, signing_key=keys[1]), Metrics().of("n", "1"), samples).close()


def test_files_may_be_renamed_together(library: Path, keys: tuple[Path, Path]) -> None:
    sign_library(library, keys[0]).rename(library.with_name("other.so.sig"))
    check_signature(library.rename(library.with_name("other.so")), keys[1])


def test_a_library_without_a_signature(library: Path, keys: tuple[Path, Path]) -> None:
    with pytest.raises(LoadError, match=r"is not signed: there is no model\.so\.sig next to it"):
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
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"library": "0" * 64}))
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
    record = {"nnefc signature": 1, "library": "", "weights": "", "signature": base64.b64encode(bytes(64)).decode()}
    library.with_name("model.so.sig").write_text(json.dumps(record))
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
