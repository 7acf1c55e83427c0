/* Upper and lower case of string tensors. */
#include "text/letters.h"
#include "text/text.h"

/* Each text in the other case; one that has no such letters stays as it is. */
int32_t nnefc_text_change_case(const nnefc_text *texts, const void *where, nnefc_text *made, int64_t count);

int32_t nnefc_text_change_case(const nnefc_text *texts, const void *where, nnefc_text *made, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        made[i] = 0;
        if (nnefc_run_failed() || texts[i] == 0) continue;
        nnefc_string text = nnefc_text_bytes(texts[i]);
        nnefc_sized_text *other = nnefc_text_new(nnefc_change_letters(where, text, NULL));
        if (other == NULL) continue;
        nnefc_change_letters(where, text, other->data);
        made[i] = nnefc_text_of_sized(other);
    }
    return 0;
}
