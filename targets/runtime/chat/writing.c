/* Values as text, as literals of Python, and as JSON. */
#include <stdio.h>
#include <string.h>

#include "chat/unicode.h"
#include "chat/values.h"

static void write_literal(nnefc_renderer *renderer, nnefc_value value);

static void write(nnefc_renderer *renderer, const char *text) { nnefc_chat_write(renderer, text, strlen(text)); }

static bool is_hidden(const nnefc_program *program, uint32_t number) {
    const uint32_t *ranges = (const uint32_t *)((const char *)program + program->hidden.offset);
    uint32_t low = 0, count = program->hidden.count;
    while (count > 0) { /* the first range that does not end before the number */
        uint32_t half = count / 2;
        if (ranges[2 * (low + half) + 1] < number)
            low += half + 1, count -= half + 1;
        else
            count = half;
    }
    return low < program->hidden.count && ranges[2 * low] <= number;
}

static void write_escaped(nnefc_renderer *renderer, uint32_t number) {
    char text[16];
    const char *format = number < 0x100 ? "\\x%02x" : number < 0x10000 ? "\\u%04x" : "\\U%08x";
    nnefc_chat_write(renderer, text, (size_t)snprintf(text, sizeof text, format, (unsigned)number));
}

static void write_string_literal(nnefc_renderer *renderer, nnefc_value text) {
    bool has_single = text.size > 0 && memchr(text.bytes, '\'', text.size) != NULL;
    char quote = has_single && memchr(text.bytes, '"', text.size) == NULL ? '"' : '\'';
    nnefc_chat_write(renderer, &quote, 1);
    for (size_t at = 0; at < text.size && !nnefc_failed(renderer);) {
        nnefc_character next = nnefc_character_at(text, at);
        const char *known = strchr("\\t\tn\nr\r", (int)(next.number < 0x80 ? next.number : 1));
        if (next.number == (uint32_t)quote || next.number == '\\') write(renderer, "\\");
        if (next.number == '\t' || next.number == '\n' || next.number == '\r') {
            char escaped[2] = {'\\', known[-1]};
            nnefc_chat_write(renderer, escaped, 2);
        } else if (is_hidden(renderer->program, next.number)) {
            write_escaped(renderer, next.number);
        } else {
            nnefc_chat_write(renderer, text.bytes + at, next.size);
        }
        at += next.size;
    }
    nnefc_chat_write(renderer, &quote, 1);
}

static void write_list(nnefc_renderer *renderer, const nnefc_list *list, const char *open, const char *close) {
    write(renderer, open);
    for (uint32_t i = 0; list != NULL && i < list->count && !nnefc_failed(renderer); i++) {
        if (i > 0) write(renderer, ", ");
        write_literal(renderer, list->elements[i]);
    }
    write(renderer, close);
}

static void write_dict(nnefc_renderer *renderer, const nnefc_dict *dict) {
    write(renderer, "{");
    for (uint32_t i = 0; i < dict->count && !nnefc_failed(renderer); i++) {
        if (i > 0) write(renderer, ", ");
        write_literal(renderer, dict->pairs[i].key);
        write(renderer, ": ");
        write_literal(renderer, dict->pairs[i].value);
    }
    write(renderer, "}");
}

static void write_range(nnefc_renderer *renderer, const nnefc_range *range) {
    write(renderer, "range(");
    nnefc_chat_write_integer(renderer, range->start);
    write(renderer, ", ");
    nnefc_chat_write_integer(renderer, range->stop);
    if (range->step != 1) {
        write(renderer, ", ");
        nnefc_chat_write_integer(renderer, range->step);
    }
    write(renderer, ")");
}

static void write_view(nnefc_renderer *renderer, nnefc_value view) {
    static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["}; /* words: allowed */
    write_list(renderer, nnefc_chat_elements(renderer, view), names[view.size], "])");
}

static void write_macro(nnefc_renderer *renderer, nnefc_value name) {
    write(renderer, "<Macro ");
    if (name.size > 0)
        write_string_literal(renderer, name);
    else
        write(renderer, "anonymous");
    write(renderer, ">");
}

static void write_compound(nnefc_renderer *renderer, nnefc_value value) {
    switch (value.kind) {
    case NNEFC_KIND_LIST:
        write_list(renderer, value.list, "[", "]");
        return;
    case NNEFC_KIND_TUPLE:
        write_list(renderer, value.list, "(", value.list->count == 1 ? ",)" : ")");
        return;
    case NNEFC_KIND_DICT:
        write_dict(renderer, value.dict);
        return;
    case NNEFC_KIND_NAMESPACE:
        write(renderer, "<Namespace ");
        write_dict(renderer, value.dict);
        write(renderer, ">");
        return;
    case NNEFC_KIND_VIEW:
        write_view(renderer, value);
        return;
    case NNEFC_KIND_MACRO:
        write_macro(renderer, nnefc_constant_at(renderer->program, value.macro->function->name));
        return;
    case NNEFC_KIND_RANGE:
        write_range(renderer, value.range);
        return;
    default:
        nnefc_chat_fail(renderer, "a method, a loop or an iterator has no text");
    }
}

static void write_literal(nnefc_renderer *renderer, nnefc_value value) {
    if (!nnefc_chat_enter(renderer)) return;
    switch (value.kind) {
    case NNEFC_KIND_MISSING:
    case NNEFC_KIND_UNDEFINED:
        write(renderer, "Undefined");
        break;
    case NNEFC_KIND_NONE:
        write(renderer, "None");
        break;
    case NNEFC_KIND_BOOLEAN:
        write(renderer, value.integer != 0 ? "True" : "False");
        break;
    case NNEFC_KIND_INTEGER:
        nnefc_chat_write_integer(renderer, value.integer);
        break;
    case NNEFC_KIND_FLOAT:
        nnefc_chat_write_float(renderer, value.number);
        break;
    case NNEFC_KIND_BIG:
        nnefc_chat_write(renderer, value.bytes, value.size);
        break;
    case NNEFC_KIND_STRING:
        write_string_literal(renderer, value);
        break;
    default:
        write_compound(renderer, value);
    }
    nnefc_chat_leave(renderer);
}

void nnefc_chat_write_text(nnefc_renderer *renderer, nnefc_value value) {
    if (value.kind == NNEFC_KIND_STRING)
        nnefc_chat_write(renderer, value.bytes, value.size);
    else if (value.kind != NNEFC_KIND_UNDEFINED)
        write_literal(renderer, value);
}

nnefc_value nnefc_chat_text(nnefc_renderer *renderer, nnefc_value value) {
    if (value.kind == NNEFC_KIND_STRING) return value;
    size_t begin = renderer->size;
    nnefc_chat_write_text(renderer, value);
    return nnefc_chat_taken(renderer, begin);
}

/* How JSON is written. */
typedef struct json_style {
    bool is_ascii, is_sorted, has_lines;
    nnefc_value indent, element_separator, key_separator;
} json_style;

static void write_json(nnefc_renderer *renderer, const json_style *style, nnefc_value value, uint32_t level);

static void write_json_unit(nnefc_renderer *renderer, uint32_t unit) {
    char text[8];
    nnefc_chat_write(renderer, text, (size_t)snprintf(text, sizeof text, "\\u%04x", (unsigned)unit));
}

static void write_json_string(nnefc_renderer *renderer, const json_style *style, nnefc_value text) {
    static const char escaped[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    size_t begin = 0;
    write(renderer, "\"");
    for (size_t at = 0; at < text.size && !nnefc_failed(renderer);) {
        nnefc_character next = nnefc_character_at(text, at);
        const char *known = next.number > 0 && next.number < 0x80 ? strchr(escaped, (int)next.number) : NULL;
        bool stays = known == NULL && next.number >= 0x20 && (next.number < 0x80 || !style->is_ascii);
        if (!stays) {
            nnefc_chat_write(renderer, text.bytes + begin, at - begin);
            begin = at + next.size;
        }
        if (known != NULL) {
            char pair[2] = {'\\', letters[known - escaped]};
            nnefc_chat_write(renderer, pair, 2);
        } else if (!stays && next.number >= 0x10000) {
            write_json_unit(renderer, 0xD800 + ((next.number - 0x10000) >> 10));
            write_json_unit(renderer, 0xDC00 + ((next.number - 0x10000) & 0x3FF));
        } else if (!stays) {
            write_json_unit(renderer, next.number);
        }
        at += next.size;
    }
    nnefc_chat_write(renderer, text.bytes + begin, text.size - begin);
    write(renderer, "\"");
}

static void write_line(nnefc_renderer *renderer, const json_style *style, uint32_t level) {
    if (!style->has_lines) return;
    write(renderer, "\n");
    for (uint32_t i = 0; i < level && !nnefc_failed(renderer); i++)
        nnefc_chat_write(renderer, style->indent.bytes, style->indent.size);
}

static void write_json_list(nnefc_renderer *renderer, const json_style *style, const nnefc_list *list, uint32_t level) {
    write(renderer, "[");
    for (uint32_t i = 0; i < list->count && !nnefc_failed(renderer); i++) {
        if (i > 0) nnefc_chat_write(renderer, style->element_separator.bytes, style->element_separator.size);
        write_line(renderer, style, level + 1);
        write_json(renderer, style, list->elements[i], level + 1);
    }
    if (list->count > 0) write_line(renderer, style, level);
    write(renderer, "]");
}

/* A key as text: numbers and constants are written as values are. */
static void write_json_key(nnefc_renderer *renderer, const json_style *style, nnefc_value key) {
    if (key.kind == NNEFC_KIND_STRING) {
        write_json_string(renderer, style, key);
        return;
    }
    if (key.kind != NNEFC_KIND_NONE && !nnefc_is_number(key)) nnefc_chat_fail(renderer, "a key is not a text: it has no JSON");
    write(renderer, "\"");
    write_json(renderer, style, key, 0);
    write(renderer, "\"");
}

static nnefc_dict *sorted_dict(nnefc_renderer *renderer, const nnefc_dict *dict) {
    nnefc_dict *made = nnefc_chat_dict(renderer);
    nnefc_list *keys = nnefc_chat_elements(renderer, nnefc_dict_of(NNEFC_KIND_DICT, (nnefc_dict *)dict));
    if (made == NULL || keys == NULL) return NULL;
    nnefc_value *order = nnefc_chat_allocate(renderer, keys->count + 1, sizeof *order);
    if (order == NULL) return NULL;
    if (keys->count > 0) memcpy(order, keys->elements, keys->count * sizeof *order);
    nnefc_chat_sort(renderer, keys->elements, order, keys->count, false);
    for (uint32_t i = 0; i < keys->count && !nnefc_failed(renderer); i++) {
        const nnefc_value *value = nnefc_chat_find(renderer, dict, keys->elements[i]);
        if (value != NULL) nnefc_chat_set(renderer, made, keys->elements[i], *value);
    }
    return nnefc_failed(renderer) ? NULL : made;
}

static void write_json_dict(nnefc_renderer *renderer, const json_style *style, const nnefc_dict *dict, uint32_t level) {
    if (style->is_sorted) dict = sorted_dict(renderer, dict);
    write(renderer, "{");
    for (uint32_t i = 0; dict != NULL && i < dict->count && !nnefc_failed(renderer); i++) {
        if (i > 0) nnefc_chat_write(renderer, style->element_separator.bytes, style->element_separator.size);
        write_line(renderer, style, level + 1);
        write_json_key(renderer, style, dict->pairs[i].key);
        nnefc_chat_write(renderer, style->key_separator.bytes, style->key_separator.size);
        write_json(renderer, style, dict->pairs[i].value, level + 1);
    }
    if (dict != NULL && dict->count > 0) write_line(renderer, style, level);
    write(renderer, "}");
}

static void write_json_float(nnefc_renderer *renderer, double number) {
    if (number - number == 0)
        nnefc_chat_write_float(renderer, number);
    else
        write(renderer, number != number ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
}

static void write_json(nnefc_renderer *renderer, const json_style *style, nnefc_value value, uint32_t level) {
    if (!nnefc_chat_enter(renderer)) return;
    switch (value.kind) {
    case NNEFC_KIND_NONE:
        write(renderer, "null");
        break;
    case NNEFC_KIND_BOOLEAN:
        write(renderer, value.integer != 0 ? "true" : "false");
        break;
    case NNEFC_KIND_INTEGER:
        nnefc_chat_write_integer(renderer, value.integer);
        break;
    case NNEFC_KIND_BIG:
        nnefc_chat_write(renderer, value.bytes, value.size);
        break;
    case NNEFC_KIND_FLOAT:
        write_json_float(renderer, value.number);
        break;
    case NNEFC_KIND_STRING:
        write_json_string(renderer, style, value);
        break;
    case NNEFC_KIND_LIST:
    case NNEFC_KIND_TUPLE:
        write_json_list(renderer, style, value.list, level);
        break;
    case NNEFC_KIND_DICT:
        write_json_dict(renderer, style, value.dict, level);
        break;
    case NNEFC_KIND_UNDEFINED:
        nnefc_chat_fail_undefined(renderer, value);
        break;
    default:
        nnefc_chat_fail(renderer, "the value has no JSON");
    }
    nnefc_chat_leave(renderer);
}

/* So many spaces, or the text itself. */
static nnefc_value indentation(nnefc_renderer *renderer, nnefc_value indent) {
    if (indent.kind == NNEFC_KIND_STRING) return indent;
    if (!nnefc_is_integer(indent)) return nnefc_chat_fail(renderer, "the indentation is a number or a text");
    return nnefc_chat_arithmetic(renderer, NNEFC_OP_MULTIPLY, nnefc_text_at(" ", 1), nnefc_integer(indent.integer));
}

nnefc_value nnefc_chat_to_json(nnefc_renderer *renderer, nnefc_value value, const nnefc_value *options) {
    bool has_lines = options[1].kind != NNEFC_KIND_NONE;
    json_style style = {
        .is_ascii = nnefc_chat_truth(renderer, options[0]),
        .is_sorted = nnefc_chat_truth(renderer, options[3]),
        .has_lines = has_lines,
        .indent = has_lines ? indentation(renderer, options[1]) : nnefc_text_at("", 0),
        .element_separator = has_lines ? nnefc_text_at(",", 1) : nnefc_text_at(", ", 2),
        .key_separator = nnefc_text_at(": ", 2),
    };
    if (options[2].kind != NNEFC_KIND_NONE) {
        const nnefc_list *both = nnefc_chat_elements(renderer, options[2]);
        if (both == NULL || both->count != 2 || both->elements[0].kind != NNEFC_KIND_STRING || both->elements[1].kind != NNEFC_KIND_STRING)
            return nnefc_chat_fail(renderer, "the separators of JSON are two texts");
        style.element_separator = both->elements[0], style.key_separator = both->elements[1];
    }
    size_t begin = renderer->size;
    write_json(renderer, &style, value, 0);
    return nnefc_chat_taken(renderer, begin);
}
