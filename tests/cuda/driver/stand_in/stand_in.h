/* A driver of NVIDIA's that needs no GPU, for tests: libcuda.so.1 with the functions that the runtime uses. This header is for
 * the files of this folder:
 *
 *     devices.c     what machine it is, GPUs, contexts
 *     modules.c     modules, kernels, launches, tensor maps
 *     memory.c      memory of GPUs and of the host, copies
 *     streams.c     streams, captures, events, graphs
 *     work.c        what is put off on streams and in graphs, and how it is done
 *     objects.c     all that lives
 *     record.c      the calls, misuse, and failures that tests want
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

#pragma once

#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef unsigned long long address;

enum {
    OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719, CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901, ILLEGAL_STATE = 401
};

enum { MAX_DEVICES = 8, MAX_STACK = 16, MAX_BLOCK_THREADS = 1024, SHARED_BYTES = 48 << 10, OPT_IN_BYTES = 227 << 10 };

/* --- record.c */

/* Adds a line to the log. */
__attribute__((format(printf, 1, 2))) void write_down(const char *format, ...);

/* Notes misuse, and answers with a result. */
__attribute__((format(printf, 2, 3))) int complain(int result, const char *format, ...);

/* Counts a call; the result that a test wants of it, or OK. */
int count_call(const char *name);

/* Begins a call of the driver: one at a time. */
void enter(void);

/* Ends a call; its result. */
int leave(int result);

/* A call that does nothing if a test wants it to fail. */
#define CALL(name, ...)              \
    enter();                         \
    write_down(name __VA_ARGS__);    \
    int wanted = count_call(name);      \
    if (wanted != OK) return leave(wanted)

#define FAIL(result, ...) return leave(complain(result, __VA_ARGS__))

/* --- devices.c */

extern bool is_initialized;

/* Whether cuInit was called in the process that this one was forked from. */
bool is_forked(void);

#define NEEDS_DRIVER(name)                                                                \
    if (is_forked()) FAIL(NOT_INITIALIZED, name ": in a process that was forked");      \
    if (!is_initialized) FAIL(NOT_INITIALIZED, name ": before cuInit")

extern struct machine {
    int devices, major, minor, version;
    bool has_pools; /* whether memory can be allocated in the order of a stream */
} machine;

/* --- objects.c */

typedef enum kind { CONTEXT, MODULE, FUNCTION, MEMORY, PINNED, STREAM, EVENT, GRAPH, RUNNABLE } kind;

extern const char *const kind_names[];

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

extern object *objects;

object *make(kind kind, object *context);

bool is_live(const object *what, kind kind);

/* The memory, of a GPU or pinned, that has some bytes; null if none has all of them. */
object *find(const void *start, size_t bytes);

void destroy(object *what);

/* The context that is current in this thread; null without one. */
object *present(void);

/* Makes a context current in this thread; false if there are too many. */
bool push(object *context);

/* The context that was current, which no longer is; null without one. */
object *pop(void);

#define NEEDS_CONTEXT(name)   \
    NEEDS_DRIVER(name);       \
    object *context = present(); \
    if (context == NULL) FAIL(INVALID_CONTEXT, name ": no context is current")

/* What a thread may not do that captures a stream. */
bool captures(void);

#define NOT_WHILE_CAPTURING(name) \
    if (captures()) FAIL(CAPTURE_UNSUPPORTED, name ": during a capture")

/* The stream of a handle; null for none that is live and of the present context. */
object *stream_of(object *handle, object *context);

#define NEEDS_STREAM(name)                               \
    NEEDS_CONTEXT(name);                                 \
    object *stream = stream_of(handle, context);         \
    if (stream == NULL) FAIL(INVALID_HANDLE, name ": no stream of this context")

/* --- memory.c */

/* Lets this process access the memory of GPUs, until as many calls end that. */
void give_access(bool access);

/* --- work.c */

/* A tensor map as the emulator reads it: `emulator_tensor_map` of tests/cuda/emulator/machine.h. */
typedef struct {
    uint64_t magic, address, strides[4];
    uint32_t sizes[5], box[5], rank, element_bytes, swizzle, steps[5];
    uint8_t unused[8];
} tensor_map;

enum { VALUE = 128 }; /* bytes of an argument */

/* Where an operation for a stream goes: its queue, or the graph that it is captured to. */
operation *put(object *stream, action action);

void *duplicate(const void *source, size_t bytes);

/* The values of the arguments of a launch, each as well aligned as a tensor map. */
unsigned char *values_of(unsigned count);

void append_copy(queue *q, const operation *op);

/* Removes all operations. */
void clear(queue *q);

int check_arguments(const operation *op);

/* Does a stream's work up to a position. A failure leaves the rest undone, as a real GPU would. */
int drain(object *stream, uint64_t position);

int drain_all(object *stream);

/* How many operations a stream has had. */
uint64_t length(const object *stream);

/* The library of emulated kernels; null if there is none. */
void *open_kernels(void);
