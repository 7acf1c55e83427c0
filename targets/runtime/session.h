/* A session, as the functions of nnefc.h see it: an engine that one thread at a time may use. */
#ifndef NNEFC_SESSION_H
#define NNEFC_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine.h"
#include "nnefc.h"
#include "session_memory.h"
#ifdef NNEFC_SELECTS
#include "selection/selection.h"
#endif
#ifdef NNEFC_OPEN
#include "open/outputs.h"
#endif

#ifdef NNEFC_CANCELLABLE
typedef struct nnefc_async nnefc_async;

/* What a session does for functions that a program may never call: null until it does, so that linkers can leave them out. */
typedef struct nnefc_session_hooks {
#ifdef NNEFC_SELECTS
    /* Replaces the pointers of a run to outputs that are not selected; null while all are. */
    nnefc_status (*select_pointers)(nnefc_session *session, void *const **outputs);
    void (*free_selection)(const nnefc_memory *memory, nnefc_selection *selection);
#endif
    /* Waits for the run that a thread of the session's own is in, and ends that thread; false in this thread itself. */
    bool (*end_async)(nnefc_session *session);
} nnefc_session_hooks;
#endif

struct nnefc_session {
    atomic_flag busy;
    nnefc_memory memory; /* of the host */
    nnefc_engine *engine;
    char error[NNEFC_ERROR_BYTES];
#ifdef NNEFC_OPEN
    nnefc_outputs outputs;
#endif
#ifdef NNEFC_CANCELLABLE
    nnefc_session_hooks hooks;
    nnefc_async *async; /* null before the first run in a thread of the session's own */
#endif
#ifdef NNEFC_SELECTS
    nnefc_selection selection;
#endif
};

/* Takes the session for one call. While it is taken by another thread, nothing of it may be touched. */
bool nnefc_take(nnefc_session *session);

void nnefc_give_back(nnefc_session *session);

#ifdef NNEFC_CANCELLABLE
/* As nnefc_run and nnefc_run_sized, on a session that is taken. */
nnefc_status nnefc_run_taken(nnefc_session *session, const void *const *inputs, void *const *outputs);
#ifdef NNEFC_OPEN
nnefc_status nnefc_run_sized_taken(nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs);
#endif
#define NNEFC_OF_SESSIONS
#else
#define NNEFC_OF_SESSIONS static
#endif

/* Copies options of any version; what a version lacks is zero. */
nnefc_status nnefc_read_options(const nnefc_options *given, nnefc_options *options, char *error);

/* Keeps the message of a call that leaves no session behind, for nnefc_last_error(NULL), in place of the thread's last one; returns
 * the status. */
nnefc_status nnefc_answered(nnefc_status status, const char *error);

/* Whether a session that is taken may run on these tensors. */
nnefc_status nnefc_check_run(nnefc_session *session, const void *const *inputs, void *const *outputs);

#endif
