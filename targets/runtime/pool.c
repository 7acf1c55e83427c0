/* How a launch works: worker 0 writes the job and raises `epoch`; the others, who watch it, claim their share, do it and
 * write the epoch into the share's `done`. Worker 0 does its share, then the shares that nobody has claimed yet, for
 * their workers are asleep or have lost their processor; then it waits for those that others claimed. So at the end of
 * launch n every share's `claimed` and `done` are n, and who claims n has n's job before its eyes until it is done.
 *
 * Both sides watch for a short while, then sleep on a condition variable: who is about to sleep says so first and looks
 * once more, who raises looks for sleepers after, so that one of the two always sees the other (all four accesses are
 * sequentially consistent). */
#include "pool.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "float_mode.h"
#include "per_thread.h"
#include "system.h"

enum {
    LINE = 64,               /* bytes that caches move as one */
    WATCH_NANOSECONDS = 50000, /* longer than most gaps between kernels, shorter than anybody would notice as load */
    WATCH_ROUND = 64         /* looks between two readings of the clock */
};

typedef struct launch {
    nnefc_parallel_body body;
    void *data;
    int32_t tasks;
    bool stop;
} launch;

typedef struct thread_slot {
    _Alignas(LINE) atomic_uint claimed; /* the last epoch whose share has found somebody to do it */
    atomic_uint done;                   /* the last epoch whose share is finished */
    int status;                         /* the failure of that share, 0 if none */
    pthread_t thread;
    _Alignas(LINE) nnefc_worker worker;
} thread_slot;

struct nnefc_pool {
    _Alignas(LINE) atomic_uint epoch; /* of the last launch; with the job, so that one cache line tells it all */
    launch job;
    _Alignas(LINE) atomic_uint sleepers; /* workers asleep, or about to be */
    atomic_bool launcher_sleeps;
    atomic_bool refused; /* a worker has found no memory at its start */
    atomic_bool failed; /* a worker has noted a failure; so that a run need not look at all of them */
    pthread_mutex_t mutex;
    pthread_cond_t work, finished;
    _Alignas(LINE) uint32_t threads; /* constant from here on */
    uint32_t started;                /* workers with a thread of their own, worker 0 not among them */
    int64_t watch;                   /* nanoseconds; none when there are more threads than processors */
    nnefc_process *owner;
    bool keep_subnormals;
    uint8_t *scratch;
    thread_slot slots[];
};

NNEFC_PER_THREAD(current) /* the worker that a thread is */

nnefc_worker *nnefc_pool_current(void) { return nnefc_per_thread_get(&current); }

/* Watches a number until it changes, for so many nanoseconds at most; returns what it is then. */
static unsigned watch_while(const atomic_uint *number, unsigned old, int64_t patience) {
    unsigned now = atomic_load_explicit(number, memory_order_acquire);
    if (now != old || patience == 0) return now;
    int64_t start = nnefc_nanoseconds();
    do {
        for (int i = 0; i < WATCH_ROUND; i++) {
            nnefc_cpu_relax();
            now = atomic_load_explicit(number, memory_order_acquire);
            if (now != old) return now;
        }
    } while (nnefc_nanoseconds() - start < patience);
    return now;
}

/* Waits until there has been a launch since `seen`, and returns the last one's epoch. */
static unsigned wait_for_launch(nnefc_pool *pool, unsigned seen) {
    unsigned epoch = watch_while(&pool->epoch, seen, pool->watch);
    if (epoch != seen) return epoch;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while ((epoch = atomic_load(&pool->epoch)) == seen) pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
    return epoch;
}

/* Waits for a share that somebody has claimed, or whose worker is sure to. */
static void wait_for_share(nnefc_pool *pool, const thread_slot *other, unsigned epoch) {
    unsigned before = atomic_load_explicit(&other->done, memory_order_acquire);
    if (before == epoch || watch_while(&other->done, before, pool->watch) == epoch) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->launcher_sleeps, true);
    while (atomic_load(&other->done) != epoch) pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->launcher_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

/* Whether the caller is the one to do a share of the launch. */
static bool claim(thread_slot *slot, unsigned epoch) {
    unsigned before = epoch - 1;
    return atomic_compare_exchange_strong(&slot->claimed, &before, epoch);
}

static int run_share(nnefc_worker *worker, const launch *job, uint32_t first, uint32_t step) {
    nnefc_parallel_environment environment = {.sync = NULL, .num_task = job->tasks};
    int status = 0;
    worker->in_launch = true;
    for (int64_t task = first; task < job->tasks && status == 0; task += step)
        status = job->body((int)task, &environment, job->data);
    worker->in_launch = false;
    return status;
}

/* Does the share of a launch that the caller has claimed: its own, or as worker 0 another's. */
static void do_share(thread_slot *slot, nnefc_worker *worker, unsigned epoch) {
    const nnefc_pool *pool = worker->pool;
    slot->status = run_share(worker, &pool->job, slot->worker.index, pool->threads);
    atomic_store(&slot->done, epoch);
}

static void *worker_main(void *argument) {
    thread_slot *own = argument;
    nnefc_pool *pool = own->worker.pool;
    if (!nnefc_per_thread_set(&current, &own->worker)) atomic_store(&pool->refused, true);
    nnefc_keep_subnormals(pool->keep_subnormals);
    for (unsigned epoch = 0;;) {
        epoch = wait_for_launch(pool, epoch);
        if (!claim(own, epoch)) continue;
        if (pool->job.stop) break;
        do_share(own, &own->worker, epoch);
        if (atomic_load(&pool->launcher_sleeps)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->finished);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
    nnefc_per_thread_set(&current, NULL);
    return NULL;
}

static unsigned publish(nnefc_pool *pool, launch job) {
    unsigned epoch = atomic_load_explicit(&pool->epoch, memory_order_relaxed) + 1;
    pool->job = job;
    atomic_store(&pool->epoch, epoch);
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->mutex);
    }
    return epoch;
}

static bool is_forked_child(const nnefc_pool *pool) { return !nnefc_process_is_own(pool->owner); }

int nnefc_pool_launch(nnefc_worker *worker, nnefc_parallel_body body, void *data, int tasks) {
    nnefc_pool *pool = worker->pool;
    launch job = {.body = body, .data = data, .tasks = tasks > 0 ? tasks : (int32_t)pool->threads, .stop = false};
    if (worker->in_launch) {
        int status = run_share(worker, &job, 0, 1);
        worker->in_launch = true;
        return status;
    }
    if (job.tasks == 1 || pool->threads == 1 || is_forked_child(pool)) return run_share(worker, &job, 0, 1);
    unsigned epoch = publish(pool, job);
    int status = run_share(worker, &job, 0, pool->threads);
    for (uint32_t i = 1; i < pool->threads; i++)
        if (claim(&pool->slots[i], epoch)) do_share(&pool->slots[i], worker, epoch);
    for (uint32_t i = 1; i < pool->threads; i++) {
        wait_for_share(pool, &pool->slots[i], epoch);
        if (status == 0) status = pool->slots[i].status;
    }
    return status;
}

static bool start_threads(nnefc_pool *pool) {
    while (pool->started < pool->threads - 1) {
        thread_slot *slot = &pool->slots[pool->started + 1];
        if (!nnefc_start_thread(&slot->thread, worker_main, slot)) return false;
        pool->started++;
    }
    return true;
}

static int touch_scratch(int task, nnefc_parallel_environment *environment, void *data) {
    (void)environment;
    nnefc_scratch *scratch = &((nnefc_pool *)data)->slots[task].worker.scratch;
    if (scratch->bytes > 0) memset(scratch->base, 0, (size_t)scratch->bytes);
    return 0;
}

/* The first launch, in which nobody does another's share. Each worker touches its scratch, so that the memory is near it
 * and there before the first run; and each has passed its start, during which the C library allocates the thread's own
 * variables. */
static void warm_up(nnefc_pool *pool) {
    launch job = {.body = touch_scratch, .data = pool, .tasks = (int32_t)pool->threads, .stop = false};
    unsigned epoch = publish(pool, job);
    do_share(&pool->slots[0], &pool->slots[0].worker, epoch);
    for (uint32_t i = 1; i < pool->threads; i++) wait_for_share(pool, &pool->slots[i], epoch);
}

static uint64_t round_up(uint64_t number, uint64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

static void free_memory(nnefc_pool *pool) {
    nnefc_process_free(pool->owner);
    nnefc_free_aligned(pool->scratch);
    nnefc_free_aligned(pool);
}

nnefc_pool *nnefc_pool_create(uint32_t threads, uint64_t scratch_bytes, bool keep_subnormals) {
    if (scratch_bytes > SIZE_MAX / 2 / NNEFC_MAX_THREADS) return NULL;
    uint64_t stride = round_up(scratch_bytes, LINE);
    size_t bytes = (size_t)round_up(sizeof(nnefc_pool) + threads * sizeof(thread_slot), LINE);
    nnefc_pool *pool = nnefc_allocate_aligned(bytes);
    if (pool == NULL) return NULL;
    memset(pool, 0, bytes);
    pool->owner = nnefc_process_create();
    if (stride > 0) pool->scratch = nnefc_allocate_aligned((size_t)(threads * stride));
    if (pool->owner == NULL || (stride > 0 && pool->scratch == NULL)) {
        free_memory(pool);
        return NULL;
    }
    pool->threads = threads;
    pool->keep_subnormals = keep_subnormals;
    pool->watch = threads <= nnefc_processor_count() ? WATCH_NANOSECONDS : 0;
    for (uint32_t i = 0; i < threads; i++) {
        nnefc_worker *worker = &pool->slots[i].worker;
        worker->pool = pool;
        worker->index = i;
        worker->scratch.bytes = scratch_bytes;
        worker->scratch.base = stride > 0 ? pool->scratch + i * stride : NULL;
    }
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, NULL);
    bool started = start_threads(pool);
    if (started) warm_up(pool);
    if (started && !atomic_load(&pool->refused)) return pool;
    nnefc_pool_destroy(pool);
    return NULL;
}

void nnefc_pool_destroy(nnefc_pool *pool) {
    if (!is_forked_child(pool)) { /* a child has no threads to join, and its copies of the locks may be held by nobody */
        if (pool->started > 0) publish(pool, (launch){.stop = true});
        for (uint32_t i = 1; i <= pool->started; i++) pthread_join(pool->slots[i].thread, NULL);
        pthread_cond_destroy(&pool->finished);
        pthread_cond_destroy(&pool->work);
        pthread_mutex_destroy(&pool->mutex);
    }
    free_memory(pool);
}

bool nnefc_pool_enter(nnefc_pool *pool, nnefc_outside *outside) {
    nnefc_worker *worker = &pool->slots[0].worker;
    *outside = (nnefc_outside){.worker = nnefc_pool_current(), .float_mode = nnefc_float_mode()};
    if (!nnefc_per_thread_set(&current, worker)) {
        nnefc_worker_fail(worker, "no memory to tell the thread from others");
        return false;
    }
    nnefc_keep_subnormals(pool->keep_subnormals);
    return true;
}

void nnefc_pool_leave(nnefc_outside outside) {
    nnefc_set_float_mode(outside.float_mode);
    nnefc_per_thread_set(&current, outside.worker);
}

void nnefc_worker_fail(nnefc_worker *worker, const char *format, ...) {
    if (worker->error[0] != '\0') return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(worker->error, sizeof worker->error, format, arguments);
    va_end(arguments);
    atomic_store_explicit(&worker->pool->failed, true, memory_order_relaxed); /* the end of the launch orders it */
}

bool nnefc_pool_failed(const nnefc_pool *pool) { return atomic_load_explicit(&pool->failed, memory_order_relaxed); }

const char *nnefc_pool_error(const nnefc_pool *pool) {
    for (uint32_t i = 0; i < pool->threads; i++)
        if (pool->slots[i].worker.error[0] != '\0') return pool->slots[i].worker.error;
    return "";
}

void nnefc_pool_clear(nnefc_pool *pool) {
    for (uint32_t i = 0; i < pool->threads; i++) {
        nnefc_worker *worker = &pool->slots[i].worker;
        worker->scratch.used = 0;
        worker->scratch.blocks = 0;
        worker->error[0] = '\0';
    }
    atomic_store_explicit(&pool->failed, false, memory_order_relaxed);
}
