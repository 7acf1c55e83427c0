/* Choose the tokens of a piece of text, and append them. Memory that is refused is noted in the tokens. */
#ifndef NNEFC_TOKENIZER_MODELS_H
#define NNEFC_TOKENIZER_MODELS_H

#include "text/utf8.h"
#include "tokenizer/pieces.h"
#include "tokenizer/vocabulary.h"

void nnefc_byte_pair_tokens(const nnefc_vocabulary *vocabulary, nnefc_vocabulary_text piece, nnefc_tokens *tokens);
void nnefc_unigram_tokens(const nnefc_vocabulary *vocabulary, nnefc_vocabulary_text piece, nnefc_tokens *tokens);
void nnefc_wordpiece_tokens(const nnefc_vocabulary *vocabulary, nnefc_vocabulary_text piece, nnefc_tokens *tokens);

/* Appends the tokens of characters that no token has: those of their bytes, or the unknown token, once if `follows_unknown`. */
void nnefc_unknown_tokens(const nnefc_vocabulary *vocabulary, nnefc_vocabulary_text text, bool follows_unknown, nnefc_tokens *tokens);

/* The size of the symbol at a position of a piece: a byte, or a character. */
static inline size_t nnefc_symbol_size(const nnefc_vocabulary *vocabulary, nnefc_vocabulary_text piece, size_t at) {
    if (vocabulary->flags & NNEFC_BYTES_ARE_SYMBOLS) return 1;
    return nnefc_next_code_point(piece.bytes + at, piece.size - at).size;
}

#endif
