/* What the functions of nnefc.h and the engines share. */
#ifndef NNEFC_SESSION_H
#define NNEFC_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine.h"
#include "nnefc.h"

struct nnefc_session {
    atomic_flag busy;
    nnefc_engine *engine;
    char error[NNEFC_ERROR_BYTES];
};

/* Takes the session for one call. While it is taken by another thread, nothing of it may be touched. */
bool nnefc_take(nnefc_session *session);

void nnefc_give_back(nnefc_session *session);

/* Writes a message into `error` and returns the status, so that a check is one statement. */
__attribute__((format(printf, 3, 4))) nnefc_status nnefc_fail(nnefc_status status, char *error, const char *format, ...);

/* The number of threads to use, from the options, the environment or the machine, in this order. */
nnefc_status nnefc_choose_threads(int32_t wanted, uint32_t *threads, char *error);

/* Whether the caller's own workspace, if there is one, is aligned to so many bytes and large enough. */
nnefc_status nnefc_check_workspace(const nnefc_options *options, uint32_t alignment, char *error);

/* Whether no pointer is null or misaligned. */
nnefc_status nnefc_check_tensors(const void *const *inputs, void *const *outputs, char *error);

#endif
