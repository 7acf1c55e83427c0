/* Runs the program of a chat template: a machine with a stack of values. */
#include <stdlib.h>
#include <string.h>

#include "chat/values.h"

enum { MAX_STACK = 1 << 16, FIRST_STACK = 256, MAX_CALLS = 200 };

/* A call of a function. */
typedef struct call {
    struct call *before;
    nnefc_scope *scope;
    uint32_t next;  /* the instruction with which the caller goes on */
    uint32_t depth;
    size_t written; /* the size of the output before it */
} call;

typedef struct machine {
    nnefc_renderer *renderer;
    const uint32_t *code;
    uint32_t next; /* the next word of the code */
    call *now;
} machine;

static const void *part(const nnefc_renderer *renderer, nnefc_program_array array) {
    return (const char *)renderer->program + array.offset;
}

static nnefc_value constant(const nnefc_renderer *renderer, uint32_t number) { return nnefc_constant_at(renderer->program, number); }

static void push(nnefc_renderer *renderer, nnefc_value value) {
    if (nnefc_failed(renderer)) return;
    if (renderer->stack_count == renderer->stack_room) {
        uint32_t room = renderer->stack_room == 0 ? FIRST_STACK : 2 * renderer->stack_room;
        nnefc_value *moved = room > MAX_STACK ? NULL : realloc(renderer->stack, room * sizeof *moved);
        if (moved == NULL) {
            nnefc_chat_fail(renderer, "the chat template takes too much memory");
            return;
        }
        renderer->stack = moved, renderer->stack_room = room;
    }
    renderer->stack[renderer->stack_count++] = value;
}

/* After a failure there may be nothing on the stack. */
static nnefc_value pop(nnefc_renderer *renderer) {
    return renderer->stack_count > 0 && !nnefc_failed(renderer) ? renderer->stack[--renderer->stack_count] : nnefc_undefined();
}

/* The last `count` values of the stack, which are taken from it but stay in memory until the next push. */
static const nnefc_value *take(nnefc_renderer *renderer, uint32_t count) {
    if (count > renderer->stack_count) {
        nnefc_chat_fail(renderer, "the program of the chat template is damaged");
        return NULL;
    }
    renderer->stack_count -= count;
    return renderer->stack + renderer->stack_count;
}

static nnefc_scope *scope_at(const machine *m, uint32_t level) {
    nnefc_scope *scope = m->now->scope;
    for (; level > 0; level--) scope = scope->outer;
    return scope;
}

static void enter(machine *m, const nnefc_function *function, nnefc_scope *outer) {
    nnefc_renderer *renderer = m->renderer;
    uint32_t depth = m->now == NULL ? 0 : m->now->depth + 1;
    if (depth > MAX_CALLS) {
        nnefc_chat_fail(renderer, "calls of macros are nested more than %d deep", (int)MAX_CALLS);
        return;
    }
    call *made = nnefc_chat_allocate(renderer, 1, sizeof *made);
    size_t bytes = sizeof(nnefc_scope) + function->slots * sizeof(nnefc_value);
    nnefc_scope *scope = made == NULL ? NULL : nnefc_chat_allocate(renderer, bytes, 1); /* of MISSING, which is 0 */
    if (scope == NULL) return;
    scope->outer = outer;
    *made = (call){m->now, scope, m->next, depth, renderer->size};
    m->now = made;
    m->next = function->entry;
}

/* Takes the value of a keyword; MISSING if it is not there. */
static nnefc_value take_keyword(nnefc_renderer *renderer, nnefc_dict *keywords, nnefc_value name) {
    for (uint32_t i = 0; i < keywords->count; i++) {
        if (!nnefc_chat_equal(renderer, keywords->pairs[i].key, name)) continue;
        nnefc_value found = keywords->pairs[i].value;
        memmove(keywords->pairs + i, keywords->pairs + i + 1, (keywords->count - i - 1) * sizeof *keywords->pairs);
        keywords->count--, keywords->slots = NULL;
        return found;
    }
    return nnefc_missing();
}

static void call_macro(machine *m, const nnefc_macro *macro, const nnefc_value *arguments, uint32_t count, nnefc_dict *keywords) {
    nnefc_renderer *renderer = m->renderer;
    const nnefc_function *function = macro->function;
    const uint32_t *names = (const uint32_t *)part(renderer, renderer->program->names) + function->first_name;
    enter(m, function, macro->outer);
    if (nnefc_failed(renderer)) return;
    nnefc_value *variables = m->now->scope->variables;
    uint32_t parameters = function->parameters, next = parameters;
    for (uint32_t i = 0; i < parameters; i++)
        variables[i] = i < count ? arguments[i] : take_keyword(renderer, keywords, constant(renderer, names[i]));
    if ((function->flags & NNEFC_TAKES_CALLER) != 0) variables[next++] = take_keyword(renderer, keywords, nnefc_text_at("caller", 6));
    if ((function->flags & NNEFC_TAKES_KEYWORDS) != 0) {
        variables[next++] = nnefc_dict_of(NNEFC_KIND_DICT, keywords);
    } else if (keywords->count > 0) {
        nnefc_chat_fail(renderer, "a macro is called with an argument that it does not take");
    }
    if ((function->flags & NNEFC_TAKES_VARIABLE) != 0) {
        nnefc_list *further = nnefc_chat_list(renderer, 1);
        for (uint32_t i = parameters; i < count; i++) nnefc_chat_append(renderer, further, arguments[i]);
        variables[next] = nnefc_list_of(NNEFC_KIND_TUPLE, further);
    } else if (count > parameters) {
        nnefc_chat_fail(renderer, "a macro takes %u arguments, but is called with %u", (unsigned)parameters, (unsigned)count);
    }
}

static void call_value(machine *m, uint32_t operand) {
    nnefc_renderer *renderer = m->renderer;
    uint32_t count = operand & 0xFF, keyword_count = operand >> 8;
    const nnefc_value *given = take(renderer, 1 + count + keyword_count);
    nnefc_dict *keywords = nnefc_chat_dict(renderer);
    if (given == NULL || keywords == NULL) return;
    for (uint32_t i = 0; i < keyword_count; i++)
        nnefc_chat_set(renderer, keywords, constant(renderer, m->code[m->next + i]), given[1 + count + i]);
    m->next += keyword_count;
    switch (given[0].kind) {
    case NNEFC_KIND_MACRO:
        call_macro(m, given[0].macro, given + 1, count, keywords);
        return;
    case NNEFC_KIND_METHOD:
        push(renderer, nnefc_chat_call_method(renderer, given[0].method, given + 1, count, keywords));
        return;
    case NNEFC_KIND_FUNCTION:
        push(renderer, nnefc_chat_call_builtin(renderer, (nnefc_builtin)given[0].integer, given + 1, count, keywords));
        return;
    case NNEFC_KIND_UNDEFINED:
        nnefc_chat_fail_undefined(renderer, given[0]);
        return;
    default:
        nnefc_chat_fail(renderer, "a value that is not a function is called");
    }
}

/* Goes on after the call that ends; false if it is that of the template. */
static bool leave(machine *m) {
    nnefc_renderer *renderer = m->renderer;
    call *ended = m->now;
    if (ended->before == NULL) return false;
    m->now = ended->before, m->next = ended->next;
    push(renderer, nnefc_chat_taken(renderer, ended->written));
    return true;
}

static void begin_loop(machine *m, uint32_t slot) {
    nnefc_renderer *renderer = m->renderer;
    nnefc_loop *loop = nnefc_chat_allocate(renderer, 1, sizeof *loop);
    nnefc_list *list = nnefc_chat_elements(renderer, pop(renderer));
    if (loop == NULL || list == NULL) return;
    loop->list = list;
    m->now->scope->variables[slot] = (nnefc_value){.kind = NNEFC_KIND_LOOP, .loop = loop};
}

static void unpack(nnefc_renderer *renderer, uint32_t count) {
    const nnefc_list *list = nnefc_chat_elements(renderer, pop(renderer));
    if (list == NULL) return;
    if (list->count != count)
        nnefc_chat_fail(renderer, "%u values are unpacked to %u variables", (unsigned)list->count, (unsigned)count);
    for (uint32_t i = count; i > 0 && !nnefc_failed(renderer); i--) push(renderer, list->elements[i - 1]);
}

static void collect(nnefc_renderer *renderer, uint32_t kind, uint32_t count) {
    nnefc_list *made = nnefc_chat_list(renderer, count);
    const nnefc_value *given = take(renderer, count);
    for (uint32_t i = 0; i < count && given != NULL; i++) nnefc_chat_append(renderer, made, given[i]);
    push(renderer, nnefc_list_of(kind, made));
}

static void collect_dict(nnefc_renderer *renderer, uint32_t count) {
    nnefc_dict *made = nnefc_chat_dict(renderer);
    const nnefc_value *given = take(renderer, 2 * count);
    for (uint32_t i = 0; i < count && given != NULL; i++) nnefc_chat_set(renderer, made, given[2 * i], given[2 * i + 1]);
    push(renderer, nnefc_dict_of(NNEFC_KIND_DICT, made));
}

static void join(nnefc_renderer *renderer, uint32_t count) {
    const nnefc_value *given = take(renderer, count);
    if (given == NULL) return;
    nnefc_value made = nnefc_chat_text(renderer, given[0]);
    for (uint32_t i = 1; i < count && !nnefc_failed(renderer); i++)
        made = nnefc_chat_joined(renderer, made, nnefc_chat_text(renderer, given[i]));
    push(renderer, made);
}

static void load(machine *m, uint32_t slot) {
    nnefc_value value = scope_at(m, m->code[m->next])->variables[slot];
    nnefc_value name = constant(m->renderer, m->code[m->next + 1]);
    m->next += 2;
    push(m->renderer, value.kind == NNEFC_KIND_MISSING ? nnefc_undefined_name(name) : value);
}

static void make_macro(machine *m, uint32_t number) {
    nnefc_renderer *renderer = m->renderer;
    nnefc_macro *made = nnefc_chat_allocate(renderer, 1, sizeof *made);
    if (made == NULL) return;
    made->function = (const nnefc_function *)part(renderer, renderer->program->functions) + number;
    made->outer = m->now->scope;
    push(renderer, (nnefc_value){.kind = NNEFC_KIND_MACRO, .macro = made});
}

static void set_attribute(nnefc_renderer *renderer, uint32_t name) {
    nnefc_value namespace = pop(renderer), value = pop(renderer);
    if (namespace.kind == NNEFC_KIND_NAMESPACE) nnefc_chat_set(renderer, namespace.dict, constant(renderer, name), value);
}

static void check_namespace(nnefc_renderer *renderer) {
    if (pop(renderer).kind != NNEFC_KIND_NAMESPACE) nnefc_chat_fail(renderer, "only attributes of a namespace are set");
}

/* Instructions that compute a value of one or two others. */
static nnefc_value operation(nnefc_renderer *renderer, nnefc_opcode opcode, uint32_t operand) {
    nnefc_value second = pop(renderer), first;
    switch (opcode) {
    case NNEFC_OP_NEGATE:
        return nnefc_chat_negated(renderer, second);
    case NNEFC_OP_PLUS:
        return nnefc_chat_arithmetic(renderer, NNEFC_OP_ADD, nnefc_integer(0), second);
    case NNEFC_OP_NOT:
        return nnefc_boolean(!nnefc_chat_truth(renderer, second));
    case NNEFC_OP_ATTRIBUTE:
        return nnefc_chat_attribute(renderer, second, constant(renderer, operand));
    default:
        break;
    }
    first = pop(renderer);
    switch (opcode) {
    case NNEFC_OP_ELEMENT:
        return nnefc_chat_element(renderer, first, second);
    case NNEFC_OP_ADD:
    case NNEFC_OP_SUBTRACT:
    case NNEFC_OP_MULTIPLY:
    case NNEFC_OP_DIVIDE:
    case NNEFC_OP_FLOOR_DIVIDE:
    case NNEFC_OP_MODULO:
    case NNEFC_OP_POWER:
        return nnefc_chat_arithmetic(renderer, opcode, first, second);
    default:
        return nnefc_boolean(nnefc_chat_relation(renderer, opcode, first, second));
    }
}

static void slice(nnefc_renderer *renderer) {
    const nnefc_value *given = take(renderer, 4);
    if (given != NULL) push(renderer, nnefc_chat_slice(renderer, given[0], given + 1));
}

static void apply(nnefc_renderer *renderer, nnefc_opcode opcode, uint32_t operand) {
    uint32_t count = operand >> 8;
    const nnefc_value *given = take(renderer, count);
    if (given == NULL) return;
    if (opcode == NNEFC_OP_FILTER)
        push(renderer, nnefc_chat_filter(renderer, (nnefc_filter)(operand & 0xFF), given, count));
    else
        push(renderer, nnefc_boolean(nnefc_chat_test(renderer, (nnefc_test)(operand & 0xFF), given, count)));
}

static void next_element(machine *m, uint32_t end) {
    nnefc_value value = m->now->scope->variables[m->code[m->next++]];
    if (value.kind == NNEFC_KIND_LOOP && value.loop->index < value.loop->list->count)
        push(m->renderer, value.loop->list->elements[value.loop->index++]);
    else
        m->next = end;
}

/* Jumps for `and` and `or`, where the value that decides is the result. */
static void jump_keeping(machine *m, bool wanted, uint32_t target) {
    nnefc_value value = pop(m->renderer);
    if (nnefc_chat_truth(m->renderer, value) != wanted) return;
    push(m->renderer, value);
    m->next = target;
}

/* Executes one instruction; false at the end of the template. */
static bool step(machine *m) {
    nnefc_renderer *renderer = m->renderer;
    uint32_t word = m->code[m->next++], operand = word >> 8;
    nnefc_opcode opcode = (nnefc_opcode)(word & 0xFF);
    nnefc_value *variables = m->now->scope->variables, value, second;
    const nnefc_value *both = NULL;
    switch (opcode) {
    case NNEFC_OP_WRITE_CONSTANT:
        nnefc_chat_write_text(renderer, constant(renderer, operand));
        break;
    case NNEFC_OP_WRITE:
        nnefc_chat_write_text(renderer, pop(renderer));
        break;
    case NNEFC_OP_CONSTANT:
        push(renderer, constant(renderer, operand));
        break;
    case NNEFC_OP_LOAD:
        load(m, operand);
        break;
    case NNEFC_OP_COPY:
        push(renderer, scope_at(m, m->code[m->next++])->variables[operand]);
        break;
    case NNEFC_OP_STORE:
        variables[operand] = pop(renderer);
        break;
    case NNEFC_OP_CLEAR:
        variables[operand] = nnefc_missing();
        break;
    case NNEFC_OP_CONTEXT:
        push(renderer, renderer->context[operand]);
        break;
    case NNEFC_OP_PROVIDED:
        if (variables[m->code[m->next++]].kind != NNEFC_KIND_MISSING) m->next = operand;
        break;
    case NNEFC_OP_JUMP:
        m->next = operand;
        break;
    case NNEFC_OP_JUMP_FALSE:
        if (!nnefc_chat_truth(renderer, pop(renderer))) m->next = operand;
        break;
    case NNEFC_OP_AND:
        jump_keeping(m, false, operand);
        break;
    case NNEFC_OP_OR:
        jump_keeping(m, true, operand);
        break;
    case NNEFC_OP_LIST_BEGIN:
        collect(renderer, NNEFC_KIND_LIST, 0);
        break;
    case NNEFC_OP_LIST_ADD:
        value = pop(renderer);
        if (!nnefc_failed(renderer)) nnefc_chat_append(renderer, renderer->stack[renderer->stack_count - 1].list, value);
        break;
    case NNEFC_OP_LOOP:
        begin_loop(m, operand);
        break;
    case NNEFC_OP_NEXT:
        next_element(m, operand);
        break;
    case NNEFC_OP_UNPACK:
        unpack(renderer, operand);
        break;
    case NNEFC_OP_POP:
        pop(renderer);
        break;
    case NNEFC_OP_SWAP_COPY:
        both = take(renderer, 2);
        if (both == NULL) break;
        value = both[0], second = both[1];
        push(renderer, second), push(renderer, value), push(renderer, second);
        break;
    case NNEFC_OP_DROP_BELOW:
        value = pop(renderer);
        pop(renderer);
        push(renderer, value);
        break;
    case NNEFC_OP_JOIN:
        join(renderer, operand);
        break;
    case NNEFC_OP_SLICE:
        slice(renderer);
        break;
    case NNEFC_OP_LIST:
        collect(renderer, NNEFC_KIND_LIST, operand);
        break;
    case NNEFC_OP_TUPLE:
        collect(renderer, NNEFC_KIND_TUPLE, operand);
        break;
    case NNEFC_OP_DICT:
        collect_dict(renderer, operand);
        break;
    case NNEFC_OP_FILTER:
    case NNEFC_OP_TEST:
        apply(renderer, opcode, operand);
        break;
    case NNEFC_OP_CALL:
        call_value(m, operand);
        break;
    case NNEFC_OP_MACRO:
        make_macro(m, operand);
        break;
    case NNEFC_OP_SET_ATTRIBUTE:
        set_attribute(renderer, operand);
        break;
    case NNEFC_OP_CHECK_NAMESPACE:
        check_namespace(renderer);
        break;
    case NNEFC_OP_CAPTURE:
        push(renderer, nnefc_integer((int64_t)renderer->size));
        break;
    case NNEFC_OP_CAPTURED:
        value = pop(renderer);
        if (!nnefc_failed(renderer)) push(renderer, nnefc_chat_taken(renderer, (size_t)value.integer));
        break;
    case NNEFC_OP_RETURN:
        return leave(m);
    default:
        push(renderer, operation(renderer, opcode, operand));
    }
    return true;
}

void nnefc_chat_run(nnefc_renderer *renderer) {
    machine m = {.renderer = renderer, .code = part(renderer, renderer->program->code)};
    enter(&m, part(renderer, renderer->program->functions), NULL);
    while (nnefc_chat_spend(renderer, 0) && step(&m)) continue;
}
