"""Encrypted weights: what is in the files, who can load them, and every way in which they are refused."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("cryptography", reason="needs: nnefc[encrypt]")

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from runtime_samples import CONSTANTS, SAMPLE, WEIGHTS, ZIG_TARGET, object_file

from nnefc.cli import main
from nnefc.loader import LoadError, load
from nnefc.loader.interface import OptionsStruct
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.encrypted_weights import read_key
from nnefc.targets.link.outputs import write_network

EXAMPLES = Path(__file__).parents[2] / "examples"
KEY = bytes(range(32))
X = np.arange(1024, dtype=np.float32)
HEADER = 4096


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encrypted") / "model.so"
    blob = Constants.of(CONSTANTS)
    write_network([object_file("network.c")], blob, SAMPLE, path, zig_target=ZIG_TARGET, weights="separate", key=KEY)
    return path


@pytest.fixture
def library(original: Path, tmp_path: Path) -> Path:
    shutil.copy(original.with_suffix(".weights"), tmp_path)
    return Path(shutil.copy(original, tmp_path))


def change(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def test_the_key_opens_it_as_bytes_as_a_file_and_by_a_function(library: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    asked: list[Path] = []
    for key in (KEY, tmp_path / "key", str(tmp_path / "key"), lambda path: asked.append(path) or KEY):
        with load(library, weights_key=key, threads=1) as model, model.session(threads=1) as other:
            assert np.array_equal(model(X)[0], X * WEIGHTS)
            assert [int(each(X)[1][0]) for each in (model, other)] == [7, 6]
    assert asked == [library.with_suffix(".weights")]


def test_a_link_leads_to_the_files_next_to_the_library(library: Path, tmp_path: Path) -> None:
    link = tmp_path / "current" / library.name
    link.parent.mkdir()
    link.symlink_to(library)
    with load(link, weights_key=KEY, threads=1) as model:
        assert np.array_equal(model(X)[0], X * WEIGHTS)


def test_nothing_can_be_read_in_the_files(library: Path) -> None:
    for path in (library, library.with_suffix(".weights")):
        content = path.read_bytes()
        for start in range(0, len(CONSTANTS) - 16, 16):
            part = CONSTANTS[start : start + 16]
            assert len(set(part)) < 8 or part not in content
    assert SAMPLE.model.encode() not in library.with_suffix(".weights").read_bytes()


def test_the_file_is_as_documented(library: Path) -> None:
    """By another function of the library for cryptography, as another language's would."""
    content = library.with_suffix(".weights").read_bytes()
    preamble, randomness = content[:48], content[32:43]
    assert int.from_bytes(content[16:24], "little") == len(CONSTANTS) == len(content) - HEADER
    assert AESGCM(KEY).decrypt(randomness + b"\0", content[48:64], preamble) == b""
    assert AESGCM(KEY).decrypt(randomness + b"\1", content[HEADER:] + content[64:80], preamble) == CONSTANTS
    assert not any(content[80:HEADER])


def test_two_files_have_nothing_in_common(library: Path, tmp_path: Path) -> None:
    blob, other = Constants.of(CONSTANTS), tmp_path / "other.so"
    write_network([object_file("network.c")], blob, SAMPLE, other, zig_target=ZIG_TARGET, weights="separate", key=KEY)
    first, second = (path.with_suffix(".weights").read_bytes() for path in (library, other))
    assert first[:32] == second[:32] and first[32:43] != second[32:43]
    assert sum(a == b for a, b in zip(first[HEADER:], second[HEADER:], strict=True)) < len(CONSTANTS) / 20
    with load(library, weights=other.with_suffix(".weights"), weights_key=KEY) as model:
        assert np.array_equal(model(X)[0], X * WEIGHTS)


def test_arrays_with_gaps_and_of_more_than_a_part(tmp_path: Path) -> None:
    from nnefc.loader.encrypted_weights import decrypted_weights
    from nnefc.targets.link.encrypted_weights import write_encrypted_weights

    values = np.random.default_rng(0).integers(0, 255, 3 << 20, np.uint8)
    constants = Constants((4 << 20) + 77, ((64, values), ((3 << 20) + 4096, values[:1001])))
    constants.save(tmp_path / "decrypted")
    write_encrypted_weights(constants, KEY, tmp_path / "w")
    found = decrypted_weights(tmp_path / "w", KEY)
    assert found is not None and found.size == constants.size and found.address % 4096 == 0
    assert ctypes.string_at(found.address, found.size) == (tmp_path / "decrypted").read_bytes()
    found.close()


def test_a_network_without_constants_has_nothing_to_encrypt(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="no constants that could be encrypted"):
        write_network([], None, SAMPLE, tmp_path / "m.so", zig_target=ZIG_TARGET, weights="separate", key=KEY)
    assert not any(tmp_path.iterdir())


def test_without_the_key(library: Path) -> None:
    with pytest.raises(
        LoadError, match=r"model\.weights is encrypted: give its key, .*weights_key=FILE.*--weights-key"
    ):
        load(library)


def test_with_another_key(library: Path) -> None:
    with pytest.raises(
        LoadError, match=r"model\.weights was encrypted with another key, or its first bytes are damaged"
    ):
        load(library, weights_key=bytes(32))


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), "none", lambda _path: None, lambda _path: "x" * 32])
def test_what_is_no_key(library: Path, tmp_path: Path, key: object) -> None:
    with pytest.raises(LoadError, match=r"is not a key of 32 bytes|the key .*none cannot be read: No such file"):
        load(library, weights_key=tmp_path / key if isinstance(key, str) else key)


@pytest.mark.parametrize("position", [16, 24, 32, 47, 48, 63])
def test_a_changed_header(library: Path, position: int) -> None:
    byte = library.with_suffix(".weights").read_bytes()[position]
    change(library.with_suffix(".weights"), position, bytes([byte ^ 1]))
    with pytest.raises(LoadError, match="with another key, or its first bytes are damaged"):
        load(library, weights_key=KEY)


@pytest.mark.parametrize("position", [64, 79, HEADER, HEADER + 1000, HEADER + len(CONSTANTS) - 1])
def test_changed_constants(library: Path, position: int) -> None:
    byte = library.with_suffix(".weights").read_bytes()[position]
    change(library.with_suffix(".weights"), position, bytes([byte ^ 128]))
    with pytest.raises(LoadError, match="is damaged, or was changed after it was encrypted"):
        load(library, weights_key=KEY)


@pytest.mark.parametrize("size", [12, 79, 80, HEADER - 1, HEADER, HEADER + 100, HEADER + len(CONSTANTS) + 1])
def test_a_file_that_is_cut_off_or_longer(library: Path, size: int) -> None:
    os.truncate(library.with_suffix(".weights"), size)
    with pytest.raises(LoadError, match=rf"is cut off: it has {size} bytes"):
        load(library, weights_key=KEY)


def test_a_file_of_another_network(library: Path, tmp_path: Path) -> None:
    blob, other = Constants.of(bytes(len(CONSTANTS))), tmp_path / "other.so"
    write_network([object_file("network.c")], blob, SAMPLE, other, zig_target=ZIG_TARGET, weights="separate", key=KEY)
    with pytest.raises(LoadError, match=r"constants is damaged, or belongs to another network"):
        load(library, weights=other.with_suffix(".weights"), weights_key=KEY)


def test_a_key_where_nothing_is_encrypted(tmp_path: Path) -> None:
    for weights in ("embedded", "separate"):
        path, blob = tmp_path / f"{weights}.so", Constants.of(CONSTANTS)
        write_network([object_file("network.c")], blob, SAMPLE, path, zig_target=ZIG_TARGET, weights=weights)
        with pytest.raises(LoadError, match=r"not (an )?encrypted.*load (it|the library) without a key for"):
            load(path, weights_key=KEY)
        with load(path, weights_key=lambda _path: KEY) as model:  # for many libraries, not all of which need it
            assert np.array_equal(model(X)[0], X * WEIGHTS)


def test_a_file_that_is_missing(library: Path) -> None:
    library.with_suffix(".weights").unlink()
    with pytest.raises(LoadError, match=r"model\.weights cannot be read: No such file"):
        load(library, weights_key=KEY)


def test_without_the_package(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(LoadError, match=r"need the package cryptography: pip install cryptography"):
        load(library, weights_key=KEY)


def test_constants_in_the_library_are_not_encrypted(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="constants in the library cannot be encrypted"):
        write_network([], None, SAMPLE, tmp_path / "m.so", zig_target=ZIG_TARGET, key=KEY)


@pytest.mark.parametrize(("content", "says"), [(b"x" * 31, "has 31 bytes"), (b"x" * 33, "has more than 32 bytes")])
def test_a_file_that_is_no_key(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(CompileError, match=says):
        read_key(tmp_path / "key")
    with pytest.raises(CompileError, match="cannot be read"):
        read_key(tmp_path)


def test_the_memory_is_given_back_and_not_in_core_files(library: Path) -> None:
    maps = Path("/proc/self/smaps")
    before = maps.read_text().count(" dd")
    with load(library, weights_key=KEY):
        assert maps.read_text().count(" dd") == before + 1
    assert maps.read_text().count(" dd") == before


# --- as a program in C sees it


def create(library: Path, **options: object) -> tuple[int, str]:
    dll = ctypes.CDLL(str(library), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    given = OptionsStruct(ctypes.sizeof(OptionsStruct), 1)
    for name, value in options.items():
        setattr(given, name, value)
    session = ctypes.c_void_p()
    dll.nnefc_last_error.restype = ctypes.c_char_p
    status = dll.nnefc_create(ctypes.byref(given), ctypes.byref(session))
    preamble = dll.nnefc_last_error(None).decode()
    dll.nnefc_destroy(session)
    return status, preamble


def test_a_library_takes_its_constants_from_memory(library: Path) -> None:
    memory = np.frombuffer(CONSTANTS + bytes(128), np.uint8).copy()
    start = -memory.ctypes.data % 64
    memory[start : start + len(CONSTANTS)] = np.frombuffer(CONSTANTS, np.uint8)
    position, size = memory.ctypes.data + start, len(CONSTANTS)
    assert create(library, constants=position, constant_bytes=size) == (0, "")
    assert create(library, constants=position + 8, constant_bytes=size)[0] == 1
    assert create(library, constants=position, constant_bytes=size - 1)[1].endswith(f"but the network has {size}")
    memory[start + 5] ^= 1
    assert create(library, constants=position, constant_bytes=size)[0] == 7
    status, preamble = create(library)
    assert status == 7 and "is encrypted: decrypt it, and give what is in it in nnefc_options.constants" in preamble


# --- the command line


@pytest.mark.slow
def test_from_the_command_line_to_a_run(tmp_path: Path) -> None:
    model = EXAMPLES / "digits" / "model.nnef"
    library, key = tmp_path / "digits.so", tmp_path / "key"
    key.write_bytes(KEY)
    runner = CliRunner()

    def nnefc(*words: object) -> tuple[int, str]:
        done = runner.invoke(main, [str(word) for word in words])
        return done.exit_code, done.output

    assert nnefc("compile", model, "-o", library, "--encrypt", key)[0] == 0
    assert sorted(os.listdir(tmp_path)) == ["digits.so", "digits.weights", "key"]
    assert nnefc("run", library, "--random", 0, "--weights-key", key)[0] == 0
    status, preamble = nnefc("run", library, "--random", 0)
    assert status == 1 and "is encrypted: give its key" in preamble.replace("\n", " ")
    status, preamble = nnefc("compile", model, "-o", library, "--encrypt", key, "--weights", "embedded")
    assert status == 1 and "cannot be encrypted" in preamble


def test_the_program_in_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the example's page has it, where OpenSSL is installed for compilers."""
    text = (EXAMPLES / "c" / "README.md").read_text()
    commands = text[text.index("## Encrypted weights") :].split("```sh\n")[1].split("```")[0].splitlines()
    folder = tmp_path / "examples" / "c"
    shutil.copytree(EXAMPLES / "c", folder)
    shutil.copytree(EXAMPLES / "digits" / "model.nnef", folder.parent / "digits" / "model.nnef")
    headers = subprocess.run(
        ["sh", "-c", "echo '#include <openssl/evp.h>' | cc -E - && openssl version"], capture_output=True
    )
    if headers.returncode != 0:
        pytest.skip("needs: cc, openssl and its headers")
    runtime = Path(__file__).parents[2] / "targets" / "runtime"
    monkeypatch.chdir(folder)
    for command in commands:
        program, *words = command.split()
        if program == "nnefc":  # in this process, which has imported the compiler
            assert CliRunner().invoke(main, words).exit_code == 0
            continue
        line = command.replace("../../targets/runtime", str(runtime))
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    with load(folder / "model.so", weights_key=folder / "key") as model:
        expected = float(model(np.zeros((1, 1, 8, 8), np.float32)).ravel()[0])
    name, value = done.stdout.split("[0] = ")
    assert (name, float(value)) == ("probability", pytest.approx(expected, rel=1e-5))
    (folder / "other").write_bytes(bytes(32))
    done = subprocess.run([folder / "encrypted", "model.weights", "other"], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "the weights were encrypted with another key\n")
