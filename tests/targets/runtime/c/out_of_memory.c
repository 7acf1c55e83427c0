/* Loads the library argv[1] and lets the n-th request for memory, threads or a mapping fail, for n = 1, 2, … until all that
 * nnefc_create asks for is granted: every failure must be a status, leave nothing behind, and not spoil the next try.
 * argv[2] is the number of threads. Prints how many failures there were. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nnefc.h"

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static atomic_int countdown; /* requests until one fails; none fails at zero */
static atomic_int held;      /* blocks and mappings that are not given back */

static bool fails(void) {
    if (atomic_load(&countdown) == 0) return false;
    if (atomic_fetch_sub(&countdown, 1) != 1) return false;
    errno = ENOMEM;
    return true;
}

static void *count(void *memory) {
    if (memory != NULL) atomic_fetch_add(&held, 1);
    return memory;
}

void *malloc(size_t bytes) { return fails() ? NULL : count(__libc_malloc(bytes)); }
void *calloc(size_t number, size_t bytes) { return fails() ? NULL : count(__libc_calloc(number, bytes)); }
void *aligned_alloc(size_t alignment, size_t bytes) { return fails() ? NULL : count(__libc_memalign(alignment, bytes)); }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    *memory = fails() ? NULL : count(__libc_memalign(alignment, bytes));
    return *memory != NULL ? 0 : ENOMEM;
}
void free(void *memory) {
    if (memory != NULL) atomic_fetch_sub(&held, 1);
    __libc_free(memory);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (fails()) return MAP_FAILED;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    void *start = real(address, bytes, protection, flags, file, offset);
    if (start != MAP_FAILED) atomic_fetch_add(&held, 1);
    return start;
}

int munmap(void *address, size_t bytes) {
    static int (*real)(void *, size_t);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "munmap");
    atomic_fetch_sub(&held, 1);
    return real(address, bytes);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (fails()) return EAGAIN;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, body, argument);
}

#define CHECK(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: %s\n", __LINE__, #condition), 1

static nnefc_interface network;

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return NULL;
    *(void **)&network.create = dlsym(library, "nnefc_create");
    *(void **)&network.run = dlsym(library, "nnefc_run");
    *(void **)&network.destroy = dlsym(library, "nnefc_destroy");
    *(void **)&network.last_error = dlsym(library, "nnefc_last_error");
    return library;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    nnefc_options options = {0};
    options.struct_size = sizeof options;
    options.threads = atoi(argv[2]);
    nnefc_session *session = NULL;
    void *library = NULL;
    for (int i = 0; i < 2; i++) { /* once all through, and again: the C library sets up what it keeps */
        library = open_library(argv[1]);
        CHECK(library != NULL);
        CHECK(network.create(&options, &session) == NNEFC_OK && network.destroy(session) == NNEFC_OK);
        CHECK(network.create(NULL, NULL) == NNEFC_BAD_ARGUMENT);
        CHECK(dlclose(library) == 0);
    }

    int failures = 0;
    for (int n = 1;; n++) {
        int before = atomic_load(&held);
        library = open_library(argv[1]); /* anew, for a library has memory of its own besides its sessions' */
        CHECK(library != NULL);
        session = (nnefc_session *)argv;
        atomic_store(&countdown, n);
        nnefc_status status = network.create(&options, &session);
        bool injected = atomic_exchange(&countdown, 0) == 0;
        if (!injected) {
            CHECK(status == NNEFC_OK);
            break;
        }
        failures++;
        if (status == NNEFC_OK) { /* what failed could be done without */
            CHECK(network.destroy(session) == NNEFC_OK);
        } else {
            CHECK(status == NNEFC_OUT_OF_MEMORY || status == NNEFC_BAD_WEIGHTS);
            CHECK(session == NULL && strlen(network.last_error(NULL)) > 0);
        }
        CHECK(dlclose(library) == 0);
        CHECK(atomic_load(&held) == before);
    }
    static float x[1024], y[1024];
    int64_t number;
    const void *inputs[] = {x};
    void *outputs[] = {y, &number};
    CHECK(network.run(session, inputs, outputs) == NNEFC_OK && number == 6);
    CHECK(network.destroy(session) == NNEFC_OK);
    printf("%d\n", failures);
    return 0;
}
