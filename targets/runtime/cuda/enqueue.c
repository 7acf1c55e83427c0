/* The functions of nnefc.h that only libraries for GPUs have. */
#include "checks.h"
#include "gpu_engine.h"
#include "session.h"

nnefc_status nnefc_enqueue(nnefc_session *session, const void *const *inputs, void *const *outputs, void *stream) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = nnefc_check_run(session, inputs, outputs);
    if (status == NNEFC_OK) status = nnefc_cuda_enqueue(session->engine, inputs, outputs, stream, session->error);
    nnefc_give_back(session);
    return status;
}

nnefc_status nnefc_synchronize(nnefc_session *session) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = nnefc_cuda_synchronize(session->engine, session->error);
    nnefc_give_back(session);
    return status;
}
