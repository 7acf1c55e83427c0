/* Copies between the session's GPU and others, where the caller's tensors may be. They are begun before and after a run's graph,
 * which therefore serves all addresses on other GPUs. A copy names the primary contexts of both GPUs, as it must for memory of
 * a pool that the session's GPU may not access (CUDA programming guide, "Stream-Ordered Memory Allocator"). */
#include <stdlib.h>

#include "checks.h"
#include "gpu_engine.h"
#include "model.h"

nnefc_status nnefc_cuda_find_peer(nnefc_engine *engine, CUdevice device, CUcontext *context, char *error) {
    for (uint32_t i = 0; i < engine->peer_count; i++) {
        *context = engine->peers[i].context;
        if (engine->peers[i].device == device) return NNEFC_OK;
    }
    nnefc_cuda_peer *peers = realloc(engine->peers, (engine->peer_count + 1) * sizeof *peers);
    if (peers == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for another GPU's context");
    engine->peers = peers;
    nnefc_status status = nnefc_cuda_check(nnefc_cuda.context_retain(context, device), "opening another GPU's primary context", error);
    if (status == NNEFC_OK) peers[engine->peer_count++] = (nnefc_cuda_peer){device, *context};
    return status;
}

nnefc_status nnefc_cuda_release_peers(nnefc_engine *engine, nnefc_status status, char *error) {
    while (engine->peer_count > 0) {
        int result = nnefc_cuda.context_release(engine->peers[--engine->peer_count].device);
        status = nnefc_cuda_also(status, result, "closing another GPU's primary context", error);
    }
    return status;
}

nnefc_status nnefc_cuda_copy_inputs_of_peers(nnefc_engine *engine, CUstream stream, char *error) {
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->input_count && status == NNEFC_OK; i++) {
        const nnefc_cuda_tensor *tensor = &engine->tensors[i];
        const nnefc_cuda_location *from = &engine->locations[i];
        if (from->home != NNEFC_CUDA_ON_PEER) continue;
        int result = nnefc_cuda.copy_between(tensor->memory, engine->device->context, from->on_peer, from->peer,
                                             (size_t)tensor->bytes, stream);
        status = nnefc_cuda_check(result, "copying an input from another GPU", error);
    }
    return status;
}

nnefc_status nnefc_cuda_copy_outputs_to_peers(nnefc_engine *engine, CUstream stream, char *error) {
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++) {
        const nnefc_cuda_tensor *tensor = &engine->tensors[description->input_count + i];
        const nnefc_cuda_location *to = &engine->locations[description->input_count + i];
        size_t bytes = (size_t)nnefc_cuda_output_bytes(engine, i);
        if (to->home != NNEFC_CUDA_ON_PEER || bytes == 0) continue;
        int result = nnefc_cuda.copy_between(to->on_peer, to->peer, tensor->memory, engine->device->context, bytes, stream);
        status = nnefc_cuda_check(result, "copying an output to another GPU", error);
    }
    return status;
}
