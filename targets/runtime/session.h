/* A session, as the functions of nnefc.h see it: an engine that one thread at a time may use. */
#ifndef NNEFC_SESSION_H
#define NNEFC_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine.h"
#include "nnefc.h"
#ifdef NNEFC_OPEN
#include "open/outputs.h"
#endif

struct nnefc_session {
    atomic_flag busy;
    nnefc_engine *engine;
    char error[NNEFC_ERROR_BYTES];
#ifdef NNEFC_OPEN
    nnefc_outputs outputs;
#endif
};

/* Takes the session for one call. While it is taken by another thread, nothing of it may be touched. */
bool nnefc_take(nnefc_session *session);

void nnefc_give_back(nnefc_session *session);

/* Whether a session that is taken may run on these tensors. */
nnefc_status nnefc_check_run(nnefc_session *session, const void *const *inputs, void *const *outputs);

#endif
