"""The table of GPUs agrees with the peaks that NVIDIA's data sheets name, and rules follow it."""

from __future__ import annotations

import pytest

from nnefc.passes.schedule.gpu.contractions.tiling import choose_tiling
from nnefc.targets.machine.cuda.capabilities import CAPABILITIES, MATRIX_INSTRUCTIONS, capability_of, default_gpu
from nnefc.targets.machine.gpu.description import WARP
from nnefc.targets.machine.gpu.devices import GPUS

BY_NAME = {gpu.name: gpu for gpu in GPUS}

# 10¹² operations a second: of float32, and of 16-bit floats that tensor cores sum up in float32, without sparsity.
PEAKS = {
    "v100": (15.7, 125), "xavier": (1.41, 11.3), "t4": (8.1, 65), "a100": (19.5, 312), "a10": (31.2, 125),
    "rtx3090": (35.6, 71), "orin": (5.3, 42.5), "l4": (30.3, 121), "l40s": (91.6, 366), "rtx4090": (82.6, 165),
    "h100": (66.9, None), "h200": (66.9, None), "b200": (75, None), "b300": (75, None), "rtx5090": (104.8, 209.5),
    "spark": (31, None),
}  # fmt: skip


@pytest.mark.parametrize("name", PEAKS)
def test_processors_and_clock_make_the_peaks_of_data_sheets(name: str) -> None:
    gpu, (single, half) = BY_NAME[name], PEAKS[name]
    cycles = 2 * gpu.processors * gpu.clock_ghz / 1000
    assert cycles * gpu.architecture.multiply_adds == pytest.approx(single, rel=0.02)
    if half is not None:
        assert cycles * gpu.tensor_multiply_adds == pytest.approx(half, rel=0.02)


# 10¹² operations a second of 16-bit floats with sums in tensor memory, at clocks below the highest ones.
TENSOR_MEMORY_PEAKS = {"b200": 2250, "b300": 2250, "thor": 259}


@pytest.mark.parametrize("name", TENSOR_MEMORY_PEAKS)
def test_tensor_memory_reaches_the_peaks_of_data_sheets(name: str) -> None:
    gpu = BY_NAME[name]
    cycles = 2 * gpu.processors * gpu.clock_ghz / 1000
    assert cycles * gpu.tensor_memory_multiply_adds == pytest.approx(TENSOR_MEMORY_PEAKS[name], rel=0.06)


def test_devices_with_an_instruction_have_a_rate_for_it() -> None:
    assert all((gpu.tensor_memory_multiply_adds > 0) == capability_of(gpu).has_tensor_memory for gpu in GPUS)
    assert all((gpu.warpgroup_multiply_adds > 0) == capability_of(gpu).has_warpgroup_products for gpu in GPUS)


# 10¹² operations a second of bytes that tensor cores sum up in int32, without sparsity.
BYTE_PEAKS = {
    "a100": 624, "a10": 250, "rtx3090": 284, "orin": 85, "l4": 242, "l40s": 733, "rtx4090": 661, "rtx5090": 838,
}  # fmt: skip


@pytest.mark.parametrize("name", BYTE_PEAKS)
def test_tensor_cores_reach_the_peaks_of_bytes(name: str) -> None:
    gpu = BY_NAME[name]
    cycles = 2 * gpu.processors * gpu.clock_ghz / 1000
    assert cycles * gpu.tensor_core_rate(1) == pytest.approx(BYTE_PEAKS[name], rel=0.02)


# 10¹² operations a second of floats of 8 bits that tensor cores sum up in float32, without sparsity.
FLOAT8_PEAKS = {"l4": 242, "l40s": 733, "rtx4090": 330, "rtx5090": 419}


@pytest.mark.parametrize("name", FLOAT8_PEAKS)
def test_tensor_cores_reach_the_peaks_of_floats_of_8_bits(name: str) -> None:
    gpu = BY_NAME[name].for_float8
    cycles = 2 * gpu.processors * gpu.clock_ghz / 1000
    assert cycles * gpu.tensor_core_rate(1) == pytest.approx(FLOAT8_PEAKS[name], rel=0.02)


def test_devices_with_the_instructions_have_a_rate_for_bytes() -> None:
    oldest = MATRIX_INSTRUCTIONS["int8"].oldest
    assert all((gpu.byte_multiply_adds > 0) == (capability_of(gpu).number >= oldest) for gpu in GPUS)


@pytest.mark.parametrize("number", CAPABILITIES)
def test_every_compute_capability_has_a_device_with_sensible_limits(number: int) -> None:
    limits, gpu = CAPABILITIES[number].architecture, default_gpu(number)
    assert capability_of(gpu).number == number
    assert limits.static_shared_bytes <= limits.shared_bytes_per_block <= limits.shared_bytes_per_processor
    assert limits.threads_per_processor % WARP == limits.threads_per_block % WARP == 0
    assert limits.threads_per_processor >= limits.threads_per_block
    assert 20 < gpu.memory_bytes_per_cycle < 5000
    assert gpu.busy_threads < gpu.processors * limits.threads_per_processor


def test_names_of_devices_are_their_own() -> None:
    assert len(BY_NAME) == len(GPUS)


def test_a_device_with_few_processors_gets_fewer_slices() -> None:
    slices = [choose_tiling(1, 512, 49, 4608, BY_NAME[name]).slices for name in ("orin-nano", "orin", "h100")]
    assert slices == sorted(slices)
    assert slices[0] < slices[-1]
