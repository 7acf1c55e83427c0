/* Checks of the arguments of nnefc.h's functions and of the engines. */
#ifndef NNEFC_CHECKS_H
#define NNEFC_CHECKS_H

#include "engine.h"
#include "nnefc.h"

/* Writes a message into `error` and returns the status, so that a check is one statement. Compiled for size, there are no
 * messages. */
#ifdef NNEFC_SMALL
__attribute__((format(printf, 3, 4))) static inline nnefc_status nnefc_fail(nnefc_status status, char *error,
                                                                            const char *format, ...) {
    (void)error, (void)format;
    return status;
}
#else
__attribute__((format(printf, 3, 4))) nnefc_status nnefc_fail(nnefc_status status, char *error, const char *format, ...);
#endif

/* The number of threads to use, from the options, the environment or the machine, in this order; and whether the options say of
 * threads what can be. */
nnefc_status nnefc_choose_threads(const nnefc_options *options, uint32_t *threads, char *error);

/* Whether the caller's own workspace, if there is one, is aligned to so many bytes and large enough. */
nnefc_status nnefc_check_workspace(const nnefc_options *options, uint32_t alignment, char *error);

#ifdef NNEFC_OPEN
/* The bytes of an element of an nnefc_type. */
uint64_t nnefc_element_bytes(int32_t type);

/* What their addresses are multiples of. */
uint64_t nnefc_element_alignment(int32_t type);

/* Whether no pointer is null or misaligned. `bytes` are those of all inputs, then of all outputs; null if no sizes are set,
 * which is refused. */
nnefc_status nnefc_check_tensors(const void *const *inputs, void *const *outputs, const uint64_t *bytes, char *error);

/* Whether the shapes of all outputs are known before a run. */
nnefc_status nnefc_check_outputs_known(char *error);
#else
/* Whether no pointer is null or misaligned. */
nnefc_status nnefc_check_tensors(const void *const *inputs, void *const *outputs, char *error);
#endif

#endif
