/* Byte-pair encoding: neighbors are merged, those that rank first before others, and of these the leftmost. */
#include <stdlib.h>

#include "tokenizer/models.h"

typedef nnefc_vocabulary_text text_part;

#define NONE SIZE_MAX

/* A part of the piece that is a token, or a character that is none. A part that was merged into its neighbor has no bytes. */
typedef struct symbol {
    size_t begin, size;
    size_t previous, next; /* symbols, or NONE */
    uint32_t token;
} symbol;

/* Two neighbors that may merge. */
typedef struct candidate {
    uint32_t rank, merged;
    size_t left, right; /* symbols */
    size_t size;        /* of both in bytes: if they have another size meanwhile, the candidate is void */
} candidate;

typedef struct merging {
    const nnefc_vocabulary *vocabulary;
    text_part piece;
    symbol *symbols;
    candidate *heap; /* the first to be merged is heap[0] */
    size_t count, room;
    bool failed;
} merging;

static bool comes_first(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void push(merging *state, candidate new) {
    if (!nnefc_grow((void **)&state->heap, &state->room, state->count, sizeof *state->heap, &state->failed)) return;
    size_t at = state->count++;
    while (at > 0 && comes_first(&new, &state->heap[(at - 1) / 2])) {
        state->heap[at] = state->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    state->heap[at] = new;
}

static candidate pop(merging *state) {
    candidate top = state->heap[0], last = state->heap[--state->count];
    size_t at = 0;
    for (size_t child = 1; child < state->count; child = 2 * at + 1) {
        if (child + 1 < state->count && comes_first(&state->heap[child + 1], &state->heap[child])) child++;
        if (!comes_first(&state->heap[child], &last)) break;
        state->heap[at] = state->heap[child];
        at = child;
    }
    state->heap[at] = last;
    return top;
}

/* The merge of two tokens, or null. */
static const nnefc_merge *merge_of(const nnefc_vocabulary *vocabulary, uint32_t left, uint32_t right) {
    if (left == NNEFC_NO_TOKEN || right == NNEFC_NO_TOKEN) return NULL;
    const uint32_t *first = nnefc_at(vocabulary, vocabulary->first_merges);
    const nnefc_merge *merges = nnefc_at(vocabulary, vocabulary->merges);
    size_t low = first[left], high = first[left + 1];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (merges[middle].right < right)
            low = middle + 1;
        else
            high = middle;
    }
    return low < first[left + 1] && merges[low].right == right ? &merges[low] : NULL;
}

static uint32_t token_of(const nnefc_vocabulary *vocabulary, text_part text) {
    if (text.size > vocabulary->max_bytes) return NNEFC_NO_TOKEN;
    return nnefc_find_token(vocabulary, nnefc_hash(NNEFC_HASH_START, text.bytes, text.size), text, (text_part){"", 0});
}

/* Notes that a symbol and the next one may merge, if they may. */
static void consider(merging *state, size_t left) {
    if (left == NONE || state->symbols[left].next == NONE) return;
    const symbol *a = &state->symbols[left], *b = &state->symbols[a->next];
    candidate new = {0, NNEFC_NO_TOKEN, left, a->next, a->size + b->size};
    if (state->vocabulary->model == NNEFC_BPE_MERGES) {
        const nnefc_merge *merge = merge_of(state->vocabulary, a->token, b->token);
        if (merge != NULL) new.rank = merge->rank, new.merged = merge->merged;
    } else {
        const uint32_t *ranks = nnefc_at(state->vocabulary, state->vocabulary->ranks);
        new.merged = new.size <= UINT32_MAX ? token_of(state->vocabulary, (text_part){state->piece.bytes + a->begin, (uint32_t)new.size}) : NNEFC_NO_TOKEN;
        if (new.merged != NNEFC_NO_TOKEN) new.rank = ranks[new.merged];
    }
    if (new.merged != NNEFC_NO_TOKEN) push(state, new);
}

static void merge(merging *state, candidate which) {
    symbol *a = &state->symbols[which.left], *b = &state->symbols[which.right];
    if (a->size == 0 || b->size == 0 || a->next != which.right || a->size + b->size != which.size) return;
    a->size = which.size;
    a->token = which.merged;
    a->next = b->next;
    b->size = 0;
    if (a->next != NONE) state->symbols[a->next].previous = which.left;
    consider(state, a->previous);
    consider(state, which.left);
}

/* Whether nothing becomes of a symbol, not even an unknown token. */
static bool is_dropped(const merging *state, size_t begin, size_t size) {
    if ((state->vocabulary->flags & NNEFC_DROP_UNKNOWN) == 0) return false;
    nnefc_tokens found = {NULL, 0, 0, false};
    nnefc_unknown_tokens(state->vocabulary, (text_part){state->piece.bytes + begin, (uint32_t)size}, false, &found);
    free(found.list);
    return found.count == 0 && !found.failed;
}

/* Makes a symbol of each byte or character; returns how many. */
static size_t begin_symbols(merging *state) {
    size_t count = 0;
    for (size_t at = 0; at < state->piece.size;) {
        size_t size = nnefc_symbol_size(state->vocabulary, state->piece, at);
        uint32_t token = token_of(state->vocabulary, (text_part){state->piece.bytes + at, (uint32_t)size});
        if (token != NNEFC_NO_TOKEN || !is_dropped(state, at, size)) {
            state->symbols[count] = (symbol){at, size, count > 0 ? count - 1 : NONE, count + 1, token};
            count++;
        }
        at += size;
    }
    if (count > 0) state->symbols[count - 1].next = NONE;
    return count;
}

void nnefc_byte_pair_tokens(const nnefc_vocabulary *vocabulary, text_part piece, nnefc_tokens *tokens) {
    uint32_t whole = vocabulary->flags & NNEFC_WHOLE_WORDS ? token_of(vocabulary, piece) : NNEFC_NO_TOKEN;
    if (whole != NNEFC_NO_TOKEN) {
        nnefc_tokens_add(tokens, whole);
        return;
    }
    merging state = {vocabulary, piece, malloc(piece.size * sizeof(symbol)), NULL, 0, 0, false};
    state.failed = state.symbols == NULL;
    size_t count = state.failed ? 0 : begin_symbols(&state);
    for (size_t i = 0; i + 1 < count; i++) consider(&state, i);
    while (state.count > 0) merge(&state, pop(&state));
    bool follows_unknown = false;
    for (size_t i = count > 0 ? 0 : NONE; i != NONE; i = state.symbols[i].next) {
        const symbol *own = &state.symbols[i];
        if (own->token != NNEFC_NO_TOKEN)
            nnefc_tokens_add(tokens, own->token);
        else
            nnefc_unknown_tokens(vocabulary, (text_part){piece.bytes + own->begin, (uint32_t)own->size}, follows_unknown, tokens);
        follows_unknown = own->token == NNEFC_NO_TOKEN;
    }
    tokens->failed = tokens->failed || state.failed;
    free(state.symbols);
    free(state.heap);
}
