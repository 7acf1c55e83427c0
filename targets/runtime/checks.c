/* Checks callers' arguments, and writes the error messages. */
#include "checks.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "log/log.h"
#include "messages.h"
#include "model.h"
#include "threads/pool.h"
#include "machine/system.h"

#ifndef NNEFC_SMALL
nnefc_status nnefc_fail(nnefc_status status, char *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    nnefc_vsnprintf(error, NNEFC_ERROR_BYTES, format, arguments);
    va_end(arguments);
    nnefc_log_message(NNEFC_LOG_ERROR, "%s", error);
    return status;
}
#endif

/* Whose threads these are, and where they run. */
static nnefc_status check_threads(const nnefc_options *options, char *error) {
    if (options->processors == NULL && options->parallel_for == NULL) return NNEFC_OK;
    const char *member = options->processors != NULL ? "processors" : "parallel_for";
    if (options->threads == 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "threads is 0, but must say how many there are, for %s is given", member);
    if (options->processors != NULL && options->parallel_for != NULL)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error,
                          "processors are for threads that the session starts, but parallel_for is given");
    for (int32_t i = 1; options->processors != NULL && i < options->threads; i++)
        if (!nnefc_may_run_on(options->processors[i]))
            return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "processors[%d] is %d, which is none that this process may run on",
                              (int)i, (int)options->processors[i]);
    return NNEFC_OK;
}

nnefc_status nnefc_choose_threads(const nnefc_options *options, uint32_t *threads, char *error) {
    int32_t wanted = options->threads;
    if (wanted < 0 || wanted > NNEFC_MAX_THREADS)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "threads is %d, not a number from 0 to %d", (int)wanted,
                          NNEFC_MAX_THREADS);
    const char *text = nnefc_has_environment ? getenv("NNEFC_NUM_THREADS") : NULL;
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
    if (wanted > 1 && (uint32_t)wanted > nnefc_processor_count())
        nnefc_log_message(NNEFC_LOG_WARNING, "%d threads are more than the %u processors that the calling thread may use: runs take longer",
                          (int)wanted, (unsigned)nnefc_processor_count());
    *threads = wanted > 0 ? (uint32_t)wanted : processors < NNEFC_MAX_THREADS ? processors : NNEFC_MAX_THREADS;
    return nnefc_has_threads ? check_threads(options, error) : NNEFC_OK;
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

static uintptr_t element_bytes(int32_t type) {
    switch (type) {
        case NNEFC_INT16: case NNEFC_UINT16: case NNEFC_FLOAT16: case NNEFC_BFLOAT16: return 2;
        case NNEFC_INT32: case NNEFC_UINT32: case NNEFC_FLOAT32: return 4;
        case NNEFC_INT64: case NNEFC_UINT64: case NNEFC_FLOAT64: return 8;
#ifdef NNEFC_TEXT
        case NNEFC_STRING: return sizeof(nnefc_string);
#endif
        default: return 1;
    }
}

/* What the address of an element is a multiple of. */
static uintptr_t alignment_of(int32_t type) {
#ifdef NNEFC_TEXT
    if (type == NNEFC_STRING) return sizeof(void *);
#endif
    return element_bytes(type);
}

static nnefc_status check_pointer(const nnefc_tensor *tensor, uint64_t bytes, const void *pointer, const char *role,
                                  char *error) {
    if (bytes == 0) return NNEFC_OK;
    if (pointer == NULL) return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s \"%.200s\" is null", role, tensor->name);
    if ((uintptr_t)pointer % alignment_of(tensor->type) != 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "%s \"%.200s\" is not aligned to its elements of %u bytes", role,
                          tensor->name, (unsigned)alignment_of(tensor->type));
    return NNEFC_OK;
}

#ifdef NNEFC_OPEN
uint64_t nnefc_element_bytes(int32_t type) { return element_bytes(type); }

uint64_t nnefc_element_alignment(int32_t type) { return alignment_of(type); }

nnefc_status nnefc_check_outputs_known(char *error) {
    for (uint32_t i = 0; i < description->output_count; i++)
        if (nnefc_this_model.open.output_parts[i] > 0)
            return nnefc_fail(NNEFC_BAD_ARGUMENT, error,
                              "only a run tells how large output \"%.200s\" is: call nnefc_run_sized, or compile for a range of its sizes",
                              description->outputs[i].name);
    return NNEFC_OK;
}

nnefc_status nnefc_check_tensors(const void *const *inputs, void *const *outputs, const uint64_t *bytes, char *error) {
    if (bytes == NULL)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "the network has dynamic dimensions: call nnefc_resize before nnefc_run");
#define BYTES_OF(tensor) (*bytes++)
#else
nnefc_status nnefc_check_tensors(const void *const *inputs, void *const *outputs, char *error) {
#define BYTES_OF(tensor) (tensor)->bytes
#endif
    if (inputs == NULL && description->input_count > 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "inputs is null");
    if (outputs == NULL && description->output_count > 0)
        return nnefc_fail(NNEFC_BAD_ARGUMENT, error, "outputs is null");
    nnefc_status status = NNEFC_OK;
    for (uint32_t i = 0; i < description->input_count && status == NNEFC_OK; i++)
        status = check_pointer(&description->inputs[i], BYTES_OF(&description->inputs[i]), inputs[i], "input", error);
    for (uint32_t i = 0; i < description->output_count && status == NNEFC_OK; i++)
        status = check_pointer(&description->outputs[i], BYTES_OF(&description->outputs[i]), outputs[i], "output", error);
    return status;
}
