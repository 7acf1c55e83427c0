/* What a pool consists of, for the files that it is written in: pool.c makes and ends it, launches.c shares work out, waiting.c
 * waits for it, and pool_workers.c knows whose thread is whose. */
#ifndef NNEFC_POOL_STATE_H
#define NNEFC_POOL_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "session_memory.h"
#include "threads/pool.h"
#include "threads/preempted_workers.h"
#include "machine/system.h"

enum { NNEFC_LINE = 64 }; /* bytes that caches move as one */

typedef struct nnefc_job {
    nnefc_parallel_body body;
    void *data;
    int32_t tasks;
    uint32_t pieces; /* NNEFC_MAX_PIECES for each thread at most; a piece is one task or several */
} nnefc_job;

/* The upper half of each number below that is a launch's has its epoch, of which the pool has no other from older launches. The
 * lower half of an announcement has these. */
enum { NNEFC_STOP = 1 << 17, NNEFC_WORKERS_OWN_ONLY = 1 << 16, NNEFC_PIECES = (1 << 16) - 1 };

static inline uint32_t nnefc_epoch_of(uint64_t number) { return (uint32_t)(number >> 32); }

typedef struct nnefc_slot {
    _Alignas(NNEFC_LINE) atomic_uint_least64_t range; /* the first free chunk, and the end: 16 bits each */
    atomic_uint_least64_t done;                       /* how many pieces this worker has done, its own or others' */
    int status;                                       /* the failure of one of these, 0 if none */
    int32_t processor;                                /* the only one that its thread may run on; -1 for no such */
    atomic_bool working;                              /* whether it has a piece: who waits for it may look what keeps it */
    pthread_t thread;
    nnefc_movable movable;
    _Alignas(NNEFC_LINE) nnefc_worker worker;
} nnefc_slot;

struct nnefc_pool {
    _Alignas(NNEFC_LINE) atomic_uint_least64_t announced; /* the last launch; with the job, so that one cache line tells it all */
    nnefc_job job;
    _Alignas(NNEFC_LINE) atomic_uint sleepers; /* workers asleep, or about to be */
    atomic_bool launcher_sleeps;
    atomic_bool refused; /* a worker has found no memory at its start */
#ifdef NNEFC_CANCELLABLE
    nnefc_control control;
#endif
    atomic_bool failed;  /* a worker has noted a failure; so that a run need not look at all of them */
    pthread_mutex_t mutex;
    pthread_cond_t work, finished;
    _Alignas(NNEFC_LINE) uint32_t threads; /* constant from here on */
    uint32_t started;                      /* workers with a thread of their own, worker 0 not among them */
    bool watches;                          /* before it sleeps: not when there are more threads than processors */
    nnefc_process *owner;
    bool keep_subnormals;
    nnefc_parallel_for *parallel_for; /* null if the threads are the pool's own */
    void *parallel_for_pool;
    nnefc_memory memory;
    uint8_t *scratch;
    uint64_t scratch_bytes; /* of all workers */
#ifdef NNEFC_WARMS_UP
    bool warms_up; /* see nnefc_pool_warm_up */
#endif
    nnefc_slot slots[];
};

/* Makes the calling thread this worker, or none of any pool; false if there is no memory for that. */
bool nnefc_pool_set_current(nnefc_worker *worker);

/* As nnefc_pool_enter, as any worker. */
bool nnefc_pool_enter_as(nnefc_pool *pool, uint32_t index, nnefc_outside *outside);

/* Launches a task for each worker, which does its own and no other's. */
void nnefc_launch_each(nnefc_pool *pool, nnefc_parallel_body body, void *data);

/* Does what a worker with a thread of its own has to do of each launch, until nnefc_launch_stop. */
void nnefc_take_part(nnefc_slot *own);

/* Ends the workers' threads, which may be joined then. */
void nnefc_launch_stop(nnefc_pool *pool);

/* Waits until there has been a launch since the one that was announced so, and returns the last one's announcement. */
uint64_t nnefc_wait_for_launch(nnefc_pool *pool, uint64_t seen);

/* Wakes workers that wait for the launch which was announced now, and who waits for the end of one. */
void nnefc_wake_workers(nnefc_pool *pool);
void nnefc_wake_launcher(nnefc_pool *pool);

/* Whether all pieces of a launch are done, and the same waited for. */
bool nnefc_is_finished(const nnefc_pool *pool, uint64_t announced);
void nnefc_wait_for_end(nnefc_pool *pool, uint64_t announced);

#endif
