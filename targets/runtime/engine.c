/* Runs the network on the CPU. */
#include "engine.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "log/log.h"
#include "model.h"
#include "session_memory.h"
#include "threads/pool.h"
#include "machine/system.h"
#ifdef NNEFC_OPEN
#include "open/outputs.h"
#include "open/sizes.h"
#include "open/workspace.h"
#endif
#ifdef NNEFC_SEQUENCES
#include "states/shared_pages.h"
#endif
#ifdef NNEFC_TEXT
#include "text/boundary.h"
#endif

struct nnefc_engine {
    nnefc_memory memory;
    nnefc_pool *pool;
    uint8_t *state;
#ifdef NNEFC_SEQUENCES
    nnefc_shared_pages *shared; /* of the states; null until pages are shared */
#endif
#ifdef NNEFC_OPEN
    nnefc_workspace workspace;
    nnefc_sizes sizes;
    nnefc_outputs *outputs; /* finds memory for outputs whose sizes a run finds out */
    nnefc_status status;    /* of the run, and where its message goes */
    char *error;
#else
    uint8_t *workspace;
    uint8_t *owned_workspace; /* null if the caller's is used */
#endif
    const uint8_t *constants;
    nnefc_mapping mapping; /* of the constants, if they are in a file of their own */
#ifdef NNEFC_TEXT
    nnefc_texts texts;
#endif
};

/* Returns zeroed memory; null for no bytes. `*failed` becomes true if there is none. */
static uint8_t *allocate(const nnefc_memory *memory, uint64_t bytes, bool *failed) {
    if (bytes == 0) return NULL;
    uint8_t *block = nnefc_memory_take_zeros(memory, bytes);
    *failed |= block == NULL;
    return block;
}

/* States of so many bytes are in pages that the system finds when they are first written, unless the program has an allocator: a
 * session with caches for a long context takes memory for what they hold. Small libraries do without. */
enum { PAGED_BYTES = 1 << 20, PAGE_BYTES = 4096 };

static bool has_paged_states(const nnefc_memory *memory) {
#ifdef NNEFC_SMALL
    return (void)memory, false;
#else
    return nnefc_has_pages && memory->allocate == NULL && description->state_bytes >= PAGED_BYTES &&
           description->state_bytes <= SIZE_MAX / 2;
#endif
}

static uint8_t *allocate_states(const nnefc_memory *memory, bool *failed) {
    if (!has_paged_states(memory)) return allocate(memory, description->state_bytes, failed);
    uint8_t *states = nnefc_allocate_pages((size_t)description->state_bytes);
    *failed |= states == NULL;
    return states;
}

static void free_states(nnefc_engine *engine) {
    if (has_paged_states(&engine->memory))
        nnefc_free_pages(engine->state, (size_t)description->state_bytes);
    else
        nnefc_memory_give_back(&engine->memory, engine->state, description->state_bytes);
#ifdef NNEFC_SEQUENCES
    nnefc_forget_pages(&engine->shared);
#endif
}

/* Makes all states zero; those in pages give their memory back. */
static void clear_states(nnefc_engine *engine) {
    uint8_t *fresh = has_paged_states(&engine->memory) ? nnefc_allocate_pages((size_t)description->state_bytes) : NULL;
    if (fresh == NULL) {
        memset(engine->state, 0, (size_t)description->state_bytes);
        return;
    }
    free_states(engine);
    engine->state = fresh;
}

/* Gives the states that are zero now the values before the first run; what the constants do not have stays zero. */
static void set_initial_state(nnefc_engine *engine) {
    uint64_t given = description->constant_bytes - nnefc_this_model.state_initial_offset;
    if (given > description->state_bytes) given = description->state_bytes;
    if (given > 0) memcpy(engine->state, engine->constants + nnefc_this_model.state_initial_offset, (size_t)given);
}

/* Finds the constants: in the library, in a file that is mapped for this session, or in the caller's memory. */
static nnefc_status open_constants(nnefc_engine *engine, const nnefc_options *options, char *error) {
    engine->constants = nnefc_this_model.constants;
    if (nnefc_this_model.weights == NULL) return NNEFC_OK;
    nnefc_status status =
        nnefc_this_model.weights->map(nnefc_this_model.weights, options, &engine->mapping, error, NNEFC_ERROR_BYTES);
    engine->constants = engine->mapping.constants;
    return status;
}

/* Everything that an engine owns; what has been made when something fails is for nnefc_engine_destroy. */
static nnefc_status fill(nnefc_engine *engine, const nnefc_options *options, uint32_t threads, char *error) {
    nnefc_status status = open_constants(engine, options, error);
    if (status != NNEFC_OK) return status;
    bool failed = false;
    engine->state = allocate_states(&engine->memory, &failed);
#ifdef NNEFC_OPEN
    failed |= !nnefc_workspace_init(&engine->workspace, options, &engine->memory) || !nnefc_sizes_init(&engine->sizes, &engine->memory);
#else
    if (options->workspace == NULL) engine->owned_workspace = allocate(&engine->memory, description->workspace_bytes, &failed);
    engine->workspace = options->workspace != NULL ? options->workspace : engine->owned_workspace;
#endif
#ifdef NNEFC_TEXT
    failed |= !nnefc_texts_init(&engine->texts, &engine->memory);
#endif
    if (!failed) engine->pool = nnefc_pool_create(options, threads, description->scratch_bytes);
    if (engine->pool == NULL)
        return nnefc_fail(NNEFC_OUT_OF_MEMORY, error,
                          "no memory or threads for a session of %llu bytes and %u threads of %llu bytes each",
                          (unsigned long long)(description->workspace_bytes + description->state_bytes), (unsigned)threads,
                          (unsigned long long)description->scratch_bytes);
    set_initial_state(engine);
    nnefc_log_message(NNEFC_LOG_INFO,
                      "a session of %.200s for %.100s: %u threads, a workspace of %llu bytes, %llu for each thread, %llu of states",
                      description->model, description->target, (unsigned)threads, (unsigned long long)description->workspace_bytes,
                      (unsigned long long)description->scratch_bytes, (unsigned long long)description->state_bytes);
    return NNEFC_OK;
}

nnefc_status nnefc_engine_create(const nnefc_options *options, nnefc_engine **engine, char *error) {
    uint32_t threads = 0;
    nnefc_status status = nnefc_choose_threads(options, &threads, error);
    if (status == NNEFC_OK) status = nnefc_check_workspace(options, NNEFC_ALIGNMENT, error);
    if (status == NNEFC_OK && options->device != 0)
        status = nnefc_fail(NNEFC_BAD_ARGUMENT, error, "device is %lld, but the network runs on the processor",
                            (long long)options->device);
    if (status != NNEFC_OK) return status;
    nnefc_memory memory = nnefc_memory_of(options);
    *engine = nnefc_memory_take_zeros(&memory, sizeof **engine);
    if (*engine == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
    (*engine)->memory = memory;
    status = fill(*engine, options, threads, error);
    if (status != NNEFC_OK) nnefc_engine_destroy(*engine, error);
    return status;
}

nnefc_status nnefc_engine_destroy(nnefc_engine *engine, char *error) {
    (void)error;
    nnefc_memory memory = engine->memory;
    if (engine->pool != NULL) nnefc_pool_destroy(engine->pool);
#ifdef NNEFC_OPEN
    nnefc_sizes_free(&engine->sizes);
    nnefc_workspace_free(&engine->workspace);
#else
    nnefc_memory_give_back(&memory, engine->owned_workspace, description->workspace_bytes);
#endif
#ifdef NNEFC_TEXT
    nnefc_texts_free(&engine->texts);
#endif
    free_states(engine);
    if (engine->mapping.start != NULL) nnefc_this_model.weights->unmap(&engine->mapping);
    nnefc_memory_give_back(&memory, engine, sizeof *engine);
    return NNEFC_OK;
}

#ifdef NNEFC_TEXT
#ifdef NNEFC_OPEN
#define TENSOR_BYTES nnefc_engine_tensor_bytes(engine)
#define OUTPUT_SHAPES nnefc_sizes_output(&engine->sizes, 0)
#else
#define TENSOR_BYTES NULL
#define OUTPUT_SHAPES NULL
#endif
#endif

#ifdef NNEFC_CANCELLABLE
#define INTERRUPT , nnefc_control_begin(nnefc_pool_control(engine->pool))

nnefc_control *nnefc_engine_control(const nnefc_engine *engine) { return nnefc_pool_control(engine->pool); }
#else
#define INTERRUPT
#endif

nnefc_status nnefc_engine_run(nnefc_engine *engine, const void *const *inputs, void *const *outputs, char *error) {
#ifdef NNEFC_TEXT
    void *const *given = outputs;
    nnefc_status status = nnefc_texts_begin(&engine->texts, inputs, outputs, TENSOR_BYTES, error);
    if (status != NNEFC_OK) return status;
    inputs = engine->texts.inputs, outputs = engine->texts.outputs;
#endif
    nnefc_outside outside;
    if (!nnefc_pool_enter(engine->pool, &outside)) {
#ifdef NNEFC_TEXT
        nnefc_texts_abandon(&engine->texts);
#endif
        nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "%s", nnefc_pool_error(engine->pool));
        nnefc_pool_clear(engine->pool);
        return NNEFC_OUT_OF_MEMORY;
    }
#ifdef NNEFC_OPEN
    engine->status = NNEFC_OK;
    engine->error = error;
    int32_t result = nnefc_this_model.call(inputs, outputs, engine->state, engine->workspace.parts[0].memory,
                                           engine->constants INTERRUPT, engine->sizes.values, engine);
#else
    int32_t result = nnefc_this_model.call(inputs, outputs, engine->state, engine->workspace, engine->constants INTERRUPT);
#endif
#ifdef NNEFC_CANCELLABLE
    nnefc_control_end(nnefc_pool_control(engine->pool));
#endif
    nnefc_pool_leave(outside);
    bool failed = result != 0 || nnefc_pool_failed(engine->pool);
#ifdef NNEFC_CANCELLABLE
    const nnefc_control *control = nnefc_pool_control(engine->pool);
    failed |= control->ended != NNEFC_OK;
#endif
#ifdef NNEFC_OPEN
#ifdef NNEFC_TEXT
    if (engine->status != NNEFC_OK) nnefc_texts_abandon(&engine->texts);
#endif
    if (engine->status != NNEFC_OK) return engine->status;
    if (!failed) nnefc_sizes_of_run(&engine->sizes); /* else it may have ended before it wrote them */
#endif
#ifdef NNEFC_TEXT
    nnefc_texts_end(&engine->texts, given, OUTPUT_SHAPES, failed);
#endif
    if (!failed) return NNEFC_OK;
#ifdef NNEFC_CANCELLABLE
    if (control->ended != NNEFC_OK) {
        nnefc_pool_clear(engine->pool);
        if (control->ended == NNEFC_CANCELLED) return nnefc_fail(NNEFC_CANCELLED, error, "another thread has ended the run");
        if (control->limit % 1000000) return nnefc_fail(NNEFC_TIMED_OUT, error, "the run was not over after %lld ns", (long long)control->limit);
        return nnefc_fail(NNEFC_TIMED_OUT, error, "the run was not over after %lld ms", (long long)(control->limit / 1000000));
    }
#endif
    const char *reason = nnefc_pool_error(engine->pool);
    if (*reason != '\0')
        nnefc_fail(NNEFC_KERNEL_ERROR, error, "the network's code failed: %s", reason);
    else
        nnefc_fail(NNEFC_KERNEL_ERROR, error, "the network's code failed with %d", (int)result);
    nnefc_pool_clear(engine->pool);
    return NNEFC_KERNEL_ERROR;
}

#ifdef NNEFC_WARMS_UP
/* Runs a part of each kernel, on zeros and whatever the constants are now. Engines of WebAssembly compile functions quickly at first,
 * and better when they have run for a while, on other threads: meanwhile the trained values arrive. Called by nnefc.mjs. */
__attribute__((export_name("nnefc_warm_up"))) void nnefc_warm_up(void);

static void warm_up(nnefc_engine *engine, uint8_t *tensors, void **pointers) {
    char error[NNEFC_ERROR_BYTES];
    const nnefc_tensor *given = description->inputs;
    for (uint32_t i = 0; i < description->input_count + description->output_count; i++) {
        const nnefc_tensor *tensor = i < description->input_count ? given + i : description->outputs + (i - description->input_count);
        pointers[i] = tensors;
        tensors += (tensor->bytes + NNEFC_ALIGNMENT - 1) / NNEFC_ALIGNMENT * NNEFC_ALIGNMENT;
    }
    nnefc_pool_warm_up(engine->pool);
    nnefc_engine_run(engine, (const void *const *)pointers, pointers + description->input_count, error);
}

void nnefc_warm_up(void) {
    char error[NNEFC_ERROR_BYTES];
    nnefc_options options = {.struct_size = sizeof options, .threads = 1};
    nnefc_engine *engine;
    if (nnefc_engine_create(&options, &engine, error) != NNEFC_OK) return; /* nnefc_create says what is wrong */
    uint32_t count = description->input_count + description->output_count;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < description->input_count; i++) bytes += description->inputs[i].bytes + NNEFC_ALIGNMENT;
    for (uint32_t i = 0; i < description->output_count; i++) bytes += description->outputs[i].bytes + NNEFC_ALIGNMENT;
    bool failed = false;
    uint8_t *tensors = allocate(&engine->memory, bytes, &failed);
    void **pointers = calloc(count + 1, sizeof *pointers);
    if (!failed && pointers != NULL) warm_up(engine, tensors, pointers);
    free(pointers);
    nnefc_memory_give_back(&engine->memory, tensors, bytes);
    nnefc_engine_destroy(engine, error);
}
#endif

nnefc_status nnefc_engine_reset(nnefc_engine *engine, char *error) {
    (void)error;
    if (description->state_bytes == 0) return NNEFC_OK;
    clear_states(engine);
    set_initial_state(engine);
    return NNEFC_OK;
}

#ifdef NNEFC_STATES
nnefc_status nnefc_engine_get_state(nnefc_engine *engine, uint64_t offset, void *data, uint64_t bytes, char *error) {
    (void)error;
    memcpy(data, engine->state + offset, (size_t)bytes);
    return NNEFC_OK;
}

nnefc_status nnefc_engine_set_state(nnefc_engine *engine, uint64_t offset, const void *data, uint64_t bytes, char *error) {
    (void)error;
    memcpy(engine->state + offset, data, (size_t)bytes);
    return NNEFC_OK;
}

#ifdef NNEFC_SEQUENCES
static nnefc_state_pages pages_of(nnefc_engine *engine) {
    return (nnefc_state_pages){engine->state, description->state_bytes, &engine->shared};
}

nnefc_status nnefc_engine_copy_ranges(
    nnefc_engine *engine, nnefc_engine *other, const nnefc_state_range *ranges, uint64_t count, char *error) {
    if (has_paged_states(&engine->memory) && has_paged_states(&other->memory)) {
        nnefc_state_pages to = pages_of(engine), from = pages_of(other);
        if (nnefc_copy_pages(&to, &from, ranges, count)) return NNEFC_OK;
        return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "the system took memory of states away: reset the sessions");
    }
    for (uint64_t i = 0; i < count; i++)
        memcpy(engine->state + ranges[i].to, other->state + ranges[i].from, (size_t)ranges[i].bytes);
    return NNEFC_OK;
}

void nnefc_engine_measure_states(nnefc_engine *engine, nnefc_state_bytes *bytes) {
    *bytes = (nnefc_state_bytes){description->state_bytes, 0, 0};
    nnefc_state_pages own = pages_of(engine);
    if (has_paged_states(&engine->memory)) nnefc_count_pages(&own, bytes);
}

/* Copies the pages of all states that have been touched; false if the system does not say which these are. */
static bool copy_touched(nnefc_engine *engine, nnefc_engine *other, nnefc_status *status, char *error) {
    uint64_t count = 0;
    nnefc_state_pages from = pages_of(other);
    nnefc_state_range *ranges = has_paged_states(&other->memory) ? nnefc_touched_ranges(&from, &count) : NULL;
    if (ranges == NULL) return false;
    *status = nnefc_engine_copy_ranges(engine, other, ranges, count, error);
    nnefc_free_aligned(ranges);
    return true;
}
#endif

nnefc_status nnefc_engine_copy_states(nnefc_engine *engine, nnefc_engine *other, char *error) {
    (void)error;
    clear_states(engine);
#ifdef NNEFC_SEQUENCES
    nnefc_status status;
    if (copy_touched(engine, other, &status, error)) return status;
#endif
    for (uint64_t start = 0; start < description->state_bytes; start += PAGE_BYTES) { /* pages of zeros are left alone */
        uint64_t left = description->state_bytes - start;
        size_t bytes = left < PAGE_BYTES ? (size_t)left : PAGE_BYTES;
        const uint8_t *page = other->state + start;
        if (page[0] != 0 || memcmp(page, page + 1, bytes - 1) != 0) memcpy(engine->state + start, page, bytes);
    }
    return NNEFC_OK;
}
#endif

#ifdef NNEFC_OPEN
void nnefc_engine_use_outputs(nnefc_engine *engine, nnefc_outputs *outputs) { engine->outputs = outputs; }

#ifdef NNEFC_TEXT
/* Gives the network's code memory for the handles of outputs whose shapes are known with a part of the workspace. */
static nnefc_status reserve_texts(nnefc_engine *engine, uint32_t part) {
    const uint64_t *bytes = engine->sizes.tensor_bytes + description->input_count;
    for (uint32_t i = 0; i < description->output_count; i++) {
        if (nnefc_this_model.open.output_parts[i] != part) continue;
        void *given = engine->outputs->pointers[i];
        if (nnefc_texts_reserve(&engine->texts, i, given, bytes[i]) == NULL && description->outputs[i].type == NNEFC_STRING)
            return nnefc_fail(NNEFC_OUT_OF_MEMORY, engine->error, "no memory for the strings of output \"%.200s\"",
                              description->outputs[i].name);
    }
    return NNEFC_OK;
}
#endif

/* Called by the network's code when it has written the size that a part of the workspace waits for: returns the part, or null if
 * there is no memory for it, or if the size is none. The run ends then. */
void *nnefc_run_resized(void *run, int32_t part);

void *nnefc_run_resized(void *run, int32_t part) {
    nnefc_engine *engine = run;
    nnefc_sizes *sizes = &engine->sizes;
    if (nnefc_pool_failed(engine->pool)) return NULL;
    engine->status = nnefc_sizes_find(sizes, (uint32_t)part, engine->error);
    if (engine->status == NNEFC_OK)
        engine->status = nnefc_workspace_fit(&engine->workspace, sizes, (uint32_t)part, engine->error);
    if (engine->status == NNEFC_OK)
        engine->status = nnefc_outputs_assign(engine->outputs, (uint32_t)part, sizes->tensor_bytes + description->input_count,
                                             nnefc_sizes_output(sizes, 0), engine->error);
#ifdef NNEFC_TEXT
    if (engine->status == NNEFC_OK) engine->status = reserve_texts(engine, (uint32_t)part);
#endif
    if (engine->status != NNEFC_OK) return NULL;
    uint8_t *memory = engine->workspace.parts[part].memory;
    return memory != NULL ? memory : (uint8_t *)engine; /* of no bytes */
}

/* Called after it: where an output goes whose shape is known now. */
void *nnefc_run_output(void *run, int32_t output);

void *nnefc_run_output(void *run, int32_t output) {
    nnefc_engine *engine = run;
#ifdef NNEFC_TEXT
    return engine->texts.outputs[output];
#else
    return engine->outputs->pointers[output];
#endif
}

nnefc_status nnefc_engine_resize(nnefc_engine *engine, const int64_t *const *input_shapes, char *error) {
    nnefc_sizes *sizes = &engine->sizes;
    bool changed;
    nnefc_status status = nnefc_sizes_take(sizes, input_shapes, &changed, error);
    if (status != NNEFC_OK || !changed) return status;
    status = nnefc_workspace_fit(&engine->workspace, sizes, 0, error);
    sizes->known = status == NNEFC_OK;
    return status;
}

nnefc_status nnefc_engine_reserve(nnefc_engine *engine, const int64_t *dimensions, uint64_t *output_bytes, char *error) {
    nnefc_sizes *sizes = &engine->sizes;
    nnefc_status status = nnefc_sizes_enlarge(sizes, dimensions, output_bytes, error);
    if (status == NNEFC_OK) status = nnefc_workspace_reserve(&engine->workspace, sizes, error);
    if (status == NNEFC_OK) nnefc_sizes_keep_wide(sizes);
    if (status == NNEFC_OUT_OF_MEMORY) sizes->known = false; /* the workspace may be gone */
    return status;
}

const uint64_t *nnefc_engine_tensor_bytes(const nnefc_engine *engine) {
    return engine->sizes.known ? engine->sizes.tensor_bytes : NULL;
}

const int64_t *nnefc_engine_output_shape(const nnefc_engine *engine, uint32_t output) {
    return engine->sizes.known ? nnefc_sizes_output(&engine->sizes, output) : NULL;
}
#endif
