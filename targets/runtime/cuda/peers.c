/* Primary contexts of other GPUs, where the caller's tensors may be. A copy between two GPUs names the contexts of both, as it must
 * for memory of a pool that the session's GPU may not access (CUDA programming guide, "Stream-Ordered Memory Allocator"). */
#include <stdlib.h>

#include "checks.h"
#include "gpu_engine.h"

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
