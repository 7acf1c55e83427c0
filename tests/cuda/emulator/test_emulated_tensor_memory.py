"""Tensor memory on the emulator: results of `tcgen05`, and what would be undefined on a GPU is an error."""

from __future__ import annotations

import numpy as np
import pytest
from emulate import EmulatedKernels, EmulationError, emulate

# A thread multiplies 128 by 64 with 64 by 16 twice, and four warps load the sums. Rows of `left` are rows of 128 bytes,
# rows of `right` depths of 32.
SOURCE = r"""
#include <cuda_fp16.h>

__device__ __forceinline__ unsigned at(const void *of) { return (unsigned)__cvta_generic_to_shared(of); }
__device__ __forceinline__ void wait(void *barrier, int parity) {
  unsigned complete = 0;
  while (!complete)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(complete) : "r"(at(barrier)), "r"(parity) : "memory");
}
__device__ __forceinline__ void release(unsigned address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" : : "r"(address));
}

extern "C" __global__ void __launch_bounds__(128) products(half* __restrict__ a, half* __restrict__ b,
                                                           float* __restrict__ out, int mistake) {
  extern __shared__ __align__(1024) uchar memory[];
  __shared__ uint64_t barrier[1];
  __shared__ unsigned allocated[1];
  int n = ((int)threadIdx.x), warp = n / 32, lane = n % 32;
  half *left = (half*)memory, *right = left + 128 * 64;
  for (int i = 0; i < 64; ++i) left[n * 64 + ((i / 8) ^ (n % 8)) * 8 + i % 8] = a[n * 64 + i];
  for (int i = 0; i < 8; ++i) right[n / 2 * 16 + ((n % 2) ^ (n / 8 % 2)) * 8 + i] = b[n / 2 * 16 + n % 2 * 8 + i];
  if (n == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(at(barrier)), "r"(1));
  if (warp == 0) {
    if (mistake == 1)
      asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 48;" : : "r"(at(allocated)));
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" : : "r"(at(allocated)));
    if (mistake == 2)
      asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" : : "r"(at(allocated)));
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    if (mistake == 3)
      asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" : : "r"(at(allocated)));
  }
  if (mistake != 4) asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
  unsigned address = allocated[0];
  if (n == 0) {
    for (int i = 0; i < 8; ++i) {
      unsigned long long constants = 1ull << 46, wrong = mistake == 5 ? 0 : constants;
      unsigned long long first = at(left) >> 4 | 64ull << 32 | wrong | 2ull << 61;
      unsigned long long second = at(right) >> 4 | 16ull << 32 | constants | (mistake == 6 ? 3ull : 6ull) << 61;
      unsigned instruction = 1 << 4 | 1 << 16 | 2 << 17 | (mistake == 7 ? 4 : mistake == 8 ? 40 : 8) << 24;
      unsigned to = mistake == 9 ? address + 24 : mistake == 10 && i == 3 ? address + 8 : address;
      asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }"
        : : "r"(to), "l"(first + 2 * (i % 4)), "l"(second + 32 * (i % 4)), "r"(instruction),
            "r"(i > 0 || mistake == 11) : "memory");
      if (i == 7 && mistake == 29) asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %4, 0; "
        "tcgen05.mma.cta_group::1.kind::f16.collector::a::fill [%0], %1, %2, %3, p; }"
        : : "r"(to), "l"(first), "l"(second), "r"(instruction), "r"(1) : "memory");
      if (i == 7 && mistake >= 28 && mistake < 30) asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %4, 0; "
        "tcgen05.mma.cta_group::1.kind::f16.collector::a::lastuse [%0], %1, %2, %3, p; }"
        : : "r"(to), "l"(first + 2), "l"(second), "r"(instruction), "r"(1) : "memory");
    }
    if (mistake != 12) asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
      : : "r"(at(barrier)) : "memory");
    if (mistake == 13) left[7] = half(3.0f);
  }
  if (mistake != 14) wait(barrier, 0);
  if (mistake != 15) asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
  if (mistake == 16 && warp == 0) release(address);
  __syncwarp();
  unsigned from = address + (mistake == 18 && lane == 5) + (mistake == 19 ? 32 : 0);
  from += (mistake == 17 ? 32 : warp * 32) << 16;
  float rows[16], parts[8], *sums = mistake >= 40 ? parts : rows;
  if (mistake < 40) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16];"
      : "=f"(rows[0]), "=f"(rows[1]), "=f"(rows[2]), "=f"(rows[3]), "=f"(rows[4]), "=f"(rows[5]), "=f"(rows[6]),
        "=f"(rows[7]), "=f"(rows[8]), "=f"(rows[9]), "=f"(rows[10]), "=f"(rows[11]), "=f"(rows[12]), "=f"(rows[13]),
        "=f"(rows[14]), "=f"(rows[15])
      : "r"(from) : "memory");
    if (mistake == 20) rows[3] = 0.0f;
    if (mistake == 21) out[n] = rows[0];
    if (mistake != 22) asm volatile("tcgen05.wait::ld.sync.aligned;" : : : "memory");
    if (mistake != 21) for (int i = 0; i < 16; ++i) out[n * 16 + i] = rows[i];
  } else {
    for (int half_of_lanes = 0; half_of_lanes < 2; ++half_of_lanes) {
      asm volatile("tcgen05.ld.sync.aligned.16x256b.x2.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
        : "=f"(parts[0]), "=f"(parts[1]), "=f"(parts[2]), "=f"(parts[3]), "=f"(parts[4]), "=f"(parts[5]),
          "=f"(parts[6]), "=f"(parts[7])
        : "r"(from + (half_of_lanes * 16 << 16)) : "memory");
      asm volatile("tcgen05.wait::ld.sync.aligned;" : : : "memory");
      for (int i = 0; i < 8; ++i) {
        int row = warp * 32 + half_of_lanes * 16 + lane / 4 + i / 2 % 2 * 8;
        out[row * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2] = parts[i];
      }
    }
  }
  if (mistake != 23) asm volatile("tcgen05.fence::before_thread_sync;" : : : "memory");
  if (mistake != 24) __syncthreads();
  if (mistake == 25 || warp) return;
  asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
  if (mistake == 26) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" : : "r"(address));
  release(address);
  if (mistake == 27) release(address);
}
"""
SHARED = 128 * 64 * 2 + 64 * 16 * 2
MISTAKES = {
    "an allocation of 48 columns": (1, "no power of two from 32 to 512"),
    "an allocation that grows": (2, "of more columns than the one before"),
    "an allocation after the last one": (3, "after tcgen05.relinquish_alloc_permit"),
    "no fence of the proxies": (4, r"which thread .* wrote with no fence\.proxy\.async and barrier between"),
    "a matrix descriptor of another architecture": (5, "without its constant"),
    "a swizzle that there is not": (6, "a matrix descriptor of tcgen05.mma that is not emulated"),
    "another number of rows": (7, "of other than 128 rows"),
    "reserved bits": (8, "reserved bits"),
    "columns beyond the allocated ones": (9, "which are not allocated"),
    "sums at other columns": (10, "no commit, wait and tcgen05.fence between|which nothing has written"),
    "adding to what nothing has written": (11, "which nothing has written"),
    "no commit": (12, "lacks 1 arrivals and 0 bytes"),
    "an operand that changes": (13, "an operand of tcgen05.mma of thread 0 has changed"),
    "no wait": (14, "with no commit, wait and tcgen05.fence between"),
    "no fence after the wait": (15, "with no commit, wait and tcgen05.fence between|with no barrier between"),
    "sums in what is freed": (16, "which are not allocated"),
    "lanes of another warp": (17, "from lane 32, of lanes from"),
    "an address that differs in its warp": (18, "differs in its warp"),
    "columns that are not allocated": (19, "which are not allocated"),
    "a register that changes": (20, "has changed before tcgen05.wait::ld"),
    "no wait for loads": (22, r"that thread \d+ loads, with no tcgen05.wait::ld|has waited for tcgen05.ld"),
    "no fence after loads": (23, r"that thread \d+ loads, with no tcgen05.wait::ld, fences and barrier"),
    "no barrier after loads": (24, r"that thread \d+ loads, with no tcgen05.wait::ld, fences and barrier"),
    "memory that is not freed": (25, "gives back the tensor memory"),
    "freeing another number of columns": (26, "another number of columns"),
    "freeing it twice": (27, "of what is not allocated"),
    "reusing rows that nothing has kept": (28, "reuses rows that the one before has not kept"),
    "reusing other rows than were kept": (29, "reuses rows that the one before has not kept"),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernels:
    return emulate("typedef unsigned char uchar;\n" + SOURCE, tmp_path_factory.mktemp("tensor_memory"))


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, columns)).astype(np.float16) for rows, columns in ((128, 64), (64, 16)))
    return a, b, np.full((128, 16), np.nan, np.float32)


@pytest.mark.parametrize("way", [0, 40], ids=["rows", "fragments"])
def test_a_thread_multiplies_swizzled_matrices(kernels: EmulatedKernels, way: int) -> None:
    a, b, out = operands()
    kernels.launch_in_orders("products", (a, b, out, way), (1,), (128,), SHARED, orders=range(4))
    np.testing.assert_allclose(out, 2 * (a.astype(np.float32) @ b.astype(np.float32)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_undefined_is_an_error(kernels: EmulatedKernels, case: str) -> None:
    mistake, message = MISTAKES[case]
    with pytest.raises(EmulationError, match=message):
        kernels.launch_in_orders("products", (*operands(), mistake), (1,), (128,), SHARED)


def test_registers_are_nan_before_loads_are_waited_for(kernels: EmulatedKernels) -> None:
    a, b, out = operands()
    kernels.launch("products", (a, b, out, 21), (1,), (128,), SHARED)
    assert np.isnan(out).all()
