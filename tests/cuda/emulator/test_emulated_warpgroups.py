"""Products of warpgroups on the emulator: results of `wgmma`, and what would be undefined on a GPU is an error."""

from __future__ import annotations

import numpy as np
import pytest
from emulate import EmulatedKernels, EmulationError, emulate

# A warpgroup multiplies 64 by 64 with 64 by 16. Rows of `left` are rows of 128 bytes, rows of `right` are depths of 32.
SOURCE = r"""
#include <cuda_fp16.h>

extern "C" __global__ void __launch_bounds__(128) products(half* __restrict__ a, half* __restrict__ b,
                                                           float* __restrict__ out, int mistake) {
  extern __shared__ __align__(1024) uchar memory[];
  int n = ((int)threadIdx.x), row = n / 2;
  half *left = (half*)memory, *right = left + 64 * 64;
  for (int i = 0; i < 32; ++i) {
    int depth = n % 2 * 32 + i;
    left[row * 64 + ((depth / 8) ^ (row % 8)) * 8 + depth % 8] = a[row * 64 + depth];
  }
  for (int i = 0; i < 8; ++i) right[row * 16 + ((n % 2) ^ (row / 4 % 2)) * 8 + i] = b[row * 16 + n % 2 * 8 + i];
  if (mistake != 1 && mistake != 2) asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
  if (mistake == 2) asm volatile("fence.proxy.async;" : : : "memory");
  float sums[8] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
  unsigned long long first = (unsigned long long)__cvta_generic_to_shared(left) >> 4 | 64ull << 32 | 1ull << 62;
  unsigned long long second = (unsigned long long)__cvta_generic_to_shared(right) >> 4 | 16ull << 32 | 3ull << 62;
  if (mistake != 3) asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
  if (mistake == 4 && n >= 96) return;
  for (int i = 0; i < 4; ++i) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, "
      "1, 1, 1, 0, 1;"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]),
        "+f"(sums[7])
      : "l"(first + 2 * i), "l"(second + 32 * i + (mistake == 5 && n == 9)));
    if (mistake == 6 && i == 2) sums[3] = 0.0f;
  }
  if (mistake != 7) asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
  if (mistake == 8) {
    __syncthreads();
    left[n] = left[n + 128];
  }
  if (mistake == 9) {
    asm volatile("wgmma.wait_group.sync.aligned 1;" : : : "memory");
    out[n] = sums[0];
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
  if (mistake == 9) return;
  for (int i = 0; i < 8; ++i) {
    int own_row = n / 32 * 16 + n % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + n % 4 * 2 + i % 2;
    out[own_row * 16 + column] = sums[i];
  }
}
"""
# A warpgroup multiplies 64 by 16, in registers, with 16 by 16; `sums` need no value, for the product writes them.
FRAGMENTS = r"""
extern "C" __global__ void __launch_bounds__(128) fragments(half* __restrict__ a, half* __restrict__ b,
                                                            float* __restrict__ out, int mistake) {
  extern __shared__ __align__(1024) uchar memory[];
  int n = ((int)threadIdx.x), row = n / 32 * 16 + n % 32 / 4;
  half *right = (half*)memory;
  if (n < 32) for (int i = 0; i < 8; ++i)
    right[n / 2 * 16 + ((n % 2) ^ (n / 2 / 4 % 2)) * 8 + i] = b[n / 2 * 16 + n % 2 * 8 + i];
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
  unsigned left[4];
  for (int i = 0; i < 4; ++i) left[i] = *(unsigned*)(a + (row + i % 2 * 8) * 16 + n % 4 * 2 + i / 2 * 8);
  float sums[8];
  for (int i = 0; i < 8; ++i) sums[i] = __builtin_nanf("");
  unsigned long long second = (unsigned long long)__cvta_generic_to_shared(right) >> 4 | 16ull << 32 | 3ull << 62;
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
    "{%8, %9, %10, %11}, %12, 0, 1, 1, 1;"
    : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]),
      "+f"(sums[7])
    : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(second));
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
  if (mistake && n == 77) left[2] = 0u;
  asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
  left[2] = 0u;
  for (int i = 0; i < 8; ++i) out[(row + i / 2 % 2 * 8) * 16 + i / 4 * 8 + n % 4 * 2 + i % 2] = sums[i];
}
"""
SHARED = 64 * 64 * 2 + 64 * 16 * 2
MISTAKES = {
    "no fence of the proxies": (1, r"which thread .* wrote with no fence\.proxy\.async and barrier between"),
    "a fence after the barrier": (2, r"wrote with no fence\.proxy\.async and barrier between"),
    "no fence of registers": (3, r"without wgmma\.fence"),
    "threads that do not come": (4, "of its warpgroup .* for threads of it that never arrive"),
    "different operands": (5, "descriptors of a wgmma differ"),
    "an accumulator that changes": (6, "accumulator of wgmma has changed"),
    "no group": (7, "ends before it has waited for wgmma"),
    "an operand that changes": (8, "operand of wgmma has changed"),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernels:
    return emulate("typedef unsigned char uchar;\n" + SOURCE + FRAGMENTS, tmp_path_factory.mktemp("warpgroups"))


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, columns)).astype(np.float16) for columns in (64, 16))
    return a, b, np.full((64, 16), np.nan, np.float32)


def test_a_warpgroup_multiplies_swizzled_matrices(kernels: EmulatedKernels) -> None:
    a, b, out = operands()
    kernels.launch_in_orders("products", (a, b, out, 0), (1,), (128,), SHARED)
    np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32) + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_undefined_is_an_error(kernels: EmulatedKernels, case: str) -> None:
    mistake, message = MISTAKES[case]
    with pytest.raises(EmulationError, match=message):
        kernels.launch_in_orders("products", (*operands(), mistake), (1,), (128,), SHARED)


def test_accumulators_are_nan_before_their_group_is_waited_for(kernels: EmulatedKernels) -> None:
    a, b, out = operands()
    kernels.launch("products", (a, b, out, 9), (1,), (128,), SHARED)
    assert np.isnan(out).all()


def test_left_operands_in_registers_are_multiplied(kernels: EmulatedKernels) -> None:
    a, b, out = operands()
    kernels.launch_in_orders("fragments", (a[:, :16].copy(), b, out, 0), (1,), (128,), 512)
    np.testing.assert_allclose(out, a[:, :16].astype(np.float32) @ b[:16].astype(np.float32), rtol=1e-5, atol=1e-5)


def test_left_operands_in_registers_must_not_change(kernels: EmulatedKernels) -> None:
    a, b, out = operands()
    with pytest.raises(EmulationError, match="register of wgmma's left operand has changed"):
        kernels.launch_in_orders("fragments", (a[:, :16].copy(), b, out, 1), (1,), (128,), 512)
