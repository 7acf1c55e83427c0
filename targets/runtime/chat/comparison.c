/* Truth, equality and order of values. */
#include <string.h>

#include "chat/values.h"

enum { UNORDERED = 2 }; /* NaN, and any number */

bool nnefc_chat_truth(nnefc_renderer *renderer, nnefc_value value) {
    switch (value.kind) {
    case NNEFC_KIND_MISSING:
    case NNEFC_KIND_NONE:
    case NNEFC_KIND_UNDEFINED:
        return false;
    case NNEFC_KIND_BOOLEAN:
    case NNEFC_KIND_INTEGER:
        return value.integer != 0;
    case NNEFC_KIND_FLOAT:
        return value.number != 0;
    case NNEFC_KIND_STRING:
        return value.size > 0;
    case NNEFC_KIND_LIST:
    case NNEFC_KIND_TUPLE:
    case NNEFC_KIND_DICT:
    case NNEFC_KIND_VIEW:
    case NNEFC_KIND_RANGE:
        return nnefc_chat_length(renderer, value) > 0;
    default:
        return true;
    }
}

static int order(int64_t first, int64_t second) { return (first > second) - (first < second); }

static int compare_with_float(int64_t integer, double number) {
    if (number != number) return UNORDERED;
    if (number >= 9223372036854775808.0) return -1;
    if (number < -9223372036854775808.0) return 1;
    int64_t whole = (int64_t)number;
    if (integer != whole) return order(integer, whole);
    double part = number - (double)whole;
    return (part < 0) - (part > 0);
}

static int compare_numbers(nnefc_value first, nnefc_value second) {
    if (nnefc_is_integer(first) && nnefc_is_integer(second)) return order(first.integer, second.integer);
    if (nnefc_is_integer(first)) return compare_with_float(first.integer, second.number);
    if (nnefc_is_integer(second)) {
        int reversed = compare_with_float(second.integer, first.number);
        return reversed == UNORDERED ? UNORDERED : -reversed;
    }
    if (first.number != first.number || second.number != second.number) return UNORDERED;
    return (first.number > second.number) - (first.number < second.number);
}

static int compare_texts(nnefc_renderer *renderer, nnefc_value first, nnefc_value second) {
    uint32_t size = first.size < second.size ? first.size : second.size;
    if (!nnefc_chat_spend(renderer, size)) return 0;
    int found = size > 0 ? memcmp(first.bytes, second.bytes, size) : 0;
    return found != 0 ? (found > 0) - (found < 0) : order(first.size, second.size);
}

static bool equal_lists(nnefc_renderer *renderer, const nnefc_list *first, const nnefc_list *second) {
    bool is_equal = first->count == second->count;
    if (!nnefc_chat_enter(renderer)) return false;
    for (uint32_t i = 0; i < first->count && is_equal; i++)
        is_equal = nnefc_chat_equal(renderer, first->elements[i], second->elements[i]);
    nnefc_chat_leave(renderer);
    return is_equal;
}

static bool equal_dicts(nnefc_renderer *renderer, const nnefc_dict *first, const nnefc_dict *second) {
    bool is_equal = first->count == second->count;
    if (!nnefc_chat_enter(renderer)) return false;
    for (uint32_t i = 0; i < first->count && is_equal; i++) {
        const nnefc_value *other = nnefc_chat_find(renderer, second, first->pairs[i].key);
        is_equal = other != NULL && nnefc_chat_equal(renderer, first->pairs[i].value, *other);
    }
    nnefc_chat_leave(renderer);
    return is_equal;
}

/* Views of keys and of pairs are sets. */
static bool equal_views(nnefc_renderer *renderer, nnefc_value first, nnefc_value second) {
    if (first.size != second.size || first.size == NNEFC_VIEW_VALUES || first.dict->count != second.dict->count) return false;
    if (first.size == NNEFC_VIEW_PAIRS) return equal_dicts(renderer, first.dict, second.dict);
    for (uint32_t i = 0; i < first.dict->count && !nnefc_failed(renderer); i++)
        if (nnefc_chat_find(renderer, second.dict, first.dict->pairs[i].key) == NULL) return false;
    return true;
}

bool nnefc_chat_equal(nnefc_renderer *renderer, nnefc_value first, nnefc_value second) {
    if (!nnefc_chat_spend(renderer, 0)) return false;
    if (nnefc_is_number(first) && nnefc_is_number(second)) return compare_numbers(first, second) == 0;
    if (first.kind != second.kind) return false;
    switch (first.kind) {
    case NNEFC_KIND_STRING:
    case NNEFC_KIND_BIG:
        return first.size == second.size && compare_texts(renderer, first, second) == 0;
    case NNEFC_KIND_LIST:
    case NNEFC_KIND_TUPLE:
        return first.list == second.list || equal_lists(renderer, first.list, second.list);
    case NNEFC_KIND_DICT:
        return first.dict == second.dict || equal_dicts(renderer, first.dict, second.dict);
    case NNEFC_KIND_MISSING:
    case NNEFC_KIND_NONE:
    case NNEFC_KIND_UNDEFINED:
        return true;
    case NNEFC_KIND_FUNCTION:
        return first.integer == second.integer;
    case NNEFC_KIND_VIEW:
        return equal_views(renderer, first, second);
    case NNEFC_KIND_RANGE:
    case NNEFC_KIND_METHOD:
        nnefc_chat_fail(renderer, "ranges and methods are not supported as operands of ==");
        return false;
    default:
        return first.list == second.list; /* the same object */
    }
}

static int compare_lists(nnefc_renderer *renderer, const nnefc_list *first, const nnefc_list *second) {
    uint32_t count = first->count < second->count ? first->count : second->count;
    int found = order(first->count, second->count);
    if (!nnefc_chat_enter(renderer)) return 0;
    for (uint32_t i = 0; i < count && !nnefc_failed(renderer); i++) {
        if (nnefc_chat_equal(renderer, first->elements[i], second->elements[i])) continue;
        found = nnefc_chat_compare(renderer, first->elements[i], second->elements[i]);
        break;
    }
    nnefc_chat_leave(renderer);
    return found;
}

int nnefc_chat_compare(nnefc_renderer *renderer, nnefc_value first, nnefc_value second) {
    if (nnefc_is_number(first) && nnefc_is_number(second)) return compare_numbers(first, second);
    if (first.kind == NNEFC_KIND_STRING && second.kind == NNEFC_KIND_STRING) return compare_texts(renderer, first, second);
    bool are_lists = first.kind == NNEFC_KIND_LIST || first.kind == NNEFC_KIND_TUPLE;
    if (first.kind == second.kind && are_lists) return compare_lists(renderer, first.list, second.list);
    if (first.kind == NNEFC_KIND_UNDEFINED || second.kind == NNEFC_KIND_UNDEFINED)
        nnefc_chat_fail_undefined(renderer, first.kind == NNEFC_KIND_UNDEFINED ? first : second);
    nnefc_chat_fail(renderer, "values of these types have no order");
    return 0;
}

bool nnefc_chat_relation(nnefc_renderer *renderer, nnefc_opcode relation, nnefc_value first, nnefc_value second) {
    switch (relation) {
    case NNEFC_OP_EQUAL:
        return nnefc_chat_equal(renderer, first, second);
    case NNEFC_OP_NOT_EQUAL:
        return !nnefc_chat_equal(renderer, first, second);
    case NNEFC_OP_IN:
        return nnefc_chat_contains(renderer, second, first);
    case NNEFC_OP_NOT_IN:
        return !nnefc_chat_contains(renderer, second, first);
    default:
        break;
    }
    int found = nnefc_chat_compare(renderer, first, second);
    if (found == UNORDERED) return false;
    switch (relation) {
    case NNEFC_OP_LESS:
        return found < 0;
    case NNEFC_OP_LESS_EQUAL:
        return found <= 0;
    case NNEFC_OP_GREATER:
        return found > 0;
    default:
        return found >= 0;
    }
}

size_t nnefc_chat_find_bytes(nnefc_renderer *renderer, nnefc_value text, nnefc_value part, size_t begin) {
    if (part.size == 0) return begin <= text.size ? begin : SIZE_MAX;
    nnefc_chat_spend(renderer, text.size > begin ? text.size - begin : 0);
    while (begin + part.size <= text.size) {
        const char *at = memchr(text.bytes + begin, part.bytes[0], text.size - part.size - begin + 1);
        if (at == NULL || !nnefc_chat_spend(renderer, part.size)) return SIZE_MAX;
        if (memcmp(at, part.bytes, part.size) == 0) return (size_t)(at - text.bytes);
        begin = (size_t)(at - text.bytes) + 1;
    }
    return SIZE_MAX;
}

bool nnefc_chat_contains(nnefc_renderer *renderer, nnefc_value value, nnefc_value element) {
    nnefc_value each;
    switch (value.kind) {
    case NNEFC_KIND_STRING:
        if (element.kind == NNEFC_KIND_STRING) return nnefc_chat_find_bytes(renderer, value, element, 0) != SIZE_MAX;
        nnefc_chat_fail(renderer, "a text contains texts only");
        return false;
    case NNEFC_KIND_DICT:
        return nnefc_chat_find(renderer, value.dict, element) != NULL;
    case NNEFC_KIND_ITERATOR:
        while (nnefc_chat_next(renderer, value.iterator, &each))
            if (nnefc_chat_equal(renderer, each, element)) return true;
        return false;
    default:
        break;
    }
    const nnefc_list *elements = nnefc_chat_elements(renderer, value);
    for (uint32_t i = 0; elements != NULL && i < elements->count && !nnefc_failed(renderer); i++)
        if (nnefc_chat_equal(renderer, elements->elements[i], element)) return true;
    return false;
}

typedef struct sorted {
    nnefc_value element, key;
} sorted;

static void merge(nnefc_renderer *renderer, const sorted *from, sorted *to, uint32_t begin, uint32_t middle, uint32_t end, bool reverse) {
    uint32_t left = begin, right = middle;
    for (uint32_t at = begin; at < end; at++) {
        bool is_left = right == end;
        if (!is_left && left < middle) {
            int found = nnefc_chat_compare(renderer, from[right].key, from[left].key);
            is_left = reverse ? found <= 0 : found >= 0;
        }
        to[at] = is_left ? from[left++] : from[right++];
    }
}

void nnefc_chat_sort(nnefc_renderer *renderer, nnefc_value *elements, const nnefc_value *keys, uint32_t count, bool reverse) {
    sorted *from = nnefc_chat_allocate(renderer, count + 1, sizeof *from), *to = nnefc_chat_allocate(renderer, count + 1, sizeof *to);
    if (from == NULL || to == NULL) return;
    for (uint32_t i = 0; i < count; i++) from[i] = (sorted){elements[i], keys[i]};
    for (uint32_t width = 1; width < count && !nnefc_failed(renderer); width *= 2) {
        for (uint32_t begin = 0; begin < count; begin += 2 * width) {
            uint32_t middle = begin + width < count ? begin + width : count, end = middle + width < count ? middle + width : count;
            merge(renderer, from, to, begin, middle, end, reverse);
        }
        sorted *other = from;
        from = to, to = other;
    }
    for (uint32_t i = 0; i < count; i++) elements[i] = from[i].element;
}
