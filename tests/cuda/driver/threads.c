/* Sessions for a GPU in threads that begin and end at the same time, and one session that several threads call. Prints "ok". */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "nnefc.h"

enum { COUNT = 1024, REPEATS = 6, RUNS = 10, THREADS = 4 };

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

extern const uint8_t nnefc_constants[];

typedef struct tensors {
    float x[COUNT], y[COUNT];
    int64_t count;
} tensors;

static nnefc_status run(nnefc_session *session, tensors *t, float value) {
    const void *inputs[] = {t->x};
    void *outputs[] = {t->y, &t->count};
    for (int i = 0; i < COUNT; i++) t->x[i] = value + (float)i, t->y[i] = NAN;
    return nnefc_run(session, inputs, outputs);
}

static int right(const tensors *t) {
    const float *weights = (const float *)nnefc_constants;
    for (int i = 0; i < COUNT; i++)
        if (t->y[i] != -(t->x[i] * weights[i])) return 0;
    return 1;
}

static void *own_sessions(void *number) {
    tensors t;
    for (int round = 0; round < REPEATS; round++) {
        nnefc_session *session = NULL;
        CHECK(nnefc_create(NULL, &session) == NNEFC_OK);
        for (int i = 1; i <= RUNS; i++)
            CHECK(run(session, &t, (float)*(int *)number) == NNEFC_OK && right(&t) && t.count == 5 + i);
        CHECK(nnefc_destroy(session) == NNEFC_OK);
    }
    return NULL;
}

static nnefc_session *shared;
static atomic_int served;

static void *shared_session(void *number) {
    tensors t;
    for (int i = 0; i < 10 * RUNS; i++) {
        nnefc_status status = run(shared, &t, (float)*(int *)number);
        CHECK(status == NNEFC_OK || status == NNEFC_BUSY);
        if (status == NNEFC_OK) CHECK(right(&t));
        atomic_fetch_add(&served, status == NNEFC_OK);
    }
    return NULL;
}

static void in_threads(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, body, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    in_threads(own_sessions);
    CHECK(nnefc_create(NULL, &shared) == NNEFC_OK);
    in_threads(shared_session);
    CHECK(served > 0);
    CHECK(nnefc_destroy(shared) == NNEFC_OK);
    puts("ok");
    return 0;
}
