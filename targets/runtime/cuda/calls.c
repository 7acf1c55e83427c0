/* Functions that the network's code calls while a run is enqueued on a stream. */
#include <stdio.h>

#include "checks.h"
#include "gpu_engine.h"
#include "model.h"
#include "threads/per_thread.h"

NNEFC_PER_THREAD(putting) /* the engine whose run the thread is putting on a stream */

static nnefc_engine *current(void) { return nnefc_per_thread_get(&putting); }

/* Notes the run's first failure. */
static int32_t note(nnefc_engine *engine, int result, const char *what) {
    if (result == CUDA_SUCCESS) return 0;
    engine->status = nnefc_cuda_also(engine->status, result, what, engine->error);
    return -1;
}

static bool has_failed(const nnefc_engine *engine) { return engine == NULL || engine->status != NNEFC_OK; }

static CUdeviceptr address_of(const void *pointer) { return (CUdeviceptr)(uintptr_t)pointer; }

int32_t nnefc_cuda_launch(uint32_t kernel, const uint32_t geometry[7], void **arguments) {
    nnefc_engine *engine = current();
    if (has_failed(engine)) return -1;
    const uint32_t *grid = geometry, *block = geometry + 3;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return 0;
    int result = nnefc_cuda.launch(engine->device->functions[kernel], grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                   geometry[6], engine->current, arguments, NULL);
    if (result == CUDA_SUCCESS) return 0;
    char what[NNEFC_ERROR_BYTES / 2];
    snprintf(what, sizeof what, "launching the kernel %.150s", nnefc_cuda_this_module.kernels[kernel]);
    return note(engine, result, what);
}

int32_t nnefc_cuda_encode(nnefc_cuda_tensor_map *map, const void *address, const nnefc_cuda_box *box) {
    nnefc_engine *engine = current();
    if (has_failed(engine)) return -1;
    *map = (nnefc_cuda_tensor_map){{0}};
    for (uint32_t i = 0; i < box->rank; i++)
        if (box->sizes[i] == 0) return 0; /* the kernel copies nothing */
    int type = box->element_bytes == 8   ? CU_TENSOR_MAP_DATA_TYPE_UINT64
               : box->element_bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
               : box->element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                         : CU_TENSOR_MAP_DATA_TYPE_UINT8;
    int swizzle = box->row_vectors == 8   ? CU_TENSOR_MAP_SWIZZLE_128B
                  : box->row_vectors == 4 ? CU_TENSOR_MAP_SWIZZLE_64B
                  : box->row_vectors == 2 ? CU_TENSOR_MAP_SWIZZLE_32B
                                          : CU_TENSOR_MAP_SWIZZLE_NONE;
    int result = nnefc_cuda.tensor_map_encode == NULL
                     ? CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
                     : nnefc_cuda.tensor_map_encode(map, type, box->rank, (void *)(uintptr_t)address, box->sizes, box->strides, box->extent, box->steps,
                                                    CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return note(engine, result, "describing a tensor to the GPU (cuTensorMapEncodeTiled)");
}

int32_t nnefc_cuda_copy(void *destination, const void *source, uint64_t bytes) {
    nnefc_engine *engine = current();
    if (has_failed(engine)) return -1;
    if (bytes == 0 || destination == source) return 0;
    int result = nnefc_cuda.copy(address_of(destination), address_of(source), (size_t)bytes, engine->current);
    return note(engine, result, "copying within the GPU's memory");
}

int32_t nnefc_cuda_read(void *host, const void *device, uint64_t bytes) {
    nnefc_engine *engine = current();
    if (has_failed(engine)) return -1;
    int result = nnefc_cuda.copy_out(host, address_of(device), (size_t)bytes, engine->current);
    if (result == CUDA_SUCCESS) result = nnefc_cuda.stream_synchronize(engine->current);
    return note(engine, result, "reading a value from the GPU");
}

int32_t nnefc_cuda_count(void *device, int64_t count) {
    nnefc_engine *engine = current();
    if (has_failed(engine)) return -1;
    /* as fillings, for a copy would read the host's memory again whenever a graph is run */
    CUdeviceptr low = address_of(device), high = low + sizeof(uint32_t);
    int result = nnefc_cuda.fill_words(low, (uint32_t)count, 1, engine->current);
    if (result == CUDA_SUCCESS && (uint32_t)count == 0)
        result = nnefc_cuda.fill_words(high, (uint32_t)((uint64_t)count >> 32), 1, engine->current);
    return note(engine, result, "writing the number of an iteration to the GPU");
}

/* A failure stays in the pool until the run is done. */
static void run_on_host(void *argument) {
    nnefc_cuda_host_call *call = argument;
    nnefc_outside outside;
    if (!nnefc_pool_enter(call->pool, &outside)) return;
    int32_t result = call->kernel->call(call->operands, call->sizes);
    if (result != 0) nnefc_worker_fail(nnefc_pool_current(), "a kernel on the processor failed with %d", (int)result);
    nnefc_pool_leave(outside);
}

int32_t nnefc_cuda_host_step(const nnefc_cuda_host_kernel *kernel, void *const *operands) {
    nnefc_engine *engine = current();
    if (has_failed(engine)) return -1;
    nnefc_cuda_host_call *call = &engine->host_calls[kernel - nnefc_cuda_this_module.host_kernels];
    int result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < kernel->operand_count && result == CUDA_SUCCESS; i++) {
        const nnefc_cuda_operand *operand = &kernel->operands[i];
        if ((operand->access & NNEFC_CUDA_READ) && operand->bytes > 0)
            result = nnefc_cuda.copy_out(call->operands[i], address_of(operands[i]), (size_t)operand->bytes, engine->current);
    }
    if (result == CUDA_SUCCESS) result = nnefc_cuda.launch_host(engine->current, run_on_host, call);
    for (uint32_t i = 0; i < kernel->operand_count && result == CUDA_SUCCESS; i++) {
        const nnefc_cuda_operand *operand = &kernel->operands[i];
        if ((operand->access & NNEFC_CUDA_WRITE) && operand->bytes > 0)
            result = nnefc_cuda.copy_in(address_of(operands[i]), call->operands[i], (size_t)operand->bytes, engine->current);
    }
    return note(engine, result, "putting a kernel of the processor between those of the GPU");
}

#ifdef NNEFC_OPEN
enum { OPERAND_ALIGNMENT = 64 };

/* Addresses of a call's operands, of so many bytes each. What the memory was used for before must be over if it has to grow. */
static bool set_operands(nnefc_engine *engine, nnefc_cuda_host_call *call, const uint64_t *bytes) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < call->kernel->operand_count; i++)
        end += (bytes[i] + OPERAND_ALIGNMENT - 1) / OPERAND_ALIGNMENT * OPERAND_ALIGNMENT;
    if (end > engine->sized_operand_bytes) {
        if (note(engine, nnefc_cuda.stream_synchronize(engine->current), "waiting for the GPU") != 0) return false;
        engine->status = nnefc_cuda_grow_operands(engine, end, engine->error);
        if (has_failed(engine)) return false;
    }
    uint8_t *next = engine->sized_operands;
    for (uint32_t i = 0; i < call->kernel->operand_count; i++) {
        call->operands[i] = next;
        next += (bytes[i] + OPERAND_ALIGNMENT - 1) / OPERAND_ALIGNMENT * OPERAND_ALIGNMENT;
    }
    return true;
}

int32_t nnefc_cuda_sized_host_step(const nnefc_cuda_host_kernel *kernel, void *const *operands, const uint64_t *bytes,
                                   const int64_t *sizes) {
    nnefc_engine *engine = current();
    if (has_failed(engine)) return -1;
    nnefc_cuda_host_call *call = &engine->host_calls[kernel - nnefc_cuda_this_module.host_kernels];
    if (!set_operands(engine, call, bytes)) return -1;
    call->sizes = sizes;
    int result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < kernel->operand_count && result == CUDA_SUCCESS; i++)
        if ((kernel->operands[i].access & NNEFC_CUDA_READ) && bytes[i] > 0)
            result = nnefc_cuda.copy_out(call->operands[i], address_of(operands[i]), (size_t)bytes[i], engine->current);
    if (result == CUDA_SUCCESS) result = nnefc_cuda.stream_synchronize(engine->current);
    if (result == CUDA_SUCCESS) run_on_host(call);
    for (uint32_t i = 0; i < kernel->operand_count && result == CUDA_SUCCESS; i++)
        if ((kernel->operands[i].access & NNEFC_CUDA_WRITE) && bytes[i] > 0)
            result = nnefc_cuda.copy_in(address_of(operands[i]), call->operands[i], (size_t)bytes[i], engine->current);
    return note(engine, result, "running a kernel of the processor between those of the GPU");
}
#endif

int32_t *nnefc_cuda_failure(void) {
    const nnefc_engine *engine = current();
    return engine != NULL ? (int32_t *)(uintptr_t)engine->failure_address : NULL;
}

uint32_t *nnefc_cuda_arrivals(void) {
    const nnefc_engine *engine = current();
    return engine != NULL ? (uint32_t *)(uintptr_t)engine->arrivals : NULL;
}

int32_t nnefc_cuda_capability(void) {
    const nnefc_engine *engine = current();
    return engine != NULL ? engine->device->capability : 0;
}

/* Where a run keeps its counts. */
static CUdeviceptr counts_of(const nnefc_engine *engine) {
    return engine->arrivals + nnefc_cuda_this_module.counts_offset;
}

int32_t nnefc_cuda_keep_count(int32_t number, const void *device) {
    nnefc_engine *engine = current();
    if (has_failed(engine)) return -1;
    CUdeviceptr slot = counts_of(engine) + (uint32_t)number * sizeof(int64_t);
    return nnefc_cuda_copy((void *)(uintptr_t)slot, device, sizeof(int64_t));
}

const int64_t *nnefc_cuda_kept_count(uint32_t number) {
    const nnefc_engine *engine = current();
    return engine != NULL ? (const int64_t *)(uintptr_t)counts_of(engine) + number : NULL;
}

int32_t nnefc_cuda_run_failed(void) {
    const nnefc_engine *engine = current();
    return has_failed(engine) || *engine->failure != 0 || nnefc_pool_failed(engine->pool);
}

/* Brings the inputs to where the kernels read them. */
static void put_inputs(nnefc_engine *engine) {
    uint32_t count = nnefc_this_model.description.input_count;
    for (uint32_t i = 0; i < count && !has_failed(engine); i++) {
        const nnefc_cuda_tensor *tensor = &engine->tensors[i];
        const nnefc_cuda_location *location = &engine->locations[i];
        if (location->home == NNEFC_CUDA_IN_HOST)
            note(engine, nnefc_cuda.copy_in(tensor->memory, tensor->staging, (size_t)tensor->bytes, engine->current),
                 "copying an input to the GPU");
        else if (location->home == NNEFC_CUDA_ASKEW)
            note(engine, nnefc_cuda.copy(tensor->memory, location->address, (size_t)tensor->bytes, engine->current),
                 "copying an input within the GPU's memory");
    }
}

static void put_outputs(nnefc_engine *engine) {
    uint32_t first = nnefc_this_model.description.input_count;
    for (uint32_t i = first; i < nnefc_cuda_tensor_count() && !has_failed(engine); i++) {
        const nnefc_cuda_tensor *tensor = &engine->tensors[i];
        const nnefc_cuda_location *location = &engine->locations[i];
        size_t bytes = (size_t)nnefc_cuda_output_bytes(engine, i - first);
        if (bytes == 0) continue;
        if (location->home == NNEFC_CUDA_IN_HOST)
            note(engine, nnefc_cuda.copy_out(tensor->staging, tensor->memory, bytes, engine->current),
                 "copying an output from the GPU");
        else if (location->home == NNEFC_CUDA_ASKEW)
            note(engine, nnefc_cuda.copy(location->address, tensor->memory, bytes, engine->current),
                 "copying an output within the GPU's memory");
    }
}

static void *pointer_to(CUdeviceptr address) { return (void *)(uintptr_t)address; }

void *nnefc_cuda_address(const nnefc_engine *engine, uint32_t tensor) {
    const nnefc_cuda_location *location = &engine->locations[tensor];
    bool in_place = location->home == NNEFC_CUDA_HERE && location->address != 0;
    return pointer_to(in_place ? location->address : engine->tensors[tensor].memory);
}

/* Whether sizes of outputs are known only when kernels have run. */
static bool counts_outputs(void) {
#ifdef NNEFC_OPEN
    return nnefc_this_model.open.data_dependent_count > 0;
#else
    return false;
#endif
}

uint64_t nnefc_cuda_output_bytes(const nnefc_engine *engine, uint32_t output) {
#ifdef NNEFC_OPEN
    if (counts_outputs()) {
        const nnefc_tensor *tensor = &description->outputs[output];
        const int64_t *shape = nnefc_sizes_output(&engine->sizes, output);
        uint64_t bytes = nnefc_element_bytes(tensor->type);
        for (int32_t i = 0; i < tensor->rank; i++) bytes *= (uint64_t)shape[i];
        return bytes;
    }
#endif
    return engine->tensors[description->input_count + output].bytes;
}

static void put_kernels(nnefc_engine *engine) {
    uint32_t count = nnefc_cuda_tensor_count();
    for (uint32_t i = 0; i < count; i++) engine->addresses[i] = nnefc_cuda_address(engine, i);
#ifdef NNEFC_OPEN
    CUdeviceptr workspace = nnefc_cuda_workspace(engine, 0);
#else
    CUdeviceptr workspace = engine->workspace;
#endif
    int32_t result = nnefc_this_model.call((const void *const *)engine->addresses,
                                           engine->addresses + nnefc_this_model.description.input_count,
                                           pointer_to(engine->state), pointer_to(workspace),
                                           pointer_to(engine->device->constants)
#ifdef NNEFC_OPEN
                                               , engine->sizes.values, engine
#endif
    );
    if (result != 0 && !has_failed(engine))
        engine->status = nnefc_fail(NNEFC_KERNEL_ERROR, engine->error, "the network's code failed with %d", (int)result);
}

static void put_run(nnefc_engine *engine) {
    put_inputs(engine);
    if (!has_failed(engine)) put_kernels(engine);
    if (!has_failed(engine) && !counts_outputs()) put_outputs(engine);
}

#ifdef NNEFC_OPEN
/* Waits for the run, and computes the sizes of outputs that follow from its counts. */
static void read_counts(nnefc_engine *engine) {
    const nnefc_cuda_module *module = &nnefc_cuda_this_module;
    if (module->output_counts == NULL) return;
    uint64_t bytes = module->arrival_bytes - module->counts_offset;
    if (nnefc_cuda_read(engine->counts, pointer_to(counts_of(engine)), bytes) != 0) return;
    int64_t *sizes = engine->sizes.values + description->dimension_count + nnefc_this_model.open.storage_count;
    for (uint32_t i = 0; i < nnefc_this_model.open.data_dependent_count; i++) {
        const nnefc_cuda_output_count *of = &module->output_counts[i];
        if (of->number >= 0) sizes[i] = of->factor * engine->counts[of->number] + of->added;
    }
}

/* Brings the outputs to the caller. The network's code may have ended before their sizes were known. */
static void put_results(nnefc_engine *engine) {
    read_counts(engine);
    if (nnefc_cuda_run_failed()) return;
    nnefc_sizes_of_run(&engine->sizes);
    put_outputs(engine);
}
#endif

/* Puts a part of a run on a stream. */
static nnefc_status put(nnefc_engine *engine, CUstream stream, void (*part)(nnefc_engine *), char *error) {
    nnefc_engine *previous = current();
    if (!nnefc_per_thread_set(&putting, engine))
        return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory to tell the thread from others");
    engine->current = stream;
    engine->status = NNEFC_OK;
    engine->error = error;
    part(engine);
    nnefc_per_thread_set(&putting, previous);
    return engine->status;
}

nnefc_status nnefc_cuda_put(nnefc_engine *engine, CUstream stream, char *error) {
    return put(engine, stream, put_run, error);
}

#ifdef NNEFC_OPEN
nnefc_status nnefc_cuda_put_results(nnefc_engine *engine, CUstream stream, char *error) {
    return counts_outputs() ? put(engine, stream, put_results, error) : NNEFC_OK;
}
#endif
