/* Sessions in random ways from many threads, while signals arrive and the system takes processors and memory away: threads of the
 * sessions' own, bound ones and the caller's; runs that are right, and runs that fail; forks, whose children go on with the session
 * and make others, at last with hardly any memory; sessions that several threads run; libraries that are opened and closed. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sessions.h"

enum { CALLERS = 5, MAX_THREADS = 6, SIGNAL_MICROSECONDS = 700 };

#if defined(__has_feature) /* clang; GCC defines macros */
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define HAS_SANITIZER
#endif
#endif

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(HAS_SANITIZER)
enum { FORKS = false }; /* in a child, locks of the sanitizer's may be held by threads that it does not have */
#else
enum { FORKS = true };
#endif

static double end_of_storm;
static char **paths;
static int path_count;
static cpu_set_t everywhere;

static nnefc_session *shared; /* of the linked network */
static atomic_int program_threads, stray_signals;
static atomic_long sessions, runs, forks, signals;
static _Thread_local bool is_of_program;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A number below `count`, by xorshift. */
static uint32_t any(uint64_t *state, uint32_t count) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return (uint32_t)(*state >> 33) % count;
}

static void on_signal(int number) {
    (void)number;
    atomic_fetch_add(&signals, 1);
    if (!is_of_program) atomic_fetch_add(&stray_signals, 1);
}

/* A pool of the caller's: tasks one after the other, the last one first. */
static void backwards(void *pool, uint32_t count, void (*task)(void *context, uint32_t i), void *context) {
    (void)pool;
    while (count-- > 0) task(context, count);
}

static void some_runs(const nnefc_interface *network, nnefc_session *session, uint64_t *state) {
    static const float ways[] = {1, 1, 1, 1, -3, -6, -11, -8, -4, -12};
    tensors t;
    for (uint32_t left = any(state, 8); left-- > 0;) {
        fill(&t, ways[any(state, sizeof ways / sizeof *ways)], (float)any(state, 100));
        nnefc_status status = run_with(network, session, &t);
        atomic_fetch_add(&runs, 1);
        if (t.x[0] == -4 || t.x[0] == -12) {
            CHECK(status == NNEFC_KERNEL_ERROR && network->last_error(session)[0] != '\0');
            CHECK(network->reset(session) == NNEFC_OK);
        } else {
            CHECK(status == NNEFC_OK && right(&t));
        }
    }
}

/* What a forked child does: it has the session, but not its threads; and with less and less memory it makes others. */
static void child(const nnefc_interface *network, nnefc_session *session, uint64_t *state) {
    some_runs(network, session, state);
    CHECK(network->destroy(session) == NNEFC_OK);
    for (rlim_t more = 8 << 20; more > 0; more /= 2) {
        struct rlimit limit = {0, 0};
        unsigned long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        if (file != NULL && fscanf(file, "%lu", &pages) == 1) {
            limit.rlim_cur = limit.rlim_max = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
            setrlimit(RLIMIT_AS, &limit);
        }
        if (file != NULL) fclose(file);
        nnefc_options options = {.struct_size = sizeof options, .threads = 1 + (int32_t)any(state, 16)};
        nnefc_session *other = NULL;
        nnefc_status status = network->create(&options, &other);
        CHECK(status == NNEFC_OK || (status == NNEFC_OUT_OF_MEMORY && other == NULL));
        if (status != NNEFC_OK) continue;
        some_runs(network, other, state);
        CHECK(network->destroy(other) == NNEFC_OK);
    }
    _exit(0);
}

static void forked(const nnefc_interface *network, nnefc_session *session, uint64_t *state) {
    pid_t process = fork();
    atomic_fetch_add(&forks, 1);
    CHECK(process >= 0);
    if (process == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(100); /* ends a child that hangs */
        child(network, session, state);
    }
    int status = 0;
    CHECK(waitpid(process, &status, 0) == process);
    if (WIFSIGNALED(status)) fprintf(stderr, "a child was ended by signal %d\n", WTERMSIG(status));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Lets every thread of the process run on one processor or on all, as another program may. */
static void move_threads(uint64_t *state) {
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int thread = atoi(entry->d_name), processor = (int)any(state, 64);
        cpu_set_t set = everywhere;
        if (any(state, 2) == 0 && CPU_ISSET(processor, &everywhere)) {
            CPU_ZERO(&set);
            CPU_SET(processor, &set);
        }
        if (thread > 0) sched_setaffinity(thread, sizeof set, &set);
    }
    closedir(folder);
}

static nnefc_interface open_any(void **library, uint64_t *state) {
    nnefc_interface network = NNEFC_INTERFACE(nnefc);
    *library = NULL;
    if (path_count == 0) return network;
    *library = dlopen(paths[any(state, (uint32_t)path_count)], RTLD_NOW | RTLD_LOCAL);
    CHECK(*library != NULL);
    *(void **)&network.create = dlsym(*library, "nnefc_create");
    *(void **)&network.destroy = dlsym(*library, "nnefc_destroy");
    *(void **)&network.run = dlsym(*library, "nnefc_run");
    *(void **)&network.reset = dlsym(*library, "nnefc_reset");
    *(void **)&network.last_error = dlsym(*library, "nnefc_last_error");
    return network;
}

static void one_session(uint64_t *state) {
    void *library;
    nnefc_interface network = open_any(&library, state);
    nnefc_options options = {.struct_size = sizeof options, .threads = 1 + (int32_t)any(state, MAX_THREADS)};
    options.keep_subnormals = (int32_t)any(state, 2);
    int32_t processors[MAX_THREADS];
    uint32_t whose = any(state, 4);
    if (whose == 0) options.parallel_for = backwards;
    for (int i = 0; whose == 1 && i < options.threads; i++) {
        processors[i] = -1;
        for (uint32_t left = 1 + any(state, (uint32_t)CPU_COUNT(&everywhere)); left > 0;)
            if (CPU_ISSET(++processors[i], &everywhere)) left--;
        options.processors = processors;
    }
    nnefc_session *session = NULL;
    CHECK(network.create(&options, &session) == NNEFC_OK);
    some_runs(&network, session, state);
    if (FORKS && any(state, 8) == 0) forked(&network, session, state);
    some_runs(&network, session, state);
    CHECK(network.destroy(session) == NNEFC_OK);
    if (library != NULL) CHECK(dlclose(library) == 0);
    atomic_fetch_add(&sessions, 1);
}

static void run_shared(void) {
    static const nnefc_interface network = NNEFC_INTERFACE(nnefc);
    tensors t;
    fill(&t, 1, 2);
    nnefc_status status = run_with(&network, shared, &t);
    CHECK(status == NNEFC_BUSY || (status == NNEFC_OK && right(&t)));
}

static void *caller(void *argument) {
    uint64_t state = *(uint64_t *)argument;
    is_of_program = true;
    atomic_fetch_add(&program_threads, 1);
    while (now() < end_of_storm) {
        one_session(&state);
        run_shared();
        if (any(&state, 16) == 0) move_threads(&state);
    }
    return NULL;
}

void storm(double seconds, uint64_t seed, int libraries, char **given) {
    end_of_storm = now() + seconds;
    paths = given;
    path_count = libraries;
    is_of_program = true;
    CHECK(sched_getaffinity(0, sizeof everywhere, &everywhere) == 0);
    nnefc_options options = {.struct_size = sizeof options, .threads = 2};
    CHECK(nnefc_create(&options, &shared) == NNEFC_OK);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, SIGNAL_MICROSECONDS}, {0, SIGNAL_MICROSECONDS}}, none = {{0, 0}, {0, 0}};
    pthread_t threads[CALLERS];
    uint64_t states[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        states[i] = (seed * CALLERS + (uint64_t)i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        CHECK(pthread_create(&threads[i], NULL, caller, &states[i]) == 0);
    }
    while (atomic_load(&program_threads) < CALLERS) sched_yield();
    setitimer(ITIMER_REAL, &timer, NULL);
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
    setitimer(ITIMER_REAL, &none, NULL);
    CHECK(nnefc_destroy(shared) == NNEFC_OK);
    CHECK(atomic_load(&stray_signals) == 0);
    printf("%ld sessions, %ld runs, %ld forks, %ld signals\n", sessions, runs, forks, signals);
}
