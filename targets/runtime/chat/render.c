/* Renders a conversation by a compiled chat template: its variables, limits and results. */
#include "chat/render.h"

#include <stdlib.h>
#include <string.h>

#include "chat/values.h"

#ifndef NNEFC_CHAT_STEPS /* which tests make smaller */
#define NNEFC_CHAT_STEPS (50 * 1000 * 1000)
#endif

enum { MAX_BYTES = 256 << 20 };

static nnefc_value name(const char *text) { return nnefc_text_at(text, strlen(text)); }

static const uint32_t *words(const nnefc_program *program, nnefc_program_array array) {
    return (const uint32_t *)((const char *)program + array.offset);
}

/* Adds the pairs of an object; those without a value only if they are asked for. */
static void add_all(nnefc_renderer *renderer, nnefc_dict *into, nnefc_string json, const char *what, bool with_none) {
    if (json.size == 0) return;
    nnefc_value given = nnefc_chat_parse_json(renderer, json, what);
    if (!nnefc_failed(renderer) && given.kind != NNEFC_KIND_DICT) nnefc_chat_fail(renderer, "%s: not a JSON object", what);
    for (uint32_t i = 0; !nnefc_failed(renderer) && i < given.dict->count; i++)
        if (with_none || given.dict->pairs[i].value.kind != NNEFC_KIND_NONE)
            nnefc_chat_set(renderer, into, given.dict->pairs[i].key, given.dict->pairs[i].value);
}

/* What a message thought before its content goes by all the names that templates have for it. */
static void name_reasoning(nnefc_renderer *renderer, nnefc_dict *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const nnefc_value *found = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && found == NULL; i++) found = nnefc_chat_find(renderer, message, name(names[i]));
    if (found == NULL) return;
    nnefc_value reasoning = *found; /* setting a key may move the others */
    if (nnefc_chat_find(renderer, message, name("thinking")) == NULL) nnefc_chat_set(renderer, message, name("thinking"), reasoning);
    nnefc_chat_set(renderer, message, name("reasoning_content"), reasoning);
}

static nnefc_value message_of(nnefc_renderer *renderer, const nnefc_message *message) {
    nnefc_dict *made = nnefc_chat_dict(renderer);
    if (message->role.data != NULL)
        nnefc_chat_set(renderer, made, name("role"), nnefc_chat_checked_text(renderer, message->role, "a role"));
    if (message->content.data != NULL)
        nnefc_chat_set(renderer, made, name("content"), nnefc_chat_checked_text(renderer, message->content, "a message"));
    if (made != NULL) add_all(renderer, made, message->more, "a message", false);
    if (made != NULL && !nnefc_failed(renderer)) name_reasoning(renderer, made);
    return nnefc_dict_of(NNEFC_KIND_DICT, made);
}

static nnefc_value conversation(nnefc_renderer *renderer, const nnefc_message *messages, size_t count) {
    if (count > UINT32_MAX / 2) return nnefc_chat_fail(renderer, "there are too many messages");
    nnefc_list *made = nnefc_chat_list(renderer, (uint32_t)count);
    for (size_t i = 0; i < count && !nnefc_failed(renderer); i++) nnefc_chat_append(renderer, made, message_of(renderer, &messages[i]));
    return nnefc_list_of(NNEFC_KIND_LIST, made);
}

/* All variables by their names: those of the model, of the call, and of the caller, who has the last word. */
static nnefc_dict *variables_of(nnefc_renderer *renderer, const nnefc_message *messages, size_t count, const nnefc_chat_options *options) {
    const nnefc_program *program = renderer->program;
    nnefc_dict *made = nnefc_chat_dict(renderer);
    const uint32_t *given = words(program, program->given);
    for (uint32_t i = 0; i < program->given.count; i++)
        nnefc_chat_set(renderer, made, nnefc_constant_at(program, given[2 * i]), nnefc_constant_at(program, given[2 * i + 1]));
    bool has_tools = options->tools.size > 0;
    nnefc_chat_set(renderer, made, name("messages"), conversation(renderer, messages, count));
    nnefc_chat_set(renderer, made, name("tools"), has_tools ? nnefc_chat_parse_json(renderer, options->tools, "the tools") : nnefc_none());
    nnefc_chat_set(renderer, made, name("documents"), nnefc_none());
    nnefc_chat_set(renderer, made, name("add_generation_prompt"), nnefc_boolean((options->flags & NNEFC_ADD_GENERATION_PROMPT) != 0));
    if (made != NULL) add_all(renderer, made, options->variables, "the variables", true);
    return made;
}

static void find_context(nnefc_renderer *renderer, const nnefc_dict *variables) {
    const nnefc_program *program = renderer->program;
    const uint32_t *names = words(program, program->context);
    renderer->context = nnefc_chat_allocate(renderer, program->context.count + 1, sizeof *renderer->context);
    for (uint32_t i = 0; i < program->context.count && !nnefc_failed(renderer); i++) {
        const nnefc_value *found = nnefc_chat_find(renderer, variables, nnefc_constant_at(program, names[i]));
        if (found != NULL) renderer->context[i] = *found;
    }
}

static void report(const nnefc_chat_options *options, const char *message) {
    if (options->error == NULL || options->error_room == 0) return;
    size_t size = strlen(message);
    if (size >= options->error_room) size = options->error_room - 1;
    memcpy(options->error, message, size);
    options->error[size] = '\0';
}

nnefc_status nnefc_chat_render(const nnefc_program *program, const nnefc_message *messages, size_t count,
                               const nnefc_chat_options *options, char *text, size_t room, size_t *size) {
    static const nnefc_chat_options none = {.struct_size = sizeof none};
    if (size != NULL) *size = 0;
    if (options == NULL) options = &none;
    if (options->struct_size != sizeof *options) return NNEFC_WRONG_ABI;
    bool is_wrong = (messages == NULL && count > 0) || (text == NULL && room > 0) || size == NULL;
    if (is_wrong || (options->flags & ~NNEFC_ADD_GENERATION_PROMPT) != 0) return NNEFC_BAD_ARGUMENT;
    report(options, "");
    nnefc_renderer *renderer = calloc(1, sizeof *renderer);
    if (renderer == NULL) return NNEFC_OUT_OF_MEMORY;
    renderer->program = program, renderer->bytes_left = MAX_BYTES, renderer->steps_left = NNEFC_CHAT_STEPS;
    renderer->local_time = options->local_time;
    const nnefc_dict *variables = variables_of(renderer, messages, count, options);
    if (!nnefc_failed(renderer)) find_context(renderer, variables);
    if (!nnefc_failed(renderer)) nnefc_chat_run(renderer);
    nnefc_status status = renderer->status;
    if (status == NNEFC_OK) {
        *size = renderer->size;
        if (renderer->size > room) status = NNEFC_TOO_SMALL;
    } else {
        report(options, renderer->message);
    }
    if (status == NNEFC_OK && renderer->size > 0) memcpy(text, renderer->output, renderer->size);
    nnefc_chat_free(renderer);
    free(renderer);
    return status;
}
