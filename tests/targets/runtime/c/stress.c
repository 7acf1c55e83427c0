/* Uses a session in every way that nnefc.h allows, from many threads; for builds with sanitizers. With SECONDS SEED [LIBRARY …]
 * in random ways for so long, through libraries that are opened and closed if there are any: files of the same network. Prints "ok". */
#include <pthread.h>
#include <stdatomic.h>

#include "sessions.h"

enum { RUNS = 200, CALLERS = 4 };

static const nnefc_interface linked = NNEFC_INTERFACE(nnefc);

static nnefc_session *create(int32_t threads) {
    nnefc_options options = {0};
    nnefc_session *session = NULL;
    options.struct_size = sizeof options;
    options.threads = threads;
    CHECK(nnefc_create(&options, &session) == NNEFC_OK);
    return session;
}

static nnefc_status run(nnefc_session *session, tensors *t) { return run_with(&linked, session, t); }

/* A session of its own, run many times. */
static void *own_session(void *argument) {
    int32_t threads = *(int32_t *)argument;
    nnefc_session *session = create(threads);
    static const float ways[] = {1, 1, -11, -3, -6}; /* usual, slow, one launch inside another, more tasks than threads */
    tensors t;
    for (int i = 0; i < RUNS; i++) {
        fill(&t, ways[i % 5], (float)i);
        CHECK(run(session, &t) == NNEFC_OK);
        CHECK(t.x[0] == -11 ? t.count >= 1 && t.count <= threads : t.count == 5 + i + 1);
        CHECK(right(&t));
    }
    fill(&t, -8, 0);
    CHECK(run(session, &t) == NNEFC_OK && right(&t));
    CHECK(nnefc_destroy(session) == NNEFC_OK);
    return NULL;
}

static nnefc_session *shared;
static atomic_int served, refused;

/* The same session from several threads: each call is either served, rightly, or refused. */
static void *shared_session(void *unused) {
    (void)unused;
    tensors t;
    for (int i = 0; i < RUNS; i++) {
        fill(&t, 1, (float)i);
        nnefc_status status = run(shared, &t);
        CHECK(status == NNEFC_OK || status == NNEFC_BUSY);
        if (status == NNEFC_OK) CHECK(right(&t));
        atomic_fetch_add(status == NNEFC_OK ? &served : &refused, 1);
    }
    return NULL;
}

static void in_threads(void *(*body)(void *), void *argument) {
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) CHECK(pthread_create(&threads[i], NULL, body, argument) == 0);
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
}

static void failures(void) {
    nnefc_session *session = create(3);
    static const struct {
        float way;
        const char *text;
    } cases[] = {{-1, "bad luck"}, {-2, "scratch"}, {-4, "parallel task failed with 9"}, {-7, "does not hold"}, {-9, "failed: a parallel"}, {-10, "function of TVM"}, {-12, "index 7"}};
    tensors t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fill(&t, cases[i].way, 0);
        CHECK(run(session, &t) == NNEFC_KERNEL_ERROR);
        CHECK(strstr(nnefc_last_error(session), cases[i].text) != NULL);
    }
    CHECK(nnefc_reset(session) == NNEFC_OK);
    CHECK(nnefc_last_error(session)[0] == '\0');
    fill(&t, 1, 0);
    CHECK(run(session, &t) == NNEFC_OK && t.count == 6 && right(&t));
    CHECK(run(NULL, &t) == NNEFC_BAD_ARGUMENT);
    CHECK(nnefc_run(session, NULL, NULL) == NNEFC_BAD_ARGUMENT);
    CHECK(nnefc_create(NULL, NULL) == NNEFC_BAD_ARGUMENT);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
    CHECK(nnefc_destroy(NULL) == NNEFC_OK);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        storm(atof(argv[1]), strtoull(argv[2], NULL, 10), argc - 3, argv + 3);
        puts("ok");
        return 0;
    }
    for (int32_t threads = 1; threads <= 4; threads++) in_threads(own_session, &threads);
    shared = create(2);
    in_threads(shared_session, NULL);
    CHECK(served + refused == CALLERS * RUNS && served > 0);
    CHECK(nnefc_destroy(shared) == NNEFC_OK);
    for (int i = 0; i < 50; i++) nnefc_destroy(create(4)); /* threads that never worked */
    failures();
    puts("ok");
    return 0;
}
