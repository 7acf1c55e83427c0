/* Code points of UTF-8. Bytes that are none are taken one by one, and stay as they are. */
#ifndef NNEFC_TEXT_UTF8_H
#define NNEFC_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

typedef struct nnefc_code_point {
    uint32_t number; /* NNEFC_NO_CODE_POINT for a byte that begins none */
    uint32_t size;   /* in bytes, 1 to 4 */
} nnefc_code_point;

#define NNEFC_NO_CODE_POINT UINT32_C(0xFFFFFFFF)

/* The code point that begins at `data`, where there are `size` bytes, 1 at least. */
static inline nnefc_code_point nnefc_next_code_point(const char *data, size_t size) {
    const uint8_t *bytes = (const uint8_t *)data;
    nnefc_code_point found = {bytes[0], 1}, none = {NNEFC_NO_CODE_POINT, 1};
    if (bytes[0] < 0x80) return found;
    if (bytes[0] < 0xC2 || bytes[0] > 0xF4) return none;
    found.size = bytes[0] < 0xE0 ? 2 : bytes[0] < 0xF0 ? 3 : 4;
    if (found.size > size) return none;
    found.number = bytes[0] & (0x7FU >> found.size);
    for (uint32_t i = 1; i < found.size; i++) {
        if ((bytes[i] & 0xC0) != 0x80) return none;
        found.number = found.number << 6 | (bytes[i] & 0x3FU);
    }
    static const uint32_t minimum[] = {0, 0, 0x80, 0x800, 0x10000};
    if (found.number < minimum[found.size] || found.number > 0x10FFFF || (found.number >= 0xD800 && found.number < 0xE000)) return none;
    return found;
}

#endif
