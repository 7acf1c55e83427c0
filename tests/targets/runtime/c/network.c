/* A network written by hand, for tests of the runtime: y = x * weights, count = number of runs since the start.
 *
 * x is float32[1024], y float32[1024], count int64[1]; the state is one int64; the constants are 1024 float32 and, after
 * them, the state's initial value. Values of x[0] below zero ask for something unusual, see `nnefc_network`. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define COUNT 1024
#define CHUNK 64

typedef struct environment {
    void *sync;
    int32_t num_task;
} environment;

extern int (*__TVMBackendParallelLaunch)(int (*body)(int, environment *, void *), void *data, int tasks);
extern int (*__TVMBackendParallelBarrier)(int task, environment *env);
void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int type_code, int type_bits);
int TVMBackendFreeWorkspace(int device_type, int device_id, void *pointer);
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count);

typedef struct layer {
    const float *x, *weights;
    float *y;
    pthread_t threads[4];
} layer;

int32_t nnefc_kernel_error(const char *text);

/* y of one task's part, by way of the worker's scratch memory. */
static int multiply(int task, environment *env, void *data) {
    const layer *l = data;
    for (int start = task * CHUNK; start < COUNT; start += env->num_task * CHUNK) {
        float *a = TVMBackendAllocWorkspace(1, 0, CHUNK * sizeof(float), 2, 32);
        float *b = TVMBackendAllocWorkspace(1, 0, CHUNK * sizeof(float), 2, 32);
        if (a == NULL || b == NULL || (uintptr_t)a % 64 != 0 || (uintptr_t)b % 64 != 0) return -1;
        for (int i = 0; i < CHUNK; i++) a[i] = l->x[start + i];
        for (int i = 0; i < CHUNK; i++) b[i] = a[i] * l->weights[start + i];
        memcpy(l->y + start, b, CHUNK * sizeof(float));
        if (TVMBackendFreeWorkspace(1, 0, a) != 0) return -1; /* not in the order of a stack */
        if (TVMBackendFreeWorkspace(1, 0, b) != 0) return -1;
    }
    return 0;
}

/* The same, with a pause that gives every worker the time to take part; notes which thread did it. */
static int multiply_slowly(int task, environment *env, void *data) {
    layer *l = data;
    struct timespec pause = {.tv_nsec = 300000};
    nanosleep(&pause, NULL);
    l->threads[task] = pthread_self();
    return multiply(task, env, data);
}

static int64_t distinct_threads(const layer *l, int tasks) {
    int64_t distinct = 0;
    for (int i = 0; i < tasks; i++) {
        int seen = 0;
        for (int j = 0; j < i; j++) seen |= pthread_equal(l->threads[i], l->threads[j]) != 0;
        distinct += !seen;
    }
    return distinct;
}

static int launch_inside(int task, environment *env, void *data) {
    (void)env;
    return task == 0 ? __TVMBackendParallelLaunch(multiply, data, 0) : 0;
}

static int fail_in_last_task(int task, environment *env, void *data);

static int fail_inside(int task, environment *env, void *data) {
    (void)env;
    int status = __TVMBackendParallelLaunch(fail_in_last_task, data, 3);
    return task % 2 == 0 ? status : 0;
}

static int fail_in_last_task(int task, environment *env, void *data) {
    (void)data;
    return task == env->num_task - 1 ? 9 : 0;
}

int32_t nnefc_network(void *x, void *y, void *count, uint8_t *state, uint8_t *workspace, const uint8_t *constants);

int32_t nnefc_network(void *x, void *y, void *count, uint8_t *state, uint8_t *workspace, const uint8_t *constants) {
    memcpy(workspace, x, COUNT * sizeof(float));
    layer l = {.x = (const float *)workspace, .weights = (const float *)constants, .y = y};
    int64_t runs;
    memcpy(&runs, state, sizeof runs);
    runs++;
    memcpy(state, &runs, sizeof runs);
    memcpy(count, &runs, sizeof runs);
    switch ((int)l.x[0]) {
        case -1: { /* an error with a message */
            const char *parts[] = {"bad ", "luck"};
            TVMFFIErrorSetRaisedFromCStrParts("RuntimeError", parts, 2);
            return -1;
        }
        case -2: /* more scratch than there is */
            return TVMBackendAllocWorkspace(1, 0, UINT64_C(1) << 62, 2, 32) == NULL ? -1 : 0;
        case -3: return __TVMBackendParallelLaunch(launch_inside, &l, 0);
        case -4: return __TVMBackendParallelLaunch(fail_in_last_task, &l, 5);
        case -9: __TVMBackendParallelLaunch(fail_inside, &l, 0); return 0; /* a failure that the entry drops */
        case -11: { /* four tasks; count is how many threads they ran on */
            int status = __TVMBackendParallelLaunch(multiply_slowly, &l, 4);
            int64_t distinct = distinct_threads(&l, 4);
            memcpy(count, &distinct, sizeof distinct);
            return status;
        }
        case -12: /* what kernels do that find a wrong value in an operand, and go on */
            nnefc_kernel_error("index 7 is out of range");
            return __TVMBackendParallelLaunch(multiply, &l, 0);
        case -10: return __TVMBackendParallelBarrier(0, NULL);
        case -5: { /* slow */
            struct timespec pause = {.tv_nsec = 300000000};
            nanosleep(&pause, NULL);
            return __TVMBackendParallelLaunch(multiply, &l, 0);
        }
        case -6: return __TVMBackendParallelLaunch(multiply, &l, 100);
        case -7: /* memory that is not the worker's */ return TVMBackendFreeWorkspace(1, 0, x);
        case -8: /* many launches, some after the workers fell asleep */
            for (int i = 0; i < 300; i++) {
                struct timespec pause = {.tv_nsec = i % 100 == 0 ? 1000000 : 0};
                if (i % 50 == 0) nanosleep(&pause, NULL);
                if (__TVMBackendParallelLaunch(multiply, &l, 0) != 0) return -1;
            }
            return 0;
        default: return __TVMBackendParallelLaunch(multiply, &l, 0);
    }
}
