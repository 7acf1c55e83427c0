/* Sizes that are known at run time: those of the dynamic dimensions, and what follows from them. */
#ifndef NNEFC_SIZES_H
#define NNEFC_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "nnefc.h"
#include "session_memory.h"

/* Where everything in a workspace lies, and how large it may be there. */
typedef struct nnefc_layout {
    int64_t *bytes;
    int64_t *offsets;
    uint64_t *ends; /* the bytes of each part in all */
} nnefc_layout;

typedef struct nnefc_sizes {
    int64_t *values;        /* of the dynamic dimensions, the last of which the network's code writes; after them the offsets in the workspace, for the network's code; after
                               these the data-dependent sizes of outputs, which that code writes */
    int64_t *derived;       /* bytes of everything in the workspace, the shapes of all outputs; see nnefc_dynamic_sizes */
    uint64_t *tensor_bytes; /* of all inputs, then of all outputs */
    int64_t *wanted;        /* the dynamic dimensions of the call that is being looked at */
    int64_t *trial;         /* what follows from sizes that are only looked at, as `derived` */
    nnefc_layout kept;      /* for sizes so large that smaller ones can do with it */
    nnefc_layout wide;      /* what may become `kept` */
    uint32_t *order;        /* room for the layout */
    void *block;            /* of all these */
    uint64_t block_bytes;
    const nnefc_memory *memory; /* where the block is from */
    uint64_t *ends;         /* of each part of the workspace, the bytes */
    bool known; /* false while no sizes are set */
} nnefc_sizes;

/* Makes room; false if there is no memory. What has been made is for nnefc_sizes_free. */
bool nnefc_sizes_init(nnefc_sizes *sizes, const nnefc_memory *memory);

void nnefc_sizes_free(nnefc_sizes *sizes);

/* Finds out the dynamic dimensions from the inputs' shapes. `*changed` tells whether any is not as it was, or was data-dependent: then
 * what follows from them is computed, and the first part of the workspace laid out. They are not `known` until it has room. */
nnefc_status nnefc_sizes_take(nnefc_sizes *sizes, const int64_t *const *input_shapes, bool *changed, char *error);

/* Computes what follows from the size that a part waits for, which the network's code has written, and lays out the part. */
nnefc_status nnefc_sizes_find(nnefc_sizes *sizes, uint32_t part, char *error);

/* Lays out a part as for the larger sizes that it was kept for, if there were such and it has so many bytes. */
bool nnefc_sizes_lay_out_as_kept(nnefc_sizes *sizes, uint32_t part, uint64_t bytes);

/* Keeps the layout of a part for smaller sizes, if these are not smaller than those of the layout that is kept. */
void nnefc_sizes_keep(nnefc_sizes *sizes, uint32_t part);

/* Lays out a workspace in which sizes up to these have room, and those that have room now: `sizes->wide`. Null means the
 * greatest of all dimensions. `output_bytes` become those of each output; it may be null. */
nnefc_status nnefc_sizes_enlarge(nnefc_sizes *sizes, const int64_t *maximum, uint64_t *output_bytes, char *error);

/* Keeps the layout of nnefc_sizes_enlarge. */
void nnefc_sizes_keep_wide(nnefc_sizes *sizes);

/* Takes over what a run has written of the outputs' shapes. */
void nnefc_sizes_of_run(nnefc_sizes *sizes);

/* The shape of an output, for the sizes that were set last; as large as it may be where data-dependent, until a run;
 * NNEFC_COUNTED where there is no limit. */
const int64_t *nnefc_sizes_output(const nnefc_sizes *sizes, uint32_t output);

#endif
