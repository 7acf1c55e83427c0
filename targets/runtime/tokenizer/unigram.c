/* The unigram model: of all segmentations of a piece into tokens the one with the highest sum of scores. */
#include <stdlib.h>

#include "tokenizer/models.h"

typedef nnefc_vocabulary_text text_part;

/* The best segmentation of the bytes up to a position. */
typedef struct ending {
    double score;
    size_t begin;   /* of its last token; SIZE_MAX while there is no segmentation */
    uint32_t token; /* NNEFC_NO_TOKEN for a character that no token has */
} ending;

static void improve(ending *end, double score, size_t begin, uint32_t token) {
    if (end->begin == SIZE_MAX || score > end->score) *end = (ending){score, begin, token};
}

/* Extends the best segmentation up to `begin` by each token that the text has there. */
static void extend(const nnefc_vocabulary *vocabulary, text_part piece, size_t begin, ending *best) {
    const float *scores = nnefc_at(vocabulary, vocabulary->scores);
    size_t first = nnefc_symbol_size(vocabulary, piece, begin);
    bool has_character = false;
    uint32_t hash = NNEFC_HASH_START;
    for (size_t end = begin; end < piece.size;) {
        size_t size = nnefc_symbol_size(vocabulary, piece, end);
        hash = nnefc_hash(hash, piece.bytes + end, size);
        end += size;
        if (end - begin > vocabulary->max_bytes) break;
        uint32_t token = nnefc_find_token(vocabulary, hash, (text_part){piece.bytes + begin, (uint32_t)(end - begin)}, (text_part){"", 0});
        if (token == NNEFC_NO_TOKEN) continue;
        improve(&best[end], best[begin].score + (double)scores[token], begin, token);
        has_character = has_character || end - begin == first;
    }
    if (!has_character) improve(&best[begin + first], best[begin].score + (double)vocabulary->unknown_score, begin, NNEFC_NO_TOKEN);
}

/* Links the endings of the best segmentation forwards: afterwards best[i].begin is where the token that begins at i ends, and its
 * token that token. */
static void turn_around(ending *best, size_t size) {
    size_t end = size, after = SIZE_MAX;
    uint32_t token = NNEFC_NO_TOKEN;
    while (true) {
        ending own = best[end];
        best[end].begin = after;
        best[end].token = token;
        if (end == 0) return;
        after = end, token = own.token, end = own.begin;
    }
}

void nnefc_unigram_tokens(const nnefc_vocabulary *vocabulary, text_part piece, nnefc_tokens *tokens) {
    ending *best = malloc(((size_t)piece.size + 1) * sizeof *best);
    tokens->failed = tokens->failed || best == NULL;
    if (best == NULL) return;
    for (size_t i = 0; i <= piece.size; i++) best[i] = (ending){0, SIZE_MAX, NNEFC_NO_TOKEN};
    best[0].begin = 0;
    for (size_t i = 0; i < piece.size; i++)
        if (best[i].begin != SIZE_MAX) extend(vocabulary, piece, i, best);
    turn_around(best, piece.size);
    bool follows_unknown = false;
    for (size_t at = 0; at < piece.size; at = best[at].begin) {
        bool is_unknown = best[at].token == NNEFC_NO_TOKEN;
        if (is_unknown)
            nnefc_unknown_tokens(vocabulary, (text_part){piece.bytes + at, (uint32_t)(best[at].begin - at)}, follows_unknown, tokens);
        else
            nnefc_tokens_add(tokens, best[at].token);
        follows_unknown = is_unknown;
    }
    free(best);
}
