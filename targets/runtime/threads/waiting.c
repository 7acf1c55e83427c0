/* How threads of a pool wait for each other. Both sides watch for a short while, then sleep on a condition variable: who is about
 * to sleep says so first and looks once more, who raises looks for sleepers after, so that one of the two always sees the other
 * (all four accesses are sequentially consistent).
 *
 * A worker may lose its processor within a piece, which no other thread can do instead: all would wait until the system lets
 * it go on. So the launching thread looks what processor time workers take that it waits for, and has one that takes none
 * run on its own processor: see preempted_workers.h. */
#include "machine/cpu.h"
#include "threads/pool_state.h"

enum {
    WATCH_NANOSECONDS = 50000, /* longer than most gaps between kernels, too short to show as load */
    WATCH_ROUND = 64,          /* looks between two readings of the clock */
    LOOK_NANOSECONDS = 25000,  /* longer than most waits for the end of a launch */
    LOOKS = nnefc_tells_stopped ? 80 : WATCH_NANOSECONDS / LOOK_NANOSECONDS /* for longer than pieces take */
};

/* Whether something has happened that `argument` tells of. */
typedef bool event(const nnefc_pool *pool, uint64_t argument);

/* The same, while one watches for so many nanoseconds. */
static bool watched(event *happened, const nnefc_pool *pool, uint64_t argument, int64_t nanoseconds) {
    if (happened(pool, argument)) return true;
    if (!pool->watches) return false;
    int64_t start = nnefc_nanoseconds();
    do {
        for (int i = 0; i < WATCH_ROUND; i++) {
            nnefc_cpu_relax();
            if (happened(pool, argument)) return true;
        }
    } while (nnefc_nanoseconds() - start < nanoseconds);
    return false;
}

/* Workers wait for a launch. */

static bool launched(const nnefc_pool *pool, uint64_t seen) { return atomic_load(&pool->announced) != seen; }

uint64_t nnefc_wait_for_launch(nnefc_pool *pool, uint64_t seen) {
    if (!watched(launched, pool, seen, WATCH_NANOSECONDS)) {
        pthread_mutex_lock(&pool->mutex);
        atomic_fetch_add(&pool->sleepers, 1);
        while (!launched(pool, seen)) pthread_cond_wait(&pool->work, &pool->mutex);
        atomic_fetch_sub(&pool->sleepers, 1);
        pthread_mutex_unlock(&pool->mutex);
    }
    return atomic_load(&pool->announced);
}

void nnefc_wake_workers(nnefc_pool *pool) {
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

/* The launching thread waits for the end of its launch. */

bool nnefc_is_finished(const nnefc_pool *pool, uint64_t announced) {
    uint64_t done = 0;
    for (uint32_t i = 0; i < pool->threads; i++) {
        uint64_t own = atomic_load(&pool->slots[i].done);
        if (nnefc_epoch_of(own) == nnefc_epoch_of(announced)) done += own & NNEFC_PIECES;
    }
    return done == (announced & NNEFC_PIECES);
}

static bool is_working(const nnefc_slot *slot) { return atomic_load_explicit(&slot->working, memory_order_relaxed); }

static void look_at_workers(nnefc_pool *pool) {
    for (uint32_t i = 1; i <= pool->started; i++)
        if (is_working(&pool->slots[i]))
            nnefc_look_at(&pool->slots[i].movable, pool->slots[i].thread);
        else
            pool->slots[i].movable.ran = -1; /* a piece that it takes now is looked at the next time */
}

/* Whether workers that are in a piece were stopped since these looks, and have been brought here. */
static bool brings_stopped(nnefc_pool *pool, int64_t own) {
    bool brought = false;
    for (uint32_t i = 1; i <= pool->started; i++)
        if (is_working(&pool->slots[i]))
            brought |= nnefc_bring_if_stopped(&pool->slots[i].movable, pool->slots[i].thread, own);
    return brought;
}

/* Watches for the end of a launch, as long as all workers that are in a piece get on with it; whether it has come. */
static bool watched_end(nnefc_pool *pool, uint64_t announced) {
    if (watched(nnefc_is_finished, pool, announced, LOOK_NANOSECONDS)) return true;
    for (int i = 1; pool->watches && i < LOOKS; i++) {
        int64_t own = nnefc_own_processor_time();
        look_at_workers(pool);
        if (watched(nnefc_is_finished, pool, announced, LOOK_NANOSECONDS)) return true;
        if (brings_stopped(pool, nnefc_own_processor_time() - own)) return false;
    }
    return false;
}

void nnefc_wait_for_end(nnefc_pool *pool, uint64_t announced) {
    if (watched_end(pool, announced)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->launcher_sleeps, true);
    while (!nnefc_is_finished(pool, announced)) pthread_cond_wait(&pool->finished, &pool->mutex);
    atomic_store(&pool->launcher_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

void nnefc_wake_launcher(nnefc_pool *pool) {
    if (!atomic_load(&pool->launcher_sleeps)) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->mutex);
}
