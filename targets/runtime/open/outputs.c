#include "open/outputs.h"

#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "system.h"

static const nnefc_description *const description = &nnefc_this_model.description;

bool nnefc_outputs_init(nnefc_outputs *outputs) {
    size_t inputs = description->input_count, count = description->output_count; /* no rooms of 0 bytes: those may be null */
    outputs->own = calloc(count + 1, sizeof *outputs->own);
    outputs->wanted = calloc(count + 1, sizeof *outputs->wanted);
    outputs->pointers = calloc(count + 1, sizeof *outputs->pointers);
    outputs->inputs = calloc(inputs + 1, sizeof *outputs->inputs);
    outputs->input_shapes = calloc(inputs + 1, sizeof *outputs->input_shapes);
    return outputs->own != NULL && outputs->wanted != NULL && outputs->pointers != NULL && outputs->inputs != NULL &&
           outputs->input_shapes != NULL;
}

void nnefc_outputs_free(nnefc_outputs *outputs) {
    for (uint32_t i = 0; outputs->own != NULL && i < description->output_count; i++)
        nnefc_free_aligned(outputs->own[i].memory);
    free(outputs->own);
    free(outputs->wanted);
    free(outputs->pointers);
    free(outputs->inputs);
    free(outputs->input_shapes);
}

bool nnefc_outputs_grow(nnefc_outputs *outputs, uint32_t output, uint64_t bytes) {
    nnefc_own_output *own = &outputs->own[output];
    if (bytes <= own->bytes) return true;
    nnefc_free_aligned(own->memory);
    own->bytes = 0;
    own->memory = bytes <= SIZE_MAX / 2 ? nnefc_allocate_aligned((size_t)(bytes + 63) / 64 * 64) : NULL;
    if (own->memory == NULL) return false;
    memset(own->memory, 0, (size_t)bytes); /* the system finds the pages now, and not in a run */
    own->bytes = bytes;
    return true;
}
