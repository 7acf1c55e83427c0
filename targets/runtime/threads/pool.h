/* A session's threads. The launching thread is worker 0 and takes its share of every launch. */
#ifndef NNEFC_POOL_H
#define NNEFC_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "nnefc.h"
#ifdef NNEFC_CANCELLABLE
#include "run_control/control.h"
#endif

#ifdef NNEFC_CHECKED
enum { NNEFC_WORKER_ERROR_BYTES = 448 };
#else
enum { NNEFC_WORKER_ERROR_BYTES = 256 };
#endif
enum { NNEFC_MAX_THREADS = 1024, NNEFC_MAX_SCRATCH_BLOCKS = 64 };

/* What TVM's code sees of a launch. */
typedef struct nnefc_parallel_environment {
    void *sync; /* for barriers, which nnefc's kernels do not use */
    int32_t num_task;
} nnefc_parallel_environment;

typedef int (*nnefc_parallel_body)(int task, nnefc_parallel_environment *environment, void *data);

/* A stack of scratch blocks, one per worker. Blocks may be freed in any order; memory comes back from the top. */
typedef struct nnefc_scratch {
    uint8_t *base;
    uint64_t bytes, used;
    uint32_t blocks;
    uint64_t starts[NNEFC_MAX_SCRATCH_BLOCKS];
    bool freed[NNEFC_MAX_SCRATCH_BLOCKS];
} nnefc_scratch;

/* What belongs to one thread of a session while it runs the session's code. */
typedef struct nnefc_worker {
    struct nnefc_pool *pool;
    uint32_t index;
    int64_t iterations; /* of the loop that is launched next; 0 if that is not known */
    int64_t cycles; /* of one of these, about; 0 if that is not known */
    bool in_launch; /* a launch inside a launch runs on its own thread alone */
#ifdef NNEFC_PROFILE
    int32_t kernel; /* that worker 0 is in, by its position in the profile */
#endif
    nnefc_scratch scratch;
#ifdef NNEFC_CHECKED
    const char *step; /* of worker 0: what of the model its last kernel computes; null before the first one */
#endif
    char error[NNEFC_WORKER_ERROR_BYTES]; /* the first failure; "" if none */
} nnefc_worker;

typedef struct nnefc_pool nnefc_pool;

/* What the calling thread was before it entered a pool. */
typedef struct nnefc_outside {
    nnefc_worker *worker;
    uint64_t float_mode;
} nnefc_outside;

/* A pool of so many threads, each with a scratch stack of so many bytes; null if memory or threads cannot be had. The options say
 * whose threads these are, and where they run. Its threads, and who enters it, compute in the mode of float_mode.h, with subnormal
 * numbers if the options say so. */
nnefc_pool *nnefc_pool_create(const nnefc_options *options, uint32_t threads, uint64_t scratch_bytes);

/* Joins the threads and frees everything; in a forked child, where there are none, only frees. */
void nnefc_pool_destroy(nnefc_pool *pool);

/* Makes the calling thread worker 0, for one run, and says what it was before; false, with a note of worker 0, if there is no
 * memory for that. */
bool nnefc_pool_enter(nnefc_pool *pool, nnefc_outside *outside);

/* Ends what nnefc_pool_enter began: the thread computes with reals as the caller wants again. */
void nnefc_pool_leave(nnefc_outside outside);

/* The calling thread's worker; null outside of a run. */
nnefc_worker *nnefc_pool_current(void);

#ifdef NNEFC_CHECKED
/* Worker 0. */
const nnefc_worker *nnefc_pool_launcher(const nnefc_pool *pool);
#endif

/* Runs body for every task. 0 tasks means as many as distribute well the loop that the worker was given (worker->iterations): one
 * for each of its iterations if these are few; one a thread if it is short, or if the worker was given none; one if it is too short
 * for others to take part. Tasks are started in the order of their numbers on as many threads as there are, and who is through
 * with its part does what is left of others'. Returns when all are done: 0, or what one of the tasks that failed returned. To
 * be called by a worker; only worker 0's launches spread. */
int nnefc_pool_launch(nnefc_worker *worker, nnefc_parallel_body body, void *data, int tasks);

#ifdef NNEFC_WARMS_UP
/* Of launches that follow, only the first task is done. For pools of one thread. */
void nnefc_pool_warm_up(nnefc_pool *pool);
#endif

#ifdef NNEFC_CANCELLABLE
/* What runs ask between two kernels. */
nnefc_control *nnefc_pool_control(nnefc_pool *pool);
#endif

/* Notes a failure, formatted like printf. A worker keeps its first of a run: later ones are its consequences. */
__attribute__((format(printf, 2, 3))) void nnefc_worker_fail(nnefc_worker *worker, const char *format, ...);

/* Whether a worker has noted a failure since the pool was made or last cleared. */
bool nnefc_pool_failed(const nnefc_pool *pool);

/* The note of the first worker that has one; "" if none has. Not during a launch. */
const char *nnefc_pool_error(const nnefc_pool *pool);

/* Forgets all failures, and scratch memory that failed kernels did not free. Not during a launch. */
void nnefc_pool_clear(nnefc_pool *pool);

#endif
