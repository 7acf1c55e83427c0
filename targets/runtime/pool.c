/* How a launch works: the work is cut into pieces, and each worker has a range of them, so that it computes about the same
 * part of all tensors. Worker 0 writes the job and announces it: a number that grows with each launch, its epoch, and how many
 * pieces there are. Everybody takes pieces from the front of its own range, then from the back of the others', which
 * are slower, asleep, or have lost their processor. A range is one word with its launch's epoch, so that whoever takes a piece
 * knows it to be of that launch, which does not end before the piece is done: only then is the job looked at. At the end each
 * writes how many pieces it did; when these are all, the launch is over.
 *
 * Taking a piece costs some accesses that are seen by other threads, and so does looking whether others have any left. Launches
 * of microseconds are therefore cut in fewer pieces, the shortest in one for each thread: only the launching thread, which
 * waits for the others anyway, does those then whose threads have not begun. What is over before another thread would know of
 * it is not shared at all.
 *
 * With threads of the caller's (nnefc_options.parallel_for) there is nobody to announce a launch to, nor to wait for: the caller's
 * function is given one task for each worker, which does pieces as above.
 *
 * A worker may lose its processor within a piece, which nobody else can do in its place: all would wait until the system lets
 * it go on. So the launching thread looks what processor time workers take that it waits for, and has one that takes none
 * run on its own processor: see stopped.h.
 *
 * Both sides watch for a short while, then sleep on a condition variable: who is about to sleep says so first and looks
 * once more, who raises looks for sleepers after, so that one of the two always sees the other (all four accesses are
 * sequentially consistent). */
#include "pool.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "float_mode.h"
#include "per_thread.h"
#include "pieces.h"
#include "stopped.h"
#include "system.h"
#ifdef NNEFC_PROFILE
#include "profile/profile.h"
#endif

enum {
    LINE = 64,               /* bytes that caches move as one */
    WATCH_NANOSECONDS = 50000, /* longer than most gaps between kernels, shorter than anybody would notice as load */
    WATCH_ROUND = 64,        /* looks between two readings of the clock */
    LOOK_NANOSECONDS = 25000, /* longer than most waits for the end of a launch */
    LOOKS = nnefc_tells_stopped ? 80 : WATCH_NANOSECONDS / LOOK_NANOSECONDS /* for longer than pieces take */
};

typedef struct launch {
    nnefc_parallel_body body;
    void *data;
    int32_t tasks;
    uint32_t pieces; /* NNEFC_MOST_PIECES for each thread at most; a piece is one task or several */
} launch;

/* The epoch of a launch is the upper half of each of these numbers, of which the pool has no other from older launches. */
enum { STOP = 1 << 17, WORKERS_OWN_ONLY = 1 << 16, PIECES = (1 << 16) - 1 }; /* the lower half of an announcement */

typedef struct thread_slot {
    _Alignas(LINE) atomic_uint_least64_t range; /* the first piece that nobody has taken, and the end: 16 bits each */
    atomic_uint_least64_t done;                 /* how many pieces this worker has done, its own or others' */
    int status;                                 /* the failure of one of these, 0 if none */
    int32_t processor;                          /* the only one that its thread may run on; -1 for no such */
    atomic_bool working;                        /* whether it has a piece: who waits for it may look what keeps it */
    pthread_t thread;
    nnefc_movable movable;
    _Alignas(LINE) nnefc_worker worker;
} thread_slot;

struct nnefc_pool {
    _Alignas(LINE) atomic_uint_least64_t announced; /* the last launch; with the job, so that one cache line tells it all */
    launch job;
    _Alignas(LINE) atomic_uint sleepers; /* workers asleep, or about to be */
    atomic_bool launcher_sleeps;
    atomic_bool refused; /* a worker has found no memory at its start */
    atomic_bool failed; /* a worker has noted a failure; so that a run need not look at all of them */
    pthread_mutex_t mutex;
    pthread_cond_t work, finished;
    _Alignas(LINE) uint32_t threads; /* constant from here on */
    uint32_t started;                /* workers with a thread of their own, worker 0 not among them */
    bool watches;                    /* before it sleeps: not when there are more threads than processors */
    nnefc_process *owner;
    bool keep_subnormals;
    nnefc_parallel_for *parallel_for; /* null if the threads are the pool's own */
    void *parallel_for_pool;
    uint8_t *scratch;
    thread_slot slots[];
};

NNEFC_PER_THREAD(current) /* the worker that a thread is */

nnefc_worker *nnefc_pool_current(void) { return nnefc_per_thread_get(&current); }

#ifdef NNEFC_CHECKED
const nnefc_worker *nnefc_pool_launcher(const nnefc_pool *pool) { return &pool->slots[0].worker; }
#endif

static uint32_t epoch_of(uint64_t number) { return (uint32_t)(number >> 32); }

/* Whether something has happened that `argument` tells of. */
typedef bool event(const nnefc_pool *pool, uint64_t argument);

/* The same, while one watches for so many nanoseconds. */
static bool watched(event *happened, const nnefc_pool *pool, uint64_t argument, int64_t nanoseconds) {
    if (happened(pool, argument)) return true;
    if (!pool->watches) return false;
    int64_t start = nnefc_nanoseconds();
    do {
        for (int i = 0; i < WATCH_ROUND; i++) {
            nnefc_cpu_relax();
            if (happened(pool, argument)) return true;
        }
    } while (nnefc_nanoseconds() - start < nanoseconds);
    return false;
}

static bool launched(const nnefc_pool *pool, uint64_t seen) { return atomic_load(&pool->announced) != seen; }

/* Whether all pieces of a launch are done. */
static bool finished(const nnefc_pool *pool, uint64_t announced) {
    uint64_t done = 0;
    for (uint32_t i = 0; i < pool->threads; i++) {
        uint64_t own = atomic_load(&pool->slots[i].done);
        if (epoch_of(own) == epoch_of(announced)) done += own & PIECES;
    }
    return done == (announced & PIECES);
}

/* Waits until there has been a launch since `seen`, and returns the last one's announcement. */
static uint64_t wait_for_launch(nnefc_pool *pool, uint64_t seen) {
    if (!watched(launched, pool, seen, WATCH_NANOSECONDS)) {
        pthread_mutex_lock(&pool->mutex);
        atomic_fetch_add(&pool->sleepers, 1);
        while (!launched(pool, seen)) pthread_cond_wait(&pool->work, &pool->mutex);
        atomic_fetch_sub(&pool->sleepers, 1);
        pthread_mutex_unlock(&pool->mutex);
    }
    return atomic_load(&pool->announced);
}

static bool is_working(const thread_slot *slot) { return atomic_load_explicit(&slot->working, memory_order_relaxed); }

static void look_at_workers(nnefc_pool *pool) {
    for (uint32_t i = 1; i <= pool->started; i++)
        if (is_working(&pool->slots[i]))
            nnefc_look_at(&pool->slots[i].movable, pool->slots[i].thread);
        else
            pool->slots[i].movable.ran = -1; /* a piece that it takes now is looked at the next time */
}

/* Whether workers that are in a piece were stopped since these looks, and have been brought here. */
static bool brings_stopped(nnefc_pool *pool, int64_t own) {
    bool brought = false;
    for (uint32_t i = 1; i <= pool->started; i++)
        if (is_working(&pool->slots[i]))
            brought |= nnefc_bring_if_stopped(&pool->slots[i].movable, pool->slots[i].thread, own);
    return brought;
}

/* Watches for the end of a launch, as long as all workers that are in a piece get on with it; whether it has come. */
static bool watched_end(nnefc_pool *pool, uint64_t announced) {
    if (watched(finished, pool, announced, LOOK_NANOSECONDS)) return true;
    for (int i = 1; pool->watches && i < LOOKS; i++) {
        int64_t own = nnefc_own_processor_time();
        look_at_workers(pool);
        if (watched(finished, pool, announced, LOOK_NANOSECONDS)) return true;
        if (brings_stopped(pool, nnefc_own_processor_time() - own)) return false;
    }
    return false;
}

static void wait_for_end(nnefc_pool *pool, uint64_t announced) {
    if (watched_end(pool, announced)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->launcher_sleeps, true);
    while (!finished(pool, announced)) pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->launcher_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

/* Takes a piece of a worker's range, its first or its last; -1 if there is none, or if the launch is over. */
static int32_t take(nnefc_pool *pool, uint32_t index, uint64_t announced, bool first) {
    atomic_uint_least64_t *range = &pool->slots[index].range;
    uint64_t known = atomic_load_explicit(range, memory_order_relaxed);
    for (;;) {
        uint64_t begin = known >> 16 & PIECES, end = known & PIECES;
        if (epoch_of(known) != epoch_of(announced)) { /* nobody has taken any; or the launch is over, and there was another */
            if (atomic_load(&pool->announced) != announced) return -1;
            begin = (announced & PIECES) * index / pool->threads;
            end = (announced & PIECES) * (index + 1) / pool->threads;
        }
        if (begin == end) return -1;
        uint64_t taken = first ? begin++ : --end;
        uint64_t left = (uint64_t)epoch_of(announced) << 32 | begin << 16 | end;
        if (atomic_compare_exchange_weak(range, &known, left)) return (int32_t)taken;
    }
}

static int run_tasks(const launch *job, int64_t first, int64_t end) {
    nnefc_parallel_environment environment = {.sync = NULL, .num_task = job->tasks};
    int status = 0;
    for (int64_t task = first; task < end && status == 0; task++) status = job->body((int)task, &environment, job->data);
    return status;
}

/* Runs tasks that a thread does at one stretch, and takes their time where somebody wants to know it. */
static int run_piece(nnefc_worker *worker, const launch *job, int64_t first, int64_t end) {
#ifdef NNEFC_PROFILE
    int64_t begin = nnefc_profile_piece_begin();
#endif
    worker->in_launch = true;
    int status = run_tasks(job, first, end);
#ifdef NNEFC_PROFILE
    nnefc_profile_piece_end(worker->pool->slots[0].worker.kernel, worker->index, begin);
#endif
    return status;
}

/* Runs all tasks on the calling thread. */
static int run_alone(nnefc_worker *worker, const launch *job) {
    if (worker->in_launch) return run_tasks(job, 0, job->tasks);
    int status = run_piece(worker, job, 0, job->tasks);
    worker->in_launch = false;
    return status;
}

/* Does pieces of a launch, as long as there are any: of so many workers, the first of them itself. After a failure they are
 * only taken. */
static void do_pieces(nnefc_pool *pool, thread_slot *own, uint64_t announced, uint32_t workers) {
    uint32_t count = 0;
    int status = 0;
    for (uint32_t i = 0; i < workers; i++) {
        uint32_t index = own->worker.index + i < pool->threads ? own->worker.index + i : own->worker.index + i - pool->threads;
        for (int64_t piece; (piece = take(pool, index, announced, i == 0)) >= 0; count++) {
            atomic_store_explicit(&own->working, true, memory_order_relaxed);
            const launch *job = &pool->job;
            int64_t first = piece * job->tasks / job->pieces, end = (piece + 1) * job->tasks / job->pieces;
            if (status == 0) status = run_piece(&own->worker, job, first, end);
        }
    }
    if (count == 0) return;
    own->worker.in_launch = false;
    own->status = status;
    atomic_store_explicit(&own->working, false, memory_order_relaxed);
    atomic_store(&own->done, (uint64_t)epoch_of(announced) << 32 | count);
}

static void *worker_main(void *argument) {
    thread_slot *own = argument;
    nnefc_pool *pool = own->worker.pool;
    if (!nnefc_per_thread_set(&current, &own->worker)) atomic_store(&pool->refused, true);
    if (own->processor >= 0 && !nnefc_run_only_on(own->processor)) atomic_store(&pool->refused, true);
    nnefc_keep_subnormals(pool->keep_subnormals);
    if (own->processor < 0) nnefc_may_be_brought(&own->movable);
    for (uint64_t announced = 0;;) {
        announced = wait_for_launch(pool, announced);
        if (announced & STOP) break;
        nnefc_go_home(&own->movable);
        do_pieces(pool, own, announced, announced & WORKERS_OWN_ONLY ? 1 : pool->threads);
        if (atomic_load(&pool->launcher_sleeps)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->finished);
            pthread_mutex_unlock(&pool->mutex);
        }
        nnefc_go_home(&own->movable);
    }
    nnefc_per_thread_set(&current, NULL);
    return NULL;
}

static uint64_t publish(nnefc_pool *pool, launch job, uint32_t flags) {
    uint32_t epoch = epoch_of(atomic_load_explicit(&pool->announced, memory_order_relaxed)) + 1;
    uint64_t announced = (uint64_t)epoch << 32 | flags | job.pieces;
    pool->job = job;
    atomic_store(&pool->announced, announced);
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->mutex);
    }
    return announced;
}

static bool enter_as(nnefc_pool *pool, uint32_t index, nnefc_outside *outside) {
    nnefc_worker *worker = &pool->slots[index].worker;
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

/* What one task of the caller's threads does: pieces of the last launch, as the worker of its number. */
static void work_as(void *argument, uint32_t index) {
    nnefc_pool *pool = argument;
    nnefc_outside outside;
    if (index >= pool->threads || !enter_as(pool, index, &outside)) return; /* others do its pieces */
    do_pieces(pool, &pool->slots[index], atomic_load(&pool->announced), pool->threads);
    nnefc_pool_leave(outside);
}

static uint64_t run_on_callers_threads(nnefc_pool *pool, launch job) {
    uint64_t announced = publish(pool, job, 0);
    pool->parallel_for(pool->parallel_for_pool, pool->threads, work_as, pool);
    if (!finished(pool, announced)) nnefc_worker_fail(&pool->slots[0].worker, "parallel_for has not called every task");
    return announced;
}

static bool is_forked_child(const nnefc_pool *pool) { return !nnefc_process_is_own(pool->owner); }

int nnefc_pool_launch(nnefc_worker *worker, nnefc_parallel_body body, void *data, int tasks) {
    nnefc_pool *pool = worker->pool;
    bool alone = worker->in_launch || pool->threads == 1 || is_forked_child(pool);
    int64_t rounds = worker->rounds, each = NNEFC_MOST_PIECES;
    worker->rounds = 0;
    launch job = {.body = body, .data = data, .tasks = tasks > 0 ? tasks : (int32_t)pool->threads};
    if (tasks <= 0 && rounds > 0) {
        each = alone ? 0 : nnefc_pieces_each(rounds, worker->cycles, pool->threads);
        job.tasks = each == 0 ? 1 : nnefc_pieces_of(rounds, pool->threads, each);
    }
    if (alone || job.tasks == 1) return run_alone(worker, &job);
    uint32_t most = pool->threads * NNEFC_MOST_PIECES;
    job.pieces = (uint32_t)job.tasks < most ? (uint32_t)job.tasks : most;
    uint64_t announced;
    if (pool->parallel_for != NULL) {
        announced = run_on_callers_threads(pool, job);
    } else {
        announced = publish(pool, job, each == 1 ? WORKERS_OWN_ONLY : 0);
        do_pieces(pool, &pool->slots[0], announced, pool->threads);
        wait_for_end(pool, announced);
    }
    int status = 0;
    for (uint32_t i = 0; i < pool->threads && status == 0; i++)
        if (epoch_of(atomic_load(&pool->slots[i].done)) == epoch_of(announced)) status = pool->slots[i].status;
    return status;
}

static bool start_threads(nnefc_pool *pool) {
    while (pool->parallel_for == NULL && pool->started < pool->threads - 1) {
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

/* The first launch, in which nobody does another's piece. Each worker touches its scratch, so that the memory is near it
 * and there before the first run; and each has passed its start, during which the C library allocates the thread's own
 * variables. */
static void warm_up(nnefc_pool *pool) {
    launch job = {.body = touch_scratch, .data = pool, .tasks = (int32_t)pool->threads, .pieces = pool->threads};
    if (pool->parallel_for != NULL) {
        run_tasks(&job, 0, job.tasks);
        return;
    }
    uint64_t announced = publish(pool, job, WORKERS_OWN_ONLY);
    do_pieces(pool, &pool->slots[0], announced, 1);
    wait_for_end(pool, announced);
}

static uint64_t round_up(uint64_t number, uint64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

static void free_memory(nnefc_pool *pool) {
    nnefc_process_free(pool->owner);
    nnefc_free_aligned(pool->scratch);
    nnefc_free_aligned(pool);
}

/* All or none. */
static bool make_locks(nnefc_pool *pool) {
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) return false;
    if (pthread_cond_init(&pool->work, NULL) == 0) {
        if (pthread_cond_init(&pool->finished, NULL) == 0) return true;
        pthread_cond_destroy(&pool->work);
    }
    pthread_mutex_destroy(&pool->mutex);
    return false;
}

nnefc_pool *nnefc_pool_create(const nnefc_options *options, uint32_t threads, uint64_t scratch_bytes) {
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
    pool->keep_subnormals = options->keep_subnormals != 0;
    pool->parallel_for = options->parallel_for;
    pool->parallel_for_pool = options->parallel_for_pool;
    pool->watches = nnefc_has_processors(options->processors, threads);
    for (uint32_t i = 0; i < threads; i++) {
        nnefc_worker *worker = &pool->slots[i].worker;
        pool->slots[i].processor = options->processors != NULL ? options->processors[i] : -1;
        worker->pool = pool;
        worker->index = i;
        pool->slots[i].movable.ran = -1;
        worker->scratch.bytes = scratch_bytes;
        worker->scratch.base = stride > 0 ? pool->scratch + i * stride : NULL;
    }
    if (!make_locks(pool)) {
        free_memory(pool);
        return NULL;
    }
    bool started = start_threads(pool);
    if (started) warm_up(pool);
    if (started && !atomic_load(&pool->refused)) return pool;
    nnefc_pool_destroy(pool);
    return NULL;
}

void nnefc_pool_destroy(nnefc_pool *pool) {
    if (!is_forked_child(pool)) { /* a child has no threads to join, and its copies of the locks may be held by nobody */
        if (pool->started > 0) publish(pool, (launch){.pieces = 0}, STOP);
        for (uint32_t i = 1; i <= pool->started; i++) pthread_join(pool->slots[i].thread, NULL);
        pthread_cond_destroy(&pool->finished);
        pthread_cond_destroy(&pool->work);
        pthread_mutex_destroy(&pool->mutex);
    }
    free_memory(pool);
}

bool nnefc_pool_enter(nnefc_pool *pool, nnefc_outside *outside) { return enter_as(pool, 0, outside); }

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
