/* The time that runs of a session may take. */
#include "session.h"

nnefc_status nnefc_set_time_limit(nnefc_session *session, int64_t nanoseconds) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = nnefc_control_limit(nnefc_engine_control(session->engine), nanoseconds, session->error);
    nnefc_give_back(session);
    return status;
}
