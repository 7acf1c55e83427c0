#include "open/sizes.h"

#include <string.h>

#include "checks.h"
#include "messages.h"
#include "model.h"
#include "open/layout.h"

#define MAX_BYTES (INT64_C(1) << 48) /* more than any machine has */

static const nnefc_dynamic_sizes *const dynamic_sizes = &nnefc_this_model.open;

/* The dynamic dimensions that inputs say, which come first. */
static uint32_t input_dimensions(void) { return description->dimension_count - (dynamic_sizes->part_count - 1); }

static uint32_t output_dimensions(void) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < description->output_count; i++) count += (uint32_t)description->outputs[i].rank;
    return count;
}

bool nnefc_sizes_init(nnefc_sizes *sizes, const nnefc_memory *memory) {
    size_t dimensions = description->dimension_count, storages = dynamic_sizes->storage_count;
    size_t parts = dynamic_sizes->part_count, tensors = description->input_count + description->output_count;
    size_t derived = storages + output_dimensions() + 2 * parts, data_dependent = dynamic_sizes->data_dependent_count;
    size_t all = 2 * dimensions + 5 * storages + data_dependent + 2 * derived + tensors + 3 * parts;
    sizes->memory = memory;
    sizes->block_bytes = all * sizeof(int64_t) + (2 * storages + 1) * sizeof *sizes->order;
    int64_t *next = sizes->block = nnefc_memory_take_zeros(memory, sizes->block_bytes);
    if (next == NULL) return false;
    sizes->values = next, next += dimensions + storages + data_dependent;
    sizes->derived = next, next += derived;
    sizes->trial = next, next += derived;
    sizes->wanted = next, next += dimensions;
    sizes->kept.bytes = next, next += storages;
    sizes->kept.offsets = next, next += storages;
    sizes->wide.bytes = next, next += storages;
    sizes->wide.offsets = next, next += storages;
    sizes->tensor_bytes = (uint64_t *)next, next += tensors;
    sizes->ends = (uint64_t *)next, next += parts;
    sizes->kept.ends = (uint64_t *)next, next += parts;
    sizes->wide.ends = (uint64_t *)next, next += parts;
    sizes->order = (uint32_t *)next;
    for (uint32_t i = 0; i < storages; i++) sizes->order[i] = i;
    return true;
}

void nnefc_sizes_free(nnefc_sizes *sizes) {
    nnefc_memory_give_back(sizes->memory, sizes->block, sizes->block_bytes);
}

static nnefc_status refuse_other_sizes(char *error) {
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the network was compiled for these sizes only: %.350s", dynamic_sizes->only);
}

/* Checks the size of a dynamic dimension, and notes its value among the wanted ones. `input` and `axis` are where it is given, for
 * messages; null if nowhere. */
static nnefc_status want(nnefc_sizes *sizes, uint32_t number, int64_t size, const nnefc_tensor *input, int32_t axis,
                         char *error) {
    const nnefc_dimension *dimension = &description->dimensions[number];
    int64_t *wanted = &sizes->wanted[number];
    bool in_range = size >= dimension->least && size <= dimension->most;
    bool is_multiple = size % dimension->multiple == 0;
    if (in_range && is_multiple && (*wanted < 0 || *wanted == size / dimension->multiple)) {
        *wanted = size / dimension->multiple;
        return NNEFC_OK;
    }
    char location[256] = "a size";
    if (input != NULL) nnefc_snprintf(location, sizeof location, "dimension %d of input \"%.200s\"", (int)axis, input->name);
    if (!in_range)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s is %lld, but the network takes %lld to %lld for \"%.100s\"", location,
                          (long long)size, (long long)dimension->least, (long long)dimension->most, dimension->name);
    if (!is_multiple)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s is %lld, but the network takes multiples of %lld for \"%.100s\"",
                          location, (long long)size, (long long)dimension->multiple, dimension->name);
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s is %lld, but another dimension \"%.100s\" is %lld: both are the same",
                      location, (long long)size, dimension->name, (long long)(*wanted * dimension->multiple));
}

/* One dimension of an input: a number that the network has, or the size of a dynamic dimension. */
static nnefc_status read_size(nnefc_sizes *sizes, const nnefc_tensor *input, int32_t axis, int64_t size, char *error) {
    int64_t own = input->shape[axis];
    if (own < 0) return want(sizes, (uint32_t)(-1 - own), size, input, axis, error);
    if (size == own) return NNEFC_OK;
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "dimension %d of input \"%.200s\" is %lld, but the network has %lld",
                      (int)axis, input->name, (long long)size, (long long)own);
}

static int64_t wanted_size(const nnefc_sizes *sizes, int64_t own) {
    return own >= 0 ? own : sizes->wanted[-1 - own] * description->dimensions[-1 - own].multiple;
}

/* Says that the size of a dimension does not fit to those that it follows from. */
static nnefc_status refuse_formula(const nnefc_sizes *sizes, const nnefc_formula *formula, int64_t computed, char *error) {
    int64_t own = -1 - (int64_t)formula->dimension;
    char location[256] = "the size";
    for (uint32_t i = description->input_count; i-- > 0;)
        for (int32_t axis = description->inputs[i].rank; axis-- > 0;)
            if (description->inputs[i].shape[axis] == own)
                nnefc_snprintf(location, sizeof location, "dimension %d of input \"%.200s\"", (int)axis, description->inputs[i].name);
    if (formula->solved < 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s is %lld, but %.150s is %lld by the other sizes", location,
                          (long long)wanted_size(sizes, own), formula->text, (long long)computed);
    const nnefc_dimension *solved = &description->dimensions[formula->solved];
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error,
                      "%s is %lld = %.150s, but the network takes %lld to %lld in multiples of %lld for \"%.100s\"", location,
                      (long long)wanted_size(sizes, own), formula->text, (long long)solved->least,
                      (long long)solved->most, (long long)solved->multiple, solved->name);
}

/* Checks that two sizes broadcast, if that is what a formula is for. */
static nnefc_status check_broadcast(const nnefc_sizes *sizes, const nnefc_formula *formula, char *error) {
    if (formula->operands == NULL) return NNEFC_OK;
    int64_t one = formula->one(sizes->wanted), other = formula->other(sizes->wanted);
    if (one != other && one != 1 && other != 1)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%.350s are %lld and %lld: they must be equal, or one of them 1",
                          formula->operands, (long long)one, (long long)other);
    if (formula->only != NULL && formula->compute(sizes->wanted) != 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%.300s are %lld and %lld: they must be equal, or the one that is not %.60s, 1",
                          formula->operands, (long long)one, (long long)other, formula->only);
    return NNEFC_OK;
}

/* Checks the dimensions that follow from others, and solves for those that no input has by itself. */
static nnefc_status check_formulas(nnefc_sizes *sizes, char *error) {
    for (uint32_t i = 0; i < dynamic_sizes->formula_count; i++) {
        const nnefc_formula *formula = &dynamic_sizes->formulas[i];
        nnefc_status status = check_broadcast(sizes, formula, error);
        if (status != NNEFC_OK) return status;
        int64_t *own = &sizes->wanted[formula->dimension], multiple = description->dimensions[formula->dimension].multiple;
        if (formula->solved >= 0) sizes->wanted[formula->solved] = 0;
        int64_t computed = formula->compute(sizes->wanted);
        if (*own < 0) { /* no input has it */
            const nnefc_dimension *dimension = &description->dimensions[formula->dimension];
            if (computed < dimension->least || computed > dimension->most)
                return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%.300s is %lld, but the network takes %lld to %lld", formula->text,
                                  (long long)computed, (long long)dimension->least, (long long)dimension->most);
            *own = computed / multiple;
        }
        int64_t difference = *own * multiple - computed;
        if (formula->solved < 0) {
            if (difference != 0) return refuse_formula(sizes, formula, computed, error);
            continue;
        }
        const nnefc_dimension *solved = &description->dimensions[formula->solved];
        int64_t value = difference / formula->factor;
        if (difference % formula->factor != 0 || value < solved->least / solved->multiple || value > solved->most / solved->multiple)
            return refuse_formula(sizes, formula, computed, error);
        sizes->wanted[formula->solved] = value;
    }
    return NNEFC_OK;
}

static nnefc_status read_sizes(nnefc_sizes *sizes, const int64_t *const *input_shapes, bool *changed, char *error) {
    uint32_t count = input_dimensions();
    for (uint32_t i = 0; i < count; i++) sizes->wanted[i] = -1;
    for (uint32_t i = count; i < description->dimension_count; i++) /* not known yet */
        sizes->wanted[i] = description->dimensions[i].least / description->dimensions[i].multiple;
    for (uint32_t i = 0; i < description->input_count; i++) {
        const nnefc_tensor *input = &description->inputs[i];
        if (input_shapes[i] == NULL && input->rank > 0)
            return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the shape of input \"%.200s\" is null", input->name);
        for (int32_t axis = 0; axis < input->rank; axis++) {
            nnefc_status status = read_size(sizes, input, axis, input_shapes[i][axis], error);
            if (status != NNEFC_OK) return status;
        }
    }
    nnefc_status status = check_formulas(sizes, error);
    if (status != NNEFC_OK) return status;
    *changed = !sizes->known || dynamic_sizes->data_dependent_count > 0 || memcmp(sizes->wanted, sizes->values, count * sizeof *sizes->wanted) != 0;
    return NNEFC_OK;
}

/* Says of wanted sizes that the network cannot compute with them, and names the largest dynamic dimension, or the smallest, or that
 * which a part of the workspace waits for. */
static nnefc_status refuse(const nnefc_sizes *sizes, uint32_t part, bool too_large, nnefc_status status, const char *reason,
                           char *error) {
    if (part > 0) {
        uint32_t number = dynamic_sizes->part_dimensions[part];
        return nnefc_fail(status, error, "%s: the data ask for %lld for \"%.100s\"", reason, (long long)wanted_size(sizes, -1 - (int64_t)number),
                          description->dimensions[number].name);
    }
    const nnefc_tensor *at = NULL;
    int32_t axis = 0;
    int64_t found = 0;
    for (uint32_t i = 0; i < description->input_count; i++) {
        const nnefc_tensor *input = &description->inputs[i];
        for (int32_t j = 0; j < input->rank; j++) {
            int64_t size = wanted_size(sizes, input->shape[j]);
            if (input->shape[j] >= 0 || (at != NULL && (too_large ? size <= found : size >= found))) continue;
            at = input, axis = j, found = size;
        }
    }
    if (at == NULL) return nnefc_fail(status, error, "%s", reason);
    return nnefc_fail(status, error, "%s: dimension %d of input \"%.200s\" is %lld", reason, (int)axis, at->name,
                      (long long)found);
}

/* The bytes of a tensor of this shape; false if it has more elements than a tensor may. */
static bool measure(const nnefc_sizes *sizes, const nnefc_tensor *tensor, const int64_t *shape, uint64_t *bytes) {
    int64_t items = 1;
    bool fits = true;
    for (int32_t i = 0; i < tensor->rank; i++) {
        int64_t size = shape != NULL ? shape[i] : wanted_size(sizes, tensor->shape[i]);
        if (shape != NULL && size == NNEFC_NO_AXIS) break;
        if (size == 0) return *bytes = 0, true;
        fits = fits && size <= dynamic_sizes->max_elements / items;
        if (fits) items *= size;
    }
    *bytes = (uint64_t)items * nnefc_element_bytes(tensor->type);
    return fits;
}

/* Checks the tensors of one part: the min dimension, the max elements, the bytes of outputs and storages. */
static nnefc_status check_part(nnefc_sizes *sizes, const int64_t *derived, uint64_t *output_bytes, uint32_t part, char *error) {
    char too_many[64];
    nnefc_snprintf(too_many, sizeof too_many, "a tensor would have more than %lld elements", (long long)dynamic_sizes->max_elements);
    const int64_t *shape = derived + dynamic_sizes->storage_count, *limits = shape + output_dimensions() + 2 * part;
    if (limits[0] < 0)
        return refuse(sizes, part, false, NNEFC_BAD_ARGUMENT, "the network has no result for inputs as small as these", error);
    bool fits = limits[1] <= dynamic_sizes->max_elements;
    uint64_t bytes, all = 0;
    for (uint32_t i = 0; i < description->output_count && fits; i++) {
        if (dynamic_sizes->output_parts[i] == part) {
            fits = measure(sizes, &description->outputs[i], shape, &bytes);
            if (output_bytes != NULL) output_bytes[i] = bytes;
        }
        shape += description->outputs[i].rank;
    }
    if (!fits) return refuse(sizes, part, true, NNEFC_BAD_ARGUMENT, too_many, error);
    for (uint32_t i = 0; i < dynamic_sizes->storage_count; i++) {
        if (dynamic_sizes->parts[i] != part) continue;
        if (derived[i] <= MAX_BYTES) all += nnefc_aligned(derived[i]); /* more might overflow */
        if (derived[i] > MAX_BYTES || all > (uint64_t)MAX_BYTES)
            return refuse(sizes, part, true, NNEFC_OUT_OF_MEMORY, "the network needs more memory than there can be", error);
    }
    return NNEFC_OK;
}

/* Computes what follows from the wanted sizes for the first parts of the workspace, and the bytes of inputs and of the outputs whose
 * shapes they tell, unless `tensor_bytes` is null. */
static nnefc_status derive(nnefc_sizes *sizes, uint32_t parts, int64_t *derived, uint64_t *tensor_bytes, char *error) {
    char too_many[64];
    nnefc_snprintf(too_many, sizeof too_many, "a tensor would have more than %lld elements", (long long)dynamic_sizes->max_elements);
    uint64_t bytes, *output_bytes = tensor_bytes != NULL ? tensor_bytes + description->input_count : NULL;
    for (uint32_t i = 0; i < description->input_count; i++) {
        if (!measure(sizes, &description->inputs[i], NULL, &bytes))
            return refuse(sizes, 0, true, NNEFC_BAD_ARGUMENT, too_many, error);
        if (tensor_bytes != NULL) tensor_bytes[i] = bytes;
    }
    for (uint32_t i = 0; i < description->output_count && output_bytes != NULL; i++) output_bytes[i] = 0;
    dynamic_sizes->derive(sizes->wanted, derived);
    nnefc_status status = NNEFC_OK;
    for (uint32_t part = 0; part < parts && status == NNEFC_OK; part++)
        status = check_part(sizes, derived, output_bytes, part, error);
    return status;
}

static int64_t *offsets_of(nnefc_sizes *sizes) { return sizes->values + description->dimension_count; }

/* Outputs whose shapes are not known before a run. */
static void leave_unknown(nnefc_sizes *sizes) {
    int64_t *shapes = sizes->derived + dynamic_sizes->storage_count;
    uint32_t first = 0, data_dependent = 0;
    for (uint32_t i = 0; i < description->output_count; i++) {
        uint32_t end = first + (uint32_t)description->outputs[i].rank;
        for (; data_dependent < dynamic_sizes->data_dependent_count && dynamic_sizes->data_dependent[data_dependent] < end; data_dependent++)
            if (dynamic_sizes->output_parts[i] > 0) shapes[dynamic_sizes->data_dependent[data_dependent]] = NNEFC_COUNTED;
        first = end;
    }
}

static nnefc_status set_sizes(nnefc_sizes *sizes, char *error) {
    uint32_t dimensions = description->dimension_count;
    if (dynamic_sizes->only != NULL && dynamic_sizes->special(sizes->wanted) == 0) return refuse_other_sizes(error);
    nnefc_status status = derive(sizes, 1, sizes->derived, sizes->tensor_bytes, error);
    if (status != NNEFC_OK) return status;
    leave_unknown(sizes);
    memcpy(sizes->values, sizes->wanted, dimensions * sizeof *sizes->values);
    sizes->ends[0] = nnefc_lay_out(sizes->derived, offsets_of(sizes), sizes->order, 0);
    return NNEFC_OK;
}

nnefc_status nnefc_sizes_take(nnefc_sizes *sizes, const int64_t *const *input_shapes, bool *changed, char *error) {
    *changed = false;
    nnefc_status status = NNEFC_OK;
    if (input_shapes == NULL && description->input_count > 0)
        status = nnefc_fail(NNEFC_BAD_ARGUMENT, error, "input_shapes is null");
    if (status == NNEFC_OK) status = read_sizes(sizes, input_shapes, changed, error);
    if (status == NNEFC_OK && !*changed) return status;
    sizes->known = false;
    return status == NNEFC_OK ? set_sizes(sizes, error) : status;
}

nnefc_status nnefc_sizes_find(nnefc_sizes *sizes, uint32_t part, char *error) {
    memcpy(sizes->wanted, sizes->values, description->dimension_count * sizeof *sizes->values);
    dynamic_sizes->derive(sizes->wanted, sizes->derived);
    uint64_t *output_bytes = sizes->tensor_bytes + description->input_count;
    nnefc_status status = check_part(sizes, sizes->derived, output_bytes, part, error);
    if (status == NNEFC_OK) sizes->ends[part] = nnefc_lay_out(sizes->derived, offsets_of(sizes), sizes->order, part);
    return status;
}

bool nnefc_sizes_lay_out_as_kept(nnefc_sizes *sizes, uint32_t part, uint64_t bytes) {
    if (sizes->kept.ends[part] > bytes) return false;
    for (uint32_t i = 0; i < dynamic_sizes->storage_count; i++)
        if (dynamic_sizes->parts[i] == part && sizes->derived[i] > sizes->kept.bytes[i]) return false;
    for (uint32_t i = 0; i < dynamic_sizes->storage_count; i++)
        if (dynamic_sizes->parts[i] == part) offsets_of(sizes)[i] = sizes->kept.offsets[i];
    sizes->ends[part] = sizes->kept.ends[part];
    return true;
}

void nnefc_sizes_keep(nnefc_sizes *sizes, uint32_t part) {
    uint32_t count = dynamic_sizes->storage_count;
    for (uint32_t i = 0; i < count; i++)
        if (dynamic_sizes->parts[i] == part && sizes->derived[i] < sizes->kept.bytes[i]) return; /* sizes that had room would have none */
    for (uint32_t i = 0; i < count; i++) {
        if (dynamic_sizes->parts[i] != part) continue;
        sizes->kept.bytes[i] = sizes->derived[i];
        sizes->kept.offsets[i] = offsets_of(sizes)[i];
    }
    sizes->kept.ends[part] = sizes->ends[part];
}

nnefc_status nnefc_sizes_enlarge(nnefc_sizes *sizes, const int64_t *maximum, uint64_t *output_bytes, char *error) {
    for (uint32_t i = 0; i < description->dimension_count; i++) {
        sizes->wanted[i] = -1;
        nnefc_status status = want(sizes, i, maximum != NULL ? maximum[i] : description->dimensions[i].most, NULL, 0, error);
        if (status != NNEFC_OK) return status;
    }
    for (uint32_t i = 0; i < dynamic_sizes->formula_count; i++) {
        const nnefc_formula *formula = &dynamic_sizes->formulas[i];
        if (formula->operands == NULL) continue;
        int64_t one = formula->one(sizes->wanted), other = formula->other(sizes->wanted), larger = one > other ? one : other;
        if (sizes->wanted[formula->dimension] > larger) sizes->wanted[formula->dimension] = larger;
    }
    nnefc_status status = derive(sizes, dynamic_sizes->part_count, sizes->trial, NULL, error);
    if (status != NNEFC_OK) return status;
    const int64_t *shape = sizes->trial + dynamic_sizes->storage_count;
    for (uint32_t i = 0; output_bytes != NULL && i < description->output_count; i++) {
        measure(sizes, &description->outputs[i], shape, &output_bytes[i]);
        shape += description->outputs[i].rank;
    }
    for (uint32_t i = 0; i < dynamic_sizes->storage_count; i++) {
        int64_t kept = sizes->kept.bytes[i];
        sizes->wide.bytes[i] = sizes->trial[i] > kept ? sizes->trial[i] : kept;
    }
    for (uint32_t part = 0; part < dynamic_sizes->part_count; part++)
        sizes->wide.ends[part] = nnefc_lay_out(sizes->wide.bytes, sizes->wide.offsets, sizes->order, part);
    return NNEFC_OK;
}

void nnefc_sizes_keep_wide(nnefc_sizes *sizes) {
    nnefc_layout kept = sizes->kept;
    sizes->kept = sizes->wide;
    sizes->wide = kept;
}

void nnefc_sizes_of_run(nnefc_sizes *sizes) {
    int64_t *shapes = sizes->derived + dynamic_sizes->storage_count;
    const int64_t *data_dependent = sizes->values + description->dimension_count + dynamic_sizes->storage_count;
    for (uint32_t i = 0; i < dynamic_sizes->data_dependent_count; i++) shapes[dynamic_sizes->data_dependent[i]] = data_dependent[i];
}

const int64_t *nnefc_sizes_output(const nnefc_sizes *sizes, uint32_t output) {
    const int64_t *shape = sizes->derived + dynamic_sizes->storage_count;
    for (uint32_t i = 0; i < output; i++) shape += description->outputs[i].rank;
    return shape;
}
