/* What a session has for itself whose size follows from sizes that are known at run time: the workspace, inputs and outputs,
 * and pinned memory to stage the latter. */
#include <stdlib.h>

#include "checks.h"
#include "gpu_engine.h"
#include "model.h"

enum { ALIGNMENT = 256 };

static const nnefc_description *const description = &nnefc_this_model.description;

nnefc_status nnefc_cuda_fill_sizes(nnefc_engine *engine, const nnefc_options *options, char *error) {
    size_t dimensions = description->dimension_count;
    int64_t *sizes = calloc(dimensions * NNEFC_CUDA_GRAPHS, sizeof *sizes);
    for (size_t i = 0; i < NNEFC_CUDA_GRAPHS && sizes != NULL; i++) engine->graphs[i].sizes = sizes + i * dimensions;
    engine->has_callers_workspace = options->workspace != NULL;
    engine->workspace_bytes = options->workspace != NULL ? options->workspace_bytes : 0;
    if (sizes != NULL && nnefc_sizes_init(&engine->sizes)) return NNEFC_OK;
    return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
}

static nnefc_status free_block(nnefc_cuda_block *block, nnefc_status status, char *error) {
    CUdeviceptr memory = block->start;
    *block = (nnefc_cuda_block){0, 0};
    return memory == 0 ? status : nnefc_cuda_also(status, nnefc_cuda.memory_free(memory), "freeing the GPU's memory", error);
}

static nnefc_status free_tensors(nnefc_engine *engine, nnefc_status status, char *error) {
    uint8_t *staging = engine->staging;
    engine->staging = NULL;
    status = free_block(&engine->own_tensors, status, error);
    return staging == NULL ? status
                           : nnefc_cuda_also(status, nnefc_cuda.pinned_free(staging), "freeing pinned memory", error);
}

nnefc_status nnefc_cuda_free_sized(nnefc_engine *engine, nnefc_status status, char *error) {
    return free_tensors(engine, free_block(&engine->own_workspace, status, error), error);
}

static nnefc_status take_block(nnefc_cuda_block *block, uint64_t bytes, char *error) {
    CUdeviceptr memory = 0;
    int result = nnefc_cuda.memory_allocate(&memory, (size_t)bytes);
    if (result != CUDA_SUCCESS) return nnefc_cuda_check(result, "taking the GPU's memory for these sizes", error);
    *block = (nnefc_cuda_block){memory, bytes};
    return NNEFC_OK;
}

static uint64_t rounded(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static uint64_t input_bytes(const nnefc_tensor *tensor, const int64_t *dimensions) {
    uint64_t bytes = nnefc_element_bytes(tensor->type);
    for (int32_t i = 0; i < tensor->rank; i++) {
        int64_t size = tensor->shape[i];
        if (size < 0) size = dimensions != NULL ? dimensions[-1 - size] : description->dimensions[-1 - size].most;
        bytes *= (uint64_t)size;
    }
    return bytes;
}

nnefc_cuda_room nnefc_cuda_room_now(nnefc_engine *engine) {
    nnefc_sizes *sizes = &engine->sizes;
    bool has_workspace = sizes->ends[0] <= engine->workspace_bytes ||
                         nnefc_sizes_lay_out_as_kept(sizes, 0, engine->workspace_bytes);
    nnefc_cuda_room room = {has_workspace ? 0 : sizes->ends[0], 0};
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++) room.tensors += rounded(sizes->tensor_bytes[i]);
    return room;
}

nnefc_cuda_room nnefc_cuda_room_up_to(const nnefc_engine *engine, const int64_t *dimensions, const uint64_t *output_bytes) {
    nnefc_cuda_room room = {engine->sizes.wide.ends[0], 0};
    for (uint32_t i = 0; i < description->input_count; i++)
        room.tensors += rounded(input_bytes(&description->inputs[i], dimensions));
    for (uint32_t i = 0; i < description->output_count; i++) room.tensors += rounded(output_bytes[i]);
    return room;
}

bool nnefc_cuda_has_room(const nnefc_engine *engine, nnefc_cuda_room room) {
    return room.workspace <= engine->workspace_bytes && room.tensors <= engine->own_tensors.bytes;
}

/* Makes the workspace as large as the sizes ask for; what was in it is gone. */
static nnefc_status grow_workspace(nnefc_engine *engine, uint64_t bytes, char *error) {
    if (bytes <= engine->workspace_bytes) return NNEFC_OK;
    if (engine->has_callers_workspace)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the workspace has %llu bytes, but the network needs %llu for these sizes",
                          (unsigned long long)engine->workspace_bytes, (unsigned long long)bytes);
    engine->workspace_bytes = 0;
    nnefc_status status = free_block(&engine->own_workspace, NNEFC_OK, error);
    if (status == NNEFC_OK) status = take_block(&engine->own_workspace, bytes, error);
    if (status != NNEFC_OK) return status;
    engine->workspace = engine->own_workspace.start;
    engine->workspace_bytes = bytes;
    return NNEFC_OK;
}

/* The same for the memory of inputs and outputs. */
static nnefc_status grow_tensors(nnefc_engine *engine, uint64_t bytes, char *error) {
    if (bytes <= engine->own_tensors.bytes) return NNEFC_OK;
    nnefc_status status = free_tensors(engine, NNEFC_OK, error);
    if (status == NNEFC_OK) status = take_block(&engine->own_tensors, bytes, error);
    if (status != NNEFC_OK) return status;
    void *staging = NULL;
    int result = nnefc_cuda.pinned_allocate(&staging, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS) {
        engine->staging = staging;
        return NNEFC_OK;
    }
    char dropped[NNEFC_ERROR_BYTES];
    free_tensors(engine, NNEFC_OK, dropped);
    return nnefc_cuda_check(result, "taking pinned memory for these sizes", error);
}

nnefc_status nnefc_cuda_grow(nnefc_engine *engine, nnefc_cuda_room room, char *error) {
    nnefc_status status = grow_workspace(engine, room.workspace, error);
    return status == NNEFC_OK ? grow_tensors(engine, room.tensors, error) : status;
}

void nnefc_cuda_place_tensors(nnefc_engine *engine) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++) {
        uint64_t bytes = engine->sizes.tensor_bytes[i];
        engine->tensors[i] = (nnefc_cuda_tensor){bytes, engine->own_tensors.start + at, engine->staging + at};
        at += rounded(bytes);
    }
}
