/* Upper and lower case, by tables that `compiler/operators/text/case_mapping.py` makes of Unicode's. */
#ifndef NNEFC_TEXT_LETTERS_H
#define NNEFC_TEXT_LETTERS_H

#include <stdbool.h>
#include <string.h>

#include "nnefc.h"
#include "text/utf8.h"

enum { NNEFC_SIGMA = 0x3A3, NNEFC_CASED = 1, NNEFC_IGNORED = 2 };

/* How code points change, in ascending order; and, for lower case, those that decide about the sigma at the end of a word. */
typedef struct nnefc_letters {
    uint32_t changes, ranges, others; /* the numbers of both; where the bytes of changed code points begin */
    uint32_t table[];                 /* of each change: code point, offset into the bytes, and number of these; of each range:
                                         first, last, NNEFC_CASED or NNEFC_IGNORED */
} nnefc_letters;

/* The last entry of three numbers of which the first is not greater; null if there is none. */
static inline const uint32_t *nnefc_letters_entry(const uint32_t *table, uint32_t count, uint32_t number) {
    uint32_t low = 0;
    while (count > 0) {
        uint32_t half = count / 2;
        if (table[3 * (low + half)] <= number)
            low += half + 1, count -= half + 1;
        else
            count = half;
    }
    return low > 0 ? &table[3 * (low - 1)] : NULL;
}

static inline uint32_t nnefc_letter_kind(const nnefc_letters *how, uint32_t number) {
    const uint32_t *range = nnefc_letters_entry(how->table + 3 * how->changes, how->ranges, number);
    return range != NULL && number <= range[1] ? range[2] : 0;
}

/* Whether no letter follows a sigma, of 2 bytes, at `at`, but for what is ignored between. */
static inline bool nnefc_is_last_letter(const nnefc_letters *how, nnefc_string text, size_t at) {
    for (size_t i = at + 2; i < text.size;) {
        nnefc_code_point next = nnefc_next_code_point(text.data + i, text.size - i);
        uint32_t own = nnefc_letter_kind(how, next.number);
        if (own != NNEFC_IGNORED) return own != NNEFC_CASED;
        i += next.size;
    }
    return true;
}

/* Writes the text in the other case, unless `into` is null; returns how many bytes it has. A sigma that ends a word is another
 * letter in lower case. */
static inline uint64_t nnefc_change_letters(const nnefc_letters *how, nnefc_string text, char *into) {
    const char *bytes = (const char *)how + how->others;
    uint64_t size = 0;
    uint32_t before = 0; /* the kind of the last code point that was not ignored */
    for (size_t i = 0; i < text.size;) {
        nnefc_code_point next = nnefc_next_code_point(text.data + i, text.size - i);
        const uint32_t *entry = nnefc_letters_entry(how->table, how->changes, next.number);
        const char *from = text.data + i;
        uint32_t count = next.size;
        if (entry != NULL && entry[0] == next.number) from = bytes + entry[1], count = entry[2];
        if (how->ranges > 0) {
            if (next.number == NNEFC_SIGMA) from = before == NNEFC_CASED && nnefc_is_last_letter(how, text, i) ? "\xCF\x82" : "\xCF\x83", count = 2;
            uint32_t own = nnefc_letter_kind(how, next.number);
            if (own != NNEFC_IGNORED) before = own;
        }
        if (into != NULL) memcpy(into + size, from, count);
        size += count;
        i += next.size;
    }
    return size;
}

#endif
