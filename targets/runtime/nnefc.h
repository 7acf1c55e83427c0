/* nnefc.h - the C interface of a network compiled by nnefc, ABI version 1, and 2 for networks with dynamic sizes.
 *
 * A compiled network is one library, shared or static, that needs the C library and nothing else. It has the functions
 * below, for every network and machine. In short:
 *
 *     const nnefc_description *network = nnefc_describe();       // names, types and shapes of inputs and outputs
 *     nnefc_session *session = NULL;
 *     if (nnefc_create(NULL, &session) != NNEFC_OK) {            // threads, workspace, states
 *         fprintf(stderr, "%s\n", nnefc_last_error(NULL));
 *         return 1;
 *     }
 *     const void *inputs[] = {image};                            // in the order of network->inputs
 *     void *outputs[] = {probabilities};                         // in the order of network->outputs
 *     if (nnefc_run(session, inputs, outputs) != NNEFC_OK) fprintf(stderr, "%s\n", nnefc_last_error(session));
 *     nnefc_destroy(session);
 *
 * Tensors are dense and row-major: the last axis is contiguous, without gaps. The caller owns all inputs and outputs.
 *
 * Threads. A session owns everything that a run writes: workspace, states and worker threads. Sessions are independent
 * of each other and may run at the same time, as may several libraries in one process; the only global state is that of
 * the calling thread, and the function of nnefc_set_log. A session serves one call at a time: a second call from another thread returns NNEFC_BUSY and does
 * nothing.
 *
 * During a run subnormal numbers are treated as zero, unless nnefc_options.keep_subnormals is set, results are rounded to the
 * nearest, and no exception is trapped: in all threads of the session and in the calling thread, whose own mode nnefc_run
 * restores. RISC-V and WebAssembly always keep subnormal numbers.
 *
 * Memory. nnefc_create allocates all memory of the session, by the program's allocator if it has one (nnefc_options.allocate);
 * nnefc_run allocates nothing, but for strings that it makes and for data-dependent sizes (the C library itself may set up a few
 * bytes for a thread that calls for the first time).
 * Constants are mapped from the library, or from a separate file
 * next to it, and shared by all sessions and processes; or they are in memory of the caller's.
 *
 * Strings. An element of a tensor of strings is an nnefc_string: where its bytes are, and how many. The caller owns those of
 * inputs, during the run. Those of outputs are the session's, until it runs again or is destroyed, or parts of the inputs'.
 * Memory for strings that a run makes grows as runs need it, and is used again by later ones.
 *
 * Dynamic sizes. A library whose inputs may have many sizes has version 2 of this interface, and the functions nnefc_resize,
 * nnefc_output_shape, nnefc_reserve and nnefc_run_sized besides. Shapes go in with the inputs and come out with the outputs:
 *
 *     const int64_t shape[] = {5, 3, 224, 224};
 *     nnefc_input input = {image, sizeof image, shape};
 *     nnefc_output output = {0};                                 // in memory of the session's
 *     if (nnefc_run_sized(session, &input, &output) != NNEFC_OK) fprintf(stderr, "%s\n", nnefc_last_error(session));
 *     // output.data has output.bytes bytes and the shape output.shape
 *
 * Fork. A child process inherits a session without its worker threads: nnefc_run uses the calling thread alone there,
 * with the same results. A session that was in a call when another thread forked stays NNEFC_BUSY.
 *
 * GPUs. A library for NVIDIA GPUs also has the functions nnefc_enqueue and nnefc_synchronize. It needs NVIDIA's driver,
 * libcuda.so.1, which nnefc_create opens. Workspace and states are in the GPU's memory; constants are copied there by the
 * first session on a GPU and shared by all sessions of the process. nnefc_create allocates all memory of the session, but
 * the driver may allocate when a run is captured as a graph, in the first runs with the same pointers. Each input and
 * output may be in the memory of the host or of any GPU: the driver knows where it is. A forked child cannot
 * use its parent's GPU sessions: calls return NNEFC_NO_DEVICE there.
 *
 * Names. Every shared library exports the functions below; the two for GPUs only if it is for GPUs. A network compiled
 * with `--name digits` also has them as digits_describe, digits_create and so on, declared in digits.h, so that several
 * networks can be linked into one program; its object files and archives have only these names. Without a name, link
 * against at most one library, and open others with dlopen(path, RTLD_NOW | RTLD_LOCAL).
 */
#ifndef NNEFC_H
#define NNEFC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NNEFC_ABI_VERSION 1u
#define NNEFC_COUNTED (INT64_MIN + 1) /* a data-dependent size */
#define NNEFC_NO_AXIS (INT64_MIN + 2) /* behind the last size of an output of a lower rank */
#define NNEFC_OPEN_ABI_VERSION 2u /* of networks with dynamic dimensions */

#if defined(__GNUC__)
#define NNEFC_API __attribute__((visibility("default")))
#else
#define NNEFC_API
#endif

/* What every call returns. Numbers never change their meaning; later versions may add more. */
typedef enum nnefc_status {
    NNEFC_OK = 0,
    NNEFC_BAD_ARGUMENT = 1,    /* a null or misaligned pointer, a number out of range */
    NNEFC_WRONG_ABI = 2,       /* this library does not know the value of nnefc_options.struct_size */
    NNEFC_UNSUPPORTED_CPU = 3, /* the network was compiled for instructions that this processor lacks, or that the
                                  system does not let the process use */
    NNEFC_OUT_OF_MEMORY = 4,   /* the session's memory or threads were refused */
    NNEFC_KERNEL_ERROR = 5,    /* the network's code reported a failure; outputs and states are undefined */
    NNEFC_BUSY = 6,            /* another thread is inside a call on the same session; nothing was done */
    NNEFC_BAD_WEIGHTS = 7,     /* the weights file is missing, truncated, damaged or another network's; WebAssembly: the
                                  program has not written the trained values into memory, or other ones */
    NNEFC_NO_DEVICE = 8,       /* there is no GPU, or no driver, that can run the network */
    NNEFC_DEVICE_ERROR = 9,    /* the GPU or its driver reported a failure; outputs and states are undefined */
    NNEFC_TOO_SMALL = 10,      /* memory of the caller's is smaller than an output; nothing was run */
    NNEFC_CANCELLED = 11,      /* nnefc_cancel has ended the run; outputs and states are undefined */
    NNEFC_TEMPLATE_ERROR = 12, /* nnefc_chat: the chat template refuses the conversation, or exceeds a limit */
    NNEFC_TIMED_OUT = 13       /* the run took longer than nnefc_set_time_limit allows; outputs and states are undefined */
} nnefc_status;

/* Element types. */
typedef enum nnefc_type {
    NNEFC_BOOL = 1, /* one byte, 0 or 1 */
    NNEFC_INT8 = 2,
    NNEFC_INT16 = 3,
    NNEFC_INT32 = 4,
    NNEFC_INT64 = 5,
    NNEFC_UINT8 = 6,
    NNEFC_UINT16 = 7,
    NNEFC_UINT32 = 8,
    NNEFC_UINT64 = 9,
    NNEFC_FLOAT16 = 10,  /* IEEE 754 binary16 */
    NNEFC_BFLOAT16 = 11, /* the upper half of a binary32 */
    NNEFC_FLOAT32 = 12,
    NNEFC_FLOAT64 = 13,
    NNEFC_STRING = 14 /* an nnefc_string */
} nnefc_type;

/* An element of a tensor of strings: UTF-8, not terminated; null bytes may be among them. */
typedef struct nnefc_string {
    const char *data; /* may be null if there are none */
    size_t size;      /* in bytes */
} nnefc_string;

typedef struct nnefc_tensor {
    const char *name;     /* UTF-8, as in the model */
    int32_t type;         /* an nnefc_type */
    int32_t rank;         /* number of axes; 0 for a single value */
    const int64_t *shape; /* rank sizes, the outermost first; null if rank is 0. Of a network with dynamic dimensions: of an
                             input, -1 - i is the size of dimensions[i] in the description; of an output, all that is
                             negative is answered by nnefc_output_shape, and NNEFC_COUNTED only after a run */
    uint64_t bytes;       /* size of the whole tensor; 0 if a dimension is open */
} nnefc_tensor;

/* A size that a network takes in a range. */
typedef struct nnefc_dimension {
    const char *name; /* UTF-8, as in the model */
    int64_t least;    /* the smallest size */
    int64_t most;     /* the largest */
    int64_t multiple; /* every size is a multiple of it; 1 for all */
    int64_t typical;  /* the size that the compiler took for its estimates */
} nnefc_dimension;    /* the last ones of a network may be in no input: they have no limit, and only a run tells them */

/* What a model says of itself. Both texts are UTF-8, with a null byte behind them; null bytes may be in them, too. */
typedef struct nnefc_entry {
    nnefc_string key;
    nnefc_string value;
} nnefc_entry;

/* What the library contains. It never changes; later versions add members at the end only. */
typedef struct nnefc_description {
    uint32_t abi_version;        /* NNEFC_ABI_VERSION of the library */
    uint32_t struct_size;        /* sizeof(nnefc_description) of the library */
    const char *model;           /* the network's name */
    const char *target;          /* the target, as given to the compiler */
    const char *compiler;        /* the compiler and its version */
    const nnefc_tensor *inputs;  /* input_count inputs, in the order that nnefc_run takes them */
    const nnefc_tensor *outputs; /* output_count outputs, likewise */
    const nnefc_tensor *states;  /* state_count tensors kept between runs of a session */
    uint32_t input_count;
    uint32_t output_count;
    uint32_t state_count;
    uint32_t cpu_feature_count;
    const char *const *cpu_features; /* instruction sets that the code needs: "avx2", "fma", ... */
    uint64_t workspace_bytes;        /* a session's memory for values between kernels */
    uint64_t scratch_bytes;          /* further memory, for each thread */
    uint64_t constant_bytes;         /* constants, mapped from the file */
    uint64_t state_bytes;            /* a session's memory for states */
    uint32_t variable_count;
    const char *const *variables; /* the model's names of its constants, which are not stored in the model's form */
    const char *source;           /* "sha256:" and the digest of the model's file; of several files, of the lines
                                     "digest  name" that the command sha256sum prints for them in the order of their
                                     names; "" if there was no file */
    const char *weights;          /* the name of the weights file; null if the constants are in the library */
    const char *device;           /* what the network runs on: "cpu" or "cuda" */
    uint64_t device_bytes;        /* a session's memory of a GPU: workspace, states, and room for inputs and outputs */
#ifndef NNEFC_KNOWN_SIZES /* which libraries without dynamic dimensions and metadata are compiled with */
    uint32_t dimension_count;          /* dynamic dimensions; look only where abi_version is 2 */
    const nnefc_dimension *dimensions; /* likewise */
#endif
#ifndef NNEFC_NO_METADATA /* which libraries without metadata are compiled with */
    uint32_t metadata_count;     /* entries of the model's metadata; look only where struct_size says that they are there */
    const nnefc_entry *metadata; /* likewise */
#endif
} nnefc_description;

/* Works on every processor. */
NNEFC_API const nnefc_description *nnefc_describe(void);

/* Calls task(context, i) once for each i from 0 to count - 1, on any threads, at the same time or one after the other, and
 * returns when all have returned. `count` is 2 to nnefc_options.threads. A session calls it from the thread that runs it, many
 * times in a run; no task waits for another one. */
typedef void nnefc_parallel_for(void *pool, uint32_t count, void (*task)(void *context, uint32_t i), void *context);

/* Returns `bytes` bytes at an address that is a multiple of `alignment`, a power of two; null if there is no memory. */
typedef void *nnefc_allocate(void *allocator, size_t bytes, size_t alignment);

/* Frees memory that nnefc_allocate has returned for such a size and alignment; never null. */
typedef void nnefc_release(void *allocator, void *memory, size_t bytes, size_t alignment);

/* How to create a session. Set everything to zero, then struct_size, then other members as needed:
 *     nnefc_options options = {0};
 *     options.struct_size = sizeof options;
 */
typedef struct nnefc_options {
    uint32_t struct_size;     /* sizeof(nnefc_options), or its size when it ended with workspace_bytes, weights,
                                 device, keep_subnormals, parallel_for_pool or constants; others are NNEFC_WRONG_ABI */
    int32_t threads;          /* 1 to 1024, the calling thread included; 0: the value of the environment variable
                                 NNEFC_NUM_THREADS, or else the number of processors that the calling thread may use */
    void *workspace;          /* null, or memory of the caller, aligned to 64 bytes, which the session uses until it is
                                 destroyed; its content may change between runs. For a GPU: memory of that GPU, aligned
                                 to 256 bytes */
    uint64_t workspace_bytes; /* its size, at least the description's workspace_bytes */
    const char *weights;      /* the path of the weights file, if the constants are not in the library; null: the file
                                 named in the description, in the folder of the library (or of the program, if the
                                 network is linked into it) */
    int64_t device;           /* the number of the GPU, as the driver counts; 0 for networks that need none */
    int32_t keep_subnormals;  /* 0: subnormal numbers, smaller than about 1e-38, are treated as zero; 1: they are kept,
                                 which can take several times as long */
    int32_t reserved;         /* what it is does not matter */
    const int32_t *processors; /* null, or `threads` numbers of processors, as the system counts, of which each but the first
                                 is the only one that a thread of the session's own may run on; the first stands for the
                                 calling thread, which runs where it runs. With Linux alone */
    nnefc_parallel_for *parallel_for; /* null, or the caller's own threads in place of the session's, which starts none */
    void *parallel_for_pool;  /* its first argument */
    uint64_t constant_bytes;  /* the size of what follows, as the description has it */
    const void *constants;    /* null, or the trained values in the caller's memory, in place of a weights file, where the
                                 library has one: what is in it from byte 4096 on, decrypted if it is encrypted. Aligned
                                 to 64 bytes; the session reads them until it is destroyed. For a GPU: in the host's memory,
                                 and read by nnefc_create alone */
    int64_t time_limit;       /* 0, or the nanoseconds that each run may take, as nnefc_set_time_limit says; only in libraries
                                 with that function */
    nnefc_allocate *allocate; /* null, or the program's allocator, for all memory of the session: workspace, states, outputs,
                                 scratch memory of threads, and the session itself. Stacks of threads and constants are not
                                 among it. For a GPU: memory of that GPU, whose context is current, aligned to 256 bytes; the
                                 host's memory is the C library's then. Called within calls on the session, by the calling
                                 thread or that of nnefc_run_async, and during a run only where nnefc_run allocates. It must
                                 not call functions of the library, and for the host returns addresses that are multiples of
                                 64; others count as refused */
    nnefc_release *release;   /* frees that memory; given if `allocate` is, and only then */
    void *allocator;          /* the first argument of both */
} nnefc_options;

typedef struct nnefc_session nnefc_session;

/* Creates a session and stores it in *session (null if it fails). Null options mean the defaults. Returns
 * NNEFC_BAD_ARGUMENT, NNEFC_WRONG_ABI, NNEFC_UNSUPPORTED_CPU, NNEFC_OUT_OF_MEMORY, NNEFC_BAD_WEIGHTS, and for GPUs
 * NNEFC_NO_DEVICE, NNEFC_DEVICE_ERROR; nnefc_last_error(NULL) has the message. The processor is checked before any of the
 * network's code runs. A weights file is read once, to check it; it must not be overwritten while sessions use it (replace
 * it by renaming a new file). */
NNEFC_API nnefc_status nnefc_create(const nnefc_options *options, nnefc_session **session);

/* Compares the trained values that are in the library with their checksum, which takes as long as reading all of them; they may
 * have been damaged on the way to this machine. Those in a weights file are compared by nnefc_create. Returns
 * NNEFC_BAD_WEIGHTS, with a message by nnefc_last_error(NULL). Libraries compiled with --small compare nothing: those for
 * Linux, Android and Windows have one checksum of everything at their end, which nnefc's loader looks at. */
NNEFC_API nnefc_status nnefc_check(void);

/* Destroys a session: waits for runs that were started, joins its threads and frees its memory. Null does nothing.
 * Returns NNEFC_BUSY, and leaves the session as it is, if a call on the session is in progress. Returns
 * NNEFC_DEVICE_ERROR if the GPU's driver reported a failure meanwhile (see nnefc_last_error(NULL)): the session is
 * destroyed nevertheless. */
NNEFC_API nnefc_status nnefc_destroy(nnefc_session *session);

/* Runs the network once: reads inputs[0 .. input_count - 1], writes outputs[0 .. output_count - 1] and the session's states.
 * Every pointer must be aligned to its element type, no more; tensors without elements may be null. Outputs must overlap
 * neither each other nor any input. On NNEFC_KERNEL_ERROR and NNEFC_DEVICE_ERROR outputs and states are undefined: call
 * nnefc_reset. Inputs in a GPU's memory must be ready before the call; tensors that are not aligned to 16 bytes are
 * copied first. */
NNEFC_API nnefc_status nnefc_run(nnefc_session *session, const void *const *inputs, void *const *outputs);

/* Ends the session's run that is under way in another thread, before its next kernel: that call answers NNEFC_CANCELLED, unless
 * its last kernel has begun. Outputs and states are undefined then: call nnefc_reset if there are states. Returns at once, never
 * NNEFC_BUSY; runs that begin later are not affected, and without a run it does nothing. The session must not be destroyed
 * meanwhile. Libraries for GPUs, for WebAssembly and those compiled with --small do not have this function. */
NNEFC_API nnefc_status nnefc_cancel(nnefc_session *session);

/* What is called when a run that nnefc_run_async began is over: with what nnefc_run would have returned, and the message of
 * nnefc_last_error, which is there until the function returns. It is called in the session's own thread, whose signals are blocked;
 * the session is free by then, so that the function may begin its next run. It must not destroy the session. */
typedef void nnefc_done(void *context, nnefc_status status, const char *error);

/* The functions that follow are in the same libraries as nnefc_cancel: those for processors, static ones too, but neither for
 * WebAssembly, nor for machines without a system, nor compiled with --small. */

/* Begins a run and returns; a thread of the session's own, which the first call starts, runs the network and then calls `done`. The
 * tensors must stay until then, the two lists of pointers need not. The session is in a call meanwhile: others return NNEFC_BUSY, but
 * for nnefc_cancel, and nnefc_destroy, which waits. Unless NNEFC_OK is returned there is no run, and `done` is not called. A forked
 * child has no such thread: the run is over, and `done` called, when the call returns there. */
NNEFC_API nnefc_status nnefc_run_async(nnefc_session *session, const void *const *inputs, void *const *outputs, nnefc_done *done, void *context);

/* Selects the outputs that later runs of the session compute: those whose bytes in outputs[0 .. output_count - 1] are not 0; null
 * for all, as at first. Runs skip every kernel on which no selected output, no state and no size depends. Pointers to other outputs
 * are not looked at, may be null, and nothing is written there; nnefc_output.data is null for them after nnefc_run_sized. What others
 * compute in such an output's place on their way goes to memory of the session's, which is allocated here, or, for
 * dynamic dimensions, by runs whose sizes need more than before. Networks with one output and no states have no such function. Returns NNEFC_OUT_OF_MEMORY, with the selection as it was. */
NNEFC_API nnefc_status nnefc_select_outputs(nnefc_session *session, const uint8_t *outputs);

/* 1: takes the time of each kernel in the session's runs from now on, beginning at 0; 0: no longer. While it is off, which it is at
 * first, runs take no longer for it: they look at one number before each kernel, for nnefc_cancel as well. */
NNEFC_API nnefc_status nnefc_time_kernels(nnefc_session *session, int32_t on);

/* Limits the time that each later run of the session may take, asynchronous ones too; 0: no limit, as at first. While there is a limit
 * the clock is read before each kernel: a run that has taken longer by then returns NNEFC_TIMED_OUT, and runs no further kernel. A
 * kernel that has begun is not interrupted. Outputs and states are undefined then: call nnefc_reset if there are states. */
NNEFC_API nnefc_status nnefc_set_time_limit(nnefc_session *session, int64_t nanoseconds);

/* Threads that sessions share, of any libraries: a program with several networks then has no more threads than processors.
 *
 *     nnefc_threads *threads = NULL;
 *     nnefc_options options = {0};
 *     options.struct_size = sizeof options;
 *     if (nnefc_threads_create(&options, &threads) != NNEFC_OK) return 1;   // of any of the libraries
 *     options.threads = (int32_t)nnefc_threads_count(threads);
 *     options.parallel_for = nnefc_threads_run;                             // sessions start no threads of their own
 *     options.parallel_for_pool = threads;
 *     nnefc_create(&options, &session);                                     // of this library and others
 *
 * The library whose functions these are must stay open until they are destroyed. */
typedef struct nnefc_threads nnefc_threads;

/* Starts threads: as many as a session with these options would have, the calling one included, on the same processors. Of the options
 * only struct_size, `threads`, `processors` and the allocator count. *threads is null if it fails; nnefc_last_error(NULL) has the
 * message. */
NNEFC_API nnefc_status nnefc_threads_create(const nnefc_options *options, nnefc_threads **threads);

/* How many tasks run at the same time, that of the calling thread included; for nnefc_options.threads. */
NNEFC_API uint32_t nnefc_threads_count(const nnefc_threads *threads);

/* Runs tasks as nnefc_parallel_for says, in the calling thread and those of the first argument, an nnefc_threads: for sessions, and for
 * loops of the program's own. Several threads may call it at the same time, and tasks too. The calling thread runs every task of its
 * call that no other has begun, so that it never waits for other calls. In a forked child it runs all tasks. */
NNEFC_API void nnefc_threads_run(void *threads, uint32_t count, void (*task)(void *context, uint32_t i), void *context);

/* Ends and frees the threads; null does nothing. Sessions that use them must be destroyed before. Returns NNEFC_BUSY, and changes
 * nothing, during a call of nnefc_threads_run. */
NNEFC_API nnefc_status nnefc_threads_destroy(nnefc_threads *threads);

/* The four functions that follow are in libraries with dynamic dimensions only.
 *
 * Sizes must be in the ranges of the description, no tensor of the network may have 2^31 or more elements, and dimensions
 * with one name must be equal: else the answer is NNEFC_BAD_ARGUMENT, with a message that names the input and its dimension.
 *
 * Memory is allocated only for sizes that need more than the session has: never for sizes that it has had before, nor for
 * those up to the sizes of nnefc_reserve. Where only a run tells a size that has no limit, the run allocates if it must. */

/* Sets the sizes of the runs that follow: input_shapes[i] is the shape of inputs[i], with as many sizes as the input's rank;
 * it may be null for rank 0. Costs next to nothing if the sizes are as they were, else some microseconds for the layout of
 * the workspace. If it fails, with NNEFC_BAD_ARGUMENT (also for a caller's workspace that is too small) or
 * NNEFC_OUT_OF_MEMORY, the session has no sizes, and nnefc_run refuses to run. */
NNEFC_API nnefc_status nnefc_resize(nnefc_session *session, const int64_t *const *input_shapes);

/* The shape of an output for the sizes that were set last, valid until they change; null while there are none. A data-dependent size
 * is the greatest that it may have after nnefc_resize, whose memory a run needs, and after a run what the
 * run has found: the elements lie one after the other as in a tensor of that shape. One without a limit is NNEFC_COUNTED
 * before the run. Where the rank of an output depends on sizes, as it does if dimensions of 1 are left out, nnefc_tensor has
 * the highest one, and a shape with fewer sizes ends before the first NNEFC_NO_AXIS. Not to be called while another thread is in a call on the session. */
NNEFC_API const int64_t *nnefc_output_shape(const nnefc_session *session, uint32_t output);

/* Allocates memory for all sizes up to these, of the dimensions in the description, in its order; null: up to the greatest
 * that each may have. After it, calls with such sizes allocate nothing. `outputs`: 1 if the memory in which nnefc_run_sized
 * leaves outputs is to be reserved as well, 0 if not. The sizes that were set stay as they are. Returns NNEFC_BAD_ARGUMENT
 * and NNEFC_OUT_OF_MEMORY; after the latter the session has no sizes. */
NNEFC_API nnefc_status nnefc_reserve(nnefc_session *session, const int64_t *sizes, int32_t outputs);

/* An input of one run. */
typedef struct nnefc_input {
    const void *data;     /* its elements; may be null if there are none */
    uint64_t bytes;       /* the size of all elements together */
    const int64_t *shape; /* as many sizes as the input's rank; may be null for rank 0 */
} nnefc_input;

/* An output of one run: where the caller wants it, and what it became. */
typedef struct nnefc_output {
    void *memory;         /* the caller's; null: memory of the session's, valid until its sizes change or it runs again */
    uint64_t capacity;    /* the bytes that there are at `memory` */
    void *data;           /* set by the call, as is what follows: the elements, at `memory` if that is given */
    uint64_t bytes;       /* their size */
    const int64_t *shape; /* valid until the session's sizes change */
} nnefc_output;

/* Sets the sizes and runs the network once, in one call: nnefc_resize, nnefc_output_shape and nnefc_run, with a look at the
 * sizes of all memory before. If an output does not fit into the caller's memory, the answer is NNEFC_TOO_SMALL: nothing was
 * run, and `bytes` and `shape` of all outputs say what they need. Where only a run tells a size that has no limit, which
 * nnefc_run refuses for outputs, the answer may come after a part of the run: the states are as before, and outputs that are
 * not known yet have no bytes. */
NNEFC_API nnefc_status nnefc_run_sized(nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs);

/* As nnefc_run_async, for nnefc_run_sized: both lists, and the shapes in them, must stay until `done` is called. Libraries with
 * dynamic dimensions have this function if they have nnefc_cancel. */
NNEFC_API nnefc_status nnefc_run_sized_async(nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs, nnefc_done *done, void *context);

/* Starts a run on a GPU and returns. Only libraries for GPUs have this function. All inputs and outputs are in the GPU's
 * memory. `stream` is a CUstream (cudaStream_t) of the session's GPU in its primary context, which CUDA's libraries use:
 * the run starts after earlier work on the stream, and later work on it finds the outputs. Null is the session's own
 * stream. Runs of one session follow each other, even on different streams. If a run fails after this call has returned,
 * the next call on the session returns its status and does nothing else. */
NNEFC_API nnefc_status nnefc_enqueue(nnefc_session *session, const void *const *inputs, void *const *outputs, void *stream);

/* Waits for all runs that were started, and returns their status. Only libraries for GPUs have this function. */
NNEFC_API nnefc_status nnefc_synchronize(nnefc_session *session);

/* Restores the initial values of the states, after all runs that were started; their failures are discarded. */
NNEFC_API nnefc_status nnefc_reset(nnefc_session *session);

/* The three functions that follow are in libraries of networks with states only: state_count in the description is not 0. They
 * come after all runs that were started. */

/* Copies a state, by its number in the description, to the caller's memory, which has room for its bytes. */
NNEFC_API nnefc_status nnefc_get_state(nnefc_session *session, uint32_t state, void *data);

/* Gives a state another value, as many bytes as the description says. A number that says how much of other states counts, such
 * as the length of a cache, may be made smaller: what came after it is forgotten. */
NNEFC_API nnefc_status nnefc_set_state(nnefc_session *session, uint32_t state, const void *data);

/* Makes all states those of another session of the same library, which stays as it is and may be on another GPU.
 * Returns NNEFC_BUSY if either is in a call. */
NNEFC_API nnefc_status nnefc_copy_states(nnefc_session *session, nnefc_session *other);

/* The two functions that follow are in libraries of networks that keep sequences of tokens, such as language models: their state
 * `P` has the number of positions of each sequence, or of the only one. They come after all runs that were started. */

/* What states take of the machine's memory, in bytes. Where the system does not say it, `own` is all that they can take. */
typedef struct nnefc_state_bytes {
    uint64_t own;    /* of pages that belong to one sequence of this session */
    uint64_t shared; /* of pages that several sequences have in common, also of other sessions, each once */
    uint64_t mapped; /* of the same pages, once for each sequence of this session that has them */
} nnefc_state_bytes;

/* Makes a sequence the first `positions` positions of sequence `from` of another session of the same library, or of the same one, which
 * stays as it is: the next run goes on behind these positions. `positions` is a number that `from` itself could be set back to, or all that
 * it has. With Linux of 64 bits both share the pages of memory until one of them writes; else what is used is copied. Returns NNEFC_BUSY if
 * a session is in a call, NNEFC_BAD_ARGUMENT if there is no such sequence or `from` has fewer positions, and NNEFC_OUT_OF_MEMORY,
 * after which both sessions must be reset. */
NNEFC_API nnefc_status nnefc_copy_sequence(
    nnefc_session *session, int64_t sequence, nnefc_session *other, int64_t from, int64_t positions);

/* Measures the memory of a session's states. */
NNEFC_API nnefc_status nnefc_measure_states(nnefc_session *session, nnefc_state_bytes *bytes);

/* The two functions that follow are in libraries with the tokenizer of a language model only. They need no session, and may be
 * called by several threads at the same time. */

/* For `flags` of nnefc_tokenize. */
#define NNEFC_WITH_BEGIN_AND_END 1u /* with the tokens that the model has before and after a text */
#define NNEFC_FIND_CONTROL 2u /* the texts of control tokens, such as <|im_end|>, are these tokens; else they are text like any other */

/* For `flags` of nnefc_detokenize. */
#define NNEFC_SKIP_CONTROL 4u /* control tokens have no text */
#define NNEFC_CONTINUES 8u /* other tokens of the same text came before: a space at the beginning stays */

/* The tokens of a text of `size` bytes of UTF-8, at most 2^31 - 1: the first `room` of them are written to `tokens`, and their
 * number to *count. Returns NNEFC_TOO_SMALL if there are more than `room`, NNEFC_BAD_ARGUMENT, NNEFC_OUT_OF_MEMORY. */
NNEFC_API nnefc_status nnefc_tokenize(const char *text, size_t size, uint32_t flags, int64_t *tokens, size_t room, size_t *count);

/* The text of tokens, in UTF-8 and without a null byte at its end: written to `text` if it has at most `room` bytes, and its size to
 * *size. A token may have a part of a character only: the texts of successive tokens, those behind the first with NNEFC_CONTINUES, are
 * together the text of all. Returns NNEFC_TOO_SMALL, NNEFC_BAD_ARGUMENT (also for a number that is no token), NNEFC_OUT_OF_MEMORY. */
NNEFC_API nnefc_status nnefc_detokenize(const int64_t *tokens, size_t count, uint32_t flags, char *text, size_t room, size_t *size);

/* A message of a conversation. Templates see no members that are null, and what a message thought before its content (reasoning_content,
 * thinking or reasoning) as reasoning_content and thinking: so do those of transformers. */
typedef struct nnefc_message {
    nnefc_string role;    /* "system", "user", "assistant", "tool"; without a role if its data is null */
    nnefc_string content; /* likewise */
    nnefc_string more;    /* further members, as a JSON object: {"tool_calls": [...]}; empty for none */
} nnefc_message;

/* For `flags` of nnefc_chat_options. */
#define NNEFC_ADD_GENERATION_PROMPT 1u /* with what comes before the model's next reply */

/* Zeros, but for struct_size, stand for a conversation without tools and variables. */
typedef struct nnefc_chat_options {
    uint32_t struct_size;   /* sizeof(nnefc_chat_options) */
    uint32_t flags;
    nnefc_string tools;     /* the functions that the model may call, as a JSON array; empty for none */
    nnefc_string variables; /* further variables of the chat template, as a JSON object: {"enable_thinking": false}; empty for none */
    int64_t local_time;     /* for chat templates that write the date: the seconds since 1970 began, both in local time; with 0 these fail */
    char *error;            /* is given the message of a failure, with a null byte behind it; may be null */
    size_t error_room;      /* bytes at `error` */
} nnefc_chat_options;

/* A conversation as the model's text, in UTF-8 and without a null byte at its end: what its chat template makes of the messages. It is
 * written to `text` if it has at most `room` bytes, and its size to *size. It is to be tokenized with NNEFC_FIND_CONTROL, and without
 * NNEFC_WITH_BEGIN_AND_END. `options` may be null. Returns NNEFC_TOO_SMALL, NNEFC_BAD_ARGUMENT, NNEFC_WRONG_ABI, NNEFC_OUT_OF_MEMORY,
 * and NNEFC_TEMPLATE_ERROR if the template refuses the conversation, takes more than 256 MiB or 50 million steps, or a text is no UTF-8 or
 * no JSON. In libraries whose chat template could be compiled; needs no session, and may be called by several threads at the same time. */
NNEFC_API nnefc_status nnefc_chat(const nnefc_message *messages, size_t count, const nnefc_chat_options *options, char *text, size_t room, size_t *size);

/* The message of the session's last call, in English; "" if it succeeded. For null: the message of the calling thread's
 * last nnefc_create or nnefc_check, or of an nnefc_destroy that failed after it. Valid until the next call on the session; for null,
 * until the thread's next such call or 8 failures of other threads. NNEFC_BUSY does not change the message, which
 * belongs to the other thread. Libraries compiled with --small answer "". */
NNEFC_API const char *nnefc_last_error(const nnefc_session *session);

/* "ok", "bad argument", ...; "unknown status" for others. */
NNEFC_API const char *nnefc_status_name(nnefc_status status);

/* A kernel at one position of the network, and what its calls took: of one session, or, in libraries compiled with --profile, of all. */
typedef struct nnefc_kernel_times {
    const char *kernel;  /* its name in the library */
    const char *tensors; /* of the model, that it computes or was made for; each ends with a line feed */
    const char *rule;    /* the schedule rule that it got */
    uint64_t operations; /* arithmetic of one call; 0 if it is not known */
    uint64_t bytes;      /* that one call reads and writes, each once; 0 if it is not known */
    uint64_t calls;
    uint64_t nanoseconds;      /* of all calls */
    uint64_t last_begin;       /* when the last call began, in nanoseconds since some moment in the past */
    uint64_t last_nanoseconds; /* what it took */
} nnefc_kernel_times;

/* Writes the times of at most `count` kernels of a session, in the order in which the network runs them, as nnefc_time_kernels has
 * had them taken, and returns how many kernels there are. A kernel's time ends when the next one begins, and so includes copies
 * between the two. May be called while another thread runs the session. In the same libraries as nnefc_time_kernels. */
NNEFC_API uint32_t nnefc_session_times(const nnefc_session *session, nnefc_kernel_times *times, uint32_t count);

/* What nnefc_set_log passes on. */
typedef enum nnefc_log_level {
    NNEFC_LOG_ERROR = 1,   /* every failure, with the message of nnefc_last_error */
    NNEFC_LOG_WARNING = 2, /* what is obeyed, or not, but is hardly meant so: more threads than processors, an NNEFC_LEVEL that is not used */
    NNEFC_LOG_INFO = 3,    /* sessions: what they run on, their threads and memory, where trained values are mapped from */
    NNEFC_LOG_DEBUG = 4    /* memory that grows with the sizes of runs */
} nnefc_log_level;

/* Is given one message, without a line feed, until it returns; in the thread that is in a call of the library, several at a time. */
typedef void nnefc_log(void *context, int32_t level, const char *message);

/* From now on calls `log` with messages of all sessions, up to a level, an nnefc_log_level; with null no longer. When it returns, no
 * thread is in the function of the call before: it must not be called from there. Libraries for WebAssembly, for machines without a
 * system, and those compiled with --small do not have this function. */
NNEFC_API void nnefc_set_log(nnefc_log *log, void *context, int32_t level);

/* Writes the times of at most `count` kernels, in the order in which the network runs them, and returns how many there are.
 * Only libraries compiled with --profile have this function, and the two that follow. */
NNEFC_API uint32_t nnefc_profile(nnefc_kernel_times *times, uint32_t count);

/* Forgets the times so far. */
NNEFC_API void nnefc_profile_reset(void);

#define NNEFC_WHOLE_CALL (-1) /* in place of a thread */

/* What a thread of a session computed of a kernel, at one stretch; or the whole call, from its begin to its end. */
typedef struct nnefc_piece {
    int32_t kernel;       /* its number, as nnefc_profile has them */
    int32_t thread;       /* 0 is the one that called nnefc_run; or NNEFC_WHOLE_CALL */
    uint64_t begin;       /* in nanoseconds since some moment in the past, the same as that of nnefc_kernel_times */
    uint64_t nanoseconds; /* what it took */
} nnefc_piece;

/* From now on notes every piece, of all sessions, in the caller's memory, until its `room` is taken; with null and 0 no longer.
 * Returns how many pieces there were since the call before, which may be more than had room. When it returns,
 * no thread writes into the memory of the call before, whatever runs meanwhile. */
NNEFC_API uint64_t nnefc_profile_trace(nnefc_piece *pieces, uint64_t room);

/* The functions of one network, for code that uses networks with several names or opens libraries itself. */
typedef struct nnefc_interface {
    const nnefc_description *(*describe)(void);
    nnefc_status (*create)(const nnefc_options *options, nnefc_session **session);
    nnefc_status (*destroy)(nnefc_session *session);
    nnefc_status (*run)(nnefc_session *session, const void *const *inputs, void *const *outputs);
    nnefc_status (*reset)(nnefc_session *session);
    const char *(*last_error)(const nnefc_session *session);
    const char *(*status_name)(nnefc_status status);
} nnefc_interface;

/* Initializes an nnefc_interface with the functions of a name: NNEFC_INTERFACE(nnefc), NNEFC_INTERFACE(digits). */
#define NNEFC_INTERFACE(name) \
    {name##_describe, name##_create, name##_destroy, name##_run, name##_reset, name##_last_error, name##_status_name}

/* The further function of libraries whose runs can be ended: NNEFC_CANCEL_INTERFACE(nnefc). */
typedef struct nnefc_cancel_interface {
    nnefc_status (*cancel)(nnefc_session *session);
} nnefc_cancel_interface;

#define NNEFC_CANCEL_INTERFACE(name) {name##_cancel}

/* The further functions of the same libraries: NNEFC_CONTROL_INTERFACE(nnefc). */
typedef struct nnefc_control_interface {
    nnefc_status (*run_async)(nnefc_session *session, const void *const *inputs, void *const *outputs, nnefc_done *done, void *context);
    nnefc_status (*time_kernels)(nnefc_session *session, int32_t on);
    uint32_t (*session_times)(const nnefc_session *session, nnefc_kernel_times *times, uint32_t count);
    nnefc_status (*set_time_limit)(nnefc_session *session, int64_t nanoseconds);
    /* of networks with dynamic dimensions alone: NNEFC_OPEN_CONTROL_INTERFACE(nnefc) */
    nnefc_status (*run_sized_async)(nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs, nnefc_done *done, void *context);
} nnefc_control_interface;

#define NNEFC_CONTROL_INTERFACE(name) {name##_run_async, name##_time_kernels, name##_session_times, name##_set_time_limit, 0}
#define NNEFC_OPEN_CONTROL_INTERFACE(name) \
    {name##_run_async, name##_time_kernels, name##_session_times, name##_set_time_limit, name##_run_sized_async}

/* Threads that sessions share, by the functions of one of these libraries: NNEFC_THREADS_INTERFACE(nnefc). */
typedef struct nnefc_threads_interface {
    nnefc_status (*create)(const nnefc_options *options, nnefc_threads **threads);
    nnefc_status (*destroy)(nnefc_threads *threads);
    uint32_t (*count)(const nnefc_threads *threads);
    nnefc_parallel_for *run;
    const char *(*last_error)(const nnefc_session *session);
    const char *(*status_name)(nnefc_status status);
} nnefc_threads_interface;

#define NNEFC_THREADS_INTERFACE(name) \
    {name##_threads_create, name##_threads_destroy, name##_threads_count, name##_threads_run, name##_last_error, name##_status_name}

/* The further function of those of them that have several outputs, or states: NNEFC_SELECTION_INTERFACE(nnefc). */
typedef struct nnefc_selection_interface {
    nnefc_status (*select_outputs)(nnefc_session *session, const uint8_t *outputs);
} nnefc_selection_interface;

#define NNEFC_SELECTION_INTERFACE(name) {name##_select_outputs}

/* The further functions of libraries with a tokenizer: NNEFC_TOKENIZER_INTERFACE(nnefc). */
typedef struct nnefc_tokenizer_interface {
    nnefc_status (*tokenize)(const char *text, size_t size, uint32_t flags, int64_t *tokens, size_t room, size_t *count);
    nnefc_status (*detokenize)(const int64_t *tokens, size_t count, uint32_t flags, char *text, size_t room, size_t *size);
} nnefc_tokenizer_interface;

#define NNEFC_TOKENIZER_INTERFACE(name) {name##_tokenize, name##_detokenize}

/* The further function of those with a chat template: NNEFC_CHAT_INTERFACE(nnefc). */
typedef struct nnefc_chat_interface {
    nnefc_status (*chat)(const nnefc_message *messages, size_t count, const nnefc_chat_options *options, char *text, size_t room, size_t *size);
} nnefc_chat_interface;

#define NNEFC_CHAT_INTERFACE(name) {name##_chat}

/* The further functions of networks for GPUs. */
typedef struct nnefc_device_interface {
    nnefc_status (*enqueue)(nnefc_session *session, const void *const *inputs, void *const *outputs, void *stream);
    nnefc_status (*synchronize)(nnefc_session *session);
} nnefc_device_interface;

/* Initializes an nnefc_device_interface: NNEFC_DEVICE_INTERFACE(nnefc). */
#define NNEFC_DEVICE_INTERFACE(name) {name##_enqueue, name##_synchronize}

/* The further functions of networks with dynamic dimensions. */
typedef struct nnefc_open_interface {
    nnefc_status (*resize)(nnefc_session *session, const int64_t *const *input_shapes);
    const int64_t *(*output_shape)(const nnefc_session *session, uint32_t output);
    nnefc_status (*reserve)(nnefc_session *session, const int64_t *sizes, int32_t outputs);
    nnefc_status (*run_sized)(nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs);
} nnefc_open_interface;

/* Initializes an nnefc_open_interface: NNEFC_OPEN_INTERFACE(nnefc). */
#define NNEFC_OPEN_INTERFACE(name) {name##_resize, name##_output_shape, name##_reserve, name##_run_sized}

/* The further functions of networks with states. */
typedef struct nnefc_state_interface {
    nnefc_status (*get_state)(nnefc_session *session, uint32_t state, void *data);
    nnefc_status (*set_state)(nnefc_session *session, uint32_t state, const void *data);
    nnefc_status (*copy_states)(nnefc_session *session, nnefc_session *other);
} nnefc_state_interface;

/* Initializes an nnefc_state_interface: NNEFC_STATE_INTERFACE(nnefc). */
#define NNEFC_STATE_INTERFACE(name) {name##_get_state, name##_set_state, name##_copy_states}

/* The further functions of those of them that keep sequences of tokens. */
typedef struct nnefc_sequence_interface {
    nnefc_status (*copy_sequence)(nnefc_session *session, int64_t sequence, nnefc_session *other, int64_t from, int64_t positions);
    nnefc_status (*measure_states)(nnefc_session *session, nnefc_state_bytes *bytes);
} nnefc_sequence_interface;

/* Initializes an nnefc_sequence_interface: NNEFC_SEQUENCE_INTERFACE(nnefc). */
#define NNEFC_SEQUENCE_INTERFACE(name) {name##_copy_sequence, name##_measure_states}

#ifdef __cplusplus
}
#endif
#endif
