/* Looks tokens up by their text. */
#include "tokenizer/vocabulary.h"

#include <string.h>

static bool is_text(nnefc_vocabulary_text text, nnefc_vocabulary_text first, nnefc_vocabulary_text second) {
    return text.size == first.size + second.size && memcmp(text.bytes, first.bytes, first.size) == 0 &&
           memcmp(text.bytes + first.size, second.bytes, second.size) == 0;
}

uint32_t nnefc_find_token(const nnefc_vocabulary *vocabulary, uint32_t hash, nnefc_vocabulary_text first,
                          nnefc_vocabulary_text second) {
    const uint32_t *slots = nnefc_at(vocabulary, vocabulary->slots);
    uint32_t mask = vocabulary->slot_count - 1;
    for (uint32_t slot = hash & mask; slots[slot] != NNEFC_NO_TOKEN; slot = (slot + 1) & mask)
        if (is_text(nnefc_token_text(vocabulary, slots[slot]), first, second)) return slots[slot];
    return NNEFC_NO_TOKEN;
}
