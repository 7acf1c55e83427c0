/* Takes added tokens out of a text, and splits it at the matches of patterns. */
#include "tokenizer/steps.h"

#include <string.h>

#include "text/automaton.h"
#include "text/utf8.h"

typedef nnefc_vocabulary_text text_part;

/* A pattern: expressions of which the first that matches counts. Each is an automaton over the classes of characters, and one
 * that must not match what follows, or 0. */
typedef struct pattern {
    uint32_t count;
    uint32_t expressions[][2];
} pattern;

typedef struct added_token {
    uint32_t token, flags;
    uint32_t text; /* offset of the text that is looked for */
} added_token;

typedef struct added_tokens {
    uint32_t first[257];   /* by the first byte of their texts, among the entries */
    added_token entries[]; /* of those with the same first byte the longest text comes first */
} added_tokens;

static bool is_space(uint32_t c) {
    return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* The size of the white space that a text begins with. */
static size_t leading_space(text_part text) {
    size_t at = 0;
    while (at < text.size) {
        nnefc_code_point next = nnefc_next_code_point(text.bytes + at, text.size - at);
        if (!is_space(next.number)) break;
        at += next.size;
    }
    return at;
}

/* Where the code point that ends at `end` begins. */
static size_t previous(text_part text, size_t end) {
    size_t at = end - 1;
    while (at > 0 && end - at < 4 && ((uint8_t)text.bytes[at] & 0xC0) == 0x80) at--;
    return at + nnefc_next_code_point(text.bytes + at, end - at).size == end ? at : end - 1;
}

/* Where the white space at the end of a text begins. */
static size_t trailing_space(text_part text) {
    size_t end = text.size;
    while (end > 0) {
        size_t at = previous(text, end);
        if (!is_space(nnefc_next_code_point(text.bytes + at, end - at).number)) break;
        end = at;
    }
    return end;
}

/* The class of a code point, by which patterns distinguish them; bytes that are in no code point are like U+FFFD. */
static uint32_t class_of(const nnefc_vocabulary *vocabulary, uint32_t number) {
    const nnefc_classes *classes = nnefc_at(vocabulary, vocabulary->classes);
    if (number == NNEFC_NO_CODE_POINT) number = 0xFFFD;
    return classes->classes[(size_t)classes->block_of[number / NNEFC_CLASS_BLOCK] * NNEFC_CLASS_BLOCK + number % NNEFC_CLASS_BLOCK];
}

/* The size of the longest text at `at` that an automaton takes, 0 if there is none. Texts before which `unless` matches do not
 * count. */
static size_t longest(const nnefc_vocabulary *vocabulary, uint32_t automaton, uint32_t unless, text_part text, size_t at) {
    const nnefc_automaton *machine = nnefc_at(vocabulary, automaton);
    uint32_t state = machine->starts[NNEFC_OTHER];
    size_t found = 0;
    for (size_t i = at; i < text.size && state != 0;) {
        nnefc_code_point next = nnefc_next_code_point(text.bytes + i, text.size - i);
        state = nnefc_state_after(machine, state, (char)class_of(vocabulary, next.number));
        i += next.size;
        if (nnefc_accepts(machine, state, NNEFC_OTHER) && (unless == 0 || longest(vocabulary, unless, 0, text, i) == 0)) found = i - at;
    }
    return found;
}

/* Whether an automaton takes the character at `at`. */
static bool is_of(const nnefc_vocabulary *vocabulary, uint32_t automaton, text_part text, size_t at) {
    return longest(vocabulary, automaton, 0, text, at) > 0;
}

/* The size of the match of a pattern at `at`, 0 if there is none. */
static size_t match_at(const nnefc_vocabulary *vocabulary, const pattern *which, text_part text, size_t at) {
    for (uint32_t i = 0; i < which->count; i++) {
        size_t size = longest(vocabulary, which->expressions[i][0], which->expressions[i][1], text, at);
        if (size > 0) return size;
    }
    return 0;
}

/* Where the next match from `at` on begins, the end of the text if there is none; its size. */
static size_t next_match(const nnefc_vocabulary *vocabulary, const pattern *which, text_part text, size_t at, size_t *size) {
    for (*size = 0; at < text.size; at += nnefc_next_code_point(text.bytes + at, text.size - at).size) {
        *size = match_at(vocabulary, which, text, at);
        if (*size > 0) break;
    }
    return at < text.size ? at : text.size;
}

/* Adds a piece of text, or joins it to the one before it. */
static void add_part(nnefc_pieces *made, text_part part, bool joins, bool is_first) {
    if (part.size == 0) return;
    size_t begin = made->byte_count;
    nnefc_pieces_write(made, part.bytes, part.size);
    if (joins && !made->failed)
        made->list[made->count - 1].size += part.size;
    else
        nnefc_pieces_end(made, begin, NNEFC_NO_TOKEN, is_first);
}

/* What split_piece knows of the part before. */
typedef struct splitting {
    uint32_t behavior;
    bool is_first; /* whether the piece begins the text */
    bool any;      /* whether a part was added */
    bool match;    /* whether the part before is a match */
} splitting;

static void add_split(splitting *state, nnefc_pieces *made, text_part part, bool match, text_part piece) {
    if (part.size == 0) return;
    bool joins = false;
    switch (state->behavior) {
        case NNEFC_SPLIT_WITH_PREVIOUS: joins = match && !state->match; break;
        case NNEFC_SPLIT_WITH_NEXT: joins = !match && state->match; break;
        case NNEFC_SPLIT_CONTIGUOUS: joins = match == state->match; break;
        default: break;
    }
    if (state->behavior == NNEFC_SPLIT_REMOVED && match) return;
    add_part(made, part, joins && state->any, state->is_first && part.bytes == piece.bytes);
    state->any = true;
    state->match = match;
}

static void split_piece(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part piece, bool is_first, nnefc_pieces *made) {
    bool inverts = (step->flags & NNEFC_SPLIT_INVERT) != 0;
    splitting state = {step->flags & 7, is_first, false, false};
    for (size_t at = 0, size = 0; at < piece.size && !made->failed; at += size) {
        size_t begin = next_match(vocabulary, nnefc_at(vocabulary, step->table), piece, at, &size);
        add_split(&state, made, (text_part){piece.bytes + at, (uint32_t)(begin - at)}, inverts, piece);
        add_split(&state, made, (text_part){piece.bytes + begin, (uint32_t)size}, !inverts, piece);
        at = begin;
    }
}

static void replace_matches(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part piece, nnefc_pieces *made) {
    text_part other = nnefc_text_at(vocabulary, step->text);
    for (size_t at = 0, size = 0; at < piece.size && !made->failed; at += size) {
        size_t begin = next_match(vocabulary, nnefc_at(vocabulary, step->table), piece, at, &size);
        nnefc_pieces_write(made, piece.bytes + at, begin - at);
        if (size > 0) nnefc_pieces_write(made, other.bytes, other.size);
        if (size > 0 && step->flags & NNEFC_REPLACE_SURROUNDS) {
            nnefc_pieces_write(made, piece.bytes + begin, size);
            nnefc_pieces_write(made, other.bytes, other.size);
        }
        at = begin;
    }
}

/* Whether a part of a text is a word of its own: `words` is the automaton of the characters that words have. */
static bool is_single(const nnefc_vocabulary *vocabulary, uint32_t words, text_part text, size_t begin, size_t end) {
    bool begins = begin == 0 || !is_of(vocabulary, words, text, previous(text, begin));
    return begins && (end == text.size || !is_of(vocabulary, words, text, end));
}

/* The added token with the longest text that is at a position of a text, or null. */
static const added_token *added_at(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part text, size_t at) {
    const added_tokens *added = nnefc_at(vocabulary, step->table);
    uint8_t byte = (uint8_t)text.bytes[at];
    for (uint32_t i = added->first[byte]; i < added->first[byte + 1]; i++) {
        text_part own = nnefc_text_at(vocabulary, added->entries[i].text);
        if (own.size <= text.size - at && memcmp(own.bytes, text.bytes + at, own.size) == 0) return &added->entries[i];
    }
    return NULL;
}

/* Whether the text of an added token is that token, and not text like any other. */
static bool is_taken(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, const added_token *own, text_part text, size_t begin, size_t end, bool finds_control) {
    const uint8_t *kinds = nnefc_at(vocabulary, vocabulary->kinds);
    if (kinds[own->token] == NNEFC_CONTROL_TOKEN && !finds_control) return false;
    return (own->flags & NNEFC_ADDED_SINGLE_WORD) == 0 || is_single(vocabulary, step->text, text, begin, end);
}

/* No token is looked for within the text of another one, even if that is not taken; the white space that a token strips may have
 * others. */
static void take_added(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part piece, bool is_first, bool finds_control, nnefc_pieces *made) {
    size_t left = 0; /* where what no token has taken begins */
    for (size_t at = 0; at < piece.size && !made->failed;) {
        const added_token *own = added_at(vocabulary, step, piece, at);
        size_t begin = at, end = at + (own != NULL ? nnefc_text_at(vocabulary, own->text).size : 1);
        at = end;
        if (own == NULL || !is_taken(vocabulary, step, own, piece, begin, end, finds_control)) continue;
        if (own->flags & NNEFC_ADDED_STRIPS_LEFT)
            begin = begin < left ? left : left + trailing_space((text_part){piece.bytes + left, (uint32_t)(begin - left)});
        if (own->flags & NNEFC_ADDED_STRIPS_RIGHT) /* what lies before `left` was stripped by the token before */
            end = end < left ? left : end + leading_space((text_part){piece.bytes + end, (uint32_t)(piece.size - end)});
        if (begin > left) add_part(made, (text_part){piece.bytes + left, (uint32_t)(begin - left)}, false, is_first && left == 0);
        if (begin < end) nnefc_pieces_end(made, made->byte_count, own->token, is_first && begin == 0);
        left = end;
    }
    add_part(made, (text_part){piece.bytes + left, (uint32_t)(piece.size - left)}, false, is_first && left == 0);
}

static void prepend(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part piece, bool is_first, nnefc_pieces *made) {
    text_part own = nnefc_text_at(vocabulary, step->text);
    bool is_there = piece.size >= own.size && memcmp(piece.bytes, own.bytes, own.size) == 0;
    bool adds = (is_first || !(step->flags & NNEFC_PREPEND_ONCE)) && !(is_there && (step->flags & NNEFC_PREPEND_UNLESS_THERE));
    if (adds) nnefc_pieces_write(made, own.bytes, own.size);
    nnefc_pieces_write(made, piece.bytes, piece.size);
}

static text_part stripped(const nnefc_text_step *step, text_part piece) {
    size_t begin = step->flags & NNEFC_STRIP_LEFT ? leading_space(piece) : 0;
    text_part left = {piece.bytes + begin, (uint32_t)(piece.size - begin)};
    if (step->flags & NNEFC_STRIP_RIGHT) left.size = (uint32_t)trailing_space(left);
    return left;
}

/* What a step makes of a piece of text. */
static void step_of_piece(const nnefc_vocabulary *vocabulary, const nnefc_text_step *step, text_part piece, bool is_first, bool finds_control, nnefc_pieces *made) {
    size_t begin = made->byte_count;
    switch ((nnefc_step_kind)step->kind) {
        case NNEFC_STEP_ADDED: take_added(vocabulary, step, piece, is_first, finds_control, made); return;
        case NNEFC_STEP_SPLIT: split_piece(vocabulary, step, piece, is_first, made); return;
        case NNEFC_STEP_PREPEND: prepend(vocabulary, step, piece, is_first, made); break;
        case NNEFC_STEP_REPLACE: replace_matches(vocabulary, step, piece, made); break;
        case NNEFC_STEP_MAP: nnefc_map_characters(vocabulary, step, piece, made); break;
        case NNEFC_STEP_REORDER: nnefc_reorder_marks(vocabulary, step, piece, made); break;
        case NNEFC_STEP_COMPOSE: nnefc_compose_characters(vocabulary, step, piece, made); break;
        case NNEFC_STEP_STRIP: piece = stripped(step, piece); nnefc_pieces_write(made, piece.bytes, piece.size); break;
    }
    nnefc_pieces_end(made, begin, NNEFC_NO_TOKEN, is_first);
}

void nnefc_split_text(const nnefc_vocabulary *vocabulary, const char *text, size_t size, bool finds_control, nnefc_pieces *pieces) {
    const nnefc_text_step *steps = nnefc_at(vocabulary, vocabulary->steps);
    nnefc_pieces_write(pieces, text, size);
    nnefc_pieces_end(pieces, 0, NNEFC_NO_TOKEN, true);
    for (uint32_t i = 0; i < vocabulary->step_count && !pieces->failed; i++) {
        nnefc_pieces made = {0};
        for (size_t j = 0; j < pieces->count && !made.failed; j++) {
            const nnefc_piece_of_text *own = &pieces->list[j];
            text_part part = {pieces->bytes + own->begin, (uint32_t)own->size};
            if (own->token == NNEFC_NO_TOKEN)
                step_of_piece(vocabulary, &steps[i], part, own->is_first, finds_control, &made);
            else
                nnefc_pieces_end(&made, made.byte_count, own->token, own->is_first);
        }
        nnefc_pieces_free(pieces);
        *pieces = made;
    }
}
