"""Describes GPUs: what all have in common, the limits of an architecture, and the speed of a device.

Rules, code generators and cost models ask these descriptions, and hold no numbers of any GPU; the rows are in
`devices.py`. Sources, by the names used below and there:

- *guide*: CUDA C++ programming guide, the tables "Technical Specifications per Compute Capability" and "Throughput of
  Native Arithmetic Instructions"; numbers of resident blocks also as in `cuda_occupancy.h` of the toolkit 13.0
- *PTX*: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions"
- *Volta*, *Turing*, *Ampere*, *Ada*, *Hopper*, *Blackwell*: NVIDIA's whitepaper of the architecture
- *datasheet*: NVIDIA's of the product; *Jetson*: its technical brief of the module
- *Luo*: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (2024)
- *estimate*: follows from the documentation; no device was measured
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = [
    "LARGEST_BLOCK",
    "LARGEST_GRID",
    "LOAD_BYTES",
    "SCHEDULERS",
    "SECTOR_BYTES",
    "SHARED_BYTES_PER_CYCLE",
    "WARP",
    "Architecture",
    "Gpu",
    "MatrixShape",
]

_KIB = 1 << 10

WARP = 32
"""Threads of a warp, of every device (guide)."""

LARGEST_GRID, LARGEST_BLOCK = ((1 << 31) - 1, 65535, 65535), (1024, 1024, 64)
"""Blocks of a grid, and threads of a block, along x, y and z, of every device (guide)."""

LOAD_BYTES = 16
"""What one instruction of a thread loads, stores or copies at most, aligned to as much (guide, "Size and Alignment
Requirement")."""

SECTOR_BYTES = 32
"""The smallest that the second cache gives at once (guide, "Device Memory Accesses")."""

SHARED_BYTES_PER_CYCLE = 128
"""What the shared memory of a processor reads or writes in a cycle: 32 banks of 4 bytes (guide, "Shared Memory")."""

SCHEDULERS = 4
"""Warps of a processor that issue an instruction in a cycle (whitepapers, from Volta on)."""


@dataclass(frozen=True)
class MatrixShape:
    """What one instruction of a matrix unit multiplies: rows, columns, and the products of each sum.

    Attributes:
        rows, columns: of the sums.
        depth: products of each sum.
    """

    rows: int
    columns: int
    depth: int


@dataclass(frozen=True)
class Architecture:
    """The limits of all devices of one architecture (guide).

    Attributes:
        about: its name, and well-known devices.
        multiply_adds: of float32, that one processor begins in a cycle.
        threads_per_processor, blocks_per_processor: that are resident at once.
        shared_bytes_per_processor: shared memory of one processor.
        shared_bytes_per_block: of that, what one block may ask for.
        matrix_shapes: by the type of the operands, the widest that a warp multiplies at once with sums in float32, or
            in int32 for bytes (PTX). Empty before Ampere, whose shapes later devices do not share.
        static_shared_bytes: of a block, without asking for more.
        registers_per_processor, registers_per_thread: of 32 bits.
        threads_per_block: at most.
    """

    about: str
    multiply_adds: int
    threads_per_processor: int
    blocks_per_processor: int
    shared_bytes_per_processor: int
    shared_bytes_per_block: int
    matrix_shapes: Mapping[str, MatrixShape] = field(default_factory=dict, hash=False)
    static_shared_bytes: int = 48 * _KIB
    registers_per_processor: int = 64 * _KIB
    registers_per_thread: int = 255
    threads_per_block: int = 1024


@dataclass(frozen=True)
class Gpu:
    """A device.

    Attributes:
        name: what `-device=` calls it.
        architecture: its limits.
        processors: what runs blocks of threads, several at once.
        clock_ghz: of these, at their highest regular clock.
        memory_gb_per_s: from and to memory, 10⁹ bytes.
        tensor_multiply_adds: of 16-bit floats, summed up in float32, that the matrix units of one processor begin in a
            cycle for instructions of a warp; half as many of TF32, and twice as many of floats of 8 bits, where
            `Architecture.matrix_shapes` has them.
        warpgroup_multiply_adds: the same for instructions of four warps, twice as many of bytes; 0 where none are.
        tensor_memory_multiply_adds: the same for instructions with sums in a memory of the matrix units.
        byte_multiply_adds: of bytes, summed up in int32, for instructions of a warp; 0 where there are none.
        fetch_bytes_per_cycle: that reach one processor from the second cache. Between the 26 of V100 and the 47 of A100
            (2,048 and 5,120 bytes for all processors: Ampere).
        fetch_cycles: from the fetch of a tile to its use. Memory takes 470 to 540 cycles (Luo); storing the tile in
            shared memory, a barrier and other fetches in the queue come on top (estimate). An H200 took about 500 for a
            tile with three on their way.
        step_cycles: of a block, for a tile of the depth of any size: a barrier, the addresses of copies, and products
            that wait for shared memory and for each other (estimate).
        shared_cycles: of a processor, to read what one warp multiplies in one cycle, by four lanes: shared memory gives
            128 bytes in a cycle, four lanes take 512, of which some threads read the same (estimate).
        block_cycles: of a block besides its sums: its first fetch, and writing its results, which takes longer where
            these are more than memory writes in the time (estimate).
        cluster_cycles: of a block of a cluster, to meet the other ones when it begins and when it ends (estimate).
        launch_cycles: of another launch in the same graph (estimate: two microseconds).
        join_cycles: of the last block of several that share a tile, until it begins to fetch the sums of the others:
            fences and an atomic operation (estimate).
        busy_warps: on a processor, so that its schedulers seldom wait: two for each (estimate).
        serial_trip_count: iterations of loops that one thread may run by itself; with more, the host is faster. A
            device's clock is a third of a processor's, and a step on the host waits for two copies (estimate).
        host_threads: threads that together are faster than the host, however much each has to do (estimate).
    """

    name: str
    architecture: Architecture
    processors: int
    clock_ghz: float
    memory_gb_per_s: float
    tensor_multiply_adds: int
    warpgroup_multiply_adds: int = 0
    tensor_memory_multiply_adds: int = 0
    byte_multiply_adds: int = 0
    fetch_bytes_per_cycle: float = 40
    fetch_cycles: int = 1000
    step_cycles: int = 200
    shared_cycles: float = 3
    block_cycles: int = 1500
    cluster_cycles: int = 500
    launch_cycles: int = 3000
    join_cycles: int = 1500
    busy_warps: int = 2 * SCHEDULERS
    serial_trip_count: int = 1 << 14
    host_threads: int = 1 << 10

    @property
    def memory_bytes_per_cycle(self) -> float:
        """Bytes that all processors together read from memory in a cycle, or write to it."""
        return self.memory_gb_per_s / self.clock_ghz

    @property
    def for_float8(self) -> Gpu:
        """The device with its rate of floats of 8 bits as that of bytes: some have fewer or more units for integers."""
        return replace(self, byte_multiply_adds=2 * self.tensor_multiply_adds)

    def tensor_core_rate(self, element_bytes: int) -> float:
        """Returns the multiply-adds of a processor in a cycle, by instructions of a warp on operands of a size."""
        return self.byte_multiply_adds if element_bytes == 1 else self.tensor_multiply_adds * 2 / element_bytes

    @property
    def busy_threads(self) -> int:
        """Threads that keep the device busy with independent work: a warp for each scheduler of each processor."""
        return self.processors * SCHEDULERS * WARP
