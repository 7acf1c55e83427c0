/* Tokens to text. */
#include <string.h>

#include "tokenizer/tokenizer.h"

typedef nnefc_vocabulary_text text_part;

static bool begins_with(text_part text, text_part start) {
    return text.size >= start.size && memcmp(text.bytes, start.bytes, start.size) == 0;
}

/* Writes a text in which U+2581 stands for a space, or for nothing. */
static void write_spaces(text_part text, const char *space, nnefc_pieces *made) {
    static const text_part mark = {"\xE2\x96\x81", 3};
    for (uint32_t at = 0; at < text.size;) {
        bool is_mark = begins_with((text_part){text.bytes + at, text.size - at}, mark);
        nnefc_pieces_write(made, is_mark ? space : text.bytes + at, is_mark ? strlen(space) : 1);
        at += is_mark ? mark.size : 1;
    }
}

/* Whether a word is written without a space before it: punctuation, and the ends of English contractions. */
static bool clings(text_part word) {
    static const char *const words[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (begins_with(word, (text_part){words[i], (uint32_t)strlen(words[i])})) return true;
    return false;
}

/* Writes a token of WordPiece: the part of a word, or a word and the space before it. */
static void write_word(const nnefc_vocabulary *vocabulary, text_part text, bool is_first, nnefc_pieces *made) {
    text_part prefix = nnefc_text_at(vocabulary, vocabulary->prefix);
    bool has_parts = (vocabulary->flags & NNEFC_DECODE_PARTS) != 0;
    bool continues = !is_first && has_parts && prefix.size > 0 && begins_with(text, prefix);
    if (continues) text.bytes += prefix.size, text.size -= prefix.size;
    bool cleans = (vocabulary->flags & NNEFC_DECODE_CLEAN_UP) != 0;
    if (!is_first && !continues && !(cleans && clings(text))) nnefc_pieces_write(made, " ", 1);
    nnefc_pieces_write(made, text.bytes, text.size);
}

bool nnefc_decode(const nnefc_vocabulary *vocabulary, const int64_t *tokens, size_t count, uint32_t flags, nnefc_pieces *bytes) {
    const uint8_t *kinds = nnefc_at(vocabulary, vocabulary->kinds);
    size_t begin = bytes->byte_count;
    bool is_first = (flags & NNEFC_CONTINUES) == 0;
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= (int64_t)vocabulary->token_count) return false;
        uint32_t token = (uint32_t)tokens[i];
        if (kinds[token] == NNEFC_CONTROL_TOKEN && flags & NNEFC_SKIP_CONTROL) continue;
        text_part text = nnefc_token_text(vocabulary, token);
        bool strips = is_first && vocabulary->flags & NNEFC_DECODE_STRIP_FIRST;
        size_t own = bytes->byte_count;
        if (vocabulary->flags & NNEFC_DECODE_WORDS)
            write_word(vocabulary, text, is_first, bytes);
        else if (vocabulary->flags & NNEFC_DECODE_METASPACE && kinds[token] != NNEFC_BYTE_TOKEN)
            write_spaces(text, is_first && vocabulary->flags & NNEFC_DECODE_DROP_FIRST ? "" : " ", bytes);
        else
            nnefc_pieces_write(bytes, text.bytes, text.size);
        if (strips && own == begin && bytes->byte_count > own && bytes->bytes[own] == ' ') {
            memmove(bytes->bytes + own, bytes->bytes + own + 1, bytes->byte_count - own - 1);
            bytes->byte_count--;
        }
        is_first = false;
    }
    return true;
}
