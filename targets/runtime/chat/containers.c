/* Lists, dictionaries and what else has elements and attributes. */
#include <string.h>

#include "chat/values.h"

enum { FEW_PAIRS = 8, MAX_ELEMENTS = 1 << 26 };

nnefc_list *nnefc_chat_list(nnefc_renderer *renderer, uint32_t room) {
    nnefc_list *made = nnefc_chat_allocate(renderer, 1, sizeof *made);
    if (made == NULL) return NULL;
    made->elements = nnefc_chat_allocate(renderer, room > 0 ? room : 1, sizeof *made->elements);
    if (made->elements == NULL) return NULL;
    made->room = room > 0 ? room : 1;
    return made;
}

void nnefc_chat_append(nnefc_renderer *renderer, nnefc_list *list, nnefc_value value) {
    if (list == NULL || nnefc_failed(renderer)) return;
    if (list->count == list->room) {
        if (list->room > MAX_ELEMENTS) {
            nnefc_chat_fail(renderer, "the chat template takes too much memory");
            return;
        }
        nnefc_value *moved = nnefc_chat_allocate(renderer, 2 * (size_t)list->room, sizeof *moved);
        if (moved == NULL) return;
        memcpy(moved, list->elements, list->count * sizeof *moved);
        list->elements = moved, list->room *= 2;
    }
    list->elements[list->count++] = value;
}

nnefc_dict *nnefc_chat_dict(nnefc_renderer *renderer) { return nnefc_chat_allocate(renderer, 1, sizeof(nnefc_dict)); }

/* Equal for equal keys: 1, 1.0 and true are. */
static uint32_t hash_of(nnefc_renderer *renderer, nnefc_value key) {
    uint32_t hash = 2166136261U;
    uint64_t bits = 0;
    switch (key.kind) {
    case NNEFC_KIND_STRING:
        if (!nnefc_chat_spend(renderer, key.size)) return 0;
        for (uint32_t i = 0; i < key.size; i++) hash = (hash ^ (uint8_t)key.bytes[i]) * 16777619U;
        return hash;
    case NNEFC_KIND_BOOLEAN:
    case NNEFC_KIND_INTEGER:
        return (uint32_t)((uint64_t)key.integer ^ (uint64_t)key.integer >> 32) * 16777619U;
    case NNEFC_KIND_FLOAT:
        if (key.number >= -9e18 && key.number <= 9e18 && key.number == (double)(int64_t)key.number)
            return hash_of(renderer, nnefc_integer((int64_t)key.number));
        memcpy(&bits, &key.number, sizeof bits);
        return (uint32_t)(bits ^ bits >> 32);
    case NNEFC_KIND_TUPLE:
        if (!nnefc_chat_enter(renderer)) return 0;
        for (uint32_t i = 0; i < key.list->count; i++) hash = (hash ^ hash_of(renderer, key.list->elements[i])) * 16777619U;
        nnefc_chat_leave(renderer);
        return hash;
    case NNEFC_KIND_NONE:
    case NNEFC_KIND_UNDEFINED:
        return key.kind;
    default:
        nnefc_chat_fail(renderer, "lists, dictionaries and functions are no keys of a dictionary");
        return 0;
    }
}

static nnefc_pair *found(nnefc_renderer *renderer, const nnefc_dict *dict, nnefc_value key, uint32_t hash) {
    if (dict->slots == NULL) {
        for (uint32_t i = 0; i < dict->count; i++)
            if (dict->pairs[i].hash == hash && nnefc_chat_equal(renderer, dict->pairs[i].key, key)) return &dict->pairs[i];
        return NULL;
    }
    uint32_t mask = dict->slot_count - 1;
    for (uint32_t slot = hash & mask; dict->slots[slot] != 0; slot = (slot + 1) & mask) {
        if (!nnefc_chat_spend(renderer, 0)) return NULL;
        nnefc_pair *pair = &dict->pairs[dict->slots[slot] - 1];
        if (pair->hash == hash && nnefc_chat_equal(renderer, pair->key, key)) return pair;
    }
    return NULL;
}

static void fill_slot(nnefc_dict *dict, uint32_t number) {
    uint32_t mask = dict->slot_count - 1, slot = dict->pairs[number].hash & mask;
    while (dict->slots[slot] != 0) slot = (slot + 1) & mask;
    dict->slots[slot] = number + 1;
}

/* Doubles the room; with more than a few pairs there are at least twice as many slots. */
static bool grow(nnefc_renderer *renderer, nnefc_dict *dict) {
    uint32_t room = dict->room == 0 ? 4 : 2 * dict->room;
    nnefc_pair *moved = room > MAX_ELEMENTS ? NULL : nnefc_chat_allocate(renderer, room, sizeof *moved);
    if (moved == NULL) {
        nnefc_chat_fail(renderer, "the chat template takes too much memory");
        return false;
    }
    if (dict->count > 0) memcpy(moved, dict->pairs, dict->count * sizeof *moved);
    dict->pairs = moved, dict->room = room;
    if (room <= FEW_PAIRS) return true;
    uint32_t *slots = nnefc_chat_allocate(renderer, 2 * (size_t)room, sizeof *slots);
    if (slots == NULL) return false;
    dict->slots = slots, dict->slot_count = 2 * room;
    for (uint32_t i = 0; i < dict->count; i++) fill_slot(dict, i);
    return true;
}

void nnefc_chat_set(nnefc_renderer *renderer, nnefc_dict *dict, nnefc_value key, nnefc_value value) {
    if (dict == NULL) return;
    uint32_t hash = hash_of(renderer, key);
    nnefc_pair *pair = nnefc_failed(renderer) ? NULL : found(renderer, dict, key, hash);
    if (pair != NULL) pair->value = value;
    if (pair != NULL || nnefc_failed(renderer) || (dict->count == dict->room && !grow(renderer, dict))) return;
    dict->pairs[dict->count++] = (nnefc_pair){key, value, hash};
    if (dict->slots != NULL) fill_slot(dict, dict->count - 1);
}

const nnefc_value *nnefc_chat_find(nnefc_renderer *renderer, const nnefc_dict *dict, nnefc_value key) {
    uint32_t hash = hash_of(renderer, key);
    nnefc_pair *pair = nnefc_failed(renderer) ? NULL : found(renderer, dict, key, hash);
    return pair != NULL ? &pair->value : NULL;
}

static nnefc_list *parts_of_dict(nnefc_renderer *renderer, const nnefc_dict *dict, uint32_t view) {
    nnefc_list *made = nnefc_chat_list(renderer, dict->count);
    for (uint32_t i = 0; i < dict->count && !nnefc_failed(renderer); i++) {
        const nnefc_pair *pair = &dict->pairs[i];
        if (view != NNEFC_VIEW_PAIRS) {
            nnefc_chat_append(renderer, made, view == NNEFC_VIEW_KEYS ? pair->key : pair->value);
            continue;
        }
        nnefc_list *both = nnefc_chat_list(renderer, 2);
        nnefc_chat_append(renderer, both, pair->key);
        nnefc_chat_append(renderer, both, pair->value);
        nnefc_chat_append(renderer, made, nnefc_list_of(NNEFC_KIND_TUPLE, both));
    }
    return made;
}

static nnefc_list *characters_of(nnefc_renderer *renderer, nnefc_value text) {
    nnefc_list *made = nnefc_chat_list(renderer, (uint32_t)nnefc_chat_characters(renderer, text));
    for (size_t at = 0; at < text.size && !nnefc_failed(renderer);) {
        size_t size = nnefc_chat_offset(nnefc_text_at(text.bytes + at, text.size - at), 1);
        nnefc_chat_append(renderer, made, nnefc_text_at(text.bytes + at, size));
        at += size;
    }
    return made;
}

nnefc_list *nnefc_chat_elements(nnefc_renderer *renderer, nnefc_value value) {
    if (!nnefc_chat_spend(renderer, 0)) return NULL;
    nnefc_list *made = NULL;
    nnefc_value element;
    switch (value.kind) {
    case NNEFC_KIND_LIST:
    case NNEFC_KIND_TUPLE:
        return value.list;
    case NNEFC_KIND_STRING:
        return characters_of(renderer, value);
    case NNEFC_KIND_UNDEFINED:
        return nnefc_chat_list(renderer, 0);
    case NNEFC_KIND_DICT:
        return parts_of_dict(renderer, value.dict, NNEFC_VIEW_KEYS);
    case NNEFC_KIND_VIEW:
        return parts_of_dict(renderer, value.dict, value.size);
    case NNEFC_KIND_RANGE:
        made = nnefc_chat_list(renderer, (uint32_t)value.range->count);
        for (int64_t i = 0; i < value.range->count && !nnefc_failed(renderer); i++)
            nnefc_chat_append(renderer, made, nnefc_integer(value.range->start + i * value.range->step));
        return made;
    case NNEFC_KIND_ITERATOR:
        made = nnefc_chat_list(renderer, 4);
        while (nnefc_chat_next(renderer, value.iterator, &element)) nnefc_chat_append(renderer, made, element);
        return nnefc_failed(renderer) ? NULL : made;
    default:
        nnefc_chat_fail(renderer, "the value cannot be iterated");
        return NULL;
    }
}

bool nnefc_chat_is_iterable(nnefc_value value) {
    switch (value.kind) {
    case NNEFC_KIND_LIST:
    case NNEFC_KIND_TUPLE:
    case NNEFC_KIND_STRING:
    case NNEFC_KIND_UNDEFINED:
    case NNEFC_KIND_DICT:
    case NNEFC_KIND_VIEW:
    case NNEFC_KIND_RANGE:
    case NNEFC_KIND_ITERATOR:
    case NNEFC_KIND_LOOP:
        return true;
    default:
        return false;
    }
}

int64_t nnefc_chat_length(nnefc_renderer *renderer, nnefc_value value) {
    switch (value.kind) {
    case NNEFC_KIND_LIST:
    case NNEFC_KIND_TUPLE:
        return value.list->count;
    case NNEFC_KIND_STRING:
        return nnefc_chat_characters(renderer, value);
    case NNEFC_KIND_UNDEFINED:
        return 0;
    case NNEFC_KIND_DICT:
    case NNEFC_KIND_VIEW:
        return value.dict->count;
    case NNEFC_KIND_RANGE:
        return value.range->count;
    case NNEFC_KIND_LOOP:
        return value.loop->list->count;
    default:
        return -1;
    }
}

/* The element at an index, which counts from the end if it is negative. Returns false if there is none. */
static bool at_index(nnefc_renderer *renderer, nnefc_value value, int64_t index, nnefc_value *element) {
    int64_t count = nnefc_chat_length(renderer, value);
    if (index < 0) index += count;
    if (index < 0 || index >= count) return false;
    if (value.kind == NNEFC_KIND_RANGE)
        *element = nnefc_integer(value.range->start + index * value.range->step);
    else if (value.kind == NNEFC_KIND_STRING) {
        size_t begin = nnefc_chat_offset(value, index);
        nnefc_value left = nnefc_text_at(value.bytes + begin, value.size - begin);
        *element = nnefc_text_at(left.bytes, nnefc_chat_offset(left, 1));
    } else
        *element = value.list->elements[index];
    return true;
}

/* value[index]; false if there is no such element. */
static bool subscript(nnefc_renderer *renderer, nnefc_value value, nnefc_value index, nnefc_value *element) {
    const nnefc_value *entry = NULL;
    switch (value.kind) {
    case NNEFC_KIND_LIST:
    case NNEFC_KIND_TUPLE:
    case NNEFC_KIND_STRING:
    case NNEFC_KIND_RANGE:
        return nnefc_is_integer(index) && at_index(renderer, value, index.integer, element);
    case NNEFC_KIND_DICT:
        if (index.kind == NNEFC_KIND_LIST || index.kind == NNEFC_KIND_DICT) return false; /* no keys */
        entry = nnefc_chat_find(renderer, value.dict, index);
        if (entry != NULL) *element = *entry;
        return entry != NULL;
    default:
        return false;
    }
}

static nnefc_value loop_attribute(nnefc_renderer *renderer, nnefc_value value, nnefc_value name) {
    const nnefc_loop *loop = value.loop;
    int64_t index = loop->index, count = loop->list->count;
    const struct {
        const char *name;
        nnefc_value value;
    } attributes[] = {
        {"index", nnefc_integer(index)},
        {"index0", nnefc_integer(index - 1)},
        {"revindex", nnefc_integer(count - index + 1)},
        {"revindex0", nnefc_integer(count - index)},
        {"first", nnefc_boolean(index == 1)},
        {"last", nnefc_boolean(index == count)},
        {"length", nnefc_integer(count)},
        {"depth", nnefc_integer(1)},
        {"depth0", nnefc_integer(0)},
        {"previtem", index > 1 ? loop->list->elements[index - 2] : nnefc_undefined()},
        {"nextitem", index < count ? loop->list->elements[index] : nnefc_undefined()},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (strlen(attributes[i].name) == name.size && memcmp(attributes[i].name, name.bytes, name.size) == 0) return attributes[i].value;
    bool is_unsafe = false;
    if (!nnefc_chat_has_method(value, name, &is_unsafe)) return nnefc_undefined_name(name);
    nnefc_method *method = nnefc_chat_allocate(renderer, 1, sizeof *method);
    if (method == NULL) return nnefc_undefined();
    method->object = value, method->name = name;
    return (nnefc_value){.kind = NNEFC_KIND_METHOD, .method = method};
}

/* A method by its name, or an attribute of an object that has some; false if there is none. */
static bool own_attribute(nnefc_renderer *renderer, nnefc_value value, nnefc_value name, nnefc_value *attribute) {
    const nnefc_value *entry = NULL;
    if (value.kind == NNEFC_KIND_LOOP) {
        *attribute = loop_attribute(renderer, value, name);
        return true;
    }
    if (value.kind == NNEFC_KIND_NAMESPACE) {
        entry = nnefc_chat_find(renderer, value.dict, name);
        if (entry != NULL) *attribute = *entry;
        return entry != NULL;
    }
    bool is_unsafe = false;
    if (!nnefc_chat_has_method(value, name, &is_unsafe)) return false;
    *attribute = nnefc_undefined_name(name);
    if (is_unsafe) return true;
    nnefc_method *method = nnefc_chat_allocate(renderer, 1, sizeof *method);
    if (method == NULL) return true;
    method->object = value, method->name = name;
    *attribute = (nnefc_value){.kind = NNEFC_KIND_METHOD, .method = method};
    return true;
}

nnefc_value nnefc_chat_element(nnefc_renderer *renderer, nnefc_value value, nnefc_value index) {
    nnefc_value element = nnefc_undefined_name(index);
    if (value.kind == NNEFC_KIND_UNDEFINED) return nnefc_chat_fail_undefined(renderer, value);
    if (subscript(renderer, value, index, &element) || nnefc_failed(renderer)) return element;
    if (index.kind == NNEFC_KIND_STRING && own_attribute(renderer, value, index, &element)) return element;
    return nnefc_undefined_name(index);
}

nnefc_value nnefc_chat_attribute(nnefc_renderer *renderer, nnefc_value value, nnefc_value name) {
    nnefc_value found = nnefc_undefined_name(name);
    if (value.kind == NNEFC_KIND_UNDEFINED) return nnefc_chat_fail_undefined(renderer, value);
    if (own_attribute(renderer, value, name, &found) || subscript(renderer, value, name, &found)) return found;
    return nnefc_undefined_name(name);
}

nnefc_value nnefc_chat_path(nnefc_renderer *renderer, nnefc_value value, nnefc_value path, nnefc_value otherwise) {
    if (path.kind == NNEFC_KIND_NONE) return value;
    if (path.kind != NNEFC_KIND_STRING) return nnefc_chat_element(renderer, value, path);
    for (size_t begin = 0; begin <= path.size && !nnefc_failed(renderer);) {
        size_t end = begin;
        int64_t number = 0;
        bool is_number = true;
        for (; end < path.size && path.bytes[end] != '.'; end++) {
            char digit = path.bytes[end];
            is_number = is_number && digit >= '0' && digit <= '9' && number < INT64_MAX / 20;
            number = is_number ? number * 10 + (digit - '0') : 0;
        }
        nnefc_value part = nnefc_text_at(path.bytes + begin, end - begin);
        value = nnefc_chat_element(renderer, value, is_number && end > begin ? nnefc_integer(number) : part);
        if (value.kind == NNEFC_KIND_UNDEFINED && otherwise.kind != NNEFC_KIND_NONE) value = otherwise;
        begin = end + 1;
    }
    return value;
}

/* A limit of a slice, within 0 and `count`, or one less for a step backwards. */
static int64_t limit_of(nnefc_renderer *renderer, nnefc_value limit, int64_t otherwise, int64_t count, bool is_back) {
    if (limit.kind == NNEFC_KIND_NONE) return otherwise;
    if (!nnefc_is_integer(limit)) {
        nnefc_chat_fail(renderer, "the limits of a slice are integers");
        return 0;
    }
    int64_t index = limit.integer, min = is_back ? -1 : 0, max = is_back ? count - 1 : count;
    if (index < 0) index = index < -count ? -1 : index + count;
    if (index < 0) return min;
    return index > max ? max : index;
}

nnefc_value nnefc_chat_slice(nnefc_renderer *renderer, nnefc_value value, const nnefc_value *limits) {
    if (value.kind == NNEFC_KIND_UNDEFINED) return nnefc_chat_fail_undefined(renderer, value);
    bool is_text = value.kind == NNEFC_KIND_STRING;
    if (!is_text && value.kind != NNEFC_KIND_LIST && value.kind != NNEFC_KIND_TUPLE)
        return nnefc_chat_fail(renderer, "only texts and lists have slices");
    int64_t count = nnefc_chat_length(renderer, value), step = 1;
    if (limits[2].kind != NNEFC_KIND_NONE) step = nnefc_is_integer(limits[2]) ? limits[2].integer : 0;
    if (step == 0 || step == INT64_MIN) return nnefc_chat_fail(renderer, "the step of a slice is an integer, and not 0");
    bool is_back = step < 0;
    int64_t at = limit_of(renderer, limits[0], is_back ? count - 1 : 0, count, is_back);
    int64_t end = limit_of(renderer, limits[1], is_back ? -1 : count, count, is_back);
    if (nnefc_failed(renderer)) return nnefc_undefined();
    if (is_text && step == 1) {
        size_t begin = nnefc_chat_offset(value, at);
        return end <= at ? nnefc_text_at("", 0)
                         : nnefc_text_at(value.bytes + begin,
                                         nnefc_chat_offset(nnefc_text_at(value.bytes + begin, value.size - begin), end - at));
    }
    nnefc_list *elements = nnefc_chat_elements(renderer, value), *made = nnefc_chat_list(renderer, 4);
    if (elements == NULL || made == NULL) return nnefc_undefined();
    while (is_back ? at > end : at < end) {
        nnefc_chat_append(renderer, made, elements->elements[at]);
        if (nnefc_failed(renderer) || (is_back ? at < -step : step > count - at)) break;
        at += step;
    }
    return is_text ? nnefc_chat_join(renderer, made, nnefc_text_at("", 0), true) : nnefc_list_of(value.kind, made);
}
