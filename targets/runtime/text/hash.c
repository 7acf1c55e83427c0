/* Hashes of texts. */
#include "text/text.h"

/* MurmurHash3_x86_32 (A. Appleby, 2008) of the bytes of a text. */
uint32_t nnefc_text_hash(nnefc_text text, uint32_t seed);

static uint32_t rotated(uint32_t x, int count) { return x << count | x >> (32 - count); }

static uint32_t mixed(uint32_t word) { return rotated(word * UINT32_C(0xCC9E2D51), 15) * UINT32_C(0x1B873593); }

uint32_t nnefc_text_hash(nnefc_text text, uint32_t seed) {
    if (nnefc_run_failed()) return 0;
    nnefc_string bytes = nnefc_text_bytes(text);
    uint32_t hash = seed;
    for (size_t i = 0; i < bytes.size; i += 4) {
        size_t count = bytes.size - i < 4 ? bytes.size - i : 4;
        uint32_t word = 0; /* little-endian; the last one is filled up with zeros */
        for (size_t j = 0; j < count; j++) word |= (uint32_t)(unsigned char)bytes.data[i + j] << 8 * j;
        hash ^= mixed(word);
        if (count == 4) hash = rotated(hash, 13) * 5 + UINT32_C(0xE6546B64);
    }
    hash ^= (uint32_t)bytes.size;
    hash = (hash ^ hash >> 16) * UINT32_C(0x85EBCA6B);
    hash = (hash ^ hash >> 13) * UINT32_C(0xC2B2AE35);
    return hash ^ hash >> 16;
}
