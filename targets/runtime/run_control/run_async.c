/* Runs in a thread of the session's own, which the first of them starts. */
#include <string.h>

#include "checks.h"
#include "model.h"
#include "session.h"
#include "machine/system.h"

/* A run: of nnefc_run_async, or of nnefc_run_sized_async. */
typedef struct async_run {
#ifdef NNEFC_OPEN
    const nnefc_input *sized_inputs;
    nnefc_output *sized_outputs;
    bool is_sized;
#endif
    nnefc_done *done;
    void *context;
} async_run;

struct nnefc_async {
    nnefc_process *owner;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* there is a job, or the thread is to end */
    atomic_uintptr_t number; /* of the thread, once it runs */
    bool waits; /* a job waits */
    bool ends;
    async_run next;
    const void **inputs; /* the pointers of that job */
    void **outputs;
};

/* Runs a job on a session that is taken, gives it back and calls back, in the calling thread. */
static void run(nnefc_session *session, const async_run *job) {
    nnefc_async *async = session->async;
    nnefc_status status;
#ifdef NNEFC_OPEN
    if (job->is_sized)
        status = nnefc_run_sized_taken(session, job->sized_inputs, job->sized_outputs);
    else
#endif
        status = nnefc_run_taken(session, async->inputs, async->outputs);
    char error[NNEFC_ERROR_BYTES];
    memcpy(error, session->error, sizeof error);
    nnefc_give_back(session); /* so that the callback may begin the next run */
    job->done(job->context, status, error);
}

static void *work(void *argument) {
    nnefc_session *session = argument;
    nnefc_async *async = session->async;
    atomic_store(&async->number, nnefc_this_thread());
    for (;;) {
        pthread_mutex_lock(&async->mutex);
        while (!async->waits && !async->ends) pthread_cond_wait(&async->changed, &async->mutex);
        bool has_job = async->waits;
        async_run next = async->next;
        async->waits = false;
        pthread_mutex_unlock(&async->mutex);
        if (!has_job) return NULL;
        run(session, &next);
    }
}

static void free_memory(const nnefc_memory *memory, nnefc_async *async) {
    nnefc_process_free(async->owner);
    nnefc_memory_give_back(memory, async->inputs, description->input_count * sizeof *async->inputs);
    nnefc_memory_give_back(memory, async->outputs, description->output_count * sizeof *async->outputs);
    nnefc_memory_give_back(memory, async, sizeof *async);
}

static bool end_async(nnefc_session *session) {
    nnefc_async *async = session->async;
    if (nnefc_process_is_own(async->owner)) {
        if (atomic_load(&async->number) == nnefc_this_thread()) return false; /* a callback */
        pthread_mutex_lock(&async->mutex);
        async->ends = true;
        pthread_cond_signal(&async->changed);
        pthread_mutex_unlock(&async->mutex);
        pthread_join(async->thread, NULL);
        pthread_cond_destroy(&async->changed);
        pthread_mutex_destroy(&async->mutex);
    }
    session->async = NULL;
    session->hooks.end_async = NULL;
    free_memory(&session->memory, async);
    return true;
}

/* Null if there is no memory, or no thread. */
static nnefc_async *make(nnefc_session *session) {
    const nnefc_memory *memory = &session->memory;
    nnefc_async *async = nnefc_memory_take_zeros(memory, sizeof *async);
    if (async == NULL) return NULL;
    async->owner = nnefc_process_create();
    async->inputs = nnefc_memory_take_zeros(memory, description->input_count * sizeof *async->inputs);
    async->outputs = nnefc_memory_take_zeros(memory, description->output_count * sizeof *async->outputs);
    if (async->owner != NULL && async->inputs != NULL && async->outputs != NULL && pthread_mutex_init(&async->mutex, NULL) == 0) {
        if (pthread_cond_init(&async->changed, NULL) == 0) {
            session->async = async;
            session->hooks.end_async = end_async;
            if (nnefc_start_thread(&async->thread, work, session)) return async;
            session->hooks.end_async = NULL;
            session->async = NULL;
            pthread_cond_destroy(&async->changed);
        }
        pthread_mutex_destroy(&async->mutex);
    }
    free_memory(&session->memory, async);
    return NULL;
}

/* Hands a job to the thread of a session that is taken; in a forked child, which has no such thread, the caller runs it. */
static void hand_over(nnefc_session *session, async_run next) {
    nnefc_async *async = session->async;
    if (!nnefc_process_is_own(async->owner)) {
        run(session, &next);
        return;
    }
    pthread_mutex_lock(&async->mutex);
    async->next = next;
    async->waits = true;
    pthread_cond_signal(&async->changed);
    pthread_mutex_unlock(&async->mutex);
}

/* Takes a session for a job; it has a thread then. */
static nnefc_status begin(nnefc_session *session, nnefc_done *done) {
    if (session == NULL || done == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    if (session->async != NULL || make(session) != NULL) return NNEFC_OK;
    nnefc_status status = nnefc_fail(NNEFC_OUT_OF_MEMORY, session->error, "no memory for a thread that runs the session");
    nnefc_give_back(session);
    return status;
}

nnefc_status nnefc_run_async(nnefc_session *session, const void *const *inputs, void *const *outputs, nnefc_done *done, void *context) {
    nnefc_status status = begin(session, done);
    if (status != NNEFC_OK) return status;
    nnefc_async *async = session->async;
    if ((inputs == NULL && description->input_count > 0) || (outputs == NULL && description->output_count > 0)) {
        status = nnefc_fail(NNEFC_BAD_ARGUMENT, session->error, "%s is null", inputs == NULL ? "inputs" : "outputs");
        nnefc_give_back(session);
        return status;
    }
    for (uint32_t i = 0; i < description->input_count; i++) async->inputs[i] = inputs[i];
    for (uint32_t i = 0; i < description->output_count; i++) async->outputs[i] = outputs[i];
    hand_over(session, (async_run){.done = done, .context = context});
    return NNEFC_OK;
}

#ifdef NNEFC_OPEN
nnefc_status nnefc_run_sized_async(nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs, nnefc_done *done,
                                   void *context) {
    nnefc_status status = begin(session, done);
    if (status != NNEFC_OK) return status;
    hand_over(session, (async_run){.sized_inputs = inputs, .sized_outputs = outputs, .is_sized = true, .done = done, .context = context});
    return NNEFC_OK;
}
#endif
