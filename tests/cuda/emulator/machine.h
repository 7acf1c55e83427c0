// What kernels (emulator.h) and the machine that runs them (runtime.cpp) say to one another.
#pragma once

typedef __SIZE_TYPE__ emulator_size;
typedef __UINT64_TYPE__ emulator_bits;

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
};

struct emulator_kernel {
  const char *name;
  void (*call)(void **arguments);
  unsigned bound;             // of __launch_bounds__: threads in a block
  char *shared, *shared_end;  // static arrays
  bool cooperative;           // contains barriers or warp operations
  unsigned alignment;         // of dynamic shared memory, as the source declares it
  unsigned cluster;           // of __cluster_dims__: blocks along x that run at once
};

// What the stand-in for cuTensorMapEncodeTiled leaves in a CUtensorMap: a tensor in global memory, and the box of a bulk copy.
constexpr unsigned long long EMULATOR_TENSOR_MAP = 0x6e6e656663626f78ull;
struct alignas(64) emulator_tensor_map {
  emulator_bits magic, address;
  emulator_bits strides[4];    // bytes from an element to the next, but of the first dimension
  unsigned sizes[5], box[5];   // of a tensor and of what a copy fetches, the dimension whose elements are neighbours first
  unsigned rank, element_bytes;  // of 4 bytes: float32 that a copy rounds to TF32
  unsigned swizzle;              // vectors of 16 bytes of a row: 1, 2, 4 or 8
  unsigned steps[5];  // from an element that is fetched to the next
};

// The value of a float of 8 bits, with 5 bits of exponent (E5M2) or 4 (E4M3, without infinities).
static inline float emulator_float8_value(unsigned code, bool is_e5m2) {
  const unsigned size = code & 0x7f, word = is_e5m2 ? size << 21 : size << 20;
  float value;
  __builtin_memcpy(&value, &word, 4);
  value *= is_e5m2 ? 0x1p112f : 0x1p120f;  // biases of 15 and 7, not 127
  if (is_e5m2 && size == 0x7c) value = __builtin_inff();
  if (size > (is_e5m2 ? 0x7cu : 0x7eu)) value = __builtin_nanf("");
  return code & 0x80 ? -value : value;
}

// The value of a float32 that tensor cores multiply as TF32: they ignore its last 13 bits.
static inline float emulator_tf32_value(unsigned bits) {
  float value;
  bits &= 0xffffe000u;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

extern "C" {
extern char *emulator_dynamic_shared;
void emulator_launch(const emulator_kernel *kernel, void **arguments, const unsigned *grid, const unsigned *block,
                     unsigned shared_bytes);
void emulator_barrier(int line);
int emulator_barrier_or(int predicate, int line);
// __threadfence, and what atomic operations tell other blocks of what was written before it.
void emulator_fence();
void emulator_atomic(const volatile void *address, emulator_size bytes);
void emulator_warp_barrier(unsigned mask, int line);
unsigned emulator_active(int line);
unsigned emulator_ballot(unsigned mask, int predicate, int line);
emulator_bits emulator_shuffle(unsigned mask, emulator_bits value, int source_lane, int line);
// Gives each lane what all lanes of its warp have: 32 pieces of `bytes` one after another in `all`; zeros for lanes left out.
void emulator_gather(unsigned mask, const void *own, emulator_size bytes, void *all, int line);
unsigned emulator_to_shared(const void *address);
void *emulator_from_shared(unsigned address);
// cp.async: `source_bytes` are copied, the rest of `bytes` becomes zero; both once the thread has waited for the copy's group.
void emulator_copy(unsigned shared, const void *global, unsigned bytes, unsigned source_bytes);
void emulator_copy_commit();
void emulator_copy_wait(unsigned groups_in_flight);
// mbarriers, by their addresses in shared memory: an arrival may expect bytes of bulk copies; a wait ends when the phase of a
// parity is complete. A bulk copy begins at coordinates of a tensor, the first one that of neighbouring elements.
void emulator_mbarrier_init(unsigned address, unsigned arrivals);
void emulator_mbarrier_arrive(unsigned address, unsigned bytes);
unsigned emulator_mbarrier_wait(unsigned address, unsigned parity, int line);
void emulator_bulk_copy(const void *map, unsigned rank, const int *coordinates, unsigned shared, unsigned barrier,
                        unsigned blocks);
// barrier.cluster, mapa, and fence.mbarrier_init: other blocks of the cluster may use the mbarriers that the thread has initialized.
void emulator_cluster_barrier(int line);
unsigned emulator_map_to_rank(unsigned address, unsigned rank);
void emulator_fence_barriers();
// fence.proxy.async: what the thread wrote to shared memory before may be read by wgmma, once a barrier has followed.
void emulator_fence_async();
// wgmma of a warpgroup: `sums` are the thread's accumulators, of two columns of eight of two rows each; they are NaN (of bytes, -1)
// until the thread has waited for the product's group. `left` and `right` are matrix descriptors, of operands of these types; instead
// of `left`, `fragment` may point at four registers of each thread. Accumulators are written where the product does not add to them.
enum emulator_kind { emulator_f16, emulator_bf16, emulator_s8_s8, emulator_u8_s8, emulator_s8_u8, emulator_u8_u8,
                     emulator_e4m3_e4m3, emulator_e5m2_e4m3, emulator_e4m3_e5m2, emulator_e5m2_e5m2, emulator_tf32 };
void emulator_warpgroup_fence();
void emulator_warpgroup_multiply(void *const *sums, const void *const *fragment, unsigned columns, emulator_bits left,
                                 emulator_bits right, bool left_by_depths, bool right_by_depths, emulator_kind kind, bool adds,
                                 int line);
void emulator_warpgroup_commit();
void emulator_set_registers(unsigned wanted, bool rises, int line);
void emulator_warpgroup_wait(unsigned groups_in_flight);
// Tensor memory and its products (tcgen05): all lanes of a warp allocate, free and load; one thread multiplies and commits. Addresses
// and descriptors are those of the instructions. Registers that are loaded are NaN until the thread has waited for them.
enum emulator_tensor_kind { emulator_tensor_f16, emulator_tensor_i8, emulator_tensor_f8f6f4, emulator_tensor_tf32 };
enum emulator_rows { emulator_rows_, emulator_rows_fill, emulator_rows_use, emulator_rows_lastuse };  // .collector::a
// `blocks` is of .cta_group: 2 where a pair of blocks shares an instruction. A commit arrives at the barrier of each block in `ranks`,
// by bits, or at the address where `ranks` is 0.
void emulator_tensor_allocate(unsigned address, unsigned columns, unsigned blocks, int line);
void emulator_tensor_free(unsigned address, unsigned columns, unsigned blocks, int line);
void emulator_tensor_relinquish(unsigned blocks, int line);
void emulator_tensor_multiply(unsigned memory, emulator_bits left, emulator_bits right, unsigned instruction, bool accumulates,
                              emulator_tensor_kind kind, emulator_rows rows, unsigned blocks);
void emulator_tensor_commit(unsigned barrier, unsigned ranks, unsigned blocks);
void emulator_tensor_load(void *const *registers, unsigned count, unsigned address, bool by_rows, int line);
void emulator_tensor_wait(int line);
void emulator_tensor_fence(bool before);
[[noreturn]] void emulator_fail(const char *message);
}
