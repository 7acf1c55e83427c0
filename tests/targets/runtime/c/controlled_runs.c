/* Runs for some outputs, runs in a thread of the session's own, times of kernels and messages, with the network of
 * controlled_network.c, which this program is linked with, and the runtime, too. Prints "ok". */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "controlled.h"

static uint64_t calls_of(const nnefc_session *session, uint32_t kernel) {
    nnefc_kernel_times times[CALLS];
    CHECK(nnefc_session_times(session, times, CALLS) == CALLS);
    return times[kernel].calls;
}

static void takes_times(void) {
    nnefc_session *session = create(1), *other = create(1);
    nnefc_kernel_times times[CALLS + 1];
    tensors t;
    fill(&t, 1);
    CHECK(nnefc_session_times(session, NULL, 0) == CALLS && nnefc_session_times(NULL, NULL, 0) == 0);
    CHECK(run(session, &t) == NNEFC_OK && calls_of(session, 0) == 0);
    CHECK(nnefc_time_kernels(session, 1) == NNEFC_OK);
    for (int i = 0; i < 3; i++) CHECK(run(session, &t) == NNEFC_OK && run(other, &t) == NNEFC_OK);
    CHECK(nnefc_session_times(session, times, 2) == CALLS);
    CHECK(strcmp(times[0].kernel, "add") == 0 && strcmp(times[0].tensors, "a\n") == 0 && strcmp(times[0].rule, "Rule") == 0);
    CHECK(times[0].operations == 4 && times[0].bytes == 32 && times[0].calls == 3 && times[0].nanoseconds >= times[0].last_nanoseconds);
    CHECK(times[0].last_begin > 0 && calls_of(session, 3) == 3 && calls_of(other, 0) == 0);
    CHECK(nnefc_time_kernels(session, 0) == NNEFC_OK && run(session, &t) == NNEFC_OK && calls_of(session, 0) == 3);
    CHECK(nnefc_time_kernels(session, 1) == NNEFC_OK && calls_of(session, 0) == 0);
    CHECK(nnefc_time_kernels(session, 2) == NNEFC_BAD_ARGUMENT && strcmp(nnefc_last_error(session), "on is 2, not 0 or 1") == 0);
    CHECK(nnefc_time_kernels(NULL, 1) == NNEFC_BAD_ARGUMENT);
    CHECK(nnefc_destroy(session) == NNEFC_OK && nnefc_destroy(other) == NNEFC_OK);
}

static void computes_some_outputs(void) {
    nnefc_session *session = create(1);
    tensors t;
    const struct { uint8_t selected[3]; const char *computed; uint64_t calls[CALLS]; } cases[] = {
        {{1, 0, 0}, "a", {1, 0, 0, 1}}, {{0, 1, 0}, "b", {1, 1, 0, 1}}, {{0, 0, 9}, "c", {0, 0, 1, 1}},
        {{0, 1, 1}, "bc", {1, 1, 1, 1}}, {{0, 0, 0}, "", {0, 0, 0, 1}}, {{1, 1, 1}, "abc", {1, 1, 1, 1}},
    };
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int with_pointers = 0; with_pointers < 2; with_pointers++) {
                fill(&t, 1);
                for (int j = 0; j < 3; j++)
                    if (!cases[i].selected[j] && !with_pointers) t.outputs[j] = NULL;
                CHECK(nnefc_select_outputs(session, cases[i].selected) == NNEFC_OK && nnefc_time_kernels(session, 1) == NNEFC_OK);
                CHECK(run(session, &t) == NNEFC_OK && has(&t, cases[i].computed));
                for (uint32_t call = 0; call < CALLS; call++) CHECK(calls_of(session, call) == cases[i].calls[call]);
            }
    CHECK(nnefc_select_outputs(session, cases[2].selected) == NNEFC_OK && nnefc_select_outputs(session, NULL) == NNEFC_OK);
    fill(&t, 1);
    CHECK(run(session, &t) == NNEFC_OK && has(&t, "abc"));
    t.outputs[1] = NULL;
    CHECK(run(session, &t) == NNEFC_BAD_ARGUMENT && strcmp(nnefc_last_error(session), "output \"b\" is null") == 0);
    CHECK(nnefc_select_outputs(NULL, NULL) == NNEFC_BAD_ARGUMENT);
    int64_t runs = 0;
    CHECK(nnefc_get_state(session, 0, &runs) == NNEFC_OK && runs == 25);
    CHECK(nnefc_destroy(session) == NNEFC_OK);
}

/* What a callback was given, for the thread that waits for it. */
typedef struct outcome {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int count;
    nnefc_status status;
    char error[128];
    nnefc_session *session; /* on which it begins so many further runs, and which it tries to destroy */
    tensors *tensors;
    int further;
} outcome;

static void note(void *context, nnefc_status status, const char *error) {
    outcome *found = context;
    if (found->session != NULL) CHECK(nnefc_destroy(found->session) == NNEFC_BUSY);
    if (found->further > 0) {
        found->further--;
        CHECK(status == NNEFC_OK && has(found->tensors, "abc"));
        fill(found->tensors, (float)found->further);
        CHECK(nnefc_run_async(found->session, found->tensors->inputs, found->tensors->outputs, note, found) == NNEFC_OK);
    }
    pthread_mutex_lock(&found->mutex);
    found->count++;
    found->status = status;
    snprintf(found->error, sizeof found->error, "%s", error);
    pthread_cond_signal(&found->changed);
    pthread_mutex_unlock(&found->mutex);
}

static void wait_for(outcome *found, int count) {
    pthread_mutex_lock(&found->mutex);
    while (found->count < count) pthread_cond_wait(&found->changed, &found->mutex);
    pthread_mutex_unlock(&found->mutex);
}

#define OUTCOME {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

static nnefc_status begin(nnefc_session *session, tensors *t, outcome *found) {
    const void *inputs[] = {t->inputs[0]}; /* gone when the call has returned */
    void *outputs[] = {t->outputs[0], t->outputs[1], t->outputs[2]};
    return nnefc_run_async(session, inputs, outputs, note, found);
}

static void runs_by_itself(int32_t threads) {
    nnefc_session *session = create(threads);
    tensors t;
    fill(&t, 2);
    CHECK(run(session, &t) == NNEFC_OK); /* has set the sizes */
    outcome first = OUTCOME, chain = OUTCOME, ended = OUTCOME, wrong = OUTCOME, last = OUTCOME;
    fill(&t, 3);
    CHECK(begin(session, &t, &first) == NNEFC_OK);
    wait_for(&first, 1);
    CHECK(first.status == NNEFC_OK && *first.error == '\0' && has(&t, "abc"));
    chain.session = session, chain.tensors = &t, chain.further = 100;
    fill(&t, 1);
    CHECK(begin(session, &t, &chain) == NNEFC_OK);
    wait_for(&chain, 101);
    CHECK(chain.status == NNEFC_OK);

    fill(&t, -1); /* until it is cancelled */
    CHECK(begin(session, &t, &ended) == NNEFC_OK);
    CHECK(run(session, &t) == NNEFC_BUSY && begin(session, &t, &first) == NNEFC_BUSY && nnefc_time_kernels(session, 1) == NNEFC_BUSY);
    for (int done = 0; !done; usleep(1000)) {
        CHECK(nnefc_cancel(session) == NNEFC_OK); /* it may not have begun */
        pthread_mutex_lock(&ended.mutex);
        done = ended.count;
        pthread_mutex_unlock(&ended.mutex);
    }
    CHECK(ended.status == NNEFC_CANCELLED && strcmp(ended.error, "another thread has ended the run") == 0);

    fill(&t, 1);
    t.outputs[2] = NULL;
    CHECK(begin(session, &t, &wrong) == NNEFC_OK);
    wait_for(&wrong, 1);
    CHECK(wrong.status == NNEFC_BAD_ARGUMENT && strcmp(wrong.error, "output \"c\" is null") == 0);
    CHECK(nnefc_run_async(session, NULL, t.outputs, note, &wrong) == NNEFC_BAD_ARGUMENT && wrong.count == 1);
    CHECK(nnefc_run_async(session, t.inputs, t.outputs, NULL, NULL) == NNEFC_BAD_ARGUMENT);
    CHECK(nnefc_run_async(NULL, t.inputs, t.outputs, note, NULL) == NNEFC_BAD_ARGUMENT);

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) { /* without the session's threads */
        outcome own = OUTCOME;
        fill(&t, 5);
        if (begin(session, &t, &own) != NNEFC_OK || own.count != 1 || own.status != NNEFC_OK || !has(&t, "abc")) _exit(1);
        _exit(nnefc_destroy(session) == NNEFC_OK ? 0 : 2);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    fill(&t, 4);
    CHECK(begin(session, &t, &last) == NNEFC_OK);
    CHECK(nnefc_destroy(session) == NNEFC_OK); /* waits */
    CHECK(last.count == 1 && last.status == NNEFC_OK && has(&t, "abc"));
}

#ifdef NNEFC_OPEN
static void runs_of_any_size(void) {
    nnefc_session *session = create(1);
    const uint8_t only_b[] = {0, 1, 0};
    CHECK(nnefc_select_outputs(session, only_b) == NNEFC_OK);
    for (int64_t n = 1; n <= 8; n++) {
        float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, b[8], untouched = -7;
        outcome found = OUTCOME;
        nnefc_input input = {x, (uint64_t)n * sizeof *x, &n};
        nnefc_output outputs[] = {{.memory = &untouched, .capacity = sizeof untouched}, {.memory = b, .capacity = sizeof b}, {0}};
        if (n % 2 == 0) {
            CHECK(nnefc_run_sized(session, &input, outputs) == NNEFC_OK);
        } else {
            CHECK(nnefc_run_sized_async(session, &input, outputs, note, &found) == NNEFC_OK);
            wait_for(&found, 1);
            CHECK(found.status == NNEFC_OK);
        }
        CHECK(outputs[0].data == NULL && outputs[0].bytes == 0 && outputs[2].data == NULL && untouched == -7);
        CHECK(outputs[1].data == b && outputs[1].shape[0] == n && b[n - 1] == 2 * (x[n - 1] + 1));
        void *pointers[] = {NULL, b, NULL};
        const void *inputs[] = {x};
        b[0] = 0;
        CHECK(nnefc_run(session, inputs, pointers) == NNEFC_OK && b[0] == 4); /* with the same sizes */
        outputs[1].capacity = 0;
        CHECK(nnefc_run_sized(session, &input, outputs) == NNEFC_TOO_SMALL);
    }
    CHECK(nnefc_destroy(session) == NNEFC_OK);
}
#endif

typedef struct messages {
    atomic_int count[NNEFC_LOG_DEBUG + 1];
    char last[256];
} messages;

static void keep(void *context, int32_t level, const char *message) {
    messages *found = context;
    found->count[level]++;
    snprintf(found->last, sizeof found->last, "%s", message);
}

static void count(void *context, int32_t level, const char *message) {
    (void)message;
    atomic_fetch_add(&((messages *)context)->count[level], 1);
}

static void *fails(void *stop) {
    while (!atomic_load((atomic_bool *)stop)) CHECK(nnefc_create(NULL, NULL) == NNEFC_BAD_ARGUMENT);
    return NULL;
}

static void logs(void) {
    messages found = {0}, others = {0};
    nnefc_set_log(keep, &found, NNEFC_LOG_INFO);
    nnefc_session *session = create(1);
    CHECK(found.count[NNEFC_LOG_INFO] == 1 && strstr(found.last, "a session of controlled for here: 1 threads") == found.last);
    CHECK(nnefc_time_kernels(session, 3) == NNEFC_BAD_ARGUMENT && found.count[NNEFC_LOG_ERROR] == 1);
    CHECK(strcmp(found.last, nnefc_last_error(session)) == 0);
    CHECK(nnefc_destroy(create(200)) == NNEFC_OK && found.count[NNEFC_LOG_WARNING] == 1);
    nnefc_set_log(keep, &found, NNEFC_LOG_WARNING);
    CHECK(nnefc_destroy(create(1)) == NNEFC_OK && found.count[NNEFC_LOG_INFO] == 2);
    nnefc_set_log(NULL, NULL, NNEFC_LOG_DEBUG);
    CHECK(nnefc_time_kernels(session, 3) == NNEFC_BAD_ARGUMENT && found.count[NNEFC_LOG_ERROR] == 1);
    CHECK(nnefc_destroy(session) == NNEFC_OK);

    atomic_bool stop = false;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, fails, &stop) == 0);
    while (atomic_load(&others.count[NNEFC_LOG_ERROR]) < 50) { /* each function is left when the next one is set */
        messages now = {0};
        nnefc_set_log(count, &now, NNEFC_LOG_ERROR);
        sched_yield();
        nnefc_set_log(count, &others, NNEFC_LOG_ERROR);
        memset(&now, 1, sizeof now);
        sched_yield();
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    nnefc_set_log(NULL, NULL, 0);
}

int main(void) {
    takes_times();
    computes_some_outputs();
    runs_by_itself(1);
    runs_by_itself(2);
#ifdef NNEFC_OPEN
    runs_of_any_size();
#endif
    logs();
    uses_resources();
    puts("ok");
    return 0;
}
