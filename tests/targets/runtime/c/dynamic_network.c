/* A network with dynamic dimensions written by hand, for tests of the runtime: y = x * scale, sums = the sums of y's rows.
 *
 * x is float32[n, w], scale float32[w], y float32[n, w], sums float64[n], with w = 4 * the second value. Every storage is
 * filled to its end when its life begins, so that wrong positions show. Their sizes and lives are such that a layout of its own
 * takes more memory for n = 7 than for n = 8. */
#include <stdint.h>
#include <string.h>

enum { SCALES, TAIL, TOTALS, PRODUCTS, STORAGES };

static void measure(const int64_t *values, int64_t *bytes) {
    int64_t n = values[0], unit = 64 * values[1];
    bytes[SCALES] = unit * (n + 5);
    bytes[TAIL] = unit * 11;
    bytes[TOTALS] = unit * 12;
    bytes[PRODUCTS] = unit * (n + 4);
}

int32_t nnefc_network_sizes(const int64_t *values, int64_t *derived);

int32_t nnefc_network_sizes(const int64_t *values, int64_t *derived) {
    int64_t n = values[0], w = 4 * values[1];
    int64_t others[] = {n, w, n, 0, n * w}; /* shapes; the smallest dimension; the maximum elements */
    measure(values, derived);
    memcpy(derived + STORAGES, others, sizeof others);
    return 0;
}

int32_t nnefc_network(const float *x, const float *scale, float *y, double *sums, uint8_t *state, uint8_t *workspace,
                      const uint8_t *constants, const int64_t *sizes);

int32_t nnefc_network(const float *x, const float *scale, float *y, double *sums, uint8_t *state, uint8_t *workspace,
                      const uint8_t *constants, const int64_t *sizes) {
    (void)state, (void)constants;
    int64_t n = sizes[0], w = 4 * sizes[1], bytes[STORAGES];
    const int64_t *offsets = sizes + 2;
    measure(sizes, bytes);
    /* step 1 */
    float *scales = memset(workspace + offsets[SCALES], 1, (size_t)bytes[SCALES]);
    double *totals = memset(workspace + offsets[TOTALS], 2, (size_t)bytes[TOTALS]);
    memcpy(scales, scale, (size_t)w * sizeof *scale);
    for (int64_t i = 0; i < n; i++) {
        totals[i] = 0;
        for (int64_t j = 0; j < w; j++) totals[i] += x[i * w + j] * scales[j];
    }
    /* step 2 */
    float *products = memset(workspace + offsets[PRODUCTS], 3, (size_t)bytes[PRODUCTS]);
    memcpy(sums, totals, (size_t)n * sizeof *sums);
    for (int64_t i = 0; i < n * w; i++) products[i] = x[i] * scale[i % w];
    /* step 4 */
    memset(workspace + offsets[TAIL], 4, (size_t)bytes[TAIL]);
    memcpy(y, products, (size_t)(n * w) * sizeof *y);
    return 0;
}
