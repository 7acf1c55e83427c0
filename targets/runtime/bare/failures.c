/* Failures of kernels on machines without an operating system: noted for the run in progress, and its result. */
#include "failures.h"

volatile int32_t nnefc_failed;

/* Called by kernels that find in their operands what their operation does not allow, an index out of range for example. */
int32_t nnefc_kernel_error(const char *text);

int32_t nnefc_kernel_error(const char *text) {
    (void)text;
    nnefc_failed = 1;
    return -1;
}

/* Called by the entry before each iteration of a loop. */
int32_t nnefc_run_failed(void);

int32_t nnefc_run_failed(void) { return nnefc_failed; }

/* One address or another, for the entry. */
void *nnefc_either(int32_t holds, void *then, void *other);

void *nnefc_either(int32_t holds, void *then, void *other) { return holds != 0 ? then : other; }

#ifdef NNEFC_CHECKED
/* Called by kernels and by the entry of libraries that check what kernels do; see checked/checked.c. A debugger that stops in the
 * second one shows what failed. */
int32_t nnefc_at_step(const char *step);
int32_t nnefc_check_failed(const char *kernel, const char *does, int64_t item, int64_t items);

int32_t nnefc_at_step(const char *step) {
    (void)step;
    return 0;
}

int32_t nnefc_check_failed(const char *kernel, const char *does, int64_t item, int64_t items) {
    (void)kernel, (void)does, (void)item, (void)items;
    nnefc_failed = 1;
    return 0;
}
#endif
