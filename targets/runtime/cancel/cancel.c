/* Ends runs between two kernels, at the request of another thread. */
#include "threads/pool_state.h"
#include "session.h"

nnefc_status nnefc_cancel(nnefc_session *session) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    nnefc_engine_cancel(session->engine);
    return NNEFC_OK;
}

int32_t *nnefc_pool_interrupt(nnefc_pool *pool) {
    pool->cancelled = false;
    atomic_store(&pool->interrupt, 0);
    return (int32_t *)&pool->interrupt;
}

void nnefc_pool_cancel(nnefc_pool *pool) { atomic_store(&pool->interrupt, 1); }

bool nnefc_pool_cancelled(const nnefc_pool *pool) { return pool->cancelled; }

/* Called by the entry before the kernel of this number while the flag is set: 1 to end the run. */
int32_t nnefc_between_kernels(int32_t position);

int32_t nnefc_between_kernels(int32_t position) {
    (void)position;
    nnefc_worker *worker = nnefc_pool_current();
    if (worker != NULL) worker->pool->cancelled = true;
    return worker != NULL;
}
