#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include "threads/preempted_workers.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void nnefc_may_be_brought(nnefc_movable *own) { atomic_store(&own->number, (int)syscall(SYS_gettid)); }

static int64_t time_of(clockid_t clock) {
    struct timespec time;
    return clock_gettime(clock, &time) == 0 ? (int64_t)time.tv_sec * 1000000000 + time.tv_nsec : -1;
}

int64_t nnefc_own_processor_time(void) { return time_of(CLOCK_THREAD_CPUTIME_ID); }

_Static_assert(sizeof(cpu_set_t) <= NNEFC_SET_BYTES, "the set of preempted_workers.h");

static int64_t processor_time(pthread_t thread) {
    clockid_t clock;
    return pthread_getcpuclockid(thread, &clock) == 0 ? time_of(clock) : -1;
}

void nnefc_look_at(nnefc_movable *movable, pthread_t thread) {
    movable->ran = atomic_load(&movable->number) > 0 ? processor_time(thread) : -1;
}

/* Where clocks go by large steps, both threads' stand still: then the result is unknown. */
static bool is_stopped(nnefc_movable *movable, pthread_t thread, int64_t own) {
    int64_t before = movable->ran;
    movable->ran = -1;
    if (before < 0) return false;
    int64_t ran = processor_time(thread) - before;
    return ran >= 0 && own > 0 && ran < own / 4;
}

static bool is_in_a_set(int processor) { return processor >= 0 && (size_t)processor < 8 * sizeof(cpu_set_t); }

bool nnefc_bring_if_stopped(nnefc_movable *movable, pthread_t thread, int64_t own) {
    int at_home = NNEFC_AT_HOME, here = sched_getcpu();
    if (!is_in_a_set(here) || !is_stopped(movable, thread, own)) return false;
    if (!atomic_compare_exchange_strong(&movable->state, &at_home, NNEFC_BEING_BROUGHT)) return false;
    cpu_set_t *home = (cpu_set_t *)(void *)movable->home, this_one;
    CPU_ZERO(&this_one);
    CPU_SET((size_t)here, &this_one);
    bool brought = sched_getaffinity(movable->number, sizeof *home, home) == 0 &&
                   sched_setaffinity(movable->number, sizeof this_one, &this_one) == 0;
    atomic_store(&movable->state, brought ? NNEFC_AWAY : NNEFC_AT_HOME);
    return brought;
}

void nnefc_go_home(nnefc_movable *own) {
    if (atomic_load(&own->state) != NNEFC_AWAY) return;
    cpu_set_t *home = (cpu_set_t *)(void *)own->home, others = *home;
    int here = sched_getcpu();
    if (is_in_a_set(here)) CPU_CLR((size_t)here, &others);
    (void)sched_setaffinity(0, sizeof others, &others); /* refused if there are no others */
    (void)sched_setaffinity(0, sizeof *home, home);
    atomic_store(&own->state, NNEFC_AT_HOME);
}

#else

void nnefc_may_be_brought(nnefc_movable *own) { (void)own; }

int64_t nnefc_own_processor_time(void) { return -1; }

void nnefc_look_at(nnefc_movable *movable, pthread_t thread) { (void)movable, (void)thread; }

bool nnefc_bring_if_stopped(nnefc_movable *movable, pthread_t thread, int64_t own) {
    (void)movable, (void)thread, (void)own;
    return false;
}

void nnefc_go_home(nnefc_movable *own) { (void)own; }

#endif
