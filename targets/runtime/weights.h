/* Trained values in a file next to the library, or in the caller's memory. */
#ifndef NNEFC_WEIGHTS_H
#define NNEFC_WEIGHTS_H

#include <stddef.h>

#include "nnefc.h"

/* One session's view of them. */
typedef struct nnefc_mapping {
    void *start; /* null if no file is mapped */
    size_t bytes;
    const uint8_t *constants;
} nnefc_mapping;

/* Which file a library needs. The functions are reached through here, so that only libraries with such a file hold them. */
typedef struct nnefc_weights {
    const char *name; /* of the file, without a folder */
    uint64_t bytes;   /* of the constants */
    nnefc_status (*map)(const struct nnefc_weights *weights, const nnefc_options *options, nnefc_mapping *mapping,
                        char *error, size_t error_bytes);
    void (*unmap)(nnefc_mapping *mapping);
} nnefc_weights;

/* Takes the options' `constants`, or maps the file for reading, and compares them with what the library expects. Without a
 * path in the options' `weights` the file is in the folder of the library, or of the program that the library is a part of.
 * NNEFC_BAD_WEIGHTS with a text in `error`, or NNEFC_OK. */
nnefc_status nnefc_weights_map(const nnefc_weights *weights, const nnefc_options *options, nnefc_mapping *mapping, char *error,
                               size_t error_bytes);

void nnefc_weights_unmap(nnefc_mapping *mapping);

#endif
