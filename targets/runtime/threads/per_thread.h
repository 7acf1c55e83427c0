/* A variable of which each thread has its own value. The compiler's _Thread_local would do, but C libraries limit it: glibc
 * keeps some 1,600 bytes for all libraries that a process opens, or allocates at a thread's first use and ends the process if
 * it cannot. Threads' keys are no better: a process has 1,024 of them, or 128. Here threads are found by their numbers, in a
 * table of the library's own, which has no limit. */
#ifndef NNEFC_PER_THREAD_H
#define NNEFC_PER_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "machine/system.h"

typedef struct nnefc_thread_value {
    atomic_uintptr_t thread; /* the owner's number; 0 for none. Only the thread itself touches the rest, and ends it */
    void *value;
} nnefc_thread_value;

typedef struct nnefc_thread_table {
    uint32_t bits; /* of a position in it */
    nnefc_thread_value *values;
    struct nnefc_thread_table *_Atomic next; /* for those that found no position in this one */
} nnefc_thread_table;

enum { NNEFC_FIRST_THREADS_BITS = 7 };

typedef nnefc_thread_table nnefc_per_thread;

/* Modules of WebAssembly are never unloaded. */
#if defined(__wasm__)
#define NNEFC_WHEN_UNLOADED __attribute__((unused))
#else
#define NNEFC_WHEN_UNLOADED __attribute__((destructor))
#endif

/* Defines such a variable, null for every thread. It lives as long as the library. The atomic pointer has no initializer of its
 * own: clang 14 refuses one. */
#define NNEFC_PER_THREAD(name)                                                                  \
    static nnefc_thread_value name##_values[1 << NNEFC_FIRST_THREADS_BITS];                     \
    static nnefc_per_thread name = {.bits = NNEFC_FIRST_THREADS_BITS, .values = name##_values}; \
    NNEFC_WHEN_UNLOADED static void name##_end(void) { nnefc_per_thread_end(&name); }

/* A thread's number, spread over 64 bits, for it is often a multiple of a large power of two. */
static inline uint64_t nnefc_spread_thread(uintptr_t thread) { return thread * UINT64_C(0x9E3779B97F4A7C15); }

/* A thread's entry; null if it has none. */
nnefc_thread_value *nnefc_per_thread_find(const nnefc_per_thread *variable, uintptr_t thread);

/* The calling thread's value. */
static inline void *nnefc_per_thread_get(const nnefc_per_thread *variable) {
    uintptr_t thread = nnefc_this_thread();
    const nnefc_thread_value *found = &variable->values[nnefc_spread_thread(thread) >> (64 - NNEFC_FIRST_THREADS_BITS)];
    if (atomic_load_explicit(&found->thread, memory_order_relaxed) != thread) found = nnefc_per_thread_find(variable, thread);
    return found != NULL ? found->value : NULL;
}

/* Sets the calling thread's value; false if there is no memory. There always is for null, and for a thread whose value is not
 * null. A thread sets null before it ends. */
bool nnefc_per_thread_set(nnefc_per_thread *variable, void *value);

/* Frees the variable's memory when the library is unloaded. */
void nnefc_per_thread_end(nnefc_per_thread *variable);

#endif
