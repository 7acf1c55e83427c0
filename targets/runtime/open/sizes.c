#include "open/sizes.h"

#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "model.h"

enum { ALIGNMENT = 64 };

#define MOST_BYTES (INT64_C(1) << 48) /* more than any machine has */

static const nnefc_description *const description = &nnefc_this_model.description;
static const nnefc_open_sizes *const open_sizes = &nnefc_this_model.open;

static uint32_t output_dimensions(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < description->output_count; i++) count += (uint32_t)description->outputs[i].rank;
    return count;
}

bool nnefc_sizes_init(nnefc_sizes *sizes) {
    uint32_t dimensions = description->dimension_count, storages = open_sizes->storage_count;
    sizes->values = calloc((size_t)dimensions + storages, sizeof *sizes->values);
    sizes->derived = calloc((size_t)storages + output_dimensions() + 1, sizeof *sizes->derived); /* see nnefc_open_sizes */
    sizes->wanted = calloc(dimensions, sizeof *sizes->wanted);
    sizes->order = calloc(2 * (size_t)storages + 1, sizeof *sizes->order);
    return sizes->values != NULL && sizes->derived != NULL && sizes->wanted != NULL && sizes->order != NULL;
}

void nnefc_sizes_free(nnefc_sizes *sizes) {
    free(sizes->values);
    free(sizes->derived);
    free(sizes->wanted);
    free(sizes->order);
}

/* One dimension of an input: a number that the network has, or the size of an open dimension. */
static nnefc_status read_size(nnefc_sizes *sizes, const nnefc_tensor *input, int32_t axis, int64_t size, char *error) {
    int64_t own = input->shape[axis];
    if (own >= 0) {
        if (size == own) return NNEFC_OK;
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "dimension %d of input \"%.200s\" is %lld, but the network has %lld",
                          (int)axis, input->name, (long long)size, (long long)own);
    }
    uint32_t number = (uint32_t)(-1 - own);
    const nnefc_dimension *dimension = &description->dimensions[number];
    if (size < dimension->least || size > dimension->most)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error,
                          "dimension %d of input \"%.200s\" is %lld, but the network takes %lld to %lld for \"%.100s\"",
                          (int)axis, input->name, (long long)size, (long long)dimension->least, (long long)dimension->most,
                          dimension->name);
    if (size % dimension->multiple != 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error,
                          "dimension %d of input \"%.200s\" is %lld, but the network takes multiples of %lld for \"%.100s\"",
                          (int)axis, input->name, (long long)size, (long long)dimension->multiple, dimension->name);
    int64_t value = size / dimension->multiple;
    if (sizes->wanted[number] >= 0 && sizes->wanted[number] != value)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error,
                          "dimension %d of input \"%.200s\" is %lld, but another dimension \"%.100s\" is %lld: both are the same",
                          (int)axis, input->name, (long long)size, dimension->name,
                          (long long)(sizes->wanted[number] * dimension->multiple));
    sizes->wanted[number] = value;
    return NNEFC_OK;
}

nnefc_status nnefc_sizes_read(nnefc_sizes *sizes, const int64_t *const *input_shapes, bool *changed, char *error) {
    uint32_t count = description->dimension_count;
    for (uint32_t i = 0; i < count; i++) sizes->wanted[i] = -1;
    for (uint32_t i = 0; i < description->input_count; i++) {
        const nnefc_tensor *input = &description->inputs[i];
        for (int32_t axis = 0; axis < input->rank; axis++) {
            nnefc_status status = read_size(sizes, input, axis, input_shapes[i][axis], error);
            if (status != NNEFC_OK) return status;
        }
    }
    *changed = !sizes->known || memcmp(sizes->wanted, sizes->values, count * sizeof *sizes->wanted) != 0;
    return NNEFC_OK;
}

/* The storages in the order in which they are laid out: the largest first. */
static void sort(uint32_t *order, const int64_t *bytes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && bytes[order[at - 1]] < bytes[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

static uint64_t aligned(int64_t bytes) { return ((uint64_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Gives each storage the first place where nothing lies that is needed at the same time. Returns the bytes in all. */
static uint64_t lay_out(const int64_t *bytes, int64_t *offsets, uint32_t *order) {
    uint32_t count = open_sizes->storage_count;
    uint32_t *placed = order + count; /* in the order of their offsets */
    const uint32_t *first = open_sizes->first, *last = open_sizes->last;
    uint64_t end = 0;
    sort(order, bytes, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t storage = order[i];
        uint64_t offset = 0, size = aligned(bytes[storage]);
        for (uint32_t j = 0; j < i; j++) {
            uint32_t other = placed[j];
            if (last[other] < first[storage] || last[storage] < first[other]) continue;
            if ((uint64_t)offsets[other] >= offset + size) break;
            uint64_t behind = (uint64_t)offsets[other] + aligned(bytes[other]);
            if (behind > offset) offset = behind;
        }
        offsets[storage] = (int64_t)offset;
        uint32_t at = i;
        for (; at > 0 && (uint64_t)offsets[placed[at - 1]] > offset; at--) placed[at] = placed[at - 1];
        placed[at] = storage;
        if (offset + size > end) end = offset + size;
    }
    return end;
}

nnefc_status nnefc_sizes_set(nnefc_sizes *sizes, char *error) {
    uint32_t dimensions = description->dimension_count;
    open_sizes->derive(sizes->wanted, sizes->derived);
    uint64_t all = 0;
    if (sizes->derived[open_sizes->storage_count + output_dimensions()] < 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the network has no result for inputs as small as these");
    for (uint32_t i = 0; i < open_sizes->storage_count; i++) {
        bool fits = sizes->derived[i] <= MOST_BYTES; /* else so many together might overflow */
        if (fits) all += aligned(sizes->derived[i]);
        if (!fits || all > (uint64_t)MOST_BYTES)
            return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "the network needs more memory for these sizes than there can be");
    }
    memcpy(sizes->values, sizes->wanted, dimensions * sizeof *sizes->values);
    sizes->workspace_bytes = lay_out(sizes->derived, sizes->values + dimensions, sizes->order);
    return NNEFC_OK;
}

const int64_t *nnefc_sizes_output(const nnefc_sizes *sizes, uint32_t output) {
    const int64_t *shape = sizes->derived + open_sizes->storage_count;
    for (uint32_t i = 0; i < output; i++) shape += description->outputs[i].rank;
    return shape;
}
