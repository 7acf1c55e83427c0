/* What nnefc_run_sized needs besides an engine: memory for outputs that the caller brings none for, and lists of pointers. */
#ifndef NNEFC_OUTPUTS_H
#define NNEFC_OUTPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "nnefc.h"
#include "session_memory.h"

typedef struct nnefc_own_output {
    void *memory;
    uint64_t bytes;
} nnefc_own_output;

typedef struct nnefc_outputs {
    const nnefc_memory *memory;
    nnefc_own_output *own;       /* one for each output; never smaller than before */
    nnefc_own_output *reserved;  /* swapped with it when the next run begins: the last results stay until then */
    uint64_t *wanted;            /* bytes of each output */
    void **pointers;             /* room for one to each output */
    const void **inputs;         /* room for one to each input */
    const int64_t **input_shapes;
    nnefc_output *given;         /* the caller's, while nnefc_run_sized runs */
    const uint8_t *selected;     /* of each output whether the run computes it; null if it does all */
} nnefc_outputs;

/* Makes room for the lists; false if there is no memory. What has been made is for nnefc_outputs_free. */
bool nnefc_outputs_init(nnefc_outputs *outputs, const nnefc_memory *memory);

void nnefc_outputs_free(nnefc_outputs *outputs);

/* Of the outputs whose shapes are known with this part of the workspace: says how large they are, and finds the memory of each, the
 * caller's or the session's; `pointers` has it then. `bytes` and `shapes` are those of all outputs, one after the other. */
nnefc_status nnefc_outputs_assign(nnefc_outputs *outputs, uint32_t part, const uint64_t *bytes, const int64_t *shapes, char *error);

/* Whether a run computes an output. */
static inline bool nnefc_outputs_has(const nnefc_outputs *outputs, uint32_t output) {
    return outputs->selected == NULL || outputs->selected[output];
}

/* Memory of the session's for an output of so many bytes in the run that begins; null if there is none, or for no bytes. */
void *nnefc_outputs_own(nnefc_outputs *outputs, uint32_t output, uint64_t bytes);

/* Makes memory for an output of so many bytes, which runs find. False if there is none. */
bool nnefc_outputs_reserve(nnefc_outputs *outputs, uint32_t output, uint64_t bytes);

#endif
