/* The functions of nnefc.h that libraries with open dimensions have besides. */
#include <string.h>

#include "checks.h"
#include "model.h"
#include "session.h"

nnefc_status nnefc_resize(nnefc_session *session, const int64_t *const *input_shapes) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = NNEFC_OK;
    if (input_shapes == NULL && nnefc_this_model.description.input_count > 0)
        status = nnefc_fail(NNEFC_BAD_ARGUMENT, session->error, "input_shapes is null");
    if (status == NNEFC_OK) status = nnefc_engine_resize(session->engine, input_shapes, session->error);
    nnefc_give_back(session);
    return status;
}

const int64_t *nnefc_output_shape(const nnefc_session *session, uint32_t output) {
    if (session == NULL || output >= nnefc_this_model.description.output_count) return NULL;
    return nnefc_engine_output_shape(session->engine, output);
}
