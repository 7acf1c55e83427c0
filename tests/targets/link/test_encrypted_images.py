"""Encrypted weights of C source and of boards: decrypted with AES of the test's, and every way they are refused."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs: nnefc[encrypt]")

from boards import BOARDS, linked
from c_programs import COMPILERS, STRICT, CNetwork, compiled
from click.testing import CliRunner
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import nnefc
from nnefc.cli import main
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.encrypted_weights import encrypt_eax

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.nnef"
HERE = Path(__file__).parents[1] / "microcontrollers"
KEY = bytes(range(16))
IMAGE = np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)
HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint8))
WRONG_KEY_OR_CHANGED, WRONG_CODE, NO_IMAGE, TOO_OLD, HOOK_FAILED = 3, 2, 1, 4, 5


@pytest.mark.parametrize(
    ("message", "key", "nonce", "header", "encrypted"),
    [
        ("", "233952DEE4D5ED5F9B9C6D6FF80FF478", "62EC67F9C3A4A407FCB2A8C49031A8B3", "6BFB914FD07EAE6B", ""),
        ("F7FB", "91945D3F4DCBEE0BF45EF52255F095A4", "BECAF043B0A23D843194BA972C66DEBD", "FA3BFD4806EB53FA", "19DD"),
        (
            "CA40D7446E545FFAED3BD12A740A659FFBBB3CEAB7",
            "8395FCF1E95BEBD697BD010BC766AAC3",
            "22E7ADD93CFC6393C57EC0B3C17D6B44",
            "126735FCC320D25A",
            "CB8920F87A6C75CFF39627B56E3ED197C552D295A7",
        ),
    ],
)
def test_eax_has_the_published_values(message: str, key: str, nonce: str, header: str, encrypted: str) -> None:
    """Of the appendix of "The EAX Mode of Operation"."""
    tags = {"": "E037830E8389F27B025A2D6527E79D01", "F7FB": "5C4C9331049D0BDAB0277408F67967E5"}
    tag, pieces = tags.get(message, "CFC46AFC253B4652B1AF3795B124AB6E"), list[bytes]()
    split = [bytes([byte]) for byte in bytes.fromhex(message)]
    found = encrypt_eax(bytes.fromhex(key), bytes.fromhex(nonce), bytes.fromhex(header), split, pieces.append)
    assert (b"".join(pieces).hex().upper(), found.hex().upper()) == (encrypted, tag)


def aes(key: bytes, fails_at: int = 0) -> Callable[..., int]:
    """A function for the network's, whose call of that number fails."""
    encryptor, calls = Cipher(algorithms.AES(key), modes.ECB()).encryptor(), 0

    def encrypt(_context: int, block: ctypes.Array[ctypes.c_uint8]) -> int:
        nonlocal calls
        calls += 1
        encrypted = encryptor.update(bytes(block[:16]))
        for index, byte in enumerate(encrypted):
            block[index] = byte
        return int(calls == fails_at)

    return HOOK(encrypt)


@pytest.fixture(scope="module")
def artifact() -> nnefc.Artifact:
    return nnefc.compile(DIGITS, "generic-c")


@pytest.fixture(scope="module")
def network(artifact: nnefc.Artifact, tmp_path_factory: pytest.TempPathFactory) -> CNetwork:
    path = tmp_path_factory.mktemp("encrypted") / "digits.c"
    artifact.export(path, encrypt=KEY, weights_version=7)
    return compiled([CNetwork(artifact, path, separate=True)], COMPILERS[0], *STRICT)[0]


def decrypted(
    network: CNetwork, content: bytes, key: bytes = KEY, oldest: int = 0, fails_at: int = 0, in_place: bool = False
) -> int:
    """The status; the network then runs with the memory."""
    memory = np.full(len(network.path.with_suffix(".weights").read_bytes()), 0xA5, np.uint8)
    given = np.frombuffer(content, np.uint8)
    if in_place:
        memory[: given.size], given = given, memory
    network.weights = memory
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (given, memory)]
    hook, size = aes(key, fails_at), ctypes.c_uint32(len(content))
    assert network.library is not None
    return int(
        network.library.digits_decrypt_weights(addresses[0], size, ctypes.c_uint32(oldest), hook, None, addresses[1])
    )


def test_a_key_decrypts_what_it_encrypted(network: CNetwork, artifact: nnefc.Artifact, tmp_path: Path) -> None:
    content = network.path.with_suffix(".weights").read_bytes()
    readable = tmp_path / "digits.c"
    artifact.export(readable, weights="separate")
    image = readable.with_suffix(".weights").read_bytes()
    assert len(content) == 64 + len(image) and content[16:24] == image[16:24]
    assert not any(image[at : at + 16] in content for at in range(64, len(image) - 16, 16))
    (wanted,) = compiled([CNetwork(artifact, readable, separate=True)], COMPILERS[0])[0].run({"image": IMAGE}).values()
    for key in (KEY, KEY * 2):
        artifact.export(network.path, encrypt=key, weights_version=7)
        content = network.path.with_suffix(".weights").read_bytes()
        for in_place in (False, True):
            assert decrypted(network, content, key, oldest=7, in_place=in_place) == 0
            assert network.weights[: len(image)].tobytes() == image
            np.testing.assert_array_equal(network.run({"image": IMAGE})["probability"], wanted)
    artifact.export(network.path, encrypt=KEY, weights_version=7)
    assert content != network.path.with_suffix(".weights").read_bytes()


def test_what_was_changed_is_refused_and_so_is_what_it_left_in_memory(network: CNetwork) -> None:
    content = network.path.with_suffix(".weights").read_bytes()
    cases = dict.fromkeys((28, 31, 32, 47, 48, 63, 64, 80, len(content) - 1), WRONG_KEY_OR_CHANGED)
    cases |= {0: NO_IMAGE, 8: NO_IMAGE, 12: WRONG_CODE, 16: WRONG_CODE, 23: WRONG_CODE, 24: WRONG_KEY_OR_CHANGED}
    for position, status in cases.items():
        changed = bytearray(content)
        changed[position] ^= 1
        assert decrypted(network, bytes(changed)) == status, position
        network.run({"image": IMAGE}, status=-1)
    assert decrypted(network, content, bytes(16)) == WRONG_KEY_OR_CHANGED
    for size in (0, 63, 64, len(content) - 1):
        assert decrypted(network, content[:size]) == NO_IMAGE
    assert decrypted(network, content, oldest=8) == TOO_OLD
    network.run({"image": IMAGE}, status=-1)


def test_an_image_that_is_not_encrypted_is_refused(network: CNetwork, artifact: nnefc.Artifact, tmp_path: Path) -> None:
    """In place of an encrypted one, and in place of its ciphertext."""
    artifact.export(tmp_path / "digits.c", weights="separate")
    image = (tmp_path / "digits.weights").read_bytes()
    assert decrypted(network, image + bytes(64)) == NO_IMAGE
    assert decrypted(network, network.path.with_suffix(".weights").read_bytes()[:64] + image) == WRONG_KEY_OR_CHANGED
    network.run({"image": IMAGE}, status=-1)


def test_a_failure_of_the_function_is_one_of_decryption(network: CNetwork) -> None:
    content = network.path.with_suffix(".weights").read_bytes()
    blocks = -(-(len(content) - 64) // 16)
    calls = 3 * 2 + 1 + 2 + blocks + blocks  # two for each CMAC, its blocks, the counter's
    for fails_at in (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, calls - blocks, calls):
        assert decrypted(network, content, fails_at=fails_at) == HOOK_FAILED, fails_at
        network.run({"image": IMAGE}, status=-1)
    assert decrypted(network, content, fails_at=calls + 1) == 0


def test_the_source_is_c_plus_plus_too(network: CNetwork, tmp_path: Path) -> None:
    for command in COMPILERS:
        words = [*command, "-std=c++11", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-c", str(network.path)]
        subprocess.run([*words, "-o", str(tmp_path / "digits.o")], check=True)


@pytest.mark.skipif(bool(BOARDS["cortex-m4"].missing), reason="needs qemu-system-arm")
def test_a_board_decrypts_with_aes_in_software(tmp_path: Path) -> None:
    artifact = nnefc.compile(DIGITS, "cortex-m4")
    artifact.export(tmp_path / "net.a", name="net", encrypt=KEY)
    (tmp_path / "image.bin").write_bytes(IMAGE.tobytes())
    (tmp_path / "main.c").write_text(_MAIN)
    board = BOARDS["cortex-m4"]
    program = linked(tmp_path, board, tmp_path / "net.a", HERE / "aes.c")
    done = subprocess.run([*board.command, str(program)], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    statuses, made = np.frombuffer(done.stdout[:16], np.int32), np.frombuffer(done.stdout[16:], np.float32)
    assert statuses.tolist() == [-1, WRONG_KEY_OR_CHANGED, 0, 0]
    (wanted,) = nnefc.compile(DIGITS).run({"image": IMAGE}).values()
    np.testing.assert_allclose(made, wanted.reshape(-1), rtol=1e-5, atol=1e-7)


_MAIN = """
#include "aes.h"
#include "board.h"
#include "net.h"

__asm__(".section .rodata\\nfile:\\n.incbin \\"net.weights\\"\\n.balign 4\\n"
        "image:\\n.incbin \\"image.bin\\"\\n.previous");
extern const uint8_t file[];
extern const float image[];

static int encrypt(void *key, uint8_t *block) {
    aes_encrypt(key, block);
    return 0;
}

int main(void) {
    static uint8_t weights[NET_WEIGHTS_BYTES] __attribute__((aligned(NET_WEIGHTS_ALIGNMENT)));
    float probability[NET_OUTPUT_0_ITEMS];
    uint8_t key[16];
    int statuses[4];
    aes_begin();
    for (uint8_t i = 0; i < 16; i++) key[i] = i;
    statuses[0] = net_run(image, probability, net_arena, weights);
    key[3] ^= 4;
    statuses[1] = net_decrypt_weights(file, NET_ENCRYPTED_WEIGHTS_BYTES, 0, encrypt, key, weights);
    key[3] ^= 4;
    statuses[2] = net_decrypt_weights(file, NET_ENCRYPTED_WEIGHTS_BYTES, 0, encrypt, key, weights);
    statuses[3] = net_run(image, probability, net_arena, weights);
    board_write(statuses, sizeof statuses);
    board_write(probability, sizeof probability);
    return 0;
}
"""


def test_from_the_command_line(network: CNetwork, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    words = ["compile", str(DIGITS), "-t", "generic-c", "-o", str(tmp_path / "digits.c"), "--encrypt"]
    done = CliRunner().invoke(main, [*words, str(tmp_path / "key"), "--weights-version", "9"])
    assert done.exit_code == 0, done.output
    content = (tmp_path / "digits.weights").read_bytes()
    assert decrypted(network, content, oldest=10) == TOO_OLD
    assert decrypted(network, content, oldest=9) == 0


def test_options_that_do_not_fit_are_errors(artifact: nnefc.Artifact, tmp_path: Path) -> None:
    for options, says in (
        ({"encrypt": bytes(24)}, "24 bytes, but a key has 16 or 32"),
        ({"encrypt": KEY, "weights": "embedded"}, "cannot be encrypted"),
        ({"encrypt": KEY, "weights_version": 1 << 32}, "the version of the weights is"),
        ({"weights_version": 1}, "weights_version is for encrypted weights"),
    ):
        with pytest.raises(CompileError, match=says):
            artifact.export(tmp_path / "digits.c", **options)
    assert list(tmp_path.iterdir()) == []
