/* Offsets in a workspace of buffers with dynamic dimensions. */
#ifndef NNEFC_LAYOUT_H
#define NNEFC_LAYOUT_H

#include <stdint.h>

/* Gives each storage in one part of the workspace, of so many bytes, the first position where nothing lies that is needed at the same time, the
 * largest first. The same sizes get the same positions. Returns the bytes in all.
 *
 * `order` has room for twice as many numbers as there are storages; the first half are all of them in any order. */
uint64_t nnefc_lay_out(const int64_t *bytes, int64_t *offsets, uint32_t *order, uint32_t part);

/* The bytes that a storage takes: whole lines of a cache. */
uint64_t nnefc_aligned(int64_t bytes);

#endif
