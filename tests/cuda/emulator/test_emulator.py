"""The emulator itself: threads, memory and barriers do as documented, and what would be wrong on a GPU is an error."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from emulate import EmulatedKernels, EmulationError, emulate

SOURCE = r"""
#include <cstdint>

extern "C" __global__ void __launch_bounds__(64) indices(int* __restrict__ out) {
  int block = ((int)blockIdx.x) + ((int)gridDim.x) * (((int)blockIdx.y) + ((int)gridDim.y) * ((int)blockIdx.z));
  int thread = ((int)threadIdx.x) + ((int)blockDim.x) * (((int)threadIdx.y) + ((int)blockDim.y) * ((int)threadIdx.z));
  out[block * (int)(blockDim.x * blockDim.y * blockDim.z) + thread] = block * 1000 + thread;
}

extern "C" __global__ void reversed(float* __restrict__ in, float* __restrict__ out) {
  __shared__ alignas(64) float tile[64];
  tile[((int)threadIdx.x)] = in[((int)blockIdx.x) * 64 + ((int)threadIdx.x)];
  __syncthreads();
  out[((int)blockIdx.x) * 64 + ((int)threadIdx.x)] = tile[63 - ((int)threadIdx.x)];
}

extern "C" __global__ void reversed_without_barrier(float* __restrict__ in, float* __restrict__ out) {
  __shared__ alignas(64) float tile[64];
  tile[((int)threadIdx.x)] = in[((int)threadIdx.x)];
  out[((int)threadIdx.x)] = tile[63 - ((int)threadIdx.x)];
}

extern "C" __global__ void overwritten_too_soon(float* __restrict__ in, float* __restrict__ out) {
  __shared__ alignas(64) float tile[64];
  for (int i = 0; i < 2; ++i) {
    tile[((int)threadIdx.x)] = in[i * 64 + ((int)threadIdx.x)];
    __syncthreads();
    out[i * 64 + ((int)threadIdx.x)] = tile[63 - ((int)threadIdx.x)];
  }
}

extern "C" __global__ void reversed_dynamic(float* __restrict__ in, float* __restrict__ out) {
  extern __shared__ __align__(64) uchar memory[];
  ((float*)memory)[((int)threadIdx.x) + 2] = in[((int)threadIdx.x)];
  __syncthreads();
  out[((int)threadIdx.x)] = ((float*)memory)[2 + 63 - ((int)threadIdx.x)];
}

extern "C" __global__ void never_written(float* __restrict__ out) {
  __shared__ float tile[4];
  out[((int)threadIdx.x)] = tile[((int)threadIdx.x)];
}

extern "C" __global__ void all_write_the_same(float* __restrict__ out) {
  __shared__ float tile[1];
  tile[0] = 2.0f;
  out[((int)threadIdx.x)] = tile[0];
}

extern "C" __global__ void within_the_warp(float* __restrict__ in, float* __restrict__ out) {
  __shared__ float tile[64];
  tile[((int)threadIdx.x)] = in[((int)threadIdx.x)];
  __syncwarp();
  out[((int)threadIdx.x)] = tile[((int)threadIdx.x) ^ 1];
}

extern "C" __global__ void shared_index_too_large(float* __restrict__ out) {
  __shared__ float tile[32];
  tile[((int)threadIdx.x)] = 0.0f;
  out[((int)threadIdx.x)] = 0.0f;
}

extern "C" __global__ void local_index_too_large(float* __restrict__ out, int count) {
  float own[4];
  for (int i = 0; i < count; ++i) own[i] = out[0];
  out[0] = own[count - 1];
}

extern "C" __global__ void four_at_once(float* __restrict__ in, float* __restrict__ out, int offset) {
  float4 v = *(float4*)(in + offset + ((int)threadIdx.x) * 4);
  *(float4*)(out + ((int)threadIdx.x) * 4) = make_float4(v.w, v.z, v.y, v.x);
}

extern "C" __global__ void blocks_share(float* __restrict__ out) {
  out[0] = (float)((int)blockIdx.x);
}

extern "C" __global__ void doubles_in_place(short* data) {
  data[((int)threadIdx.x)] = data[((int)threadIdx.x)] * 2;
}

extern "C" __global__ void counts(int* __restrict__ out) {
  atomicAdd(out, 1);
  atomicMax(out + 1, ((int)threadIdx.x));
  atomicMin(out + 2, -((int)blockIdx.x));
  atomicCAS(out + 3, 0, 5);
}

extern "C" __global__ void first_come(int* __restrict__ out) {
  if (atomicAdd(out, 1) == 0) out[1] = ((int)threadIdx.x);
}

extern "C" __global__ void added_by_the_last(float* __restrict__ in, float* __restrict__ parts,
                                             uint* __restrict__ arrived, float* __restrict__ out, int mistake) {
  parts[((int)blockIdx.x) * 64 + ((int)threadIdx.x)] = in[((int)blockIdx.x) * 64 + ((int)threadIdx.x)];
  if (mistake != 1) __syncthreads();
  int last = 0;
  if (((int)threadIdx.x) == 0) {
    if (mistake != 2) __threadfence();
    last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    if (mistake != 3) __threadfence();
  }
  if (__syncthreads_or(last)) {
    float sum = 0;
    for (int i = 0; i < (int)gridDim.x; ++i) sum += parts[i * 64 + 63 - ((int)threadIdx.x)];
    out[((int)threadIdx.x)] = sum;
  }
}

extern "C" __global__ void barrier_for_some(float* __restrict__ out) {
  if (((int)threadIdx.x) < 32) {
    __syncthreads();
  }
  out[((int)threadIdx.x)] = 1.0f;
}

extern "C" __global__ void two_barriers(float* __restrict__ out) {
  if (((int)threadIdx.x) < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[((int)threadIdx.x)] = 1.0f;
}

extern "C" __global__ void lane_missing(int* __restrict__ out) {
  int value = ((int)threadIdx.x);
  if (((int)threadIdx.x) < 31) value = __shfl_xor_sync(0xffffffff, value, 1, 32);
  __syncthreads();
  out[((int)threadIdx.x)] = value;
}

extern "C" __global__ void sum_of_those_who_are_there(float* __restrict__ in, float* __restrict__ out) {
  float value = in[((int)threadIdx.x)];
  uint mask = __activemask();
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_down_sync(mask, value, offset, 32);
  if (((int)threadIdx.x) == 0) out[0] = value;
}

extern "C" __global__ void shuffles(float* __restrict__ in, float* __restrict__ out) {
  float value = in[((int)threadIdx.x)];
  uint mask = 0xffffffffu;
  int n = ((int)threadIdx.x);
  out[n] = __shfl_sync(mask, value, 5, 32);
  out[64 + n] = __shfl_up_sync(mask, value, 3, 8);
  out[128 + n] = __shfl_down_sync(mask, value, 3, 8);
  out[192 + n] = __shfl_xor_sync(mask, value, 17);
  out[256 + n] = (float)__popc(__ballot_sync(mask, value > 0.0f));
  out[320 + n] = __any_sync(mask, n == 40) ? 1.0f : 0.0f;
  out[384 + n] = __all_sync(mask, n >= 32) ? 1.0f : 0.0f;
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_down_sync(mask, value, offset, 32);
  out[448 + n] = value;
}

extern "C" __global__ void half_a_warp(uint* __restrict__ out) {
  if (((int)threadIdx.x) % 2 == 0) {
    out[((int)threadIdx.x)] = __activemask();
  } else {
    out[((int)threadIdx.x)] = __shfl_sync(__activemask(), ((uint)threadIdx.x), 0, 32);
  }
}

extern "C" __global__ void copies(float* __restrict__ in, float* __restrict__ out, int wait) {
  __shared__ alignas(64) float tile[128];
  int n = ((int)threadIdx.x);
  unsigned first = __cvta_generic_to_shared(tile + n * 4);
  unsigned second = first + 256;
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;\n" :: "r"(first), "l"((void*)(in + n * 4)), "n"(16));
  asm volatile("cp.async.commit_group;");
  __asm__ __volatile__("cp.async.cg.shared.global.L2::128B [%0], [%1], %2, %3;"
    :: "r"(second), "l"((void*)(in + 64 + n * 4)), "n"(16), "r"(8) : "memory");
  asm volatile("cp.async.commit_group;");
  if (wait == 0) { asm volatile("cp.async.wait_group 0;"); }
  if (wait == 1) { asm volatile("cp.async.wait_group 1;"); }
  for (int i = 0; i < 4; ++i) {
    out[n * 4 + i] = tile[n * 4 + i];
    out[64 + n * 4 + i] = tile[64 + n * 4 + i];
  }
}

extern "C" __global__ void unknown_assembly(int* __restrict__ out, int reached) {
  if (reached) asm volatile("bar.sync %0, %1;" :: "r"(1), "r"(32));
}

extern "C" __global__ void traps(int* __restrict__ out) {
  if (((int)threadIdx.x) == 3) __trap();
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernels:
    return emulate(
        "typedef unsigned char uchar;\ntypedef unsigned int uint;\n" + SOURCE, tmp_path_factory.mktemp("kernels")
    )


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def test_every_thread_of_every_block_knows_its_indices(kernels: EmulatedKernels) -> None:
    out = np.full(2 * 3 * 2 * 24, -1, np.int32)
    kernels.launch_in_orders("indices", (out,), (2, 3, 2), (4, 3, 2))
    np.testing.assert_array_equal(out, [block * 1000 + thread for block in range(12) for thread in range(24)])


@pytest.mark.parametrize(("name", "blocks", "shared"), [("reversed", 3, 0), ("reversed_dynamic", 1, 264)])
def test_threads_meet_in_shared_memory(kernels: EmulatedKernels, name: str, blocks: int, shared: int) -> None:
    data, out = random(blocks, 64), np.full((blocks, 64), np.nan, np.float32)
    kernels.launch_in_orders(name, (data, out), (blocks,), (64,), shared)
    np.testing.assert_array_equal(out, data[:, ::-1])


def test_shared_memory_begins_as_nan(kernels: EmulatedKernels) -> None:
    out = np.zeros(4, np.float32)
    kernels.launch("never_written", (out,), (1,), (4,))
    assert np.isnan(out).all()


def test_threads_that_write_the_same_value_do_not_race(kernels: EmulatedKernels) -> None:
    out = np.zeros(64, np.float32)
    kernels.launch_in_orders("all_write_the_same", (out,), (1,), (64,))
    assert (out == 2).all()


def test_threads_do_not_race_for_the_halves_of_a_word(kernels: EmulatedKernels) -> None:
    data = np.arange(64, dtype=np.int16)
    kernels.launch("doubles_in_place", (data,), (1,), (64,))
    np.testing.assert_array_equal(data, 2 * np.arange(64))


def test_a_warp_barrier_orders_the_warp(kernels: EmulatedKernels) -> None:
    data, out = random(64), np.zeros(64, np.float32)
    kernels.launch_in_orders("within_the_warp", (data, out), (1,), (64,))
    np.testing.assert_array_equal(out, data.reshape(32, 2)[:, ::-1].ravel())


def test_warp_operations_follow_the_programming_guide(kernels: EmulatedKernels) -> None:
    data, out = random(64), np.zeros((8, 64), np.float32)
    kernels.launch_in_orders("shuffles", (data, out), (1,), (64,))
    warps, eights = data.reshape(2, 32), data.reshape(8, 8)
    np.testing.assert_array_equal(out[0].reshape(2, 32), np.repeat(warps[:, 5:6], 32, 1))
    np.testing.assert_array_equal(out[1].reshape(8, 8), np.concatenate([eights[:, :3], eights[:, :5]], 1))
    np.testing.assert_array_equal(out[2].reshape(8, 8), np.concatenate([eights[:, 3:], eights[:, 5:]], 1))
    np.testing.assert_array_equal(out[3].reshape(2, 32), warps[:, np.arange(32) ^ 17])
    np.testing.assert_array_equal(out[4].reshape(2, 32), np.repeat((warps > 0).sum(1, keepdims=True), 32, 1))
    np.testing.assert_array_equal(out[5].reshape(2, 32)[:, 0], [0, 1])
    np.testing.assert_array_equal(out[6].reshape(2, 32)[:, 0], [0, 1])
    np.testing.assert_allclose(out[7].reshape(2, 32)[:, 0], warps.sum(1), rtol=1e-5)


def test_lanes_that_nothing_made_meet_need_not_be_together(kernels: EmulatedKernels) -> None:
    data, out = np.arange(32, dtype=np.float32), np.zeros(1, np.float32)
    kernels.launch("sum_of_those_who_are_there", (data, out), (1,), (32,))
    assert out[0] == data.sum()
    with pytest.raises(EmulationError, match="another result than in order 0"):
        kernels.launch_in_orders("sum_of_those_who_are_there", (data, out), (1,), (32,))


def test_the_active_lanes_are_those_of_the_branch(kernels: EmulatedKernels) -> None:
    out = np.zeros(32, np.uint32)
    kernels.launch("half_a_warp", (out,), (1,), (32,), order=0)
    assert (out[::2] == 0x55555555).all()
    assert (out[1::2] == 0xFFFFFFFF).all()  # lane 0 takes no part in the odd lanes' shuffle: no value


def test_atomics_count_in_all_blocks(kernels: EmulatedKernels) -> None:
    out = np.zeros(4, np.int32)
    kernels.launch_in_orders("counts", (out,), (5,), (40,))
    np.testing.assert_array_equal(out, [200, 39, -4, 5])


@pytest.mark.parametrize("mistake", ["", "no barrier", "no fence before", "no fence behind"])
def test_the_last_block_reads_what_others_have_released(kernels: EmulatedKernels, mistake: str) -> None:
    data, parts = random(5, 64), np.zeros((5, 64), np.float32)
    arrived, out = np.zeros(1, np.uint32), np.zeros(64, np.float32)
    number = ["", "no barrier", "no fence before", "no fence behind"].index(mistake)
    arguments = (data, parts, arrived, out, number), (5,), (64,)
    if mistake:
        with pytest.raises(EmulationError, match=r"race: .* of another block"):
            kernels.launch("added_by_the_last", *arguments)
        return
    kernels.launch_in_orders("added_by_the_last", *arguments)
    expected = functools.reduce(np.add, data)[::-1]
    np.testing.assert_array_equal(out, expected)
    assert arrived[0] == 0


def test_asynchronous_copies_arrive_when_their_group_is_waited_for(kernels: EmulatedKernels) -> None:
    data = random(2, 16, 4)
    second = np.where(np.arange(4) < 2, data[1], 0)  # 8 of 16 bytes, then zeros
    for wait, arrived in ((0, (True, True)), (1, (True, False)), (2, (False, False))):
        out = np.zeros((2, 16, 4), np.float32)
        kernels.launch("copies", (data, out, wait), (1,), (16,))
        for there, is_there, expected in zip(out, arrived, (data[0], second), strict=True):
            np.testing.assert_array_equal(there, expected if is_there else np.full_like(expected, np.nan))


Failure = tuple[str, tuple[np.ndarray | int, ...], tuple[int, ...], int, str]


def vector(size: int = 64) -> np.ndarray:
    return np.zeros(size, np.float32)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


FAILURES: dict[str, Failure] = {
    "missing barrier": ("reversed_without_barrier", (random(64), vector()), (64,), 0, "race: .* with no barrier"),
    "missing second barrier": (
        "overwritten_too_soon",
        (random(128), vector(128)),
        (64,),
        0,
        "race: .* with no barrier",
    ),
    "index after the end": ("reversed", (random(64), vector(63)), (64,), 0, "writes 4 bytes outside .* byte 252"),
    "index into shared memory": ("shared_index_too_large", (vector(),), (64,), 0, "index 32 outside of its array"),
    "index into an own array": ("local_index_too_large", (vector(), 5), (1,), 0, "index 4 outside of its array"),
    "too little dynamic memory": ("reversed_dynamic", (random(64), vector()), (64,), 256, "outside .* dynamic shared"),
    "vector at an odd address": ("four_at_once", (random(65), vector(), 1), (16,), 0, "not aligned"),
    "vector over the end": ("four_at_once", (random(62), vector()), (16,), 0, "reads .* outside of all buffers"),
    "read-only memory": ("all_write_the_same", (read_only(vector()),), (64,), 0, "read-only"),
    "barrier in a branch": ("barrier_for_some", (vector(),), (64,), 0, "barrier divergence: .* ended"),
    "two barriers": ("two_barriers", (vector(),), (64,), 0, "barrier divergence: .* in line"),
    "a lane that does not come": ("lane_missing", (np.zeros(32, np.int32),), (32,), 0, "a shuffle .* never arrive"),
    "a trap": ("traps", (np.zeros(4, np.int32),), (32,), 0, r"thread \(3, 0, 0\) .* __trap"),
    "too many threads for its bounds": ("indices", (np.zeros(65, np.int32),), (65,), 0, "__launch_bounds__"),
    "too many threads": ("reversed", (random(64), vector()), (2048,), 0, "a block of 2048"),
    "too much shared memory": ("reversed_dynamic", (random(64), vector()), (64,), 300 << 10, "shared memory, more"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_what_is_wrong_on_a_gpu_is_an_error(kernels: EmulatedKernels, case: str) -> None:
    name, arguments, block, shared, message = FAILURES[case]
    if name == "four_at_once" and len(arguments) == 2:
        arguments = (*arguments, 0)
    with pytest.raises(EmulationError, match=message):
        kernels.launch(name, arguments, (1,), block, shared)


def test_blocks_race_for_global_memory(kernels: EmulatedKernels) -> None:
    kernels.launch("blocks_share", (vector(1),), (1,), (1,))
    with pytest.raises(EmulationError, match=r"race: .* of another block wrote"):
        kernels.launch("blocks_share", (vector(1),), (2,), (1,))


def test_results_that_depend_on_the_order_of_threads_are_an_error(kernels: EmulatedKernels) -> None:
    with pytest.raises(EmulationError, match="order 1 give another result than in order 0"):
        kernels.launch_in_orders("first_come", (np.zeros(2, np.int32),), (1,), (8,))


def test_a_launch_after_an_error_is_a_fresh_one(kernels: EmulatedKernels) -> None:
    data, out = random(64), vector()
    with pytest.raises(EmulationError):
        kernels.launch("reversed_without_barrier", (data, out), (1,), (64,))
    kernels.launch("reversed", (data, out), (1,), (64,))
    np.testing.assert_array_equal(out, data[::-1])


def test_unknown_assembly_is_an_error_when_it_is_reached(kernels: EmulatedKernels) -> None:
    kernels.launch("unknown_assembly", (np.zeros(1, np.int32), 0), (1,), (1,))
    with pytest.raises(EmulationError, match=r"does not know the assembly bar\.sync%0,%1;"):
        kernels.launch("unknown_assembly", (np.zeros(1, np.int32), 1), (1,), (1,))


def test_source_that_does_not_compile_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EmulationError, match="undeclared identifier"):
        emulate('extern "C" __global__ void k(int* a) { a[0] = unknown; }', tmp_path)
