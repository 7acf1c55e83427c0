/* What the code of a network for NVIDIA's GPUs and the runtime know of each other. The compiler generates a C file with
 * `nnefc_cuda_this_module` and, for each kernel that the entry calls, a function that launches it with what is declared
 * below. All pointers that the entry passes around are addresses of the GPU's memory. */
#ifndef NNEFC_CUDA_H
#define NNEFC_CUDA_H

#include <stdint.h>

/* What a host kernel does with an operand. */
enum {
    NNEFC_CUDA_READ = 1,
    NNEFC_CUDA_WRITE = 2 /* an operand with neither is memory of the kernel's own, which the host has */
};

typedef struct nnefc_cuda_operand {
    uint64_t bytes;
    uint32_t access; /* NNEFC_CUDA_READ, NNEFC_CUDA_WRITE, both or none */
} nnefc_cuda_operand;

/* A kernel that the processor runs, on copies of its operands. */
typedef struct nnefc_cuda_host_kernel {
    /* The operands' addresses are of the host's memory, aligned to 64 bytes; 0 on success. */
    int32_t (*call)(void *const *operands, const int64_t *sizes);
    const nnefc_cuda_operand *operands; /* of a kernel that takes sizes, those say how many bytes there are */
    uint32_t operand_count;
} nnefc_cuda_host_kernel;

/* How a data-dependent dimension of an output follows from a count: `factor * count + added`. */
typedef struct nnefc_cuda_output_count {
    int32_t number; /* of the count; -1 if the network's code has written the size */
    int64_t factor;
    int64_t added;
} nnefc_cuda_output_count;

typedef struct nnefc_cuda_module {
    const void *image; /* a fat binary, aligned to 8 bytes: machine code for each architecture, PTX of the newest */
    uint64_t bytes;    /* its size */
    const char *const *kernels; /* the names of the GPU's functions, in the order of their numbers */
    uint32_t kernel_count;
    const uint32_t *dynamic_shared; /* for each of them: the maximum bytes of dynamic shared memory of a launch */
    const char *const *messages; /* what kernels may have to say; the word of failures counts from 1 */
    uint32_t message_count;
    uint64_t arrival_bytes; /* what nnefc_cuda_arrivals has, and the counts of a run, of 8 bytes, to the end; 0 for none */
    uint64_t counts_offset; /* where these begin */
    const nnefc_cuda_output_count *output_counts; /* for each data-dependent dimension of the outputs; null if none follows from a count */
    const nnefc_cuda_host_kernel *host_kernels;
    uint32_t host_kernel_count;
    int32_t capturable;            /* 0 if the entry waits for the GPU: it cannot become a graph */
    const uint32_t *architectures; /* 80 for sm_80, rising */
    uint32_t architecture_count;
} nnefc_cuda_module;

extern const nnefc_cuda_module nnefc_cuda_this_module;

/* For the network's code, during a call of the entry. They answer 0 for success; a failure is noted as well, and what is
 * asked for after it in the same run is not done. So what they answer need not be looked at. */

/* Launches a kernel by its number. The geometry is the grid's x, y, z, the block's x, y, z, and the bytes of dynamic shared
 * memory; a grid without blocks is no launch. `arguments` has the address of each argument. */
int32_t nnefc_cuda_launch(uint32_t kernel, const uint32_t geometry[7], void **arguments);

/* An argument of a kernel: what bulk copies know of a tensor, as the driver encodes it. */
typedef struct nnefc_cuda_tensor_map {
    uint64_t opaque[16];
} __attribute__((aligned(64))) nnefc_cuda_tensor_map;

/* A tensor of three to five dimensions, that whose elements are neighbours first, and what one bulk copy fetches of it. */
typedef struct nnefc_cuda_box {
    uint32_t element_bytes; /* 1, 2, 4 or 8; those of 4 are float32, which the copy rounds to TF32 */
    uint32_t row_vectors;   /* of 16 bytes, in a row of the box in shared memory, swizzled among them: 2, 4 or 8; 1: none are swizzled */
    uint32_t rank;
    uint64_t sizes[5];
    uint64_t strides[4]; /* bytes from an element to the next along each dimension but the first */
    uint32_t extent[5];  /* elements of the box along each dimension, from the first to the last that is fetched */
    uint32_t steps[5];   /* from an element that is fetched to the next along each dimension */
} nnefc_cuda_box;

/* Encodes the map of a tensor that begins at an address, a multiple of 16; zeros for one without elements. The driver copies it when
 * a kernel is launched. */
int32_t nnefc_cuda_encode(nnefc_cuda_tensor_map *map, const void *address, const nnefc_cuda_box *box);

/* Copies from one position of the GPU's memory to another. */
int32_t nnefc_cuda_copy(void *destination, const void *source, uint64_t bytes);

/* Waits for everything before it, then copies to the host. Not in the entry of a network that says that it can be captured. */
int32_t nnefc_cuda_read(void *host, const void *device, uint64_t bytes);

/* Writes the number of a loop's iteration to the GPU: 0, then each time one more. So the upper half is written only when the
 * lower one is 0. */
int32_t nnefc_cuda_count(void *device, int64_t count);

/* Runs one of the module's host kernels; `operands` has their addresses in the GPU's memory. */
int32_t nnefc_cuda_host_step(const nnefc_cuda_host_kernel *kernel, void *const *operands);

/* The same for one that takes sizes, which say how many bytes each operand has. Waits for everything before it. Not in a network
 * that says that it can be captured, nor in one without dynamic dimensions. */
int32_t nnefc_cuda_sized_host_step(const nnefc_cuda_host_kernel *kernel, void *const *operands, const uint64_t *bytes,
                                   const int64_t *sizes);

/* The word that a kernel of the GPU writes the number of its message to when it fails. */
int32_t *nnefc_cuda_failure(void);

/* Memory of the session's in which a launch counts the blocks that have arrived. It is zeros before a launch and after it. */
uint32_t *nnefc_cuda_arrivals(void);

/* The compute capability of the session's GPU: 90 for 9.0. */
int32_t nnefc_cuda_capability(void);

/* Copies a count, an int64 that a kernel has written, to where other kernels read it. */
int32_t nnefc_cuda_keep_count(int32_t number, const void *device);

/* Where these read it, in the GPU's memory. */
const int64_t *nnefc_cuda_kept_count(uint32_t number);

/* Whether something of this run has failed, as far as is known; for loops, after nnefc_cuda_read. */
int32_t nnefc_cuda_run_failed(void);

#endif
