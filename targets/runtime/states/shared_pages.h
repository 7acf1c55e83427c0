/* Copies parts of states, sharing pages of memory until one side writes. With Linux of 64 bits; elsewhere everything is copied.
 *
 * A shared page is in an anonymous file that is never written again, and every sequence that has the page maps it privately: the
 * system copies it for a sequence that writes. Pages become shared when they are copied first: they move to a new file, and
 * source and destination map them. */
#ifndef NNEFC_SHARED_PAGES_H
#define NNEFC_SHARED_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "nnefc.h"

/* The files of an engine, and which of its pages map them. */
typedef struct nnefc_shared_pages nnefc_shared_pages;

/* The states of an engine, in memory of nnefc_allocate_pages. */
typedef struct nnefc_state_pages {
    uint8_t *start;
    uint64_t bytes;
    nnefc_shared_pages **shared; /* null at first */
} nnefc_state_pages;

/* Copies ranges of states, which do not overlap. Returns false if the system takes pages away and gives none in return: the states
 * of both must be freed then. */
bool nnefc_copy_pages(const nnefc_state_pages *to, const nnefc_state_pages *from, const nnefc_state_range *ranges, uint64_t count);

/* Lists the ranges of pages that are in memory and not zero; the caller frees the list by nnefc_free_aligned. Null if the system does
 * not say, or there is no memory. */
nnefc_state_range *nnefc_touched_ranges(const nnefc_state_pages *states, uint64_t *count);

/* Counts the memory of states. */
void nnefc_count_pages(const nnefc_state_pages *states, nnefc_state_bytes *found);

/* Closes the files of an engine, after its states have been freed. */
void nnefc_forget_pages(nnefc_shared_pages **shared);

#endif
