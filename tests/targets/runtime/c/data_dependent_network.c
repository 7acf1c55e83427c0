/* A network with a data-dependent size, written by hand, for tests of the runtime: as many rows as the sum of x, which the
 * inputs do not say: y[i] = {x[i % n], i}, and total = that number.
 *
 * x is float32[n], y float32[rows, 2], total int64. A copy of x lies in the first part of the workspace, the rows in the second. */
#include <stdint.h>
#include <string.h>

enum { COPY, ROWS, STORAGES };

int32_t nnefc_kernel_error(const char *text);
void *nnefc_run_resized(void *run, int32_t part);
void *nnefc_run_output(void *run, int32_t output);

int32_t nnefc_network_sizes(const int64_t *values, int64_t *derived);

int32_t nnefc_network_sizes(const int64_t *values, int64_t *derived) {
    int64_t n = values[0], rows = values[1];
    int64_t all[] = {64 * n, 8 * rows, rows, 2, 0, n, 0, 2 * rows}; /* bytes; shapes; two limits of each part */
    memcpy(derived, all, sizeof all);
    return 0;
}

int32_t nnefc_network(const float *x, float *y, int64_t *total, uint8_t *state, uint8_t *workspace, const uint8_t *constants,
                      int64_t *sizes, void *run);

int32_t nnefc_network(const float *x, float *y, int64_t *total, uint8_t *state, uint8_t *workspace, const uint8_t *constants,
                      int64_t *sizes, void *run) {
    (void)state, (void)constants, (void)y;
    int64_t n = sizes[0], rows = 0;
    const int64_t *offsets = sizes + 2;
    float *copy = memset(workspace + offsets[COPY], 1, 64 * (size_t)n);
    memcpy(copy, x, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) rows += (int64_t)copy[i];
    if (rows < 0) nnefc_kernel_error("a negative size"), rows = 0;
    *total = rows;
    sizes[1] = rows;
    uint8_t *part = nnefc_run_resized(run, 1);
    if (part == NULL) return 0;
    y = nnefc_run_output(run, 0);
    float *made = memset(part + offsets[ROWS], 2, 8 * (size_t)rows);
    for (int64_t i = 0; i < rows; i++) made[2 * i] = copy[i % n], made[2 * i + 1] = (float)i;
    memcpy(y, made, 8 * (size_t)rows);
    sizes[2 + STORAGES] = rows;
    return 0;
}
