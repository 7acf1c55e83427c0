/* The kernels of network.c, as the fake driver finds them. */
#include <stdint.h>

enum { POINTER = sizeof(void *) };

const unsigned emulated_scale_parameters[] = {3, POINTER, POINTER, POINTER};
const unsigned emulated_step_parameters[] = {5, POINTER, POINTER, POINTER, POINTER, POINTER};

void emulated_scale(void **arguments, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes);
void emulated_step(void **arguments, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes);

void emulated_scale(void **arguments, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes) {
    const float *x = *(const float **)arguments[0], *weights = *(const float **)arguments[1];
    float *y = *(float **)arguments[2];
    (void)shared_bytes;
    for (unsigned i = 0; i < grid[0] * block[0]; i++) y[i] = x[i] * weights[i];
}

void emulated_step(void **arguments, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes) {
    int64_t *state = *(int64_t **)arguments[0], *count = *(int64_t **)arguments[1];
    const float *x = *(const float **)arguments[2];
    const int64_t *pace = *(const int64_t **)arguments[3];
    int32_t *failure = *(int32_t **)arguments[4];
    (void)grid, (void)block, (void)shared_bytes;
    *count = *state += *pace;
    if (x[0] == -1.0f) *failure = 1;
}
