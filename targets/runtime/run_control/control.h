/* What a run asks between two kernels: whether another thread ends it, whether it needs the next kernel, and what time it is. While
 * none of these is wanted, that is a load and a branch of the entry for each kernel. */
#ifndef NNEFC_CONTROL_H
#define NNEFC_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "profile/profile.h"
#include "session_memory.h"

/* Reasons to ask. */
enum { NNEFC_CANCEL = 1, NNEFC_TAKE_TIMES = 2, NNEFC_SKIP = 4, NNEFC_LIMIT = 8 };

/* The calls of a network, by their numbers. */
typedef struct nnefc_calls {
    uint32_t count;
    const char *texts;       /* of each call the kernel, its tensors and its rule, each with a null byte behind it; "" for the kernel
                                of branches and loops, which may be skipped as a whole */
    const uint64_t *amounts; /* of each call the operations, then the bytes */
    const uint32_t *sets;    /* of each call the number of the set of outputs that need it; null if all need all calls */
    const uint64_t *outputs; /* the sets: a bit for each output, then one for every run, in words of 64 bits */
    const uint64_t *memory_users; /* of each output the set of those for which a run uses its memory; null if all do */
} nnefc_calls;

typedef struct nnefc_control {
    atomic_int reasons;    /* of the run that is under way; the entry reads it before each kernel */
    int32_t usual;         /* reasons of each run that begins */
    nnefc_status ended;    /* why the entry has returned before its last kernel; known to the launching thread alone */
    int32_t call;          /* whose time is being taken, -1 for none; likewise */
    int64_t limit;         /* nanoseconds that a run may take; 0 for any number */
    int64_t deadline;      /* when the run that is under way has taken so many */
    int64_t begin;         /* when it began */
    uint8_t *skipped;      /* of each call whether runs skip it; null before outputs are selected */
    nnefc_profile_sums *_Atomic times; /* of each call; null before times are taken */
} nnefc_control;

/* Begins a run, which no request before it ends, and returns what the entry reads. */
int32_t *nnefc_control_begin(nnefc_control *control);

/* Ends it. */
void nnefc_control_end(nnefc_control *control);

/* Limits the time of the runs that begin from now on; 0: no limit. */
nnefc_status nnefc_control_limit(nnefc_control *control, int64_t nanoseconds, char *error);

/* Frees what came from the session's memory. */
void nnefc_control_free(nnefc_control *control, const nnefc_memory *memory);

#endif
