/* Operations on strings, as Python and Jinja have them. */
#include <string.h>

#include "chat/unicode.h"
#include "chat/values.h"
#include "text/letters.h"

int64_t nnefc_chat_characters(nnefc_renderer *renderer, nnefc_value text) {
    int64_t count = 0;
    nnefc_chat_spend(renderer, text.size);
    for (size_t i = 0; i < text.size; i++) count += ((uint8_t)text.bytes[i] & 0xC0) != 0x80;
    return count;
}

size_t nnefc_chat_offset(nnefc_value text, int64_t characters) {
    size_t at = 0;
    for (; characters > 0 && at < text.size; characters--) at += nnefc_character_at(text, at).size;
    return at;
}

/* Writes a text in another case, by the table at an offset of the program. */
static void write_changed(nnefc_renderer *renderer, uint32_t table, nnefc_value text) {
    if (table == 0) {
        nnefc_chat_fail(renderer, "the chat template has no table of cases");
        return;
    }
    const nnefc_letters *letters = (const nnefc_letters *)((const char *)renderer->program + table);
    nnefc_string given = {text.bytes, text.size};
    size_t size = (size_t)nnefc_change_letters(letters, given, NULL);
    char *made = nnefc_chat_spend(renderer, 16 * (size_t)text.size) ? nnefc_chat_allocate(renderer, size + 1, 1) : NULL;
    if (made == NULL) return;
    nnefc_change_letters(letters, given, made);
    nnefc_chat_write(renderer, made, size);
}

nnefc_value nnefc_chat_change_case(nnefc_renderer *renderer, nnefc_value text, nnefc_case which) {
    size_t begin = renderer->size;
    write_changed(renderer, which == NNEFC_LOWER_CASE ? renderer->program->lower : renderer->program->upper, text);
    return nnefc_chat_taken(renderer, begin);
}

/* The first character of a text, which is not empty, and what follows it. */
static nnefc_value first_of(nnefc_value text) { return nnefc_text_at(text.bytes, nnefc_chat_offset(text, 1)); }

static nnefc_value after(nnefc_value text, size_t size) { return nnefc_text_at(text.bytes + size, text.size - size); }

nnefc_value nnefc_chat_capitalized(nnefc_renderer *renderer, nnefc_value text) {
    if (text.size == 0) return text;
    nnefc_value first = first_of(text), lower = nnefc_chat_change_case(renderer, text, NNEFC_LOWER_CASE);
    nnefc_value lower_first = nnefc_chat_change_case(renderer, first, NNEFC_LOWER_CASE);
    if (nnefc_failed(renderer)) return lower;
    size_t begin = renderer->size;
    write_changed(renderer, renderer->program->title, first);
    nnefc_value tail = after(lower, lower_first.size);
    nnefc_chat_write(renderer, tail.bytes, tail.size);
    return nnefc_chat_taken(renderer, begin);
}

static bool is_between_words(uint32_t number) {
    return nnefc_is_space(number) || (number < 0x80 && number != 0 && strchr("-({[<", (int)number) != NULL);
}

nnefc_value nnefc_chat_titled(nnefc_renderer *renderer, nnefc_value text) {
    size_t begin = renderer->size;
    for (size_t at = 0; at < text.size && !nnefc_failed(renderer);) {
        size_t end = at;
        bool is_word = !is_between_words(nnefc_character_at(text, at).number);
        while (end < text.size && is_between_words(nnefc_character_at(text, end).number) != is_word)
            end += nnefc_character_at(text, end).size;
        nnefc_value part = nnefc_text_at(text.bytes + at, end - at), first = first_of(part);
        write_changed(renderer, renderer->program->upper, first);
        write_changed(renderer, renderer->program->lower, after(part, first.size));
        at = end;
    }
    return nnefc_chat_taken(renderer, begin);
}

static bool is_stripped(nnefc_value characters, uint32_t number) {
    if (characters.kind == NNEFC_KIND_NONE) return nnefc_is_space(number);
    for (size_t at = 0; at < characters.size;) {
        nnefc_character each = nnefc_character_at(characters, at);
        if (each.number == number) return true;
        at += each.size;
    }
    return false;
}

nnefc_value nnefc_chat_stripped(nnefc_renderer *renderer, nnefc_value text, nnefc_value characters, int ends) {
    if (characters.kind != NNEFC_KIND_NONE && characters.kind != NNEFC_KIND_STRING)
        return nnefc_chat_fail(renderer, "the characters to strip are a text");
    size_t begin = 0, end = text.size;
    while ((ends & 1) != 0 && begin < end && nnefc_chat_spend(renderer, characters.size)) {
        nnefc_character next = nnefc_character_at(text, begin);
        if (!is_stripped(characters, next.number)) break;
        begin += next.size;
    }
    while ((ends & 2) != 0 && begin < end && nnefc_chat_spend(renderer, characters.size)) {
        nnefc_character last = nnefc_character_before(text, end);
        if (!is_stripped(characters, last.number)) break;
        end -= last.size;
    }
    return nnefc_text_at(text.bytes + begin, end - begin);
}

/* An empty text is found before each character, and at the end. */
static size_t next_match(nnefc_renderer *renderer, nnefc_value text, nnefc_value old, size_t begin, bool is_first) {
    if (old.size > 0) return nnefc_chat_find_bytes(renderer, text, old, begin);
    if (is_first || begin >= text.size) return is_first ? 0 : SIZE_MAX;
    return begin + nnefc_character_at(text, begin).size;
}

nnefc_value nnefc_chat_replaced(nnefc_renderer *renderer, nnefc_value text, nnefc_value old, nnefc_value other, int64_t limit) {
    size_t mark = renderer->size, done = 0;
    for (int64_t count = 0; (limit < 0 || count < limit) && !nnefc_failed(renderer); count++) {
        size_t at = next_match(renderer, text, old, done, count == 0);
        if (at == SIZE_MAX) break;
        nnefc_chat_write(renderer, text.bytes + done, at - done);
        nnefc_chat_write(renderer, other.bytes, other.size);
        done = at + old.size;
    }
    nnefc_chat_write(renderer, text.bytes + done, text.size - done);
    return nnefc_chat_taken(renderer, mark);
}

static size_t skip_space(nnefc_value text, size_t at, bool space) {
    while (at < text.size && nnefc_is_space(nnefc_character_at(text, at).number) == space) at += nnefc_character_at(text, at).size;
    return at;
}

static size_t skip_space_back(nnefc_value text, size_t end, bool space) {
    while (end > 0 && nnefc_is_space(nnefc_character_before(text, end).number) == space) end -= nnefc_character_before(text, end).size;
    return end;
}

static void split_at_space(nnefc_renderer *renderer, nnefc_value text, int64_t limit, nnefc_list *made) {
    size_t at = skip_space(text, 0, true);
    for (int64_t count = 0; at < text.size && !nnefc_failed(renderer); count++) {
        size_t end = limit >= 0 && count >= limit ? text.size : skip_space(text, at, false);
        nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes + at, end - at));
        at = skip_space(text, end, true);
    }
}

static void split_at_space_back(nnefc_renderer *renderer, nnefc_value text, int64_t limit, nnefc_list *made) {
    size_t end = skip_space_back(text, text.size, true);
    for (int64_t count = 0; end > 0 && !nnefc_failed(renderer); count++) {
        size_t begin = limit >= 0 && count >= limit ? 0 : skip_space_back(text, end, false);
        nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes + begin, end - begin));
        end = skip_space_back(text, begin, true);
    }
}

/* Where a separator last occurs before `end`. */
static size_t find_back(nnefc_renderer *renderer, nnefc_value text, nnefc_value separator, size_t end) {
    for (size_t at = end; at >= separator.size && nnefc_chat_spend(renderer, separator.size); at--)
        if (memcmp(text.bytes + at - separator.size, separator.bytes, separator.size) == 0) return at - separator.size;
    return SIZE_MAX;
}

static void split_at(nnefc_renderer *renderer, nnefc_value text, nnefc_value separator, int64_t limit, nnefc_list *made) {
    size_t begin = 0;
    for (int64_t count = 0; (limit < 0 || count < limit) && !nnefc_failed(renderer); count++) {
        size_t at = nnefc_chat_find_bytes(renderer, text, separator, begin);
        if (at == SIZE_MAX) break;
        nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes + begin, at - begin));
        begin = at + separator.size;
    }
    nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes + begin, text.size - begin));
}

static void split_at_back(nnefc_renderer *renderer, nnefc_value text, nnefc_value separator, int64_t limit, nnefc_list *made) {
    size_t end = text.size;
    for (int64_t count = 0; (limit < 0 || count < limit) && !nnefc_failed(renderer); count++) {
        size_t at = find_back(renderer, text, separator, end);
        if (at == SIZE_MAX) break;
        nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes + at + separator.size, end - at - separator.size));
        end = at;
    }
    nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes, end));
}

nnefc_value nnefc_chat_split(nnefc_renderer *renderer, nnefc_value text, nnefc_value separator, int64_t limit, bool from_right) {
    nnefc_list *made = nnefc_chat_list(renderer, 4);
    if (made == NULL || !nnefc_chat_spend(renderer, 4 * (size_t)text.size)) return nnefc_undefined();
    if (separator.kind == NNEFC_KIND_NONE)
        (from_right ? split_at_space_back : split_at_space)(renderer, text, limit, made);
    else if (separator.kind != NNEFC_KIND_STRING || separator.size == 0)
        return nnefc_chat_fail(renderer, "a separator is a text, and not empty");
    else
        (from_right ? split_at_back : split_at)(renderer, text, separator, limit, made);
    for (uint32_t i = 0; from_right && i < made->count / 2; i++) {
        nnefc_value other = made->elements[i];
        made->elements[i] = made->elements[made->count - 1 - i];
        made->elements[made->count - 1 - i] = other;
    }
    return nnefc_list_of(NNEFC_KIND_LIST, made);
}

nnefc_value nnefc_chat_split_lines(nnefc_renderer *renderer, nnefc_value text, bool keep_ends) {
    nnefc_list *made = nnefc_chat_list(renderer, 4);
    nnefc_chat_spend(renderer, 4 * (size_t)text.size);
    for (size_t begin = 0, at = 0; at < text.size && !nnefc_failed(renderer);) {
        nnefc_character next = nnefc_character_at(text, at);
        size_t end = at + next.size;
        bool ends = nnefc_ends_line(next.number);
        if (next.number == '\r' && end < text.size && text.bytes[end] == '\n') end++;
        if (ends) nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes + begin, (keep_ends ? end : at) - begin));
        if (!ends && end == text.size) nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes + begin, end - begin));
        if (ends) begin = end;
        at = end;
    }
    return nnefc_list_of(NNEFC_KIND_LIST, made);
}

nnefc_value nnefc_chat_indented(nnefc_renderer *renderer, nnefc_value text, nnefc_value width, bool first, bool blank) {
    if (text.kind != NNEFC_KIND_STRING) return nnefc_chat_fail(renderer, "only texts are indented");
    if (width.kind != NNEFC_KIND_STRING && !nnefc_is_integer(width)) return nnefc_chat_fail(renderer, "the indentation is a number or a text");
    if (width.kind != NNEFC_KIND_STRING)
        width = nnefc_chat_arithmetic(renderer, NNEFC_OP_MULTIPLY, nnefc_text_at(" ", 1), nnefc_integer(width.integer));
    nnefc_value lines = nnefc_chat_split_lines(renderer, nnefc_chat_joined(renderer, text, nnefc_text_at("\n", 1)), false);
    size_t begin = renderer->size;
    if (first) nnefc_chat_write(renderer, width.bytes, width.size);
    for (uint32_t i = 0; !nnefc_failed(renderer) && i < lines.list->count; i++) {
        nnefc_value line = lines.list->elements[i];
        if (i > 0) nnefc_chat_write(renderer, "\n", 1);
        if (i > 0 && (blank || line.size > 0)) nnefc_chat_write(renderer, width.bytes, width.size);
        nnefc_chat_write(renderer, line.bytes, line.size);
    }
    return nnefc_chat_taken(renderer, begin);
}

nnefc_value nnefc_chat_join(nnefc_renderer *renderer, const nnefc_list *list, nnefc_value separator, bool strings_only) {
    size_t begin = renderer->size;
    for (uint32_t i = 0; list != NULL && i < list->count && !nnefc_failed(renderer); i++) {
        if (strings_only && list->elements[i].kind != NNEFC_KIND_STRING) return nnefc_chat_fail(renderer, "only texts are joined");
        if (i > 0) nnefc_chat_write(renderer, separator.bytes, separator.size);
        nnefc_chat_write_text(renderer, list->elements[i]);
    }
    return nnefc_chat_taken(renderer, begin);
}
