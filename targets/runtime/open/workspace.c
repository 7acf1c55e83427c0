#include "open/workspace.h"

#include "checks.h"
#include "log/log.h"
#include "model.h"

static const nnefc_dynamic_sizes *const layout = &nnefc_this_model.open;

void nnefc_workspace_free(nnefc_workspace *workspace) {
    for (uint32_t part = 0; workspace->parts != NULL && part < layout->part_count; part++)
        if (workspace->callers == NULL)
            nnefc_memory_give_back(workspace->memory, workspace->parts[part].memory, workspace->parts[part].bytes);
    nnefc_memory_give_back(workspace->memory, workspace->parts, layout->part_count * sizeof *workspace->parts);
}

static nnefc_status refuse_bytes(const nnefc_workspace *workspace, uint64_t bytes, char *error) {
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the workspace has %llu bytes, but the network needs %llu for these sizes",
                      (unsigned long long)workspace->callers_bytes, (unsigned long long)bytes);
}

/* Makes a part of the session's own memory so large; what was in it is gone. */
static nnefc_status grow_part(const nnefc_memory *memory, nnefc_workspace_part *part, uint64_t bytes, char *error) {
    if (bytes <= part->bytes) return NNEFC_OK;
    nnefc_memory_give_back(memory, part->memory, part->bytes);
    part->bytes = 0;
    part->memory = nnefc_memory_take_zeros(memory, bytes);
    if (part->memory == NULL)
        return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a workspace of %llu bytes", (unsigned long long)bytes);
    part->bytes = bytes;
    nnefc_log_message(NNEFC_LOG_DEBUG, "the workspace has %llu bytes", (unsigned long long)bytes);
    return NNEFC_OK;
}

bool nnefc_workspace_init(nnefc_workspace *workspace, const nnefc_options *options, const nnefc_memory *memory) {
    char error[NNEFC_ERROR_BYTES];
    workspace->memory = memory;
    workspace->callers = options->workspace;
    workspace->callers_bytes = options->workspace != NULL ? options->workspace_bytes : 0;
    workspace->parts = nnefc_memory_take_zeros(memory, layout->part_count * sizeof *workspace->parts);
    if (workspace->parts == NULL) return false;
    workspace->parts[0].memory = workspace->callers;
    uint64_t known = nnefc_this_model.description.workspace_bytes; /* where no size is open but those of outputs */
    return workspace->callers != NULL || grow_part(memory, &workspace->parts[0], (known + 63) / 64 * 64, error) == NNEFC_OK;
}

nnefc_status nnefc_workspace_fit(nnefc_workspace *workspace, nnefc_sizes *sizes, uint32_t part, char *error) {
    nnefc_workspace_part *own = &workspace->parts[part];
    uint64_t start = 0, room = own->bytes;
    if (workspace->callers != NULL) {
        for (uint32_t i = 0; i < part; i++) start += sizes->ends[i];
        room = workspace->callers_bytes > start ? workspace->callers_bytes - start : 0;
        own->memory = workspace->callers + (room > 0 ? start : 0);
    }
    if (sizes->ends[part] <= room || nnefc_sizes_lay_out_as_kept(sizes, part, room)) return NNEFC_OK;
    if (workspace->callers != NULL) return refuse_bytes(workspace, start + sizes->ends[part], error);
    nnefc_status status = grow_part(workspace->memory, own, sizes->ends[part], error);
    if (status == NNEFC_OK) nnefc_sizes_keep(sizes, part);
    return status;
}

nnefc_status nnefc_workspace_reserve(nnefc_workspace *workspace, const nnefc_sizes *sizes, char *error) {
    uint64_t all = 0;
    nnefc_status status = NNEFC_OK;
    for (uint32_t part = 0; part < layout->part_count && status == NNEFC_OK; part++) {
        all += sizes->wide.ends[part];
        if (workspace->callers == NULL) status = grow_part(workspace->memory, &workspace->parts[part], sizes->wide.ends[part], error);
    }
    return workspace->callers != NULL && all > workspace->callers_bytes ? refuse_bytes(workspace, all, error) : status;
}
