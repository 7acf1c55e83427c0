/* The functions of nnefc.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "model.h"
#include "pool.h"
#include "system.h"

enum { ALIGNMENT = 64, ERROR_BYTES = 512, KEPT_ERRORS = 64 };

struct nnefc_session {
    atomic_flag busy;
    nnefc_pool *pool;
    uint8_t *state;
    uint8_t *workspace;
    uint8_t *owned_workspace; /* null if the caller's is used */
    const uint8_t *constants;
    nnefc_mapping mapping; /* of the constants, if they are in a file of their own */
    char error[ERROR_BYTES];
};

/* Why nnefc_create failed: the texts of the process' last failures, and which of them is the calling thread's. */
static char create_errors[KEPT_ERRORS][ERROR_BYTES];
static atomic_uint create_failures;
static NNEFC_THREAD_LOCAL const char *create_error = "";

static const nnefc_description *const description = &nnefc_this_model.description;

/* Writes a message and returns the status, so that a check is one statement. */
__attribute__((format(printf, 3, 4))) static nnefc_status fail(nnefc_status status, char *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, ERROR_BYTES, format, arguments);
    va_end(arguments);
    return status;
}

const nnefc_description *nnefc_describe(void) { return description; }

const char *nnefc_status_name(nnefc_status status) {
    static const char *const names[] = {
        [NNEFC_OK] = "ok",
        [NNEFC_BAD_ARGUMENT] = "bad argument",
        [NNEFC_WRONG_ABI] = "wrong ABI",
        [NNEFC_UNSUPPORTED_CPU] = "unsupported CPU",
        [NNEFC_OUT_OF_MEMORY] = "out of memory",
        [NNEFC_KERNEL_ERROR] = "kernel error",
        [NNEFC_BUSY] = "busy",
        [NNEFC_BAD_WEIGHTS] = "bad weights",
    };
    unsigned index = (unsigned)status;
    return index < sizeof names / sizeof *names ? names[index] : "unknown status";
}

const char *nnefc_last_error(const nnefc_session *session) { return session == NULL ? create_error : session->error; }

static nnefc_status check_cpu(char *error) {
    char missing[ERROR_BYTES / 2] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < description->cpu_feature_count && used < sizeof missing; i++) {
        const char *feature = description->cpu_features[i];
        if (nnefc_cpu_has(feature)) continue;
        used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%s", used > 0 ? ", " : "", feature);
    }
    if (used == 0) return NNEFC_OK;
    return fail(NNEFC_UNSUPPORTED_CPU, error, "compiled for %s, but this processor lacks %s", description->target, missing);
}

/* The number of threads to use, from the options, the environment or the machine, in this order. */
static nnefc_status choose_threads(int32_t wanted, uint32_t *threads, char *error) {
    if (wanted < 0 || wanted > NNEFC_MAX_THREADS)
        return fail(NNEFC_BAD_ARGUMENT, error, "threads is %d, not a number from 0 to %d", (int)wanted, NNEFC_MAX_THREADS);
    const char *text = nnefc_has_threads ? getenv("NNEFC_NUM_THREADS") : NULL;
    if (wanted == 0 && text != NULL && *text != '\0') {
        char *end;
        errno = 0;
        long number = strtol(text, &end, 10);
        if (*end != '\0' || errno != 0 || number < 1 || number > NNEFC_MAX_THREADS)
            return fail(NNEFC_BAD_ARGUMENT, error, "NNEFC_NUM_THREADS is \"%.40s\", not a number from 1 to %d", text,
                        NNEFC_MAX_THREADS);
        wanted = (int32_t)number;
    }
    if (!nnefc_has_threads) wanted = 1;
    uint32_t processors = wanted == 0 ? nnefc_processor_count() : 0;
    *threads = wanted > 0 ? (uint32_t)wanted : processors < NNEFC_MAX_THREADS ? processors : NNEFC_MAX_THREADS;
    return NNEFC_OK;
}

static nnefc_status check_workspace(const nnefc_options *options, char *error) {
    if (options->workspace == NULL) return NNEFC_OK;
    if ((uintptr_t)options->workspace % ALIGNMENT != 0)
        return fail(NNEFC_BAD_ARGUMENT, error, "the workspace is not aligned to %d bytes", ALIGNMENT);
    if (options->workspace_bytes < description->workspace_bytes)
        return fail(NNEFC_BAD_ARGUMENT, error, "the workspace has %llu bytes, but the network needs %llu",
                    (unsigned long long)options->workspace_bytes, (unsigned long long)description->workspace_bytes);
    return NNEFC_OK;
}

/* Zeroed memory, aligned; null for no bytes. `*failed` becomes true if there is none to be had. Writing the zeros here
 * also makes the system find the pages now and not during the first run. */
static uint8_t *allocate(uint64_t bytes, bool *failed) {
    if (bytes == 0) return NULL;
    uint64_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    uint8_t *memory = rounded >= bytes && rounded <= SIZE_MAX / 2 ? nnefc_allocate_aligned((size_t)rounded) : NULL;
    if (memory == NULL)
        *failed = true;
    else
        memset(memory, 0, (size_t)rounded);
    return memory;
}

static void set_initial_state(nnefc_session *session) {
    if (description->state_bytes > 0)
        memcpy(session->state, session->constants + nnefc_this_model.state_initial_offset,
               (size_t)description->state_bytes);
}

static void release(nnefc_session *session) {
    if (session->pool != NULL) nnefc_pool_destroy(session->pool);
    nnefc_free_aligned(session->owned_workspace);
    nnefc_free_aligned(session->state);
    if (session->mapping.start != NULL) nnefc_this_model.weights->unmap(&session->mapping);
    free(session);
}

/* Copies what the caller's version of the options has; the rest is zero. False for a size that no version has. */
static bool read_options(const nnefc_options *given, nnefc_options *options) {
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    if (given == NULL) return true;
    if (given->struct_size != sizeof *given && given->struct_size != offsetof(nnefc_options, weights)) return false;
    memcpy(options, given, given->struct_size);
    return true;
}

/* Finds the constants: in the library, or in a file that is mapped for this session. */
static nnefc_status open_constants(nnefc_session *session, const char *path, char *error) {
    session->constants = nnefc_this_model.constants;
    if (nnefc_this_model.weights == NULL) return NNEFC_OK;
    nnefc_status status =
        nnefc_this_model.weights->map(nnefc_this_model.weights, path, &session->mapping, error, ERROR_BYTES);
    session->constants = session->mapping.constants;
    return status;
}

/* Everything that a session owns; what has been made when something fails is for `release`. */
static nnefc_status fill(nnefc_session *session, const nnefc_options *options, uint32_t threads, char *error) {
    nnefc_status status = open_constants(session, options->weights, error);
    if (status != NNEFC_OK) return status;
    bool failed = false;
    session->state = allocate(description->state_bytes, &failed);
    if (options->workspace == NULL) session->owned_workspace = allocate(description->workspace_bytes, &failed);
    session->workspace = options->workspace != NULL ? options->workspace : session->owned_workspace;
    if (!failed) session->pool = nnefc_pool_create(threads, description->scratch_bytes);
    if (session->pool == NULL)
        return fail(NNEFC_OUT_OF_MEMORY, error, "no memory or threads for a session of %llu bytes and %u threads",
                    (unsigned long long)(description->workspace_bytes + description->state_bytes), (unsigned)threads);
    set_initial_state(session);
    return NNEFC_OK;
}

static nnefc_status create(const nnefc_options *given, nnefc_session **session, char *error) {
    if (session == NULL) return fail(NNEFC_BAD_ARGUMENT, error, "nnefc_create: session is null");
    *session = NULL;
    nnefc_options options;
    if (!read_options(given, &options))
        return fail(NNEFC_WRONG_ABI, error, "nnefc_options.struct_size is %u, but ABI version %u has %u or %u",
                    (unsigned)given->struct_size, NNEFC_ABI_VERSION, (unsigned)offsetof(nnefc_options, weights),
                    (unsigned)sizeof options);
    uint32_t threads = 0;
    nnefc_status status = check_cpu(error);
    if (status == NNEFC_OK) status = choose_threads(options.threads, &threads, error);
    if (status == NNEFC_OK) status = check_workspace(&options, error);
    if (status != NNEFC_OK) return status;

    nnefc_session *made = calloc(1, sizeof *made);
    if (made == NULL) return fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
    atomic_flag_clear(&made->busy);
    status = fill(made, &options, threads, error);
    if (status == NNEFC_OK)
        *session = made;
    else
        release(made);
    return status;
}

nnefc_status nnefc_create(const nnefc_options *options, nnefc_session **session) {
    char error[ERROR_BYTES] = "";
    nnefc_status status = create(options, session, error);
    create_error = "";
    if (status != NNEFC_OK) create_error = memcpy(create_errors[create_failures++ % KEPT_ERRORS], error, sizeof error);
    return status;
}

/* Takes the session for one call. While it is taken by another thread, nothing of it may be touched. */
static bool take(nnefc_session *session) { return !atomic_flag_test_and_set_explicit(&session->busy, memory_order_acquire); }

static void give_back(nnefc_session *session) { atomic_flag_clear_explicit(&session->busy, memory_order_release); }

nnefc_status nnefc_destroy(nnefc_session *session) {
    if (session == NULL) return NNEFC_OK;
    if (!take(session)) return NNEFC_BUSY;
    release(session);
    return NNEFC_OK;
}

nnefc_status nnefc_reset(nnefc_session *session) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    set_initial_state(session);
    give_back(session);
    return NNEFC_OK;
}

static uintptr_t element_bytes(int32_t type) {
    switch (type) {
        case NNEFC_INT16: case NNEFC_UINT16: case NNEFC_FLOAT16: case NNEFC_BFLOAT16: return 2;
        case NNEFC_INT32: case NNEFC_UINT32: case NNEFC_FLOAT32: return 4;
        case NNEFC_INT64: case NNEFC_UINT64: case NNEFC_FLOAT64: return 8;
        default: return 1;
    }
}

static nnefc_status check_pointer(const nnefc_tensor *tensor, const void *pointer, const char *role, char *error) {
    if (tensor->bytes == 0) return NNEFC_OK;
    if (pointer == NULL) return fail(NNEFC_BAD_ARGUMENT, error, "%s \"%.200s\" is null", role, tensor->name);
    if ((uintptr_t)pointer % element_bytes(tensor->type) != 0)
        return fail(NNEFC_BAD_ARGUMENT, error, "%s \"%.200s\" is not aligned to its elements of %u bytes", role, tensor->name,
                    (unsigned)element_bytes(tensor->type));
    return NNEFC_OK;
}

static nnefc_status check_tensors(const void *const *inputs, void *const *outputs, char *error) {
    if (inputs == NULL && description->input_count > 0) return fail(NNEFC_BAD_ARGUMENT, error, "inputs is null");
    if (outputs == NULL && description->output_count > 0) return fail(NNEFC_BAD_ARGUMENT, error, "outputs is null");
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->input_count && status == NNEFC_OK; i++)
        status = check_pointer(&description->inputs[i], inputs[i], "input", error);
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++)
        status = check_pointer(&description->outputs[i], outputs[i], "output", error);
    return status;
}

static nnefc_status run_network(nnefc_session *session, const void *const *inputs, void *const *outputs) {
    nnefc_worker *previous = nnefc_pool_enter(session->pool);
    int32_t result =
        nnefc_this_model.call(inputs, outputs, session->state, session->workspace, session->constants);
    nnefc_pool_leave(previous);
    if (result == 0 && !nnefc_pool_failed(session->pool)) return NNEFC_OK;
    const char *reason = nnefc_pool_error(session->pool);
    fail(NNEFC_KERNEL_ERROR, session->error, "the network's code failed with %d%s%s", (int)result,
         *reason != '\0' ? ": " : "", reason);
    nnefc_pool_clear(session->pool);
    return NNEFC_KERNEL_ERROR;
}

nnefc_status nnefc_run(nnefc_session *session, const void *const *inputs, void *const *outputs) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = check_tensors(inputs, outputs, session->error);
    if (status == NNEFC_OK) status = run_network(session, inputs, outputs);
    give_back(session);
    return status;
}
