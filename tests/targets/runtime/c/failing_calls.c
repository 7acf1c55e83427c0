/* Loads the library argv[1] and lets the n-th call of the C library fail that may, for n = 1, 2, … until a session is made, run
 * and destroyed without a failure. In nnefc_create every failure must be a status, leave nothing behind, and not spoil the next
 * try; runs ask for nothing that they could not do without. argv[2] is the number of threads. Prints how many failures there
 * were. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

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

/* A function of the C library that may fail: what it returns then, and what is called else. */
#define MAY_FAIL(result, name, failure, parameters, arguments)  \
    result name parameters {                                    \
        static result(*real) parameters;                        \
        if (fails()) return failure;                            \
        if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name); \
        return real arguments;                                  \
    }

MAY_FAIL(int, madvise, -1, (void *start, size_t bytes, int advice), (start, bytes, advice))
MAY_FAIL(FILE *, fopen, NULL, (const char *path, const char *mode), (path, mode))
MAY_FAIL(int, fstat, -1, (int file, struct stat *status), (file, status))
MAY_FAIL(int, pthread_attr_init, ENOMEM, (pthread_attr_t *attributes), (attributes))
MAY_FAIL(int, pthread_attr_setstacksize, EINVAL, (pthread_attr_t *attributes, size_t bytes), (attributes, bytes))
MAY_FAIL(int, pthread_mutex_init, ENOMEM, (pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes), (mutex, attributes))
MAY_FAIL(int, pthread_cond_init, ENOMEM, (pthread_cond_t *condition, const pthread_condattr_t *attributes),
         (condition, attributes))
MAY_FAIL(int, pthread_getcpuclockid, ENOENT, (pthread_t thread, clockid_t *clock), (thread, clock))
MAY_FAIL(int, sched_getaffinity, -1, (pid_t thread, size_t bytes, cpu_set_t *set), (thread, bytes, set))
MAY_FAIL(int, sched_setaffinity, -1, (pid_t thread, size_t bytes, const cpu_set_t *set), (thread, bytes, set))
MAY_FAIL(int, sched_getcpu, -1, (void), ())

int open(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    if (fails()) return -1;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "open");
    return real(path, flags);
}

/* The clock that all have does not fail; those of threads may. */
int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (clock != CLOCK_MONOTONIC && fails()) return -1;
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    return real(clock, time);
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

/* A run in which workers sleep within their pieces, so that the launching thread looks what keeps them; and a usual one. */
static bool runs(nnefc_session *session) {
    static float x[1024], y[1024];
    int64_t number;
    const void *inputs[] = {x};
    void *outputs[] = {y, &number};
    bool right = true;
    for (int i = 0; i < 2; i++) {
        x[0] = i == 0 ? -11 : 1;
        right &= network.run(session, inputs, outputs) == NNEFC_OK && (i == 0 || number == 7);
    }
    return right;
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
    for (int n = 1, passed = 0; passed < 3; n++) { /* not every time as many calls are made */
        int before = atomic_load(&held);
        library = open_library(argv[1]); /* again, for a library has memory of its own besides its sessions' */
        CHECK(library != NULL);
        session = (nnefc_session *)argv;
        atomic_store(&countdown, n);
        nnefc_status status = network.create(&options, &session);
        if (status == NNEFC_OK) { /* what failed, if anything, could be done without */
            CHECK(runs(session));
            CHECK(network.destroy(session) == NNEFC_OK);
        }
        bool injected = atomic_exchange(&countdown, 0) == 0;
        if (injected) failures++;
        else passed++;
        if (status != NNEFC_OK) {
            CHECK(injected);
            CHECK(status == NNEFC_OUT_OF_MEMORY || status == NNEFC_BAD_WEIGHTS);
            CHECK(session == NULL && strlen(network.last_error(NULL)) > 0);
        }
        CHECK(dlclose(library) == 0);
        CHECK(atomic_load(&held) == before);
    }
    printf("%d\n", failures);
    return 0;
}
