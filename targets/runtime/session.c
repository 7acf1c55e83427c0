/* The functions of nnefc.h that all libraries have. */
#include "session.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "model.h"
#include "pool.h"
#include "system.h"

enum { KEPT_ERRORS = 8 }; /* one page of memory */

/* Why nnefc_create or nnefc_destroy failed: the texts of the process' last failures, and which is the calling thread's. */
static char create_errors[KEPT_ERRORS][NNEFC_ERROR_BYTES];
static atomic_uint create_failures;
static NNEFC_THREAD_LOCAL const char *create_error = "";

static const nnefc_description *const description = &nnefc_this_model.description;

nnefc_status nnefc_fail(nnefc_status status, char *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, NNEFC_ERROR_BYTES, format, arguments);
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
        [NNEFC_NO_DEVICE] = "no device",
        [NNEFC_DEVICE_ERROR] = "device error",
    };
    unsigned index = (unsigned)status;
    return index < sizeof names / sizeof *names ? names[index] : "unknown status";
}

const char *nnefc_last_error(const nnefc_session *session) { return session == NULL ? create_error : session->error; }

static nnefc_status check_cpu(char *error) {
    char missing[NNEFC_ERROR_BYTES / 2] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < description->cpu_feature_count && used < sizeof missing; i++) {
        const char *feature = description->cpu_features[i];
        if (nnefc_cpu_has(feature)) continue;
        used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%s", used > 0 ? ", " : "", feature);
    }
    if (used == 0) return NNEFC_OK;
    return nnefc_fail(NNEFC_UNSUPPORTED_CPU, error, "compiled for %s, but this processor lacks %s", description->target,
                      missing);
}

nnefc_status nnefc_choose_threads(int32_t wanted, uint32_t *threads, char *error) {
    if (wanted < 0 || wanted > NNEFC_MAX_THREADS)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "threads is %d, not a number from 0 to %d", (int)wanted,
                          NNEFC_MAX_THREADS);
    const char *text = nnefc_has_threads ? getenv("NNEFC_NUM_THREADS") : NULL;
    if (wanted == 0 && text != NULL && *text != '\0') {
        char *end;
        errno = 0;
        long number = strtol(text, &end, 10);
        if (*end != '\0' || errno != 0 || number < 1 || number > NNEFC_MAX_THREADS)
            return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "NNEFC_NUM_THREADS is \"%.40s\", not a number from 1 to %d", text,
                              NNEFC_MAX_THREADS);
        wanted = (int32_t)number;
    }
    if (!nnefc_has_threads) wanted = 1;
    uint32_t processors = wanted == 0 ? nnefc_processor_count() : 0;
    *threads = wanted > 0 ? (uint32_t)wanted : processors < NNEFC_MAX_THREADS ? processors : NNEFC_MAX_THREADS;
    return NNEFC_OK;
}

nnefc_status nnefc_check_workspace(const nnefc_options *options, uint32_t alignment, char *error) {
    if (options->workspace == NULL) return NNEFC_OK;
    if ((uintptr_t)options->workspace % alignment != 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the workspace is not aligned to %u bytes", (unsigned)alignment);
    if (options->workspace_bytes < description->workspace_bytes)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the workspace has %llu bytes, but the network needs %llu",
                          (unsigned long long)options->workspace_bytes, (unsigned long long)description->workspace_bytes);
    return NNEFC_OK;
}

/* Copies what the caller's version of the options has; the rest is zero. False for a size that no version has. */
static bool read_options(const nnefc_options *given, nnefc_options *options) {
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    if (given == NULL) return true;
    if (given->struct_size != sizeof *given && given->struct_size != offsetof(nnefc_options, weights) &&
        given->struct_size != offsetof(nnefc_options, device) &&
        given->struct_size != offsetof(nnefc_options, keep_subnormals))
        return false;
    memcpy(options, given, given->struct_size);
    return true;
}

static nnefc_status create(const nnefc_options *given, nnefc_session **session, char *error) {
    if (session == NULL) return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "nnefc_create: session is null");
    *session = NULL;
    nnefc_options options;
    if (!read_options(given, &options))
        return nnefc_fail(NNEFC_WRONG_ABI, error, "nnefc_options.struct_size is %u, but ABI version %u has %u, %u, %u or %u",
                          (unsigned)given->struct_size, NNEFC_ABI_VERSION, (unsigned)offsetof(nnefc_options, weights),
                          (unsigned)offsetof(nnefc_options, device), (unsigned)offsetof(nnefc_options, keep_subnormals),
                          (unsigned)sizeof options);
    if (options.keep_subnormals != 0 && options.keep_subnormals != 1)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "keep_subnormals is %d, not 0 or 1", (int)options.keep_subnormals);
    nnefc_status status = check_cpu(error);
    if (status != NNEFC_OK) return status;
    nnefc_session *made = calloc(1, sizeof *made);
    if (made == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
    atomic_flag_clear(&made->busy);
    status = nnefc_engine_create(&options, &made->engine, error);
    if (status == NNEFC_OK)
        *session = made;
    else
        free(made);
    return status;
}

/* Keeps what a call had to say that leaves no session behind. */
static nnefc_status answered(nnefc_status status, const char *error) {
    create_error = "";
    if (status != NNEFC_OK)
        create_error = memcpy(create_errors[create_failures++ % KEPT_ERRORS], error, NNEFC_ERROR_BYTES);
    return status;
}

nnefc_status nnefc_create(const nnefc_options *options, nnefc_session **session) {
    char error[NNEFC_ERROR_BYTES] = "";
    return answered(create(options, session, error), error);
}

bool nnefc_take(nnefc_session *session) {
    return !atomic_flag_test_and_set_explicit(&session->busy, memory_order_acquire);
}

void nnefc_give_back(nnefc_session *session) { atomic_flag_clear_explicit(&session->busy, memory_order_release); }

nnefc_status nnefc_destroy(nnefc_session *session) {
    if (session == NULL) return NNEFC_OK;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    char error[NNEFC_ERROR_BYTES] = "";
    nnefc_status status = nnefc_engine_destroy(session->engine, error);
    free(session);
    return status == NNEFC_OK ? status : answered(status, error);
}

nnefc_status nnefc_reset(nnefc_session *session) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = nnefc_engine_reset(session->engine, session->error);
    nnefc_give_back(session);
    return status;
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
    if (pointer == NULL) return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s \"%.200s\" is null", role, tensor->name);
    if ((uintptr_t)pointer % element_bytes(tensor->type) != 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s \"%.200s\" is not aligned to its elements of %u bytes", role,
                          tensor->name, (unsigned)element_bytes(tensor->type));
    return NNEFC_OK;
}

nnefc_status nnefc_check_tensors(const void *const *inputs, void *const *outputs, char *error) {
    if (inputs == NULL && description->input_count > 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "inputs is null");
    if (outputs == NULL && description->output_count > 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "outputs is null");
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->input_count && status == NNEFC_OK; i++)
        status = check_pointer(&description->inputs[i], inputs[i], "input", error);
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++)
        status = check_pointer(&description->outputs[i], outputs[i], "output", error);
    return status;
}

nnefc_status nnefc_run(nnefc_session *session, const void *const *inputs, void *const *outputs) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = nnefc_check_tensors(inputs, outputs, session->error);
    if (status == NNEFC_OK) status = nnefc_engine_run(session->engine, inputs, outputs, session->error);
    nnefc_give_back(session);
    return status;
}
