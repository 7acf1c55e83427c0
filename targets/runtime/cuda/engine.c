/* Runs the network on a GPU of NVIDIA's. */
#include <stdlib.h>
#include <string.h>

#include "gpu_engine.h"
#include "checks.h"
#include "model.h"

enum { WORKSPACE_ALIGNMENT = 256 };

/* Makes the session's GPU the calling thread's, until `leave`. */
static nnefc_status enter(const nnefc_engine *engine, char *error) {
    nnefc_status status = nnefc_cuda_check_process(error);
    if (status != NNEFC_OK) return status;
    return nnefc_cuda_check(nnefc_cuda.context_push(engine->device->context), "entering the GPU's context", error);
}

static nnefc_status leave(nnefc_status status, char *error) {
    CUcontext context;
    return nnefc_cuda_also(status, nnefc_cuda.context_pop(&context), "leaving the GPU's context", error);
}

nnefc_status nnefc_cuda_collect(nnefc_engine *engine, char *error) {
    int32_t number = *engine->failure;
    if (number == 0 && !nnefc_pool_failed(engine->pool)) return NNEFC_OK;
    const nnefc_cuda_module *module = &nnefc_cuda_this_module;
    bool has_text = number > 0 && (uint32_t)number <= module->message_count;
    if (has_text)
        nnefc_fail(NNEFC_KERNEL_ERROR, error, "the network's code failed: %s", module->messages[number - 1]);
    else if (number != 0)
        nnefc_fail(NNEFC_KERNEL_ERROR, error, "the network's code failed with %d", (int)number);
    else
        nnefc_fail(NNEFC_KERNEL_ERROR, error, "the network's code failed: %s", nnefc_pool_error(engine->pool));
    *engine->failure = 0;
    nnefc_pool_clear(engine->pool);
    return NNEFC_KERNEL_ERROR;
}

static nnefc_status wait_for_stream(nnefc_engine *engine, char *error) {
    int result = nnefc_cuda.stream_synchronize(engine->stream);
    if (result == CUDA_SUCCESS) engine->stream_is_busy = false;
    return nnefc_cuda_check(result, "waiting for the GPU", error);
}

/* Waits for all runs that were begun, whatever became of them. */
static nnefc_status wait_for_all(nnefc_engine *engine, char *error) {
    nnefc_status status = NNEFC_OK;
    if (engine->event_is_pending) {
        int result = nnefc_cuda.event_synchronize(engine->done);
        if (result == CUDA_SUCCESS) engine->event_is_pending = false;
        status = nnefc_cuda_check(result, "waiting for the GPU", error);
    }
    return engine->stream_is_busy && status == NNEFC_OK ? wait_for_stream(engine, error) : status;
}

nnefc_status nnefc_cuda_settle(nnefc_engine *engine, char *error) {
    nnefc_status status = wait_for_all(engine, error);
    return status == NNEFC_OK ? nnefc_cuda_collect(engine, error) : status;
}

static nnefc_status set_initial_state(nnefc_engine *engine, char *error) {
    if (description->state_bytes == 0) return NNEFC_OK;
    CUdeviceptr initial = engine->device->constants + nnefc_this_model.state_initial_offset;
    uint64_t given = description->constant_bytes - nnefc_this_model.state_initial_offset;
    if (given > description->state_bytes) given = description->state_bytes;
    uint64_t zeros = description->state_bytes - given; /* what does not follow is zero */
    int result = given > 0 ? nnefc_cuda.copy(engine->state, initial, (size_t)given, engine->stream) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && zeros > 0)
        result = nnefc_cuda.fill_bytes(engine->state + given, 0, (size_t)zeros, engine->stream);
    nnefc_status status = nnefc_cuda_check(result, "setting the states", error);
    if (status != NNEFC_OK) return status;
    engine->stream_is_busy = true;
    return wait_for_stream(engine, error);
}

/* Frees all that the session has in the GPU's context. */
static nnefc_status empty(nnefc_engine *engine, nnefc_status status, char *error) {
#ifdef NNEFC_OPEN
    status = nnefc_cuda_free_sized(engine, status, error);
#endif
    return nnefc_cuda_empty(engine, status, error);
}

static nnefc_status fill(nnefc_engine *engine, const nnefc_options *options, char *error) {
    nnefc_status status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    status = nnefc_cuda_fill(engine, options, error);
#ifdef NNEFC_OPEN
    if (status == NNEFC_OK) status = nnefc_cuda_fill_sizes(engine, options, error);
#endif
    if (status == NNEFC_OK) status = set_initial_state(engine, error);
    if (status != NNEFC_OK) status = empty(engine, status, error);
    nnefc_status left = leave(status, error);
    if (status == NNEFC_OK && left != NNEFC_OK && nnefc_cuda.context_push(engine->device->context) == CUDA_SUCCESS) {
        empty(engine, left, error);
        leave(left, error);
    }
    return left;
}

nnefc_status nnefc_engine_create(const nnefc_options *options, nnefc_engine **engine, char *error) {
    nnefc_status status = nnefc_check_workspace(options, WORKSPACE_ALIGNMENT, error);
    if (status != NNEFC_OK) return status;
    nnefc_engine *made = calloc(1, sizeof *made);
    if (made == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
    status = nnefc_cuda_device_acquire(options, &made->device, error);
    if (status == NNEFC_OK) {
        status = fill(made, options, error);
        char dropped[NNEFC_ERROR_BYTES];
        if (status != NNEFC_OK) nnefc_cuda_device_release(made->device, dropped);
    }
    if (status == NNEFC_OK)
        *engine = made;
    else
        nnefc_cuda_free_host(made);
    return status;
}

/* Frees what the session has of the GPU. */
static nnefc_status release_device(nnefc_engine *engine, char *error) {
    nnefc_status status = NNEFC_OK;
    char dropped[NNEFC_ERROR_BYTES];
    if (nnefc_cuda_enter_to_free(engine->device->context, &status, error)) {
        nnefc_status waited = wait_for_all(engine, status == NNEFC_OK ? error : dropped);
        if (status == NNEFC_OK) status = waited;
        status = empty(engine, status, error);
        status = leave(status, error);
    }
    nnefc_status last = nnefc_cuda_device_release(engine->device, status == NNEFC_OK ? error : dropped);
    return status == NNEFC_OK ? last : status;
}

nnefc_status nnefc_engine_destroy(nnefc_engine *engine, char *error) {
    char dropped[NNEFC_ERROR_BYTES];
    bool is_ours = nnefc_cuda_check_process(dropped) == NNEFC_OK; /* a forked child has nothing of the GPU */
    nnefc_status status = is_ours ? release_device(engine, error) : NNEFC_OK;
    nnefc_cuda_free_host(engine);
    return status;
}

static void stage_inputs(nnefc_engine *engine, const void *const *inputs) {
    for (uint32_t i = 0; i < description->input_count; i++)
        if (engine->locations[i].home == NNEFC_CUDA_IN_HOST)
            memcpy(engine->tensors[i].staging, inputs[i], (size_t)engine->tensors[i].bytes);
}

static void fetch_outputs(nnefc_engine *engine, void *const *outputs) {
    for (uint32_t i = 0; i < description->output_count; i++) {
        uint32_t index = description->input_count + i;
        if (engine->locations[index].home == NNEFC_CUDA_IN_HOST)
            memcpy(outputs[i], engine->tensors[index].staging, (size_t)nnefc_cuda_output_bytes(engine, i));
    }
}

/* Begins a run on the session's own stream and waits for it, even if not all of it could be begun. */
static nnefc_status run(nnefc_engine *engine, char *error) {
    engine->stream_is_busy = true;
    nnefc_status status = nnefc_cuda_start(engine, engine->stream, error);
    if (status == NNEFC_OK) return nnefc_cuda_settle(engine, error);
    char dropped[NNEFC_ERROR_BYTES];
    nnefc_cuda_settle(engine, dropped);
    return status;
}

nnefc_status nnefc_engine_run(nnefc_engine *engine, const void *const *inputs, void *const *outputs, char *error) {
    nnefc_status status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    status = nnefc_cuda_settle(engine, error);
    if (status == NNEFC_OK) status = nnefc_cuda_locate(engine, inputs, outputs, error);
    if (status == NNEFC_OK) {
        stage_inputs(engine, inputs);
        status = run(engine, error);
        if (status == NNEFC_OK) fetch_outputs(engine, outputs);
    }
    return leave(status, error);
}

nnefc_status nnefc_engine_reset(nnefc_engine *engine, char *error) {
    nnefc_status status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    status = wait_for_all(engine, error);
    if (status == NNEFC_OK) {
        nnefc_cuda_collect(engine, error);
        error[0] = '\0';
        status = set_initial_state(engine, error);
    }
    return leave(status, error);
}

#ifdef NNEFC_STATES
/* Waits for the copies that were begun on the session's own stream, the last one with a result. */
static nnefc_status copied(nnefc_engine *engine, int result, char *error) {
    engine->stream_is_busy = true;
    nnefc_status status = nnefc_cuda_check(result, "copying a state", error);
    return status == NNEFC_OK ? wait_for_stream(engine, error) : status;
}

nnefc_status nnefc_engine_get_state(nnefc_engine *engine, uint64_t offset, void *data, uint64_t bytes, char *error) {
    nnefc_status status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    status = nnefc_cuda_settle(engine, error);
    if (status == NNEFC_OK)
        status = copied(engine, nnefc_cuda.copy_out(data, engine->state + offset, (size_t)bytes, engine->stream), error);
    return leave(status, error);
}

nnefc_status nnefc_engine_set_state(nnefc_engine *engine, uint64_t offset, const void *data, uint64_t bytes, char *error) {
    nnefc_status status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    status = nnefc_cuda_settle(engine, error);
    if (status == NNEFC_OK)
        status = copied(engine, nnefc_cuda.copy_in(engine->state + offset, data, (size_t)bytes, engine->stream), error);
    return leave(status, error);
}

/* Copies parts of another session's states, which may be on another GPU. */
static nnefc_status copy_parts(
    nnefc_engine *engine, nnefc_engine *other, const nnefc_state_range *parts, uint64_t count, char *error) {
    nnefc_status status = nnefc_cuda_synchronize(other, error);
    if (status == NNEFC_OK) status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    status = nnefc_cuda_settle(engine, error);
    int result = CUDA_SUCCESS;
    for (uint64_t i = 0; status == NNEFC_OK && result == CUDA_SUCCESS && i < count; i++) {
        CUdeviceptr to = engine->state + parts[i].to, from = other->state + parts[i].from;
        CUcontext here = engine->device->context, there = other->device->context;
        size_t bytes = (size_t)parts[i].bytes;
        result = here == there ? nnefc_cuda.copy(to, from, bytes, engine->stream)
                               : nnefc_cuda.copy_between(to, here, from, there, bytes, engine->stream);
    }
    if (status == NNEFC_OK) status = copied(engine, result, error);
    return leave(status, error);
}

nnefc_status nnefc_engine_copy_states(nnefc_engine *engine, nnefc_engine *other, char *error) {
    const nnefc_state_range all = {0, 0, description->state_bytes};
    return copy_parts(engine, other, &all, 1, error);
}
#endif

#ifdef NNEFC_SEQUENCES
nnefc_status nnefc_engine_copy_ranges(
    nnefc_engine *engine, nnefc_engine *other, const nnefc_state_range *ranges, uint64_t count, char *error) {
    return copy_parts(engine, other, ranges, count, error);
}

void nnefc_engine_measure_states(nnefc_engine *engine, nnefc_state_bytes *bytes) {
    (void)engine;
    *bytes = (nnefc_state_bytes){description->state_bytes, 0, 0};
}
#endif

static nnefc_status check_stream(CUstream stream, char *error) {
    int capturing = 0;
    nnefc_status status =
        nnefc_cuda_check(nnefc_cuda.stream_is_capturing(stream, &capturing), "asking for the stream's state", error);
    if (status != NNEFC_OK || capturing == 0) return status;
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the stream is being captured; runs are graphs of their own already");
}

static nnefc_status check_locations(const nnefc_engine *engine, char *error) {
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++) {
        if (engine->locations[i].home != NNEFC_CUDA_IN_HOST) continue;
        bool is_input = i < description->input_count;
        const nnefc_tensor *tensor =
            is_input ? &description->inputs[i] : &description->outputs[i - description->input_count];
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s \"%.200s\" is in the host's memory: nnefc_enqueue takes the GPU's",
                          is_input ? "input" : "output", tensor->name);
    }
    return NNEFC_OK;
}

/* Begins a run on a stream, after the runs that were begun on others, and marks its end. */
static nnefc_status begin(nnefc_engine *engine, CUstream stream, char *error) {
    nnefc_status status = NNEFC_OK;
    if (engine->event_is_pending)
        status = nnefc_cuda_check(nnefc_cuda.stream_wait(stream, engine->done, 0), "letting a stream wait", error);
    if (status != NNEFC_OK) return status;
    status = nnefc_cuda_start(engine, stream, error);
    int result = nnefc_cuda.event_record(engine->done, stream); /* some of a run may be there that failed */
    engine->event_is_pending = true;
    if (result != CUDA_SUCCESS) nnefc_cuda.stream_synchronize(stream);
    return nnefc_cuda_also(status, result, "marking the end of a run", error);
}

/* Nothing but the failure of an earlier run, as far as it is known. */
static nnefc_status look_back(nnefc_engine *engine, char *error) {
    if (*engine->failure == 0 && !nnefc_pool_failed(engine->pool) && !engine->stream_is_busy) return NNEFC_OK;
    return nnefc_cuda_settle(engine, error);
}

nnefc_status nnefc_cuda_enqueue(nnefc_engine *engine, const void *const *inputs, void *const *outputs, CUstream stream,
                                char *error) {
    nnefc_status status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    status = look_back(engine, error);
    if (status == NNEFC_OK && stream != NULL) status = check_stream(stream, error);
    if (status == NNEFC_OK) status = nnefc_cuda_locate(engine, inputs, outputs, error);
    if (status == NNEFC_OK) status = check_locations(engine, error);
    if (status == NNEFC_OK) status = begin(engine, stream != NULL ? stream : engine->stream, error);
    return leave(status, error);
}

nnefc_status nnefc_cuda_synchronize(nnefc_engine *engine, char *error) {
    nnefc_status status = enter(engine, error);
    return status == NNEFC_OK ? leave(nnefc_cuda_settle(engine, error), error) : status;
}

#ifdef NNEFC_OPEN
/* Makes memory large enough. What it replaces is used by runs that are not over yet, and by graphs. */
static nnefc_status make_room(nnefc_engine *engine, uint32_t part, nnefc_cuda_room room, char *error) {
    if (nnefc_cuda_has_room(engine, part, room)) return NNEFC_OK;
    nnefc_status status = wait_for_all(engine, error);
    if (status == NNEFC_OK) status = nnefc_cuda_drop_graphs(engine, status, error);
    return status == NNEFC_OK ? nnefc_cuda_grow(engine, part, room, error) : status;
}

void nnefc_engine_use_outputs(nnefc_engine *engine, nnefc_outputs *outputs) { engine->outputs = outputs; }

/* Finds memory for the sizes that were set last. */
static nnefc_status fit(nnefc_engine *engine, char *error) {
    nnefc_cuda_room room = nnefc_cuda_room_now(engine, 0);
    nnefc_status status = nnefc_cuda_check_callers(engine, engine->sizes.ends, 0, error);
    if (status == NNEFC_OK) status = make_room(engine, 0, room, error);
    if (status != NNEFC_OK) return status;
    if (room.workspace > 0) nnefc_sizes_keep(&engine->sizes, 0);
    nnefc_cuda_set_addresses(engine, 0);
    nnefc_cuda_free_data_dependent(engine);
    return NNEFC_OK;
}

nnefc_status nnefc_engine_resize(nnefc_engine *engine, const int64_t *const *input_shapes, char *error) {
    nnefc_sizes *sizes = &engine->sizes;
    bool changed;
    nnefc_status status = nnefc_sizes_take(sizes, input_shapes, &changed, error);
    if (status != NNEFC_OK || !changed) return status;
    status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    status = leave(fit(engine, error), error);
    sizes->known = status == NNEFC_OK;
    return status;
}

static nnefc_status reserve(nnefc_engine *engine, const int64_t *dimensions, const uint64_t *output_bytes, char *error) {
    uint32_t parts = nnefc_this_model.open.part_count;
    nnefc_status status = nnefc_cuda_check_callers(engine, engine->sizes.wide.ends, parts - 1, error);
    if (status == NNEFC_OK) status = enter(engine, error);
    if (status != NNEFC_OK) return status;
    for (uint32_t part = 0; part < parts && status == NNEFC_OK; part++)
        status = make_room(engine, part, nnefc_cuda_room_up_to(engine, part, dimensions, output_bytes), error);
    if (status == NNEFC_OK) nnefc_sizes_keep_wide(&engine->sizes);
    if (status == NNEFC_OK && engine->sizes.known) nnefc_cuda_set_addresses(engine, 0);
    if (status != NNEFC_OK && status != NNEFC_BAD_ARGUMENT) engine->sizes.known = false; /* memory may be gone */
    return leave(status, error);
}

nnefc_status nnefc_engine_reserve(nnefc_engine *engine, const int64_t *dimensions, uint64_t *output_bytes, char *error) {
    nnefc_status status = nnefc_sizes_enlarge(&engine->sizes, dimensions, output_bytes, error);
    return status == NNEFC_OK ? reserve(engine, dimensions, output_bytes, error) : status;
}

const uint64_t *nnefc_engine_tensor_bytes(const nnefc_engine *engine) {
    return engine->sizes.known ? engine->sizes.tensor_bytes : NULL;
}

const int64_t *nnefc_engine_output_shape(const nnefc_engine *engine, uint32_t output) {
    return engine->sizes.known ? nnefc_sizes_output(&engine->sizes, output) : NULL;
}
#endif
