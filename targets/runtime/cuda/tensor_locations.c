/* Where the caller's tensors are. The driver knows its own memory; all other is the host's. */
#include "checks.h"
#include "gpu_engine.h"
#include "model.h"

enum { VECTOR_BYTES = 16 }; /* the max bytes that a kernel reads or writes at a time */

/* What the driver knows of an address. */
typedef struct memory_kind {
    unsigned type; /* a CUmemorytype; 0 for memory that the driver does not know */
    int device;
    unsigned is_managed; /* by the driver, which moves it to where it is used */
} memory_kind;

static int ask(const void *pointer, memory_kind *kind) {
    int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                        CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *values[] = {&kind->type, &kind->device, &kind->is_managed};
    *kind = (memory_kind){0};
    return nnefc_cuda.pointer_attributes(3, attributes, values, (uintptr_t)pointer);
}

static bool is_on(const memory_kind *kind, const nnefc_cuda_device *device) {
    return kind->is_managed || (kind->type == CU_MEMORYTYPE_DEVICE && kind->device == device->device);
}

static nnefc_status locate(nnefc_engine *engine, uint64_t bytes, const void *pointer, nnefc_cuda_location *location, char *error) {
    *location = (nnefc_cuda_location){NNEFC_CUDA_HERE, 0, 0, NULL};
    if (bytes == 0) return NNEFC_OK;
    memory_kind kind;
    nnefc_status status = nnefc_cuda_check(ask(pointer, &kind), "asking where a tensor is", error);
    if (status != NNEFC_OK) return status;
    if (is_on(&kind, engine->device)) {
        bool aligned = (uintptr_t)pointer % VECTOR_BYTES == 0;
        location->home = aligned ? NNEFC_CUDA_HERE : NNEFC_CUDA_ASKEW;
        location->address = (uintptr_t)pointer;
    } else if (kind.type == CU_MEMORYTYPE_DEVICE) {
        location->home = NNEFC_CUDA_ON_PEER;
        location->on_peer = (uintptr_t)pointer;
        return nnefc_cuda_find_peer(engine, kind.device, &location->peer, error);
    } else {
        location->home = NNEFC_CUDA_IN_HOST;
    }
    return NNEFC_OK;
}

nnefc_status nnefc_cuda_locate(nnefc_engine *engine, const void *const *inputs, void *const *outputs, char *error) {
    nnefc_cuda_location *location = engine->locations;
    const nnefc_cuda_tensor *own = engine->tensors;
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->input_count && status == NNEFC_OK; i++)
        status = locate(engine, own++->bytes, inputs[i], location++, error);
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++)
        status = locate(engine, own++->bytes, outputs[i], location++, error);
    return status;
}

nnefc_status nnefc_cuda_locate_output(nnefc_engine *engine, uint32_t output, const void *pointer, char *error) {
    uint32_t index = description->input_count + output;
    return locate(engine, engine->tensors[index].bytes, pointer, &engine->locations[index], error);
}

nnefc_status nnefc_cuda_check_location(const nnefc_engine *engine, void *memory, const char *what, char *error) {
    if (memory == NULL) return NNEFC_OK;
    memory_kind kind;
    nnefc_status status = nnefc_cuda_check(ask(memory, &kind), "asking where memory of the program's is", error);
    if (status != NNEFC_OK || is_on(&kind, engine->device)) return status;
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s is not in the memory of GPU %d", what, engine->device->device);
}
