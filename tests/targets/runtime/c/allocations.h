/* For programs that test the runtime: a check that ends the program, and, built with COUNT_ALLOCATIONS, which calls allocate. */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int calls;     /* of functions that allocate or free */
static int countdown; /* requests until one fails; none fails at zero */
static int held;      /* blocks that are not given back */

#ifdef COUNT_ALLOCATIONS
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static int fails(void) { return calls++, countdown > 0 && --countdown == 0; }

static void *data_dependent(void *memory) { return held += memory != NULL, memory; }

void *malloc(size_t bytes) { return fails() ? NULL : data_dependent(__libc_malloc(bytes)); }
void *calloc(size_t number, size_t bytes) { return fails() ? NULL : data_dependent(__libc_calloc(number, bytes)); }
void *aligned_alloc(size_t alignment, size_t bytes) { return fails() ? NULL : data_dependent(__libc_memalign(alignment, bytes)); }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    *memory = aligned_alloc(alignment, bytes);
    return *memory != NULL ? 0 : 12; /* ENOMEM */
}
void free(void *memory) { calls++, held -= memory != NULL, __libc_free(memory); }
enum { COUNTS = 1 };
#else
enum { COUNTS = 0 };
#endif

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

#endif
