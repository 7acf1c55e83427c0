#include "open/outputs.h"

#include "checks.h"
#include "model.h"

/* Allocates a list of so many elements, of so many bytes each. */
static void *take_list(const nnefc_memory *memory, uint32_t count, uint64_t each) {
    return nnefc_memory_take_zeros(memory, count * each);
}

bool nnefc_outputs_init(nnefc_outputs *outputs, const nnefc_memory *memory) {
    uint32_t inputs = description->input_count, count = description->output_count;
    outputs->memory = memory;
    outputs->own = take_list(memory, count, sizeof *outputs->own);
    outputs->reserved = take_list(memory, count, sizeof *outputs->reserved);
    outputs->wanted = take_list(memory, count, sizeof *outputs->wanted);
    outputs->pointers = take_list(memory, count, sizeof *outputs->pointers);
    outputs->inputs = take_list(memory, inputs, sizeof *outputs->inputs);
    outputs->input_shapes = take_list(memory, inputs, sizeof *outputs->input_shapes);
    return outputs->own != NULL && outputs->reserved != NULL && outputs->wanted != NULL && outputs->pointers != NULL &&
           outputs->inputs != NULL && outputs->input_shapes != NULL;
}

void nnefc_outputs_free(nnefc_outputs *outputs) {
    const nnefc_memory *memory = outputs->memory;
    uint64_t inputs = description->input_count, count = description->output_count;
    for (uint32_t i = 0; i < count; i++) {
        if (outputs->own != NULL) nnefc_memory_give_back(memory, outputs->own[i].memory, outputs->own[i].bytes);
        if (outputs->reserved != NULL) nnefc_memory_give_back(memory, outputs->reserved[i].memory, outputs->reserved[i].bytes);
    }
    nnefc_memory_give_back(memory, outputs->own, count * sizeof *outputs->own);
    nnefc_memory_give_back(memory, outputs->reserved, count * sizeof *outputs->reserved);
    nnefc_memory_give_back(memory, outputs->wanted, count * sizeof *outputs->wanted);
    nnefc_memory_give_back(memory, outputs->pointers, count * sizeof *outputs->pointers);
    nnefc_memory_give_back(memory, outputs->inputs, inputs * sizeof *outputs->inputs);
    nnefc_memory_give_back(memory, outputs->input_shapes, inputs * sizeof *outputs->input_shapes);
}

/* Makes memory at least so large; its elements are gone if it has to grow. False if there is none. */
static bool grow_output(const nnefc_memory *memory, nnefc_own_output *own, uint64_t bytes) {
    if (bytes <= own->bytes) return true;
    nnefc_memory_give_back(memory, own->memory, own->bytes);
    own->bytes = 0;
    own->memory = nnefc_memory_take_zeros(memory, bytes);
    if (own->memory == NULL) return false;
    own->bytes = bytes;
    return true;
}

bool nnefc_outputs_reserve(nnefc_outputs *outputs, uint32_t output, uint64_t bytes) {
    return bytes <= outputs->own[output].bytes || grow_output(outputs->memory, &outputs->reserved[output], bytes);
}

/* Makes the memory of an output for a run at least so large; it is what was reserved, if that is larger. */
static bool fit(nnefc_outputs *outputs, uint32_t output, uint64_t bytes) {
    nnefc_own_output *own = &outputs->own[output], *reserved = &outputs->reserved[output], before = *own;
    if (reserved->bytes > before.bytes) *own = *reserved, *reserved = before;
    return grow_output(outputs->memory, own, bytes);
}

void *nnefc_outputs_own(nnefc_outputs *outputs, uint32_t output, uint64_t bytes) {
    return fit(outputs, output, bytes) ? outputs->own[output].memory : NULL;
}

/* Says how large an output is; the caller's memory for it, if it is to be there, must be fit for that. */
static nnefc_status measure_output(nnefc_output *given, void *memory, const nnefc_tensor *tensor, uint64_t bytes, const int64_t *shape,
                            char *error) {
    uint64_t alignment = nnefc_element_alignment(tensor->type);
    given->data = memory;
    given->bytes = bytes;
    given->shape = shape;
    if (memory != NULL && given->capacity < bytes)
        return nnefc_fail(NNEFC_TOO_SMALL, error, "output \"%.200s\" has %llu bytes, but memory for %llu", tensor->name,
                          (unsigned long long)bytes, (unsigned long long)given->capacity);
    if (bytes > 0 && (uintptr_t)memory % alignment != 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "output \"%.200s\" is not aligned to its elements of %u bytes", tensor->name,
                          (unsigned)alignment);
    return NNEFC_OK;
}

/* Where the caller wants an output; null for memory of the session's. */
static void *wanted_memory(const nnefc_outputs *outputs, uint32_t output) {
    return nnefc_outputs_has(outputs, output) ? outputs->given[output].memory : NULL;
}

nnefc_status nnefc_outputs_assign(nnefc_outputs *outputs, uint32_t part, const uint64_t *bytes, const int64_t *shapes, char *error) {
    const uint32_t *parts = nnefc_this_model.open.output_parts;
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->output_count; i++) {
        char other[NNEFC_ERROR_BYTES];
        nnefc_status found = NNEFC_OK;
        if (parts[i] == part)
            found = measure_output(&outputs->given[i], wanted_memory(outputs, i), &description->outputs[i], bytes[i], shapes,
                            status == NNEFC_OK ? error : other);
        if (status == NNEFC_OK) status = found;
        shapes += description->outputs[i].rank;
    }
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++) {
        if (parts[i] != part) continue;
        nnefc_output *given = &outputs->given[i];
        bool is_own = wanted_memory(outputs, i) == NULL;
        if (is_own && !fit(outputs, i, bytes[i]))
            return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for the %llu bytes of output \"%.200s\"",
                              (unsigned long long)bytes[i], description->outputs[i].name);
        if (is_own) given->data = outputs->own[i].memory;
        outputs->pointers[i] = given->data;
    }
    return status;
}
