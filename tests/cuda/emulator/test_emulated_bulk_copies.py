"""Bulk copies and mbarriers on the emulator: a pipeline's results, and what would be undefined on a GPU is an error."""

from __future__ import annotations

import numpy as np
import pytest
from emulate import EmulatedKernels, EmulationError, TensorMapArgument, emulate

from nnefc.targets.codegen.cuda.device_functions import EncodedMap

TILES, STAGES = 5, 2

# A warpgroup multiplies 64 by 320 with 320 by 16, transposed, in five tiles of the depth, which thread 128 copies.
SOURCE = r"""
#include <cuda_fp16.h>
struct alignas(64) CUtensorMap { uint64_t opaque[16]; };

__device__ __forceinline__ void init(void *barrier, int arrivals) {
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(at), "r"(arrivals));
}
__device__ __forceinline__ void arrive(void *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"((unsigned)__cvta_generic_to_shared(barrier)));
}
__device__ __forceinline__ void expect(void *barrier, int bytes) {
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(at), "r"(bytes));
}
__device__ __forceinline__ void wait(void *barrier, int parity) {
  unsigned at = (unsigned)__cvta_generic_to_shared(barrier), complete = 0;
  while (!complete)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(complete) : "r"(at), "r"(parity) : "memory");
}
__device__ __forceinline__ void copy(void *to, void *barrier, const CUtensorMap &map, int x, int y) {
  asm volatile(
    "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
    : : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(&map), "r"(x), "r"(y), "r"(0),
        "r"((unsigned)__cvta_generic_to_shared(barrier)) : "memory");
}

extern "C" __global__ void __launch_bounds__(32) single(float* __restrict__ a, float* __restrict__ out,
    const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) uchar memory[];
  __shared__ uint64_t barrier[1];
  int n = ((int)threadIdx.x);
  if (n == 0) {
    init(barrier, 1);
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
    expect(barrier, 128);
    copy(memory, barrier, map, 0, 0);
  }
  __syncthreads();
  wait(barrier, 0);
  out[n] = ((float*)memory)[n];
}

extern "C" __global__ void __launch_bounds__(160) pipeline(half* __restrict__ a, half* __restrict__ b,
    float* __restrict__ out, int mistake, const __grid_constant__ CUtensorMap map_a,
    const __grid_constant__ CUtensorMap map_b) {
  extern __shared__ __align__(1024) uchar memory[];
  __shared__ uint64_t barriers[4];
  int n = ((int)threadIdx.x);
  half *left = (half*)memory, *right = left + 2 * 64 * 64;
  if (mistake == 1) left[n] = half(1.0f);
  if (n == 0) {
    for (int i = 0; i < 2; ++i) init(&barriers[i], 1), init(&barriers[2 + i], 4);
    if (mistake != 2) asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  }
  if (mistake == 1 && n == 9) left[n] = half(2.0f);
  if (mistake != 3) __syncthreads();
  if (n < 128) {
    float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (int tile = 0; tile < 5; ++tile) {
      int stage = tile % 2;
      if (mistake == 4 && tile == 1) out[n] = left[64 * 64 + n];
      int parity = tile / 2 % 2 ^ (mistake == 6 && tile == 1);
      if (!(mistake == 5 && tile == 2 && n == 40)) wait(&barriers[stage], parity);
      unsigned long long layout = 64ull << 32 | 1ull << 62;
      unsigned long long first = layout | (unsigned)__cvta_generic_to_shared(left + stage * 64 * 64) >> 4;
      unsigned long long second = layout | (unsigned)__cvta_generic_to_shared(right + stage * 16 * 64) >> 4;
      asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
      for (int i = 0; i < 4; ++i)
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, "
          "1, 1, 1, 0, 0;"
          : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]),
            "+f"(sums[7])
          : "l"(first + 2 * i), "l"(second + 2 * i));
      asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
      if (mistake == 7 && n % 32 == 0) arrive(&barriers[2 + stage]);
      asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
      if (mistake == 8 && n == 32) continue;
      if (mistake != 7 && n % 32 == 0) arrive(&barriers[2 + stage]);
      if (mistake == 9 && n == 64) arrive(&barriers[2 + stage]);
    }
    for (int i = 0; i < 8; ++i)
      out[(n / 32 * 16 + n % 32 / 4 + i / 2 % 2 * 8) * 16 + i / 4 * 8 + n % 4 * 2 + i % 2] = sums[i];
  } else if (n == 128) {
    for (int tile = 0; tile < 5 + (mistake == 10); ++tile) {
      int stage = tile % 2;
      if (mistake != 11) wait(&barriers[2 + stage], 1 - tile / 2 % 2);
      if (mistake != 12) expect(&barriers[stage], 80 * 64 * 2 + (mistake == 13 ? 16 : mistake == 14 ? -16 : 0));
      else arrive(&barriers[stage]);
      copy(left + stage * 64 * 64 + (mistake == 15 ? 32 : 0), &barriers[stage], map_a, 64 * tile, 0);
      copy(right + stage * 16 * 64, &barriers[stage], map_b, 64 * tile, 0);
    }
  }
}
"""
SHARED = STAGES * (64 + 16) * 64 * 2
MISTAKES = {
    "a write with no fence before a copy": (
        1,
        r"a bulk copy to byte .* has accessed with no fence\.proxy\.async after it",
    ),
    "a barrier that copies do not see": (2, r"initialized with no fence\.proxy\.async and barrier after it"),
    "a barrier that threads do not see": (3, r"(?:initialized with no barrier between|is not initialized)"),
    "a load that does not wait": (
        4,
        "a read of byte .* which a bulk copy writes whose mbarrier the thread has not waited",
    ),
    "a product that does not wait": (5, "wgmma reads byte .* whose mbarrier thread 40 has not waited for"),
    "a wait for another phase": (6, r"wgmma reads byte .* has not waited for|lacks 1 arrivals and 0 bytes"),
    "a tile that is given back too early": (7, "a bulk copy to byte .* which wgmma of warpgroup 0 may still read"),
    "a warp that does not arrive": (8, "lacks 1 arrivals and 0 bytes"),
    "a warp that arrives twice": (9, "more arrivals at an mbarrier than its phase has|may still read"),
    "a copy without a wait": (10, "ends before a thread has waited for a bulk copy"),
    "a tile that is overwritten": (11, "more arrivals at an mbarrier|another one writes|warpgroup 0 may still read"),
    "bytes that are not expected": (12, "its bytes were not expected|whose mbarrier|after the phase"),
    "more bytes than come": (13, "lacks 0 arrivals and 16 bytes"),
    "fewer bytes than come": (14, "lacks 0 arrivals and -16 bytes"),
    "an address between tiles": (15, "a multiple of 128"),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernels:
    return emulate("typedef unsigned char uchar;\n" + SOURCE, tmp_path_factory.mktemp("bulk"))


def arguments(mistake: int, rows: int = 64) -> tuple[list[np.ndarray | int | TensorMapArgument], np.ndarray]:
    """Of the kernel, and what it computes."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((side, 64 * TILES)).astype(np.float16) for side in (rows, 16))
    maps = [
        TensorMapArgument(
            x,
            EncodedMap(0, 0, 2, (x.shape[1], x.shape[0], 1), (2 * x.shape[1], 2 * x.size), (64, side, 1), (1, 1, 1), 8),
        )
        for x, side in ((a, 64), (b, 16))
    ]
    wanted = np.zeros((64, 16), np.float32)
    wanted[:rows] = a.astype(np.float32) @ b.astype(np.float32).T
    return [a, b, np.full((64, 16), np.nan, np.float32), mistake, *maps], wanted


@pytest.mark.parametrize("rows", [64, 41])
def test_a_thread_copies_what_a_warpgroup_multiplies(kernels: EmulatedKernels, rows: int) -> None:
    given, wanted = arguments(0, rows)
    kernels.launch_in_orders("pipeline", given, (1,), (160,), SHARED, orders=range(4))
    np.testing.assert_allclose(given[2], wanted, rtol=1e-5, atol=1e-4)


def test_copies_round_float32_to_the_nearest_tf32(kernels: EmulatedKernels) -> None:
    step = 2.0**-10  # from 1 to the next TF32
    pairs = {
        1 + step / 2: 1,
        1 + 3 * step / 2: 1 + 2 * step,  # halfway between two: the even one
        1 + step / 2 + 2.0**-23: 1 + step,
        -1 - step / 4: -1,
        2 - step / 4: 2,
        3.5: 3.5,
        3.4028234e38: np.inf,
        -np.inf: -np.inf,
        2.0**-126: 2.0**-126,
        2.0**-149: 0,
    }
    a, out = np.zeros(32, np.float32), np.full(32, 7, np.float32)
    a[: len(pairs) + 1] = [*pairs, np.nan]
    tensor_map = TensorMapArgument(a, EncodedMap(0, 0, 4, (32, 1, 1), (128, 128), (32, 1, 1), (1, 1, 1), 8))
    kernels.launch_in_orders("single", [a, out, tensor_map], (1,), (32,), 128)
    np.testing.assert_array_equal(out[: len(pairs) + 1], np.array([*pairs.values(), np.nan], np.float32))


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_undefined_is_an_error(kernels: EmulatedKernels, case: str, order: int) -> None:
    mistake, message = MISTAKES[case]
    with pytest.raises(EmulationError, match=message):
        kernels.launch("pipeline", arguments(mistake)[0], (1,), (160,), SHARED, order=order)
