/* The functions of nnefc.h that all libraries have. */
#include "session.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "checksum.h"
#include "machine/cpu.h"
#include "messages.h"
#include "model.h"
#include "session_memory.h"
#include "threads/pool.h"
#include "machine/system.h"

#ifndef NNEFC_SMALL
enum { KEPT_ERRORS = 8 }; /* one page of memory */
#define BEING_WRITTEN UINTPTR_MAX

/* Why nnefc_create or nnefc_destroy failed: the last failures in the process, and whose they are. */
static struct {
    atomic_uintptr_t thread; /* 0 for none, BEING_WRITTEN while a thread writes the text */
    char text[NNEFC_ERROR_BYTES];
} create_errors[KEPT_ERRORS];
static atomic_uint create_failures;
#endif

const nnefc_description *nnefc_describe(void) {
    nnefc_choose_level();
    return description;
}

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
#ifdef NNEFC_OPEN
        [NNEFC_TOO_SMALL] = "too small",
#endif
#ifdef NNEFC_CANCELLABLE
        [NNEFC_CANCELLED] = "cancelled",
        [NNEFC_TIMED_OUT] = "timed out",
#endif
#ifdef NNEFC_CHAT
        [NNEFC_TEMPLATE_ERROR] = "template error",
#endif
    };
    unsigned index = (unsigned)status;
    return index < sizeof names / sizeof *names && names[index] != NULL ? names[index] : "unknown status";
}

#ifdef NNEFC_SMALL
const char *nnefc_last_error(const nnefc_session *session) {
    (void)session;
    return "";
}
#else
const char *nnefc_last_error(const nnefc_session *session) {
    if (session != NULL) return session->error;
    uintptr_t thread = nnefc_this_thread();
    for (int i = 0; i < KEPT_ERRORS; i++)
        if (atomic_load(&create_errors[i].thread) == thread) return create_errors[i].text;
    return "";
}
#endif

static nnefc_status check_cpu(char *error) {
#ifdef NNEFC_SMALL
    for (uint32_t i = 0; i < description->cpu_feature_count; i++)
        if (!nnefc_cpu_has(description->cpu_features[i])) return NNEFC_UNSUPPORTED_CPU;
#else
    char missing[NNEFC_ERROR_BYTES / 2] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < description->cpu_feature_count && used < sizeof missing; i++) {
        const char *feature = description->cpu_features[i];
        if (nnefc_cpu_has(feature)) continue;
        used += (size_t)nnefc_snprintf(missing + used, sizeof missing - used, "%s%s", used > 0 ? ", " : "", feature);
    }
    if (used > 0)
        return nnefc_fail(NNEFC_UNSUPPORTED_CPU, error, "compiled for %s, but this processor lacks %s", description->target,
                          missing);
#endif
    for (uint32_t i = 0; i < description->cpu_feature_count; i++)
        if (!nnefc_cpu_permit(description->cpu_features[i]))
            return nnefc_fail(NNEFC_UNSUPPORTED_CPU, error, "compiled for %s, but the system does not let this process use %s",
                              description->target, description->cpu_features[i]);
    return NNEFC_OK;
}

/* Copies what the caller's version of the options has; the rest is zero. False for a size that no version has. */
static bool copy_options(const nnefc_options *given, nnefc_options *options) {
    memset(options, 0, sizeof *options);
    options->struct_size = sizeof *options;
    if (given == NULL) return true;
    if (given->struct_size != sizeof *given && given->struct_size != offsetof(nnefc_options, weights) &&
        given->struct_size != offsetof(nnefc_options, device) &&
        given->struct_size != offsetof(nnefc_options, keep_subnormals) &&
        given->struct_size != offsetof(nnefc_options, processors) &&
        given->struct_size != offsetof(nnefc_options, constant_bytes) && given->struct_size != offsetof(nnefc_options, time_limit))
        return false;
    memcpy(options, given, given->struct_size);
    return true;
}

nnefc_status nnefc_read_options(const nnefc_options *given, nnefc_options *options, char *error) {
    if (!copy_options(given, options))
        return nnefc_fail(NNEFC_WRONG_ABI, error, "nnefc_options.struct_size is %u, but ABI version %u has %u, %u, %u, %u, %u, %u or %u",
                          (unsigned)given->struct_size, NNEFC_ABI_VERSION, (unsigned)offsetof(nnefc_options, weights),
                          (unsigned)offsetof(nnefc_options, device), (unsigned)offsetof(nnefc_options, keep_subnormals),
                          (unsigned)offsetof(nnefc_options, processors), (unsigned)offsetof(nnefc_options, constant_bytes),
                          (unsigned)offsetof(nnefc_options, time_limit), (unsigned)sizeof *options);
    if ((options->allocate == NULL) != (options->release == NULL))
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s is null, but %s is not", options->allocate == NULL ? "allocate" : "release",
                          options->allocate == NULL ? "release" : "allocate");
    return NNEFC_OK;
}

/* Frees a session whose engine is gone. */
static void release(nnefc_session *session) {
    nnefc_memory memory = session->memory;
#ifdef NNEFC_OPEN
    nnefc_outputs_free(&session->outputs);
#endif
#ifdef NNEFC_SELECTS
    if (session->hooks.free_selection != NULL) session->hooks.free_selection(&memory, &session->selection);
#endif
    nnefc_memory_give_back(&memory, session, sizeof *session);
}

/* Limits the time of a session's runs; 0: no limit. */
static nnefc_status limit_time(nnefc_session *session, int64_t limit, char *error) {
#ifdef NNEFC_CANCELLABLE
    return nnefc_control_limit(nnefc_engine_control(session->engine), limit, error);
#else
    (void)session;
    if (limit == 0) return NNEFC_OK;
    return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "time_limit is not 0, but runs of this library cannot be limited in time");
#endif
}

static nnefc_status create(const nnefc_options *given, nnefc_session **session, char *error) {
    if (session == NULL) return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "nnefc_create: session is null");
    *session = NULL;
    nnefc_options options;
    nnefc_status status = nnefc_read_options(given, &options, error);
    if (status != NNEFC_OK) return status;
    if (options.keep_subnormals != 0 && options.keep_subnormals != 1)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "keep_subnormals is %d, not 0 or 1", (int)options.keep_subnormals);
#ifdef NNEFC_REPRODUCIBLE
    options.keep_subnormals = 1; /* as processors do that know no other way */
#endif
    status = check_cpu(error);
    if (status != NNEFC_OK) return status;
#ifdef __wasm__
    if (nnefc_this_model.arrived != NULL && *nnefc_this_model.arrived != nnefc_this_model.checksum)
        return nnefc_fail(NNEFC_BAD_WEIGHTS, error, "the trained values are not in memory: nnefc.mjs brings them there");
#endif
    nnefc_memory memory = {NULL, NULL, NULL};
    if (nnefc_this_model.cuda == NULL) memory = nnefc_memory_of(&options); /* else it is the GPU's */
    nnefc_session *made = nnefc_memory_take_zeros(&memory, sizeof *made);
    if (made == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
    atomic_flag_clear(&made->busy);
    made->memory = memory;
#ifdef NNEFC_OPEN
    bool failed = !nnefc_outputs_init(&made->outputs, &made->memory);
#else
    bool failed = false;
#endif
    status = failed ? nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session")
                    : nnefc_engine_create(&options, &made->engine, error);
#ifdef NNEFC_OPEN
    if (status == NNEFC_OK) nnefc_engine_use_outputs(made->engine, &made->outputs);
#endif
    if (status == NNEFC_OK) {
        status = limit_time(made, options.time_limit, error);
        char dropped[NNEFC_ERROR_BYTES];
        if (status != NNEFC_OK) nnefc_engine_destroy(made->engine, dropped);
    }
    if (status == NNEFC_OK)
        *session = made;
    else
        release(made);
    return status;
}

nnefc_status nnefc_answered(nnefc_status status, const char *error) {
#ifdef NNEFC_SMALL
    (void)error;
#else
    uintptr_t thread = nnefc_this_thread();
    for (int i = 0; i < KEPT_ERRORS; i++) {
        uintptr_t owner = thread;
        atomic_compare_exchange_strong(&create_errors[i].thread, &owner, 0);
    }
    if (status == NNEFC_OK) return status;
    for (int i = 0; i < KEPT_ERRORS; i++) { /* none is kept if so many threads fail at the same moment */
        unsigned slot = create_failures++ % KEPT_ERRORS;
        uintptr_t owner = atomic_load(&create_errors[slot].thread);
        if (owner == BEING_WRITTEN || !atomic_compare_exchange_strong(&create_errors[slot].thread, &owner, BEING_WRITTEN)) continue;
        memcpy(create_errors[slot].text, error, NNEFC_ERROR_BYTES);
        atomic_store(&create_errors[slot].thread, thread);
        break;
    }
#endif
    return status;
}

nnefc_status nnefc_create(const nnefc_options *options, nnefc_session **session) {
    nnefc_choose_level();
    nnefc_log_chosen_level();
    char error[NNEFC_ERROR_BYTES] = "";
    return nnefc_answered(create(options, session, error), error);
}

nnefc_status nnefc_check(void) {
    nnefc_choose_level();
    char error[NNEFC_ERROR_BYTES] = "";
    nnefc_status status = NNEFC_OK;
#ifndef NNEFC_SMALL
    if (nnefc_this_model.weights == NULL && description->constant_bytes > 0 &&
        nnefc_checksum(nnefc_this_model.constants, description->constant_bytes) != nnefc_this_model.checksum)
        status = nnefc_fail(NNEFC_BAD_WEIGHTS, error, "the trained values in the library are damaged: their checksum is wrong");
#endif
    return nnefc_answered(status, error);
}

bool nnefc_take(nnefc_session *session) {
    return !atomic_flag_test_and_set_explicit(&session->busy, memory_order_acquire);
}

void nnefc_give_back(nnefc_session *session) { atomic_flag_clear_explicit(&session->busy, memory_order_release); }

nnefc_status nnefc_destroy(nnefc_session *session) {
    if (session == NULL) return NNEFC_OK;
#ifdef NNEFC_CANCELLABLE
    if (session->hooks.end_async != NULL && !session->hooks.end_async(session)) return NNEFC_BUSY;
#endif
    if (!nnefc_take(session)) return NNEFC_BUSY;
    char error[NNEFC_ERROR_BYTES] = "";
    nnefc_status status = nnefc_engine_destroy(session->engine, error);
    release(session);
    return status == NNEFC_OK ? status : nnefc_answered(status, error);
}

nnefc_status nnefc_reset(nnefc_session *session) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    session->error[0] = '\0';
    nnefc_status status = nnefc_engine_reset(session->engine, session->error);
    nnefc_give_back(session);
    return status;
}

nnefc_status nnefc_check_run(nnefc_session *session, const void *const *inputs, void *const *outputs) {
#ifdef NNEFC_OPEN
    const uint64_t *bytes = nnefc_engine_tensor_bytes(session->engine);
    nnefc_status status = nnefc_check_outputs_known(session->error);
    return status == NNEFC_OK ? nnefc_check_tensors(inputs, outputs, bytes, session->error) : status;
#else
    return nnefc_check_tensors(inputs, outputs, session->error);
#endif
}

NNEFC_OF_SESSIONS nnefc_status nnefc_run_taken(nnefc_session *session, const void *const *inputs, void *const *outputs) {
    nnefc_status status = NNEFC_OK;
    session->error[0] = '\0';
#ifdef NNEFC_SELECTS
    if (session->hooks.select_pointers != NULL) status = session->hooks.select_pointers(session, &outputs);
#endif
    if (status == NNEFC_OK) status = nnefc_check_run(session, inputs, outputs);
    if (status == NNEFC_OK) status = nnefc_engine_run(session->engine, inputs, outputs, session->error);
    return status;
}

nnefc_status nnefc_run(nnefc_session *session, const void *const *inputs, void *const *outputs) {
    if (session == NULL) return NNEFC_BAD_ARGUMENT;
    if (!nnefc_take(session)) return NNEFC_BUSY;
    nnefc_status status = nnefc_run_taken(session, inputs, outputs);
    nnefc_give_back(session);
    return status;
}
