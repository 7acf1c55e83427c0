/* Runs for some of the outputs: kernels that serve none of these are skipped. What others compute on their way goes to memory of the
 * session's where it would go to an output that is not selected. */
#include "selection/selection.h"

#include <stdbool.h>
#include <string.h>

#include "checks.h"
#include "model.h"
#include "session.h"
#include "machine/system.h"
#include "session_memory.h"

static uint32_t words(void) { return description->output_count / 64 + 1; }

/* Whether a set has one of these outputs, or is of every run. */
__attribute__((noinline)) static bool has_any(const uint64_t *set, const uint8_t *outputs) {
    uint32_t count = description->output_count;
    for (uint32_t i = 0; i < count; i++)
        if (outputs[i] && set[i / 64] >> i % 64 & 1) return true;
    return set[count / 64] >> count % 64 & 1;
}

static bool uses_memory(uint32_t output, const uint8_t *outputs) {
    const uint64_t *users = nnefc_this_model.calls.memory_users;
    return users == NULL || has_any(users + output * words(), outputs);
}

/* Makes the lists; false if there is no memory. */
static bool make_lists(const nnefc_memory *memory, nnefc_selection *selection, nnefc_control *control) {
    uint64_t count = description->output_count;
    if (selection->outputs == NULL) selection->outputs = nnefc_memory_take_zeros(memory, count * sizeof *selection->outputs);
    if (selection->own == NULL) selection->own = nnefc_memory_take_zeros(memory, count * sizeof *selection->own);
    if (selection->pointers == NULL) selection->pointers = nnefc_memory_take_zeros(memory, count * sizeof *selection->pointers);
    if (control->skipped == NULL) control->skipped = nnefc_memory_take_zeros(memory, nnefc_this_model.calls.count);
    return selection->outputs != NULL && selection->own != NULL && selection->pointers != NULL && control->skipped != NULL;
}

/* The memory that an output without one of the caller's takes; 0 if runs use none, or if only their sizes tell. */
__attribute__((noinline)) static uint64_t own_bytes(uint32_t output, const uint8_t *outputs) {
    if (outputs[output] || !uses_memory(output, outputs)) return 0;
    return (description->outputs[output].bytes + NNEFC_ALIGNMENT - 1) / NNEFC_ALIGNMENT * NNEFC_ALIGNMENT;
}

static nnefc_status select_some(nnefc_session *session, const uint8_t *outputs) {
    nnefc_selection *selection = &session->selection;
    nnefc_control *control = nnefc_engine_control(session->engine);
    uint32_t count = description->output_count;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += own_bytes(i, outputs);
    uint8_t *memory = bytes > 0 ? nnefc_memory_take_zeros(&session->memory, bytes) : NULL;
    if (!make_lists(&session->memory, selection, control) || (bytes > 0 && memory == NULL)) {
        nnefc_memory_give_back(&session->memory, memory, bytes);
        return nnefc_fail(NNEFC_OUT_OF_MEMORY, session->error, "no memory for the %llu bytes of outputs that are not selected",
                          (unsigned long long)bytes);
    }
    nnefc_memory_give_back(&session->memory, selection->memory, selection->memory_bytes);
    selection->memory = memory;
    selection->memory_bytes = bytes;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t own = own_bytes(i, outputs);
        /* where nothing is read or written any address does */
        selection->own[i] = own > 0 ? memory : uses_memory(i, outputs) ? NULL : (void *)session;
        if (own > 0) memory += own;
        selection->outputs[i] = outputs[i] != 0;
    }
    const nnefc_calls *calls = &nnefc_this_model.calls;
    for (uint32_t i = 0; i < calls->count; i++)
        control->skipped[i] = calls->sets != NULL && !has_any(calls->outputs + calls->sets[i] * words(), outputs);
    selection->wanted = selection->outputs;
    control->usual |= NNEFC_SKIP;
    return NNEFC_OK;
}

static nnefc_status select_pointers(nnefc_session *session, void *const **outputs) {
    nnefc_selection *selection = &session->selection;
    if (selection->wanted == NULL || *outputs == NULL) return NNEFC_OK;
#ifdef NNEFC_OPEN
    const uint64_t *bytes = nnefc_engine_tensor_bytes(session->engine);
    if (bytes == NULL) return NNEFC_OK; /* which is refused */
#endif
    for (uint32_t i = 0; i < description->output_count; i++) {
        void *own = selection->own[i];
#ifdef NNEFC_OPEN
        if (!selection->wanted[i] && own == NULL) {
            own = nnefc_outputs_own(&session->outputs, i, bytes[description->input_count + i]);
            if (own == NULL && bytes[description->input_count + i] > 0)
                return nnefc_fail(NNEFC_OUT_OF_MEMORY, session->error, "no memory for the %llu bytes of output \"%.200s\"",
                                  (unsigned long long)bytes[description->input_count + i], description->outputs[i].name);
        }
#endif
        selection->pointers[i] = selection->wanted[i] ? (*outputs)[i] : own;
    }
    *outputs = selection->pointers;
    return NNEFC_OK;
}

static void free_selection(const nnefc_memory *memory, nnefc_selection *selection) {
    uint64_t count = description->output_count;
    nnefc_memory_give_back(memory, selection->outputs, count * sizeof *selection->outputs);
    nnefc_memory_give_back(memory, selection->own, count * sizeof *selection->own);
    nnefc_memory_give_back(memory, selection->pointers, count * sizeof *selection->pointers);
    nnefc_memory_give_back(memory, selection->memory, selection->memory_bytes);
}

static nnefc_status select_outputs(nnefc_session *session, const uint8_t *outputs) {
    nnefc_status status = NNEFC_OK;
    if (outputs == NULL || memchr(outputs, 0, description->output_count) == NULL) {
        nnefc_engine_control(session->engine)->usual &= ~NNEFC_SKIP;
        session->selection.wanted = NULL;
        session->hooks.select_pointers = NULL;
    } else {
        session->hooks.free_selection = free_selection;
        status = select_some(session, outputs);
        if (status == NNEFC_OK) session->hooks.select_pointers = select_pointers;
    }
#ifdef NNEFC_OPEN
    session->outputs.selected = session->selection.wanted;
#endif
    return status;
}

nnefc_status nnefc_select_outputs(nnefc_session *session, const uint8_t *outputs) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = select_outputs(session, outputs);
    nnefc_give_back(session);
    return status;
}
