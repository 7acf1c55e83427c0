/* Allocates a session's resources: GPU and host memory, a stream, threads. */
#include <stdlib.h>

#include "checks.h"
#include "gpu_engine.h"
#include "model.h"

enum {
    DEVICE_ALIGNMENT = 256, /* what the driver's own blocks have; the description counts with it too */
    PINNED_ALIGNMENT = 64
};

static const nnefc_cuda_module *const module = &nnefc_cuda_this_module;

uint32_t nnefc_cuda_tensor_count(void) { return description->input_count + description->output_count; }

static const nnefc_tensor *tensor_of(uint32_t index) {
    return index < description->input_count ? &description->inputs[index]
                                            : &description->outputs[index - description->input_count];
}

/* Returns the offset of so many bytes appended to an area. */
static uint64_t reserve(uint64_t *area, uint64_t bytes, uint64_t alignment) {
    uint64_t start = *area, rounded = bytes + (alignment - 1);
    *area = rounded < bytes || start > UINT64_MAX - rounded ? UINT64_MAX : start + rounded / alignment * alignment;
    return start;
}

static uint32_t operand_count(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < module->host_kernel_count; i++) count += module->host_kernels[i].operand_count;
    return count;
}

static bool allocate_tables(nnefc_engine *engine) {
    size_t tensors = nnefc_cuda_tensor_count() + 1, operands = operand_count() + 1, calls = module->host_kernel_count + 1;
    engine->tensors = calloc(tensors, sizeof *engine->tensors);
    engine->addresses = calloc(tensors, sizeof *engine->addresses);
    engine->locations = calloc(tensors * (NNEFC_CUDA_GRAPHS + 1), sizeof *engine->locations);
    engine->operands = calloc(operands, sizeof *engine->operands);
    engine->host_calls = calloc(calls, sizeof *engine->host_calls);
    if (engine->tensors == NULL || engine->addresses == NULL || engine->locations == NULL || engine->operands == NULL ||
        engine->host_calls == NULL)
        return false;
    for (size_t i = 0; i < NNEFC_CUDA_GRAPHS; i++) engine->graphs[i].locations = engine->locations + (i + 1) * tensors;
    return true;
}

/* Allocates from the GPU's current memory pool, where it has pools: that stops no other work. The memory may be used on any
 * stream when this returns. */
static nnefc_status take_from_driver(nnefc_engine *engine, CUdeviceptr *memory, uint64_t bytes, const char *what, char *error) {
    if (!engine->device->has_pools) return nnefc_cuda_check(nnefc_cuda.memory_allocate(memory, (size_t)bytes), what, error);
    CUdeviceptr block = 0;
    int result = nnefc_cuda.pool_allocate(&block, (size_t)bytes, engine->stream);
    if (result != CUDA_SUCCESS) return nnefc_cuda_check(result, what, error);
    result = nnefc_cuda.stream_synchronize(engine->stream);
    if (result == CUDA_SUCCESS)
        *memory = block;
    else
        nnefc_cuda.pool_free(block, engine->stream);
    return nnefc_cuda_check(result, what, error);
}

/* Frees such memory, behind runs that could not be waited for. */
static int give_to_driver(nnefc_engine *engine, CUdeviceptr memory) {
    if (!engine->device->has_pools) return nnefc_cuda.memory_free(memory);
    int waited = CUDA_SUCCESS, left = CUDA_SUCCESS;
    if (engine->event_is_pending) waited = nnefc_cuda.stream_wait(engine->stream, engine->done, 0);
    int freed = nnefc_cuda.pool_free(memory, engine->stream);
    if (engine->event_is_pending || engine->stream_is_busy) left = nnefc_cuda.stream_synchronize(engine->stream);
    return waited != CUDA_SUCCESS ? waited : freed != CUDA_SUCCESS ? freed : left;
}

nnefc_status nnefc_cuda_take_memory(nnefc_engine *engine, CUdeviceptr *memory, uint64_t bytes, const char *what, char *error) {
    const nnefc_memory *programs = &engine->programs_memory;
    if (programs->allocate == NULL) return take_from_driver(engine, memory, bytes, what, error);
    void *block = programs->allocate(programs->context, (size_t)bytes, DEVICE_ALIGNMENT);
    nnefc_status status = nnefc_cuda_check_location(engine, block, "what allocate returned", error);
    if (block == NULL || (uintptr_t)block % DEVICE_ALIGNMENT != 0)
        status = nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "%s: allocate returned no memory of %llu bytes that is aligned to %d", what,
                            (unsigned long long)bytes, DEVICE_ALIGNMENT);
    if (status == NNEFC_OK)
        *memory = (uintptr_t)block;
    else if (block != NULL)
        programs->release(programs->context, block, (size_t)bytes, DEVICE_ALIGNMENT);
    return status;
}

nnefc_status nnefc_cuda_free_memory(nnefc_engine *engine, CUdeviceptr memory, uint64_t bytes, nnefc_status status, char *error) {
    const nnefc_memory *programs = &engine->programs_memory;
    if (memory == 0) return status;
    if (programs->allocate == NULL) return nnefc_cuda_also(status, give_to_driver(engine, memory), "freeing the GPU's memory", error);
    programs->release(programs->context, (void *)(uintptr_t)memory, (size_t)bytes, DEVICE_ALIGNMENT);
    return status;
}

/* Workspace, states, inputs, outputs, and counters of arrivals, in one block of the GPU's. */
static nnefc_status take_device_memory(nnefc_engine *engine, const nnefc_options *options, char *error) {
    uint64_t bytes = 0, own = options->workspace == NULL ? description->workspace_bytes : 0;
    uint64_t workspace = reserve(&bytes, own, DEVICE_ALIGNMENT);
    uint64_t state = reserve(&bytes, description->state_bytes, DEVICE_ALIGNMENT);
    uint64_t arrivals = reserve(&bytes, module->arrival_bytes, DEVICE_ALIGNMENT);
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++) {
        engine->tensors[i].bytes = tensor_of(i)->bytes;
        engine->tensors[i].memory = reserve(&bytes, tensor_of(i)->bytes, DEVICE_ALIGNMENT);
    }
    if (bytes > SIZE_MAX / 2)
        return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "a session needs more memory than a GPU can have");
    nnefc_status status = NNEFC_OK;
    if (bytes > 0) status = nnefc_cuda_take_memory(engine, &engine->memory, bytes, "taking the GPU's memory for a session", error);
    if (status != NNEFC_OK) return status;
    engine->memory_bytes = bytes;
    engine->workspace = options->workspace == NULL ? engine->memory + workspace : (uintptr_t)options->workspace;
    engine->state = engine->memory + state;
    engine->arrivals = engine->memory + arrivals;
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++) engine->tensors[i].memory += engine->memory;
    return NNEFC_OK;
}

/* Bytes of pinned memory that a host kernel's operands take. Kernels follow each other, so they share it. */
static uint64_t host_kernel_bytes(const nnefc_cuda_host_kernel *kernel) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < kernel->operand_count; i++) reserve(&bytes, kernel->operands[i].bytes, PINNED_ALIGNMENT);
    return bytes;
}

static void lay_out_host_calls(nnefc_engine *engine, uint8_t *start) {
    void **operands = engine->operands;
    for (uint32_t i = 0; i < module->host_kernel_count; i++) {
        const nnefc_cuda_host_kernel *kernel = &module->host_kernels[i];
        engine->host_calls[i] = (nnefc_cuda_host_call){engine->pool, kernel, operands, NULL};
        uint64_t bytes = 0;
        for (uint32_t j = 0; j < kernel->operand_count; j++)
            *operands++ = start + reserve(&bytes, kernel->operands[j].bytes, PINNED_ALIGNMENT);
    }
}

/* The word of failures, the counts of a run, staging for inputs and outputs, and the operands of host kernels in one block of pinned
 * memory. */
static nnefc_status take_pinned_memory(nnefc_engine *engine, char *error) {
    uint64_t bytes = 0, maximum = 0;
    uint64_t count_bytes = module->output_counts != NULL ? module->arrival_bytes - module->counts_offset : 0;
    reserve(&bytes, sizeof *engine->failure, PINNED_ALIGNMENT);
    reserve(&bytes, count_bytes, PINNED_ALIGNMENT);
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++) reserve(&bytes, tensor_of(i)->bytes, PINNED_ALIGNMENT);
    for (uint32_t i = 0; i < module->host_kernel_count; i++) {
        uint64_t needed = host_kernel_bytes(&module->host_kernels[i]);
        if (needed > maximum) maximum = needed;
    }
    reserve(&bytes, maximum, PINNED_ALIGNMENT);
    if (bytes > SIZE_MAX / 2) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "a session needs more memory than there can be");
    void *memory = NULL;
    int result = nnefc_cuda.pinned_allocate(&memory, (size_t)bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS) return nnefc_cuda_check(result, "taking pinned memory", error);
    engine->pinned = memory;
    engine->failure = memory;
    *engine->failure = 0;
    uint64_t at = PINNED_ALIGNMENT;
    engine->counts = (void *)(engine->pinned + reserve(&at, count_bytes, PINNED_ALIGNMENT));
    for (uint32_t i = 0; i < nnefc_cuda_tensor_count(); i++)
        engine->tensors[i].staging = engine->pinned + reserve(&at, tensor_of(i)->bytes, PINNED_ALIGNMENT);
    lay_out_host_calls(engine, engine->pinned + at);
    result = nnefc_cuda.pinned_address(&engine->failure_address, engine->pinned, 0);
    return nnefc_cuda_check(result, "asking for the GPU's address of pinned memory", error);
}

static nnefc_status take_threads(nnefc_engine *engine, const nnefc_options *options, char *error) {
    uint32_t threads = 0;
    nnefc_status status = nnefc_choose_threads(options, &threads, error);
    if (status != NNEFC_OK) return status;
    threads = module->host_kernel_count > 0 ? threads : 1;
    nnefc_options of_host = *options;
    of_host.allocate = NULL; /* it allocates the GPU's memory */
    engine->pool = nnefc_pool_create(&of_host, threads, description->scratch_bytes);
    if (engine->pool == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory or threads for a session");
    return NNEFC_OK;
}

/* Zeros for launches to count their blocks in; each leaves zeros behind. */
static nnefc_status clear_arrivals(nnefc_engine *engine, char *error) {
    if (module->arrival_bytes == 0) return NNEFC_OK;
    int result = nnefc_cuda.fill_bytes(engine->arrivals, 0, (size_t)module->arrival_bytes, engine->stream);
    if (result == CUDA_SUCCESS) result = nnefc_cuda.stream_synchronize(engine->stream);
    return nnefc_cuda_check(result, "clearing the GPU's memory", error);
}

nnefc_status nnefc_cuda_fill(nnefc_engine *engine, const nnefc_options *options, char *error) {
    if (!allocate_tables(engine)) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
    engine->programs_memory = nnefc_memory_of(options);
    nnefc_status status = take_threads(engine, options, error);
    if (status == NNEFC_OK) status = nnefc_cuda_check_location(engine, options->workspace, "the workspace", error);
    if (status == NNEFC_OK) /* in whose order memory is allocated */
        status = nnefc_cuda_check(nnefc_cuda.stream_create(&engine->stream, CU_STREAM_NON_BLOCKING), "making a stream", error);
    if (status == NNEFC_OK) status = take_device_memory(engine, options, error);
    if (status == NNEFC_OK) status = take_pinned_memory(engine, error);
    if (status == NNEFC_OK)
        status = nnefc_cuda_check(nnefc_cuda.event_create(&engine->done, CU_EVENT_DISABLE_TIMING), "making an event", error);
    return status == NNEFC_OK ? clear_arrivals(engine, error) : status;
}

nnefc_status nnefc_cuda_empty(nnefc_engine *engine, nnefc_status status, char *error) {
    /* first, for the GPU finishes all that uses it, even if waiting for that has failed before */
    status = nnefc_cuda_free_memory(engine, engine->memory, engine->memory_bytes, status, error);
    for (int i = 0; i < NNEFC_CUDA_GRAPHS; i++)
        if (engine->graphs[i].runnable != NULL)
            status = nnefc_cuda_also(status, nnefc_cuda.runnable_destroy(engine->graphs[i].runnable), "freeing a graph", error);
    for (int i = 0; i < NNEFC_CUDA_GRAPHS; i++)
        if (engine->graphs[i].done != NULL)
            status = nnefc_cuda_also(status, nnefc_cuda.event_destroy(engine->graphs[i].done), "freeing an event", error);
    if (engine->done != NULL)
        status = nnefc_cuda_also(status, nnefc_cuda.event_destroy(engine->done), "freeing an event", error);
    if (engine->stream != NULL)
        status = nnefc_cuda_also(status, nnefc_cuda.stream_destroy(engine->stream), "freeing a stream", error);
    if (engine->pinned != NULL)
        status = nnefc_cuda_also(status, nnefc_cuda.pinned_free(engine->pinned), "freeing pinned memory", error);
    return nnefc_cuda_release_peers(engine, status, error);
}

void nnefc_cuda_free_host(nnefc_engine *engine) {
    if (engine->pool != NULL) nnefc_pool_destroy(engine->pool);
#ifdef NNEFC_OPEN
    free(engine->graphs[0].sizes); /* those of all */
    free(engine->parts);
    nnefc_sizes_free(&engine->sizes);
#endif
    free(engine->peers);
    free(engine->host_calls);
    free(engine->operands);
    free(engine->locations);
    free(engine->addresses);
    free(engine->tensors);
    free(engine);
}
