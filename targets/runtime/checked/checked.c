/* Functions that kernels with run-time checks call. */
#include "threads/pool.h"

/* Called by the entry before each kernel, with what of the model it computes. */
int32_t nnefc_at_step(const char *step);

/* Called by a kernel that was about to read or write an element that a tensor does not have, of so many; or, where this is negative,
 * about to do something else that cannot be. It goes on without that. Returns 0. */
int32_t nnefc_check_failed(const char *kernel, const char *does, int64_t item, int64_t items);

int32_t nnefc_at_step(const char *step) {
    nnefc_worker *worker = nnefc_pool_current();
    if (worker != NULL) worker->step = step;
    return 0;
}

int32_t nnefc_check_failed(const char *kernel, const char *does, int64_t item, int64_t items) {
    nnefc_worker *worker = nnefc_pool_current();
    if (worker == NULL) return 0;
    const char *step = nnefc_pool_launcher(worker->pool)->step;
    if (step == NULL) step = "the network";
    if (items < 0)
        nnefc_worker_fail(worker, "the kernel %.60s %.60s, in %s", kernel, does, step);
    else
        nnefc_worker_fail(worker, "the kernel %.60s %.60s[%lld], which has %lld elements, in %s", kernel, does, (long long)item,
                          (long long)items, step);
    return 0;
}
