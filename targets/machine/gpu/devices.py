"""Lists architectures of GPUs with their limits, and devices with their speed; `description.py` names the sources."""

from __future__ import annotations

from nnefc.targets.machine.gpu.description import Architecture, Gpu, MatrixShape

__all__ = [
    "ADA",
    "AMPERE",
    "AMPERE_GRAPHICS",
    "AMPERE_JETSON",
    "BLACKWELL",
    "BLACKWELL_GRAPHICS",
    "BLACKWELL_JETSON",
    "BLACKWELL_SPARK",
    "BLACKWELL_ULTRA",
    "GPUS",
    "HOPPER",
    "TURING",
    "VOLTA",
    "VOLTA_JETSON",
]

_KIB = 1 << 10

_AMPERE_SHAPES = {
    "float16": MatrixShape(16, 8, 16),
    "bfloat16": MatrixShape(16, 8, 16),
    "float32": MatrixShape(16, 8, 8),  # rounded to TF32
    "int8": MatrixShape(16, 8, 32),  # with int8 or uint8, each operand by itself
    "uint8": MatrixShape(16, 8, 32),
}
_ADA_SHAPES = {
    **_AMPERE_SHAPES,
    "float8_e4m3fn": MatrixShape(16, 8, 32),  # with either of these floats, each operand by itself
    "float8_e5m2": MatrixShape(16, 8, 32),
}

# fmt: off
VOLTA = Architecture("Volta: V100", 64, 2048, 32, 96 * _KIB, 96 * _KIB)
VOLTA_JETSON = Architecture("Volta: Jetson Xavier", 64, 2048, 32, 96 * _KIB, 96 * _KIB)
TURING = Architecture("Turing: T4, RTX 20", 64, 1024, 16, 64 * _KIB, 64 * _KIB)
AMPERE = Architecture("Ampere: A100", 64, 2048, 32, 164 * _KIB, 163 * _KIB, _AMPERE_SHAPES)
AMPERE_GRAPHICS = Architecture("Ampere: RTX 30, A10", 128, 1536, 16, 100 * _KIB, 99 * _KIB, _AMPERE_SHAPES)
AMPERE_JETSON = Architecture("Ampere: Jetson Orin", 128, 1536, 16, 164 * _KIB, 163 * _KIB, _AMPERE_SHAPES)
ADA = Architecture("Ada: RTX 40, L4, L40", 128, 1536, 24, 100 * _KIB, 99 * _KIB, _ADA_SHAPES)
HOPPER = Architecture("Hopper: H100, H200", 128, 2048, 32, 228 * _KIB, 227 * _KIB, _ADA_SHAPES)
BLACKWELL = Architecture("Blackwell: B200", 128, 2048, 32, 228 * _KIB, 227 * _KIB, _ADA_SHAPES)
BLACKWELL_ULTRA = Architecture("Blackwell: B300", 128, 2048, 32, 228 * _KIB, 227 * _KIB, _ADA_SHAPES)
BLACKWELL_JETSON = Architecture("Blackwell: Jetson Thor", 128, 1536, 24, 228 * _KIB, 227 * _KIB, _ADA_SHAPES)
BLACKWELL_GRAPHICS = Architecture("Blackwell: RTX 50", 128, 1536, 24, 100 * _KIB, 99 * _KIB, _ADA_SHAPES)
BLACKWELL_SPARK = Architecture("Blackwell: DGX Spark", 128, 1536, 24, 100 * _KIB, 99 * _KIB, _ADA_SHAPES)

GPUS = (
    # Volta, datasheet
    Gpu("v100", VOLTA, 80, 1.53, 900, 512),
    # Jetson (AGX Xavier): 512 cores, 64 tensor cores
    Gpu("xavier", VOLTA_JETSON, 8, 1.377, 137, 512),
    # Turing, datasheet
    Gpu("t4", TURING, 40, 1.59, 320, 512),
    # Ampere, datasheet (40 GB)
    Gpu("a100", AMPERE, 108, 1.41, 1555, 1024, byte_multiply_adds=2048),
    # datasheet
    Gpu("a10", AMPERE_GRAPHICS, 72, 1.695, 600, 512, byte_multiply_adds=1024),
    # NVIDIA's whitepaper of GA102; GeForce sums up in float32 at half the speed, bytes at the full one
    Gpu("rtx3090", AMPERE_GRAPHICS, 82, 1.695, 936, 256, byte_multiply_adds=1024),
    # Jetson (AGX Orin 64 GB): 2,048 cores, 64 tensor cores
    Gpu("orin", AMPERE_JETSON, 16, 1.3, 204.8, 1024, byte_multiply_adds=2048),
    # Jetson (Orin Nano 8 GB, "Super"): 1,024 cores, 32 tensor cores
    Gpu("orin-nano", AMPERE_JETSON, 8, 1.02, 102, 1024, byte_multiply_adds=2048),
    # datasheet
    Gpu("l4", ADA, 58, 2.04, 300, 512, byte_multiply_adds=1024),
    # datasheet
    Gpu("l40s", ADA, 142, 2.52, 864, 512, byte_multiply_adds=1024),
    # Ada; GeForce sums up in float32 at half the speed
    Gpu("rtx4090", ADA, 128, 2.52, 1008, 256, byte_multiply_adds=1024),
    # Hopper, datasheet (SXM). Of the 2,048 of its tensor cores, and 4,096 of bytes, instructions of a warp
    # reach 63 % (Luo)
    Gpu("h100", HOPPER, 132, 1.98, 3350, 1280, 2048, byte_multiply_adds=2560),
    # datasheet (SXM): H100 with other memory
    Gpu("h200", HOPPER, 132, 1.98, 4800, 1280, 2048, byte_multiply_adds=2560),
    # Blackwell, datasheet (HGX): 148 processors, as the driver reports; 2.25 PFLOPS of 16-bit floats with sums in
    # tensor memory. Instructions of a warp are as fast as on A100 (estimate)
    Gpu("b200", BLACKWELL, 148, 1.965, 8000, 1024, 0, 4096, byte_multiply_adds=2048),
    # datasheet (HGX): the same processors (float32 is as fast), with fewer units for bytes (estimate)
    Gpu("b300", BLACKWELL_ULTRA, 148, 1.965, 8000, 1024, 0, 4096, byte_multiply_adds=512),
    # Jetson (T5000): 2,560 cores; 1,035 TFLOPS of dense floats of 4 bits, a quarter of them of 16 bits
    Gpu("thor", BLACKWELL_JETSON, 20, 1.575, 273, 1024, 0, 4096, byte_multiply_adds=2048),
    # Blackwell (RTX); GeForce sums up in float32 at half the speed
    Gpu("rtx5090", BLACKWELL_GRAPHICS, 170, 2.407, 1792, 256, byte_multiply_adds=1024),
    # datasheet (DGX Spark): 6,144 cores; tensor cores as of RTX 50 (estimate)
    Gpu("spark", BLACKWELL_SPARK, 48, 2.525, 273, 256, byte_multiply_adds=1024),
)
"""The first one of an architecture is what code for the architecture alone is tuned for."""
# fmt: on
