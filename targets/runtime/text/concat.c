/* Concatenates strings. */
#include <string.h>

#include "text/text.h"

/* Each of `made` becomes one text and another behind it; an empty one leaves the other as it is. */
int32_t nnefc_text_concat(const nnefc_text *first, const nnefc_text *second, nnefc_text *made, int64_t count);

static nnefc_text joined(nnefc_text first, nnefc_text second) {
    if (first == 0 || second == 0) return first != 0 ? first : second;
    nnefc_string left = nnefc_text_bytes(first), right = nnefc_text_bytes(second);
    nnefc_sized_text *text = nnefc_text_new((uint64_t)left.size + right.size);
    if (text == NULL) return 0;
    memcpy(text->data, left.data, left.size);
    memcpy(text->data + left.size, right.data, right.size);
    return nnefc_text_of_sized(text);
}

int32_t nnefc_text_concat(const nnefc_text *first, const nnefc_text *second, nnefc_text *made, int64_t count) {
    for (int64_t i = 0; i < count; i++) made[i] = nnefc_run_failed() ? 0 : joined(first[i], second[i]);
    return 0;
}
