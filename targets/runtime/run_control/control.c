/* Ends runs between two kernels, at the request of another thread, and answers what the entry asks there. */
#include "run_control/control.h"

#include "checks.h"
#include "model.h"
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
    control->ended = NNEFC_OK;
    control->call = -1;
    if (control->usual & NNEFC_LIMIT) {
        int64_t now = nnefc_nanoseconds();
        control->deadline = control->limit < INT64_MAX - now ? now + control->limit : INT64_MAX;
    }
    atomic_store(&control->reasons, control->usual);
    return (int32_t *)&control->reasons;
}

void nnefc_control_end(nnefc_control *control) {
    if (control->call >= 0) take_time(control, -1);
}

nnefc_status nnefc_control_limit(nnefc_control *control, int64_t nanoseconds, char *error) {
    if (nanoseconds < 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "a limit of time is %lld ns, less than 0", (long long)nanoseconds);
    control->limit = nanoseconds;
    control->usual = nanoseconds > 0 ? control->usual | NNEFC_LIMIT : control->usual & ~NNEFC_LIMIT;
    return NNEFC_OK;
}

void nnefc_control_free(nnefc_control *control, const nnefc_memory *memory) {
    uint64_t count = nnefc_this_model.calls.count;
    nnefc_memory_give_back(memory, control->skipped, count);
    nnefc_memory_give_back(memory, atomic_load(&control->times), count * sizeof(nnefc_profile_sums));
}

/* Called by the entry before the call of this number while there is a reason: 0 to go on, 1 to end the run, 2 to skip the call. */
int32_t nnefc_between_kernels(int32_t call);

int32_t nnefc_between_kernels(int32_t call) {
    nnefc_worker *worker = nnefc_pool_current();
    if (worker == NULL) return 0;
    nnefc_control *control = &worker->pool->control;
    int32_t reasons = atomic_load_explicit(&control->reasons, memory_order_relaxed);
    if (reasons & NNEFC_CANCEL)
        control->ended = NNEFC_CANCELLED;
    else if (reasons & NNEFC_LIMIT && nnefc_nanoseconds() > control->deadline)
        control->ended = NNEFC_TIMED_OUT;
    if (control->ended != NNEFC_OK) return 1;
    if (reasons & NNEFC_SKIP && control->skipped[call]) return 2;
    if (reasons & NNEFC_TAKE_TIMES) take_time(control, call);
    return 0;
}
