/* A network of four calls written by hand, for tests of what runs ask between two kernels: a = x + 1, b = 2 a, c = 3 x, and a state
 * that counts runs. All are float32[4], or float32[n] with -DOPEN; b is computed from a where the caller has that, and c by four tasks.
 * A run whose x[0] is -1 goes on until it is ended. */
#include <stdint.h>

typedef struct environment {
    void *sync;
    int32_t num_task;
} environment;

extern int (*__TVMBackendParallelLaunch)(int (*body)(int, environment *, void *), void *data, int tasks);

int32_t nnefc_between_kernels(int32_t call);

typedef struct tripled {
    const float *x;
    float *c;
    int64_t count;
} tripled;

static int triple(int task, environment *environment, void *data) {
    const tripled *t = data;
    for (int64_t i = task; i < t->count; i += environment->num_task) t->c[i] = 3 * t->x[i];
    return 0;
}

static int32_t asked(int32_t *interrupt, int32_t call) {
    return __atomic_load_n(interrupt, __ATOMIC_RELAXED) != 0 ? nnefc_between_kernels(call) : 0;
}

#ifdef OPEN
int32_t nnefc_network_sizes(const int64_t *values, int64_t *derived);

int32_t nnefc_network_sizes(const int64_t *values, int64_t *derived) {
    for (int i = 0; i < 3; i++) derived[i] = *values;
    derived[3] = derived[4] = 0;
    return 0;
}
#define SIZES , const int64_t *sizes
#define COUNT sizes[0]
#else
#define SIZES
#define COUNT 4
#endif

int32_t nnefc_network(const float *x, float *a, float *b, float *c, int64_t *state, uint8_t *workspace, const uint8_t *constants,
                      int32_t *interrupt SIZES);

int32_t nnefc_network(const float *x, float *a, float *b, float *c, int64_t *state, uint8_t *workspace, const uint8_t *constants,
                      int32_t *interrupt SIZES) {
    (void)workspace, (void)constants;
    int32_t answer;
    do {
        if ((answer = asked(interrupt, 0)) == 1) return 0;
    } while (x[0] == -1);
    for (int64_t i = 0; answer == 0 && i < COUNT; i++) a[i] = x[i] + 1;
    if ((answer = asked(interrupt, 1)) == 1) return 0;
    for (int64_t i = 0; answer == 0 && i < COUNT; i++) b[i] = 2 * a[i];
    if ((answer = asked(interrupt, 2)) == 1) return 0;
    tripled all = {x, c, COUNT};
    if (answer == 0 && __TVMBackendParallelLaunch(triple, &all, 4) != 0) return -1;
    if ((answer = asked(interrupt, 3)) == 1) return 0;
    if (answer == 0) *state += 1;
    return 0;
}
