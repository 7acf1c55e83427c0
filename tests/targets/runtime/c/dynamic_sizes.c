/* Uses a session with dynamic dimensions in every way that nnefc.h allows: linked with the runtime and dynamic_network.c, for
 * sanitizers and emulators. Built with COUNT_ALLOCATIONS it also checks which calls allocate, and refuses them memory. Prints
 * "ok". */
#include "allocations.h"
#include "nnefc.h"

enum { MAX_N = 8, MAX_W = 256 };

static float x[MAX_N * MAX_W], scale[MAX_W], y[MAX_N * MAX_W];
static double sums[MAX_N];

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

static void check_values(int64_t n, int64_t w, const float *products, const double *totals) {
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t j = 0; j < w; j++) {
            CHECK(products[i * w + j] == x[i * w + j] * scale[j]);
            sum += x[i * w + j] * scale[j];
        }
        CHECK(totals[i] == sum);
    }
}

/* Through nnefc_run_sized, into memory of the session's or of the caller's; returns the status. */
static nnefc_status run(nnefc_session *session, int64_t n, int64_t w, int own_memory) {
    const int64_t shape[] = {n, w}, *rows = &shape[1];
    nnefc_input inputs[] = {{x, (uint64_t)(n * w) * sizeof *x, shape}, {scale, (uint64_t)w * sizeof *scale, rows}};
    nnefc_output outputs[] = {{0}, {0}};
    if (own_memory) {
        outputs[0].memory = y, outputs[0].capacity = sizeof y;
        outputs[1].memory = sums, outputs[1].capacity = sizeof sums;
        memset(y, 1, sizeof y);
    }
    nnefc_status status = nnefc_run_sized(session, inputs, outputs);
    if (status != NNEFC_OK) return status;
    CHECK(outputs[0].shape[0] == n && outputs[0].shape[1] == w && outputs[1].shape[0] == n);
    CHECK(outputs[0].bytes == inputs[0].bytes && outputs[1].bytes == (uint64_t)n * sizeof(double));
    CHECK(!own_memory || (outputs[0].data == y && outputs[1].data == sums));
    check_values(n, w, outputs[0].data, outputs[1].data);
    return status;
}

/* Through nnefc_resize and nnefc_run. */
static nnefc_status resize_and_run(nnefc_session *session, int64_t n, int64_t w) {
    const int64_t shape[] = {n, w}, *shapes[] = {shape, &shape[1]};
    nnefc_status status = nnefc_resize(session, shapes);
    if (status != NNEFC_OK) return status;
    const void *inputs[] = {x, scale};
    void *outputs[] = {y, sums};
    status = nnefc_run(session, inputs, outputs);
    if (status == NNEFC_OK) check_values(n, w, y, sums);
    return status;
}

static void describes(void) {
    const nnefc_description *network = nnefc_describe();
    CHECK(network->abi_version == NNEFC_OPEN_ABI_VERSION && network->struct_size == sizeof *network);
    CHECK(network->dimension_count == 2);
    const nnefc_dimension *w = &network->dimensions[1];
    CHECK(strcmp(w->name, "w") == 0 && w->least == 8 && w->most == MAX_W && w->multiple == 4 && w->typical == 128);
    CHECK(network->inputs[0].shape[0] == -1 && network->inputs[0].shape[1] == -2 && network->inputs[1].shape[0] == -2);
    CHECK(network->inputs[0].bytes == 0);
}

static void sizes_change(void) {
    nnefc_session *session = create(NULL, 0);
    CHECK(nnefc_output_shape(session, 0) == NULL);
    const void *inputs[] = {x, scale};
    void *outputs[] = {y, sums};
    CHECK(nnefc_run(session, inputs, outputs) == NNEFC_BAD_ARGUMENT);
    CHECK(strstr(nnefc_last_error(session), "call nnefc_resize before") != NULL);
    for (int round = 0; round < 2; round++)
        for (int64_t n = 1; n <= MAX_N; n++)
            for (int64_t w = 8; w <= MAX_W; w += 52) {
                int before = calls;
                CHECK(run(session, n, w, (int)(n + w) % 2) == NNEFC_OK);
                CHECK(resize_and_run(session, n, w) == NNEFC_OK);
                CHECK(round == 0 || calls == before); /* all these sizes were there */
            }
    CHECK(!COUNTS || calls > 0);
    CHECK(nnefc_output_shape(session, 1)[0] == MAX_N && nnefc_output_shape(session, 2) == NULL);
    CHECK(nnefc_output_shape(NULL, 0) == NULL && nnefc_resize(NULL, NULL) == NNEFC_BAD_ARGUMENT);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
}

/* After nnefc_reserve nothing is allocated, in whatever order sizes come; and sizes that were set stay. */
static void reserves(void) {
    for (int all = 0; all < 2; all++) {
        nnefc_session *session = create(NULL, 0);
        CHECK(resize_and_run(session, 1, MAX_W) == NNEFC_OK);
        const int64_t most[] = {MAX_N, 128};
        CHECK(nnefc_reserve(session, all ? NULL : most, 1) == NNEFC_OK);
        CHECK(nnefc_output_shape(session, 0)[1] == MAX_W);
        const void *inputs[] = {x, scale};
        void *outputs[] = {y, sums};
        CHECK(nnefc_run(session, inputs, outputs) == NNEFC_OK);
        check_values(1, MAX_W, y, sums);
        int before = calls;
        for (int i = 0; i < 200; i++) {
            int64_t n = 1 + i * 37 % MAX_N, w = 8 + i * 12 % (all ? MAX_W - 7 : 121) / 4 * 4;
            CHECK(run(session, n, w, i % 2) == NNEFC_OK);
        }
        CHECK(calls == before);
        CHECK(nnefc_destroy(session) == NNEFC_OK);
    }
}

static void expect(nnefc_session *session, nnefc_status answer, nnefc_status wanted, const char *text) {
    if (answer == wanted && strstr(nnefc_last_error(session), text) != NULL) return;
    fprintf(stderr, "%d \"%s\" instead of %d \"%s\"\n", answer, nnefc_last_error(session), wanted, text);
    exit(1);
}

static void refusals(void) {
    nnefc_session *session = create(NULL, 0);
    const nnefc_status bad = NNEFC_BAD_ARGUMENT;
    expect(session, run(session, 0, 8, 0), bad, "dimension 0 of input \"x\" is 0, but the network takes 1 to 8 for \"n\"");
    expect(session, run(session, 9, 8, 0), bad, "dimension 0 of input \"x\" is 9, but the network takes 1 to 8");
    expect(session, run(session, -1, 8, 0), bad, "is -1, but");
    expect(session, run(session, 1, INT64_MAX, 0), bad, "dimension 1 of input \"x\" is 9223372036854775807");
    expect(session, run(session, 1, 10, 0), bad, "is 10, but the network takes multiples of 4 for \"w\"");
    const int64_t shape[] = {2, 8}, other[] = {12}, *shapes[] = {shape, other}, *none[] = {shape, NULL};
    expect(session, nnefc_resize(session, shapes), bad,
           "dimension 0 of input \"scale\" is 12, but another dimension \"w\" is 8: both are the same");
    expect(session, nnefc_resize(session, none), bad, "the shape of input \"scale\" is null");
    expect(session, nnefc_resize(session, NULL), bad, "input_shapes is null");
    expect(session, nnefc_run_sized(session, NULL, NULL), bad, "inputs is null");
    const int64_t wrong[] = {9, 8};
    expect(session, nnefc_reserve(session, wrong, 0), bad, "a size is 9, but the network takes 1 to 8 for \"n\"");
    expect(session, nnefc_reserve(session, NULL, 2), bad, "outputs is 2, not 0 or 1");
    CHECK(run(session, 2, 8, 0) == NNEFC_OK && nnefc_output_shape(session, 0) != NULL);
    expect(session, nnefc_resize(session, none), bad, "is null"); /* leaves no sizes behind that the caller does not know */
    CHECK(nnefc_output_shape(session, 0) == NULL);

    nnefc_input inputs[] = {{x, sizeof(float) * 16, shape}, {scale, sizeof(float) * 8, &shape[1]}};
    nnefc_output outputs[] = {{y, sizeof(float) * 16, NULL, 0, NULL}, {sums, 8, NULL, 0, NULL}};
    y[0] = -1;
    expect(session, nnefc_run_sized(session, inputs, outputs), NNEFC_TOO_SMALL,
           "output \"sums\" has 16 bytes, but memory for 8");
    CHECK(y[0] == -1 && outputs[0].bytes == 64 && outputs[1].bytes == 16 && outputs[1].shape[0] == 2);
    CHECK(strcmp(nnefc_status_name(NNEFC_TOO_SMALL), "too small") == 0);
    outputs[1].capacity = 16;
    CHECK(nnefc_run_sized(session, inputs, outputs) == NNEFC_OK);
    inputs[0].bytes--;
    expect(session, nnefc_run_sized(session, inputs, outputs), bad, "input \"x\" has 63 bytes, but 64 by its shape");
    inputs[0].bytes++, inputs[0].data = NULL;
    expect(session, nnefc_run_sized(session, inputs, outputs), bad, "input \"x\" is null");
    const void *pointers[] = {x, (const char *)scale + 1};
    void *results[] = {y, sums};
    expect(session, nnefc_run(session, pointers, results), bad, "input \"scale\" is not aligned to its elements of 4 bytes");
    pointers[1] = scale, results[1] = NULL;
    expect(session, nnefc_run(session, pointers, results), bad, "output \"sums\" is null");
    CHECK(nnefc_destroy(session) == NNEFC_OK);
}

/* A workspace of the caller's is used as far as it goes. */
static void own_workspace(void) {
    enum { UNIT = 64 * 4, BYTES = 25 * UNIT }; /* those of {8, 16} */
    void *workspace = aligned_alloc(64, BYTES);
    nnefc_session *session = create(workspace, BYTES);
    CHECK(run(session, 8, 16, 0) == NNEFC_OK);
    expect(session, run(session, 8, 20, 0), NNEFC_BAD_ARGUMENT, "the workspace has 6400 bytes, but the network needs 8000");
    expect(session, nnefc_reserve(session, NULL, 0), NNEFC_BAD_ARGUMENT, "the workspace has 6400 bytes");
    const int64_t most[] = {8, 16};
    CHECK(nnefc_reserve(session, most, 0) == NNEFC_OK);
    for (int64_t n = 1; n <= 8; n++) CHECK(run(session, n, 16, 1) == NNEFC_OK);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
    free(workspace);
}

/* Every request for memory is refused once: that is a status, nothing is lost, and the next try has all it needs. */
static void memory_is_refused(void) {
    nnefc_options options = {0};
    options.struct_size = sizeof options;
    options.threads = 1;
    int before = held, refused = 0;
    for (int n = 1, ended = 0; !ended; n++) {
        nnefc_session *session = NULL;
        countdown = n;
        nnefc_status status = nnefc_create(&options, &session);
        if (status == NNEFC_OK) {
            status = run(session, 2, 8, 0);
            CHECK(status == NNEFC_OK || (status == NNEFC_OUT_OF_MEMORY && nnefc_last_error(session)[0] != '\0'));
            if (status == NNEFC_OK) status = nnefc_reserve(session, NULL, 1);
            ended = countdown > 0;
            countdown = 0;
            CHECK(resize_and_run(session, 3, 12) == NNEFC_OK && run(session, 8, 256, 0) == NNEFC_OK);
            CHECK(nnefc_destroy(session) == NNEFC_OK);
        }
        CHECK(status == NNEFC_OUT_OF_MEMORY || status == NNEFC_OK); /* OK: what failed could be done without */
        refused += status == NNEFC_OUT_OF_MEMORY;
        CHECK(held == before);
    }
    CHECK(refused > 12); /* the session, its lists, the workspace twice, each output twice */
}

int main(void) {
    for (int i = 0; i < MAX_N * MAX_W; i++) x[i] = (float)(i % 251) - 125;
    for (int i = 0; i < MAX_W; i++) scale[i] = (float)(i % 7) / 4;
    describes();
    sizes_change();
    reserves();
    refusals();
    own_workspace();
    if (COUNTS) memory_is_refused();
    puts("ok");
    return 0;
}
