/* The times of a session's kernels, which are taken while its program wants them. */
#include <string.h>

#include "checks.h"
#include "model.h"
#include "session.h"

static nnefc_status time_kernels(nnefc_session *session, int32_t on) {
    nnefc_control *control = nnefc_engine_control(session->engine);
    if (on != 0 && on != 1) return nnefc_fail(NNEFC_BAD_ARGUMENT, session->error, "on is %d, not 0 or 1", (int)on);
    uint32_t count = nnefc_this_model.calls.count;
    nnefc_profile_sums *times = atomic_load(&control->times);
    if (on == 0 || count == 0) {
        control->usual &= ~NNEFC_TAKE_TIMES;
        return NNEFC_OK;
    }
    if (times == NULL) times = nnefc_memory_take(&session->memory, count * sizeof *times);
    if (times == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, session->error, "no memory for the times of %u kernels", (unsigned)count);
    for (uint32_t i = 0; i < count; i++) { /* others may read meanwhile */
        atomic_store_explicit(&times[i].calls, 0, memory_order_relaxed);
        atomic_store_explicit(&times[i].nanoseconds, 0, memory_order_relaxed);
        atomic_store_explicit(&times[i].last_begin, 0, memory_order_relaxed);
        atomic_store_explicit(&times[i].last_nanoseconds, 0, memory_order_relaxed);
    }
    atomic_store(&control->times, times);
    control->usual |= NNEFC_TAKE_TIMES;
    return NNEFC_OK;
}

nnefc_status nnefc_time_kernels(nnefc_session *session, int32_t on) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = time_kernels(session, on);
    nnefc_give_back(session);
    return status;
}

uint32_t nnefc_session_times(const nnefc_session *session, nnefc_kernel_times *times, uint32_t count) {
    if (session == NULL) return 0;
    const nnefc_calls *calls = &nnefc_this_model.calls;
    nnefc_profile_sums *sums = atomic_load(&nnefc_engine_control(session->engine)->times);
    const char *text = calls->texts;
    uint32_t found = 0;
    for (uint32_t i = 0; i < calls->count; i++) {
        const char *texts[3];
        for (int j = 0; j < 3; j++) texts[j] = text, text += strlen(text) + 1;
        if (*texts[0] == '\0') continue;
        if (found < count) {
            times[found] = (nnefc_kernel_times){texts[0], texts[1], texts[2], calls->amounts[2 * i], calls->amounts[2 * i + 1], 0, 0, 0, 0};
            if (sums != NULL) {
                times[found].calls = atomic_load_explicit(&sums[i].calls, memory_order_relaxed);
                times[found].nanoseconds = atomic_load_explicit(&sums[i].nanoseconds, memory_order_relaxed);
                times[found].last_begin = atomic_load_explicit(&sums[i].last_begin, memory_order_relaxed);
                times[found].last_nanoseconds = atomic_load_explicit(&sums[i].last_nanoseconds, memory_order_relaxed);
            }
        }
        found++;
    }
    return found;
}
