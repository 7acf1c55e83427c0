"""Lists the limits of each compute capability, and a table of NVIDIA devices with their speed.

Rules and code generators ask these descriptions, and have no number of a GPU's own. Sources, by the names used below:

- *guide*: CUDA C++ programming guide, the tables "Technical Specifications per Compute Capability" and "Throughput of
  Native Arithmetic Instructions"; numbers of resident blocks also as in `cuda_occupancy.h` of the toolkit 13.0
- *PTX*: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions", "Asynchronous Warpgroup Level Matrix
  Multiply-Accumulate Instructions" and "TensorCore 5th Generation Family Instructions"
- *Volta*, *Turing*, *Ampere*, *Ada*, *Hopper*, *Blackwell*: NVIDIA's whitepaper of the architecture
- *datasheet*: NVIDIA's of the product; *Jetson*: its technical brief of the module
- *Luo*: Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (2024)
- *estimate*: follows from the documentation; no device was measured
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "ASYNCHRONOUS_COPIES",
    "CAPABILITIES",
    "GPUS",
    "LARGEST_BLOCK",
    "LARGEST_GRID",
    "LOAD_BYTES",
    "MATRIX_INSTRUCTIONS",
    "MAX_BOX",
    "MAX_BOX_STEP",
    "SCHEDULERS",
    "SECTOR_BYTES",
    "SHARED_BYTES_PER_CYCLE",
    "SPECIFIC_FEATURES",
    "TENSOR_MEMORY_COLUMNS",
    "TENSOR_MEMORY_INSTRUCTION",
    "WARP",
    "WARPGROUP",
    "WARPGROUP_INSTRUCTION",
    "Capability",
    "Gpu",
    "MatrixInstruction",
    "default_gpu",
]

_KIB = 1 << 10

WARP = 32
"""Threads of a warp, of every device (guide)."""

WARPGROUP = 4 * WARP
"""Threads of four warps, the first of which is a multiple of four: they multiply together by `wgmma` (PTX)."""

LARGEST_GRID, LARGEST_BLOCK = ((1 << 31) - 1, 65535, 65535), (1024, 1024, 64)
"""Blocks of a grid, and threads of a block, along x, y and z, of every device (guide)."""

LOAD_BYTES = 16
"""What one instruction of a thread loads, stores or copies at most, aligned to as much (guide, "Size and Alignment
Requirement")."""

SECTOR_BYTES = 32
"""The smallest that the second cache gives at once (guide, "Device Memory Accesses")."""

MAX_BOX, MAX_BOX_STEP = 256, 8
"""The maximum length of a bulk copy's box, and the maximum stride of its elements (CUDA driver API, tensor maps)."""

SHARED_BYTES_PER_CYCLE = 128
"""What the shared memory of a processor reads or writes in a cycle: 32 banks of 4 bytes (guide, "Shared Memory")."""

SCHEDULERS = 4
"""Warps of a processor that issue an instruction in a cycle (whitepapers, from Volta on)."""


@dataclass(frozen=True)
class MatrixInstruction:
    """The operands of one `mma.sync` of a warp, with sums in float32, or in int32 for bytes (PTX).

    Attributes:
        rows, columns: of the sums.
        depth: products of each sum.
        oldest: the first compute capability that has it, ten times NVIDIA's number.
    """

    rows: int
    columns: int
    depth: int
    oldest: int


MATRIX_INSTRUCTIONS = {
    "float16": MatrixInstruction(16, 8, 16, 80),
    "bfloat16": MatrixInstruction(16, 8, 16, 80),
    "float32": MatrixInstruction(16, 8, 8, 80),  # rounded to TF32
    "int8": MatrixInstruction(16, 8, 32, 80),  # with int8 or uint8, each operand by itself
    "uint8": MatrixInstruction(16, 8, 32, 80),
    "float8_e4m3fn": MatrixInstruction(16, 8, 32, 89),  # with either of these floats, each operand by itself
    "float8_e5m2": MatrixInstruction(16, 8, 32, 89),
}
"""The widest shape of dense operands, by their type."""

WARPGROUP_INSTRUCTION = MatrixInstruction(64, 256, 16, 90)
"""One `wgmma.mma_async` of a warpgroup, of 16-bit floats in shared memory (PTX); of bytes, the depth is twice as much,
of TF32 half as much. It may have fewer columns: a multiple of eight, or of 16 for bytes. Later compute capabilities do
not have it: see `Capability.has_warpgroup_products`."""

TENSOR_MEMORY_INSTRUCTION = MatrixInstruction(128, 256, 16, 100)
"""One `tcgen05.mma` of a block, of 16-bit floats in shared memory, with sums in tensor memory (PTX); of bytes, the
depth is twice as much, of TF32 half as much. It may have fewer columns: a multiple of eight, or of 16 for bytes. See
`Capability.has_tensor_memory`."""

TENSOR_MEMORY_COLUMNS = 512
"""Columns of tensor memory of a processor, of 128 sums each; blocks allocate powers of two (PTX, "Tensor Memory")."""

ASYNCHRONOUS_COPIES = 80
"""The first compute capability whose threads copy to shared memory by `cp.async` (PTX, "Non-bulk copy")."""

SPECIFIC_FEATURES = {number: f"__CUDA_ARCH_FEAT_SM{number}_ALL" for number in (90, 100, 103, 110)}
"""The macro that NVIDIA's compiler defines while it compiles for one architecture with the instructions that not all
later ones have, as `sm_90a` (nvcc's documentation, "Virtual Architecture Macros")."""


@dataclass(frozen=True)
class Capability:
    """The limits of all devices of one compute capability (guide).

    Attributes:
        number: ten times what NVIDIA writes, as in `sm_80`.
        about: the architecture, and well-known devices.
        multiply_adds: of float32, that one processor begins in a cycle.
        threads_per_processor, blocks_per_processor: that are resident at once.
        shared_bytes_per_processor: shared memory of one processor.
        shared_bytes_per_block: of that, what one block may ask for.
        static_shared_bytes: of a block, without asking for more.
        registers_per_processor, registers_per_thread: of 32 bits.
        threads_per_block: at most.
        has_warpgroup_products: whether it has `WARPGROUP_INSTRUCTION`, in code for `SPECIFIC_FEATURES` (PTX).
        has_tensor_memory: the same of `TENSOR_MEMORY_INSTRUCTION`.
        has_tensor_memory_of_integers: whether this multiplies integers, too.
    """

    number: int
    about: str
    multiply_adds: int
    threads_per_processor: int
    blocks_per_processor: int
    shared_bytes_per_processor: int
    shared_bytes_per_block: int
    static_shared_bytes: int = 48 * _KIB
    registers_per_processor: int = 64 * _KIB
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    has_warpgroup_products: bool = False
    has_tensor_memory: bool = False
    has_tensor_memory_of_integers: bool = False


# fmt: off
CAPABILITIES = {
    each.number: each
    for each in (
        Capability(70, "Volta: V100", 64, 2048, 32, 96 * _KIB, 96 * _KIB),
        Capability(72, "Volta: Jetson Xavier", 64, 2048, 32, 96 * _KIB, 96 * _KIB),
        Capability(75, "Turing: T4, RTX 20", 64, 1024, 16, 64 * _KIB, 64 * _KIB),
        Capability(80, "Ampere: A100", 64, 2048, 32, 164 * _KIB, 163 * _KIB),
        Capability(86, "Ampere: RTX 30, A10", 128, 1536, 16, 100 * _KIB, 99 * _KIB),
        Capability(87, "Ampere: Jetson Orin", 128, 1536, 16, 164 * _KIB, 163 * _KIB),
        Capability(89, "Ada: RTX 40, L4, L40", 128, 1536, 24, 100 * _KIB, 99 * _KIB),
        Capability(90, "Hopper: H100, H200", 128, 2048, 32, 228 * _KIB, 227 * _KIB, has_warpgroup_products=True),
        Capability(100, "Blackwell: B200", 128, 2048, 32, 228 * _KIB, 227 * _KIB,
                   has_tensor_memory=True, has_tensor_memory_of_integers=True),
        Capability(103, "Blackwell: B300", 128, 2048, 32, 228 * _KIB, 227 * _KIB, has_tensor_memory=True),
        Capability(110, "Blackwell: Jetson Thor", 128, 1536, 24, 228 * _KIB, 227 * _KIB,
                   has_tensor_memory=True, has_tensor_memory_of_integers=True),
        Capability(120, "Blackwell: RTX 50", 128, 1536, 24, 100 * _KIB, 99 * _KIB),
        Capability(121, "Blackwell: DGX Spark", 128, 1536, 24, 100 * _KIB, 99 * _KIB),
    )
}
"""By the number, the oldest first."""
# fmt: on


@dataclass(frozen=True)
class Gpu:
    """A device.

    Attributes:
        name: what `-device=` calls it.
        capability: its limits.
        processors: streaming multiprocessors.
        clock_ghz: of these, at their highest regular clock.
        memory_gb_per_s: from and to memory, 10⁹ bytes.
        tensor_multiply_adds: of 16-bit floats, summed up in float32, that the tensor cores of one processor begin in a
            cycle for `mma.sync`; half as many of TF32, and twice as many of floats of 8 bits (Ada, Hopper, Blackwell).
        warpgroup_multiply_adds: the same for `wgmma`, twice as many of bytes; 0 where there is none.
        tensor_memory_multiply_adds: the same for `tcgen05.mma`.
        byte_multiply_adds: of bytes, summed up in int32, for `mma.sync`; 0 where `MATRIX_INSTRUCTIONS` has none.
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
        launch_cycles: of another launch in the same graph (estimate: two microseconds).
        join_cycles: of the last block of several that share a tile, until it begins to fetch the sums of the others:
            fences and an atomic operation (estimate).
        busy_warps: on a processor, so that its schedulers seldom wait: two for each (estimate).
        serial_trip_count: iterations of loops that one thread may run by itself; with more, the host is faster. A
            device's clock is a third of a processor's, and a step on the host waits for two copies (estimate).
        host_threads: threads that together are faster than the host, however much each has to do (estimate).
    """

    name: str
    capability: Capability
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
        """Returns the multiply-adds of operands of a size that one processor begins in a cycle, for `mma.sync`."""
        return self.byte_multiply_adds if element_bytes == 1 else self.tensor_multiply_adds * 2 / element_bytes

    @property
    def busy_threads(self) -> int:
        """Threads that keep the device busy with independent work: a warp for each scheduler of each processor."""
        return self.processors * SCHEDULERS * WARP


# fmt: off
GPUS = (
    # Volta, datasheet
    Gpu("v100", CAPABILITIES[70], 80, 1.53, 900, 512),
    # Jetson (AGX Xavier): 512 cores, 64 tensor cores
    Gpu("xavier", CAPABILITIES[72], 8, 1.377, 137, 512),
    # Turing, datasheet
    Gpu("t4", CAPABILITIES[75], 40, 1.59, 320, 512),
    # Ampere, datasheet (40 GB)
    Gpu("a100", CAPABILITIES[80], 108, 1.41, 1555, 1024, byte_multiply_adds=2048),
    # datasheet
    Gpu("a10", CAPABILITIES[86], 72, 1.695, 600, 512, byte_multiply_adds=1024),
    # NVIDIA's whitepaper of GA102; GeForce sums up in float32 at half the speed, bytes at the full one
    Gpu("rtx3090", CAPABILITIES[86], 82, 1.695, 936, 256, byte_multiply_adds=1024),
    # Jetson (AGX Orin 64 GB): 2,048 cores, 64 tensor cores
    Gpu("orin", CAPABILITIES[87], 16, 1.3, 204.8, 1024, byte_multiply_adds=2048),
    # Jetson (Orin Nano 8 GB, "Super"): 1,024 cores, 32 tensor cores
    Gpu("orin-nano", CAPABILITIES[87], 8, 1.02, 102, 1024, byte_multiply_adds=2048),
    # datasheet
    Gpu("l4", CAPABILITIES[89], 58, 2.04, 300, 512, byte_multiply_adds=1024),
    # datasheet
    Gpu("l40s", CAPABILITIES[89], 142, 2.52, 864, 512, byte_multiply_adds=1024),
    # Ada; GeForce sums up in float32 at half the speed
    Gpu("rtx4090", CAPABILITIES[89], 128, 2.52, 1008, 256, byte_multiply_adds=1024),
    # Hopper, datasheet (SXM). Of the 2,048 of its tensor cores, and 4,096 of bytes, `mma.sync` reaches 63 % (Luo)
    Gpu("h100", CAPABILITIES[90], 132, 1.98, 3350, 1280, 2048, byte_multiply_adds=2560),
    # datasheet (SXM): H100 with other memory
    Gpu("h200", CAPABILITIES[90], 132, 1.98, 4800, 1280, 2048, byte_multiply_adds=2560),
    # Blackwell, datasheet (HGX): 148 processors, as the driver reports; 2.25 PFLOPS of 16-bit floats by `tcgen05.mma`.
    # `mma.sync` as fast as on A100 (estimate)
    Gpu("b200", CAPABILITIES[100], 148, 1.965, 8000, 1024, 0, 4096, byte_multiply_adds=2048),
    # datasheet (HGX): the same processors (float32 is as fast), with fewer units for bytes (estimate)
    Gpu("b300", CAPABILITIES[103], 148, 1.965, 8000, 1024, 0, 4096, byte_multiply_adds=512),
    # Jetson (T5000): 2,560 cores; 1,035 TFLOPS of dense floats of 4 bits, a quarter of them of 16 bits
    Gpu("thor", CAPABILITIES[110], 20, 1.575, 273, 1024, 0, 4096, byte_multiply_adds=2048),
    # Blackwell (RTX); GeForce sums up in float32 at half the speed
    Gpu("rtx5090", CAPABILITIES[120], 170, 2.407, 1792, 256, byte_multiply_adds=1024),
    # datasheet (DGX Spark): 6,144 cores; tensor cores as of RTX 50 (estimate)
    Gpu("spark", CAPABILITIES[121], 48, 2.525, 273, 256, byte_multiply_adds=1024),
)
"""The first one of a compute capability is what code for `-arch` is tuned for."""
# fmt: on


def default_gpu(capability: int) -> Gpu:
    """Returns the device that code for a compute capability is tuned for where none is named."""
    return next(gpu for gpu in GPUS if gpu.capability.number == capability)
