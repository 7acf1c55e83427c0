/* What the network's code asks for when it has read a data-dependent size. The stream is idle then: the size was
 * waited for, and whatever used memory before that is over. */
#include "checks.h"
#include "gpu_engine.h"
#include "model.h"

static const nnefc_dynamic_sizes *const dynamic_sizes = &nnefc_this_model.open;

/* Memory for a part that was laid out. */
static nnefc_status fit(nnefc_engine *engine, uint32_t part, char *error) {
    nnefc_cuda_room room = nnefc_cuda_room_now(engine, part);
    nnefc_status status = nnefc_cuda_check_callers(engine, engine->sizes.ends, part, error);
    if (status == NNEFC_OK && !nnefc_cuda_has_room(engine, part, room)) status = nnefc_cuda_grow(engine, part, room, error);
    if (status == NNEFC_OK && room.workspace > 0) nnefc_sizes_keep(&engine->sizes, part);
    if (status == NNEFC_OK) nnefc_cuda_set_addresses(engine, part);
    return status;
}

/* Finds out where the outputs go whose shapes are known now. */
static nnefc_status reserve_outputs(nnefc_engine *engine, uint32_t part, char *error) {
    nnefc_sizes *sizes = &engine->sizes;
    nnefc_status status = nnefc_outputs_assign(engine->outputs, part, sizes->tensor_bytes + description->input_count,
                                              nnefc_sizes_output(sizes, 0), error);
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++)
        if (dynamic_sizes->output_parts[i] == part)
            status = nnefc_cuda_locate_output(engine, i, engine->outputs->pointers[i], error);
    return status;
}

/* Called by the network's code when it has written the size that a part of the workspace waits for: returns the part, or null if
 * there is no memory for it, or if the size is none. The run ends then. */
void *nnefc_run_resized(void *run, int32_t part);

void *nnefc_run_resized(void *run, int32_t part) {
    nnefc_engine *engine = run;
    if (nnefc_cuda_run_failed()) return NULL;
    engine->status = nnefc_sizes_find(&engine->sizes, (uint32_t)part, engine->error);
    if (engine->status == NNEFC_OK) engine->status = fit(engine, (uint32_t)part, engine->error);
    if (engine->status == NNEFC_OK) engine->status = reserve_outputs(engine, (uint32_t)part, engine->error);
    if (engine->status != NNEFC_OK) return NULL;
    CUdeviceptr memory = nnefc_cuda_workspace(engine, (uint32_t)part);
    return (void *)(uintptr_t)(memory != 0 ? memory : engine->failure_address); /* of no bytes */
}

/* Called after it: where an output goes whose shape is known now. */
void *nnefc_run_output(void *run, int32_t output);

void *nnefc_run_output(void *run, int32_t output) {
    return nnefc_cuda_address(run, description->input_count + (uint32_t)output);
}
