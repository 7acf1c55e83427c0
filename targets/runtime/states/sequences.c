/* The functions of nnefc.h for networks that keep sequences of tokens. */
#include "checks.h"
#include "model.h"
#include "session.h"

#ifdef NNEFC_SEQUENCES
#include <string.h>

#include "states/offsets.h"

/* Finds the state `P`, which counts the positions of each sequence; state_count if there is none. */
static uint32_t find_counts(void) {
    uint32_t state = 0;
    while (state < description->state_count &&
           (nnefc_this_model.sequence_axes[state] < 0 || strcmp(description->states[state].name, "P") != 0))
        state++;
    return state;
}

static int64_t sequence_count(uint32_t counts) { return (int64_t)(description->states[counts].bytes / sizeof(int64_t)); }

/* Returns the product of the sizes of a state's axes from `first` to `end - 1`. */
static uint64_t product(const nnefc_tensor *state, int32_t first, int32_t end) {
    uint64_t found = 1;
    for (int32_t axis = first; axis < end; axis++) found *= (uint64_t)state->shape[axis];
    return found;
}

/* Lists what of a state the first positions of a sequence take; returns how many ranges that are. Without a list it counts them. */
static uint64_t list_ranges(uint32_t index, uint64_t sequences, uint64_t to, uint64_t from, uint64_t positions, nnefc_state_range *list) {
    const nnefc_tensor *state = &description->states[index];
    int32_t axis = nnefc_this_model.sequence_axes[index];
    uint64_t bytes = state->bytes / sequences, start = nnefc_state_offset(index);
    uint64_t groups = axis > 0 ? product(state, 1, axis) : 1, used = bytes / groups;
    if (axis > 0 && positions < (uint64_t)state->shape[axis]) used = used / (uint64_t)state->shape[axis] * positions;
    for (uint64_t group = 0; list != NULL && group < groups; group++) {
        uint64_t offset = start + group * (bytes / groups);
        list[group] = (nnefc_state_range){offset + to * bytes, offset + from * bytes, used};
    }
    return groups;
}

/* Copies what the first positions of a sequence take, in all states but the counts. */
static nnefc_status copy_positions(
    nnefc_session *session, uint32_t counts, uint64_t to, const nnefc_session *other, uint64_t from, uint64_t positions) {
    uint64_t sequences = (uint64_t)sequence_count(counts), count = 0, used = 0;
    for (uint32_t i = 0; i < description->state_count; i++)
        if (i != counts && nnefc_this_model.sequence_axes[i] >= 0) count += list_ranges(i, sequences, to, from, positions, NULL);
    uint64_t room = count * sizeof(nnefc_state_range);
    nnefc_state_range *list = nnefc_memory_take(&session->memory, room);
    if (list == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, session->error, "no memory for a list of %llu ranges", (unsigned long long)count);
    for (uint32_t i = 0; i < description->state_count; i++)
        if (i != counts && nnefc_this_model.sequence_axes[i] >= 0)
            used += list_ranges(i, sequences, to, from, positions, list + used);
    nnefc_status status = nnefc_engine_copy_ranges(session->engine, other->engine, list, used, session->error);
    nnefc_memory_give_back(&session->memory, list, room);
    return status;
}

static nnefc_status copy(nnefc_session *session, int64_t sequence, const nnefc_session *other, int64_t from, int64_t positions) {
    uint32_t counts = find_counts();
    int64_t sequences = counts < description->state_count ? sequence_count(counts) : 0, held = 0;
    if (sequence < 0 || sequence >= sequences || from < 0 || from >= sequences)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, session->error, "sequences %lld and %lld are not both of the %lld that a session has",
                          (long long)sequence, (long long)from, (long long)sequences);
    uint64_t offset = nnefc_state_offset(counts);
    nnefc_status status =
        nnefc_engine_get_state(other->engine, offset + (uint64_t)from * sizeof held, &held, sizeof held, session->error);
    if (status != NNEFC_OK) return status;
    if (positions < 0 || positions > held)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, session->error, "%lld positions of a sequence that has %lld", (long long)positions,
                          (long long)held);
    bool is_itself = session == other && sequence == from;
    if (positions > 0 && !is_itself)
        status = copy_positions(session, counts, (uint64_t)sequence, other, (uint64_t)from, (uint64_t)positions);
    if (status != NNEFC_OK) return status;
    offset += (uint64_t)sequence * sizeof positions;
    return nnefc_engine_set_state(session->engine, offset, &positions, sizeof positions, session->error);
}

nnefc_status nnefc_copy_sequence(nnefc_session *session, int64_t sequence, nnefc_session *other, int64_t from, int64_t positions) {
    if (session == NULL || other == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = NNEFC_BUSY;
    if (other == session || nnefc_take(other)) {
        status = copy(session, sequence, other, from, positions);
        if (other != session) nnefc_give_back(other);
    }
    nnefc_give_back(session);
    return status;
}

nnefc_status nnefc_measure_states(nnefc_session *session, nnefc_state_bytes *bytes) {
    if (session == NULL || bytes == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_engine_measure_states(session->engine, bytes);
    nnefc_give_back(session);
    return NNEFC_OK;
}
#endif
