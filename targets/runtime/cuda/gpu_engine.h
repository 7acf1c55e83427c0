/* The state of a session on a GPU. */
#ifndef NNEFC_CUDA_GPU_ENGINE_H
#define NNEFC_CUDA_GPU_ENGINE_H

#include <stdbool.h>

#include "../cuda.h"
#include "device.h"
#include "session_memory.h"
#include "threads/pool.h"
#ifdef NNEFC_OPEN
#include "../open/outputs.h"
#include "../open/sizes.h"
#endif

/* Where a tensor of the caller's is. */
typedef enum nnefc_cuda_home {
    NNEFC_CUDA_HERE,   /* in the GPU's memory, or of no bytes: it is used where it is */
    NNEFC_CUDA_ASKEW,  /* there, but not aligned for vectors: copied to or from the session's own memory */
    NNEFC_CUDA_ON_PEER, /* in the memory of another GPU: copied before or after the run's kernels */
    NNEFC_CUDA_IN_HOST /* in the host's memory: copied by way of the session's pinned memory */
} nnefc_cuda_home;

typedef struct nnefc_cuda_location {
    nnefc_cuda_home home;
    CUdeviceptr address; /* on the session's GPU; 0 elsewhere: how a tensor travels does not depend on where it is there */
    CUdeviceptr on_peer; /* the address on another GPU */
    CUcontext peer;      /* that GPU's */
} nnefc_cuda_location;

/* Another GPU that a session has copied from or to, whose primary context it holds. */
typedef struct nnefc_cuda_peer {
    CUdevice device;
    CUcontext context;
} nnefc_cuda_peer;

/* A run as a graph, for tensors in certain locations, of certain sizes. */
typedef struct nnefc_cuda_graph {
    CUgraphExec runnable;     /* null before the locations have been seen twice */
    CUevent done;             /* after its last run, if that is marked; null before the first mark */
    bool is_marked;
    uint64_t used;            /* the number of the last run with them; 0 for none */
    nnefc_cuda_location *locations; /* of the inputs, then of the outputs */
#ifdef NNEFC_OPEN
    int64_t *sizes; /* the values of the dynamic dimensions */
#endif
} nnefc_cuda_graph;

#ifdef NNEFC_OPEN
enum { NNEFC_CUDA_GRAPHS = 32 }; /* sets of sizes and locations that a session remembers */
#else
enum { NNEFC_CUDA_GRAPHS = 8 }; /* sets of locations that a session remembers */
#endif

/* What a host kernel is called with, on a thread of the driver's or, if it takes sizes, on the caller's. */
typedef struct nnefc_cuda_host_call {
    nnefc_pool *pool;
    const nnefc_cuda_host_kernel *kernel;
    void **operands; /* in pinned memory */
    const int64_t *sizes;
} nnefc_cuda_host_call;

/* A tensor's memory of the session's own. */
typedef struct nnefc_cuda_tensor {
    uint64_t bytes;
    CUdeviceptr memory;
    uint8_t *staging; /* pinned */
} nnefc_cuda_tensor;

#ifdef NNEFC_OPEN
/* Memory of the GPU's that only grows. */
typedef struct nnefc_cuda_block {
    CUdeviceptr start; /* 0 without any */
    uint64_t bytes;
} nnefc_cuda_block;

/* What is laid out when the sizes are known that a part of the workspace waits for, with room for the largest ones yet. */
typedef struct nnefc_cuda_part {
    nnefc_cuda_block workspace; /* none if the caller has it */
    nnefc_cuda_block tensors;   /* the session's own memory of inputs, of the first part, and of outputs */
    uint8_t *staging;           /* pinned, of as many bytes */
} nnefc_cuda_part;
#endif

struct nnefc_engine {
    nnefc_cuda_device *device;
    nnefc_pool *pool; /* for host kernels */
    CUstream stream;
    CUevent done; /* after the last run that nnefc_enqueue began */
    nnefc_memory programs_memory; /* the program's allocator of the GPU's memory, if there is one */
    CUdeviceptr memory, workspace, state;
    uint64_t memory_bytes;
    CUdeviceptr arrivals; /* zeros, in which a launch counts its blocks */
    int64_t *counts;      /* pinned: those of a run, for the sizes of outputs */
    uint8_t *pinned;
    volatile int32_t *failure; /* the word that kernels write a failure to, in pinned memory; and its address for them */
    CUdeviceptr failure_address;
    nnefc_cuda_tensor *tensors; /* the inputs, then the outputs */
    void **operands;            /* of all host calls */
    nnefc_cuda_host_call *host_calls;
    nnefc_cuda_location *locations; /* of the present run's tensors, inputs first */
    void **addresses;         /* where its kernels find them */
    nnefc_cuda_graph graphs[NNEFC_CUDA_GRAPHS];
    uint64_t runs;
    nnefc_cuda_peer *peers;
    uint32_t peer_count;
    bool stream_is_busy;   /* there may be work on the session's own stream */
    bool event_is_pending; /* `done` may lie ahead */
#ifdef NNEFC_OPEN
    nnefc_sizes sizes;
    nnefc_cuda_part *parts;        /* of the workspace */
    CUdeviceptr callers_workspace; /* in which the parts follow each other; 0 if the session has its own */
    uint64_t callers_bytes;
    nnefc_outputs *outputs; /* finds memory for outputs whose sizes a run finds out */
    uint8_t *sized_operands; /* pinned, of host kernels that take sizes */
    uint64_t sized_operand_bytes;
#endif

    /* of the run that is being begun */
    CUstream current;
    nnefc_status status; /* NNEFC_OK until something fails */
    char *error;
};

/* How many tensors the network takes and gives. */
uint32_t nnefc_cuda_tensor_count(void);

/* Memory, stream and pool of an engine whose device is there and current; what was made when something fails is for
 * nnefc_cuda_empty. */
nnefc_status nnefc_cuda_fill(nnefc_engine *engine, const nnefc_options *options, char *error);

/* Frees all that nnefc_cuda_fill made, with the device current. */
nnefc_status nnefc_cuda_empty(nnefc_engine *engine, nnefc_status status, char *error);

/* Frees what the host has of an engine, the engine too. */
void nnefc_cuda_free_host(nnefc_engine *engine);

/* Finds out where the caller's tensors are, for engine->locations. */
nnefc_status nnefc_cuda_locate(nnefc_engine *engine, const void *const *inputs, void *const *outputs, char *error);

/* The same for an output alone. */
nnefc_status nnefc_cuda_locate_output(nnefc_engine *engine, uint32_t output, const void *pointer, char *error);

/* Where the network's code finds a tensor in the GPU's memory. */
void *nnefc_cuda_address(const nnefc_engine *engine, uint32_t tensor);

/* The bytes of an output after a run, which may have found out how large it is. */
uint64_t nnefc_cuda_output_bytes(const nnefc_engine *engine, uint32_t output);

#ifdef NNEFC_OPEN
/* Bytes of a session's memory. */
typedef struct nnefc_cuda_room {
    uint64_t workspace, tensors;
} nnefc_cuda_room;

/* Makes room for what is known of sizes. */
nnefc_status nnefc_cuda_fill_sizes(nnefc_engine *engine, const nnefc_options *options, char *error);

/* What a part needs for the sizes that were set last; 0 for a workspace that is large enough. */
nnefc_cuda_room nnefc_cuda_room_now(nnefc_engine *engine, uint32_t part);

/* What it needs for all sizes up to those of nnefc_sizes_enlarge. */
nnefc_cuda_room nnefc_cuda_room_up_to(const nnefc_engine *engine, uint32_t part, const int64_t *dimensions,
                                      const uint64_t *output_bytes);

/* Makes room for the operands of a host kernel that takes sizes, of so many bytes in all. */
nnefc_status nnefc_cuda_grow_operands(nnefc_engine *engine, uint64_t bytes, char *error);

/* Whether the session's own memory is large enough. */
bool nnefc_cuda_has_room(const nnefc_engine *engine, uint32_t part, nnefc_cuda_room room);

/* Whether the caller's workspace, if there is one, is: for a part, and those before it, of so many bytes each. */
nnefc_status nnefc_cuda_check_callers(const nnefc_engine *engine, const uint64_t *ends, uint32_t part, char *error);

/* Replaces memory of the session's that is too small, which nothing may use any more; with the device current. */
nnefc_status nnefc_cuda_grow(nnefc_engine *engine, uint32_t part, nnefc_cuda_room room, char *error);

/* Where a part of the workspace is; 0 if it has no bytes. */
CUdeviceptr nnefc_cuda_workspace(const nnefc_engine *engine, uint32_t part);

/* Gives each tensor of a part its position, for the sizes that were set last. */
void nnefc_cuda_set_addresses(nnefc_engine *engine, uint32_t part);

/* Removes the positions of outputs whose shapes are data-dependent. */
void nnefc_cuda_free_data_dependent(nnefc_engine *engine);

/* Frees memory of dynamic sizes. */
nnefc_status nnefc_cuda_free_sized(nnefc_engine *engine, nnefc_status status, char *error);

/* Frees all graphs, none of which runs any more. */
nnefc_status nnefc_cuda_drop_graphs(nnefc_engine *engine, nnefc_status status, char *error);
#endif

/* Whether memory of the caller's is where it must be; null is. `what` is the subject of the message. */
nnefc_status nnefc_cuda_check_location(const nnefc_engine *engine, void *memory, const char *what, char *error);

/* Allocates memory of the GPU, by the program's allocator if there is one. `what` is what the message calls it. */
nnefc_status nnefc_cuda_take_memory(nnefc_engine *engine, CUdeviceptr *memory, uint64_t bytes, const char *what, char *error);

/* Frees it; 0 does nothing. The GPU uses it no longer. */
nnefc_status nnefc_cuda_free_memory(nnefc_engine *engine, CUdeviceptr memory, uint64_t bytes, nnefc_status status, char *error);

/* The primary context of another GPU, which the session holds from then on. */
nnefc_status nnefc_cuda_find_peer(nnefc_engine *engine, CUdevice device, CUcontext *context, char *error);

/* Lets go of them all. */
nnefc_status nnefc_cuda_release_peers(nnefc_engine *engine, nnefc_status status, char *error);

/* Puts a run on a stream, kernel by kernel or as a graph, for the tensors at engine->locations. */
nnefc_status nnefc_cuda_start(nnefc_engine *engine, CUstream stream, char *error);

/* Puts all of a run's kernels and copies on a stream, but for the copies of outputs whose sizes the run finds out. */
nnefc_status nnefc_cuda_put(nnefc_engine *engine, CUstream stream, char *error);

#ifdef NNEFC_OPEN
/* Puts the latter behind a run, if there are any. Sizes that stayed on the GPU are read, which waits for the run: it is no part of
 * a graph. */
nnefc_status nnefc_cuda_put_results(nnefc_engine *engine, CUstream stream, char *error);
#endif

/* What the runs that are done have failed with; it is forgotten then. */
nnefc_status nnefc_cuda_collect(nnefc_engine *engine, char *error);

/* Waits for all runs that were begun, and returns their error. */
nnefc_status nnefc_cuda_settle(nnefc_engine *engine, char *error);

/* nnefc_enqueue and nnefc_synchronize, of an engine; the pointers have been checked for null and alignment. */
nnefc_status nnefc_cuda_enqueue(nnefc_engine *engine, const void *const *inputs, void *const *outputs, CUstream stream,
                                char *error);
nnefc_status nnefc_cuda_synchronize(nnefc_engine *engine, char *error);

#endif
