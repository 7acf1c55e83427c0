#include "open/outputs.h"

#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "model.h"
#include "machine/system.h"

bool nnefc_outputs_init(nnefc_outputs *outputs) {
    size_t inputs = description->input_count, count = description->output_count; /* no rooms of 0 bytes: those may be null */
    outputs->own = calloc(count + 1, sizeof *outputs->own);
    outputs->reserved = calloc(count + 1, sizeof *outputs->reserved);
    outputs->wanted = calloc(count + 1, sizeof *outputs->wanted);
    outputs->pointers = calloc(count + 1, sizeof *outputs->pointers);
    outputs->inputs = calloc(inputs + 1, sizeof *outputs->inputs);
    outputs->input_shapes = calloc(inputs + 1, sizeof *outputs->input_shapes);
    return outputs->own != NULL && outputs->reserved != NULL && outputs->wanted != NULL && outputs->pointers != NULL &&
           outputs->inputs != NULL && outputs->input_shapes != NULL;
}

void nnefc_outputs_free(nnefc_outputs *outputs) {
    for (uint32_t i = 0; i < description->output_count; i++) {
        if (outputs->own != NULL) nnefc_free_aligned(outputs->own[i].memory);
        if (outputs->reserved != NULL) nnefc_free_aligned(outputs->reserved[i].memory);
    }
    free(outputs->own);
    free(outputs->reserved);
    free(outputs->wanted);
    free(outputs->pointers);
    free(outputs->inputs);
    free(outputs->input_shapes);
}

/* Makes memory at least so large; its elements are gone if it has to grow. False if there is none. */
static bool grow(nnefc_own_output *own, uint64_t bytes) {
    if (bytes <= own->bytes) return true;
    nnefc_free_aligned(own->memory);
    own->bytes = 0;
    own->memory = bytes <= SIZE_MAX / 2 ? nnefc_allocate_aligned((size_t)(bytes + 63) / 64 * 64) : NULL;
    if (own->memory == NULL) return false;
    memset(own->memory, 0, (size_t)bytes); /* the system finds the pages now, and not in a run */
    own->bytes = bytes;
    return true;
}

bool nnefc_outputs_reserve(nnefc_outputs *outputs, uint32_t output, uint64_t bytes) {
    return bytes <= outputs->own[output].bytes || grow(&outputs->reserved[output], bytes);
}

/* Makes the memory of an output for a run at least so large; it is what was reserved, if that is larger. */
static bool fit(nnefc_outputs *outputs, uint32_t output, uint64_t bytes) {
    nnefc_own_output *own = &outputs->own[output], *reserved = &outputs->reserved[output], before = *own;
    if (reserved->bytes > before.bytes) *own = *reserved, *reserved = before;
    return grow(own, bytes);
}

void *nnefc_outputs_own(nnefc_outputs *outputs, uint32_t output, uint64_t bytes) {
    return fit(outputs, output, bytes) ? outputs->own[output].memory : NULL;
}

/* Says how large an output is; the caller's memory for it, if it is to be there, must be fit for that. */
static nnefc_status measure(nnefc_output *given, void *memory, const nnefc_tensor *tensor, uint64_t bytes, const int64_t *shape,
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
            found = measure(&outputs->given[i], wanted_memory(outputs, i), &description->outputs[i], bytes[i], shapes,
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
