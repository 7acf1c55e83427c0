/* The description of a network, from its generated C file, for the runtime. */
#ifndef NNEFC_MODEL_H
#define NNEFC_MODEL_H

#include "cuda.h"
#include "nnefc.h"
#ifdef NNEFC_CANCELLABLE
#include "run_control/control.h"
#endif
#ifdef NNEFC_PROFILE
#include "profile/profile.h"
#endif
#include "weights.h"

#ifdef NNEFC_OPEN
/* What a network with dynamic dimensions has in its workspace, whose offsets are not known at compile time. */
/* A dynamic dimension that follows from others. */
typedef struct nnefc_formula {
    uint32_t dimension;
    int64_t solved; /* the number of the dimension that is solved from it, if no input has that dimension; else -1 */
    int64_t factor; /* what the value of that one is multiplied with */
    /* The size that follows from the values of dimensions; with 0 for the one that is to be found, all besides it. */
    int64_t (*compute)(const int64_t *values);
    const char *text; /* the formula, for messages */
    const char *operands; /* two sizes that broadcast to the dimension, or that are checked to do so, in words; null for others */
    int64_t (*one)(const int64_t *values);
    int64_t (*other)(const int64_t *values);
    const char *only; /* what they must broadcast to; null if that may be any size */
} nnefc_formula;

typedef struct nnefc_dynamic_sizes {
    uint32_t storage_count;
    const uint32_t *first; /* of each storage, the steps of the network between which it is needed, both included */
    const uint32_t *last;
    /* Computes, from the values of the dynamic dimensions, the bytes of each storage, then all outputs' shapes, then for each
     * part of the workspace two numbers: the smallest dimension of any of its tensors or 0, which is negative for sizes that are
     * too small, and the maximum elements of any of them that might have too many, or 0. A value is a size divided by the dimension's multiple. What does not fit into 62 bits is
     * INT64_MAX. */
    void (*derive)(const int64_t *values, int64_t *derived);
    int64_t max_elements; /* of a tensor: the network's code indexes it by 32-bit numbers */
    int32_t (*special)(const int64_t *values); /* 0 for values that there is no code for; null if there is for all */
    const char *only;                          /* the sizes that there is code for, for messages; null likewise */
    uint32_t data_dependent_count; /* data-dependent dimensions of outputs */
    const uint32_t *data_dependent; /* their positions among the shapes of all outputs, which derive gives as large as they may be */
    /* The workspace has parts. The first is laid out for the sizes of the inputs; each further one during the run, when a data-dependent size
     * without a limit is known. These sizes are the last of the description's dimensions. */
    uint32_t part_count;
    const uint32_t *parts;           /* of each storage, the part that it lies in */
    const uint32_t *output_parts;    /* of each output, the part with which its shape is known */
    const uint32_t *part_dimensions; /* of each part but the first, the dimension that it waits for */
    uint32_t formula_count; /* the dimensions that follow from others, in an order in which these are known before */
    const nnefc_formula *formulas;
} nnefc_dynamic_sizes;
#endif

typedef struct nnefc_model {
    nnefc_description description;
    const uint8_t *constants; /* a 64-bit pointer here, so that no code need be within 2 GB of them; null without any */
    uint64_t checksum; /* of the constants: see checksum.h */
#ifdef __wasm__
    const uint64_t *arrived; /* the checksum, behind constants that the loader brings; null where these are data of the module */
#endif
    const nnefc_weights *weights; /* null unless the constants are in a file of their own */
    uint64_t state_initial_offset; /* in the constants: what the states are at first; beyond their end, zeros */
    /* Runs the network; 0 on success. For a GPU it only starts its kernels, and all addresses are of the GPU's memory. */
    int32_t (*call)(const void *const *inputs, void *const *outputs, uint8_t *state, uint8_t *workspace,
                    const uint8_t *constants
#ifdef NNEFC_CANCELLABLE
                    , int32_t *interrupt /* see nnefc_control_begin */
#endif
#ifdef NNEFC_OPEN
                    , int64_t *sizes /* see nnefc_sizes.values */
                    , void *run /* what nnefc_run_resized and nnefc_run_output take */
#endif
    );
    const uint8_t *metadata; /* the description for those who cannot load the library, but look into its file */
    const nnefc_cuda_module *cuda; /* null unless the network is for NVIDIA's GPUs */
#ifdef NNEFC_OPEN
    nnefc_dynamic_sizes open;
#endif
#ifdef NNEFC_PROFILE
    nnefc_profile_table profile;
#endif
#ifdef NNEFC_CANCELLABLE
    nnefc_calls calls;
#endif
#ifdef NNEFC_SEQUENCES
    /* Of each state, the axis of positions, if the first axis is that of sequences; 0 if a sequence has one value of it; -1 for a state
     * that sequences do not have each for itself. */
    const int8_t *sequence_axes;
#endif
} nnefc_model;

#ifdef NNEFC_LEVELS
/* A copy of that of one level, once one is chosen. */
extern nnefc_model nnefc_this_model;

/* Chooses the level for this processor, if that has not been done. */
void nnefc_choose_level(void);

/* Logs a level that the environment names and that is not used. */
void nnefc_log_chosen_level(void);
#else
extern const nnefc_model nnefc_this_model;

static inline void nnefc_choose_level(void) {}
static inline void nnefc_log_chosen_level(void) {}
#endif

static const nnefc_description *const description = &nnefc_this_model.description;

#endif
