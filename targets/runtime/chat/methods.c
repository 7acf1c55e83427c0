/* Methods of texts, dictionaries, lists and loops. */
#include <string.h>

#include "chat/values.h"

enum { OF_TEXT = 1, OF_DICT = 2, OF_LIST = 4, OF_TUPLE = 8, OF_LOOP = 16, OF_SEQUENCE = OF_LIST | OF_TUPLE, MAX_ARGUMENTS = 3 };

/* `given` has as many arguments as the method takes at most: those that are left out are MISSING. */
typedef nnefc_value method_code(nnefc_renderer *renderer, nnefc_value object, const nnefc_value *given);

typedef struct method {
    const char *name;
    uint8_t kinds, min, max;
    bool is_unsafe;    /* it would change the object */
    method_code *code; /* null if it is not supported */
    const char *parameters[MAX_ARGUMENTS];
} method;

static nnefc_value or_none(nnefc_value given) { return given.kind == NNEFC_KIND_MISSING ? nnefc_none() : given; }

static int64_t number_or(nnefc_renderer *renderer, nnefc_value given, int64_t otherwise) {
    if (given.kind == NNEFC_KIND_MISSING) return otherwise;
    if (nnefc_is_integer(given)) return given.integer;
    nnefc_chat_fail(renderer, "an argument of a method is not an integer");
    return otherwise;
}

static bool is_text(nnefc_renderer *renderer, nnefc_value value) {
    if (value.kind != NNEFC_KIND_STRING) nnefc_chat_fail(renderer, "an argument of a method is not a text");
    return value.kind == NNEFC_KIND_STRING;
}

static nnefc_value text_strip(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    return nnefc_chat_stripped(r, text, or_none(given[0]), 3);
}

static nnefc_value text_lstrip(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    return nnefc_chat_stripped(r, text, or_none(given[0]), 1);
}

static nnefc_value text_rstrip(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    return nnefc_chat_stripped(r, text, or_none(given[0]), 2);
}

static nnefc_value text_split(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    return nnefc_chat_split(r, text, or_none(given[0]), number_or(r, given[1], -1), false);
}

static nnefc_value text_rsplit(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    return nnefc_chat_split(r, text, or_none(given[0]), number_or(r, given[1], -1), true);
}

static nnefc_value text_splitlines(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    return nnefc_chat_split_lines(r, text, nnefc_chat_truth(r, given[0]));
}

static nnefc_value text_lower(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    (void)given;
    return nnefc_chat_change_case(r, text, NNEFC_LOWER_CASE);
}

static nnefc_value text_upper(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    (void)given;
    return nnefc_chat_change_case(r, text, NNEFC_UPPER_CASE);
}

static nnefc_value text_capitalize(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    (void)given;
    return nnefc_chat_capitalized(r, text);
}

/* Letters after others are small, the others capital: of ASCII alone, since elsewhere a third case would be needed. */
static nnefc_value text_title(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    (void)given;
    size_t begin = r->size;
    bool in_word = false;
    for (uint32_t i = 0; i < text.size && nnefc_chat_spend(r, 0); i++) {
        char c = text.bytes[i];
        if ((uint8_t)c >= 0x80) return nnefc_chat_fail(r, "the method title is supported for ASCII only");
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (is_letter) c = (char)(in_word ? c | 0x20 : c & ~0x20);
        in_word = is_letter;
        nnefc_chat_write(r, &c, 1);
    }
    return nnefc_chat_taken(r, begin);
}

static nnefc_value text_replace(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    if (!is_text(r, given[0]) || !is_text(r, given[1])) return nnefc_undefined();
    return nnefc_chat_replaced(r, text, given[0], given[1], number_or(r, given[2], -1));
}

static bool has_affix(nnefc_value text, nnefc_value affix, bool is_end) {
    return affix.size <= text.size && memcmp(text.bytes + (is_end ? text.size - affix.size : 0), affix.bytes, affix.size) == 0;
}

static nnefc_value has_any_affix(nnefc_renderer *r, nnefc_value text, nnefc_value affix, bool is_end) {
    if (affix.kind != NNEFC_KIND_TUPLE) return nnefc_boolean(is_text(r, affix) && has_affix(text, affix, is_end));
    for (uint32_t i = 0; i < affix.list->count; i++)
        if (is_text(r, affix.list->elements[i]) && has_affix(text, affix.list->elements[i], is_end)) return nnefc_boolean(true);
    return nnefc_boolean(false);
}

static nnefc_value text_startswith(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    return has_any_affix(r, text, given[0], false);
}

static nnefc_value text_endswith(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    return has_any_affix(r, text, given[0], true);
}

static nnefc_value text_removeprefix(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    if (!is_text(r, given[0]) || !has_affix(text, given[0], false)) return text;
    return nnefc_text_at(text.bytes + given[0].size, text.size - given[0].size);
}

static nnefc_value text_removesuffix(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    if (!is_text(r, given[0]) || !has_affix(text, given[0], true)) return text;
    return nnefc_text_at(text.bytes, text.size - given[0].size);
}

static nnefc_value text_find(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    size_t at = is_text(r, given[0]) ? nnefc_chat_find_bytes(r, text, given[0], 0) : SIZE_MAX;
    return nnefc_integer(at == SIZE_MAX ? -1 : nnefc_chat_characters(r, nnefc_text_at(text.bytes, at)));
}

static nnefc_value text_rfind(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    if (!is_text(r, given[0])) return nnefc_undefined();
    for (size_t at = text.size; at >= given[0].size && nnefc_chat_spend(r, given[0].size); at--) {
        size_t begin = at - given[0].size;
        if (memcmp(text.bytes + begin, given[0].bytes, given[0].size) == 0)
            return nnefc_integer(nnefc_chat_characters(r, nnefc_text_at(text.bytes, begin)));
        if (at == 0) break;
    }
    return nnefc_integer(-1);
}

static nnefc_value text_count(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    if (!is_text(r, given[0])) return nnefc_undefined();
    if (given[0].size == 0) return nnefc_integer(nnefc_chat_characters(r, text) + 1);
    int64_t count = 0;
    for (size_t at = 0; (at = nnefc_chat_find_bytes(r, text, given[0], at)) != SIZE_MAX; at += given[0].size) count++;
    return nnefc_integer(count);
}

static nnefc_value text_join(nnefc_renderer *r, nnefc_value text, const nnefc_value *given) {
    if (given[0].kind == NNEFC_KIND_UNDEFINED) return nnefc_text_at("", 0);
    return nnefc_chat_join(r, nnefc_chat_elements(r, given[0]), text, true);
}

static nnefc_value dict_get(nnefc_renderer *r, nnefc_value object, const nnefc_value *given) {
    const nnefc_value *found = nnefc_chat_find(r, object.dict, given[0]);
    return found != NULL ? *found : or_none(given[1]);
}

static nnefc_value dict_view(nnefc_value object, nnefc_view view) {
    return (nnefc_value){.kind = NNEFC_KIND_VIEW, .size = view, .dict = object.dict};
}

static nnefc_value dict_pairs(nnefc_renderer *r, nnefc_value object, const nnefc_value *given) {
    (void)r, (void)given;
    return dict_view(object, NNEFC_VIEW_PAIRS);
}

static nnefc_value dict_keys(nnefc_renderer *r, nnefc_value object, const nnefc_value *given) {
    (void)r, (void)given;
    return dict_view(object, NNEFC_VIEW_KEYS);
}

static nnefc_value dict_values(nnefc_renderer *r, nnefc_value object, const nnefc_value *given) {
    (void)r, (void)given;
    return dict_view(object, NNEFC_VIEW_VALUES);
}

/* Lists and dictionaries never change: a copy is the object itself. */
static nnefc_value copy(nnefc_renderer *r, nnefc_value object, const nnefc_value *given) {
    (void)r, (void)given;
    return object;
}

static nnefc_value list_count(nnefc_renderer *r, nnefc_value object, const nnefc_value *given) {
    int64_t count = 0;
    for (uint32_t i = 0; i < object.list->count; i++) count += nnefc_chat_equal(r, object.list->elements[i], given[0]);
    return nnefc_integer(count);
}

static nnefc_value list_index(nnefc_renderer *r, nnefc_value object, const nnefc_value *given) {
    for (uint32_t i = 0; i < object.list->count; i++)
        if (nnefc_chat_equal(r, object.list->elements[i], given[0])) return nnefc_integer(i);
    return nnefc_chat_fail(r, "the list does not have the element");
}

static const method methods[] = {
    {"capitalize", OF_TEXT, 0, 0, false, text_capitalize, {0}},
    {"count", OF_TEXT, 1, 1, false, text_count, {0}},
    {"endswith", OF_TEXT, 1, 1, false, text_endswith, {0}},
    {"find", OF_TEXT, 1, 1, false, text_find, {0}},
    {"join", OF_TEXT, 1, 1, false, text_join, {0}},
    {"lower", OF_TEXT, 0, 0, false, text_lower, {0}},
    {"lstrip", OF_TEXT, 0, 1, false, text_lstrip, {0}},
    {"removeprefix", OF_TEXT, 1, 1, false, text_removeprefix, {0}},
    {"removesuffix", OF_TEXT, 1, 1, false, text_removesuffix, {0}},
    {"replace", OF_TEXT, 2, 3, false, text_replace, {0}},
    {"rfind", OF_TEXT, 1, 1, false, text_rfind, {0}},
    {"rsplit", OF_TEXT, 0, 2, false, text_rsplit, {"sep", "maxsplit", 0}},
    {"rstrip", OF_TEXT, 0, 1, false, text_rstrip, {0}},
    {"split", OF_TEXT, 0, 2, false, text_split, {"sep", "maxsplit", 0}},
    {"splitlines", OF_TEXT, 0, 1, false, text_splitlines, {"keepends", 0, 0}},
    {"startswith", OF_TEXT, 1, 1, false, text_startswith, {0}},
    {"strip", OF_TEXT, 0, 1, false, text_strip, {0}},
    {"title", OF_TEXT, 0, 0, false, text_title, {0}},
    {"upper", OF_TEXT, 0, 0, false, text_upper, {0}},
    {"get", OF_DICT, 1, 2, false, dict_get, {0}},
    {"items", OF_DICT, 0, 0, false, dict_pairs, {0}},
    {"keys", OF_DICT, 0, 0, false, dict_keys, {0}},
    {"values", OF_DICT, 0, 0, false, dict_values, {0}},
    {"copy", OF_DICT | OF_LIST, 0, 0, false, copy, {0}},
    {"count", OF_SEQUENCE, 1, 1, false, list_count, {0}},
    {"index", OF_SEQUENCE, 1, 1, false, list_index, {0}},
    {"clear", OF_DICT | OF_LIST, 0, 0, true, NULL, {0}},
    {"pop", OF_DICT | OF_LIST, 0, 0, true, NULL, {0}},
    {"popitem", OF_DICT, 0, 0, true, NULL, {0}},
    {"setdefault", OF_DICT, 0, 0, true, NULL, {0}},
    {"update", OF_DICT, 0, 0, true, NULL, {0}},
    {"append", OF_LIST, 0, 0, true, NULL, {0}},
    {"extend", OF_LIST, 0, 0, true, NULL, {0}},
    {"insert", OF_LIST, 0, 0, true, NULL, {0}},
    {"remove", OF_LIST, 0, 0, true, NULL, {0}},
    {"reverse", OF_LIST, 0, 0, true, NULL, {0}},
    {"sort", OF_LIST, 0, 0, true, NULL, {0}},
};

/* Further ones of Python's, which are attributes, too, but cannot be called. */
static const struct {
    uint8_t kinds;
    const char *names; /* with spaces around each */
} others[] = {
    {OF_TEXT, " casefold center encode expandtabs format format_map index isalnum isalpha isascii isdecimal isdigit isidentifier islower"
              " isnumeric isprintable isspace istitle isupper ljust maketrans partition rindex rjust rpartition swapcase translate zfill "},
    {OF_DICT, " fromkeys "},
    {OF_LOOP, " cycle changed "},
};

static uint8_t kind_of(nnefc_value object) {
    switch (object.kind) {
    case NNEFC_KIND_STRING:
        return OF_TEXT;
    case NNEFC_KIND_DICT:
        return OF_DICT;
    case NNEFC_KIND_LIST:
        return OF_LIST;
    case NNEFC_KIND_TUPLE:
        return OF_TUPLE;
    case NNEFC_KIND_LOOP:
        return OF_LOOP;
    default:
        return 0;
    }
}

static bool is_name(nnefc_value name, const char *text) { return strlen(text) == name.size && memcmp(text, name.bytes, name.size) == 0; }

static const method *find(uint8_t kind, nnefc_value name) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if ((methods[i].kinds & kind) != 0 && is_name(name, methods[i].name)) return &methods[i];
    return NULL;
}

bool nnefc_chat_has_method(nnefc_value object, nnefc_value name, bool *is_unsafe) {
    uint8_t kind = kind_of(object);
    char wanted[32] = " ";
    if (kind == 0 || name.kind != NNEFC_KIND_STRING || name.size > sizeof wanted - 3) return false;
    const method *known = find(kind, name);
    *is_unsafe = known != NULL && known->is_unsafe;
    memcpy(wanted + 1, name.bytes, name.size);
    wanted[name.size + 1] = ' ', wanted[name.size + 2] = '\0';
    bool is_other = name.size > 0 && memchr(name.bytes, ' ', name.size) == NULL && memchr(name.bytes, '\0', name.size) == NULL;
    for (size_t i = 0; i < sizeof others / sizeof *others && is_other && known == NULL; i++)
        if ((others[i].kinds & kind) != 0 && strstr(others[i].names, wanted) != NULL) return true;
    return known != NULL;
}

static nnefc_value cycle(nnefc_renderer *renderer, const nnefc_loop *loop, const nnefc_value *arguments, uint32_t count) {
    if (count == 0 || loop->index == 0) return nnefc_chat_fail(renderer, "loop.cycle takes values");
    return arguments[(loop->index - 1) % count];
}

nnefc_value nnefc_chat_call_method(nnefc_renderer *renderer, const nnefc_method *called, const nnefc_value *arguments, uint32_t count,
                                   const nnefc_dict *keywords) {
    nnefc_value name = called->name, given[MAX_ARGUMENTS];
    bool is_loop = called->object.kind == NNEFC_KIND_LOOP;
    if (is_loop && is_name(name, "cycle") && keywords->count == 0) return cycle(renderer, called->object.loop, arguments, count);
    const method *known = find(kind_of(called->object), name);
    if (known == NULL || known->code == NULL) return nnefc_chat_fail(renderer, "the method %.*s is not supported", (int)name.size, name.bytes);
    for (uint32_t i = 0; i < MAX_ARGUMENTS; i++) given[i] = i < count ? arguments[i] : nnefc_missing();
    bool fits = count <= known->max;
    for (uint32_t i = 0; i < keywords->count && fits; i++) {
        uint32_t at = 0;
        while (at < known->max && (known->parameters[at] == NULL || !is_name(keywords->pairs[i].key, known->parameters[at]))) at++;
        fits = at < known->max && given[at].kind == NNEFC_KIND_MISSING;
        if (fits) given[at] = keywords->pairs[i].value;
    }
    for (uint32_t i = 0; i < known->min; i++) fits = fits && given[i].kind != NNEFC_KIND_MISSING;
    if (!fits) return nnefc_chat_fail(renderer, "the method %s is called with arguments that it does not take", known->name);
    return known->code(renderer, called->object, given);
}
