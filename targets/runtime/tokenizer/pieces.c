/* Growing lists of pieces and tokens. */
#include "tokenizer/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/vocabulary.h"

bool nnefc_grow(void **list, size_t *room, size_t count, size_t element_bytes, bool *failed) {
    if (*failed) return false;
    if (count < *room) return true;
    size_t more = count < 32 ? 64 : count * 2;
    void *moved = more > SIZE_MAX / element_bytes ? NULL : realloc(*list, more * element_bytes);
    *failed = moved == NULL;
    if (moved != NULL) *list = moved, *room = more;
    return moved != NULL;
}

void nnefc_pieces_free(nnefc_pieces *pieces) {
    free(pieces->bytes);
    free(pieces->list);
}

void nnefc_pieces_write(nnefc_pieces *pieces, const char *bytes, size_t size) {
    if (size == 0) return;
    size_t end = pieces->byte_count + size;
    if (!nnefc_grow((void **)&pieces->bytes, &pieces->byte_room, end - 1, 1, &pieces->failed)) return;
    memcpy(pieces->bytes + pieces->byte_count, bytes, size);
    pieces->byte_count = end;
}

void nnefc_pieces_end(nnefc_pieces *pieces, size_t begin, uint32_t token, bool is_first) {
    if (token == NNEFC_NO_TOKEN && pieces->byte_count == begin) return;
    if (!nnefc_grow((void **)&pieces->list, &pieces->room, pieces->count, sizeof *pieces->list, &pieces->failed)) return;
    pieces->list[pieces->count++] = (nnefc_piece_of_text){begin, pieces->byte_count - begin, token, is_first};
}

void nnefc_tokens_add(nnefc_tokens *tokens, uint32_t token) {
    if (!nnefc_grow((void **)&tokens->list, &tokens->room, tokens->count, sizeof *tokens->list, &tokens->failed)) return;
    tokens->list[tokens->count++] = token;
}
