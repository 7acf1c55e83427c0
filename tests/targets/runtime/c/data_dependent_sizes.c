/* Uses a session of a network whose output is as large as the data say: linked with the runtime and data_dependent_network.c, for
 * sanitizers and emulators. Built with COUNT_ALLOCATIONS it also checks which calls allocate, and refuses them memory. Prints
 * "ok". */
#include "allocations.h"
#include "nnefc.h"

enum { MAX_N = 16, MAX_ROWS = 1000 };

static float x[MAX_N], y[2 * MAX_ROWS];
static const float *last; /* where the last output is */

static nnefc_session *create(void *workspace, uint64_t bytes) {
    nnefc_options options = {0};
    nnefc_session *session = NULL;
    options.struct_size = sizeof options;
    options.threads = 1;
    options.workspace = workspace;
    options.workspace_bytes = bytes;
    CHECK(nnefc_create(&options, &session) == NNEFC_OK);
    return session;
}

/* Runs with n inputs whose sum is `rows`, into the session's memory or so many bytes of the caller's. */
static nnefc_status run(nnefc_session *session, int64_t n, int64_t rows, uint64_t capacity) {
    int64_t total = -1;
    const int64_t shape[] = {n};
    for (int64_t i = 0; i < n; i++) x[i] = 1;
    x[0] = (float)(rows - (n - 1));
    nnefc_input input = {x, (uint64_t)n * sizeof *x, shape};
    nnefc_output outputs[] = {{0}, {&total, sizeof total, NULL, 0, NULL}};
    if (capacity > 0) outputs[0].memory = y, outputs[0].capacity = capacity;
    nnefc_status status = nnefc_run_sized(session, &input, outputs);
    if (status == NNEFC_OK || status == NNEFC_TOO_SMALL) {
        CHECK(outputs[0].shape[0] == rows && outputs[0].shape[1] == 2 && outputs[0].bytes == 8 * (uint64_t)rows);
        CHECK(total == rows && outputs[1].bytes == sizeof total);
    }
    if (status != NNEFC_OK) return status;
    CHECK(nnefc_output_shape(session, 0)[0] == rows);
    const float *found = last = outputs[0].data;
    CHECK(capacity == 0 || found == y);
    for (int64_t i = 0; i < rows; i++) CHECK(found[2 * i] == x[i % n] && found[2 * i + 1] == (float)i);
    return status;
}

static void expect(nnefc_session *session, nnefc_status answer, nnefc_status wanted, const char *text) {
    if (answer == wanted && strstr(nnefc_last_error(session), text) != NULL) return;
    fprintf(stderr, "%d \"%s\" instead of %d \"%s\"\n", answer, nnefc_last_error(session), wanted, text);
    exit(1);
}

/* Only a size larger than any before allocates. */
static void sizes_grow(void) {
    nnefc_session *session = create(NULL, 0);
    const int64_t rows[] = {3, 900, 1, 0, 899, 900, 3}, inputs[] = {2, 16, 1, 5, 16, 3, 2};
    int after = 0;
    for (int i = 0; i < 7; i++) {
        int before = calls;
        CHECK(run(session, inputs[i], rows[i], i % 2 ? sizeof y : 0) == NNEFC_OK);
        if (i == 3) after = calls;
        CHECK(i <= 4 || calls == before);
    }
    CHECK(!COUNTS || after > 0);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
}

static void reserves(void) {
    nnefc_session *session = create(NULL, 0);
    const int64_t maximum[] = {MAX_N, 700}, wrong[] = {MAX_N, MAX_ROWS + 1};
    expect(session, nnefc_reserve(session, wrong, 0), NNEFC_BAD_ARGUMENT, "a size is 1001, but the network takes 0 to 1000 for \"rows\"");
    CHECK(nnefc_reserve(session, maximum, 1) == NNEFC_OK);
    int before = calls;
    for (int64_t rows = 0; rows <= 700; rows += 70) CHECK(run(session, 1 + rows % MAX_N, rows, 0) == NNEFC_OK);
    CHECK(calls == before);
    CHECK(nnefc_reserve(session, NULL, 1) == NNEFC_OK && last[2 * 699 + 1] == 699);
    before = calls;
    CHECK(run(session, 16, MAX_ROWS, 0) == NNEFC_OK && calls == before);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
}

static void refusals(void) {
    nnefc_session *session = create(NULL, 0);
    const int64_t shape[] = {2}, *shapes[] = {shape};
    CHECK(nnefc_resize(session, shapes) == NNEFC_OK && nnefc_output_shape(session, 0)[0] == NNEFC_COUNTED);
    int64_t total;
    const void *inputs[] = {x};
    void *outputs[] = {y, &total};
    expect(session, nnefc_run(session, inputs, outputs), NNEFC_BAD_ARGUMENT, "only a run tells how large output \"y\" is");
    expect(session, run(session, 2, 10, 79), NNEFC_TOO_SMALL, "output \"y\" has 80 bytes, but memory for 79");
    CHECK(run(session, 2, 10, 80) == NNEFC_OK);
    expect(session, run(session, 2, -1, 0), NNEFC_KERNEL_ERROR, "a negative size");
    CHECK(run(session, 2, 10, 0) == NNEFC_OK);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
}

/* A workspace of the caller's has all parts, one behind the other. */
static void own_workspace(void) {
    enum { BYTES = 64 * 4 + 8 * 32 };
    void *workspace = aligned_alloc(64, BYTES);
    nnefc_session *session = create(workspace, BYTES);
    CHECK(run(session, 4, 32, 0) == NNEFC_OK && run(session, 1, 56, 0) == NNEFC_OK);
    expect(session, run(session, 4, 33, 0), NNEFC_BAD_ARGUMENT, "the workspace has 512 bytes, but the network needs 576");
    expect(session, run(session, 9, 33, 0), NNEFC_BAD_ARGUMENT, "the workspace has 512 bytes, but the network needs 576");
    const int64_t maximum[] = {4, 32}, more[] = {5, 32};
    CHECK(nnefc_reserve(session, maximum, 0) == NNEFC_OK);
    expect(session, nnefc_reserve(session, more, 0), NNEFC_BAD_ARGUMENT, "the workspace has 512 bytes");
    CHECK(run(session, 8, 0, 0) == NNEFC_OK);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
    free(workspace);
}

/* Every request for memory is refused once: that is a status, nothing is lost, and the next try has all it needs. */
static void memory_is_refused(void) {
    int before = held, refused = 0;
    for (int n = 1, ended = 0; !ended; n++) {
        nnefc_session *session = create(NULL, 0);
        countdown = n;
        nnefc_status status = run(session, 2, 20, 0);
        CHECK(status == NNEFC_OK || (status == NNEFC_OUT_OF_MEMORY && nnefc_last_error(session)[0] != '\0'));
        ended = countdown > 0;
        countdown = 0;
        CHECK(run(session, 3, 12, 0) == NNEFC_OK && run(session, 8, 256, 0) == NNEFC_OK);
        CHECK(nnefc_destroy(session) == NNEFC_OK);
        refused += status == NNEFC_OUT_OF_MEMORY;
        CHECK(held == before);
    }
    CHECK(refused >= 3); /* both parts of the workspace, and the output */
}

int main(void) {
    sizes_grow();
    reserves();
    refusals();
    own_workspace();
    if (COUNTS) memory_is_refused();
    puts("ok");
    return 0;
}
