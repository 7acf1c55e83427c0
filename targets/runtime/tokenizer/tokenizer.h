/* Text of a language model to tokens, and back. */
#ifndef NNEFC_TOKENIZER_TOKENIZER_H
#define NNEFC_TOKENIZER_TOKENIZER_H

#include "nnefc.h"
#include "tokenizer/pieces.h"
#include "tokenizer/vocabulary.h"

/* Appends the tokens of a text. Flags are those of nnefc_tokenize. */
void nnefc_encode(const nnefc_vocabulary *vocabulary, const char *text, size_t size, uint32_t flags, nnefc_tokens *tokens);

/* Appends the bytes of tokens (flags are those of nnefc_detokenize), which may end within a character. False if a number is no token. */
bool nnefc_decode(const nnefc_vocabulary *vocabulary, const int64_t *tokens, size_t count, uint32_t flags, nnefc_pieces *bytes);

#endif
