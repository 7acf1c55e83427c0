/* XXH3 of 64 bits as its specification has it for more than 240 bytes; fewer than 256 are followed by zeros.
 * https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md */
#include "checksum.h"

#include <string.h>

enum { LANES = 8, STRIPE = 64, SECRET = 192, STRIPES_OF_BLOCK = (SECRET - STRIPE) / 8, MIN_LONG = 256 };

/* The default of the specification. */
static const uint8_t secret[SECRET] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static const uint64_t prime32_1 = UINT64_C(0x9e3779b1), prime32_2 = UINT64_C(0x85ebca77), prime32_3 = UINT64_C(0xc2b2ae3d);
static const uint64_t prime64_1 = UINT64_C(0x9e3779b185ebca87), prime64_2 = UINT64_C(0xc2b2ae3d27d4eb4f);
static const uint64_t prime64_3 = UINT64_C(0x165667b19e3779f9), prime64_4 = UINT64_C(0x85ebca77c2b2ae63);
static const uint64_t prime64_5 = UINT64_C(0x27d4eb2f165667c5), prime_mx = UINT64_C(0x165667919e3779f9);

/* A word of the processor's order: all targets are little-endian. */
static uint64_t word(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static void add_stripes(uint64_t lanes[LANES], const uint8_t *data, uint64_t count) {
    for (uint64_t stripe = 0; stripe < count; stripe++) {
        uint64_t words[LANES], keys[LANES];
        memcpy(words, data + stripe * STRIPE, sizeof words);
        memcpy(keys, secret + stripe * 8, sizeof keys);
        for (int i = 0; i < LANES; i++) keys[i] ^= words[i];
        for (int i = 0; i < LANES; i++) lanes[i] += words[i ^ 1] + (keys[i] & UINT32_MAX) * (keys[i] >> 32);
    }
}

static void scramble(uint64_t lanes[LANES]) {
    for (int i = 0; i < LANES; i++)
        lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ word(secret + SECRET - STRIPE + 8 * i)) * prime32_1;
}

/* The two halves of a product of 128 bits, one xor the other. */
static uint64_t fold(uint64_t a, uint64_t b) {
    uint64_t low = (a & UINT32_MAX) * (b & UINT32_MAX), high = (a >> 32) * (b >> 32);
    uint64_t first = (a >> 32) * (b & UINT32_MAX), second = (a & UINT32_MAX) * (b >> 32);
    uint64_t middle = (low >> 32) + (first & UINT32_MAX) + second;
#if defined(__wasm__)
    __asm__("" : "+r"(middle)); /* hides from the compiler that it has a function for all this */
#endif
    return ((low & UINT32_MAX) | middle << 32) ^ (high + (first >> 32) + (middle >> 32));
}

static uint64_t hash(const uint8_t *data, uint64_t bytes) {
    uint64_t lanes[LANES] = {prime32_3, prime64_1, prime64_2, prime64_3, prime64_4, prime32_2, prime64_5, prime32_1};
    uint64_t left = bytes - 1; /* the last stripe is taken apart, even where it ends a block */
    const uint8_t *at = data;
    for (; left >= STRIPES_OF_BLOCK * STRIPE; left -= STRIPES_OF_BLOCK * STRIPE, at += STRIPES_OF_BLOCK * STRIPE) {
        add_stripes(lanes, at, STRIPES_OF_BLOCK);
        scramble(lanes);
    }
    add_stripes(lanes, at, left / STRIPE);
    uint64_t words[LANES];
    memcpy(words, data + bytes - STRIPE, sizeof words);
    for (int i = 0; i < LANES; i++) {
        uint64_t key = words[i] ^ word(secret + SECRET - STRIPE - 7 + 8 * i);
        lanes[i] += words[i ^ 1] + (key & UINT32_MAX) * (key >> 32);
    }
    uint64_t sum = bytes * prime64_1;
    for (int i = 0; i < LANES; i += 2) sum += fold(lanes[i] ^ word(secret + 11 + 8 * i), lanes[i + 1] ^ word(secret + 19 + 8 * i));
    sum = (sum ^ sum >> 37) * prime_mx;
    return sum ^ sum >> 32;
}

uint64_t nnefc_checksum(const uint8_t *data, uint64_t bytes) {
    if (bytes >= MIN_LONG) return hash(data, bytes);
    uint8_t padded[MIN_LONG] = {0};
    if (bytes > 0) memcpy(padded, data, (size_t)bytes);
    return hash(padded, MIN_LONG);
}
