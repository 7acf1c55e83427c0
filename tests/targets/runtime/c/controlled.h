/* For programs that are linked with the network of controlled_network.c: its tensors and runs. */
#ifndef CONTROLLED_H
#define CONTROLLED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnefc.h"

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

enum { COUNT = 4, CALLS = 4 };

typedef struct tensors {
    float x[COUNT], a[COUNT], b[COUNT], c[COUNT];
    const void *inputs[1];
    void *outputs[3];
} tensors;

static inline void fill(tensors *t, float first) {
    for (int i = 0; i < COUNT; i++) t->x[i] = first + (float)i, t->a[i] = t->b[i] = t->c[i] = -7;
    t->inputs[0] = t->x;
    t->outputs[0] = t->a, t->outputs[1] = t->b, t->outputs[2] = t->c;
}

static inline nnefc_session *create(int32_t threads) {
    nnefc_options options = {.struct_size = sizeof options, .threads = threads};
    nnefc_session *session;
    CHECK(nnefc_create(&options, &session) == NNEFC_OK);
    return session;
}

#ifdef NNEFC_OPEN
static inline nnefc_status run(nnefc_session *session, tensors *t) {
    const int64_t shape[] = {COUNT}, *shapes[] = {shape};
    nnefc_status status = nnefc_resize(session, shapes);
    return status == NNEFC_OK ? nnefc_run(session, t->inputs, t->outputs) : status;
}
#else
static inline nnefc_status run(nnefc_session *session, tensors *t) { return nnefc_run(session, t->inputs, t->outputs); }
#endif

/* Whether each output is right if its letter is in `computed`, and as before if not. */
static inline int has(const tensors *t, const char *computed) {
    for (int i = 0; i < COUNT; i++) {
        float a = t->x[i] + 1, b = 2 * a, c = 3 * t->x[i];
        if (t->a[i] != (strchr(computed, 'a') ? a : -7) || t->b[i] != (strchr(computed, 'b') ? b : -7) ||
            t->c[i] != (strchr(computed, 'c') ? c : -7))
            return 0;
    }
    return 1;
}

/* What a program gives to its sessions: of resources.c. */
void uses_resources(void);

#endif
