/* nnefc.h - the C interface of a network compiled by nnefc, ABI version 1.
 *
 * A compiled network is one library, shared or static, that needs the C library and nothing else. It has the functions
 * below, whatever the network and the machine. In short:
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
 * Tensors are dense and row-major: the last axis is contiguous, there are no gaps. The caller owns all inputs and outputs.
 *
 * Threads. A session owns everything that a run writes: workspace, states and worker threads. Sessions are independent
 * of each other and may run at the same time, as may several libraries in one process; there is no global state but the
 * calling thread's own. One session serves one call at a time: a second call on it from another thread is answered
 * with NNEFC_BUSY and does nothing.
 *
 * Subnormal numbers are taken for zero during a run, unless nnefc_options.keep_subnormals says otherwise, in all threads of the
 * session and in the caller's; nnefc_run gives the caller's thread the mode back that it had. RISC-V and WebAssembly always
 * keep them.
 *
 * Memory. nnefc_create allocates all that the session will ever need; nnefc_run allocates nothing (the C library
 * itself may set up a few bytes when a thread other than the session's maker calls for the first time). The trained values
 * are mapped from the library file, or from a file of their own beside it, and shared between all sessions and processes.
 *
 * Fork. A child process inherits a session without its worker threads: nnefc_run works there on the calling thread alone,
 * with the same results. A session that was in the middle of a call when another thread forked stays NNEFC_BUSY.
 *
 * GPUs. A library for NVIDIA's GPUs has two functions more, nnefc_enqueue and nnefc_synchronize. It needs NVIDIA's driver,
 * libcuda.so.1, which nnefc_create opens. Workspace and states are in the GPU's memory; the trained values are copied there
 * by the first session on a GPU and shared by all of the process. nnefc_create allocates all that the session asks for, but
 * the driver may allocate when a run is made a graph, in the first runs with the same pointers. Inputs and outputs may be in
 * the memory of the host or of the session's GPU, each for itself: the driver knows where they are. A forked child cannot
 * use what its parent has of a GPU: calls are answered with NNEFC_NO_DEVICE there.
 *
 * Names. Every shared library exports the functions below; the two for GPUs only if it is for one. A network that was
 * compiled with `--name digits` has them as digits_describe, digits_create and so on, declared in digits.h, so that several
 * can be linked into one program; object files and archives of it have those names only. Without a name, link against one
 * library at most and open others with dlopen(path, RTLD_NOW | RTLD_LOCAL).
 */
#ifndef NNEFC_H
#define NNEFC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NNEFC_ABI_VERSION 1u

#if defined(__GNUC__)
#define NNEFC_API __attribute__((visibility("default")))
#else
#define NNEFC_API
#endif

/* The answer of every call. Numbers never change their meaning; later versions may add more. */
typedef enum nnefc_status {
    NNEFC_OK = 0,
    NNEFC_BAD_ARGUMENT = 1,    /* a null or misaligned pointer, a number out of range */
    NNEFC_WRONG_ABI = 2,       /* nnefc_options.struct_size is none that this library knows */
    NNEFC_UNSUPPORTED_CPU = 3, /* the network was compiled for instructions that this processor lacks */
    NNEFC_OUT_OF_MEMORY = 4,   /* the session's memory or threads could not be had */
    NNEFC_KERNEL_ERROR = 5,    /* the network's code reported a failure; outputs and states are undefined */
    NNEFC_BUSY = 6,            /* another thread is inside a call on the same session; nothing was done */
    NNEFC_BAD_WEIGHTS = 7,     /* the file of trained values is missing, cut off, damaged or another network's */
    NNEFC_NO_DEVICE = 8,       /* there is no GPU, or no driver, that can run the network */
    NNEFC_DEVICE_ERROR = 9     /* the GPU or its driver reported a failure; outputs and states are undefined */
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
    NNEFC_FLOAT64 = 13
} nnefc_type;

typedef struct nnefc_tensor {
    const char *name;     /* UTF-8, as in the model */
    int32_t type;         /* an nnefc_type */
    int32_t rank;         /* number of axes; 0 for a single value */
    const int64_t *shape; /* rank extents, the outermost first; null if rank is 0 */
    uint64_t bytes;       /* size of the whole tensor */
} nnefc_tensor;

/* What the library holds. Constant for the library's life; later versions add members at the end only. */
typedef struct nnefc_description {
    uint32_t abi_version;        /* NNEFC_ABI_VERSION of the library */
    uint32_t struct_size;        /* sizeof(nnefc_description) of the library */
    const char *model;           /* the network's name */
    const char *target;          /* the machine that it was compiled for, as given to the compiler */
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
    uint64_t constant_bytes;         /* trained values, mapped from the file */
    uint64_t state_bytes;            /* a session's memory for states */
    uint32_t variable_count;
    const char *const *variables; /* what the model calls its trained values; they are not stored as they were */
    const char *source;           /* "sha256:" and the digest of the model's file; of several files, of the lines
                                     "digest  name" that the command sha256sum prints for them in the order of their
                                     names; "" if there was no file */
    const char *weights;          /* the name of the file with the trained values; null if they are in the library */
    const char *device;           /* what the network runs on: "cpu" or "cuda" */
    uint64_t device_bytes;        /* a session's memory of a GPU: workspace, states, and room for inputs and outputs */
} nnefc_description;

/* Always answers, on every processor. */
NNEFC_API const nnefc_description *nnefc_describe(void);

/* How to create a session. Set all to zero, then struct_size, then what matters:
 *     nnefc_options options = {0};
 *     options.struct_size = sizeof options;
 */
typedef struct nnefc_options {
    uint32_t struct_size;     /* sizeof(nnefc_options), or what it was when it ended with workspace_bytes, weights or
                                 device; others are NNEFC_WRONG_ABI */
    int32_t threads;          /* 1 to 1024, the caller's own thread among them; 0: the environment's NNEFC_NUM_THREADS, and
                                 without it the number of processors that the calling thread may run on */
    void *workspace;          /* null, or memory of the caller's own, aligned to 64 bytes, which the session uses until it
                                 is destroyed; its content matters neither before nor after a run. For a GPU: memory of
                                 that GPU, aligned to 256 bytes */
    uint64_t workspace_bytes; /* its size, at least the description's workspace_bytes */
    const char *weights;      /* the path of the file with the trained values, if they are not in the library; null: the
                                 file that the description names, in the folder of the library (of the program, if the
                                 network is linked into it) */
    int64_t device;           /* the number of the GPU, as the driver counts; 0 for networks that need none */
    int32_t keep_subnormals;  /* 0: runs take subnormal numbers, of less than about 1e-38, for zero, and give zero in their
                                 place; 1: runs compute with them, which can take several times as long */
} nnefc_options;

typedef struct nnefc_session nnefc_session;

/* Makes a session and stores it in *session (null if it fails). Null options mean the defaults.
 * NNEFC_BAD_ARGUMENT, NNEFC_WRONG_ABI, NNEFC_UNSUPPORTED_CPU, NNEFC_OUT_OF_MEMORY, NNEFC_BAD_WEIGHTS, and for GPUs
 * NNEFC_NO_DEVICE, NNEFC_DEVICE_ERROR; nnefc_last_error(NULL) says more. None of the network's code runs before the processor has been checked. A file of
 * trained values is read once, to compare its checksum with the library's; it must not be overwritten in place while
 * sessions use it (put a new file in its place instead). */
NNEFC_API nnefc_status nnefc_create(const nnefc_options *options, nnefc_session **session);

/* Ends a session: waits for the runs that were begun, joins its threads and frees its memory. Null does nothing.
 * NNEFC_BUSY if a call on the session is under way: the session lives on. NNEFC_DEVICE_ERROR if the GPU's driver reported a
 * failure meanwhile, which nnefc_last_error(NULL) tells: the session is gone nevertheless. A session must not be used after
 * it was destroyed. */
NNEFC_API nnefc_status nnefc_destroy(nnefc_session *session);

/* Runs the network once: reads inputs[0 .. input_count - 1], writes outputs[0 .. output_count - 1] and the session's states.
 * Every pointer must be aligned to its element type, no more; tensors without elements may be null. Outputs must overlap
 * neither each other nor any input. On NNEFC_KERNEL_ERROR and NNEFC_DEVICE_ERROR outputs and states are undefined: call
 * nnefc_reset. Inputs in a GPU's memory must be there before the call; tensors that are not aligned to 16 bytes are
 * copied first. */
NNEFC_API nnefc_status nnefc_run(nnefc_session *session, const void *const *inputs, void *const *outputs);

/* Begins a run on a GPU and returns. Libraries for GPUs have this function, others do not. Inputs and outputs are in the
 * GPU's memory, all of them. `stream` is a CUstream (cudaStream_t) of the session's GPU and its primary context, which is
 * what CUDA's libraries use: what was put there before is done before the run, what is put there later finds the outputs.
 * Null is a stream of the session's own. Runs of one session follow each other, whatever their streams. A run that fails
 * after this call has returned is the answer of the next call on the session, which then does nothing else. */
NNEFC_API nnefc_status nnefc_enqueue(nnefc_session *session, const void *const *inputs, void *const *outputs, void *stream);

/* Waits until all runs that were begun are done, and tells whether they failed. Libraries for GPUs have this function. */
NNEFC_API nnefc_status nnefc_synchronize(nnefc_session *session);

/* Brings the states back to their initial values, after all runs that were begun; their failures are forgotten. */
NNEFC_API nnefc_status nnefc_reset(nnefc_session *session);

/* What the session's last call had to say in English; "" if it succeeded. For null: what the calling thread's last
 * nnefc_create had to say, or an nnefc_destroy that failed after it. Valid until the next call on the session, or for null until the thread's next nnefc_create or
 * 64 failures of other threads'.
 * NNEFC_BUSY leaves the text as it is, for it belongs to the other thread. */
NNEFC_API const char *nnefc_last_error(const nnefc_session *session);

/* "ok", "bad argument", ...; "unknown status" for others. */
NNEFC_API const char *nnefc_status_name(nnefc_status status);

/* One network's functions as a value, for code that serves networks of several names or opens libraries itself. */
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

/* The functions that networks for GPUs have besides. */
typedef struct nnefc_device_interface {
    nnefc_status (*enqueue)(nnefc_session *session, const void *const *inputs, void *const *outputs, void *stream);
    nnefc_status (*synchronize)(nnefc_session *session);
} nnefc_device_interface;

/* Initializes an nnefc_device_interface: NNEFC_DEVICE_INTERFACE(nnefc). */
#define NNEFC_DEVICE_INTERFACE(name) {name##_enqueue, name##_synchronize}

#ifdef __cplusplus
}
#endif
#endif
