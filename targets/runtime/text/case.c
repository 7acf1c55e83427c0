/* Upper and lower case, by tables that `compiler/operators/text/case_mapping.py` makes of Unicode's. */
#include <string.h>

#include "text/text.h"
#include "text/utf8.h"

enum { SIGMA = 0x3A3, CASED = 1, IGNORED = 2 };

/* How code points change, in ascending order; and, for lower case, those that decide about the sigma at the end of a word. */
typedef struct letters {
    uint32_t changes, ranges, others; /* the numbers of both; where the bytes of changed code points begin */
    uint32_t table[];                 /* of each change: code point, offset into the bytes, and number of these; of each range:
                                         first, last, CASED or IGNORED */
} letters;

/* The last entry of three numbers of which the first is not greater; null if there is none. */
static const uint32_t *search(const uint32_t *table, uint32_t count, uint32_t number) {
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

static uint32_t kind_of(const letters *how, uint32_t number) {
    const uint32_t *range = search(how->table + 3 * how->changes, how->ranges, number);
    return range != NULL && number <= range[1] ? range[2] : 0;
}

/* Whether no letter follows a sigma, of 2 bytes, at `at`, but for what is ignored between. */
static bool is_last(const letters *how, nnefc_string text, size_t at) {
    for (size_t i = at + 2; i < text.size;) {
        nnefc_code_point next = nnefc_next_code_point(text.data + i, text.size - i);
        uint32_t own = kind_of(how, next.number);
        if (own != IGNORED) return own != CASED;
        i += next.size;
    }
    return true;
}

/* Writes the text in the other case, unless `into` is null; returns how many bytes it has. A sigma that ends a word is another
 * letter in lower case. */
static uint64_t change(const letters *how, nnefc_string text, char *into) {
    const char *bytes = (const char *)how + how->others;
    uint64_t size = 0;
    uint32_t before = 0; /* the kind of the last code point that was not ignored */
    for (size_t i = 0; i < text.size;) {
        nnefc_code_point next = nnefc_next_code_point(text.data + i, text.size - i);
        const uint32_t *entry = search(how->table, how->changes, next.number);
        const char *from = text.data + i;
        uint32_t count = next.size;
        if (entry != NULL && entry[0] == next.number) from = bytes + entry[1], count = entry[2];
        if (how->ranges > 0) {
            if (next.number == SIGMA) from = before == CASED && is_last(how, text, i) ? "\xCF\x82" : "\xCF\x83", count = 2;
            uint32_t own = kind_of(how, next.number);
            if (own != IGNORED) before = own;
        }
        if (into != NULL) memcpy(into + size, from, count);
        size += count;
        i += next.size;
    }
    return size;
}

/* Each text in the other case; one that has no such letters stays as it is. */
int32_t nnefc_text_change_case(const nnefc_text *texts, const void *where, nnefc_text *made, int64_t count);

int32_t nnefc_text_change_case(const nnefc_text *texts, const void *where, nnefc_text *made, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        made[i] = 0;
        if (nnefc_run_failed() || texts[i] == 0) continue;
        nnefc_string text = nnefc_text_bytes(texts[i]);
        nnefc_sized_text *other = nnefc_text_new(change(where, text, NULL));
        if (other == NULL) continue;
        change(where, text, other->data);
        made[i] = nnefc_text_of_sized(other);
    }
    return 0;
}
