"""Writes the C that decrypts weights images, by a function of the program's that encrypts one block with AES.

An encrypted image is a header, and a weights image as one message of AES in EAX mode (Bellare, Rogaway and Wagner,
"The EAX Mode of Operation", 2004): counter mode, and CMACs (NIST SP 800-38B) of nonce, header and ciphertext. All of it
needs AES in the direction of encryption alone, under one key, which units of microcontrollers have.

    0    "NNEFCIMG"
    8    uint32: 2, the version of this layout
    12   uint32: bytes of the file, this header among them
    16   uint64: the identity of the code
    24   uint32: the version of the weights, and zeros
    32   16 random bytes, the nonce
    48   the tag
    64   the image, encrypted

Numbers are little-endian. The first 32 bytes are the header of the message.
"""

from __future__ import annotations

import struct

__all__ = ["ENCRYPTED_HEADER_BYTES", "decrypt_declaration", "decrypt_functions", "encrypted_header", "encrypted_macro"]

ENCRYPTED_HEADER_BYTES = 64

_MAGIC, _LAYOUT = b"NNEFCIMG", 2
_BLOCK = 16


def encrypted_header(image_bytes: int, identity: int, version: int) -> bytes:
    """Return the first 32 bytes of an encrypted image.

    Args:
        image_bytes: of the weights image.
        identity: of the code.
        version: of the weights.
    """
    return struct.pack("<8sIIQI4x", _MAGIC, _LAYOUT, ENCRYPTED_HEADER_BYTES + image_bytes, identity, version)


def encrypted_macro(prefix: str, image_bytes: int) -> str:
    """Return the macro for a header with the size of the encrypted image."""
    size = ENCRYPTED_HEADER_BYTES + image_bytes
    return f"#define {prefix.upper()}_ENCRYPTED_WEIGHTS_BYTES {size} /* of the file of weights */"


def decrypt_declaration(prefix: str) -> list[str]:
    """Return the declaration of the function that decrypts an image, for a header."""
    upper = prefix.upper()
    return [
        "/* Encrypts a block of 16 bytes, aligned to 4, in place, by AES with the key of the weights: in a unit of the",
        " * processor or in software. The result is 0, or another number if that failed. */",
        f"typedef int (*{prefix}_aes)(void *context, uint8_t *block);",
        "",
        f"/* Copies an encrypted file of so many bytes to {upper}_WEIGHTS_BYTES bytes of memory, verifies the copy,",
        " * and decrypts it there: 0 if the memory then has weights for runs, 1 if the file is none or cut off, 2 if",
        " * it is for other code, 3 if it was encrypted with another key or bytes have changed, 4 if the version",
        " * of its weights is less than `oldest`, 5 if `aes` failed. Runs refuse the memory if the result is not 0.",
        " * The file may begin where the memory does; else they do not overlap. */",
        f"int {prefix}_decrypt_weights(const void *encrypted, uint32_t bytes, uint32_t oldest, {prefix}_aes aes,",
        f"{' ' * (len(prefix) + 21)}void *context, void *weights);",
    ]


def decrypt_functions(prefix: str, image_bytes: int, identity: int, names: str) -> list[str]:
    """Return the definitions of that function and of those that it calls.

    Args:
        prefix: of the function that programs call.
        image_bytes: of a weights image, a multiple of the block size.
        identity: of the code.
        names: prefix of the file's own functions.
    """
    assert image_bytes % _BLOCK == 0
    words = struct.unpack("<6I", encrypted_header(image_bytes, identity, 0)[:24])
    text = _SOURCE.replace("PREFIX", prefix).replace("OWN_", names)
    text = text.replace("IMAGE_BYTES", f"{image_bytes}u").replace("IMAGE_WORDS", f"{image_bytes // 4}u")
    return text.replace("EXPECTED", ", ".join(f"0x{word:08x}u" for word in words)).split("\n")


_SOURCE = """\
/* Multiplies an element of GF(2^128) by x, as CMAC has it. */
static void OWN_double(uint8_t *element) {
    const uint32_t carry = (uint32_t)element[0] >> 7;
    uint32_t i;
    for (i = 0u; i < 15u; ++i) {
        element[i] = (uint8_t)(((uint32_t)element[i] << 1) | ((uint32_t)element[i + 1u] >> 7));
    }
    element[15] = (uint8_t)(((uint32_t)element[15] << 1) ^ (carry * 0x87u));
}

/* Adds the CMAC of a block with the number of the message, and of the message, whole blocks, to the sum of such. */
static int OWN_cmac(PREFIX_aes aes, void *context, uint32_t number, const uint32_t *message, uint32_t words,
                    uint32_t *sum) {
    uint32_t block[4] = {0u, 0u, 0u, 0u}, key[4] = {0u, 0u, 0u, 0u}, begin, i;
    int failed = aes(context, (uint8_t *)key);
    OWN_double((uint8_t *)key);
    block[3] = number << 24;
    for (begin = 0u; failed == 0 && begin < words; begin += 4u) {
        failed = aes(context, (uint8_t *)block);
        for (i = 0u; i < 4u; ++i) {
            block[i] ^= message[begin + i];
        }
    }
    for (i = 0u; i < 4u; ++i) {
        block[i] ^= key[i];
    }
    if (failed == 0) {
        failed = aes(context, (uint8_t *)block);
    }
    for (i = 0u; i < 4u; ++i) {
        sum[i] ^= block[i];
    }
    return failed;
}

/* Decrypts whole blocks in place by counter mode. */
static int OWN_decrypt(PREFIX_aes aes, void *context, uint32_t *counter, uint32_t *data, uint32_t words) {
    uint8_t *const bytes = (uint8_t *)counter;
    uint32_t block[4], begin, i;
    int failed = 0;
    for (begin = 0u; failed == 0 && begin < words; begin += 4u) {
        for (i = 0u; i < 4u; ++i) {
            block[i] = counter[i];
        }
        failed = aes(context, (uint8_t *)block);
        for (i = 0u; i < 4u; ++i) {
            data[begin + i] ^= block[i];
        }
        i = 16u;
        do {
            --i;
            bytes[i] = (uint8_t)(((uint32_t)bytes[i] + 1u) & 255u);
        } while (i > 0u && bytes[i] == 0u);
    }
    return failed;
}

int PREFIX_decrypt_weights(const void *encrypted, uint32_t bytes, uint32_t oldest, PREFIX_aes aes, void *context,
                           void *weights) {
    static const uint32_t expected[6] = {EXPECTED};
    const uint8_t *const from = (const uint8_t *)encrypted;
    uint8_t *const to = (uint8_t *)weights;
    uint32_t head[16], counter[4] = {0u, 0u, 0u, 0u}, sum[4] = {0u, 0u, 0u, 0u}, difference = 0u, i;
    int failed;
    if (encrypted == 0 || bytes < 64u) {
        return 1;
    }
    for (i = 0u; i < 64u; ++i) {
        ((uint8_t *)head)[i] = from[i];
    }
    for (i = 0u; i < 6u; ++i) {
        if (head[i] != expected[i]) {
            return i < 3u ? 1 : 2;
        }
    }
    if (bytes < expected[3]) {
        return 1;
    }
    if (head[6] < oldest) {
        return 4;
    }
    for (i = 0u; i < IMAGE_BYTES; ++i) {
        to[i] = from[64u + i];
    }
    failed = OWN_cmac(aes, context, 0u, &head[8], 4u, counter);
    if (failed == 0) {
        failed = OWN_cmac(aes, context, 1u, head, 8u, sum);
    }
    if (failed == 0) {
        failed = OWN_cmac(aes, context, 2u, (const uint32_t *)weights, IMAGE_WORDS, sum);
    }
    for (i = 0u; i < 4u; ++i) {
        difference |= sum[i] ^ counter[i] ^ head[12u + i];
    }
    if (failed == 0 && difference == 0u) {
        failed = OWN_decrypt(aes, context, counter, (uint32_t *)weights, IMAGE_WORDS);
    }
    if (failed != 0 || difference != 0u) {
        for (i = 0u; i < 64u; ++i) {
            to[i] = 0u;
        }
        return failed != 0 ? 5 : 3;
    }
    return PREFIX_check_weights(weights, IMAGE_BYTES);
}
"""
