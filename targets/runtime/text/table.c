/* Tables of strings that were known at compile time: the position of one among them. `compiler/operators/ml/lookup.py` makes
 * them: a slot for each string and at least as many empty ones, found by a hash; collisions are in the slots that follow. */
#include <string.h>

#include "text/text.h"

typedef struct slot {
    uint64_t hash;
    uint32_t offset;    /* of the length-prefixed text, in words of 8 bytes from the beginning of the table on */
    uint32_t position; /* 1 more than that; 0 for an empty slot */
} slot;

typedef struct table {
    uint64_t mask; /* the number of slots, a power of 2, less 1 */
    slot slots[];
} table;

/* A number of 64 bits of some bytes, word by word; the last one is filled up with zeros. */
static uint64_t hash_of(nnefc_string text) {
    uint64_t hash = text.size;
    for (size_t i = 0; i < text.size; i += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, text.data + i, text.size - i < sizeof word ? text.size - i : sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

/* The position of a text in a table, or `missing`. */
int64_t nnefc_text_position(nnefc_text text, const void *where, int64_t missing);

int64_t nnefc_text_position(nnefc_text text, const void *where, int64_t missing) {
    if (nnefc_run_failed()) return missing;
    const table *keys = where;
    nnefc_string bytes = nnefc_text_bytes(text);
    uint64_t hash = hash_of(bytes);
    for (uint64_t i = hash & keys->mask; keys->slots[i].position != 0; i = (i + 1) & keys->mask) {
        if (keys->slots[i].hash != hash) continue;
        const nnefc_sized_text *key = (const void *)((const uint64_t *)where + keys->slots[i].offset);
        if (key->size == bytes.size && (bytes.size == 0 || memcmp(key->data, bytes.data, bytes.size) == 0))
            return (int64_t)keys->slots[i].position - 1;
    }
    return missing;
}
