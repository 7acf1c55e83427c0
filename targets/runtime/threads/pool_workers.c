/* Maps threads to workers, and records their failures. */
#include <stdarg.h>

#include "machine/float_mode.h"
#include "messages.h"
#include "threads/per_thread.h"
#include "threads/pool_state.h"

NNEFC_PER_THREAD(current) /* the worker that a thread is */

nnefc_worker *nnefc_pool_current(void) { return nnefc_per_thread_get(&current); }

bool nnefc_pool_set_current(nnefc_worker *worker) { return nnefc_per_thread_set(&current, worker); }

#ifdef NNEFC_CHECKED
const nnefc_worker *nnefc_pool_launcher(const nnefc_pool *pool) { return &pool->slots[0].worker; }
#endif

bool nnefc_pool_enter_as(nnefc_pool *pool, uint32_t index, nnefc_outside *outside) {
    nnefc_worker *worker = &pool->slots[index].worker;
    *outside = (nnefc_outside){.worker = nnefc_pool_current(), .float_mode = nnefc_float_mode()};
    if (!nnefc_pool_set_current(worker)) {
        nnefc_worker_fail(worker, "no memory to tell the thread from others");
        return false;
    }
    nnefc_set_own_float_mode(pool->keep_subnormals);
    return true;
}

bool nnefc_pool_enter(nnefc_pool *pool, nnefc_outside *outside) { return nnefc_pool_enter_as(pool, 0, outside); }

void nnefc_pool_leave(nnefc_outside outside) {
    nnefc_set_float_mode(outside.float_mode);
    nnefc_pool_set_current(outside.worker);
}

void nnefc_worker_fail(nnefc_worker *worker, const char *format, ...) {
    if (worker->error[0] != '\0') return;
    va_list arguments;
    va_start(arguments, format);
    nnefc_vsnprintf(worker->error, sizeof worker->error, format, arguments);
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
