/* What the file generated for each network tells the runtime. */
#ifndef NNEFC_MODEL_H
#define NNEFC_MODEL_H

#include "cuda.h"
#include "nnefc.h"
#include "weights.h"

typedef struct nnefc_model {
    nnefc_description description;
    const uint8_t *constants; /* a 64-bit pointer here, so that no code need be within 2 GB of them; null without any */
    const nnefc_weights *weights; /* null unless the constants are in a file of their own */
    uint64_t state_initial_offset;
    /* Runs the network; 0 on success. For a GPU it only starts its kernels, and all addresses are of the GPU's memory. */
    int32_t (*call)(const void *const *inputs, void *const *outputs, uint8_t *state, uint8_t *workspace,
                    const uint8_t *constants);
    const uint8_t *metadata; /* the description for those who cannot load the library, but look into its file */
    const nnefc_cuda_module *cuda; /* null unless the network is for NVIDIA's GPUs */
} nnefc_model;

extern const nnefc_model nnefc_this_model;

#endif
