/* Ends runs between two kernels, at the request of another thread, and answers what the entry asks there. */
#include "run_control/control.h"

#include <stdlib.h>

#include "session.h"
#include "machine/system.h"
#include "threads/pool_state.h"

nnefc_status nnefc_cancel(nnefc_session *session) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    atomic_fetch_or(&nnefc_engine_control(session->engine)->reasons, NNEFC_CANCEL);
    return NNEFC_OK;
}

/* Ends the time of the call that is under way, and begins that of another one, or of none. */
static void take_time(nnefc_control *control, int32_t next) {
    int64_t now = nnefc_nanoseconds();
    if (control->call >= 0) {
        nnefc_profile_sums *sums = &atomic_load_explicit(&control->times, memory_order_relaxed)[control->call];
        uint64_t took = (uint64_t)(now - control->begin);
        atomic_fetch_add_explicit(&sums->calls, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&sums->nanoseconds, took, memory_order_relaxed);
        atomic_store_explicit(&sums->last_begin, (uint64_t)control->begin, memory_order_relaxed);
        atomic_store_explicit(&sums->last_nanoseconds, took, memory_order_relaxed);
    }
    control->call = next;
    control->begin = now;
}

int32_t *nnefc_control_begin(nnefc_control *control) {
    control->cancelled = false;
    control->call = -1;
    atomic_store(&control->reasons, control->usual);
    return (int32_t *)&control->reasons;
}

void nnefc_control_end(nnefc_control *control) {
    if (control->call >= 0) take_time(control, -1);
}

void nnefc_control_free(nnefc_control *control) {
    free(control->skipped);
    free(atomic_load(&control->times));
}

/* Called by the entry before the call of this number while there is a reason: 0 to go on, 1 to end the run, 2 to skip the call. */
int32_t nnefc_between_kernels(int32_t call);

int32_t nnefc_between_kernels(int32_t call) {
    nnefc_worker *worker = nnefc_pool_current();
    if (worker == NULL) return 0;
    nnefc_control *control = &worker->pool->control;
    int32_t reasons = atomic_load_explicit(&control->reasons, memory_order_relaxed);
    if (reasons & NNEFC_CANCEL) {
        control->cancelled = true;
        return 1;
    }
    if (reasons & NNEFC_SKIP && control->skipped[call]) return 2;
    if (reasons & NNEFC_TAKE_TIMES) take_time(control, call);
    return 0;
}
