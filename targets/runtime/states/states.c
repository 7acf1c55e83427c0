/* The functions of nnefc.h that only libraries of networks with states have. */
#include "checks.h"
#include "model.h"
#include "session.h"
#include "machine/system.h"
#include "states/offsets.h"

uint64_t nnefc_state_offset(uint32_t state) {
    uint64_t offset = 0;
    for (uint32_t i = 0; i < state; i++)
        offset += (description->states[i].bytes + NNEFC_ALIGNMENT - 1) / NNEFC_ALIGNMENT * NNEFC_ALIGNMENT;
    return offset;
}

/* Takes the session for a call that moves a state to or from the caller's memory. */
static nnefc_status begin_state(nnefc_session *session, uint32_t state, const void *data) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = NNEFC_OK;
    if (state >= description->state_count)
        status = nnefc_fail(NNEFC_BAD_ARGUMENT, session->error, "state %u is none of the network's %u", (unsigned)state,
                            (unsigned)description->state_count);
    else if (data == NULL)
        status = nnefc_fail(NNEFC_BAD_ARGUMENT, session->error, "the memory for state %u is null", (unsigned)state);
    if (status != NNEFC_OK) nnefc_give_back(session);
    return status;
}

nnefc_status nnefc_get_state(nnefc_session *session, uint32_t state, void *data) {
    nnefc_status status = begin_state(session, state, data);
    if (status != NNEFC_OK) return status;
    uint64_t bytes = description->states[state].bytes;
    status = nnefc_engine_get_state(session->engine, nnefc_state_offset(state), data, bytes, session->error);
    nnefc_give_back(session);
    return status;
}

nnefc_status nnefc_set_state(nnefc_session *session, uint32_t state, const void *data) {
    nnefc_status status = begin_state(session, state, data);
    if (status != NNEFC_OK) return status;
    uint64_t bytes = description->states[state].bytes;
    status = nnefc_engine_set_state(session->engine, nnefc_state_offset(state), data, bytes, session->error);
    nnefc_give_back(session);
    return status;
}

nnefc_status nnefc_copy_states(nnefc_session *session, nnefc_session *other) {
    if (session == NULL || other == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    nnefc_status status = NNEFC_OK;
    session->error[0] = '\0';
    if (other != session) {
        if (nnefc_take(other)) {
            status = nnefc_engine_copy_states(session->engine, other->engine, session->error);
            nnefc_give_back(other);
        } else {
            status = NNEFC_BUSY;
        }
    }
    nnefc_give_back(session);
    return status;
}
