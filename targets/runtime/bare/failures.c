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

/* Called by the entry before each round of a loop. */
int32_t nnefc_run_failed(void);

int32_t nnefc_run_failed(void) { return nnefc_failed; }
