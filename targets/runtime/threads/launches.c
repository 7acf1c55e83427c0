/* How a launch works: the work is cut into pieces, and each worker has a range of them, so that it computes about the same
 * part of all tensors. Worker 0 writes the job and announces it: a number that grows with each launch, its epoch, and how many
 * pieces there are. Everybody takes pieces from the front of its own range, then from the back of the others', which
 * are slower, asleep, or have lost their processor. A range is one word with its launch's epoch, so that the thread that takes a piece
 * knows it to be of that launch, which does not end before the piece is done: only then is the job looked at. At the end each
 * writes how many pieces it did; when these are all, the launch is over.
 *
 * Taking a piece costs some accesses that are seen by other threads, and so does looking whether others have any left. Launches
 * of microseconds are therefore cut in fewer pieces, the shortest in one for each thread: only the launching thread, which
 * waits for the others anyway, does those then whose threads have not begun. What is over before another thread would know of
 * it is not shared at all.
 *
 * With threads of the caller's (nnefc_options.parallel_for) there are no workers to announce a launch to, nor to wait for: the caller's
 * function is given one task for each worker, which does pieces as above. */
#include "threads/work_chunks.h"
#include "threads/pool_state.h"
#ifdef NNEFC_PROFILE
#include "profile/profile.h"
#endif

/* Pieces. */

/* Takes a piece of a worker's range, its first or its last; -1 if there is none, or if the launch is over. */
static int32_t take(nnefc_pool *pool, uint32_t index, uint64_t announced, bool first) {
    atomic_uint_least64_t *range = &pool->slots[index].range;
    uint64_t known = atomic_load_explicit(range, memory_order_relaxed);
    for (;;) {
        uint64_t begin = known >> 16 & NNEFC_PIECES, end = known & NNEFC_PIECES;
        if (nnefc_epoch_of(known) != nnefc_epoch_of(announced)) { /* no chunk is taken; or another launch began */
            if (atomic_load(&pool->announced) != announced) return -1;
            begin = (announced & NNEFC_PIECES) * index / pool->threads;
            end = (announced & NNEFC_PIECES) * (index + 1) / pool->threads;
        }
        if (begin == end) return -1;
        uint64_t taken = first ? begin++ : --end;
        uint64_t left = (uint64_t)nnefc_epoch_of(announced) << 32 | begin << 16 | end;
        if (atomic_compare_exchange_weak(range, &known, left)) return (int32_t)taken;
    }
}

static int run_tasks(const nnefc_job *job, int64_t first, int64_t end) {
    nnefc_parallel_environment environment = {.sync = NULL, .num_task = job->tasks};
    int status = 0;
    for (int64_t task = first; task < end && status == 0; task++) status = job->body((int)task, &environment, job->data);
    return status;
}

/* Runs tasks that a thread does at one stretch, and takes their time if profiling is on. */
static int run_piece(nnefc_worker *worker, const nnefc_job *job, int64_t first, int64_t end) {
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
static int run_alone(nnefc_worker *worker, const nnefc_job *job) {
    if (worker->in_launch) return run_tasks(job, 0, job->tasks);
    int64_t end = job->tasks;
#ifdef NNEFC_WARMS_UP
    if (worker->pool->warms_up) end = 1;
#endif
    int status = run_piece(worker, job, 0, end);
    worker->in_launch = false;
    return status;
}

/* Does pieces of a launch, as long as there are any: of so many workers, the first of them itself. After a failure they are
 * only taken. */
static void do_pieces(nnefc_pool *pool, nnefc_slot *own, uint64_t announced, uint32_t workers) {
    uint32_t count = 0;
    int status = 0;
    for (uint32_t i = 0; i < workers; i++) {
        uint32_t index = own->worker.index + i < pool->threads ? own->worker.index + i : own->worker.index + i - pool->threads;
        for (int64_t piece; (piece = take(pool, index, announced, i == 0)) >= 0; count++) {
            atomic_store_explicit(&own->working, true, memory_order_relaxed);
            const nnefc_job *job = &pool->job;
            int64_t first = piece * job->tasks / job->pieces, end = (piece + 1) * job->tasks / job->pieces;
            if (status == 0) status = run_piece(&own->worker, job, first, end);
        }
    }
    if (count == 0) return;
    own->worker.in_launch = false;
    own->status = status;
    atomic_store_explicit(&own->working, false, memory_order_relaxed);
    atomic_store(&own->done, (uint64_t)nnefc_epoch_of(announced) << 32 | count);
}

/* Launches. */

static uint64_t publish(nnefc_pool *pool, nnefc_job job, uint32_t flags) {
    uint32_t epoch = nnefc_epoch_of(atomic_load_explicit(&pool->announced, memory_order_relaxed)) + 1;
    uint64_t announced = (uint64_t)epoch << 32 | flags | job.pieces;
    pool->job = job;
    atomic_store(&pool->announced, announced);
    nnefc_wake_workers(pool);
    return announced;
}

void nnefc_launch_stop(nnefc_pool *pool) { publish(pool, (nnefc_job){.pieces = 0}, NNEFC_STOP); }

void nnefc_launch_each(nnefc_pool *pool, nnefc_parallel_body body, void *data) {
    nnefc_job job = {.body = body, .data = data, .tasks = (int32_t)pool->threads, .pieces = pool->threads};
    uint64_t announced = publish(pool, job, NNEFC_WORKERS_OWN_ONLY);
    uint32_t own = pool->parallel_for != NULL ? pool->threads : 1; /* workers without a thread of theirs */
    for (uint32_t i = 0; i < own; i++) do_pieces(pool, &pool->slots[i], announced, 1);
    nnefc_wait_for_end(pool, announced);
}

#ifdef NNEFC_WARMS_UP
void nnefc_pool_warm_up(nnefc_pool *pool) { pool->warms_up = true; }
#endif

static int do_nothing(int task, nnefc_parallel_environment *environment, void *data) {
    (void)task, (void)environment, (void)data;
    return 0;
}

void nnefc_take_part(nnefc_slot *own) {
    nnefc_pool *pool = own->worker.pool;
    for (uint64_t announced = 0;;) {
        announced = nnefc_wait_for_launch(pool, announced);
        if (announced & NNEFC_STOP) break;
        nnefc_go_home(&own->movable);
        do_pieces(pool, own, announced, announced & NNEFC_WORKERS_OWN_ONLY ? 1 : pool->threads);
        nnefc_wake_launcher(pool);
        nnefc_go_home(&own->movable);
    }
}

/* What one task of the caller's threads does: pieces of the last launch, as the worker of its number. */
static void work_as(void *argument, uint32_t index) {
    nnefc_pool *pool = argument;
    nnefc_outside outside;
    if (index >= pool->threads || !nnefc_pool_enter_as(pool, index, &outside)) return; /* others do its pieces */
    do_pieces(pool, &pool->slots[index], atomic_load(&pool->announced), pool->threads);
    nnefc_pool_leave(outside);
}

static uint64_t run_on_callers_threads(nnefc_pool *pool, nnefc_job job) {
    uint64_t announced = publish(pool, job, 0);
    pool->parallel_for(pool->parallel_for_pool, pool->threads, work_as, pool);
    if (!nnefc_is_finished(pool, announced))
        nnefc_worker_fail(&pool->slots[0].worker, "parallel_for has not called every task");
    return announced;
}

int nnefc_pool_launch(nnefc_worker *worker, nnefc_parallel_body body, void *data, int tasks) {
    nnefc_pool *pool = worker->pool;
    bool alone = worker->in_launch || pool->threads == 1 || !nnefc_process_is_own(pool->owner);
    int64_t iterations = worker->iterations, each = NNEFC_MAX_PIECES;
    worker->iterations = 0;
    nnefc_job job = {.body = body, .data = data, .tasks = tasks > 0 ? tasks : (int32_t)pool->threads};
    if (tasks <= 0 && iterations > 0) {
        each = alone ? 0 : nnefc_pieces_each(iterations, worker->cycles, pool->threads);
        job.tasks = alone ? nnefc_pieces_alone(iterations, worker->cycles) : each == 0 ? 1 : nnefc_pieces_of(iterations, pool->threads, each);
    }
    if (alone || job.tasks == 1) return run_alone(worker, &job);
    /* Epochs come again after 2^32 launches, in which a worker need not have done a piece. All do one in the middle and at the end
     * of these, so that no slot has an epoch of so long ago. */
    uint32_t epoch = nnefc_epoch_of(atomic_load_explicit(&pool->announced, memory_order_relaxed)) + 1;
    if ((epoch & INT32_MAX) == 0) nnefc_launch_each(pool, do_nothing, NULL);
    uint32_t maximum = pool->threads * NNEFC_MAX_PIECES;
    job.pieces = (uint32_t)job.tasks < maximum ? (uint32_t)job.tasks : maximum;
    uint64_t announced;
    if (pool->parallel_for != NULL) {
        announced = run_on_callers_threads(pool, job);
    } else {
        announced = publish(pool, job, each == 1 ? NNEFC_WORKERS_OWN_ONLY : 0);
        do_pieces(pool, &pool->slots[0], announced, pool->threads);
        nnefc_wait_for_end(pool, announced);
    }
    int status = 0;
    for (uint32_t i = 0; i < pool->threads && status == 0; i++)
        if (nnefc_epoch_of(atomic_load(&pool->slots[i].done)) == nnefc_epoch_of(announced)) status = pool->slots[i].status;
    return status;
}
