/* Reads JSON, as Python's module json does: NaN and infinities are numbers, of equal keys the last one counts. */
#include <math.h>
#include <string.h>

#include "chat/unicode.h"
#include "chat/values.h"

typedef struct reader {
    nnefc_renderer *renderer;
    const char *bytes, *what;
    size_t at, size;
} reader;

static nnefc_value read_value(reader *text);

static nnefc_value wrong(reader *text, const char *message) {
    return nnefc_chat_fail(text->renderer, "%s: no JSON at byte %zu: %s", text->what, text->at, message);
}

/* The size of the character at `at`, 0 if it is not UTF-8. */
static size_t valid_size(const uint8_t *bytes, size_t size, size_t at) {
    uint8_t first = bytes[at];
    if (first < 0x80) return 1;
    size_t wanted = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first < 0xC2 || first > 0xF4 || wanted > size - at) return 0;
    for (size_t i = 1; i < wanted; i++)
        if ((bytes[at + i] & 0xC0) != 0x80) return 0;
    if (first == 0xE0 && bytes[at + 1] < 0xA0) return 0;
    if (first == 0xF0 && bytes[at + 1] < 0x90) return 0;
    return first == 0xF4 && bytes[at + 1] > 0x8F ? 0 : wanted;
}

nnefc_value nnefc_chat_checked_text(nnefc_renderer *renderer, nnefc_string text, const char *what) {
    if (text.size > UINT32_MAX) return nnefc_chat_fail(renderer, "%s: the text is too long", what);
    nnefc_chat_spend(renderer, text.size);
    for (size_t at = 0; at < text.size;) {
        size_t size = valid_size((const uint8_t *)text.data, text.size, at);
        if (size == 0) return nnefc_chat_fail(renderer, "%s: byte %zu is not UTF-8", what, at);
        at += size;
    }
    return nnefc_text_at(text.size > 0 ? text.data : "", text.size);
}

static void skip_space(reader *text) {
    while (text->at < text->size && strchr(" \t\n\r", text->bytes[text->at]) != NULL && text->bytes[text->at] != '\0') text->at++;
}

static bool take(reader *text, char c) {
    skip_space(text);
    bool is_there = text->at < text->size && text->bytes[text->at] == c;
    text->at += is_there;
    return is_there;
}

static bool take_word(reader *text, const char *word) {
    size_t size = strlen(word);
    bool is_there = size <= text->size - text->at && memcmp(text->bytes + text->at, word, size) == 0;
    if (is_there) text->at += size;
    return is_there;
}

/* Four hexadecimal digits, or -1. */
static int32_t read_unit(reader *text) {
    int32_t unit = 0;
    if (text->size - text->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = text->bytes[text->at + (size_t)i], small = (char)(c | 0x20);
        int32_t digit = c >= '0' && c <= '9' ? c - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
        if (digit < 0) return -1;
        unit = unit * 16 + digit;
    }
    text->at += 4;
    return unit;
}

/* Writes what comes after \u; two surrogates are one character. */
static bool read_escaped_character(reader *text) {
    char made[4];
    int32_t unit = read_unit(text), low = 0;
    if (unit < 0) return false;
    uint32_t number = (uint32_t)unit;
    size_t begin = text->at;
    if (unit >= 0xD800 && unit < 0xDC00 && take_word(text, "\\u")) {
        low = read_unit(text);
        if (low >= 0xDC00 && low < 0xE000)
            number = 0x10000 + ((number - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
        else
            text->at = begin;
    }
    nnefc_chat_write(text->renderer, made, nnefc_encode_character(number, made));
    return true;
}

static bool read_escape(reader *text) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (text->at == text->size) return false;
    char letter = text->bytes[text->at++];
    if (letter == 'u') return read_escaped_character(text);
    const char *known = letter != '\0' ? strchr(letters, letter) : NULL;
    if (known != NULL) nnefc_chat_write(text->renderer, &meant[known - letters], 1);
    return known != NULL;
}

/* What comes after the first quotation mark. A string without escapes is not copied. */
static nnefc_value read_string(reader *text) {
    nnefc_renderer *renderer = text->renderer;
    size_t begin = text->at, mark = renderer->size;
    bool has_escapes = false;
    while (text->at < text->size && text->bytes[text->at] != '"' && !nnefc_failed(renderer)) {
        if ((uint8_t)text->bytes[text->at] < 0x20) return wrong(text, "a control character");
        if (text->bytes[text->at] != '\\') {
            text->at++;
            continue;
        }
        nnefc_chat_write(renderer, text->bytes + begin, text->at - begin);
        has_escapes = true;
        text->at++;
        if (!read_escape(text)) return wrong(text, "an escape");
        begin = text->at;
    }
    if (text->at == text->size) return wrong(text, "a string does not end");
    nnefc_value tail = nnefc_text_at(text->bytes + begin, text->at - begin);
    text->at++;
    if (!has_escapes) return tail;
    nnefc_chat_write(renderer, tail.bytes, tail.size);
    return nnefc_chat_taken(renderer, mark);
}

static size_t digits(reader *text) {
    size_t begin = text->at;
    while (text->at < text->size && text->bytes[text->at] >= '0' && text->bytes[text->at] <= '9') text->at++;
    return text->at - begin;
}

static nnefc_value read_integer(const char *bytes, size_t size) {
    bool is_negative = bytes[0] == '-', fits = true;
    int64_t made = 0;
    for (size_t i = is_negative; i < size && fits; i++) {
        int64_t digit = bytes[i] - '0';
        fits = !__builtin_mul_overflow(made, 10, &made) && !__builtin_add_overflow(made, is_negative ? -digit : digit, &made);
    }
    if (fits) return nnefc_integer(made);
    return (nnefc_value){.kind = NNEFC_KIND_BIG, .size = (uint32_t)size, .bytes = bytes};
}

static nnefc_value read_number(reader *text) {
    size_t begin = text->at;
    text->at += text->bytes[text->at] == '-';
    if (take_word(text, "Infinity")) return nnefc_float(text->bytes[begin] == '-' ? -(double)INFINITY : (double)INFINITY);
    size_t first = text->at, count = digits(text);
    if (count == 0 || (count > 1 && text->bytes[first] == '0')) return wrong(text, "a value was expected");
    bool is_whole = true;
    if (text->at < text->size && text->bytes[text->at] == '.') {
        text->at++, is_whole = false;
        if (digits(text) == 0) return wrong(text, "a digit was expected");
    }
    if (text->at < text->size && (text->bytes[text->at] | 0x20) == 'e') {
        text->at++, is_whole = false;
        if (text->at < text->size && (text->bytes[text->at] == '-' || text->bytes[text->at] == '+')) text->at++;
        if (digits(text) == 0) return wrong(text, "a digit was expected");
    }
    if (is_whole) return read_integer(text->bytes + begin, text->at - begin);
    return nnefc_float(nnefc_chat_parse_float(text->bytes + begin, text->at - begin));
}

static nnefc_value read_list(reader *text) {
    nnefc_list *made = nnefc_chat_list(text->renderer, 4);
    if (take(text, ']')) return nnefc_list_of(NNEFC_KIND_LIST, made);
    do {
        nnefc_chat_append(text->renderer, made, read_value(text));
    } while (!nnefc_failed(text->renderer) && take(text, ','));
    if (!take(text, ']')) return wrong(text, "] was expected");
    return nnefc_list_of(NNEFC_KIND_LIST, made);
}

static nnefc_value read_dict(reader *text) {
    nnefc_dict *made = nnefc_chat_dict(text->renderer);
    if (take(text, '}')) return nnefc_dict_of(NNEFC_KIND_DICT, made);
    do {
        if (!take(text, '"')) return wrong(text, "a key was expected");
        nnefc_value key = read_string(text);
        if (!take(text, ':')) return wrong(text, ": was expected");
        nnefc_chat_set(text->renderer, made, key, read_value(text));
    } while (!nnefc_failed(text->renderer) && take(text, ','));
    if (!take(text, '}')) return wrong(text, "} was expected");
    return nnefc_dict_of(NNEFC_KIND_DICT, made);
}

static nnefc_value read_value(reader *text) {
    nnefc_value found = nnefc_none();
    if (!nnefc_chat_enter(text->renderer)) return found;
    skip_space(text);
    if (text->at == text->size)
        found = wrong(text, "a value was expected");
    else if (take(text, '"'))
        found = read_string(text);
    else if (take(text, '['))
        found = read_list(text);
    else if (take(text, '{'))
        found = read_dict(text);
    else if (take_word(text, "true") || take_word(text, "false"))
        found = nnefc_boolean(text->bytes[text->at - 2] == 'u');
    else if (take_word(text, "NaN"))
        found = nnefc_float((double)NAN);
    else if (!take_word(text, "null"))
        found = read_number(text);
    nnefc_chat_leave(text->renderer);
    return found;
}

nnefc_value nnefc_chat_parse_json(nnefc_renderer *renderer, nnefc_string given, const char *what) {
    nnefc_value checked = nnefc_chat_checked_text(renderer, given, what);
    reader text = {renderer, checked.bytes, what, 0, checked.size};
    if (nnefc_failed(renderer)) return nnefc_undefined();
    nnefc_value found = read_value(&text);
    skip_space(&text);
    return text.at == text.size || nnefc_failed(renderer) ? found : wrong(&text, "it should end here");
}
