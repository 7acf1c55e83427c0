#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* RTLD_NODELETE with older C libraries */
#endif
#include "driver.h"

#include <dlfcn.h>
#include <stdbool.h>

#include "checks.h"


nnefc_cuda_driver nnefc_cuda;

static const struct {
    const char *symbol;
    size_t offset; /* in nnefc_cuda_driver */
    bool required;
} symbols[] = {
#define SYMBOL(name, symbol, parameters) {#symbol, offsetof(nnefc_cuda_driver, name), true},
    NNEFC_CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
#define SYMBOL(name, symbol, parameters) {#symbol, offsetof(nnefc_cuda_driver, name), false},
    NNEFC_CUDA_NEWER_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

nnefc_status nnefc_cuda_driver_open(char *error) {
    static bool opened;
    if (opened) return NNEFC_OK;
    /* it stays in the process: the driver has threads of its own */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL)
        return nnefc_fail(NNEFC_NO_DEVICE, error, "NVIDIA's driver cannot be opened (%.300s): install it, or run on a machine "
                          "with a GPU of NVIDIA's", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *function = dlsym(library, symbols[i].symbol);
        if (function == NULL && symbols[i].required) {
            dlclose(library);
            return nnefc_fail(NNEFC_NO_DEVICE, error, "NVIDIA's driver is too old: it has no %s; CUDA 11.4 was the first that "
                              "has all that is needed", symbols[i].symbol);
        }
        *(void **)((char *)&nnefc_cuda + symbols[i].offset) = function;
    }
    opened = true;
    return NNEFC_OK;
}

static nnefc_status status_of(int result) {
    switch (result) {
        case CUDA_SUCCESS: return NNEFC_OK;
        case CUDA_ERROR_OUT_OF_MEMORY: return NNEFC_OUT_OF_MEMORY;
        case CUDA_ERROR_NOT_INITIALIZED:
        case CUDA_ERROR_STUB_LIBRARY:
        case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
        case CUDA_ERROR_DEVICE_UNAVAILABLE:
        case CUDA_ERROR_NO_DEVICE:
        case CUDA_ERROR_INVALID_DEVICE:
        case CUDA_ERROR_INVALID_IMAGE:
        case CUDA_ERROR_NO_BINARY_FOR_GPU:
        case CUDA_ERROR_INVALID_PTX:
        case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
        case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        case CUDA_ERROR_JIT_COMPILATION_DISABLED:
        case CUDA_ERROR_SYSTEM_NOT_READY:
        case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: return NNEFC_NO_DEVICE;
        default: return NNEFC_DEVICE_ERROR;
    }
}

/* Whether the driver answers every call of the process with this result from now on. */
static bool is_lasting(int result) {
    switch (result) {
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED: return true;
        default: return false;
    }
}

nnefc_status nnefc_cuda_check(int result, const char *what, char *error) {
    if (result == CUDA_SUCCESS) return NNEFC_OK;
    const char *name = NULL, *text = NULL;
    nnefc_cuda.get_error_name(result, &name);
    nnefc_cuda.get_error_string(result, &text);
    return nnefc_fail(status_of(result), error, "%s failed with %d, %s: %s%s", what, result,
                      name != NULL ? name : "an unknown error", text != NULL ? text : "the driver says no more",
                      is_lasting(result) ? "; this process can use the GPU no more" : "");
}

nnefc_status nnefc_cuda_also(nnefc_status status, int result, const char *what, char *error) {
    return status != NNEFC_OK ? status : nnefc_cuda_check(result, what, error);
}
