#include "text/boundary.h"

#include <string.h>

#include "checks.h"
#include "model.h"
#include "text/text.h"

#define MAX_BYTES (UINT64_C(1) << 32) /* that the texts of a run may take */

bool nnefc_texts_init(nnefc_texts *texts, const nnefc_memory *memory) {
    texts->arena.memory = memory;
    texts->arena.maximum = MAX_BYTES <= SIZE_MAX / 2 ? MAX_BYTES : SIZE_MAX / 2;
    texts->inputs = nnefc_memory_take_zeros(memory, description->input_count * sizeof *texts->inputs);
    texts->outputs = nnefc_memory_take_zeros(memory, description->output_count * sizeof *texts->outputs);
    return texts->inputs != NULL && texts->outputs != NULL;
}

void nnefc_texts_free(nnefc_texts *texts) {
    nnefc_text_arena_free(&texts->arena);
    nnefc_memory_give_back(texts->arena.memory, texts->inputs, description->input_count * sizeof *texts->inputs);
    nnefc_memory_give_back(texts->arena.memory, texts->outputs, description->output_count * sizeof *texts->outputs);
}

/* Whether the size of an output is known before a run. */
static bool is_placed(uint32_t output) {
#ifdef NNEFC_OPEN
    return nnefc_this_model.open.output_parts[output] == 0;
#else
    (void)output;
    return true;
#endif
}

static nnefc_status no_memory(uint64_t count, char *error) {
    return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for %llu strings", (unsigned long long)count);
}

/* Changes the strings of an input to handles. */
static nnefc_status enter(const nnefc_tensor *tensor, const nnefc_string *strings, uint64_t count, nnefc_text *texts,
                          char *error) {
    for (uint64_t i = 0; i < count; i++) {
        if (strings[i].size > PTRDIFF_MAX || (strings[i].data == NULL && strings[i].size > 0))
            return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "element %llu of input \"%.200s\" has %llu bytes at %s",
                              (unsigned long long)i, tensor->name, (unsigned long long)strings[i].size,
                              strings[i].data == NULL ? "null" : "its address");
        texts[i] = nnefc_text_of_string(&strings[i]);
    }
    return NNEFC_OK;
}

nnefc_status nnefc_texts_begin(nnefc_texts *texts, const void *const *inputs, void *const *outputs, const uint64_t *bytes,
                               char *error) {
    nnefc_status status = NNEFC_OK;
    nnefc_text_arena_reset(&texts->arena);
    if (!nnefc_text_arena_use(&texts->arena, &texts->outside))
        return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory to tell the thread from others");
    for (uint32_t i = 0; i < description->input_count && status == NNEFC_OK; i++) {
        const nnefc_tensor *tensor = &description->inputs[i];
        uint64_t count = (bytes != NULL ? *bytes++ : tensor->bytes) / sizeof(nnefc_string);
        texts->inputs[i] = inputs[i];
        if (tensor->type != NNEFC_STRING) continue;
        nnefc_text *inside = nnefc_text_allocate(count * sizeof *inside);
        texts->inputs[i] = inside;
        status = inside != NULL ? enter(tensor, inputs[i], count, inside, error) : no_memory(count, error);
    }
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++) {
        uint64_t size = bytes != NULL ? *bytes++ : description->outputs[i].bytes;
        texts->outputs[i] = is_placed(i) ? nnefc_texts_reserve(texts, i, outputs[i], size) : NULL;
        bool is_text = description->outputs[i].type == NNEFC_STRING && is_placed(i);
        if (is_text && texts->outputs[i] == NULL) status = no_memory(size / sizeof(nnefc_string), error);
    }
    if (status != NNEFC_OK) nnefc_texts_abandon(texts);
    return status;
}

void *nnefc_texts_reserve(nnefc_texts *texts, uint32_t output, void *given, uint64_t bytes) {
    bool is_text = description->outputs[output].type == NNEFC_STRING;
    if (!is_text) return texts->outputs[output] = given;
    size_t size = (size_t)(bytes / sizeof(nnefc_string) * sizeof(nnefc_text));
    void *inside = nnefc_text_allocate(size);
    if (inside != NULL) memset(inside, 0, size); /* empty strings, for a run may not compute this output */
    return texts->outputs[output] = inside;
}

void nnefc_texts_abandon(nnefc_texts *texts) { nnefc_text_arena_leave(texts->outside); }

void nnefc_texts_end(nnefc_texts *texts, void *const *outputs, const int64_t *shapes, bool failed) {
    nnefc_texts_abandon(texts);
    for (uint32_t i = 0; i < description->output_count; i++) {
        const nnefc_tensor *tensor = &description->outputs[i];
        uint64_t count = tensor->bytes / sizeof(nnefc_string);
        if (shapes != NULL) {
            count = 1;
            for (int32_t axis = 0; axis < tensor->rank; axis++) count *= (uint64_t)*shapes++;
        }
        if (tensor->type != NNEFC_STRING || texts->outputs[i] == NULL) continue;
        nnefc_string *strings = outputs[i];
        const nnefc_text *inside = texts->outputs[i];
        for (uint64_t j = 0; j < count; j++) strings[j] = nnefc_text_bytes(failed ? 0 : inside[j]);
    }
}
