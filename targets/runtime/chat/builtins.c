/* The functions that templates have: namespace, dict, range, raise_exception and strftime_now. */
#include "chat/values.h"

enum { MAX_RANGE = 100000 }; /* that of Jinja's sandbox */

static void add_pairs(nnefc_renderer *renderer, nnefc_dict *into, const nnefc_dict *from) {
    for (uint32_t i = 0; from != NULL && i < from->count; i++) nnefc_chat_set(renderer, into, from->pairs[i].key, from->pairs[i].value);
}

/* A dictionary of another one, or of nothing, and of arguments by name. */
static nnefc_dict *pairs_of(nnefc_renderer *renderer, const nnefc_value *arguments, uint32_t count, const nnefc_dict *keywords) {
    nnefc_dict *made = nnefc_chat_dict(renderer);
    bool is_dict = count == 1 && arguments[0].kind == NNEFC_KIND_DICT;
    if (count > 1 || (count == 1 && !is_dict)) nnefc_chat_fail(renderer, "only a dictionary and arguments by name are supported here");
    if (is_dict) add_pairs(renderer, made, arguments[0].dict);
    add_pairs(renderer, made, keywords);
    return made;
}

static nnefc_value range(nnefc_renderer *renderer, const nnefc_value *arguments, uint32_t count) {
    int64_t limits[3] = {0, 0, 1};
    for (uint32_t i = 0; i < count; i++) {
        if (i == 3 || !nnefc_is_integer(arguments[i])) return nnefc_chat_fail(renderer, "range takes one to three integers");
        limits[i] = arguments[i].integer;
    }
    if (count == 0) return nnefc_chat_fail(renderer, "range takes one to three integers");
    if (count == 1) limits[1] = limits[0], limits[0] = 0;
    int64_t step = limits[2], difference = 0;
    if (step == 0) return nnefc_chat_fail(renderer, "the step of a range is not 0");
    bool fits = !__builtin_sub_overflow(limits[1], limits[0], &difference) && step != INT64_MIN && difference != INT64_MIN;
    bool is_empty = difference == 0 || (difference < 0) != (step < 0);
    int64_t distance = difference < 0 ? -difference : difference, stride = step < 0 ? -step : step;
    int64_t elements = !fits || is_empty ? 0 : (distance - 1) / stride + 1;
    if (!fits || elements > MAX_RANGE) return nnefc_chat_fail(renderer, "a range has more than %d elements", (int)MAX_RANGE);
    nnefc_range *made = nnefc_chat_allocate(renderer, 1, sizeof *made);
    if (made == NULL) return nnefc_undefined();
    made->start = limits[0], made->stop = limits[1], made->step = step, made->count = elements;
    return (nnefc_value){.kind = NNEFC_KIND_RANGE, .range = made};
}

static nnefc_value raise(nnefc_renderer *renderer, nnefc_value message) {
    nnefc_value text = nnefc_chat_text(renderer, message);
    enum { SHOWN = NNEFC_MESSAGE_BYTES - 1 };
    return nnefc_chat_fail(renderer, "%.*s", (int)(text.size < SHOWN ? text.size : SHOWN), text.size > 0 ? text.bytes : "");
}

nnefc_value nnefc_chat_call_builtin(nnefc_renderer *renderer, nnefc_builtin builtin, const nnefc_value *arguments, uint32_t count,
                                    const nnefc_dict *keywords) {
    switch (builtin) {
    case NNEFC_BUILTIN_DICT:
        return nnefc_dict_of(NNEFC_KIND_DICT, pairs_of(renderer, arguments, count, keywords));
    case NNEFC_BUILTIN_NAMESPACE:
        return nnefc_dict_of(NNEFC_KIND_NAMESPACE, pairs_of(renderer, arguments, count, keywords));
    default:
        break;
    }
    if (keywords->count > 0) return nnefc_chat_fail(renderer, "a function takes no arguments by name");
    if (builtin == NNEFC_BUILTIN_RANGE) return range(renderer, arguments, count);
    if (count != 1) return nnefc_chat_fail(renderer, "a function takes one argument");
    return builtin == NNEFC_BUILTIN_RAISE ? raise(renderer, arguments[0]) : nnefc_chat_time(renderer, arguments[0]);
}
