/* Comparisons of texts, byte by byte, which for UTF-8 is the order of code points. */
#include <string.h>

#include "text/text.h"

/* Whether two texts have the same bytes. */
int32_t nnefc_text_equal(nnefc_text one, nnefc_text other);

/* Negative, 0 or positive as one text comes before, with or behind another. */
int32_t nnefc_text_order(nnefc_text one, nnefc_text other);

int32_t nnefc_text_order(nnefc_text one, nnefc_text other) {
    if (one == other || nnefc_run_failed()) return 0;
    nnefc_string left = nnefc_text_bytes(one), right = nnefc_text_bytes(other);
    size_t common = left.size < right.size ? left.size : right.size;
    int order = common > 0 ? memcmp(left.data, right.data, common) : 0;
    return order != 0 ? order : left.size < right.size ? -1 : left.size > right.size;
}

int32_t nnefc_text_equal(nnefc_text one, nnefc_text other) {
    if (one == other) return 1;
    if (nnefc_run_failed()) return 0;
    nnefc_string left = nnefc_text_bytes(one), right = nnefc_text_bytes(other);
    return left.size == right.size && (left.size == 0 || memcmp(left.data, right.data, left.size) == 0);
}
