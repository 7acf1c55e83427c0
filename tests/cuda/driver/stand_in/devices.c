/* What machine it is, its GPUs, and contexts. */

#include "stand_in.h"

struct machine machine = {1, 9, 0, 13000, true};
bool is_initialized;
static pid_t owner; /* the process that called cuInit */
static object *primary[MAX_DEVICES];

bool is_forked(void) { return owner != 0 && owner != getpid(); }

EXPORT int cuGetErrorName(int result, const char **text) {
    static const struct {
        int result;
        const char *name;
    } names[] = {{OK, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"}, {100, "CUDA_ERROR_NO_DEVICE"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {999, "CUDA_ERROR_UNKNOWN"}};
    *text = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].result == result) *text = names[i].name;
    return *text != NULL ? OK : INVALID_VALUE;
}

EXPORT int cuGetErrorString(int result, const char **text) {
    *text = result == 999 ? NULL : "a description";
    return *text != NULL ? OK : INVALID_VALUE;
}

EXPORT int cuInit(unsigned flags) {
    CALL("cuInit", " %u", flags);
    if (is_forked()) FAIL(NOT_INITIALIZED, "cuInit: in a process that was forked");
    if (machine.devices == 0) return leave(NO_DEVICE);
    is_initialized = true;
    owner = getpid();
    return leave(OK);
}

EXPORT int cuDriverGetVersion(int *version) {
    CALL("cuDriverGetVersion");
    *version = machine.version;
    return leave(OK);
}

EXPORT int cuDeviceGetCount(int *count) {
    CALL("cuDeviceGetCount");
    NEEDS_DRIVER("cuDeviceGetCount");
    *count = machine.devices;
    return leave(OK);
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
    CALL("cuDeviceGet", " %d", ordinal);
    NEEDS_DRIVER("cuDeviceGet");
    if (ordinal < 0 || ordinal >= machine.devices) FAIL(INVALID_DEVICE, "cuDeviceGet: %d", ordinal);
    *device = ordinal;
    return leave(OK);
}

EXPORT int cuDeviceGetName(char *name, int bytes, int device) {
    CALL("cuDeviceGetName", " %d", device);
    NEEDS_DRIVER("cuDeviceGetName");
    snprintf(name, (size_t)bytes, "Emulated GPU");
    return leave(OK);
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    CALL("cuDeviceGetAttribute", " %d of %d", attribute, device);
    NEEDS_DRIVER("cuDeviceGetAttribute");
    switch (attribute) {
        case 75: *value = machine.major; break;
        case 76: *value = machine.minor; break;
        case 115: *value = machine.has_pools; break;
        default: FAIL(INVALID_VALUE, "cuDeviceGetAttribute: %d", attribute);
    }
    return leave(OK);
}

EXPORT int cuDevicePrimaryCtxRetain(object **context, int device) {
    CALL("cuDevicePrimaryCtxRetain", " %d", device);
    NEEDS_DRIVER("cuDevicePrimaryCtxRetain");
    if (device < 0 || device >= machine.devices) FAIL(INVALID_DEVICE, "cuDevicePrimaryCtxRetain: %d", device);
    if (primary[device] == NULL) {
        primary[device] = make(CONTEXT, NULL);
        primary[device]->device = device;
    }
    primary[device]->references++;
    *context = primary[device];
    return leave(OK);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    enter();
    write_down("cuDevicePrimaryCtxRelease_v2 %d", device);
    NEEDS_DRIVER("cuDevicePrimaryCtxRelease_v2");
    if (device < 0 || device >= MAX_DEVICES || primary[device] == NULL)
        FAIL(INVALID_CONTEXT, "cuDevicePrimaryCtxRelease_v2: %d is not retained", device);
    object *context = primary[device];
    if (--context->references == 0) { /* all that is in it goes with it */
        for (object *o = objects, *next; o != NULL; o = next) {
            next = o->next;
            if (o->context == context) destroy(o);
        }
        destroy(context);
        primary[device] = NULL;
    }
    return leave(count_call("cuDevicePrimaryCtxRelease_v2"));
}

EXPORT int cuCtxPushCurrent_v2(object *context) {
    CALL("cuCtxPushCurrent_v2");
    NEEDS_DRIVER("cuCtxPushCurrent_v2");
    if (!is_live(context, CONTEXT) || !push(context)) FAIL(INVALID_CONTEXT, "cuCtxPushCurrent_v2: no context");
    return leave(OK);
}

EXPORT int cuCtxPopCurrent_v2(object **context) {
    enter();
    write_down("cuCtxPopCurrent_v2");
    object *popped = pop();
    if (popped == NULL) FAIL(INVALID_CONTEXT, "cuCtxPopCurrent_v2: no context is current");
    *context = popped;
    return leave(count_call("cuCtxPopCurrent_v2"));
}

/* What the machine is like; everything that lives is forgotten by cuInit's next call only. */
EXPORT void fake_machine(int devices, int major, int minor, int version) {
    enter();
    machine.devices = devices, machine.major = major, machine.minor = minor, machine.version = version;
    leave(OK);
}

/* Whether GPUs have memory pools. */
EXPORT void fake_pools(bool present_pools) {
    enter();
    machine.has_pools = present_pools;
    leave(OK);
}
