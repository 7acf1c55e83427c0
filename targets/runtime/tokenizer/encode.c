/* Text to tokens. */
#include "tokenizer/models.h"
#include "tokenizer/steps.h"
#include "tokenizer/tokenizer.h"

void nnefc_unknown_tokens(const nnefc_vocabulary *vocabulary, nnefc_vocabulary_text text, bool follows_unknown, nnefc_tokens *tokens) {
    const uint32_t *bytes = nnefc_at(vocabulary, vocabulary->byte_tokens);
    bool has_bytes = (vocabulary->flags & NNEFC_BYTE_FALLBACK) != 0;
    for (uint32_t i = 0; i < text.size && has_bytes; i++) has_bytes = bytes[(uint8_t)text.bytes[i]] != NNEFC_NO_TOKEN;
    for (uint32_t i = 0; i < text.size && has_bytes; i++) nnefc_tokens_add(tokens, bytes[(uint8_t)text.bytes[i]]);
    bool is_fused = follows_unknown && (vocabulary->flags & NNEFC_FUSE_UNKNOWN) != 0;
    if (!has_bytes && !is_fused && vocabulary->unknown != NNEFC_NO_TOKEN) nnefc_tokens_add(tokens, vocabulary->unknown);
}

static void tokens_of_piece(const nnefc_vocabulary *vocabulary, nnefc_vocabulary_text piece, nnefc_tokens *tokens) {
    switch ((nnefc_token_model)vocabulary->model) {
        case NNEFC_BPE_MERGES:
        case NNEFC_BPE_SCORES: nnefc_byte_pair_tokens(vocabulary, piece, tokens); break;
        case NNEFC_UNIGRAM: nnefc_unigram_tokens(vocabulary, piece, tokens); break;
        case NNEFC_WORDPIECE: nnefc_wordpiece_tokens(vocabulary, piece, tokens); break;
    }
}

/* Appends a list of the vocabulary's: a number, and as many tokens. */
static void add_list(const nnefc_vocabulary *vocabulary, uint32_t offset, nnefc_tokens *tokens) {
    const uint32_t *list = nnefc_at(vocabulary, offset);
    for (uint32_t i = 0; i < list[0]; i++) nnefc_tokens_add(tokens, list[1 + i]);
}

void nnefc_encode(const nnefc_vocabulary *vocabulary, const char *text, size_t size, uint32_t flags, nnefc_tokens *tokens) {
    nnefc_pieces pieces = {0};
    nnefc_split_text(vocabulary, text, size, (flags & NNEFC_FIND_CONTROL) != 0, &pieces);
    if (flags & NNEFC_WITH_BEGIN_AND_END) add_list(vocabulary, vocabulary->before, tokens);
    for (size_t i = 0; i < pieces.count && !pieces.failed && !tokens->failed; i++) {
        const nnefc_piece_of_text *own = &pieces.list[i];
        if (own->token != NNEFC_NO_TOKEN)
            nnefc_tokens_add(tokens, own->token);
        else
            tokens_of_piece(vocabulary, (nnefc_vocabulary_text){pieces.bytes + own->begin, (uint32_t)own->size}, tokens);
    }
    if (flags & NNEFC_WITH_BEGIN_AND_END) add_list(vocabulary, vocabulary->after, tokens);
    tokens->failed = tokens->failed || pieces.failed;
    nnefc_pieces_free(&pieces);
}
