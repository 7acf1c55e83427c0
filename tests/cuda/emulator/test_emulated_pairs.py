"""Pairs of blocks on the emulator: results of `.cta_group::2`, and what would be undefined on a GPU is an error."""

from __future__ import annotations

import numpy as np
import pytest
from emulate import EmulatedKernels, EmulationError, TensorMapArgument, emulate

from nnefc.targets.codegen.cuda.kernels import EncodedMap

TILES, STAGES, ROWS, COLUMNS = 3, 2, 128, 16  # of a block

# A pair multiplies 256 by 192 with 192 by 32 in three tiles of the depth: threads 0 copy, thread 32 of the first block
# multiplies.
SOURCE = r"""
#include <cuda_fp16.h>
struct alignas(64) CUtensorMap { uint64_t opaque[16]; };

__device__ __forceinline__ unsigned at(const void *of) { return (unsigned)__cvta_generic_to_shared(of); }
__device__ __forceinline__ unsigned first(unsigned address) {
  asm volatile("mapa.shared::cluster.u32 %0, %0, 0;" : "+r"(address));
  return address;
}
__device__ __forceinline__ void init(void *barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(at(barrier)), "r"(1));
}
__device__ __forceinline__ void wait(unsigned barrier, int parity) {
  unsigned complete = 0;
  while (!complete)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(complete) : "r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ void copy(void *to, unsigned barrier, const CUtensorMap &map, int x, int y) {
  asm volatile("cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[%0], [%1, {%2, %3, %4}], [%5];"
    : : "r"(at(to)), "l"(&map), "r"(x), "r"(y), "r"(0), "r"(barrier) : "memory");
}
__device__ __forceinline__ void commit(void *barrier, int blocks) {
  asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
    : : "r"(at(barrier)), "h"((unsigned short)blocks) : "memory");
}
__device__ __forceinline__ void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" : : : "memory");
}
__device__ __forceinline__ unsigned long long matrix(const void *of) {
  return (at(of) & 0x3ffff) >> 4 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}

extern "C" __global__ void __launch_bounds__(32) alone(float* __restrict__ out) {
  __shared__ unsigned allocated[1];
  asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32;" : : "r"(at(allocated)));
  __syncthreads();
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) products(half* __restrict__ a,
    half* __restrict__ b, float* __restrict__ out, int mistake, const __grid_constant__ CUtensorMap map_a,
    const __grid_constant__ CUtensorMap map_b) {
  extern __shared__ __align__(1024) uchar memory[];
  __shared__ uint64_t barriers[5];
  __shared__ unsigned allocated[1];
  int n = ((int)threadIdx.x), warp = n / 32, rank = ((int)blockIdx.x) % 2;
  half *left = (half*)memory, *right = left + 2 * 128 * 64;
  uint64_t *full = barriers, *empty = barriers + 2, *done = barriers + 4;
  if (n == 0) {
    for (int i = 0; i < 5; ++i) init(&barriers[i]);
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    if (mistake != 1) asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
  }
  if (warp == 0 && !(mistake == 2 && rank)) {
    if (mistake == 3 && rank)
      asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 64;" : : "r"(at(allocated)));
    else if (mistake == 4)
      asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" : : "r"(at(allocated)));
    else
      asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32;" : : "r"(at(allocated)));
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
  }
  __syncthreads();
  if (mistake != 5) meet();
  unsigned address = allocated[0];
  if (n == 0) {
    for (int tile = 0; tile < 3; ++tile) {
      int stage = tile % 2;
      if (mistake != 6) wait(at(&empty[stage]), 1 - tile / 2 % 2);
      if (mistake == 7 || rank == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
          : : "r"(at(&full[stage])), "r"((mistake == 8 ? 1 : 2) * (128 + 16) * 64 * 2));
      unsigned barrier = mistake == 9 ? at(&full[stage]) : first(at(&full[stage]));
      if (mistake == 10 && rank)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
          "[%0], [%1, {%2, %3, %4}], [%5];"
          : : "r"(at(left)), "l"(&map_a), "r"(0), "r"(0), "r"(0), "r"(barrier) : "memory");
      copy(left + stage * 128 * 64, barrier, map_a, 64 * tile, 128 * rank);
      copy(right + stage * 16 * 64, barrier, map_b, 64 * tile, 16 * rank);
    }
    if (mistake == 11 && rank) left[7] = half(3.0f);
  }
  if (n == 32 && (mistake == 12 || rank == 0)) {
    for (int tile = 0; tile < 3; ++tile) {
      int stage = tile % 2;
      if (mistake == 13) {
        unsigned other = at(&full[stage]);
        asm volatile("mapa.shared::cluster.u32 %0, %0, 1;" : "+r"(other));
        wait(other, tile / 2 % 2);
      }
      if (mistake != 14 && !(mistake == 12 && rank)) wait(at(&full[stage]), tile / 2 % 2);
      if (mistake != 15) asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
      unsigned instruction = 1 << 4 | (mistake == 16 ? 2 : 4) << 17 | (mistake == 17 ? 8 : 16) << 24;
      for (int i = 0; i < 4; ++i)
        asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p; }"
          : : "r"(address), "l"(matrix(left + stage * 128 * 64) + 2 * i),
              "l"(matrix(right + stage * 16 * 64) + 2 * i), "r"(instruction), "r"(tile + i > 0) : "memory");
      commit(&empty[stage], mistake == 18 ? 1 : 3);
    }
    if (mistake == 19) asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%0];"
      : : "r"(at(done)) : "memory");
    else commit(done, mistake == 20 ? 7 : 3);
  }
  if (mistake == 21 && rank) return;
  if (!(mistake == 22 && rank)) wait(at(done), 0);
  asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
  __syncwarp();
  float sums[32];
  for (int part = 0; part < 2; ++part) {
    float *rows = sums + 16 * part;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
      : "=f"(rows[0]), "=f"(rows[1]), "=f"(rows[2]), "=f"(rows[3]), "=f"(rows[4]), "=f"(rows[5]), "=f"(rows[6]),
        "=f"(rows[7]), "=f"(rows[8]), "=f"(rows[9]), "=f"(rows[10]), "=f"(rows[11]), "=f"(rows[12]), "=f"(rows[13]),
        "=f"(rows[14]), "=f"(rows[15])
      : "r"(address + (warp * 32 << 16) + 16 * part) : "memory");
    asm volatile("tcgen05.wait::ld.sync.aligned;" : : : "memory");
  }
  for (int i = 0; i < 32; ++i) out[(rank * 128 + n) * 32 + i] = sums[i];
  asm volatile("tcgen05.fence::before_thread_sync;" : : : "memory");
  if (mistake == 23 && rank) return;
  __syncthreads();
  if (mistake != 24) meet();
  if (warp || (mistake == 25 && rank)) return;
  asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
  asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 32;" : : "r"(address));
}
"""
SHARED = STAGES * (ROWS + COLUMNS) * 64 * 2
MISTAKES = {
    "barriers that the other block does not see": (1, r"no fence\.mbarrier_init and no barrier of the cluster"),
    "only one block allocates": (2, r"waits in tcgen05\.alloc .* for the other block of its pair"),
    "allocations of different sizes": (3, "execute different tcgen05 instructions that both must"),
    "instructions of a block and of a pair": (4, r"with different \.cta_group"),
    "no barrier of the cluster before": (5, "no barrier of the cluster"),
    "a copy to a tile that is multiplied": (6, "another one writes|more arrivals"),
    "both blocks expect bytes": (7, "more arrivals at an mbarrier"),
    "the bytes of one block are expected": (8, "its bytes were not expected"),
    "bytes that complete on the own barrier": (9, r"of block \(0, 0, 0\) waits .* lacks 1 arrivals"),
    "a copy of one block to another one's barrier": (10, "own shared memory at an address in another block's"),
    "a write of the second block to an operand": (11, r"of block \(1, 0, 0\): a write to byte .* has not waited for"),
    "the second block multiplies": (12, "by its second block"),
    "a wait for the other block's barrier": (13, "own shared memory at an address in another block's"),
    "operands that are not waited for": (14, r"with no wait and tcgen05\.fence between|tcgen05\.mma may still read"),
    "no fence after the wait for operands": (15, r"with no wait and tcgen05\.fence between"),
    "columns that pairs do not have": (16, "of a pair with a number of columns"),
    "rows of one block": (17, "of other than 128 rows of each block"),
    "a stage that is not given back to the second block": (18, "waits .* lacks 1 arrivals and 0 bytes"),
    "a commit to one block": (19, r"of block \(1, 0, 0\) waits .* lacks 1 arrivals"),
    "a commit to a block that there is not": (20, "a block that the cluster does not have"),
    "a block that ends before its products": (21, "has ended"),
    "sums of the second block that are not waited for": (22, "with no commit, wait|nothing has written"),
    "a block that ends with its tensor memory": (23, r"tcgen05\.dealloc of tensor memory that thread \d+ loads"),
    "no barrier of the cluster after": (24, r"thread \d+ loads, with no tcgen05\.wait::ld, fences and barrier"),
    "only one block frees": (25, r"waits in tcgen05\.dealloc .* for the other block of its pair"),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernels:
    return emulate("typedef unsigned char uchar;\n// SM100_ALL\n" + SOURCE, tmp_path_factory.mktemp("pairs"))


def arguments(mistake: int) -> tuple[list[np.ndarray | int | TensorMapArgument], np.ndarray]:
    """Of the kernel, and what it computes."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2 * side, 64 * TILES)).astype(np.float16) for side in (ROWS, COLUMNS))
    maps = [
        TensorMapArgument(
            x,
            EncodedMap(0, 0, 2, (x.shape[1], x.shape[0], 1), (2 * x.shape[1], 2 * x.size), (64, side, 1), (1, 1, 1), 8),
        )
        for x, side in ((a, ROWS), (b, COLUMNS))
    ]
    wanted = a.astype(np.float32) @ b.astype(np.float32).T
    return [a, b, np.full(wanted.shape, np.nan, np.float32), mistake, *maps], wanted


def test_two_blocks_multiply_by_one_instruction(kernels: EmulatedKernels) -> None:
    given, wanted = arguments(0)
    kernels.launch_in_orders("products", given, (2,), (128,), SHARED, orders=range(4))
    np.testing.assert_allclose(given[2], wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_undefined_is_an_error(kernels: EmulatedKernels, case: str) -> None:
    mistake, message = MISTAKES[case]
    for order in (0, 2):
        with pytest.raises(EmulationError, match=message):
            kernels.launch("products", arguments(mistake)[0], (2,), (128,), SHARED, order=order)


def test_clusters_divide_the_grid(kernels: EmulatedKernels) -> None:
    with pytest.raises(EmulationError, match="which clusters of 2 do not divide"):
        kernels.launch("products", arguments(0)[0], (3,), (128,), SHARED)


def test_a_block_alone_is_no_pair(kernels: EmulatedKernels) -> None:
    with pytest.raises(EmulationError, match="of a pair of blocks in a cluster that is none"):
        kernels.launch("alone", [np.zeros(1, np.float32)], (1,), (32,))
