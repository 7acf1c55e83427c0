/* Pieces of a text on their way to tokens, and lists of tokens. Memory that is refused is noted in `failed`, after which
 * additions do nothing. */
#ifndef NNEFC_TOKENIZER_PIECES_H
#define NNEFC_TOKENIZER_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of text, or a token that was taken out of the text. */
typedef struct nnefc_piece_of_text {
    size_t begin, size; /* of its bytes among those of all pieces */
    uint32_t token;     /* NNEFC_NO_TOKEN for text */
    bool is_first;      /* whether the whole text begins with it */
} nnefc_piece_of_text;

typedef struct nnefc_pieces {
    char *bytes;
    size_t byte_count, byte_room;
    nnefc_piece_of_text *list;
    size_t count, room;
    bool failed;
} nnefc_pieces;

typedef struct nnefc_tokens {
    uint32_t *list;
    size_t count, room;
    bool failed;
} nnefc_tokens;

void nnefc_pieces_free(nnefc_pieces *pieces);

/* Appends bytes to the piece that is being made. */
void nnefc_pieces_write(nnefc_pieces *pieces, const char *bytes, size_t size);

/* Ends the piece whose bytes were written since `begin`. A piece of text without bytes is left out. */
void nnefc_pieces_end(nnefc_pieces *pieces, size_t begin, uint32_t token, bool is_first);

void nnefc_tokens_add(nnefc_tokens *tokens, uint32_t token);

/* Makes room for one more element. Returns false, and notes it in `failed`, if memory is refused. */
bool nnefc_grow(void **list, size_t *room, size_t count, size_t element_bytes, bool *failed);

#endif
