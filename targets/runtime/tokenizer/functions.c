/* The public functions for text: nnefc_tokenize and nnefc_detokenize. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"

#define ENCODE_FLAGS (NNEFC_WITH_BEGIN_AND_END | NNEFC_FIND_CONTROL)
#define DECODE_FLAGS (NNEFC_SKIP_CONTROL | NNEFC_CONTINUES)

nnefc_status nnefc_tokenize(const char *text, size_t size, uint32_t flags, int64_t *tokens, size_t room, size_t *count) {
    if (count != NULL) *count = 0;
    bool is_wrong = (text == NULL && size > 0) || (tokens == NULL && room > 0) || count == NULL || size > INT32_MAX;
    if (is_wrong || (flags & ~(uint32_t)ENCODE_FLAGS) != 0) return NNEFC_BAD_ARGUMENT;
    nnefc_tokens found = {0};
    nnefc_encode(&nnefc_vocabulary_data, text, size, flags, &found);
    if (!found.failed) *count = found.count;
    for (size_t i = 0; i < found.count && i < room && !found.failed; i++) tokens[i] = found.list[i];
    free(found.list);
    return found.failed ? NNEFC_OUT_OF_MEMORY : found.count > room ? NNEFC_TOO_SMALL : NNEFC_OK;
}

nnefc_status nnefc_detokenize(const int64_t *tokens, size_t count, uint32_t flags, char *text, size_t room, size_t *size) {
    if (size != NULL) *size = 0;
    bool is_wrong = (tokens == NULL && count > 0) || (text == NULL && room > 0) || size == NULL;
    if (is_wrong || (flags & ~(uint32_t)DECODE_FLAGS) != 0) return NNEFC_BAD_ARGUMENT;
    nnefc_pieces made = {0};
    nnefc_status status = nnefc_decode(&nnefc_vocabulary_data, tokens, count, flags, &made) ? NNEFC_OK : NNEFC_BAD_ARGUMENT;
    if (made.failed) status = NNEFC_OUT_OF_MEMORY;
    if (status == NNEFC_OK) *size = made.byte_count;
    if (status == NNEFC_OK && made.byte_count > room) status = NNEFC_TOO_SMALL;
    if (status == NNEFC_OK && made.byte_count > 0) memcpy(text, made.bytes, made.byte_count);
    nnefc_pieces_free(&made);
    return status;
}
