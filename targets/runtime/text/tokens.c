/* Strings cut into tokens by regular expressions, as onnxruntime's Tokenizer does: of all matches at a position the longest counts. */
#include <string.h>

#include "text/automaton.h"
#include "text/text.h"
#include "text/utf8.h"

#define NO_MATCH SIZE_MAX

/* How tokens are found. */
typedef struct rules {
    const uint8_t *machines;  /* where automata are */
    const int64_t *offsets;    /* of each, in bytes from there on */
    int64_t count;            /* how many; the text between matches of the first is cut by the second, and so on */
    int64_t minimum;            /* characters of a token */
    bool keeps_matches;       /* tokens are the matches of the one automaton, else what is between */
} rules;

/* Where tokens go: the number that there are, and the first `room` of them. */
typedef struct tokens {
    nnefc_text *texts;
    int64_t count, room;
} tokens;

static nnefc_side side_after(nnefc_string text, size_t at) {
    return at < text.size ? nnefc_side_of(text.data[at]) : NNEFC_EDGE;
}

/* The bytes of the longest match that begins at a position of a text; NO_MATCH if there is none. */
static size_t longest(const nnefc_automaton *machine, nnefc_string text, size_t at) {
    uint32_t state = machine->starts[at > 0 ? nnefc_side_of(text.data[at - 1]) : NNEFC_EDGE];
    size_t found = nnefc_accepts(machine, state, side_after(text, at)) ? 0 : NO_MATCH;
    for (size_t i = at; i < text.size && state != 0; i++) {
        state = nnefc_state_after(machine, state, text.data[i]);
        if (nnefc_accepts(machine, state, side_after(text, i + 1))) found = i + 1 - at;
    }
    return found;
}

static bool is_long_enough(nnefc_string text, int64_t minimum) {
    int64_t characters = 0;
    for (size_t i = 0; i < text.size && characters < minimum; characters++)
        i += nnefc_next_code_point(text.data + i, text.size - i).size;
    return text.size > 0 && characters >= minimum;
}

static void add_token(tokens *into, nnefc_string text) {
    if (into->count++ >= into->room) return;
    nnefc_string *made = nnefc_text_allocate(sizeof *made);
    if (made != NULL) *made = text;
    into->texts[into->count - 1] = made != NULL ? nnefc_text_of_string(made) : 0;
}

static const nnefc_automaton *machine_at(const rules *how, int64_t number) {
    return (const void *)(how->machines + how->offsets[number]);
}

static void keep_matches(const rules *how, nnefc_string text, tokens *into) {
    const nnefc_automaton *machine = machine_at(how, 0);
    for (size_t at = 0; at < text.size;) {
        size_t size = longest(machine, text, at);
        bool is_match = size != NO_MATCH && size > 0;
        nnefc_string match = {text.data + at, size};
        if (is_match && is_long_enough(match, how->minimum)) add_token(into, match);
        at += is_match ? size : nnefc_next_code_point(text.data + at, text.size - at).size;
    }
}

/* Cuts a text at the matches of one automaton and those that follow; a match without bytes takes a character with it. */
static void cut(const rules *how, int64_t number, nnefc_string text, tokens *into) {
    if (number == how->count) {
        add_token(into, text);
        return;
    }
    size_t start = 0;
    for (size_t at = 0; at <= text.size;) {
        size_t size = at < text.size ? longest(machine_at(how, number), text, at) : 0;
        if (size == NO_MATCH) {
            at += nnefc_next_code_point(text.data + at, text.size - at).size;
            continue;
        }
        nnefc_string piece = {text.data + start, at - start};
        if (is_long_enough(piece, how->minimum)) cut(how, number + 1, piece, into);
        if (at == text.size) break;
        at += size > 0 ? size : nnefc_next_code_point(text.data + at, text.size - at).size;
        start = at;
    }
}

static void tokenize(const rules *how, nnefc_text text, tokens *into) {
    nnefc_string bytes = nnefc_text_bytes(text);
    if (bytes.size == 0) return;
    if (how->keeps_matches)
        keep_matches(how, bytes, into);
    else
        cut(how, 0, bytes, into);
}

/* How many tokens the text with the most of them has, those that mark its beginning and its end among them, if `marks` is 1
 * and any text has a token. */
int32_t nnefc_text_count_tokens(const nnefc_text *texts, const uint8_t *machines, const int64_t *offsets, int64_t *maximum,
                                int64_t count, int64_t rule_count, int64_t minimum, int64_t keeps_matches, int64_t marks);

int32_t nnefc_text_count_tokens(const nnefc_text *texts, const uint8_t *machines, const int64_t *offsets, int64_t *maximum,
                                int64_t count, int64_t rule_count, int64_t minimum, int64_t keeps_matches, int64_t marks) {
    rules how = {machines, offsets, rule_count, minimum, keeps_matches != 0};
    *maximum = 0;
    for (int64_t i = 0; i < count && !nnefc_run_failed(); i++) {
        tokens found = {NULL, 0, 0};
        tokenize(&how, texts[i], &found);
        if (found.count > *maximum) *maximum = found.count;
    }
    if (*maximum > 0) *maximum += 2 * marks;
    return 0;
}

/* The tokens of each text, `[count, width]`. `fill` has what comes behind the last, and the marks of beginning and end. */
int32_t nnefc_text_tokens(const nnefc_text *texts, const uint8_t *machines, const int64_t *offsets, const nnefc_text *fill,
                          nnefc_text *made, int64_t count, int64_t rule_count, int64_t minimum, int64_t keeps_matches,
                          int64_t marks, int64_t width);

int32_t nnefc_text_tokens(const nnefc_text *texts, const uint8_t *machines, const int64_t *offsets, const nnefc_text *fill,
                          nnefc_text *made, int64_t count, int64_t rule_count, int64_t minimum, int64_t keeps_matches,
                          int64_t marks, int64_t width) {
    rules how = {machines, offsets, rule_count, minimum, keeps_matches != 0};
    for (int64_t i = 0; i < count; i++) {
        tokens found = {made + i * width, 0, width};
        for (int64_t j = 0; j < width; j++) found.texts[j] = fill[0];
        if (nnefc_run_failed()) continue;
        if (marks && width > 0) found.texts[found.count++] = fill[1];
        tokenize(&how, texts[i], &found);
        if (marks && found.count < width) found.texts[found.count] = fill[2];
    }
    return 0;
}
