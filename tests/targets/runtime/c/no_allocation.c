/* Loads the library argv[1] and counts what its runs allocate and free, in all threads: prints that number. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "nnefc.h"

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static atomic_bool counting;
static atomic_int calls, calls_before;

static void count(void) { atomic_fetch_add(atomic_load(&counting) ? &calls : &calls_before, 1); }

void *malloc(size_t bytes) { return count(), __libc_malloc(bytes); }
void *calloc(size_t number, size_t bytes) { return count(), __libc_calloc(number, bytes); }
void *realloc(void *memory, size_t bytes) { return count(), __libc_realloc(memory, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return count(), __libc_memalign(alignment, bytes); }
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    *memory = aligned_alloc(alignment, bytes);
    return *memory != NULL ? 0 : 12; /* ENOMEM */
}
void free(void *memory) { count(), __libc_free(memory); }

#define CHECK(condition) \
    if (!(condition)) return fprintf(stderr, "line %d: %s\n", __LINE__, #condition), 1

int main(int argc, char **argv) {
    CHECK(argc == 2);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    nnefc_status (*create)(const nnefc_options *, nnefc_session **) = dlsym(library, "nnefc_create");
    nnefc_status (*run)(nnefc_session *, const void *const *, void *const *) = dlsym(library, "nnefc_run");
    nnefc_status (*reset)(nnefc_session *) = dlsym(library, "nnefc_reset");
    nnefc_status (*destroy)(nnefc_session *) = dlsym(library, "nnefc_destroy");
    CHECK(create != NULL && run != NULL && reset != NULL && destroy != NULL);

    nnefc_options options = {0};
    nnefc_session *session = NULL;
    options.struct_size = sizeof options;
    options.threads = 3;
    CHECK(create(&options, &session) == NNEFC_OK);
    CHECK(calls_before > 0); /* what create() allocates is seen here, so what run() allocates would be as well */
    static float x[1024], y[1024];
    int64_t number;
    const void *inputs[] = {x};
    void *outputs[] = {y, &number};
    static const float ways[] = {1, -3, -4, -6, -8};
    atomic_store(&counting, true);
    for (int i = 0; i < 100; i++) {
        x[0] = ways[i % 5];
        nnefc_status status = run(session, inputs, outputs);
        CHECK(status == (x[0] == -4 ? NNEFC_KERNEL_ERROR : NNEFC_OK));
        CHECK(reset(session) == NNEFC_OK);
    }
    atomic_store(&counting, false);
    CHECK(destroy(session) == NNEFC_OK);
    printf("%d\n", calls);
    return 0;
}
