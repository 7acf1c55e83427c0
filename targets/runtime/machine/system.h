/* The interface to the operating system: processors, memory, time and threads. */
#ifndef NNEFC_SYSTEM_H
#define NNEFC_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the memory of a module of WebAssembly is shared with workers: see workers.c. */
#if defined(__wasi__) && defined(__wasm_atomics__)
#define NNEFC_WORKERS
#endif

#if defined(_WIN32) || defined(__wasi__)
#include "threads/posix_threads.h"
#else
#include <pthread.h>
#endif

/* Whether there is more than the calling thread. */
#if defined(NNEFC_SMALL) || (defined(__wasi__) && !defined(NNEFC_WORKERS))
enum { nnefc_has_threads = false };
#else
enum { nnefc_has_threads = true };
#endif

/* Whether environment variables are read. */
#if defined(NNEFC_SMALL) || defined(__wasi__)
enum { nnefc_has_environment = false };
#else
enum { nnefc_has_environment = true };
#endif

/* Number of processors' worth of time that the calling thread may use, 1 at least: those that it may run on, but no more
 * than the quota of its container allows, rounded up. */
uint32_t nnefc_processor_count(void);

/* Whether a new thread of the process may run on a processor, by its number, 0 or more; false where a system binds no threads. */
bool nnefc_may_run_on(int32_t processor);

/* Whether so many threads, the calling one among them, have a processor each: by `processors` all but the calling one are bound
 * to one, unless it is null. */
bool nnefc_has_processors(const int32_t *processors, uint32_t threads);

/* Lets the calling thread run on that one alone; false if it may not. */
bool nnefc_run_only_on(int32_t processor);

enum {
    NNEFC_ALIGNMENT = 64,        /* of tensors, in bytes */
    NNEFC_STACK_BYTES = 1 << 20, /* of a thread, the same on every C library; some give new threads only 128 KB */
};

/* Memory that is aligned so, for nnefc_free_aligned; null if there is none to be had. */
void *nnefc_allocate_aligned(size_t bytes);

void nnefc_free_aligned(void *memory);

/* Whether the system finds pages of memory when they are first written. */
#if defined(_WIN32) || defined(__linux__) || defined(__APPLE__) || defined(__FreeBSD__)
enum { nnefc_has_pages = true };
#else
enum { nnefc_has_pages = false };
#endif

/* Zeros, whose pages take memory when they are first written; for nnefc_free_pages. Null if there are none to be had. */
void *nnefc_allocate_pages(size_t bytes);

void nnefc_free_pages(void *memory, size_t bytes);

/* A number of the calling thread, not 0, that no other thread has at the same time. */
#if defined(_WIN32) || defined(NNEFC_WORKERS)
uintptr_t nnefc_this_thread(void);
#elif defined(__wasi__)
static inline uintptr_t nnefc_this_thread(void) { return 1; }
#else
static inline uintptr_t nnefc_this_thread(void) { return (uintptr_t)pthread_self(); }
#endif

/* Time since some moment in the past. Where there is no clock it stands still, or, with threads, tells how often it was asked. */
int64_t nnefc_nanoseconds(void);

/* A mark of the process that makes it; forked children inherit the pointer, but are distinguished from it. Null if there is no
 * memory to be had. */
typedef struct nnefc_process nnefc_process;

nnefc_process *nnefc_process_create(void);

/* Whether the calling process made the mark. */
bool nnefc_process_is_own(const nnefc_process *process);

void nnefc_process_free(nnefc_process *process);

/* Starts a thread to which no signal is delivered, so that the program's handlers run on the program's threads; false if
 * there is none to be had. pthread_join ends it. */
bool nnefc_start_thread(pthread_t *thread, void *(*body)(void *), void *argument);

#endif
