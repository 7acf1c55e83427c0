/* Filters. Those that are generators in Jinja are iterators. */
#include <string.h>

#include "chat/values.h"

static nnefc_value as_value(nnefc_iterator *iterator) {
    return iterator == NULL ? nnefc_undefined() : (nnefc_value){.kind = NNEFC_KIND_ITERATOR, .iterator = iterator};
}

/* An iterator over a value, with a filter for its elements. */
static nnefc_value iterator_over(nnefc_renderer *renderer, nnefc_value value, nnefc_filter filter, const nnefc_value *arguments,
                                 uint32_t count) {
    nnefc_iterator *made = nnefc_chat_allocate(renderer, 1, sizeof *made);
    if (made == NULL) return nnefc_undefined();
    made->filter = filter, made->argument_count = count;
    made->arguments = nnefc_chat_allocate(renderer, count + 1, sizeof *made->arguments);
    if (made->arguments == NULL) return nnefc_undefined();
    if (count > 0) memcpy(made->arguments, arguments, count * sizeof *arguments);
    if (value.kind == NNEFC_KIND_ITERATOR)
        made->other = value.iterator;
    else
        made->list = nnefc_chat_elements(renderer, value);
    return nnefc_failed(renderer) ? nnefc_undefined() : as_value(made);
}

/* The key by which elements are compared: an attribute, in small letters unless cases differ. */
static nnefc_value key_of(nnefc_renderer *renderer, nnefc_value element, nnefc_value attribute, bool case_sensitive) {
    nnefc_value key = nnefc_chat_path(renderer, element, attribute, nnefc_none());
    return key.kind == NNEFC_KIND_STRING && !case_sensitive ? nnefc_chat_change_case(renderer, key, NNEFC_LOWER_CASE) : key;
}

static bool is_new(nnefc_renderer *renderer, nnefc_iterator *iterator, nnefc_value element) {
    bool case_sensitive = nnefc_chat_truth(renderer, iterator->arguments[0]);
    nnefc_value key = key_of(renderer, element, iterator->arguments[1], case_sensitive);
    if (key.kind == NNEFC_KIND_LIST || key.kind == NNEFC_KIND_DICT) nnefc_chat_fail(renderer, "the filter unique takes no lists and dictionaries");
    if (iterator->seen == NULL) iterator->seen = nnefc_chat_list(renderer, 4);
    for (uint32_t i = 0; iterator->seen != NULL && i < iterator->seen->count && !nnefc_failed(renderer); i++)
        if (nnefc_chat_equal(renderer, iterator->seen->elements[i], key)) return false;
    nnefc_chat_append(renderer, iterator->seen, key);
    return true;
}

/* Whether an element passes the test that begins at an argument: its number, then its arguments. */
static bool passes(nnefc_renderer *renderer, const nnefc_iterator *iterator, uint32_t test, nnefc_value element) {
    enum { MAX_VALUES = 8 };
    nnefc_value values[MAX_VALUES] = {element};
    uint32_t count = iterator->argument_count - test;
    if (count > MAX_VALUES) {
        nnefc_chat_fail(renderer, "a test has too many arguments");
        return false;
    }
    for (uint32_t i = 1; i < count; i++) values[i] = iterator->arguments[test + i];
    return nnefc_chat_test(renderer, (nnefc_test)iterator->arguments[test].integer, values, count);
}

static nnefc_value mapped(nnefc_renderer *renderer, const nnefc_iterator *iterator, nnefc_value element) {
    enum { MAX_VALUES = 8 };
    nnefc_value values[MAX_VALUES] = {element};
    if (iterator->argument_count > MAX_VALUES) return nnefc_chat_fail(renderer, "a filter has too many arguments");
    for (uint32_t i = 1; i < iterator->argument_count; i++) values[i] = iterator->arguments[i];
    return nnefc_chat_filter(renderer, (nnefc_filter)iterator->arguments[0].integer, values, iterator->argument_count);
}

/* Applies the filter to an element; false if it leaves the element out. */
static bool filtered(nnefc_renderer *renderer, nnefc_iterator *iterator, nnefc_value *element) {
    const nnefc_value *arguments = iterator->arguments;
    nnefc_value given = *element;
    switch (iterator->filter) {
    case NNEFC_FILTER_MAP_ATTRIBUTE:
        *element = nnefc_chat_path(renderer, given, arguments[0], arguments[1]);
        return true;
    case NNEFC_FILTER_MAP:
        *element = mapped(renderer, iterator, given);
        return true;
    case NNEFC_FILTER_SELECT:
        return passes(renderer, iterator, 0, given);
    case NNEFC_FILTER_REJECT:
        return !passes(renderer, iterator, 0, given);
    case NNEFC_FILTER_SELECTATTR:
        return passes(renderer, iterator, 1, nnefc_chat_path(renderer, given, arguments[0], nnefc_none()));
    case NNEFC_FILTER_REJECTATTR:
        return !passes(renderer, iterator, 1, nnefc_chat_path(renderer, given, arguments[0], nnefc_none()));
    case NNEFC_FILTER_UNIQUE:
        return is_new(renderer, iterator, given);
    default:
        return true;
    }
}

bool nnefc_chat_next(nnefc_renderer *renderer, nnefc_iterator *iterator, nnefc_value *element) {
    bool is_found = false;
    if (!nnefc_chat_enter(renderer)) return false;
    while (!is_found && nnefc_chat_spend(renderer, 0)) {
        if (iterator->other != NULL) {
            if (!nnefc_chat_next(renderer, iterator->other, element)) break;
        } else {
            if (iterator->at == iterator->list->count) break;
            *element = iterator->list->elements[iterator->at++];
        }
        is_found = filtered(renderer, iterator, element);
    }
    nnefc_chat_leave(renderer);
    return is_found && !nnefc_failed(renderer);
}

static nnefc_value first(nnefc_renderer *renderer, nnefc_value value) {
    nnefc_value element = nnefc_undefined();
    if (value.kind == NNEFC_KIND_ITERATOR) return nnefc_chat_next(renderer, value.iterator, &element) ? element : nnefc_undefined();
    const nnefc_list *elements = nnefc_chat_elements(renderer, value);
    return elements != NULL && elements->count > 0 ? elements->elements[0] : element;
}

static nnefc_value last(nnefc_renderer *renderer, nnefc_value value) {
    if (value.kind == NNEFC_KIND_ITERATOR) return nnefc_chat_fail(renderer, "the filter last takes no iterators");
    const nnefc_list *elements = nnefc_chat_elements(renderer, value);
    return elements != NULL && elements->count > 0 ? elements->elements[elements->count - 1] : nnefc_undefined();
}

static nnefc_list *copied(nnefc_renderer *renderer, const nnefc_list *list, bool reversed) {
    nnefc_list *made = nnefc_chat_list(renderer, list != NULL ? list->count : 0);
    for (uint32_t i = 0; list != NULL && i < list->count; i++)
        nnefc_chat_append(renderer, made, list->elements[reversed ? list->count - 1 - i : i]);
    return made;
}

static nnefc_value reversed(nnefc_renderer *renderer, nnefc_value value) {
    nnefc_list *made = copied(renderer, nnefc_chat_elements(renderer, value), true);
    if (value.kind == NNEFC_KIND_STRING) return nnefc_chat_join(renderer, made, nnefc_text_at("", 0), true);
    nnefc_value list = nnefc_list_of(NNEFC_KIND_LIST, made);
    return value.kind == NNEFC_KIND_ITERATOR ? list : iterator_over(renderer, list, NNEFC_FILTER_LIST, NULL, 0);
}

static nnefc_value joined(nnefc_renderer *renderer, const nnefc_value *values) {
    nnefc_value separator = nnefc_chat_text(renderer, values[1]);
    nnefc_list *elements = nnefc_chat_elements(renderer, values[0]);
    if (values[2].kind != NNEFC_KIND_NONE) elements = copied(renderer, elements, false);
    for (uint32_t i = 0; elements != NULL && values[2].kind != NNEFC_KIND_NONE && i < elements->count; i++)
        elements->elements[i] = nnefc_chat_path(renderer, elements->elements[i], values[2], nnefc_none());
    return nnefc_chat_join(renderer, elements, separator, false);
}

static nnefc_value sum(nnefc_renderer *renderer, const nnefc_value *values) {
    nnefc_value made = values[2];
    const nnefc_list *elements = nnefc_chat_elements(renderer, values[0]);
    if (made.kind == NNEFC_KIND_STRING) return nnefc_chat_fail(renderer, "the filter sum takes no texts");
    for (uint32_t i = 0; elements != NULL && i < elements->count && !nnefc_failed(renderer); i++) {
        nnefc_value each = nnefc_chat_path(renderer, elements->elements[i], values[1], nnefc_none());
        made = nnefc_chat_arithmetic(renderer, NNEFC_OP_ADD, made, each);
    }
    return made;
}

/* The keys of an element: one for each attribute, with commas between. */
static nnefc_value keys_of(nnefc_renderer *renderer, nnefc_value element, nnefc_value attributes, bool case_sensitive) {
    nnefc_list *made = nnefc_chat_list(renderer, 1);
    if (attributes.kind != NNEFC_KIND_STRING) {
        nnefc_chat_append(renderer, made, key_of(renderer, element, attributes, case_sensitive));
        return nnefc_list_of(NNEFC_KIND_LIST, made);
    }
    for (uint32_t begin = 0, end = 0; begin <= attributes.size && !nnefc_failed(renderer); begin = end + 1) {
        for (end = begin; end < attributes.size && attributes.bytes[end] != ',';) end++;
        nnefc_value one = nnefc_text_at(attributes.bytes + begin, end - begin);
        nnefc_chat_append(renderer, made, key_of(renderer, element, one, case_sensitive));
    }
    return nnefc_list_of(NNEFC_KIND_LIST, made);
}

static nnefc_value sorted(nnefc_renderer *renderer, const nnefc_value *values) {
    nnefc_list *made = copied(renderer, nnefc_chat_elements(renderer, values[0]), false);
    nnefc_value *keys = made == NULL ? NULL : nnefc_chat_allocate(renderer, made->count + 1, sizeof *keys);
    if (keys == NULL) return nnefc_undefined();
    for (uint32_t i = 0; i < made->count && !nnefc_failed(renderer); i++)
        keys[i] = keys_of(renderer, made->elements[i], values[3], nnefc_chat_truth(renderer, values[2]));
    if (!nnefc_failed(renderer)) nnefc_chat_sort(renderer, made->elements, keys, made->count, nnefc_chat_truth(renderer, values[1]));
    return nnefc_list_of(NNEFC_KIND_LIST, made);
}

static nnefc_value pairs_of(nnefc_value dict) {
    return (nnefc_value){.kind = NNEFC_KIND_VIEW, .size = NNEFC_VIEW_PAIRS, .dict = dict.dict};
}

static bool is_word(nnefc_value value, const char *word) {
    return value.kind == NNEFC_KIND_STRING && value.size == strlen(word) && memcmp(value.bytes, word, value.size) == 0;
}

static nnefc_value sorted_pairs(nnefc_renderer *renderer, const nnefc_value *values) {
    bool by_value = is_word(values[2], "value");
    if (values[0].kind != NNEFC_KIND_DICT) return nnefc_chat_fail(renderer, "the filter dictsort takes a dictionary");
    if (!by_value && !is_word(values[2], "key")) return nnefc_chat_fail(renderer, "the filter dictsort sorts by \"key\" or \"value\"");
    nnefc_list *made = nnefc_chat_elements(renderer, pairs_of(values[0]));
    nnefc_value *keys = made == NULL ? NULL : nnefc_chat_allocate(renderer, made->count + 1, sizeof *keys);
    if (keys == NULL) return nnefc_undefined();
    for (uint32_t i = 0; i < made->count; i++)
        keys[i] = key_of(renderer, made->elements[i].list->elements[by_value], nnefc_none(), nnefc_chat_truth(renderer, values[1]));
    if (!nnefc_failed(renderer)) nnefc_chat_sort(renderer, made->elements, keys, made->count, nnefc_chat_truth(renderer, values[3]));
    return nnefc_list_of(NNEFC_KIND_LIST, made);
}

static nnefc_value pairs(nnefc_renderer *renderer, nnefc_value value) {
    if (value.kind != NNEFC_KIND_UNDEFINED && value.kind != NNEFC_KIND_DICT)
        return nnefc_chat_fail(renderer, "only a dictionary has pairs of keys and values");
    return iterator_over(renderer, value.kind == NNEFC_KIND_DICT ? pairs_of(value) : value, NNEFC_FILTER_LIST, NULL, 0);
}

static nnefc_value replaced(nnefc_renderer *renderer, const nnefc_value *values) {
    nnefc_value text = nnefc_chat_text(renderer, values[0]), old = nnefc_chat_text(renderer, values[1]);
    nnefc_value other = nnefc_chat_text(renderer, values[2]);
    if (values[3].kind != NNEFC_KIND_NONE && !nnefc_is_integer(values[3])) return nnefc_chat_fail(renderer, "how often is an integer");
    if (nnefc_failed(renderer)) return text;
    return nnefc_chat_replaced(renderer, text, old, other, values[3].kind == NNEFC_KIND_NONE ? -1 : values[3].integer);
}

static nnefc_value absolute(nnefc_renderer *renderer, nnefc_value value) {
    if (value.kind == NNEFC_KIND_FLOAT) return nnefc_float(value.number < 0 || 1 / value.number < 0 ? -value.number : value.number);
    if (!nnefc_is_integer(value)) return nnefc_chat_fail(renderer, "the filter abs takes a number");
    return value.integer < 0 ? nnefc_chat_negated(renderer, value) : nnefc_integer(value.integer);
}

static nnefc_value length(nnefc_renderer *renderer, nnefc_value value) {
    int64_t count = nnefc_chat_length(renderer, value);
    return count < 0 ? nnefc_chat_fail(renderer, "the value has no length") : nnefc_integer(count);
}

nnefc_value nnefc_chat_filter(nnefc_renderer *renderer, nnefc_filter filter, const nnefc_value *values, uint32_t count) {
    nnefc_value value = values[0];
    switch (filter) {
    case NNEFC_FILTER_ABS:
        return absolute(renderer, value);
    case NNEFC_FILTER_CAPITALIZE:
        return nnefc_chat_capitalized(renderer, nnefc_chat_text(renderer, value));
    case NNEFC_FILTER_DEFAULT:
        if (value.kind == NNEFC_KIND_UNDEFINED) return values[1];
        return nnefc_chat_truth(renderer, values[2]) && !nnefc_chat_truth(renderer, value) ? values[1] : value;
    case NNEFC_FILTER_DICTSORT:
        return sorted_pairs(renderer, values);
    case NNEFC_FILTER_FIRST:
        return first(renderer, value);
    case NNEFC_FILTER_FLOAT:
        return nnefc_chat_to_float(renderer, value, values[1]);
    case NNEFC_FILTER_INDENT:
        return nnefc_chat_indented(renderer, value, values[1], nnefc_chat_truth(renderer, values[2]), nnefc_chat_truth(renderer, values[3]));
    case NNEFC_FILTER_INT:
        return nnefc_chat_to_integer(renderer, value, values[1]);
    case NNEFC_FILTER_PAIRS:
        return pairs(renderer, value);
    case NNEFC_FILTER_JOIN:
        return joined(renderer, values);
    case NNEFC_FILTER_LAST:
        return last(renderer, value);
    case NNEFC_FILTER_LENGTH:
        return length(renderer, value);
    case NNEFC_FILTER_LIST:
        return nnefc_list_of(NNEFC_KIND_LIST, nnefc_chat_elements(renderer, value));
    case NNEFC_FILTER_LOWER:
        return nnefc_chat_change_case(renderer, nnefc_chat_text(renderer, value), NNEFC_LOWER_CASE);
    case NNEFC_FILTER_UPPER:
        return nnefc_chat_change_case(renderer, nnefc_chat_text(renderer, value), NNEFC_UPPER_CASE);
    case NNEFC_FILTER_MAP_ATTRIBUTE:
    case NNEFC_FILTER_MAP:
    case NNEFC_FILTER_REJECT:
    case NNEFC_FILTER_REJECTATTR:
    case NNEFC_FILTER_SELECT:
    case NNEFC_FILTER_SELECTATTR: /* of what is false there are no elements */
        return iterator_over(renderer, nnefc_chat_truth(renderer, value) ? value : nnefc_undefined(), filter, values + 1, count - 1);
    case NNEFC_FILTER_UNIQUE:
        return iterator_over(renderer, value, filter, values + 1, count - 1);
    case NNEFC_FILTER_REPLACE:
        return replaced(renderer, values);
    case NNEFC_FILTER_REVERSE:
        return reversed(renderer, value);
    case NNEFC_FILTER_SORT:
        return sorted(renderer, values);
    case NNEFC_FILTER_STRING:
        return nnefc_chat_text(renderer, value);
    case NNEFC_FILTER_SUM:
        return sum(renderer, values);
    case NNEFC_FILTER_TITLE:
        return nnefc_chat_titled(renderer, nnefc_chat_text(renderer, value));
    case NNEFC_FILTER_TOJSON:
        return nnefc_chat_to_json(renderer, value, values + 1);
    case NNEFC_FILTER_TRIM:
        return nnefc_chat_stripped(renderer, nnefc_chat_text(renderer, value), values[1], 3);
    default:
        return nnefc_chat_fail(renderer, "a filter is not known");
    }
}
