"""Arithmetic of the emulator: 16-bit floats, functions of the math library, and products by tensor cores."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulate import EmulatedKernels, emulate

SOURCE = r"""
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>

extern "C" __global__ void in_fp16(half* __restrict__ a, half* __restrict__ b, half* __restrict__ out) {
  int n = ((int)blockIdx.x) * 256 + ((int)threadIdx.x);
  out[n] = a[n] + b[n];
  out[65536 + n] = a[n] * b[n];
  out[131072 + n] = a[n] / b[n];
  out[196608 + n] = __float2half_rn((float)a[n] * 3.0f);
  out[262144 + n] = hexp(a[n]);
  out[327680 + n] = __hfma(a[n], b[n], a[n]);
  ((half2*)(out + 393216))[n] = make_half2(-a[n], __hmax(a[n], b[n]));
}

extern "C" __global__ void bfloats(nv_bfloat16* __restrict__ a, nv_bfloat16* __restrict__ b,
                                   nv_bfloat16* __restrict__ out) {
  int n = ((int)blockIdx.x) * 256 + ((int)threadIdx.x);
  out[n] = a[n] + b[n];
  out[65536 + n] = a[n] * b[n];
  out[131072 + n] = (nv_bfloat16)((float)a[n] * 1.001f);
}

extern "C" __global__ void mathematics(float* __restrict__ in, float* __restrict__ out) {
  int n = ((int)threadIdx.x);
  float x = in[n];
  out[n] = expf(x) + __expf(x);
  out[32 + n] = rsqrtf(fabsf(x) + 1.0f);
  out[64 + n] = erff(x);
  out[96 + n] = fmaf(x, x, 2.0f);
  out[128 + n] = max(x, 0.5f) + min(x, -0.5f);
  out[160 + n] = powf(fabsf(x), 1.5f);
  out[192 + n] = tanhf(x);
  out[224 + n] = floorf(x) + truncf(x) + roundf(x);
  out[256 + n] = (float)__dp4a((int)0x01ff0203, (int)0x02020202, n);
  out[288 + n] = __int_as_float(__float_as_int(x));
  out[320 + n] = (float)(__float2int_rn(x * 10.0f) + abs(-n) + max(n, 7));
}

extern "C" __global__ void half_tiles(half* __restrict__ a, half* __restrict__ b, float* __restrict__ out) {
  __shared__ alignas(64) half tile_a[256];
  __shared__ alignas(64) half tile_b[128];
  int n = ((int)threadIdx.x);
  for (int i = 0; i < 8; ++i) tile_a[n * 8 + i] = a[n * 8 + i];
  for (int i = 0; i < 4; ++i) tile_b[n * 4 + i] = b[n * 4 + i];
  __syncthreads();
  unsigned a_[4], b_[2];
  float c[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  unsigned address = __cvta_generic_to_shared(tile_a + (n % 16) * 16 + (n / 16) * 8);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
    : "=r"(a_[0]), "=r"(a_[1]), "=r"(a_[2]), "=r"(a_[3]) : "r"(address));
  address = __cvta_generic_to_shared(tile_b + (n % 16) * 8);
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
    : "=r"(b_[0]), "=r"(b_[1]) : "r"(address));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};\n"
    : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
    : "r"(a_[0]), "r"(a_[1]), "r"(a_[2]), "r"(a_[3]), "r"(b_[0]), "r"(b_[1]),
      "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  for (int i = 0; i < 4; ++i) out[(n / 4 + i / 2 * 8) * 8 + n % 4 * 2 + i % 2] = c[i];
}

extern "C" __global__ void float_tiles(float* __restrict__ a, float* __restrict__ b, float* __restrict__ out) {
  int g = ((int)threadIdx.x) / 4, q = ((int)threadIdx.x) % 4;
  float a_[4] = {a[g * 8 + q], a[(g + 8) * 8 + q], a[g * 8 + q + 4], a[(g + 8) * 8 + q + 4]};
  float b_[2] = {b[q * 8 + g], b[(q + 4) * 8 + g]};
  unsigned ra[4], rb[2];
  float c[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  for (int i = 0; i < 4; ++i) asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(ra[i]) : "f"(a_[i]));
  for (int i = 0; i < 2; ++i) asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(rb[i]) : "f"(b_[i]));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
    : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + q * 2 + i % 2] = c[i];
}

extern "C" __global__ void byte_tiles(uchar* __restrict__ a, signed char* __restrict__ b, int* __restrict__ out) {
  int g = ((int)threadIdx.x) / 4, q = ((int)threadIdx.x) % 4;
  unsigned a_[4], b_[2];
  int c[4] = {1, 1, 1, 1};
  for (int i = 0; i < 4; ++i) a_[i] = *(unsigned *)(a + (g + i % 2 * 8) * 32 + i / 2 * 16 + q * 4);
  for (int i = 0; i < 2; ++i) b_[i] = *(unsigned *)(b + g * 32 + i * 16 + q * 4);
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};\n"
    : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
    : "r"(a_[0]), "r"(a_[1]), "r"(a_[2]), "r"(a_[3]), "r"(b_[0]), "r"(b_[1]),
      "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + q * 2 + i % 2] = c[i];
}

extern "C" __global__ void fragments(half* __restrict__ a, half* __restrict__ b, float* __restrict__ out) {
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> a_[1];
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::col_major> b_[1];
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c[1];
  nvcuda::wmma::fill_fragment(c[0], 0x1p+0f);
  nvcuda::wmma::load_matrix_sync(a_[0], (&(a[0])), 16);
  nvcuda::wmma::load_matrix_sync(b_[0], (&(b[0])), 16);
  nvcuda::wmma::mma_sync(c[0], a_[0], b_[0], c[0]);
  nvcuda::wmma::store_matrix_sync((&(out[0])), c[0], 16, nvcuda::wmma::mem_row_major);
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernels:
    return emulate(
        "typedef unsigned char uchar;\ntypedef unsigned int uint;\n" + SOURCE, tmp_path_factory.mktemp("kernels")
    )


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def test_half_precision_rounds_as_numpy_does(kernels: EmulatedKernels) -> None:
    a = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16)
    b = np.random.default_rng(1).permutation(a)
    out = np.zeros((8, 65536), np.float16)
    kernels.launch("in_fp16", (a, b, out), (256,), (256,))
    pairs = out[6:].reshape(65536, 2)
    with np.errstate(all="ignore"):
        exact = a.astype(np.float64) * b.astype(np.float64) + a.astype(np.float64)
        for got, expected in (
            (out[0], a + b),
            (out[1], a * b),
            (out[2], a / b),
            (out[3], (a.astype(np.float32) * np.float32(3)).astype(np.float16)),
            (out[5], exact.astype(np.float16)),
            (pairs[:, 0], -a),
            (pairs[:, 1], np.fmax(a, b)),
        ):
            np.testing.assert_array_equal(np.where(got == 0, 0, got), np.where(expected == 0, 0, expected))
        np.testing.assert_allclose(out[4], np.exp(a.astype(np.float32)).astype(np.float16), rtol=2e-3)


def test_bfloat_precision_rounds_as_ml_dtypes_does(kernels: EmulatedKernels) -> None:
    a = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(ml_dtypes.bfloat16)
    b = np.random.default_rng(2).permutation(a.view(np.uint16)).view(ml_dtypes.bfloat16)
    out = np.zeros((3, 65536), ml_dtypes.bfloat16)
    kernels.launch("bfloats", (a, b, out), (256,), (256,))
    with np.errstate(all="ignore"):
        scaled = (a.astype(np.float32) * np.float32(1.001)).astype(ml_dtypes.bfloat16)
        for got, expected in zip(out, (a + b, a * b, scaled), strict=True):
            np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


def test_functions_of_the_math_library(kernels: EmulatedKernels) -> None:
    x, out = random(32), np.zeros((11, 32), np.float32)
    kernels.launch("mathematics", (x, out), (1,), (32,))
    n = np.arange(32)
    erf = np.vectorize(__import__("math").erf)(x)
    half_away = np.sign(x) * np.floor(np.abs(x) + 0.5)
    expected = [
        2 * np.exp(x),
        1 / np.sqrt(np.abs(x) + 1),
        erf,
        x * x + 2,
        np.maximum(x, 0.5) + np.minimum(x, -0.5),
        np.abs(x) ** 1.5,
        np.tanh(x),
        np.floor(x) + np.trunc(x) + half_away,
        2 * (1 - 1 + 2 + 3) + n,
        x,
        np.rint(x * np.float32(10)) + n + np.maximum(n, 7),
    ]
    np.testing.assert_allclose(out, np.stack(expected), rtol=1e-6, atol=1e-6)


def test_tensor_cores_multiply_fp16(kernels: EmulatedKernels) -> None:
    a, b, out = (
        random(16, 16).astype(np.float16),
        random(16, 8).astype(np.float16),
        np.full((16, 8), np.nan, np.float32),
    )
    kernels.launch_in_orders("half_tiles", (a, b, out), (1,), (32,))
    np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32) + 1, rtol=1e-6, atol=1e-6)
    out = np.full((16, 16), np.nan, np.float32)
    b = random(2, 16, 8).reshape(16, 16).astype(np.float16)
    kernels.launch_in_orders("fragments", (a, b, out), (1,), (32,))
    np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32).T + 1, rtol=1e-6, atol=1e-6)


def test_tensor_cores_multiply_floats_of_eleven_bits(kernels: EmulatedKernels) -> None:
    a, b, out = random(16, 8), random(8, 8), np.full((16, 8), np.nan, np.float32)
    kernels.launch_in_orders("float_tiles", (a, b, out), (1,), (32,))
    rounded_a, rounded_b = (((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32) for x in (a, b))
    np.testing.assert_allclose(out, rounded_a @ rounded_b + 1, rtol=1e-6, atol=1e-6)
    assert np.abs(out - (a @ b + 1)).max() > 1e-5


def test_tensor_cores_multiply_bytes(kernels: EmulatedKernels) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (16, 32), np.uint8), rng.integers(-128, 128, (8, 32), np.int8)
    out = np.full((16, 8), -1, np.int32)
    kernels.launch_in_orders("byte_tiles", (a, b, out), (1,), (32,))
    assert np.array_equal(out, a.astype(np.int32) @ b.astype(np.int32).T + 1)
