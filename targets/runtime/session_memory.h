/* Memory of a session: from the program's allocator (nnefc_options.allocate), or from the C library. */
#ifndef NNEFC_SESSION_MEMORY_H
#define NNEFC_SESSION_MEMORY_H

#include <stdint.h>

#include "nnefc.h"

typedef struct nnefc_memory {
    nnefc_allocate *allocate; /* null: the C library's */
    nnefc_release *release;
    void *context;
} nnefc_memory;

/* Returns where options say that memory comes from: the GPU's in libraries for one, else the host's. */
static inline nnefc_memory nnefc_memory_of(const nnefc_options *options) {
    return (nnefc_memory){options->allocate, options->release, options->allocator};
}

/* Returns memory aligned to NNEFC_ALIGNMENT, whose size is rounded up to a multiple of that; null if there is none. */
void *nnefc_memory_take(const nnefc_memory *memory, uint64_t bytes);

/* The same, zeroed, so that the system finds the pages now and not during the first run. */
void *nnefc_memory_take_zeros(const nnefc_memory *memory, uint64_t bytes);

/* Gives memory back, of which so many bytes were asked for; null does nothing. */
void nnefc_memory_give_back(const nnefc_memory *memory, void *block, uint64_t bytes);

#endif
