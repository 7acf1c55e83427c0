/* Strings that were known at compile time. */
#include "text/text.h"

/* Handles of the length-prefixed texts that begin at these offsets into a pool. */
int32_t nnefc_text_constants(const uint8_t *pool, const int64_t *offsets, nnefc_text *texts, int64_t count);

int32_t nnefc_text_constants(const uint8_t *pool, const int64_t *offsets, nnefc_text *texts, int64_t count) {
    for (int64_t i = 0; i < count; i++) texts[i] = nnefc_text_of_sized((const nnefc_sized_text *)(pool + offsets[i]));
    return 0;
}
