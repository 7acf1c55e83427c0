/* Values of chat templates: those of JSON, and what templates make of them, as Python has them.
 *
 * They are in an arena that is freed after the text is rendered, and never change, but for namespaces, loops and iterators. */
#ifndef NNEFC_CHAT_VALUES_H
#define NNEFC_CHAT_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "chat/program.h"
#include "nnefc.h"

/* The first ones are in programs: `compiler/tokenizer/chat_template/program.py` has the same. */
typedef enum nnefc_value_kind {
    NNEFC_KIND_MISSING, /* a variable without a value, an argument that is not given */
    NNEFC_KIND_NONE,
    NNEFC_KIND_BOOLEAN,
    NNEFC_KIND_INTEGER,
    NNEFC_KIND_FLOAT,
    NNEFC_KIND_STRING,
    NNEFC_KIND_FUNCTION,  /* `integer` is an nnefc_builtin */
    NNEFC_KIND_UNDEFINED, /* `bytes` is its name, for messages, if it has one */
    NNEFC_KIND_BIG,       /* an integer beyond 64 bits: its digits */
    NNEFC_KIND_LIST,
    NNEFC_KIND_TUPLE,
    NNEFC_KIND_DICT,
    NNEFC_KIND_VIEW, /* keys, values or pairs of a dictionary: `size` is an nnefc_view */
    NNEFC_KIND_RANGE,
    NNEFC_KIND_ITERATOR,
    NNEFC_KIND_NAMESPACE,
    NNEFC_KIND_LOOP,
    NNEFC_KIND_MACRO,
    NNEFC_KIND_METHOD
} nnefc_value_kind;

typedef enum nnefc_builtin {
    NNEFC_BUILTIN_DICT,
    NNEFC_BUILTIN_NAMESPACE,
    NNEFC_BUILTIN_RAISE,
    NNEFC_BUILTIN_RANGE,
    NNEFC_BUILTIN_TIME
} nnefc_builtin;

typedef enum nnefc_view { NNEFC_VIEW_KEYS, NNEFC_VIEW_VALUES, NNEFC_VIEW_PAIRS } nnefc_view;

typedef struct nnefc_value {
    uint32_t kind; /* an nnefc_value_kind */
    uint32_t size; /* of a string */
    union {
        int64_t integer; /* of a boolean, too */
        double number;
        const char *bytes; /* of a string, in UTF-8 */
        struct nnefc_list *list;
        struct nnefc_dict *dict; /* of a namespace and a view, too */
        struct nnefc_range *range;
        struct nnefc_iterator *iterator;
        struct nnefc_loop *loop;
        struct nnefc_macro *macro;
        struct nnefc_method *method;
    };
} nnefc_value;

typedef struct nnefc_list {
    uint32_t count, room;
    nnefc_value *elements;
} nnefc_list;

typedef struct nnefc_pair {
    nnefc_value key, value;
    uint32_t hash;
} nnefc_pair;

/* Pairs in the order in which they came; with more than a few, `slots` has their numbers, plus 1, by the keys' hashes. */
typedef struct nnefc_dict {
    uint32_t count, room, slot_count;
    nnefc_pair *pairs;
    uint32_t *slots;
} nnefc_dict;

typedef struct nnefc_range {
    int64_t start, stop, step, count;
} nnefc_range;

/* What generators are in Python: each element comes once, when it is asked for. */
typedef struct nnefc_iterator {
    nnefc_list *list;             /* whose elements it takes, */
    struct nnefc_iterator *other; /* or an iterator */
    uint32_t at, filter;          /* the next element; the nnefc_filter that makes elements of those, or NNEFC_FILTER_LIST */
    nnefc_value *arguments;       /* of the filter, after the value */
    uint32_t argument_count;
    nnefc_list *seen; /* of the filter unique */
} nnefc_iterator;

typedef struct nnefc_loop {
    nnefc_list *list;
    uint32_t index; /* of the element that follows, from 0 on: that of this iteration from 1 on */
} nnefc_loop;

/* The variables of a call of a function. */
typedef struct nnefc_scope {
    struct nnefc_scope *outer;
    nnefc_value variables[];
} nnefc_scope;

typedef struct nnefc_macro {
    const nnefc_function *function;
    nnefc_scope *outer;
} nnefc_macro;

typedef struct nnefc_method {
    nnefc_value object, name;
} nnefc_method;

typedef struct nnefc_block {
    struct nnefc_block *before;
    size_t used, size;
    _Alignas(8) char bytes[];
} nnefc_block;

enum { NNEFC_MESSAGE_BYTES = 512 };

/* A text that is rendered. After a failure, functions do nothing and return undefined values. */
typedef struct nnefc_renderer {
    const nnefc_program *program;
    nnefc_block *blocks, *texts; /* the arena; that of strings */
    size_t bytes_left;
    int64_t steps_left;
    char *output; /* the text so far, and behind it texts that are made */
    size_t size, room;
    nnefc_value *stack;
    uint32_t stack_count, stack_room;
    uint32_t depth; /* of values in values that are being read or written */
    nnefc_value *context;
    int64_t local_time;
    nnefc_status status;
    char message[NNEFC_MESSAGE_BYTES];
} nnefc_renderer;

/* storage.c */

/* Notes the first failure, with a message. Returns an undefined value. */
nnefc_value nnefc_chat_fail(nnefc_renderer *renderer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The failure of an operation on an undefined value. */
nnefc_value nnefc_chat_fail_undefined(nnefc_renderer *renderer, nnefc_value value);
/* Enters a nested value, or leaves it. Returns false after a failure, also that of too many of them. */
bool nnefc_chat_enter(nnefc_renderer *renderer);
void nnefc_chat_leave(nnefc_renderer *renderer);
/* Takes steps for work on so many bytes. Returns false after a failure, also that of too many steps. */
bool nnefc_chat_spend(nnefc_renderer *renderer, size_t bytes);
/* Memory for so many elements, zeros; null after a failure. */
void *nnefc_chat_allocate(nnefc_renderer *renderer, size_t count, size_t size);
/* A string of two texts; the first is not copied if it ends where memory is free. */
nnefc_value nnefc_chat_joined(nnefc_renderer *renderer, nnefc_value first, nnefc_value second);
nnefc_value nnefc_chat_string(nnefc_renderer *renderer, const char *bytes, size_t size);
/* Appends to the output. */
void nnefc_chat_write(nnefc_renderer *renderer, const char *bytes, size_t size);
/* Takes what was written since `begin` from the output, as a string. */
nnefc_value nnefc_chat_taken(nnefc_renderer *renderer, size_t begin);
void nnefc_chat_free(nnefc_renderer *renderer);

/* containers.c */
nnefc_list *nnefc_chat_list(nnefc_renderer *renderer, uint32_t room);
void nnefc_chat_append(nnefc_renderer *renderer, nnefc_list *list, nnefc_value value);
nnefc_dict *nnefc_chat_dict(nnefc_renderer *renderer);
/* Sets the value of a key; a new key comes last. */
void nnefc_chat_set(nnefc_renderer *renderer, nnefc_dict *dict, nnefc_value key, nnefc_value value);
/* The value of a key, or null. */
const nnefc_value *nnefc_chat_find(nnefc_renderer *renderer, const nnefc_dict *dict, nnefc_value key);
/* The elements of a value that can be iterated, or null with a failure. A list's own are not copied. */
nnefc_list *nnefc_chat_elements(nnefc_renderer *renderer, nnefc_value value);
bool nnefc_chat_is_iterable(nnefc_value value);
/* The number of elements, or -1 if the value has none. */
int64_t nnefc_chat_length(nnefc_renderer *renderer, nnefc_value value);
nnefc_value nnefc_chat_element(nnefc_renderer *renderer, nnefc_value value, nnefc_value index);
nnefc_value nnefc_chat_slice(nnefc_renderer *renderer, nnefc_value value, const nnefc_value *limits);
nnefc_value nnefc_chat_attribute(nnefc_renderer *renderer, nnefc_value value, nnefc_value name);
/* The attribute of an attribute …, names and numbers with dots between; `otherwise` in place of those that are undefined. */
nnefc_value nnefc_chat_path(nnefc_renderer *renderer, nnefc_value value, nnefc_value path, nnefc_value otherwise);

/* comparison.c */
bool nnefc_chat_truth(nnefc_renderer *renderer, nnefc_value value);
bool nnefc_chat_equal(nnefc_renderer *renderer, nnefc_value first, nnefc_value second);
/* Negative, 0 or positive; a failure for values without an order. */
int nnefc_chat_compare(nnefc_renderer *renderer, nnefc_value first, nnefc_value second);
/* By an opcode from NNEFC_OP_EQUAL on. */
bool nnefc_chat_relation(nnefc_renderer *renderer, nnefc_opcode relation, nnefc_value first, nnefc_value second);
bool nnefc_chat_contains(nnefc_renderer *renderer, nnefc_value value, nnefc_value element);
/* Where bytes occur in others, not before `begin`; SIZE_MAX for nowhere. */
size_t nnefc_chat_find_bytes(nnefc_renderer *renderer, nnefc_value text, nnefc_value part, size_t begin);
void nnefc_chat_sort(nnefc_renderer *renderer, nnefc_value *elements, const nnefc_value *keys, uint32_t count, bool reverse);

/* arithmetic.c */
nnefc_value nnefc_chat_arithmetic(nnefc_renderer *renderer, nnefc_opcode operation, nnefc_value first, nnefc_value second);
nnefc_value nnefc_chat_negated(nnefc_renderer *renderer, nnefc_value value);
/* Writes a number as Python does. */
void nnefc_chat_write_integer(nnefc_renderer *renderer, int64_t number);
void nnefc_chat_write_float(nnefc_renderer *renderer, double number);
/* The number that a text of digits, a point and an exponent is. */
double nnefc_chat_parse_float(const char *text, size_t size);
nnefc_value nnefc_chat_to_integer(nnefc_renderer *renderer, nnefc_value value, nnefc_value otherwise);
nnefc_value nnefc_chat_to_float(nnefc_renderer *renderer, nnefc_value value, nnefc_value otherwise);

/* writing.c: a value as text, as a literal of Python, and as JSON. */
void nnefc_chat_write_text(nnefc_renderer *renderer, nnefc_value value);
nnefc_value nnefc_chat_text(nnefc_renderer *renderer, nnefc_value value);
/* `options`: whether all characters are ASCII, the indentation, the separators, whether keys are sorted. */
nnefc_value nnefc_chat_to_json(nnefc_renderer *renderer, nnefc_value value, const nnefc_value *options);

/* json.c */
nnefc_value nnefc_chat_parse_json(nnefc_renderer *renderer, nnefc_string text, const char *what);
/* A string of the caller's; a failure if it is not UTF-8. */
nnefc_value nnefc_chat_checked_text(nnefc_renderer *renderer, nnefc_string text, const char *what);

/* text_operations.c */
typedef enum nnefc_case { NNEFC_LOWER_CASE, NNEFC_UPPER_CASE } nnefc_case;
nnefc_value nnefc_chat_change_case(nnefc_renderer *renderer, nnefc_value text, nnefc_case which);
nnefc_value nnefc_chat_capitalized(nnefc_renderer *renderer, nnefc_value text);
nnefc_value nnefc_chat_titled(nnefc_renderer *renderer, nnefc_value text);
/* Without characters at its ends: white space, if they are NONE. `ends`: 1 the left, 2 the right, 3 both. */
nnefc_value nnefc_chat_stripped(nnefc_renderer *renderer, nnefc_value text, nnefc_value characters, int ends);
nnefc_value nnefc_chat_replaced(nnefc_renderer *renderer, nnefc_value text, nnefc_value old, nnefc_value other, int64_t limit);
nnefc_value nnefc_chat_split(nnefc_renderer *renderer, nnefc_value text, nnefc_value separator, int64_t limit, bool from_right);
nnefc_value nnefc_chat_split_lines(nnefc_renderer *renderer, nnefc_value text, bool keep_ends);
nnefc_value nnefc_chat_indented(nnefc_renderer *renderer, nnefc_value text, nnefc_value width, bool first, bool blank);
nnefc_value nnefc_chat_join(nnefc_renderer *renderer, const nnefc_list *list, nnefc_value separator, bool strings_only);
/* The characters of a string: how many, and where one begins. */
int64_t nnefc_chat_characters(nnefc_renderer *renderer, nnefc_value text);
size_t nnefc_chat_offset(nnefc_value text, int64_t characters);

/* methods.c */
bool nnefc_chat_has_method(nnefc_value object, nnefc_value name, bool *is_unsafe);
nnefc_value nnefc_chat_call_method(nnefc_renderer *renderer, const nnefc_method *method, const nnefc_value *arguments, uint32_t count,
                                   const nnefc_dict *keywords);

/* builtins.c */
nnefc_value nnefc_chat_call_builtin(nnefc_renderer *renderer, nnefc_builtin builtin, const nnefc_value *arguments, uint32_t count,
                                    const nnefc_dict *keywords);

/* dates.c */
nnefc_value nnefc_chat_time(nnefc_renderer *renderer, nnefc_value format);

/* filters.c, tests.c: `values` is the value, then the arguments. */
nnefc_value nnefc_chat_filter(nnefc_renderer *renderer, nnefc_filter filter, const nnefc_value *values, uint32_t count);
bool nnefc_chat_test(nnefc_renderer *renderer, nnefc_test test, const nnefc_value *values, uint32_t count);
/* Takes the next element of an iterator; false at its end. */
bool nnefc_chat_next(nnefc_renderer *renderer, nnefc_iterator *iterator, nnefc_value *element);

/* machine.c: runs the program. */
void nnefc_chat_run(nnefc_renderer *renderer);

static inline nnefc_value nnefc_none(void) { return (nnefc_value){.kind = NNEFC_KIND_NONE}; }
static inline nnefc_value nnefc_undefined(void) { return (nnefc_value){.kind = NNEFC_KIND_UNDEFINED}; }
static inline nnefc_value nnefc_missing(void) { return (nnefc_value){.kind = NNEFC_KIND_MISSING}; }
static inline nnefc_value nnefc_boolean(bool truth) { return (nnefc_value){.kind = NNEFC_KIND_BOOLEAN, .integer = truth}; }
static inline nnefc_value nnefc_integer(int64_t number) { return (nnefc_value){.kind = NNEFC_KIND_INTEGER, .integer = number}; }
static inline nnefc_value nnefc_float(double number) { return (nnefc_value){.kind = NNEFC_KIND_FLOAT, .number = number}; }
static inline nnefc_value nnefc_text_at(const char *bytes, size_t size) {
    return (nnefc_value){.kind = NNEFC_KIND_STRING, .size = (uint32_t)size, .bytes = bytes};
}
/* A constant of the program. */
static inline nnefc_value nnefc_constant_at(const nnefc_program *program, uint32_t number) {
    const nnefc_constant *found = (const nnefc_constant *)((const char *)program + program->constants.offset) + number;
    uint64_t bits = (uint64_t)found->high << 32 | found->low;
    nnefc_value made = {.kind = found->kind, .integer = (int64_t)bits};
    if (found->kind == NNEFC_KIND_STRING) made = nnefc_text_at((const char *)program + found->low, found->size);
    if (found->kind == NNEFC_KIND_FLOAT) memcpy(&made.number, &bits, sizeof bits);
    if (found->kind == NNEFC_KIND_UNDEFINED) made = nnefc_undefined();
    return made;
}
static inline nnefc_value nnefc_list_of(uint32_t kind, nnefc_list *list) {
    return list == NULL ? nnefc_undefined() : (nnefc_value){.kind = kind, .list = list};
}
static inline nnefc_value nnefc_dict_of(uint32_t kind, nnefc_dict *dict) {
    return dict == NULL ? nnefc_undefined() : (nnefc_value){.kind = kind, .dict = dict};
}
/* An undefined value with a name. */
static inline nnefc_value nnefc_undefined_name(nnefc_value name) {
    return (nnefc_value){.kind = NNEFC_KIND_UNDEFINED, .size = name.size, .bytes = name.kind == NNEFC_KIND_STRING ? name.bytes : NULL};
}
/* An integer or a boolean, which is one. */
static inline bool nnefc_is_integer(nnefc_value value) {
    return value.kind == NNEFC_KIND_INTEGER || value.kind == NNEFC_KIND_BOOLEAN;
}
static inline bool nnefc_is_number(nnefc_value value) { return nnefc_is_integer(value) || value.kind == NNEFC_KIND_FLOAT; }
static inline double nnefc_number(nnefc_value value) {
    return value.kind == NNEFC_KIND_FLOAT ? value.number : (double)value.integer;
}
static inline bool nnefc_is(nnefc_value value, nnefc_value_kind kind) { return value.kind == (uint32_t)kind; }
static inline bool nnefc_failed(const nnefc_renderer *renderer) { return renderer->status != NNEFC_OK; }

#endif
