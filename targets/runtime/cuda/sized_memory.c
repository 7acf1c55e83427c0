/* What a session has for itself whose size follows from sizes that are known at run time: the workspace, inputs and outputs,
 * and pinned memory to stage the latter. Each part of the workspace, and what becomes known with it, has blocks of its own. */
#include <stdlib.h>

#include "checks.h"
#include "gpu_engine.h"
#include "model.h"

enum { ALIGNMENT = 256 };

static const nnefc_dynamic_sizes *const dynamic_sizes = &nnefc_this_model.open;
static const nnefc_memory host_memory; /* the C library's */

nnefc_status nnefc_cuda_fill_sizes(nnefc_engine *engine, const nnefc_options *options, char *error) {
    size_t dimensions = description->dimension_count;
    int64_t *sizes = calloc(dimensions * NNEFC_CUDA_GRAPHS + 1, sizeof *sizes);
    for (size_t i = 0; i < NNEFC_CUDA_GRAPHS && sizes != NULL; i++) engine->graphs[i].sizes = sizes + i * dimensions;
    engine->callers_workspace = (uintptr_t)options->workspace;
    engine->callers_bytes = options->workspace != NULL ? options->workspace_bytes : 0;
    engine->parts = calloc(dynamic_sizes->part_count, sizeof *engine->parts);
    if (sizes != NULL && engine->parts != NULL && nnefc_sizes_init(&engine->sizes, &host_memory)) return NNEFC_OK;
    return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
}

static nnefc_status free_block(nnefc_engine *engine, nnefc_cuda_block *block, nnefc_status status, char *error) {
    nnefc_cuda_block freed = *block;
    *block = (nnefc_cuda_block){0, 0};
    return nnefc_cuda_free_memory(engine, freed.start, freed.bytes, status, error);
}

static nnefc_status free_pinned(uint8_t **memory, nnefc_status status, char *error) {
    uint8_t *old = *memory;
    *memory = NULL;
    return old == NULL ? status : nnefc_cuda_also(status, nnefc_cuda.pinned_free(old), "freeing pinned memory", error);
}

static nnefc_status free_tensors(nnefc_engine *engine, nnefc_cuda_part *part, nnefc_status status, char *error) {
    return free_pinned(&part->staging, free_block(engine, &part->tensors, status, error), error);
}

nnefc_status nnefc_cuda_free_sized(nnefc_engine *engine, nnefc_status status, char *error) {
    for (uint32_t i = 0; engine->parts != NULL && i < dynamic_sizes->part_count; i++) {
        status = free_block(engine, &engine->parts[i].workspace, status, error);
        status = free_tensors(engine, &engine->parts[i], status, error);
    }
    return free_pinned(&engine->sized_operands, status, error);
}

static nnefc_status take_block(nnefc_engine *engine, nnefc_cuda_block *block, uint64_t bytes, char *error) {
    CUdeviceptr memory = 0;
    nnefc_status status = nnefc_cuda_take_memory(engine, &memory, bytes, "taking the GPU's memory for these sizes", error);
    if (status == NNEFC_OK) *block = (nnefc_cuda_block){memory, bytes};
    return status;
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

/* The part with which the shape of an input or an output is known. */
static uint32_t part_of(uint32_t tensor) {
    return tensor < description->input_count ? 0 : dynamic_sizes->output_parts[tensor - description->input_count];
}

/* Where a part begins in the caller's workspace, behind those before it, of so many bytes each. */
static uint64_t start_of(const uint64_t *ends, uint32_t part) {
    uint64_t start = 0;
    for (uint32_t i = 0; i < part; i++) start += ends[i];
    return start;
}

/* The bytes that there are for a part of the workspace. */
static uint64_t workspace_bytes(const nnefc_engine *engine, const uint64_t *ends, uint32_t part) {
    if (engine->callers_workspace == 0) return engine->parts[part].workspace.bytes;
    uint64_t start = start_of(ends, part);
    return engine->callers_bytes > start ? engine->callers_bytes - start : 0;
}

nnefc_cuda_room nnefc_cuda_room_now(nnefc_engine *engine, uint32_t part) {
    nnefc_sizes *sizes = &engine->sizes;
    uint64_t bytes = workspace_bytes(engine, sizes->ends, part);
    bool has_workspace = sizes->ends[part] <= bytes || nnefc_sizes_lay_out_as_kept(sizes, part, bytes);
    nnefc_cuda_room room = {has_workspace ? 0 : sizes->ends[part], 0};
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++)
        if (part_of(i) == part) room.tensors += rounded(sizes->tensor_bytes[i]);
    return room;
}

nnefc_cuda_room nnefc_cuda_room_up_to(const nnefc_engine *engine, uint32_t part, const int64_t *dimensions,
                                      const uint64_t *output_bytes) {
    nnefc_cuda_room room = {engine->sizes.wide.ends[part], 0};
    for (uint32_t i = 0; part == 0 && i < description->input_count; i++)
        room.tensors += rounded(input_bytes(&description->inputs[i], dimensions));
    for (uint32_t i = 0; i < description->output_count; i++)
        if (dynamic_sizes->output_parts[i] == part) room.tensors += rounded(output_bytes[i]);
    return room;
}

bool nnefc_cuda_has_room(const nnefc_engine *engine, uint32_t part, nnefc_cuda_room room) {
    const nnefc_cuda_part *own = &engine->parts[part];
    bool has_workspace = engine->callers_workspace != 0 || room.workspace <= own->workspace.bytes;
    return has_workspace && room.tensors <= own->tensors.bytes;
}

nnefc_status nnefc_cuda_grow_operands(nnefc_engine *engine, uint64_t bytes, char *error) {
    if (bytes <= engine->sized_operand_bytes) return NNEFC_OK;
    engine->sized_operand_bytes = 0;
    nnefc_status status = free_pinned(&engine->sized_operands, NNEFC_OK, error);
    if (status != NNEFC_OK) return status;
    void *memory = NULL;
    status = nnefc_cuda_check(nnefc_cuda.pinned_allocate(&memory, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE),
                              "taking pinned memory for these sizes", error);
    if (status != NNEFC_OK) return status;
    engine->sized_operands = memory;
    engine->sized_operand_bytes = bytes;
    return NNEFC_OK;
}

/* Makes a part of the workspace as large as the sizes ask for; what was in it is gone. */
static nnefc_status grow_workspace(nnefc_engine *engine, uint32_t part, uint64_t bytes, char *error) {
    nnefc_cuda_block *own = &engine->parts[part].workspace;
    if (bytes <= own->bytes) return NNEFC_OK;
    nnefc_status status = free_block(engine, own, NNEFC_OK, error);
    return status == NNEFC_OK ? take_block(engine, own, bytes, error) : status;
}

/* The same for the memory of inputs and outputs. */
static nnefc_status grow_tensors(nnefc_engine *engine, nnefc_cuda_part *part, uint64_t bytes, char *error) {
    if (bytes <= part->tensors.bytes) return NNEFC_OK;
    nnefc_status status = free_tensors(engine, part, NNEFC_OK, error);
    if (status == NNEFC_OK) status = take_block(engine, &part->tensors, bytes, error);
    if (status != NNEFC_OK) return status;
    void *staging = NULL;
    int result = nnefc_cuda.pinned_allocate(&staging, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (result == CUDA_SUCCESS) {
        part->staging = staging;
        return NNEFC_OK;
    }
    char dropped[NNEFC_ERROR_BYTES];
    free_tensors(engine, part, NNEFC_OK, dropped);
    return nnefc_cuda_check(result, "taking pinned memory for these sizes", error);
}

nnefc_status nnefc_cuda_check_callers(const nnefc_engine *engine, const uint64_t *ends, uint32_t part, char *error) {
    uint64_t bytes = start_of(ends, part) + ends[part];
    if (engine->callers_workspace == 0 || bytes <= engine->callers_bytes) return NNEFC_OK;
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the workspace has %llu bytes, but the network needs %llu for these sizes",
                      (unsigned long long)engine->callers_bytes, (unsigned long long)bytes);
}

nnefc_status nnefc_cuda_grow(nnefc_engine *engine, uint32_t part, nnefc_cuda_room room, char *error) {
    nnefc_status status = NNEFC_OK;
    if (engine->callers_workspace == 0) status = grow_workspace(engine, part, room.workspace, error);
    return status == NNEFC_OK ? grow_tensors(engine, &engine->parts[part], room.tensors, error) : status;
}

CUdeviceptr nnefc_cuda_workspace(const nnefc_engine *engine, uint32_t part) {
    if (engine->callers_workspace != 0) return engine->callers_workspace + start_of(engine->sizes.ends, part);
    CUdeviceptr own = engine->parts[part].workspace.start;
    return own != 0 || part > 0 ? own : engine->workspace; /* whose size is known where that of nothing in it is open */
}

void nnefc_cuda_set_addresses(nnefc_engine *engine, uint32_t part) {
    const nnefc_cuda_part *own = &engine->parts[part];
    uint64_t at = 0;
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++) {
        if (part_of(i) != part) continue;
        uint64_t bytes = engine->sizes.tensor_bytes[i];
        engine->tensors[i] = (nnefc_cuda_tensor){bytes, own->tensors.start + at, own->staging + at};
        at += rounded(bytes);
    }
}

void nnefc_cuda_free_data_dependent(nnefc_engine *engine) {
    for (uint32_t i = description->input_count; i < nnefc_cuda_tensor_count(); i++)
        if (part_of(i) > 0) engine->tensors[i] = (nnefc_cuda_tensor){0, 0, NULL};
}
