/* Characters of texts, which are UTF-8; surrogates, which JSON may have alone, are among them. */
#ifndef NNEFC_CHAT_UNICODE_H
#define NNEFC_CHAT_UNICODE_H

#include "chat/values.h"

typedef struct nnefc_character {
    uint32_t number, size; /* its code point; in bytes, 1 to 4 */
} nnefc_character;

/* The character that begins at a byte of a text. */
static inline nnefc_character nnefc_character_at(nnefc_value text, size_t at) {
    const uint8_t *bytes = (const uint8_t *)text.bytes + at;
    nnefc_character found = {bytes[0], 1};
    if (bytes[0] < 0x80) return found;
    found.size = bytes[0] < 0xE0 ? 2 : bytes[0] < 0xF0 ? 3 : 4;
    found.number = bytes[0] & (0x7FU >> found.size);
    for (uint32_t i = 1; i < found.size; i++) found.number = found.number << 6 | (bytes[i] & 0x3FU);
    return found;
}

/* The last character of the first `end` bytes, at least 1. */
static inline nnefc_character nnefc_character_before(nnefc_value text, size_t end) {
    size_t at = end - 1;
    while (((uint8_t)text.bytes[at] & 0xC0) == 0x80) at--;
    return nnefc_character_at(text, at);
}

/* Writes a character; returns how many bytes it has. */
static inline size_t nnefc_encode_character(uint32_t number, char *into) {
    if (number < 0x80) {
        into[0] = (char)number;
        return 1;
    }
    size_t size = number < 0x800 ? 2 : number < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, number >>= 6) into[i] = (char)(0x80 | (number & 0x3F));
    into[0] = (char)((0xF00U >> size & 0xFFU) | number);
    return size;
}

/* White space, as Python's str.isspace has it. */
static inline bool nnefc_is_space(uint32_t number) {
    return (number >= 9 && number <= 13) || (number >= 28 && number <= 32) || number == 0x85 || number == 0xA0 || number == 0x1680 ||
           (number >= 0x2000 && number <= 0x200A) || number == 0x2028 || number == 0x2029 || number == 0x202F || number == 0x205F ||
           number == 0x3000;
}

/* What ends a line for Python's str.splitlines. */
static inline bool nnefc_ends_line(uint32_t number) {
    return (number >= 10 && number <= 13) || (number >= 28 && number <= 30) || number == 0x85 || number == 0x2028 || number == 0x2029;
}

#endif
