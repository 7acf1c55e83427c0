/* Threads that sessions of several libraries share: an nnefc_parallel_for for all of them.
 *
 * A call of nnefc_threads_run occupies one of a few slots and writes its number of tasks there. The calling thread and the
 * workers take tasks of it, one at a time, until there are none. The state of a launch is one word with an epoch: a thread that takes a
 * task by a compare-and-swap knows that the task is of the launch that it has read, which does not end before the task is done. Only then
 * does the thread read what the task is. A caller that finds no free launch runs its tasks alone.
 *
 * Workers look at the launches in turn, so that several callers share them. Without a task they watch for a while, then sleep on a
 * condition: a worker counts itself as asleep first and looks once more, and a caller looks for sleepers after it has begun a launch.
 * The same holds for a caller that waits for tasks of its launch that workers have taken. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "checks.h"
#include "machine/cpu.h"
#include "machine/system.h"
#include "session.h"
#include "session_memory.h"

enum {
    LINE = 64,                 /* bytes that caches move as one */
    LAUNCHES = 16,             /* that go on at the same time */
    MAX_TASKS = (1 << 16) - 1, /* of a launch */
    WATCH_NANOSECONDS = 50000, /* longer than most gaps between kernels, too short to show as load */
    WATCH_LOOKS = 64           /* between two readings of the clock */
};

typedef struct launch {
    _Alignas(LINE) atomic_uint_least64_t tasks; /* an epoch of 32 bits, the next task and how many there are, 16 bits each */
    atomic_uint done;                           /* of these */
    atomic_bool is_taken;                       /* by a caller */
    void (*task)(void *context, uint32_t i);
    void *context;
    uint32_t first; /* what is added to the number of a task */
} launch;

typedef struct worker {
    nnefc_threads *threads;
    uint32_t index;
    int32_t processor; /* the only one that it may run on; -1 for no such */
    pthread_t thread;
} worker;

struct nnefc_threads {
    launch launches[LAUNCHES];
    _Alignas(LINE) atomic_uint begun; /* launches, and the end */
    atomic_uint sleepers;             /* workers asleep, or about to be */
    atomic_uint waiting_callers;      /* likewise */
    atomic_bool ends;
    pthread_mutex_t mutex;
    pthread_cond_t work, finished;
    bool watches;
    uint32_t count; /* the calling thread included */
    uint32_t started;
    nnefc_process *owner;
    nnefc_memory memory;
    worker workers[];
};

static uint64_t bytes_for(uint32_t count) { return sizeof(nnefc_threads) + count * sizeof(worker); }

static uint32_t count_of(uint64_t tasks) { return tasks & MAX_TASKS; }

/* Takes a task of a launch; false if there is none. */
static bool take(launch *from, uint64_t *tasks) {
    *tasks = atomic_load(&from->tasks);
    while ((*tasks >> 16 & MAX_TASKS) < count_of(*tasks))
        if (atomic_compare_exchange_weak(&from->tasks, tasks, *tasks + (1 << 16))) return true;
    return false;
}

/* Runs tasks of a launch as long as there are any; whether there was one. */
static bool work_at(nnefc_threads *threads, launch *from) {
    bool worked = false;
    for (uint64_t tasks; take(from, &tasks); worked = true) {
        from->task(from->context, from->first + (uint32_t)(tasks >> 16 & MAX_TASKS));
        if (atomic_fetch_add(&from->done, 1) + 1 == count_of(tasks) && atomic_load(&threads->waiting_callers) > 0) {
            pthread_mutex_lock(&threads->mutex);
            pthread_cond_broadcast(&threads->finished);
            pthread_mutex_unlock(&threads->mutex);
        }
    }
    return worked;
}

/* Watches until a number is another one, or, with `until`, until it is that one; false after a while. */
static bool watched(const nnefc_threads *threads, const atomic_uint *number, uint32_t value, bool until) {
    if ((atomic_load(number) == value) == until) return true;
    if (!threads->watches) return false;
    int64_t start = nnefc_nanoseconds();
    do {
        for (int i = 0; i < WATCH_LOOKS; i++) {
            nnefc_cpu_relax();
            if ((atomic_load(number) == value) == until) return true;
        }
    } while (nnefc_nanoseconds() - start < WATCH_NANOSECONDS);
    return false;
}

static void wait_for_work(nnefc_threads *threads, uint32_t seen) {
    if (watched(threads, &threads->begun, seen, false)) return;
    pthread_mutex_lock(&threads->mutex);
    atomic_fetch_add(&threads->sleepers, 1);
    while (atomic_load(&threads->begun) == seen) pthread_cond_wait(&threads->work, &threads->mutex);
    atomic_fetch_sub(&threads->sleepers, 1);
    pthread_mutex_unlock(&threads->mutex);
}

static void wait_for_end(nnefc_threads *threads, const launch *of, uint32_t count) {
    if (watched(threads, &of->done, count, true)) return;
    pthread_mutex_lock(&threads->mutex);
    atomic_fetch_add(&threads->waiting_callers, 1);
    while (atomic_load(&of->done) != count) pthread_cond_wait(&threads->finished, &threads->mutex);
    atomic_fetch_sub(&threads->waiting_callers, 1);
    pthread_mutex_unlock(&threads->mutex);
}

/* Has workers look for tasks, or for the end. */
static void wake(nnefc_threads *threads) {
    atomic_fetch_add(&threads->begun, 1);
    if (atomic_load(&threads->sleepers) == 0) return;
    pthread_mutex_lock(&threads->mutex);
    pthread_cond_broadcast(&threads->work);
    pthread_mutex_unlock(&threads->mutex);
}

static void *worker_main(void *argument) {
    const worker *own = argument;
    nnefc_threads *threads = own->threads;
    if (own->processor >= 0) (void)nnefc_run_only_on(own->processor); /* which was looked at before */
    for (uint32_t position = own->index;;) {
        uint32_t seen = atomic_load(&threads->begun);
        if (atomic_load(&threads->ends)) return NULL;
        bool worked = false;
        for (uint32_t i = 0; i < LAUNCHES && !worked; i++, position++)
            worked = work_at(threads, &threads->launches[position % LAUNCHES]);
        if (!worked) wait_for_work(threads, seen);
    }
}

static launch *free_launch(nnefc_threads *threads) {
    for (uint32_t i = 0; i < LAUNCHES; i++)
        if (!atomic_load(&threads->launches[i].is_taken) && !atomic_exchange(&threads->launches[i].is_taken, true))
            return &threads->launches[i];
    return NULL;
}

/* Runs tasks from `first` on, MAX_TASKS at most. */
static void run_some(nnefc_threads *threads, uint32_t first, uint32_t count, void (*task)(void *context, uint32_t i), void *context) {
    bool shares = count > 1 && threads->count > 1 && nnefc_process_is_own(threads->owner);
    launch *own = shares ? free_launch(threads) : NULL;
    if (own == NULL) {
        for (uint32_t i = 0; i < count; i++) task(context, first + i);
        return;
    }
    own->task = task;
    own->context = context;
    own->first = first;
    atomic_store(&own->done, 0);
    uint64_t epoch = (atomic_load(&own->tasks) >> 32) + 1;
    atomic_store(&own->tasks, epoch << 32 | count);
    wake(threads);
    work_at(threads, own);
    wait_for_end(threads, own, count);
    atomic_store(&own->is_taken, false);
}

void nnefc_threads_run(void *threads, uint32_t count, void (*task)(void *context, uint32_t i), void *context) {
    for (uint32_t first = 0; first < count; first += MAX_TASKS) {
        run_some(threads, first, count - first < MAX_TASKS ? count - first : MAX_TASKS, task, context);
        if (count - first <= MAX_TASKS) return; /* `first` could overflow */
    }
}

uint32_t nnefc_threads_count(const nnefc_threads *threads) { return threads == NULL ? 0 : threads->count; }

/* All or none. */
static bool make_locks(nnefc_threads *threads) {
    if (pthread_mutex_init(&threads->mutex, NULL) != 0) return false;
    if (pthread_cond_init(&threads->work, NULL) == 0) {
        if (pthread_cond_init(&threads->finished, NULL) == 0) return true;
        pthread_cond_destroy(&threads->work);
    }
    pthread_mutex_destroy(&threads->mutex);
    return false;
}

static void free_threads(nnefc_threads *threads) {
    nnefc_memory memory = threads->memory;
    nnefc_process_free(threads->owner);
    nnefc_memory_give_back(&memory, threads, bytes_for(threads->count));
}

/* Ends the threads that were started. */
static void end(nnefc_threads *threads) {
    atomic_store(&threads->ends, true);
    wake(threads);
    for (uint32_t i = 1; i <= threads->started; i++) pthread_join(threads->workers[i].thread, NULL);
    pthread_cond_destroy(&threads->finished);
    pthread_cond_destroy(&threads->work);
    pthread_mutex_destroy(&threads->mutex);
}

static bool start(nnefc_threads *threads) {
    while (threads->started < threads->count - 1) {
        worker *next = &threads->workers[threads->started + 1];
        if (!nnefc_start_thread(&next->thread, worker_main, next)) return false;
        threads->started++;
    }
    return true;
}

static nnefc_status create(const nnefc_options *given, nnefc_threads **made, char *error) {
    if (made == NULL) return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "nnefc_threads_create: threads is null");
    *made = NULL;
    nnefc_options options;
    uint32_t count = 0;
    nnefc_status status = nnefc_read_options(given, &options, error);
    options.parallel_for = NULL;
    if (status == NNEFC_OK) status = nnefc_choose_threads(&options, &count, error);
    if (status != NNEFC_OK) return status;
    nnefc_memory memory = nnefc_memory_of(&options);
    nnefc_threads *threads = nnefc_memory_take_zeros(&memory, bytes_for(count));
    if (threads == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for %u threads", (unsigned)count);
    threads->memory = memory;
    threads->count = count;
    threads->watches = nnefc_has_processors(options.processors, count);
    for (uint32_t i = 0; i < count; i++) {
        int32_t processor = options.processors != NULL ? options.processors[i] : -1;
        threads->workers[i] = (worker){.threads = threads, .index = i, .processor = processor};
    }
    threads->owner = nnefc_process_create();
    if (threads->owner != NULL && make_locks(threads)) {
        if (start(threads)) {
            *made = threads;
            return NNEFC_OK;
        }
        end(threads);
    }
    free_threads(threads);
    return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory or threads for %u threads", (unsigned)count);
}

nnefc_status nnefc_threads_create(const nnefc_options *options, nnefc_threads **threads) {
    char error[NNEFC_ERROR_BYTES] = "";
    return nnefc_answered(create(options, threads, error), error);
}

nnefc_status nnefc_threads_destroy(nnefc_threads *threads) {
    if (threads == NULL) return NNEFC_OK;
    if (nnefc_process_is_own(threads->owner)) {
        for (uint32_t i = 0; i < LAUNCHES; i++)
            if (atomic_load(&threads->launches[i].is_taken)) return NNEFC_BUSY;
        end(threads);
    }
    free_threads(threads);
    return NNEFC_OK;
}
