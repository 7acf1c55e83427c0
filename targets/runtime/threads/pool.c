/* Creates and destroys a pool with its threads. launches.c distributes work among them. */
#include <stddef.h>
#include <string.h>

#include "machine/float_mode.h"
#include "threads/pool_state.h"

static void *worker_main(void *argument) {
    nnefc_slot *own = argument;
    nnefc_pool *pool = own->worker.pool;
    if (!nnefc_pool_set_current(&own->worker)) atomic_store(&pool->refused, true);
    if (own->processor >= 0 && !nnefc_run_only_on(own->processor)) atomic_store(&pool->refused, true);
    nnefc_set_own_float_mode(pool->keep_subnormals);
    if (own->processor < 0) nnefc_may_be_brought(&own->movable);
    nnefc_take_part(own);
    nnefc_pool_set_current(NULL);
    return NULL;
}

static bool start_threads(nnefc_pool *pool) {
    while (pool->parallel_for == NULL && pool->started < pool->threads - 1) {
        nnefc_slot *slot = &pool->slots[pool->started + 1];
        if (!nnefc_start_thread(&slot->thread, worker_main, slot)) return false;
        pool->started++;
    }
    return true;
}

/* What the first launch does: each worker touches its scratch, so that the memory is near it and there before the first run; and
 * each has passed its start, during which the C library allocates the thread's own variables. */
static int touch_scratch(int task, nnefc_parallel_environment *environment, void *data) {
    (void)environment;
    nnefc_scratch *scratch = &((nnefc_pool *)data)->slots[task].worker.scratch;
    if (scratch->bytes > 0) memset(scratch->base, 0, (size_t)scratch->bytes);
    return 0;
}

static uint64_t round_up(uint64_t number, uint64_t multiple) { return (number + multiple - 1) / multiple * multiple; }

#ifdef NNEFC_CANCELLABLE
nnefc_control *nnefc_pool_control(nnefc_pool *pool) { return &pool->control; }
#endif

/* Of a pool with its slots. */
static uint64_t pool_bytes(uint32_t threads) { return sizeof(nnefc_pool) + threads * sizeof(nnefc_slot); }

static void free_memory(nnefc_pool *pool) {
    nnefc_memory memory = pool->memory;
#ifdef NNEFC_CANCELLABLE
    nnefc_control_free(&pool->control, &memory);
#endif
    nnefc_process_free(pool->owner);
    nnefc_memory_give_back(&memory, pool->scratch, pool->scratch_bytes);
    nnefc_memory_give_back(&memory, pool, pool_bytes(pool->threads));
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
    if (scratch_bytes > SIZE_MAX / 2 / threads) return NULL; /* all together take no more than a size can say */
    uint64_t stride = round_up(scratch_bytes, NNEFC_LINE);
    nnefc_memory memory = nnefc_memory_of(options);
    nnefc_pool *pool = nnefc_memory_take_zeros(&memory, pool_bytes(threads));
    if (pool == NULL) return NULL;
    pool->threads = threads;
    pool->memory = memory;
    pool->owner = nnefc_process_create();
    pool->scratch_bytes = threads * stride;
    if (stride > 0) pool->scratch = nnefc_memory_take(&memory, pool->scratch_bytes);
    if (pool->owner == NULL || (stride > 0 && pool->scratch == NULL)) {
        free_memory(pool);
        return NULL;
    }
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
    if (started) nnefc_launch_each(pool, touch_scratch, pool);
    if (started && !atomic_load(&pool->refused)) return pool;
    nnefc_pool_destroy(pool);
    return NULL;
}

void nnefc_pool_destroy(nnefc_pool *pool) {
    if (nnefc_process_is_own(pool->owner)) { /* a child has no threads to join, and its copies of the locks may have no owner */
        if (pool->started > 0) nnefc_launch_stop(pool);
        for (uint32_t i = 1; i <= pool->started; i++) pthread_join(pool->slots[i].thread, NULL);
        pthread_cond_destroy(&pool->finished);
        pthread_cond_destroy(&pool->work);
        pthread_mutex_destroy(&pool->mutex);
    }
    free_memory(pool);
}
