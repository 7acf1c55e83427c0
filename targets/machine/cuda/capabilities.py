"""Lists compute capabilities: the architecture of each, and the instructions that it has.

Sources, by the names used below:

- *guide*: CUDA C++ programming guide, "Compute Capabilities"
- *PTX*: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions", "Asynchronous Warpgroup Level Matrix
  Multiply-Accumulate Instructions" and "TensorCore 5th Generation Family Instructions"
"""

from __future__ import annotations

from dataclasses import dataclass

from nnefc.targets.machine.gpu.description import WARP, Architecture, Gpu, MatrixShape
from nnefc.targets.machine.gpu.devices import (
    ADA,
    AMPERE,
    AMPERE_GRAPHICS,
    AMPERE_JETSON,
    BLACKWELL,
    BLACKWELL_GRAPHICS,
    BLACKWELL_JETSON,
    BLACKWELL_SPARK,
    BLACKWELL_ULTRA,
    GPUS,
    HOPPER,
    TURING,
    VOLTA,
    VOLTA_JETSON,
)

__all__ = [
    "ASYNCHRONOUS_COPIES",
    "CAPABILITIES",
    "MATRIX_INSTRUCTIONS",
    "MAX_BOX",
    "MAX_BOX_STEP",
    "SPECIFIC_FEATURES",
    "TENSOR_MEMORY_COLUMNS",
    "TENSOR_MEMORY_FEATURES",
    "TENSOR_MEMORY_INSTRUCTION",
    "WARPGROUP",
    "WARPGROUP_INSTRUCTION",
    "Capability",
    "MatrixInstruction",
    "capability_of",
    "default_gpu",
]


@dataclass(frozen=True)
class Capability:
    """What all devices of one compute capability have (guide).

    Attributes:
        number: ten times what NVIDIA writes, as in `sm_80`.
        architecture: the limits.
        has_warpgroup_products: whether it has `WARPGROUP_INSTRUCTION`, in code for `SPECIFIC_FEATURES` (PTX).
        has_tensor_memory: the same of `TENSOR_MEMORY_INSTRUCTION`.
        has_tensor_memory_of_integers: whether this multiplies integers, too.
    """

    number: int
    architecture: Architecture
    has_warpgroup_products: bool = False
    has_tensor_memory: bool = False
    has_tensor_memory_of_integers: bool = False


CAPABILITIES = {
    each.number: each
    for each in (
        Capability(70, VOLTA),
        Capability(72, VOLTA_JETSON),
        Capability(75, TURING),
        Capability(80, AMPERE),
        Capability(86, AMPERE_GRAPHICS),
        Capability(87, AMPERE_JETSON),
        Capability(89, ADA),
        Capability(90, HOPPER, has_warpgroup_products=True),
        Capability(100, BLACKWELL, has_tensor_memory=True, has_tensor_memory_of_integers=True),
        Capability(103, BLACKWELL_ULTRA, has_tensor_memory=True),
        Capability(110, BLACKWELL_JETSON, has_tensor_memory=True, has_tensor_memory_of_integers=True),
        Capability(120, BLACKWELL_GRAPHICS),
        Capability(121, BLACKWELL_SPARK),
    )
}
"""By the number, the oldest first."""


@dataclass(frozen=True)
class MatrixInstruction(MatrixShape):
    """A shape that an instruction multiplies, and the first compute capability that has it, ten times NVIDIA's number.

    Attributes:
        rows, columns, depth: of the shape.
        oldest: the compute capability.
    """

    oldest: int


def _matrix_instructions() -> dict[str, MatrixInstruction]:
    found: dict[str, MatrixInstruction] = {}
    for number, capability in CAPABILITIES.items():
        for dtype, shape in capability.architecture.matrix_shapes.items():
            found.setdefault(dtype, MatrixInstruction(shape.rows, shape.columns, shape.depth, number))
    return found


MATRIX_INSTRUCTIONS = _matrix_instructions()
"""`mma.sync` of a warp, by the type of the operands (PTX)."""

WARPGROUP = 4 * WARP
"""Threads of four warps, the first of which is a multiple of four: they multiply together by `wgmma` (PTX)."""

WARPGROUP_INSTRUCTION = MatrixInstruction(64, 256, 16, 90)
"""One `wgmma.mma_async` of a warpgroup, of 16-bit floats in shared memory (PTX); of bytes, the depth is twice as much,
of TF32 half as much. It may have fewer columns: a multiple of eight, or of 16 for bytes. Later compute capabilities do
not have it: see `Capability.has_warpgroup_products`."""

TENSOR_MEMORY_INSTRUCTION = MatrixInstruction(128, 256, 16, 100)
"""One `tcgen05.mma` of a block, of 16-bit floats in shared memory, with sums in tensor memory (PTX); of bytes, the
depth is twice as much, of TF32 half as much. It may have fewer columns: a multiple of eight, or of 16 for bytes. See
`Capability.has_tensor_memory`. A pair of blocks multiplies twice as many rows by one instruction (`.cta_group::2`)."""

TENSOR_MEMORY_COLUMNS = 512
"""Columns of tensor memory of a processor, of 128 sums each; blocks allocate powers of two (PTX, "Tensor Memory")."""

MAX_BOX, MAX_BOX_STEP = 256, 8
"""The maximum length of a bulk copy's box, and the maximum stride of its elements (CUDA driver API, tensor maps)."""

ASYNCHRONOUS_COPIES = 80
"""The first compute capability whose threads copy to shared memory by `cp.async` (PTX, "Non-bulk copy")."""

SPECIFIC_FEATURES = {number: f"__CUDA_ARCH_FEAT_SM{number}_ALL" for number in (90, 100, 103, 110)}
"""The macro that NVIDIA's compiler defines while it compiles for one architecture with the instructions that not all
later ones have, as `sm_90a` (nvcc's documentation, "Virtual Architecture Macros")."""

TENSOR_MEMORY_FEATURES = " || ".join(
    f"defined({SPECIFIC_FEATURES[number]})" for number, each in CAPABILITIES.items() if each.has_tensor_memory
)
"""The condition of C's preprocessor for code with `TENSOR_MEMORY_INSTRUCTION`."""


def capability_of(gpu: Gpu) -> Capability:
    """Returns the compute capability of a device."""
    return next(each for each in CAPABILITIES.values() if each.architecture == gpu.architecture)


def default_gpu(capability: int) -> Gpu:
    """Returns the device that code for a compute capability is tuned for where none is named."""
    architecture = CAPABILITIES[capability].architecture
    return next(gpu for gpu in GPUS if gpu.architecture == architecture)
