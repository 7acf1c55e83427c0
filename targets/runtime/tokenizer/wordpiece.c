/* WordPiece: from the left, the longest token that the remainder of a word begins with. */
#include "tokenizer/models.h"

typedef nnefc_vocabulary_text text_part;

static size_t symbols_of(const nnefc_vocabulary *vocabulary, text_part text) {
    size_t count = 0;
    for (size_t at = 0; at < text.size; count++) at += nnefc_symbol_size(vocabulary, text, at);
    return count;
}

/* The longest token that a text begins with, after a prefix; its size without that is stored. */
static uint32_t longest_token(const nnefc_vocabulary *vocabulary, text_part prefix, text_part text, size_t *size) {
    uint32_t hash = nnefc_hash(NNEFC_HASH_START, prefix.bytes, prefix.size), found = NNEFC_NO_TOKEN;
    for (size_t end = 0; end < text.size && prefix.size + end <= vocabulary->max_bytes;) {
        size_t more = nnefc_symbol_size(vocabulary, text, end);
        hash = nnefc_hash(hash, text.bytes + end, more);
        end += more;
        uint32_t token = nnefc_find_token(vocabulary, hash, prefix, (text_part){text.bytes, (uint32_t)end});
        if (token != NNEFC_NO_TOKEN) found = token, *size = end;
    }
    return found;
}

void nnefc_wordpiece_tokens(const nnefc_vocabulary *vocabulary, text_part piece, nnefc_tokens *tokens) {
    size_t before = tokens->count, size = 0;
    bool is_known = symbols_of(vocabulary, piece) <= vocabulary->max_characters;
    for (size_t at = 0; at < piece.size && is_known && !tokens->failed; at += size) {
        text_part prefix = at > 0 ? nnefc_text_at(vocabulary, vocabulary->prefix) : (text_part){"", 0};
        uint32_t token = longest_token(vocabulary, prefix, (text_part){piece.bytes + at, (uint32_t)(piece.size - at)}, &size);
        is_known = token != NNEFC_NO_TOKEN;
        if (is_known) nnefc_tokens_add(tokens, token);
    }
    if (is_known) return;
    tokens->count = before;
    if (vocabulary->unknown != NNEFC_NO_TOKEN) nnefc_tokens_add(tokens, vocabulary->unknown);
}
