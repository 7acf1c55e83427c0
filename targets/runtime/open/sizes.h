/* Sizes that are known at run time: those of the open dimensions, and what follows from them. */
#ifndef NNEFC_SIZES_H
#define NNEFC_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "nnefc.h"

typedef struct nnefc_sizes {
    int64_t *values;  /* of the open dimensions; after them the offsets in the workspace, for the network's code */
    int64_t *derived; /* bytes of everything in the workspace; after them the shapes of all outputs */
    int64_t *wanted;  /* the open dimensions of the call that is being looked at */
    uint32_t *order;  /* room for the layout */
    uint64_t workspace_bytes;
    bool known; /* false until sizes were set */
} nnefc_sizes;

/* Makes room; false if there is no memory. What has been made is for nnefc_sizes_free. */
bool nnefc_sizes_init(nnefc_sizes *sizes);

void nnefc_sizes_free(nnefc_sizes *sizes);

/* Finds out the open dimensions from the inputs' shapes. `*changed` tells whether any is not as it was. */
nnefc_status nnefc_sizes_read(nnefc_sizes *sizes, const int64_t *const *input_shapes, bool *changed, char *error);

/* Computes what follows from the sizes that were read last, and lays out the workspace. */
nnefc_status nnefc_sizes_set(nnefc_sizes *sizes, char *error);

/* The shape of an output, for the sizes that were set last. */
const int64_t *nnefc_sizes_output(const nnefc_sizes *sizes, uint32_t output);

#endif
