/* What a program gives to its sessions: a limit of time, threads that they share, and an allocator; with the network of
 * controlled_network.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "controlled.h"

static void write_status(void *context, nnefc_status status, const char *error) {
    (void)error;
    atomic_store((atomic_int *)context, (int)status);
}

static void limits_time(void) {
    nnefc_session *session = create(2);
    tensors t;
    fill(&t, 1);
    CHECK(run(session, &t) == NNEFC_OK); /* has set the sizes */
    CHECK(nnefc_set_time_limit(session, 1000000) == NNEFC_OK);
    fill(&t, -1); /* until it is ended */
    CHECK(run(session, &t) == NNEFC_TIMED_OUT && strcmp(nnefc_last_error(session), "the run was not over after 1 ms") == 0);
    CHECK(strcmp(nnefc_status_name(NNEFC_TIMED_OUT), "timed out") == 0);
    atomic_int status = -1;
    CHECK(nnefc_run_async(session, t.inputs, t.outputs, write_status, &status) == NNEFC_OK);
    while (atomic_load(&status) < 0) usleep(100);
    CHECK(atomic_load(&status) == NNEFC_TIMED_OUT);
    CHECK(nnefc_set_time_limit(session, INT64_MAX) == NNEFC_OK); /* beyond all time */
    fill(&t, 2);
    CHECK(run(session, &t) == NNEFC_OK && has(&t, "abc"));
    CHECK(nnefc_set_time_limit(session, 1) == NNEFC_OK && run(session, &t) == NNEFC_TIMED_OUT);
    CHECK(nnefc_set_time_limit(session, -1) == NNEFC_BAD_ARGUMENT && strcmp(nnefc_last_error(session), "a limit of time is -1 ns, less than 0") == 0);
    CHECK(run(session, &t) == NNEFC_TIMED_OUT && nnefc_set_time_limit(session, 0) == NNEFC_OK && run(session, &t) == NNEFC_OK);
    CHECK(nnefc_set_time_limit(NULL, 0) == NNEFC_BAD_ARGUMENT);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
    nnefc_options options = {.struct_size = sizeof options, .threads = 1, .time_limit = 1000};
    CHECK(nnefc_create(&options, &session) == NNEFC_OK);
    fill(&t, -1);
    CHECK(run(session, &t) == NNEFC_TIMED_OUT && nnefc_destroy(session) == NNEFC_OK);
    options.time_limit = -1;
    CHECK(nnefc_create(&options, &session) == NNEFC_BAD_ARGUMENT && session == NULL);
}

static nnefc_threads *start(int32_t count) {
    nnefc_options options = {.struct_size = sizeof options, .threads = count};
    nnefc_threads *threads;
    CHECK(nnefc_threads_create(&options, &threads) == NNEFC_OK && nnefc_threads_count(threads) == (uint32_t)count);
    return threads;
}

typedef struct summed {
    nnefc_threads *threads;
    atomic_llong sum, calls;
} summed;

static void add(void *context, uint32_t i) {
    summed *own = context;
    atomic_fetch_add(&own->sum, (long long)i);
    atomic_fetch_add(&own->calls, 1);
}

static void add_inside(void *context, uint32_t i) { /* a call in a task of another one */
    nnefc_threads_run(((summed *)context)->threads, i, add, context);
}

static void *calls_often(void *threads) {
    for (uint32_t n = 0; n < 300; n++) {
        summed own = {.threads = threads};
        uint32_t count = n % 41;
        nnefc_threads_run(threads, count, add, &own);
        CHECK(own.calls == count && own.sum == (long long)count * (count - 1LL) / 2);
    }
    return NULL;
}

static void destroys(void *threads, uint32_t i) {
    (void)i;
    CHECK(nnefc_threads_destroy(threads) == NNEFC_BUSY);
}

static void runs_tasks(int32_t count) {
    nnefc_threads *threads = start(count);
    pthread_t callers[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&callers[i], NULL, calls_often, threads) == 0);
    for (int i = 0; i < 3; i++) pthread_join(callers[i], NULL);
    summed many = {.threads = threads}, nested = {.threads = threads};
    nnefc_threads_run(threads, 70000, add, &many); /* more than go into one launch */
    CHECK(many.calls == 70000 && many.sum == 70000LL * 69999 / 2);
    nnefc_threads_run(threads, 30, add_inside, &nested);
    CHECK(nested.calls == 30 * 29 / 2);
    if (count > 1) nnefc_threads_run(threads, 2, destroys, threads);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { /* without the threads */
        calls_often(threads);
        _exit(nnefc_threads_destroy(threads) == NNEFC_OK ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(nnefc_threads_destroy(threads) == NNEFC_OK);
}

typedef struct launcher {
    nnefc_threads *threads;
    atomic_int launches;
} launcher;

static void count_and_run(void *pool, uint32_t count, void (*task)(void *context, uint32_t i), void *context) {
    launcher *own = pool;
    atomic_fetch_add(&own->launches, 1);
    nnefc_threads_run(own->threads, count, task, context);
}

static void *runs_often(void *session) {
    for (int i = 0; i < 200; i++) {
        tensors t;
        fill(&t, (float)i);
        CHECK(run(session, &t) == NNEFC_OK && has(&t, "abc"));
    }
    return NULL;
}

static void shares_threads(void) {
    launcher own = {.threads = start(3)};
    nnefc_options options = {.struct_size = sizeof options, .threads = 3, .parallel_for = count_and_run, .parallel_for_pool = &own};
    nnefc_session *sessions[3];
    pthread_t callers[3];
    for (int i = 0; i < 3; i++) CHECK(nnefc_create(&options, &sessions[i]) == NNEFC_OK);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&callers[i], NULL, runs_often, sessions[i]) == 0);
    for (int i = 0; i < 3; i++) pthread_join(callers[i], NULL);
    CHECK(own.launches == 600);
    for (int i = 0; i < 3; i++) CHECK(nnefc_destroy(sessions[i]) == NNEFC_OK);
    CHECK(nnefc_threads_destroy(own.threads) == NNEFC_OK && nnefc_threads_destroy(NULL) == NNEFC_OK && nnefc_threads_count(NULL) == 0);
    nnefc_threads *none = own.threads;
    options.threads = -1;
    CHECK(nnefc_threads_create(&options, &none) == NNEFC_BAD_ARGUMENT && none == NULL);
    CHECK(strcmp(nnefc_last_error(NULL), "threads is -1, not a number from 0 to 1024") == 0);
    CHECK(nnefc_threads_create(&options, NULL) == NNEFC_BAD_ARGUMENT);
}

/* An allocator that notes the size of each block in front of it. */
typedef struct blocks {
    atomic_int held, asked;
    int countdown;  /* requests until one fails; none fails at zero */
    size_t shifted; /* how far blocks are from where they ought to begin */
} blocks;

static void *allocate(void *allocator, size_t bytes, size_t alignment) {
    blocks *own = allocator;
    CHECK(alignment == 64 && bytes > 0 && bytes % 64 == 0);
    int asked = atomic_fetch_add(&own->asked, 1) + 1;
    if (asked == own->countdown) return NULL;
    char *memory = aligned_alloc(64, bytes + 128);
    CHECK(memory != NULL);
    memset(memory, 0xA5, bytes + 128);
    memory += 64 + own->shifted;
    memcpy(memory - 8, &bytes, sizeof bytes);
    atomic_fetch_add(&own->held, 1);
    return memory;
}

static void release(void *allocator, void *memory, size_t bytes, size_t alignment) {
    blocks *own = allocator;
    size_t noted;
    memcpy(&noted, (char *)memory - 8, sizeof noted);
    CHECK(noted == bytes && alignment == 64);
    atomic_fetch_sub(&own->held, 1);
    free((char *)memory - 64 - own->shifted);
}

/* Does all that asks for memory, as far as there is some. */
static nnefc_status use(const nnefc_options *options) {
    const uint8_t some[] = {0, 1, 0};
    nnefc_session *session;
    nnefc_status status = nnefc_create(options, &session);
    if (status != NNEFC_OK) return status;
    tensors t;
    fill(&t, 1);
    atomic_int done = -1;
    status = run(session, &t);
    if (status == NNEFC_OK) status = nnefc_time_kernels(session, 1);
    if (status == NNEFC_OK) status = nnefc_run_async(session, t.inputs, t.outputs, write_status, &done);
    if (status == NNEFC_OK) {
        while (atomic_load(&done) < 0) usleep(100);
        status = nnefc_select_outputs(session, some);
    }
    if (status == NNEFC_OK) status = run(session, &t);
#ifdef NNEFC_OPEN
    const int64_t three[] = {3}, eight[] = {8};
    float x[8] = {1};
    nnefc_input input = {x, 3 * sizeof *x, three};
    nnefc_output outputs[3] = {{0}};
    if (status == NNEFC_OK) status = nnefc_run_sized(session, &input, outputs);
    if (status == NNEFC_OK) status = nnefc_reserve(session, eight, 1);
#endif
    CHECK(nnefc_destroy(session) == NNEFC_OK);
    return status;
}

static void allocates_by_the_program(void) {
    blocks own = {0};
    nnefc_options options = {.struct_size = sizeof options, .threads = 2, .allocate = allocate, .release = release, .allocator = &own};
    CHECK(use(&options) == NNEFC_OK && own.held == 0 && own.asked > 10);
    int all = own.asked;
    for (int n = 1; n <= all; n++) {
        own = (blocks){.countdown = n};
        nnefc_status status = use(&options);
        CHECK(status == NNEFC_OUT_OF_MEMORY && own.held == 0);
    }
    own = (blocks){.shifted = 16};
    CHECK(use(&options) == NNEFC_OUT_OF_MEMORY && own.held == 0);
    options.release = NULL;
    CHECK(use(&options) == NNEFC_BAD_ARGUMENT && strcmp(nnefc_last_error(NULL), "release is null, but allocate is not") == 0);
    options.struct_size = offsetof(nnefc_options, time_limit); /* of an earlier version */
    CHECK(use(&options) == NNEFC_OK);
    own = (blocks){0};
    nnefc_threads *threads;
    options.struct_size = sizeof options, options.release = release;
    CHECK(nnefc_threads_create(&options, &threads) == NNEFC_OK && own.held == 1);
    CHECK(nnefc_threads_destroy(threads) == NNEFC_OK && own.held == 0);
}

void uses_resources(void) {
    limits_time();
    runs_tasks(1);
    runs_tasks(4);
    shares_threads();
    allocates_by_the_program();
}
