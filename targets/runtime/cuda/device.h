/* State that all sessions of a library share on one GPU: the primary context, the code and the trained values. */
#ifndef NNEFC_CUDA_DEVICE_H
#define NNEFC_CUDA_DEVICE_H

#include <stdbool.h>

#include "driver.h"

typedef struct nnefc_cuda_device {
    struct nnefc_cuda_device *next;
    CUdevice device;
    int32_t capability; /* 90 for 9.0 */
    uint64_t sessions;
    bool has_pools; /* whether memory can be allocated and freed in the order of a stream */
    CUcontext context;
    CUmodule module;
    CUdeviceptr constants; /* 0 without any */
    CUfunction functions[]; /* the kernels, by their numbers */
} nnefc_cuda_device;

/* The GPU of the options' number, for one more session. The first session loads the code and copies the trained values, from
 * the library or from where the options say that they are; others wait for it, and share them. */
nnefc_status nnefc_cuda_device_acquire(const nnefc_options *options, nnefc_cuda_device **device, char *error);

/* Ends what acquire began; the last session frees everything. */
nnefc_status nnefc_cuda_device_release(nnefc_cuda_device *device, char *error);

/* Makes a context current so that what is in it can be freed. A failure goes to the status, and it is tried once more,
 * for there is no other way; false if that fails too: the driver has ended. */
bool nnefc_cuda_enter_to_free(CUcontext context, nnefc_status *status, char *error);

/* Whether this process was forked from one that used the driver, which works in neither of its copies then. */
nnefc_status nnefc_cuda_check_process(char *error);

#endif
