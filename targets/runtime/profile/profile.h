/* Times of kernels, in libraries that were compiled to take them. */
#ifndef NNEFC_PROFILE_H
#define NNEFC_PROFILE_H

#include <stdatomic.h>

#include "nnefc.h"

/* What all calls of a kernel at one position of the network took. */
typedef struct nnefc_profile_sums {
    _Atomic uint64_t calls, nanoseconds, last_begin, last_nanoseconds;
} nnefc_profile_sums;

/* What a network times: one element for each position, whose times are 0, and room for the times. */
typedef struct nnefc_profile_table {
    uint32_t slots;
    const nnefc_kernel_times *kernels;
    nnefc_profile_sums *sums;
} nnefc_profile_table;

/* Called by the entry before and after each kernel. */
int64_t nnefc_profile_begin(int32_t slot);
int32_t nnefc_profile_end(int32_t slot, int64_t begin);

/* Called by a worker before and after a piece of a launch, in the kernel that the launching worker is in. */
int64_t nnefc_profile_piece_begin(void);
void nnefc_profile_piece_end(int32_t slot, uint32_t thread, int64_t begin);

#endif
