/* What a session runs its network with: the processors of this machine (engine.c) or a GPU (cuda/engine.c). A library has one
 * of the two. Its functions answer a status, with a text in `error` of NNEFC_ERROR_BYTES unless it is NNEFC_OK. */
#ifndef NNEFC_ENGINE_H
#define NNEFC_ENGINE_H

#include "nnefc.h"
#ifdef NNEFC_CANCELLABLE
#include "run_control/control.h"
#endif
#ifdef NNEFC_OPEN
#include "open/outputs.h"
#endif

#ifdef NNEFC_SMALL
enum { NNEFC_ERROR_BYTES = 1 }; /* there are no texts */
#else
enum { NNEFC_ERROR_BYTES = 512 };
#endif

typedef struct nnefc_engine nnefc_engine;

/* Makes all that a session needs, or nothing. The options are of the newest version. */
nnefc_status nnefc_engine_create(const nnefc_options *options, nnefc_engine **engine, char *error);

/* Frees everything, even if something fails meanwhile. */
nnefc_status nnefc_engine_destroy(nnefc_engine *engine, char *error);

/* Runs the network once. The pointers have been checked for null and alignment. */
nnefc_status nnefc_engine_run(nnefc_engine *engine, const void *const *inputs, void *const *outputs, char *error);

#ifdef NNEFC_CANCELLABLE
/* What runs ask between two kernels. */
nnefc_control *nnefc_engine_control(const nnefc_engine *engine);
#endif

#ifdef NNEFC_OPEN
/* Says what finds memory for outputs whose sizes a run finds out. */
void nnefc_engine_use_outputs(nnefc_engine *engine, nnefc_outputs *outputs);

/* Sets the sizes of the runs that follow, and makes the workspace large enough for them. If it fails there are none. */
nnefc_status nnefc_engine_resize(nnefc_engine *engine, const int64_t *const *input_shapes, char *error);

/* Makes the workspace large enough for all sizes up to these, as nnefc_reserve has them. `output_bytes` become those of each
 * output for these sizes. */
nnefc_status nnefc_engine_reserve(nnefc_engine *engine, const int64_t *sizes, uint64_t *output_bytes, char *error);

/* The bytes of all inputs, then of all outputs, for the sizes that were set last; null if none were. */
const uint64_t *nnefc_engine_tensor_bytes(const nnefc_engine *engine);

/* The shape of an output for the sizes that were set last; null if none were. */
const int64_t *nnefc_engine_output_shape(const nnefc_engine *engine, uint32_t output);
#endif

/* Bytes of the states, and where they are copied to: offsets from the beginning of the states. */
typedef struct nnefc_state_range {
    uint64_t to, from, bytes;
} nnefc_state_range;

#ifdef NNEFC_STATES
/* Copies so many bytes of the states, from an offset on, to the host's memory. */
nnefc_status nnefc_engine_get_state(nnefc_engine *engine, uint64_t offset, void *data, uint64_t bytes, char *error);

/* Copies them from there. */
nnefc_status nnefc_engine_set_state(nnefc_engine *engine, uint64_t offset, const void *data, uint64_t bytes, char *error);

/* Makes all states those of another engine of the same network, maybe on another GPU, which no other thread uses meanwhile. */
nnefc_status nnefc_engine_copy_states(nnefc_engine *engine, nnefc_engine *other, char *error);
#endif

#ifdef NNEFC_SEQUENCES
/* Copies ranges of the states of an engine, the same or another of the same network; none overlap. */
nnefc_status nnefc_engine_copy_ranges(
    nnefc_engine *engine, nnefc_engine *other, const nnefc_state_range *ranges, uint64_t count, char *error);

void nnefc_engine_measure_states(nnefc_engine *engine, nnefc_state_bytes *bytes);
#endif

/* Brings the states back to their initial values. */
nnefc_status nnefc_engine_reset(nnefc_engine *engine, char *error);

#endif
