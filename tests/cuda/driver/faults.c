/* Lets the n-th call of the fake driver fail, for n = 1, 2, … until a whole life of a session passes without: it is created,
 * run, run on streams, reset and destroyed, next to another session that lives on. Every failure must be a status with a
 * text, leave nothing behind, and not spoil what follows. Prints how many failures there were. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnefc.h"

enum { COUNT = 1024, OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, UNKNOWN = 999 };

#define CHECK(condition)                                                                                           \
    do {                                                                                                           \
        if (!(condition)) {                                                                                        \
            fprintf(stderr, "%s:%d: %s (call %u fails with %d)\n%s\n%s", __FILE__, __LINE__, #condition, failing, with, \
                    fake.log(), fake.complaints());                                                                \
            exit(1);                                                                                               \
        }                                                                                                          \
    } while (0)

static struct {
    void (*fail)(unsigned call, int result, const char *function);
    void (*clear)(void);
    unsigned (*calls)(void);
    const char *(*log)(void), *(*complaints)(void), *(*objects)(void);
    int (*depth)(void);
    int (*init)(unsigned), (*retain)(void **, int), (*push)(void *), (*pop)(void **), (*release)(int);
    int (*allocate)(unsigned long long *, size_t), (*free)(unsigned long long);
    void (*machine)(int devices, int major, int minor, int version);
} fake;

static unsigned failing;
static int with;
static unsigned failures;
static float x[COUNT], y[COUNT];
static int64_t count;
static unsigned long long device_x, device_y, device_count, peer_x, peer_y; /* the last two on another GPU */

static void find(void *library, const char *name, void *function) {
    *(void **)function = dlsym(library, name);
    if (*(void **)function == NULL) exit(fprintf(stderr, "no %s\n", name));
}

static void open_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) exit(fprintf(stderr, "%s\n", dlerror()));
    find(library, "fake_fail", &fake.fail), find(library, "fake_clear", &fake.clear);
    find(library, "fake_calls", &fake.calls), find(library, "fake_log", &fake.log);
    find(library, "fake_complaints", &fake.complaints), find(library, "fake_objects", &fake.objects);
    find(library, "fake_depth", &fake.depth), find(library, "cuInit", &fake.init);
    find(library, "cuDevicePrimaryCtxRetain", &fake.retain), find(library, "cuCtxPushCurrent_v2", &fake.push);
    find(library, "cuCtxPopCurrent_v2", &fake.pop), find(library, "cuDevicePrimaryCtxRelease_v2", &fake.release);
    find(library, "cuMemAlloc_v2", &fake.allocate), find(library, "cuMemFree_v2", &fake.free);
    find(library, "fake_machine", &fake.machine);
}

/* Whether the failure has come up. */
static bool has_failed(void) { return failing > 0 && fake.calls() >= failing; }

/* A call that succeeds, or fails on purpose; whether it succeeded. */
static bool succeeds(nnefc_status status, const nnefc_session *session) {
    bool failed = has_failed();
    if (failed) fake.fail(0, 0, ""); /* once */
    if (status == NNEFC_OK) {
        CHECK(!failed);
        return true;
    }
    CHECK(failed);
    failing = 0;
    failures++;
    const char *text = nnefc_last_error(session);
    CHECK(strstr(text, "fail") != NULL || strstr(text, "cannot be loaded") != NULL);
    CHECK(status == (with == OUT_OF_MEMORY ? NNEFC_OUT_OF_MEMORY : NNEFC_DEVICE_ERROR));
    CHECK((strstr(text, "this process can use the GPU no more") != NULL) == (with == ILLEGAL_ADDRESS));
    return false;
}

static nnefc_status run(nnefc_session *session) {
    const void *inputs[] = {x};
    void *outputs[] = {y, &count};
    for (int i = 0; i < COUNT; i++) y[i] = NAN;
    return nnefc_run(session, inputs, outputs);
}

static nnefc_status enqueue(nnefc_session *session, void *stream) {
    const void *inputs[] = {(void *)(uintptr_t)device_x};
    void *outputs[] = {(void *)(uintptr_t)device_y, (void *)(uintptr_t)device_count};
    return nnefc_enqueue(session, inputs, outputs, stream);
}

static nnefc_status run_with_peer(nnefc_session *session) {
    const void *inputs[] = {(void *)(uintptr_t)peer_x};
    void *outputs[] = {(void *)(uintptr_t)peer_y, &count};
    return nnefc_run(session, inputs, outputs);
}

/* A session that failed once works as before. */
static void works(nnefc_session *session) {
    CHECK(nnefc_reset(session) == NNEFC_OK && nnefc_last_error(session)[0] == '\0');
    for (int64_t i = 1; i <= 3; i++) CHECK(run(session) == NNEFC_OK && count == 5 + i && isfinite(y[COUNT - 1]));
}

/* Whether the whole life passed without a failure. */
static bool live(void) {
    nnefc_session *session = NULL;
    if (!succeeds(nnefc_create(NULL, &session), NULL)) {
        CHECK(session == NULL);
        CHECK(nnefc_create(NULL, &session) == NNEFC_OK);
    }
    for (int i = 0; i < 2; i++)
        if (!succeeds(run(session), session)) works(session);
    if (!succeeds(run_with_peer(session), session)) works(session);
    for (int i = 0; i < 3; i++)
        if (!succeeds(enqueue(session, i == 1 ? (void *)1 : NULL), session)) works(session);
    if (!succeeds(nnefc_synchronize(session), session)) works(session);
    if (!succeeds(nnefc_reset(session), session)) works(session);
    if (!succeeds(enqueue(session, NULL), session)) works(session);
    succeeds(nnefc_destroy(session), NULL);
    CHECK(fake.depth() == 1);
    return failing > 0;
}

static size_t lines(const char *text) {
    size_t number = 0;
    for (; *text != '\0'; text++) number += *text == '\n';
    return number;
}

/* With every call failing in turn; with another session next to it, or as the only one. */
static void in_turn(int result, bool with_other) {
    with = result;
    for (unsigned n = 1;; n++) {
        nnefc_session *other = NULL;
        failing = 0;
        if (with_other) CHECK(nnefc_create(NULL, &other) == NNEFC_OK && run(other) == NNEFC_OK);
        size_t before = lines(fake.objects());
        fake.clear();
        failing = n;
        fake.fail(n, result, "");
        bool done = live();
        failing = 0;
        fake.fail(0, 0, "");
        CHECK(fake.complaints()[0] == '\0');
        if (with_other) CHECK(run(other) == NNEFC_OK && count == 5 + 2);
        CHECK(lines(fake.objects()) == before);
        if (with_other) CHECK(nnefc_destroy(other) == NNEFC_OK);
        if (done) break;
    }
}

int main(void) {
    void *context, *peer;
    open_driver();
    fake.machine(2, 9, 0, 13000);
    for (int i = 0; i < COUNT; i++) x[i] = (float)i + 1;
    CHECK(fake.init(0) == 0 && fake.retain(&peer, 1) == 0 && fake.push(peer) == 0);
    CHECK(fake.allocate(&peer_x, sizeof x) == 0 && fake.allocate(&peer_y, sizeof y) == 0 && fake.pop(&peer) == 0);
    CHECK(fake.retain(&context, 0) == 0 && fake.push(context) == 0);
    CHECK(fake.allocate(&device_x, sizeof x) == 0 && fake.allocate(&device_y, sizeof y) == 0);
    CHECK(fake.allocate(&device_count, sizeof count) == 0);
    static const int results[] = {OUT_OF_MEMORY, ILLEGAL_ADDRESS, UNKNOWN};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        in_turn(results[i], false);
        in_turn(results[i], true);
    }
    CHECK(fake.free(device_x) == 0 && fake.free(device_y) == 0 && fake.free(device_count) == 0);
    CHECK(fake.pop(&context) == 0 && fake.release(0) == 0 && fake.release(1) == 0); /* and what is in them */
    CHECK(fake.objects()[0] == '\0');
    printf("%u\n", failures);
    return 0;
}
