/* Memory of sessions in which whatever is read or written beyond the end of a buffer is a fault: each buffer of the
 * workspace ends at a protected page. Replaces what `guarded_memory.py` gives other names. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "model.h"
#include "open/layout.h"
#include "open/workspace.h"
#include "machine/system.h"

enum { PAGE = 4096 };

static uint64_t in_pages(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* A page with the size in all before it, a protected page behind it. */
void *nnefc_allocate_aligned(size_t bytes) {
    size_t rounded = in_pages(nnefc_aligned((int64_t)bytes)), all = rounded + 2 * PAGE;
    uint8_t *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    memcpy(memory, &all, sizeof all);
    mprotect(memory + PAGE + rounded, PAGE, PROT_NONE);
    return memory + PAGE + rounded - nnefc_aligned((int64_t)bytes);
}

void nnefc_free_aligned(void *memory) {
    if (memory == NULL) return;
    uint8_t *start = (uint8_t *)((uintptr_t)memory / PAGE * PAGE) - PAGE;
    size_t all;
    memcpy(&all, start, sizeof all);
    munmap(start, all);
}

/* Nothing shares memory with anything else: each storage ends at a page of its own. */
uint64_t nnefc_lay_out(const int64_t *bytes, int64_t *offsets, uint32_t *order, uint32_t part) {
    const nnefc_dynamic_sizes *storages = &nnefc_this_model.open;
    uint64_t end = 0;
    (void)order;
    for (uint32_t i = 0; i < storages->storage_count; i++) {
        if (storages->parts[i] != part) continue;
        uint64_t size = nnefc_aligned(bytes[i]);
        end += in_pages(size) + PAGE;
        offsets[i] = (int64_t)(end - PAGE - size);
    }
    return end;
}

nnefc_status unguarded_workspace_fit(nnefc_workspace *workspace, nnefc_sizes *sizes, uint32_t part, char *error);

nnefc_status nnefc_workspace_fit(nnefc_workspace *workspace, nnefc_sizes *sizes, uint32_t part, char *error) {
    const nnefc_dynamic_sizes *storages = &nnefc_this_model.open;
    nnefc_workspace_part *own = &workspace->parts[part];
    if (own->memory != NULL) mprotect(own->memory, own->bytes, PROT_READ | PROT_WRITE);
    nnefc_status status = unguarded_workspace_fit(workspace, sizes, part, error);
    if (status != NNEFC_OK) return status;
    uint64_t end = 0;
    for (uint32_t i = 0; i < storages->storage_count; i++) {
        if (storages->parts[i] != part) continue;
        end += in_pages(nnefc_aligned(sizes->derived[i])) + PAGE;
        sizes->values[nnefc_this_model.description.dimension_count + i] =
            (int64_t)(end - PAGE - nnefc_aligned(sizes->derived[i])); /* not as for larger sizes before */
        mprotect(own->memory + end - PAGE, PAGE, PROT_NONE);
    }
    return NNEFC_OK;
}
