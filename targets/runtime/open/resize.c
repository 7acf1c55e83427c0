/* The functions of nnefc.h that only libraries with dynamic dimensions have. */
#include "checks.h"
#include "model.h"
#include "session.h"

/* Ends a call on a session. */
static nnefc_status done(nnefc_session *session, nnefc_status status) {
    nnefc_give_back(session);
    return status;
}

nnefc_status nnefc_resize(nnefc_session *session, const int64_t *const *input_shapes) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    return done(session, nnefc_engine_resize(session->engine, input_shapes, session->error));
}

const int64_t *nnefc_output_shape(const nnefc_session *session, uint32_t output) {
    if (session == NULL || output >= description->output_count) return NULL;
    return nnefc_engine_output_shape(session->engine, output);
}

/* Makes memory of the session's for outputs of so many bytes. */
static nnefc_status reserve(nnefc_session *session, uint32_t output, uint64_t bytes) {
    if (nnefc_outputs_reserve(&session->outputs, output, bytes)) return NNEFC_OK;
    return nnefc_fail(NNEFC_OUT_OF_MEMORY, session->error, "no memory for the %llu bytes of output \"%.200s\"",
                      (unsigned long long)bytes, description->outputs[output].name);
}

nnefc_status nnefc_reserve(nnefc_session *session, const int64_t *sizes, int32_t outputs) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    if (outputs != 0 && outputs != 1)
        return done(session, nnefc_fail(NNEFC_BAD_ARGUMENT, session->error, "outputs is %d, not 0 or 1", (int)outputs));
    uint64_t *bytes = session->outputs.wanted;
    nnefc_status status = nnefc_engine_reserve(session->engine, sizes, bytes, session->error);
    for (uint32_t i = 0; i < description->output_count && outputs == 1 && status == NNEFC_OK; i++)
        status = reserve(session, i, bytes[i]);
    return done(session, status);
}

/* Whether every input has the bytes that its shape says. */
static nnefc_status check_inputs(const nnefc_input *inputs, const uint64_t *bytes, char *error) {
    for (uint32_t i = 0; i < description->input_count; i++)
        if (inputs[i].bytes != bytes[i])
            return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "input \"%.200s\" has %llu bytes, but %llu by its shape",
                              description->inputs[i].name, (unsigned long long)inputs[i].bytes, (unsigned long long)bytes[i]);
    return NNEFC_OK;
}

/* The bytes of an output after a run, which may have found out how large it is. */
static uint64_t data_dependent_bytes(const nnefc_output *output, uint32_t number) {
    uint64_t bytes = nnefc_element_bytes(description->outputs[number].type);
    for (int32_t i = 0; i < description->outputs[number].rank && output->shape[i] != NNEFC_NO_AXIS; i++) bytes *= (uint64_t)output->shape[i];
    return bytes;
}

NNEFC_OF_SESSIONS nnefc_status nnefc_run_sized_taken(nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs) {
    char *error = session->error;
    error[0] = '\0';
    if (inputs == NULL && description->input_count > 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "inputs is null");
    if (outputs == NULL && description->output_count > 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "outputs is null");
    for (uint32_t i = 0; i < description->input_count; i++) {
        session->outputs.inputs[i] = inputs[i].data;
        session->outputs.input_shapes[i] = inputs[i].shape;
    }
    nnefc_status status = nnefc_engine_resize(session->engine, session->outputs.input_shapes, error);
    if (status != NNEFC_OK) return status;
    const uint64_t *bytes = nnefc_engine_tensor_bytes(session->engine);
    status = check_inputs(inputs, bytes, error);
    session->outputs.given = outputs;
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++) { /* of data-dependent dimensions */
        session->outputs.pointers[i] = outputs[i].data = NULL;
        outputs[i].bytes = 0;
        outputs[i].shape = nnefc_engine_output_shape(session->engine, i);
    }
    if (status == NNEFC_OK)
        status = nnefc_outputs_assign(&session->outputs, 0, bytes + description->input_count,
                                     nnefc_engine_output_shape(session->engine, 0), error);
    if (status == NNEFC_OK)
        status = nnefc_check_tensors(session->outputs.inputs, session->outputs.pointers, bytes, error);
    if (status == NNEFC_OK) status = nnefc_engine_run(session->engine, session->outputs.inputs, session->outputs.pointers, error);
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++) {
        outputs[i].bytes = data_dependent_bytes(&outputs[i], i);
        if (!nnefc_outputs_has(&session->outputs, i)) outputs[i].data = NULL, outputs[i].bytes = 0;
    }
    return status;
}

nnefc_status nnefc_run_sized(nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    return done(session, nnefc_run_sized_taken(session, inputs, outputs));
}
