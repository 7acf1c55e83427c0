/* The memory of a workspace whose layout depends on dynamic dimensions. */
#ifndef NNEFC_WORKSPACE_H
#define NNEFC_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "nnefc.h"
#include "open/sizes.h"
#include "session_memory.h"

typedef struct nnefc_workspace_part {
    uint8_t *memory;
    uint64_t bytes; /* that there are, of the session's own memory */
} nnefc_workspace_part;

typedef struct nnefc_workspace {
    const nnefc_memory *memory;
    uint8_t *callers; /* null if the session has its own: then each part has a block of memory, else they follow each other */
    uint64_t callers_bytes;
    nnefc_workspace_part *parts;
} nnefc_workspace;

/* Takes over the caller's memory, if any. False if there is no memory; what has been made is for nnefc_workspace_free. */
bool nnefc_workspace_init(nnefc_workspace *workspace, const nnefc_options *options, const nnefc_memory *memory);

void nnefc_workspace_free(nnefc_workspace *workspace);

/* Makes room for a part that was laid out, or lays it out as for larger sizes. The parts before it have theirs. */
nnefc_status nnefc_workspace_fit(nnefc_workspace *workspace, nnefc_sizes *sizes, uint32_t part, char *error);

/* Makes all parts so large as `sizes->wide` has them. */
nnefc_status nnefc_workspace_reserve(nnefc_workspace *workspace, const nnefc_sizes *sizes, char *error);

#endif
