#include "device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "checks.h"
#include "model.h"
#include "machine/system.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static nnefc_cuda_device *devices;
static _Atomic(nnefc_process *) owner; /* the process that has asked for the driver; null for none */
static atomic_bool is_used;            /* whether it has got it, or is about to */

static const nnefc_cuda_module *const module = &nnefc_cuda_this_module;

nnefc_status nnefc_cuda_check_process(char *error) {
    nnefc_process *process = atomic_load(&owner);
    if (process == NULL || (!atomic_load(&is_used) && !nnefc_process_is_own(process))) { /* a parent that got none is no matter */
        nnefc_process *own = nnefc_process_create();
        if (own == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a session");
        if (atomic_compare_exchange_strong(&owner, &process, own))
            process = own;
        else
            nnefc_process_free(own); /* another thread was faster, and `process` is its mark */
    }
    if (!nnefc_process_is_own(process))
        return nnefc_fail(NNEFC_NO_DEVICE, error, "this process was forked from one that used the GPU: NVIDIA's driver does not "
                          "work in it; start a new process instead");
    atomic_store(&is_used, true);
    return NNEFC_OK;
}

/* When the library is unloaded, or the process ends, while threads may still ask for a GPU that was found. */
__attribute__((destructor)) static void forget_process(void) {
    if (!atomic_load(&is_used)) nnefc_process_free(atomic_exchange(&owner, NULL));
}

/* "sm_80, sm_90" */
static void list_architectures(char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < module->architecture_count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%ssm_%u", i > 0 ? ", " : "", (unsigned)module->architectures[i]);
}

/* Whether a capability is that of a Tegra, such as Orin: machine code for these and for other GPUs do not run on each other
 * ("binary compatibility" in the CUDA C++ programming guide). */
static bool is_tegra(uint32_t capability) {
    return capability == 53 || capability == 62 || capability == 72 || capability == 87 || capability == 110;
}

/* Machine code runs on GPUs of its own kind with the same major capability and a minor one that is not lower; the PTX of the
 * newest architecture is compiled by the driver for all that are not older. */
static bool is_served(uint32_t capability) {
    for (uint32_t i = 0; i < module->architecture_count; i++) {
        uint32_t architecture = module->architectures[i];
        bool is_newest = i + 1 == module->architecture_count;
        bool is_of_its_kind = architecture / 10 == capability / 10 && is_tegra(architecture) == is_tegra(capability);
        if (architecture <= capability && (is_of_its_kind || is_newest)) return true;
    }
    return false;
}

/* The compute capability of a GPU that can run the network: 90 for 9.0. */
static nnefc_status find_capability(CUdevice device, int32_t *capability, char *error) {
    int major = 0, minor = 0;
    int result = nnefc_cuda.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (result == CUDA_SUCCESS)
        result = nnefc_cuda.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (result != CUDA_SUCCESS) return nnefc_cuda_check(result, "asking for the GPU's compute capability", error);
    *capability = 10 * major + minor;
    if (is_served((uint32_t)*capability)) return NNEFC_OK;
    char name[128] = "", compiled[128];
    nnefc_status status =
        nnefc_cuda_check(nnefc_cuda.device_name(name, sizeof name, device), "asking for the GPU's name", error);
    if (status != NNEFC_OK) return status;
    list_architectures(compiled, sizeof compiled);
    return nnefc_fail(NNEFC_NO_DEVICE, error, "compiled for %s, but %.100s has compute capability %d.%d: compile the model "
                      "for -arch=sm_%d%d", compiled, name, major, minor, major, minor);
}

/* The driver's handle of a GPU that can run the network, and its compute capability. */
static nnefc_status find(int64_t number, CUdevice *device, int32_t *capability, char *error) {
    nnefc_status status = nnefc_cuda_driver_open(error);
    atomic_store(&is_used, status == NNEFC_OK);
    if (status != NNEFC_OK) return status;
    int count = 0;
    status = nnefc_cuda_check(nnefc_cuda.init(0), "starting NVIDIA's driver", error);
    if (status == NNEFC_OK) status = nnefc_cuda_check(nnefc_cuda.device_count(&count), "counting the GPUs", error);
    if (status != NNEFC_OK) return status;
    if (count == 0) return nnefc_fail(NNEFC_NO_DEVICE, error, "NVIDIA's driver finds no GPU");
    if (number < 0 || number >= count)
        return nnefc_fail(NNEFC_NO_DEVICE, error, "device is %lld, but there are %d GPUs, numbered from 0", (long long)number,
                          count);
    status = nnefc_cuda_check(nnefc_cuda.device_get(device, (int)number), "opening the GPU", error);
    return status == NNEFC_OK ? find_capability(*device, capability, error) : status;
}

/* Why the driver does not take the code: it may be older than the compiler that made it. */
static nnefc_status refuse_image(int result, char *error) {
    char reason[NNEFC_ERROR_BYTES], compiled[128];
    int version = 0;
    nnefc_status status = nnefc_cuda_check(result, "loading the network's code", reason);
    if (status != NNEFC_NO_DEVICE || nnefc_cuda.driver_version(&version) != CUDA_SUCCESS)
        return nnefc_fail(status, error, "%s", reason);
    list_architectures(compiled, sizeof compiled);
    return nnefc_fail(status, error, "%.300s; the code is for %s, the driver for CUDA %d.%d: a newer driver may take it", reason,
                      compiled, version / 1000, version % 1000 / 10);
}

static nnefc_status load_code(nnefc_cuda_device *device, char *error) {
    int result = nnefc_cuda.module_load(&device->module, module->image);
    if (result != CUDA_SUCCESS) return refuse_image(result, error);
    for (uint32_t i = 0; i < module->kernel_count; i++) {
        result = nnefc_cuda.module_function(&device->functions[i], device->module, module->kernels[i]);
        if (result == CUDA_SUCCESS && module->dynamic_shared[i] > 0) /* what is free without asking depends on the rest */
            result = nnefc_cuda.function_set(device->functions[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                             (int)module->dynamic_shared[i]);
        if (result == CUDA_SUCCESS) continue;
        char what[NNEFC_ERROR_BYTES / 2];
        snprintf(what, sizeof what, "loading the kernel %.150s", module->kernels[i]);
        return nnefc_cuda_check(result, what, error);
    }
    return NNEFC_OK;
}

static nnefc_status copy_constants(nnefc_cuda_device *device, const uint8_t *constants, char *error) {
    size_t bytes = (size_t)nnefc_this_model.description.constant_bytes;
    nnefc_status status = nnefc_cuda_check(nnefc_cuda.memory_allocate(&device->constants, bytes),
                                           "taking the GPU's memory for the trained values", error);
    if (status != NNEFC_OK) return status;
    return nnefc_cuda_check(nnefc_cuda.copy_to_device(device->constants, constants, bytes), "copying the trained values",
                            error);
}

static nnefc_status load_constants(nnefc_cuda_device *device, const nnefc_options *options, char *error) {
    if (nnefc_this_model.description.constant_bytes == 0) return NNEFC_OK;
    const nnefc_weights *weights = nnefc_this_model.weights;
    if (weights == NULL) return copy_constants(device, nnefc_this_model.constants, error);
    nnefc_mapping mapping = {0};
    nnefc_status status = weights->map(weights, options, &mapping, error, NNEFC_ERROR_BYTES);
    if (status != NNEFC_OK) return status;
    status = copy_constants(device, mapping.constants, error);
    weights->unmap(&mapping);
    return status;
}

/* Frees what the device has, with its context current, as far as it has been made. */
static nnefc_status unload(nnefc_cuda_device *device, nnefc_status status, char *error) {
    if (device->constants != 0)
        status = nnefc_cuda_also(status, nnefc_cuda.memory_free(device->constants), "freeing the trained values", error);
    if (device->module != NULL)
        status = nnefc_cuda_also(status, nnefc_cuda.module_unload(device->module), "unloading the network's code", error);
    return status;
}

static nnefc_status fill(nnefc_cuda_device *device, const nnefc_options *options, char *error) {
    nnefc_status status = nnefc_cuda_check(nnefc_cuda.context_push(device->context), "entering the GPU's context", error);
    if (status != NNEFC_OK) return status;
    CUcontext context;
    status = load_code(device, error);
    if (status == NNEFC_OK) status = load_constants(device, options, error);
    if (status != NNEFC_OK) status = unload(device, status, error);
    int left = nnefc_cuda.context_pop(&context);
    if (status == NNEFC_OK && left != CUDA_SUCCESS && nnefc_cuda.context_push(device->context) == CUDA_SUCCESS) {
        char dropped[NNEFC_ERROR_BYTES];
        unload(device, status, dropped);
        nnefc_cuda.context_pop(&context);
    }
    return nnefc_cuda_also(status, left, "leaving the GPU's context", error);
}

static nnefc_status make(CUdevice number, int32_t capability, const nnefc_options *options, nnefc_cuda_device **device,
                         char *error) {
    nnefc_cuda_device *made = calloc(1, sizeof *made + module->kernel_count * sizeof *made->functions);
    if (made == NULL) return nnefc_fail(NNEFC_OUT_OF_MEMORY, error, "no memory for a GPU's functions");
    made->device = number;
    made->capability = capability;
    int pools = 0, result = nnefc_cuda.device_attribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, number);
    nnefc_status status = nnefc_cuda_check(result, "asking for the GPU's memory pools", error);
    made->has_pools = pools != 0;
    if (status == NNEFC_OK) {
        result = nnefc_cuda.context_retain(&made->context, number);
        status = nnefc_cuda_check(result, "opening the GPU's primary context", error);
    }
    if (status == NNEFC_OK) {
        status = fill(made, options, error);
        if (status != NNEFC_OK) nnefc_cuda.context_release(number);
    }
    if (status == NNEFC_OK)
        *device = made;
    else
        free(made);
    return status;
}

static nnefc_status share(CUdevice number, int32_t capability, const nnefc_options *options, nnefc_cuda_device **device,
                          char *error) {
    for (*device = devices; *device != NULL; *device = (*device)->next)
        if ((*device)->device == number) break;
    if (*device == NULL) {
        nnefc_status status = make(number, capability, options, device, error);
        if (status != NNEFC_OK) return status;
        (*device)->next = devices;
        devices = *device;
    }
    (*device)->sessions++;
    return NNEFC_OK;
}

nnefc_status nnefc_cuda_device_acquire(const nnefc_options *options, nnefc_cuda_device **device, char *error) {
    nnefc_status status = nnefc_cuda_check_process(error);
    if (status != NNEFC_OK) return status; /* before the lock, which another thread may have held at the fork */
    CUdevice found = 0;
    int32_t capability = 0;
    pthread_mutex_lock(&mutex);
    status = find(options->device, &found, &capability, error);
    if (status == NNEFC_OK) status = share(found, capability, options, device, error);
    pthread_mutex_unlock(&mutex);
    return status;
}

bool nnefc_cuda_enter_to_free(CUcontext context, nnefc_status *status, char *error) {
    for (int attempt = 0; attempt < 2; attempt++) {
        int result = nnefc_cuda.context_push(context);
        if (result == CUDA_SUCCESS) return true;
        *status = nnefc_cuda_also(*status, result, "entering the GPU's context", error);
    }
    return false;
}

static nnefc_status end(nnefc_cuda_device *device, char *error) {
    for (nnefc_cuda_device **link = &devices; *link != NULL; link = &(*link)->next) {
        if (*link != device) continue;
        *link = device->next;
        break;
    }
    CUcontext context;
    nnefc_status status = NNEFC_OK;
    if (nnefc_cuda_enter_to_free(device->context, &status, error)) {
        status = unload(device, status, error);
        status = nnefc_cuda_also(status, nnefc_cuda.context_pop(&context), "leaving the GPU's context", error);
    }
    status = nnefc_cuda_also(status, nnefc_cuda.context_release(device->device), "closing the GPU's primary context", error);
    free(device);
    return status;
}

nnefc_status nnefc_cuda_device_release(nnefc_cuda_device *device, char *error) {
    pthread_mutex_lock(&mutex);
    nnefc_status status = --device->sessions == 0 ? end(device, error) : NNEFC_OK;
    pthread_mutex_unlock(&mutex);
    return status;
}
