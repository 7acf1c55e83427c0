/* A driver of NVIDIA's that needs no GPU, for tests: libcuda.so.1 with the functions that the runtime uses.
 *
 * Work on streams and in graphs is put off until something waits for it, as a real GPU may do. "The GPU's memory" is mapped
 * without access but while work is done, so that a program which touches it dies. What is new begins as 0xff bytes, which is
 * NaN. Kernels are functions of the library that the environment variable NNEFC_EMULATED_KERNELS names:
 *
 *     void emulated_NAME(void **arguments, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes);
 *     const unsigned emulated_NAME_parameters[] = {how many, the bytes of each, ...};
 *     const char *emulator_error(void);      // may be there: null, or what was wrong with the last launch
 *     int emulator_memory(void *begin, uint64_t bytes, const char *name, int writable);      // may be there: reported for all
 *     void emulator_forget(void);            // memory before a launch, and that it is over after it
 *
 * Every call is written down, in order. Every object has a reference count. A wrong argument or state is answered as the real driver
 * answers it, and noted: see the functions that begin with fake_. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef unsigned long long address;

enum {
    OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719, CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901, ILLEGAL_STATE = 401
};

enum { MAX_DEVICES = 8, MAX_STACK = 16, MAX_BLOCK_THREADS = 1024, SHARED_BYTES = 48 << 10, OPT_IN_BYTES = 227 << 10 };

/* --- what tests control */

static struct {
    int devices, major, minor, version;
} machine = {1, 9, 0, 13000};
static bool has_pools = true; /* whether memory can be allocated in the order of a stream */

static pthread_mutex_t mutex; /* recursive: a kernel of the host may not call the driver, but checks of its may */
static char *log_text;
static size_t log_bytes;
static char complaints[8192];
static unsigned calls;      /* since fake_fail or fake_clear */
static unsigned fails_at;   /* 0 for never */
static int fails_with;
static char fails_in[64];   /* only calls of this function count; "" for all */
static bool initialized;
static pid_t owner;

__attribute__((format(printf, 1, 2))) static void write_down(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log_text = realloc(log_text, log_bytes + (size_t)length + 2);
    memcpy(log_text + log_bytes, line, (size_t)length);
    log_bytes += (size_t)length;
    log_text[log_bytes++] = '\n';
    log_text[log_bytes] = '\0';
}

/* Notes misuse, and answers with a result. */
__attribute__((format(printf, 2, 3))) static int complain(int result, const char *format, ...) {
    size_t used = strlen(complaints);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaints + used, sizeof complaints - used, format, arguments);
    va_end(arguments);
    used = strlen(complaints);
    snprintf(complaints + used, sizeof complaints - used, "\n");
    return result;
}

/* Counts a call; the result that a test wants of it, or OK. */
static int count_call(const char *name) {
    if (fails_in[0] != '\0' && strcmp(fails_in, name) != 0) return OK;
    calls++;
    if (calls != fails_at) return OK;
    write_down("  fails with %d", fails_with);
    return fails_with;
}

/* --- objects */

typedef enum kind { CONTEXT, MODULE, FUNCTION, MEMORY, PINNED, STREAM, EVENT, GRAPH, RUNNABLE } kind;

static const char *const kind_names[] = {"context", "module", "function", "memory", "pinned memory", "stream", "event", "graph", "runnable graph"};

typedef struct object object;

typedef enum action { COPY, LAUNCH, HOST, WAIT, ALLOCATE, RELEASE } action;

typedef void emulated(void **arguments, const unsigned *grid, const unsigned *block, unsigned shared_bytes);

typedef struct operation {
    action action;
    void *target;
    const void *source;
    size_t bytes;
    unsigned char *snapshot; /* of memory that is not pinned: read when the copy was asked for */
    emulated *kernel;
    char name[96];
    unsigned grid[3], block[3], shared, count;
    int device;
    unsigned *sizes;
    unsigned char *values; /* of the arguments, VALUE bytes apart */
    void (*function)(void *);
    object *stream; /* WAIT: until it has done `position` operations; ALLOCATE, RELEASE: the memory */
    uint64_t position;
} operation;

typedef struct queue {
    operation *operations;
    size_t count, capacity, done;
    uint64_t before; /* operations that were removed */
} queue;

struct object {
    kind kind;
    object *next;
    object *context;
    int device;
    char name[96];
    uint64_t references; /* CONTEXT: retained */
    void *start;         /* MEMORY, PINNED */
    size_t bytes, mapped;
    bool is_ahead;    /* MEMORY: the stream that it is allocated on has not come there */
    emulated *kernel; /* FUNCTION */
    const unsigned *parameters;
    unsigned shared_limit;
    queue queue;          /* STREAM, GRAPH, RUNNABLE */
    object *capture;      /* STREAM: the graph that it is captured to */
    bool capture_is_void; /* something in it went wrong */
    pthread_t capturer;
    object *recorded; /* EVENT: the stream */
    uint64_t position;
};

static object *objects;
static object *primary[MAX_DEVICES];
static __thread object *stack[MAX_STACK];
static __thread int depth;

static object *make(kind kind, object *context) {
    object *made = calloc(1, sizeof *made);
    made->kind = kind;
    made->context = context;
    made->device = context != NULL ? context->device : 0;
    made->next = objects;
    objects = made;
    return made;
}

static bool is_live(const object *what, kind kind) {
    for (const object *o = objects; o != NULL; o = o->next)
        if (o == what) return o->kind == kind;
    return false;
}

static object *find(const void *start, size_t bytes) {
    for (object *o = objects; o != NULL; o = o->next)
        if ((o->kind == MEMORY || o->kind == PINNED) && (const char *)start >= (char *)o->start &&
            (const char *)start + bytes <= (char *)o->start + o->bytes)
            return o;
    return NULL;
}

/* A tensor map as the emulator reads it: `emulator_tensor_map` of tests/cuda/emulator/machine.h. */
typedef struct {
    uint64_t magic, address, strides[4];
    uint32_t sizes[5], box[5], rank, element_bytes, swizzle, steps[5];
    uint8_t unused[8];
} tensor_map;

enum { VALUE = 128 }; /* bytes of an argument */

static void free_operation(operation *op) { free(op->snapshot), free(op->values), free(op->sizes); }

static void clear(queue *q) {
    for (size_t i = 0; i < q->count; i++) free_operation(&q->operations[i]);
    free(q->operations);
    *q = (queue){0};
}

static void destroy(object *what) {
    for (object **link = &objects; *link != NULL; link = &(*link)->next) {
        if (*link != what) continue;
        *link = what->next;
        break;
    }
    if (what->kind == MEMORY) munmap(what->start, what->mapped + (size_t)sysconf(_SC_PAGESIZE));
    if (what->kind == PINNED) free(what->start);
    clear(&what->queue);
    free(what);
}

/* --- work */

static operation *append(queue *q) {
    if (q->count == q->capacity) {
        q->capacity = q->capacity > 0 ? 2 * q->capacity : 16;
        q->operations = realloc(q->operations, q->capacity * sizeof *q->operations);
    }
    return memset(&q->operations[q->count++], 0, sizeof *q->operations);
}

static void *duplicate(const void *source, size_t bytes) {
    if (source == NULL) return NULL;
    void *made = malloc(bytes > 0 ? bytes : 1);
    return memcpy(made, source, bytes);
}

/* The values of the arguments of a launch, each as well aligned as a tensor map. */
static unsigned char *values_of(unsigned count) {
    unsigned char *made = aligned_alloc(VALUE, VALUE * ((size_t)count + 1));
    return memset(made, 0, VALUE * ((size_t)count + 1));
}

static void append_copy(queue *q, const operation *op) {
    operation *made = append(q);
    *made = *op;
    made->snapshot = duplicate(op->snapshot, op->bytes);
    if (op->values != NULL) made->values = memcpy(values_of(op->count), op->values, VALUE * (size_t)op->count);
    made->sizes = duplicate(op->sizes, sizeof *op->sizes * op->count);
}

static int open_count; /* nested drains */

static void give_access(bool access) {
    if (access ? open_count++ > 0 : --open_count > 0) return;
    for (const object *o = objects; o != NULL; o = o->next)
        if (o->kind == MEMORY) mprotect(o->start, o->mapped, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static int drain(object *stream, uint64_t position);

static const char *(*emulator_error)(void);
static int (*emulator_memory)(void *begin, uint64_t bytes, const char *name, int writable);
static void (*emulator_forget)(void);

/* Tells the emulator what there is, for it to find accesses outside it. */
static void show_memory(void) {
    for (const object *o = objects; o != NULL; o = o->next)
        if (o->kind == MEMORY || o->kind == PINNED) emulator_memory(o->start, o->bytes, kind_names[o->kind], 1);
}

static int check_arguments(const operation *op) {
    for (unsigned i = 0; i < op->count; i++) {
        if (op->sizes[i] != sizeof(void *) && op->sizes[i] != sizeof(tensor_map)) continue;
        void *pointer;
        const size_t in_value = op->sizes[i] == sizeof(tensor_map) ? offsetof(tensor_map, address) : 0;
        memcpy(&pointer, op->values + VALUE * i + in_value, sizeof pointer);
        const object *found = find(pointer, 1);
        if (found != NULL && found->is_ahead)
            return complain(LAUNCH_FAILED, "%s: argument %u is not allocated yet: it is on another stream", op->name, i);
        if (found != NULL && found->kind == MEMORY && found->device != op->device)
            return complain(LAUNCH_FAILED, "%s: argument %u is in the memory of another GPU", op->name, i);
        if ((uintptr_t)pointer >> 32 == 0 || found != NULL) continue; /* none, or a number: memory is above */
        return complain(LAUNCH_FAILED, "%s: argument %u is no address of live memory", op->name, i);
    }
    return OK;
}

static int launch(const operation *op) {
    int result = check_arguments(op);
    if (result != OK) return result;
    void *arguments[op->count + 1];
    for (unsigned i = 0; i < op->count; i++) arguments[i] = op->values + VALUE * i;
    if (emulator_memory != NULL) show_memory();
    op->kernel(arguments, op->grid, op->block, op->shared);
    if (emulator_forget != NULL) emulator_forget();
    const char *error = emulator_error != NULL ? emulator_error() : NULL;
    return error == NULL ? OK : complain(LAUNCH_FAILED, "%s: %s", op->name, error);
}

static int perform(const operation *op) {
    switch (op->action) {
        case COPY:
            if (op->bytes > 0 && find(op->target, op->bytes) == NULL)
                return complain(LAUNCH_FAILED, "a copy of %zu bytes to memory that is gone", op->bytes);
            if (op->snapshot == NULL && op->bytes > 0 && find(op->source, op->bytes) == NULL)
                return complain(LAUNCH_FAILED, "a copy of %zu bytes from memory that is gone", op->bytes);
            memcpy(op->target, op->snapshot != NULL ? op->snapshot : op->source, op->bytes);
            return OK;
        case LAUNCH: return launch(op);
        case HOST: op->function(op->target); return OK;
        case WAIT: return is_live(op->stream, STREAM) ? drain(op->stream, op->position) : OK;
        case ALLOCATE: op->stream->is_ahead = false; return OK;
        case RELEASE: destroy(op->stream); return OK;
    }
    return OK;
}

/* Does a stream's work up to a position. A failure leaves the rest undone, as a real GPU would. */
static int drain(object *stream, uint64_t position) {
    queue *q = &stream->queue;
    int result = OK;
    give_access(true);
    while (result == OK && q->before + q->done < position && q->done < q->count) {
        operation op = q->operations[q->done++]; /* a copy: the queue may move meanwhile */
        result = perform(&op);
    }
    give_access(false);
    if (q->done == q->count) {
        uint64_t before = q->before + q->count;
        clear(q);
        q->before = before;
    }
    return result;
}

static int drain_all(object *stream) { return drain(stream, UINT64_MAX); }

static uint64_t length(const object *stream) { return stream->queue.before + stream->queue.count; }

/* --- what calls begin with */

static void enter(void) { pthread_mutex_lock(&mutex); }

static int leave(int result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

/* A call that does nothing if a test wants it to fail. */
#define CALL(name, ...)              \
    enter();                         \
    write_down(name __VA_ARGS__);    \
    int wanted = count_call(name);      \
    if (wanted != OK) return leave(wanted)

#define FAIL(result, ...) return leave(complain(result, __VA_ARGS__))

static bool is_forked(void) { return owner != 0 && owner != getpid(); }

#define NEEDS_DRIVER(name)                                                                \
    if (is_forked()) FAIL(NOT_INITIALIZED, name ": in a process that was forked");      \
    if (!initialized) FAIL(NOT_INITIALIZED, name ": before cuInit")

static object *present(void) { return depth > 0 && is_live(stack[depth - 1], CONTEXT) ? stack[depth - 1] : NULL; }

#define NEEDS_CONTEXT(name)   \
    NEEDS_DRIVER(name);       \
    object *context = present(); \
    if (context == NULL) FAIL(INVALID_CONTEXT, name ": no context is current")

/* What a thread may not do that captures a stream. */
static bool captures(void) {
    for (object *o = objects; o != NULL; o = o->next)
        if (o->kind == STREAM && o->capture != NULL && pthread_equal(o->capturer, pthread_self())) {
            o->capture_is_void = true;
            return true;
        }
    return false;
}

#define NOT_WHILE_CAPTURING(name) \
    if (captures()) FAIL(CAPTURE_UNSUPPORTED, name ": during a capture")

/* The stream of a handle; null for none that is live and of the present context. */
static object *stream_of(object *handle, object *context) {
    if ((uintptr_t)handle > 2) return is_live(handle, STREAM) && handle->context == context ? handle : NULL;
    for (object *o = objects; o != NULL; o = o->next)
        if (o->kind == STREAM && o->context == context && strcmp(o->name, "default") == 0) return o;
    object *made = make(STREAM, context);
    strcpy(made->name, "default");
    return made;
}

#define NEEDS_STREAM(name)                               \
    NEEDS_CONTEXT(name);                                 \
    object *stream = stream_of(handle, context);         \
    if (stream == NULL) FAIL(INVALID_HANDLE, name ": no stream of this context")

/* Where an operation for a stream goes: its queue, or the graph that it is captured to. */
static operation *put(object *stream, action action) {
    operation *op = append(stream->capture != NULL ? &stream->capture->queue : &stream->queue);
    op->action = action;
    return op;
}

/* --- the driver's functions */

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
    initialized = true;
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
        case 115: *value = has_pools; break;
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
    if (!is_live(context, CONTEXT) || depth == MAX_STACK) FAIL(INVALID_CONTEXT, "cuCtxPushCurrent_v2: no context");
    stack[depth++] = context;
    return leave(OK);
}

EXPORT int cuCtxPopCurrent_v2(object **context) {
    enter();
    write_down("cuCtxPopCurrent_v2");
    if (depth == 0) FAIL(INVALID_CONTEXT, "cuCtxPopCurrent_v2: no context is current");
    *context = stack[--depth];
    return leave(count_call("cuCtxPopCurrent_v2"));
}

EXPORT int cuModuleLoadData(object **module, const void *image) {
    CALL("cuModuleLoadData");
    NEEDS_CONTEXT("cuModuleLoadData");
    NOT_WHILE_CAPTURING("cuModuleLoadData");
    if (image == NULL || (uintptr_t)image % 8 != 0) FAIL(INVALID_IMAGE, "cuModuleLoadData: an image that is not aligned");
    *module = make(MODULE, context);
    return leave(OK);
}

EXPORT int cuModuleUnload(object *module) {
    enter();
    write_down("cuModuleUnload");
    NEEDS_CONTEXT("cuModuleUnload");
    if (!is_live(module, MODULE)) FAIL(INVALID_HANDLE, "cuModuleUnload: no module");
    for (object *o = objects, *next; o != NULL; o = next) {
        next = o->next;
        if (o->kind == FUNCTION && o->start == module) destroy(o);
    }
    destroy(module);
    return leave(count_call("cuModuleUnload"));
}

static void *kernels; /* the library of emulated kernels */
static char kernels_path[4096];

static void *open_kernels(void) {
    const char *path = getenv("NNEFC_EMULATED_KERNELS");
    if (path == NULL) return NULL;
    if (kernels == NULL || strcmp(path, kernels_path) != 0) {
        kernels = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        snprintf(kernels_path, sizeof kernels_path, "%s", path);
        *(void **)&emulator_error = kernels != NULL ? dlsym(kernels, "emulator_error") : NULL;
        *(void **)&emulator_memory = kernels != NULL ? dlsym(kernels, "emulator_memory") : NULL;
        *(void **)&emulator_forget = kernels != NULL ? dlsym(kernels, "emulator_forget") : NULL;
    }
    return kernels;
}

EXPORT int cuModuleGetFunction(object **function, object *module, const char *name) {
    CALL("cuModuleGetFunction", " %s", name);
    NEEDS_CONTEXT("cuModuleGetFunction");
    if (!is_live(module, MODULE)) FAIL(INVALID_HANDLE, "cuModuleGetFunction: no module");
    void *library = open_kernels();
    if (library == NULL) FAIL(NOT_FOUND, "NNEFC_EMULATED_KERNELS names no library: %s", dlerror());
    char symbol[4096], table[4096];
    snprintf(symbol, sizeof symbol, "emulated_%s", name);
    snprintf(table, sizeof table, "emulated_%s_parameters", name);
    void *kernel = dlsym(library, symbol), *parameters = dlsym(library, table);
    if (kernel == NULL || parameters == NULL) FAIL(NOT_FOUND, "%s has no %s with its parameters", kernels_path, symbol);
    object *made = make(FUNCTION, context);
    *(void **)&made->kernel = kernel;
    made->parameters = parameters;
    made->start = module;
    made->shared_limit = SHARED_BYTES;
    snprintf(made->name, sizeof made->name, "%s", name);
    *function = made;
    return leave(OK);
}

EXPORT int cuFuncSetAttribute(object *function, int attribute, int value) {
    CALL("cuFuncSetAttribute", " %d to %d", attribute, value);
    NEEDS_CONTEXT("cuFuncSetAttribute");
    if (!is_live(function, FUNCTION)) FAIL(INVALID_HANDLE, "cuFuncSetAttribute: no function");
    if (attribute != 8 || value < 0 || value > OPT_IN_BYTES) FAIL(INVALID_VALUE, "cuFuncSetAttribute: %d to %d", attribute, value);
    function->shared_limit = (unsigned)value;
    return leave(OK);
}

/* New memory; null if there is none. */
static object *allocate(size_t bytes, object *context) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped = (bytes + page - 1) / page * page + page; /* one more, never opened */
    if (mapped < bytes) return NULL;
    char *start = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return NULL;
    mprotect(start, mapped - page, PROT_READ | PROT_WRITE);
    memset(start, 0xff, bytes);
    mprotect(start, mapped, PROT_NONE);
    object *made = make(MEMORY, context);
    made->start = start;
    made->bytes = bytes;
    made->mapped = mapped - page;
    return made;
}

/* The memory that begins at an address; null if there is none. */
static object *memory_at(address memory) {
    object *found = find((void *)(uintptr_t)memory, 1);
    return found != NULL && found->kind == MEMORY && (address)(uintptr_t)found->start == memory ? found : NULL;
}

EXPORT int cuMemAlloc_v2(address *memory, size_t bytes) {
    CALL("cuMemAlloc_v2", " %zu", bytes);
    NEEDS_CONTEXT("cuMemAlloc_v2");
    NOT_WHILE_CAPTURING("cuMemAlloc_v2");
    if (bytes == 0) FAIL(INVALID_VALUE, "cuMemAlloc_v2: no bytes");
    object *made = allocate(bytes, context);
    if (made == NULL) return leave(2);
    *memory = (address)(uintptr_t)made->start;
    return leave(OK);
}

EXPORT int cuMemFree_v2(address memory) {
    enter();
    write_down("cuMemFree_v2");
    NEEDS_CONTEXT("cuMemFree_v2");
    NOT_WHILE_CAPTURING("cuMemFree_v2");
    object *found = memory_at(memory);
    if (found == NULL) FAIL(INVALID_VALUE, "cuMemFree_v2: no memory");
    for (object *o = objects; o != NULL; o = o->next) /* it waits for all that was begun */
        if (o->kind == STREAM && o->context == context) drain_all(o);
    destroy(found);
    return leave(count_call("cuMemFree_v2"));
}

EXPORT int cuMemAllocAsync(address *memory, size_t bytes, object *handle) {
    CALL("cuMemAllocAsync", " %zu", bytes);
    NEEDS_STREAM("cuMemAllocAsync");
    if (!has_pools) FAIL(801, "cuMemAllocAsync: the GPU has no pools");
    if (bytes == 0 || stream->capture != NULL) FAIL(INVALID_VALUE, "cuMemAllocAsync: no bytes, or in a capture");
    object *made = allocate(bytes, context);
    if (made == NULL) return leave(2);
    made->is_ahead = true;
    put(stream, ALLOCATE)->stream = made;
    *memory = (address)(uintptr_t)made->start;
    return leave(OK);
}

EXPORT int cuMemFreeAsync(address memory, object *handle) {
    enter();
    write_down("cuMemFreeAsync");
    NEEDS_STREAM("cuMemFreeAsync");
    object *found = memory_at(memory);
    if (found == NULL || stream->capture != NULL) FAIL(INVALID_VALUE, "cuMemFreeAsync: no memory, or in a capture");
    put(stream, RELEASE)->stream = found;
    return leave(count_call("cuMemFreeAsync"));
}

EXPORT int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    CALL("cuMemHostAlloc", " %zu flags %u", bytes, flags);
    NEEDS_CONTEXT("cuMemHostAlloc");
    NOT_WHILE_CAPTURING("cuMemHostAlloc");
    if (bytes == 0) FAIL(INVALID_VALUE, "cuMemHostAlloc: no bytes");
    object *made = make(PINNED, context);
    if (posix_memalign(&made->start, 4096, bytes) != 0) return leave(2);
    memset(made->start, 0xff, bytes);
    made->bytes = bytes;
    *memory = made->start;
    return leave(OK);
}

EXPORT int cuMemFreeHost(void *memory) {
    enter();
    write_down("cuMemFreeHost");
    NEEDS_CONTEXT("cuMemFreeHost");
    object *found = find(memory, 1);
    if (found == NULL || found->kind != PINNED || found->start != memory) FAIL(INVALID_VALUE, "cuMemFreeHost: no memory");
    destroy(found);
    return leave(count_call("cuMemFreeHost"));
}

EXPORT int cuMemHostGetDevicePointer_v2(address *pointer, void *memory, unsigned flags) {
    CALL("cuMemHostGetDevicePointer_v2", " flags %u", flags);
    NEEDS_CONTEXT("cuMemHostGetDevicePointer_v2");
    object *found = find(memory, 1);
    if (found == NULL || found->kind != PINNED) FAIL(INVALID_VALUE, "cuMemHostGetDevicePointer_v2: no pinned memory");
    *pointer = (address)(uintptr_t)memory;
    return leave(OK);
}

EXPORT int cuPointerGetAttributes(unsigned count, int *attributes, void **values, address pointer) {
    CALL("cuPointerGetAttributes", " %u", count);
    NEEDS_CONTEXT("cuPointerGetAttributes");
    const object *found = find((void *)(uintptr_t)pointer, 1);
    for (unsigned i = 0; i < count; i++) switch (attributes[i]) {
            case 2: *(unsigned *)values[i] = found == NULL ? 0 : found->kind == MEMORY ? 2 : 1; break;
            case 8: *(unsigned *)values[i] = 0; break;
            case 9: *(int *)values[i] = found == NULL ? 0 : found->device; break;
            default: FAIL(INVALID_VALUE, "cuPointerGetAttributes: %d", attributes[i]);
        }
    return leave(OK);
}

EXPORT int cuMemcpyHtoD_v2(address target, const void *source, size_t bytes) {
    CALL("cuMemcpyHtoD_v2", " %zu", bytes);
    NEEDS_CONTEXT("cuMemcpyHtoD_v2");
    NOT_WHILE_CAPTURING("cuMemcpyHtoD_v2");
    if (find((void *)(uintptr_t)target, bytes) == NULL) FAIL(INVALID_VALUE, "cuMemcpyHtoD_v2: beyond memory");
    give_access(true);
    memcpy((void *)(uintptr_t)target, source, bytes);
    give_access(false);
    return leave(OK);
}

EXPORT int cuMemcpyDtoH_v2(void *target, address source, size_t bytes) {
    CALL("cuMemcpyDtoH_v2", " %zu", bytes);
    NEEDS_CONTEXT("cuMemcpyDtoH_v2");
    NOT_WHILE_CAPTURING("cuMemcpyDtoH_v2");
    if (find((void *)(uintptr_t)source, bytes) == NULL) FAIL(INVALID_VALUE, "cuMemcpyDtoH_v2: beyond memory");
    give_access(true);
    memcpy(target, (void *)(uintptr_t)source, bytes);
    give_access(false);
    return leave(OK);
}

EXPORT int cuMemcpyHtoDAsync_v2(address target, const void *source, size_t bytes, object *handle) {
    CALL("cuMemcpyHtoDAsync_v2", " %zu", bytes);
    NEEDS_STREAM("cuMemcpyHtoDAsync_v2");
    const object *pinned = find(source, bytes), *found = find((void *)(uintptr_t)target, bytes);
    if (found == NULL || found->kind != MEMORY) FAIL(INVALID_VALUE, "cuMemcpyHtoDAsync_v2: the target is no memory");
    if (pinned == NULL && stream->capture != NULL) {
        stream->capture_is_void = true;
        FAIL(CAPTURE_UNSUPPORTED, "cuMemcpyHtoDAsync_v2: memory that is not pinned in a capture");
    }
    operation *op = put(stream, COPY);
    op->target = (void *)(uintptr_t)target;
    op->source = source;
    op->bytes = bytes;
    if (pinned == NULL) op->snapshot = duplicate(source, bytes);
    return leave(OK);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *target, address source, size_t bytes, object *handle) {
    CALL("cuMemcpyDtoHAsync_v2", " %zu", bytes);
    NEEDS_STREAM("cuMemcpyDtoHAsync_v2");
    const object *pinned = find(target, bytes), *found = find((void *)(uintptr_t)source, bytes);
    if (found == NULL || found->kind != MEMORY) FAIL(INVALID_VALUE, "cuMemcpyDtoHAsync_v2: the source is no memory");
    if (pinned != NULL) {
        operation *op = put(stream, COPY);
        op->target = target;
        op->source = (void *)(uintptr_t)source;
        op->bytes = bytes;
        return leave(OK);
    }
    if (stream->capture != NULL) {
        stream->capture_is_void = true;
        FAIL(CAPTURE_UNSUPPORTED, "cuMemcpyDtoHAsync_v2: memory that is not pinned in a capture");
    }
    int done = drain_all(stream);
    if (done != OK) return leave(done);
    give_access(true);
    memcpy(target, (void *)(uintptr_t)source, bytes);
    give_access(false);
    return leave(OK);
}

EXPORT int cuMemcpyDtoDAsync_v2(address target, address source, size_t bytes, object *handle) {
    CALL("cuMemcpyDtoDAsync_v2", " %zu", bytes);
    NEEDS_STREAM("cuMemcpyDtoDAsync_v2");
    const object *to = find((void *)(uintptr_t)target, bytes), *from = find((void *)(uintptr_t)source, bytes);
    if (to == NULL || from == NULL) FAIL(INVALID_VALUE, "cuMemcpyDtoDAsync_v2: beyond memory");
    if (to->device != context->device || from->device != context->device)
        FAIL(INVALID_VALUE, "cuMemcpyDtoDAsync_v2: memory of another GPU");
    operation *op = put(stream, COPY);
    op->target = (void *)(uintptr_t)target;
    op->source = (void *)(uintptr_t)source;
    op->bytes = bytes;
    return leave(OK);
}

/* Memory that begins at an address, in the memory of a context's GPU. */
static bool is_in(address start, size_t bytes, const object *context) {
    const object *found = find((void *)(uintptr_t)start, bytes);
    return found != NULL && found->kind == MEMORY && found->context == context;
}

EXPORT int cuMemcpyPeerAsync(address target, object *of_target, address source, object *of_source, size_t bytes, object *handle) {
    CALL("cuMemcpyPeerAsync", " %zu", bytes);
    NEEDS_STREAM("cuMemcpyPeerAsync");
    if (!is_live(of_target, CONTEXT) || !is_live(of_source, CONTEXT)) FAIL(INVALID_CONTEXT, "cuMemcpyPeerAsync: no context");
    if (!is_in(target, bytes, of_target) || !is_in(source, bytes, of_source))
        FAIL(INVALID_VALUE, "cuMemcpyPeerAsync: memory of another context, or beyond it");
    if (stream->capture != NULL) FAIL(CAPTURE_UNSUPPORTED, "cuMemcpyPeerAsync: in a capture, which the runtime leaves out");
    operation *op = put(stream, COPY);
    op->target = (void *)(uintptr_t)target;
    op->source = (void *)(uintptr_t)source;
    op->bytes = bytes;
    return leave(OK);
}

static int fill(object *stream, address target, const void *value, size_t width, size_t count) {
    if (target % width != 0 || find((void *)(uintptr_t)target, width * count) == NULL)
        return complain(INVALID_VALUE, "memory that is beyond the GPU's, or not aligned, is filled");
    operation *op = put(stream, COPY);
    op->target = (void *)(uintptr_t)target;
    op->bytes = width * count;
    op->snapshot = malloc(op->bytes + 1);
    for (size_t i = 0; i < count; i++) memcpy(op->snapshot + i * width, value, width);
    return OK;
}

EXPORT int cuMemsetD8Async(address target, unsigned char value, size_t count, object *handle) {
    CALL("cuMemsetD8Async", " %u %zu", value, count);
    NEEDS_STREAM("cuMemsetD8Async");
    return leave(fill(stream, target, &value, sizeof value, count));
}

EXPORT int cuMemsetD32Async(address target, unsigned value, size_t count, object *handle) {
    CALL("cuMemsetD32Async", " %u %zu", value, count);
    NEEDS_STREAM("cuMemsetD32Async");
    return leave(fill(stream, target, &value, sizeof value, count));
}

EXPORT int cuStreamCreate(object **stream, unsigned flags) {
    CALL("cuStreamCreate", " flags %u", flags);
    NEEDS_CONTEXT("cuStreamCreate");
    *stream = make(STREAM, context);
    return leave(OK);
}

EXPORT int cuStreamDestroy_v2(object *handle) {
    enter();
    write_down("cuStreamDestroy_v2");
    NEEDS_STREAM("cuStreamDestroy_v2");
    if (stream->capture != NULL) complain(OK, "cuStreamDestroy_v2: during a capture");
    drain_all(stream);
    destroy(stream);
    return leave(count_call("cuStreamDestroy_v2"));
}

EXPORT int cuStreamSynchronize(object *handle) {
    CALL("cuStreamSynchronize");
    NEEDS_STREAM("cuStreamSynchronize");
    if (stream->capture != NULL) {
        stream->capture_is_void = true;
        FAIL(CAPTURE_UNSUPPORTED, "cuStreamSynchronize: during a capture");
    }
    return leave(drain_all(stream));
}

EXPORT int cuStreamWaitEvent(object *handle, object *event, unsigned flags) {
    CALL("cuStreamWaitEvent", " flags %u", flags);
    NEEDS_STREAM("cuStreamWaitEvent");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuStreamWaitEvent: no event");
    if (stream->capture != NULL) FAIL(905, "cuStreamWaitEvent: an event from outside of the capture");
    if (event->recorded == NULL || event->recorded == stream) return leave(OK);
    operation *op = put(stream, WAIT);
    op->stream = event->recorded;
    op->position = event->position;
    return leave(OK);
}

EXPORT int cuStreamIsCapturing(object *handle, int *status) {
    CALL("cuStreamIsCapturing");
    NEEDS_STREAM("cuStreamIsCapturing");
    *status = stream->capture != NULL;
    return leave(OK);
}

EXPORT int cuStreamBeginCapture_v2(object *handle, int mode) {
    CALL("cuStreamBeginCapture_v2", " mode %d", mode);
    NEEDS_STREAM("cuStreamBeginCapture_v2");
    if ((uintptr_t)handle <= 2 || stream->capture != NULL) FAIL(ILLEGAL_STATE, "cuStreamBeginCapture_v2: not now");
    stream->capture = make(GRAPH, context);
    stream->capture_is_void = false;
    stream->capturer = pthread_self();
    return leave(OK);
}

EXPORT int cuStreamEndCapture(object *handle, object **graph) {
    enter();
    write_down("cuStreamEndCapture");
    NEEDS_STREAM("cuStreamEndCapture");
    if (stream->capture == NULL) FAIL(ILLEGAL_STATE, "cuStreamEndCapture: without a beginning");
    int result = stream->capture_is_void ? CAPTURE_INVALIDATED : count_call("cuStreamEndCapture");
    *graph = result == OK ? stream->capture : NULL;
    if (result != OK) destroy(stream->capture);
    stream->capture = NULL;
    return leave(result);
}

EXPORT int cuEventCreate(object **event, unsigned flags) {
    CALL("cuEventCreate", " flags %u", flags);
    NEEDS_CONTEXT("cuEventCreate");
    *event = make(EVENT, context);
    return leave(OK);
}

EXPORT int cuEventDestroy_v2(object *event) {
    enter();
    write_down("cuEventDestroy_v2");
    NEEDS_CONTEXT("cuEventDestroy_v2");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuEventDestroy_v2: no event");
    destroy(event);
    return leave(count_call("cuEventDestroy_v2"));
}

EXPORT int cuEventRecord(object *event, object *handle) {
    CALL("cuEventRecord");
    NEEDS_STREAM("cuEventRecord");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuEventRecord: no event");
    event->recorded = stream;
    event->position = length(stream);
    return leave(OK);
}

/* Of a GPU that takes as long for everything: a millisecond for each operation between the events. */
EXPORT int cuEventElapsedTime(float *milliseconds, object *begin, object *end) {
    CALL("cuEventElapsedTime");
    NEEDS_CONTEXT("cuEventElapsedTime");
    if (!is_live(begin, EVENT) || !is_live(end, EVENT) || begin->recorded == NULL || begin->recorded != end->recorded)
        FAIL(INVALID_HANDLE, "cuEventElapsedTime: events of no stream, or of two");
    *milliseconds = (float)(end->position - begin->position);
    return leave(OK);
}

EXPORT int cuEventQuery(object *event) {
    CALL("cuEventQuery");
    NEEDS_CONTEXT("cuEventQuery");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuEventQuery: no event");
    bool pending = event->recorded != NULL && is_live(event->recorded, STREAM);
    const queue *q = pending ? &event->recorded->queue : NULL;
    return leave(q != NULL && q->before + q->done < event->position ? NOT_READY : OK);
}

EXPORT int cuEventSynchronize(object *event) {
    CALL("cuEventSynchronize");
    NEEDS_CONTEXT("cuEventSynchronize");
    if (!is_live(event, EVENT)) FAIL(INVALID_HANDLE, "cuEventSynchronize: no event");
    bool pending = event->recorded != NULL && is_live(event->recorded, STREAM);
    return leave(pending ? drain(event->recorded, event->position) : OK);
}

EXPORT int cuGraphInstantiateWithFlags(object **runnable, object *graph, unsigned long long flags) {
    CALL("cuGraphInstantiateWithFlags", " %zu nodes, flags %llu", graph != NULL ? graph->queue.count : 0, flags);
    NEEDS_CONTEXT("cuGraphInstantiateWithFlags");
    if (!is_live(graph, GRAPH)) FAIL(INVALID_HANDLE, "cuGraphInstantiateWithFlags: no graph");
    *runnable = make(RUNNABLE, context);
    for (size_t i = 0; i < graph->queue.count; i++) append_copy(&(*runnable)->queue, &graph->queue.operations[i]);
    return leave(OK);
}

EXPORT int cuGraphDestroy(object *graph) {
    enter();
    write_down("cuGraphDestroy");
    NEEDS_CONTEXT("cuGraphDestroy");
    if (!is_live(graph, GRAPH)) FAIL(INVALID_HANDLE, "cuGraphDestroy: no graph");
    destroy(graph);
    return leave(count_call("cuGraphDestroy"));
}

EXPORT int cuGraphLaunch(object *runnable, object *handle) {
    CALL("cuGraphLaunch", " %zu nodes", runnable != NULL ? runnable->queue.count : 0);
    NEEDS_STREAM("cuGraphLaunch");
    if (!is_live(runnable, RUNNABLE)) FAIL(INVALID_HANDLE, "cuGraphLaunch: no graph");
    for (size_t i = 0; i < runnable->queue.count; i++)
        append_copy(stream->capture != NULL ? &stream->capture->queue : &stream->queue, &runnable->queue.operations[i]);
    return leave(OK);
}

EXPORT int cuGraphExecDestroy(object *runnable) {
    enter();
    write_down("cuGraphExecDestroy");
    NEEDS_CONTEXT("cuGraphExecDestroy");
    if (!is_live(runnable, RUNNABLE)) FAIL(INVALID_HANDLE, "cuGraphExecDestroy: no graph");
    destroy(runnable);
    return leave(count_call("cuGraphExecDestroy"));
}

EXPORT int cuLaunchHostFunc(object *handle, void (*function)(void *), void *argument) {
    CALL("cuLaunchHostFunc");
    NEEDS_STREAM("cuLaunchHostFunc");
    operation *op = put(stream, HOST);
    op->function = function;
    op->target = argument;
    return leave(OK);
}

EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *begin, const uint64_t *sizes, const uint64_t *strides,
                                  const uint32_t *box, const uint32_t *element_strides, int interleave, int swizzle, int promotion,
                                  int fill) {
    CALL("cuTensorMapEncodeTiled");
    NEEDS_DRIVER("cuTensorMapEncodeTiled");
    tensor_map made = {0x6e6e656663626f78u, (uintptr_t)begin, {0}, {0}, {0}, rank, type == 0 ? 1 : type == 4 ? 8 : type == 11 ? 4 : 2, 1u << swizzle, {0}, {0}};
    if ((uintptr_t)map % 64 != 0 || (uintptr_t)begin % 16 != 0 || rank < 3 || rank > 5 || (type != 0 && type != 1 && type != 4 && type != 11) || interleave != 0 ||
        swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || fill != 0 || (swizzle != 0 && box[0] * made.element_bytes > 16u << swizzle) ||
        box[0] * made.element_bytes % 16 != 0)
        FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: what no tensor map has");
    for (uint32_t i = 0; i < rank; i++) {
        if (sizes[i] == 0 || sizes[i] >> 32 != 0 || box[i] == 0 || box[i] > 256 || element_strides[i] == 0 ||
            element_strides[i] > (i == 0 ? 1 : 8))
            FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: sizes that no tensor map has");
        made.sizes[i] = (uint32_t)sizes[i], made.box[i] = (box[i] + element_strides[i] - 1) / element_strides[i];
        made.steps[i] = element_strides[i];
        if (i == 0) continue;
        if (strides[i - 1] == 0 || strides[i - 1] % 16 != 0 || strides[i - 1] >> 40 != 0)
            FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: strides that no tensor map has");
        const uint64_t inner = i == 1 ? (uint64_t)made.element_bytes : strides[i - 2];
        if (strides[i - 1] / inner < sizes[i - 1] || (i > 1 && strides[i - 1] % inner != 0))
            FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: a stride that does not include the dimension before it");
        made.strides[i - 1] = strides[i - 1];
    }
    memcpy(map, &made, sizeof made);
    return leave(OK);
}

static bool fits(const object *function, const unsigned *grid, const unsigned *block, unsigned shared) {
    return grid[0] > 0 && grid[1] > 0 && grid[2] > 0 && grid[0] <= 0x7fffffff && grid[1] <= 65535 && grid[2] <= 65535 &&
           block[0] > 0 && block[1] > 0 && block[2] > 0 && block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64 &&
           (uint64_t)block[0] * block[1] * block[2] <= MAX_BLOCK_THREADS && shared <= function->shared_limit;
}

EXPORT int cuLaunchKernel(object *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, object *handle, void **arguments, void **extra) {
    CALL("cuLaunchKernel", " %s grid %u %u %u block %u %u %u shared %u", is_live(function, FUNCTION) ? function->name : "?",
         grid_x, grid_y, grid_z, block_x, block_y, block_z, shared);
    NEEDS_STREAM("cuLaunchKernel");
    if (!is_live(function, FUNCTION) || extra != NULL) FAIL(INVALID_HANDLE, "cuLaunchKernel: no function");
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    if (!fits(function, grid, block, shared)) FAIL(INVALID_VALUE, "%s: no legal geometry", function->name);
    operation *op = put(stream, LAUNCH);
    op->kernel = function->kernel;
    snprintf(op->name, sizeof op->name, "%s", function->name);
    memcpy(op->grid, grid, sizeof grid);
    memcpy(op->block, block, sizeof block);
    op->shared = shared;
    op->device = context->device;
    op->count = function->parameters[0];
    op->sizes = duplicate(function->parameters + 1, sizeof *op->sizes * op->count);
    op->values = values_of(op->count);
    for (unsigned i = 0; i < op->count; i++) memcpy(op->values + VALUE * i, arguments[i], op->sizes[i]);
    return leave(check_arguments(op));
}

/* --- for tests */

/* What the machine is like; everything that lives is forgotten by cuInit's next call only. */
EXPORT void fake_machine(int devices, int major, int minor, int version) {
    enter();
    machine.devices = devices, machine.major = major, machine.minor = minor, machine.version = version;
    leave(OK);
}

/* Whether GPUs have memory pools. */
EXPORT void fake_pools(bool present_pools) {
    enter();
    has_pools = present_pools;
    leave(OK);
}

/* Begins a new log without complaints. */
EXPORT void fake_clear(void) {
    enter();
    free(log_text);
    log_text = NULL;
    log_bytes = 0;
    complaints[0] = '\0';
    calls = fails_at = 0;
    fails_in[0] = '\0';
    leave(OK);
}

/* Lets the n-th call from here on fail, of a function ("" for all); 0 for none. What frees does so and fails then. */
EXPORT void fake_fail(unsigned call, int result, const char *function) {
    enter();
    calls = 0;
    fails_at = call;
    fails_with = result;
    snprintf(fails_in, sizeof fails_in, "%s", function);
    leave(OK);
}

/* Calls since fake_fail or fake_clear, of the function that may fail. */
EXPORT unsigned fake_calls(void) {
    enter();
    unsigned count = calls;
    leave(OK);
    return count;
}

EXPORT const char *fake_log(void) { return log_text != NULL ? log_text : ""; }

EXPORT const char *fake_complaints(void) { return complaints; }

/* Objects that live, one a line: all that are not freed. A context's default stream is a part of it. */
EXPORT const char *fake_objects(void) {
    static char text[1 << 16];
    enter();
    size_t used = 0;
    text[0] = '\0';
    for (const object *o = objects; o != NULL; o = o->next)
        if (strcmp(o->name, "default") != 0) used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s %zu\n", kind_names[o->kind], o->name[0] ? " " : "", o->name, o->bytes);
    leave(OK);
    return text;
}

/* How many contexts are current in the calling thread. */
EXPORT int fake_depth(void) { return depth; }

__attribute__((constructor)) static void prepare(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}
