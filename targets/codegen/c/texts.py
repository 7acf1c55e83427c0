"""Defines the C functions for strings that generated code calls.

Within a network a string is a handle, an int64: the address of its zero-terminated bytes, or 0 for the empty string.
Strings that a run makes are in memory of the caller. After a kernel has failed no string is read, since handles may be
invalid.
"""

from __future__ import annotations

__all__ = ["STRING_FUNCTIONS", "TEXT_HELPERS", "TEXT_RESULTS", "makes_texts", "text_function"]

_TEXTS = """\
/* Memory for the strings that a run makes. */
typedef struct {
    char *next;
    uint32_t left;
} nnefc__texts;
"""

_CONSTANTS = """\
/* Constants: behind its size, 8 bytes, each begins at an offset. */
static inline void nnefc__text_constants(const uint8_t *pool, const int64_t *offsets, int64_t *texts, int64_t count,
    const int32_t *failed) {
    (void)failed;
    for (int64_t i = 0; i < count; ++i) {
        texts[i] = nnefc__text_of_bytes((const char *)(const void *)(pool + offsets[i] + 8));
    }
}
"""

_ORDER = """\
static inline int32_t nnefc__text_order(int64_t one, int64_t other, const int32_t *failed) {
    if (one == other || *failed != 0) {
        return 0;
    }
    return (int32_t)strcmp(nnefc__text_bytes(one), nnefc__text_bytes(other));
}
"""

_EQUAL = """\
static inline int32_t nnefc__text_equal(int64_t one, int64_t other, const int32_t *failed) {
    return nnefc__text_order(one, other, failed) == 0;
}
"""

_MATCHES = """\
/* Whether an automaton takes the whole of a string: the numbers of states and of kinds of bytes, four first states, the
 * kind of each byte, and for each state the next ones; then for each state the bits of what a match may end before. */
static inline int32_t nnefc__text_matches(int64_t text, const void *machine, const int32_t *failed) {
    const uint8_t *const head = (const uint8_t *)machine;
    const uint8_t *const kinds = head + 24;
    const uint8_t *const next = kinds + 256;
    const uint32_t states = (uint32_t)nnefc__load_word(head);
    const uint32_t width = (uint32_t)nnefc__load_word(head + 4);
    uint32_t state = (uint32_t)nnefc__load_word(head + 8);
    if (*failed != 0) {
        return 0;
    }
    for (const char *at = nnefc__text_bytes(text); *at != 0 && state != 0u; ++at) {
        state = (uint32_t)nnefc__load_word(next + 4 * (size_t)(state * width + kinds[(uint8_t)*at]));
    }
    return nnefc__load_word(next + 4 * (size_t)(states * width + state)) & 1;
}
"""

_POSITION = """\
/* The position of a string in a table of constants, or `missing`. The table is a mask of its number of slots, and slots
 * of a hash, the offset of a constant in words of 8 bytes, and its position from 1 on; then the constants. */
static inline int64_t nnefc__text_position(int64_t text, const void *table, int64_t missing, const int32_t *failed) {
    const uint8_t *const slots = (const uint8_t *)table + 8;
    const char *const bytes = nnefc__text_bytes(*failed != 0 ? 0 : text);
    const size_t size = strlen(bytes);
    const uint64_t mask = nnefc__load_long(table);
    uint64_t hash = size;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, size - i < 8 ? size - i : 8u);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
        hash ^= hash >> 32;
    }
    for (uint64_t i = hash & mask;; i = (i + 1u) & mask) {
        const uint8_t *const slot = slots + 16 * (size_t)i;
        const uint32_t position = (uint32_t)nnefc__load_word(slot + 12);
        const uint8_t *const key = (const uint8_t *)table + 8 * (size_t)(uint32_t)nnefc__load_word(slot + 8);
        if (position == 0u) {
            return missing;
        }
        if (nnefc__load_long(slot) == hash && nnefc__load_long(key) == size &&
            memcmp(key + 8, bytes, size) == 0) {
            return (int64_t)position - 1;
        }
    }
}
"""

_CONCAT = """\
/* Each string of `first`, and behind it that of `second`; the run fails if there is no memory for them. */
static inline void nnefc__text_concat(const int64_t *first, const int64_t *second, int64_t *made, int64_t count,
    nnefc__texts *texts, int32_t *failed) {
    for (int64_t i = 0; i < count; ++i) {
        made[i] = 0;
        if (*failed == 0 && (first[i] == 0 || second[i] == 0)) {
            made[i] = first[i] != 0 ? first[i] : second[i];
        } else if (*failed == 0) {
            const char *const left = nnefc__text_bytes(first[i]);
            const char *const right = nnefc__text_bytes(second[i]);
            const size_t size = strlen(left);
            const size_t more = strlen(right) + 1u;
            if (size >= texts->left || more > texts->left - size) {
                *failed = 1; /* no memory for strings */
                continue;
            }
            memcpy(texts->next, left, size);
            memcpy(texts->next + size, right, more);
            made[i] = nnefc__text_of_bytes(texts->next);
            texts->next += size + more;
            texts->left -= (uint32_t)(size + more);
        }
    }
}
"""

TEXT_HELPERS = {
    "nnefc__texts": _TEXTS,
    "nnefc__text_constants": _CONSTANTS,
    "nnefc__text_order": _ORDER,
    "nnefc__text_equal": _EQUAL,
    "nnefc__text_matches": _MATCHES,
    "nnefc__text_position": _POSITION,
    "nnefc__text_concat": _CONCAT,
}
"""Definitions by the names of functions, each behind those that it calls."""

TEXT_RESULTS = {
    "nnefc_text_constants": (2,),
    "nnefc_text_order": (),
    "nnefc_text_equal": (),
    "nnefc_text_matches": (),
    "nnefc_text_position": (),
    "nnefc_text_concat": (2,),
}
"""The runtime's functions that C source has a form of, and the positions of the arguments that they write to."""

STRING_FUNCTIONS = frozenset({"memcmp", "memcpy", "strcmp", "strlen"})
"""The functions of the C library that these call."""

_MAKING = frozenset({"nnefc_text_concat"})


def makes_texts(symbol: str) -> bool:
    """Return whether a function of the runtime makes strings, for which it needs memory."""
    return symbol in _MAKING


def text_function(symbol: str) -> str:
    """Return the name in C source of a function of the runtime for strings."""
    return symbol.replace("nnefc_", "nnefc__", 1)
