/* What programs do with the sample network (network.c) through an interface: one linked, or one of a library that is opened. */
#ifndef SESSIONS_H
#define SESSIONS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnefc.h"

enum { COUNT = 1024 };

extern const uint8_t nnefc_constants[]; /* the programs are linked with the runtime itself */

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

typedef struct tensors {
    float x[COUNT], y[COUNT];
    int64_t count;
} tensors;

static inline nnefc_status run_with(const nnefc_interface *network, nnefc_session *session, tensors *t) {
    const void *inputs[] = {t->x};
    void *outputs[] = {t->y, &t->count};
    return network->run(session, inputs, outputs);
}

static inline void fill(tensors *t, float first, float value) {
    for (int i = 0; i < COUNT; i++) t->x[i] = value + (float)i, t->y[i] = NAN;
    t->x[0] = first;
    t->count = -1;
}

static inline int right(const tensors *t) {
    float weights[COUNT];
    memcpy(weights, nnefc_constants, sizeof weights);
    for (int i = 0; i < COUNT; i++)
        if (t->y[i] != t->x[i] * weights[i]) return 0;
    return 1;
}

/* Uses sessions in random ways for so many seconds: see storm.c. */
void storm(double seconds, uint64_t seed, int libraries, char **paths);

#endif
