#include "open/layout.h"

#include <stdbool.h>

#include "model.h"
#include "machine/system.h"

uint64_t nnefc_aligned(int64_t bytes) { return ((uint64_t)bytes + NNEFC_ALIGNMENT - 1) / NNEFC_ALIGNMENT * NNEFC_ALIGNMENT; }

/* Whether a storage is laid out before another one: the larger first, of equal ones that which is needed first. */
static bool before(const int64_t *bytes, uint32_t storage, uint32_t other) {
    const uint32_t *first = nnefc_this_model.open.first;
    if (bytes[storage] != bytes[other]) return bytes[storage] > bytes[other];
    return first[storage] != first[other] ? first[storage] < first[other] : storage < other;
}

/* Takes little time where the order is nearly as it was, as it is when sizes change. */
static void sort(uint32_t *order, const int64_t *bytes, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        uint32_t storage = order[i], at = i;
        for (; at > 0 && before(bytes, storage, order[at - 1]); at--) order[at] = order[at - 1];
        order[at] = storage;
    }
}

uint64_t nnefc_lay_out(const int64_t *bytes, int64_t *offsets, uint32_t *order, uint32_t part) {
    const nnefc_dynamic_sizes *storages = &nnefc_this_model.open;
    const uint32_t *first = storages->first, *last = storages->last;
    uint32_t count = storages->storage_count;
    uint32_t *placed = order + count, placed_count = 0; /* in the order of their offsets */
    uint64_t end = 0;
    sort(order, bytes, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t storage = order[i];
        if (storages->parts[storage] != part) continue;
        uint64_t offset = 0, size = nnefc_aligned(bytes[storage]);
        for (uint32_t j = 0; j < placed_count; j++) {
            uint32_t other = placed[j];
            if (last[other] < first[storage] || last[storage] < first[other]) continue;
            if ((uint64_t)offsets[other] >= offset + size) break;
            uint64_t behind = (uint64_t)offsets[other] + nnefc_aligned(bytes[other]);
            if (behind > offset) offset = behind;
        }
        offsets[storage] = (int64_t)offset;
        uint32_t at = placed_count++;
        for (; at > 0 && (uint64_t)offsets[placed[at - 1]] > offset; at--) placed[at] = placed[at - 1];
        placed[at] = storage;
        if (offset + size > end) end = offset + size;
    }
    return end;
}
