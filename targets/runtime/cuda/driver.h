/* NVIDIA's driver API, as far as the runtime uses it: declared here, opened at run time, so that a library needs neither
 * CUDA's headers nor the driver to be made or loaded. Names and numbers are those of CUDA's own header. */
#ifndef NNEFC_CUDA_DRIVER_H
#define NNEFC_CUDA_DRIVER_H

#include <stddef.h>

#include "engine.h"

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum { /* CUresult */
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_STUB_LIBRARY = 34,
    CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
    CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
    CUDA_ERROR_INVALID_PC = 718,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804
};

enum { /* of several enumerations and sets of flags */
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    CU_MEMORYTYPE_DEVICE = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_MEMHOSTALLOC_DEVICEMAP = 2,
    CU_STREAM_NON_BLOCKING = 1,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
    CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
    CU_TENSOR_MAP_DATA_TYPE_UINT64 = 4,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 = 11,
    CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_32B = 1,
    CU_TENSOR_MAP_SWIZZLE_64B = 2,
    CU_TENSOR_MAP_SWIZZLE_128B = 3,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0
};

/* What the runtime calls a function, what the driver calls it, its parameters. All answer a CUresult. */
#define NNEFC_CUDA_FUNCTIONS(F)                                                                                           \
    F(get_error_name, cuGetErrorName, (int result, const char **text))                                                    \
    F(get_error_string, cuGetErrorString, (int result, const char **text))                                                \
    F(init, cuInit, (unsigned flags))                                                                                     \
    F(driver_version, cuDriverGetVersion, (int *version))                                                                 \
    F(device_count, cuDeviceGetCount, (int *count))                                                                       \
    F(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                                                          \
    F(device_name, cuDeviceGetName, (char *name, int bytes, CUdevice device))                                             \
    F(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                               \
    F(context_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                   \
    F(context_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                   \
    F(context_push, cuCtxPushCurrent_v2, (CUcontext context))                                                             \
    F(context_pop, cuCtxPopCurrent_v2, (CUcontext * context))                                                             \
    F(module_load, cuModuleLoadData, (CUmodule * module, const void *image))                                              \
    F(module_unload, cuModuleUnload, (CUmodule module))                                                                   \
    F(module_function, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                   \
    F(function_set, cuFuncSetAttribute, (CUfunction function, int attribute, int value))                                  \
    F(memory_allocate, cuMemAlloc_v2, (CUdeviceptr * memory, size_t bytes))                                               \
    F(memory_free, cuMemFree_v2, (CUdeviceptr memory))                                                                    \
    F(pool_allocate, cuMemAllocAsync, (CUdeviceptr * memory, size_t bytes, CUstream stream))                              \
    F(pool_free, cuMemFreeAsync, (CUdeviceptr memory, CUstream stream))                                                   \
    F(pinned_allocate, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                                     \
    F(pinned_free, cuMemFreeHost, (void *memory))                                                                         \
    F(pinned_address, cuMemHostGetDevicePointer_v2, (CUdeviceptr * address, void *memory, unsigned flags))                \
    F(pointer_attributes, cuPointerGetAttributes, (unsigned count, int *attributes, void **values, CUdeviceptr pointer))  \
    F(copy_to_device, cuMemcpyHtoD_v2, (CUdeviceptr target, const void *source, size_t bytes))                            \
    F(copy_in, cuMemcpyHtoDAsync_v2, (CUdeviceptr target, const void *source, size_t bytes, CUstream stream))             \
    F(copy_out, cuMemcpyDtoHAsync_v2, (void *target, CUdeviceptr source, size_t bytes, CUstream stream))                  \
    F(copy, cuMemcpyDtoDAsync_v2, (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream))                \
    F(copy_between, cuMemcpyPeerAsync,                                                                                    \
      (CUdeviceptr target, CUcontext of_target, CUdeviceptr source, CUcontext of_source, size_t bytes, CUstream stream))  \
    F(fill_bytes, cuMemsetD8Async, (CUdeviceptr target, unsigned char value, size_t count, CUstream stream))              \
    F(fill_words, cuMemsetD32Async, (CUdeviceptr target, unsigned value, size_t count, CUstream stream))                  \
    F(stream_create, cuStreamCreate, (CUstream * stream, unsigned flags))                                                 \
    F(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                                              \
    F(stream_synchronize, cuStreamSynchronize, (CUstream stream))                                                         \
    F(stream_wait, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                   \
    F(stream_is_capturing, cuStreamIsCapturing, (CUstream stream, int *status))                                           \
    F(capture_begin, cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                \
    F(capture_end, cuStreamEndCapture, (CUstream stream, CUgraph *graph))                                                 \
    F(event_create, cuEventCreate, (CUevent * event, unsigned flags))                                                     \
    F(event_destroy, cuEventDestroy_v2, (CUevent event))                                                                  \
    F(event_record, cuEventRecord, (CUevent event, CUstream stream))                                                      \
    F(event_query, cuEventQuery, (CUevent event))                                                                         \
    F(event_synchronize, cuEventSynchronize, (CUevent event))                                                             \
    F(graph_destroy, cuGraphDestroy, (CUgraph graph))                                                                     \
    F(graph_instantiate, cuGraphInstantiateWithFlags, (CUgraphExec * runnable, CUgraph graph, unsigned long long flags))  \
    F(graph_launch, cuGraphLaunch, (CUgraphExec runnable, CUstream stream))                                               \
    F(runnable_destroy, cuGraphExecDestroy, (CUgraphExec runnable))                                                       \
    F(launch_host, cuLaunchHostFunc, (CUstream stream, void (*function)(void *), void *argument))                         \
    F(launch, cuLaunchKernel,                                                                                             \
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,        \
       unsigned block_z, unsigned shared_bytes, CUstream stream, void **arguments, void **extra))

/* What drivers before CUDA 12 do not have; null then. */
#define NNEFC_CUDA_NEWER_FUNCTIONS(F)                                                                                     \
    F(tensor_map_encode, cuTensorMapEncodeTiled,                                                                          \
      (void *map, int type, uint32_t rank, void *address, const uint64_t *sizes, const uint64_t *strides,                 \
       const uint32_t *box, const uint32_t *element_strides, int interleave, int swizzle, int promotion, int fill))

#define NNEFC_CUDA_MEMBER(name, symbol, parameters) int(*name) parameters;
typedef struct nnefc_cuda_driver {
    NNEFC_CUDA_FUNCTIONS(NNEFC_CUDA_MEMBER)
    NNEFC_CUDA_NEWER_FUNCTIONS(NNEFC_CUDA_MEMBER)
} nnefc_cuda_driver;
#undef NNEFC_CUDA_MEMBER

/* The driver's functions, once nnefc_cuda_driver_open has succeeded. */
extern nnefc_cuda_driver nnefc_cuda;

/* Opens the driver, once for the process; NNEFC_NO_DEVICE if there is none that has all functions. One thread at a time. */
nnefc_status nnefc_cuda_driver_open(char *error);

/* NNEFC_OK for CUDA_SUCCESS; else the status that fits a result, and as text what was done and the driver's own words. */
nnefc_status nnefc_cuda_check(int result, const char *what, char *error);

/* The same for calls that follow a failure: the first status and its text stay. */
nnefc_status nnefc_cuda_also(nnefc_status status, int result, const char *what, char *error);

#endif
