/* The pool of libraries that are compiled for size: the calling thread alone, and no texts of failures. Which worker it is, the
 * network's code asks only where it may note a failure (NNEFC_CALLED). */
#include "threads/pool.h"

#include "machine/float_mode.h"
#include "session_memory.h"
#include "threads/per_thread.h"

struct nnefc_pool {
    nnefc_worker worker;
    nnefc_memory memory;
    bool keep_subnormals;
    bool failed;
};

#ifdef NNEFC_CALLED
NNEFC_PER_THREAD(current)

nnefc_worker *nnefc_pool_current(void) { return nnefc_per_thread_get(&current); }
#define SET_CURRENT(worker) nnefc_per_thread_set(&current, worker)
#else
nnefc_worker *nnefc_pool_current(void) { return NULL; }
#define SET_CURRENT(worker) ((void)(worker), true)
#endif

nnefc_pool *nnefc_pool_create(const nnefc_options *options, uint32_t threads, uint64_t scratch_bytes) {
    (void)threads;
    if (scratch_bytes > SIZE_MAX / 2) return NULL;
    nnefc_memory memory = nnefc_memory_of(options);
    nnefc_pool *pool = nnefc_memory_take_zeros(&memory, sizeof *pool);
    if (pool == NULL) return NULL;
    pool->memory = memory;
    pool->worker.pool = pool;
    pool->keep_subnormals = options->keep_subnormals != 0;
    if (scratch_bytes == 0) return pool;
    pool->worker.scratch.bytes = scratch_bytes;
    pool->worker.scratch.base = nnefc_memory_take(&memory, scratch_bytes);
    if (pool->worker.scratch.base != NULL) return pool;
    nnefc_pool_destroy(pool);
    return NULL;
}

void nnefc_pool_destroy(nnefc_pool *pool) {
    nnefc_memory memory = pool->memory;
    nnefc_memory_give_back(&memory, pool->worker.scratch.base, pool->worker.scratch.bytes);
    nnefc_memory_give_back(&memory, pool, sizeof *pool);
}

bool nnefc_pool_enter(nnefc_pool *pool, nnefc_outside *outside) {
    *outside = (nnefc_outside){.worker = nnefc_pool_current(), .float_mode = nnefc_float_mode()};
    if (!SET_CURRENT(&pool->worker)) return false;
    nnefc_set_own_float_mode(pool->keep_subnormals);
    return true;
}

void nnefc_pool_leave(nnefc_outside outside) {
    nnefc_set_float_mode(outside.float_mode);
    (void)SET_CURRENT(outside.worker);
}

int nnefc_pool_launch(nnefc_worker *worker, nnefc_parallel_body body, void *data, int tasks) {
    (void)worker;
    nnefc_parallel_environment environment = {.sync = NULL, .num_task = tasks > 0 ? tasks : 1};
    int status = 0;
    for (int task = 0; task < environment.num_task && status == 0; task++) status = body(task, &environment, data);
    return status;
}

void nnefc_worker_fail(nnefc_worker *worker, const char *format, ...) {
    (void)format;
    worker->pool->failed = true;
}

bool nnefc_pool_failed(const nnefc_pool *pool) { return pool->failed; }

const char *nnefc_pool_error(const nnefc_pool *pool) {
    (void)pool;
    return "";
}

void nnefc_pool_clear(nnefc_pool *pool) {
    pool->worker.scratch.used = 0;
    pool->worker.scratch.blocks = 0;
    pool->failed = false;
}
