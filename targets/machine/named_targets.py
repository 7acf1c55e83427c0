"""Lists the named targets, which `nnefc targets` and docs/targets.md show."""

from __future__ import annotations

from dataclasses import dataclass

from nnefc.targets.machine.cpu.architecture import Vectors, architecture_of
from nnefc.targets.machine.system import FileFormat, system_of

__all__ = ["C_SOURCE", "DEFAULT_GPUS", "NAMED_TARGETS", "NamedTarget"]

C_SOURCE = "generic-c"
"""The target whose code is C source: see `cpu/c_source.py`."""

DEFAULT_GPUS = (80, 86, 90)
"""The architectures of NVIDIA GPUs that the target `cuda` stands for."""

_MPS = "qemu-system-arm"
_LINKED = "links; file format, symbols and headers are checked"


@dataclass(frozen=True)
class NamedTarget:
    """A machine with a name.

    Attributes:
        name: of the target.
        triple: instruction set and system.
        cpu: LLVM's name of the processor; "" for the oldest processor of the triple.
        about: which machines these are.
        proof: how libraries for it are tested.
        attributes: LLVM features in addition to those of the processor.
        features: that code may use and a library checks, as `Target.features`. LLVM knows them too; here they can be
            listed without LLVM.
    """

    name: str
    triple: str
    cpu: str
    about: str
    proof: str
    attributes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def vectors(self) -> Vectors:
        """The vector registers."""
        return architecture_of(self.triple).vectors(set(self.features))

    @property
    def hosted(self) -> bool:
        """Whether it has an operating system; without one, a network is a static library."""
        return system_of(self.triple).hosted

    @property
    def format(self) -> FileFormat:
        """The file format of its libraries."""
        return system_of(self.triple).format


_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "lzcnt", "movbe", "avx", "f16c", "fma", "avx2", "bmi", "bmi2")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_CORTEX_A76 = ("dotprod", "fullfp16", "lse", "rdm")
_APPLE_A12 = ("fullfp16", "lse", "rdm")
_APPLE_A14 = ("dotprod", "fullfp16", "fp16fml", "lse", "rdm")
_ARMV7 = ("neon", "vfp4", "hwdiv-arm")
_RISCV_VECTORS = ("v", "zvl128b")

_DSP = ("dsp", "vfp2sp")
_MVE = ("dsp", "mve", "mve.fp", "vfp2sp")

_FUSED_ARM = ("+vfp4", "+hwdiv-arm")

NAMED_TARGETS = (
    NamedTarget("x86-64", "x86_64-linux-gnu", "x86-64", "every x86-64 processor: SSE2", "qemu-x86_64 -cpu qemu64"),
    NamedTarget(
        "x86-64-v2",
        "x86_64-linux-gnu",
        "x86-64-v2",
        "x86-64 from about 2009: SSE4.2",
        "qemu-x86_64 -cpu Nehalem",
        features=_V2,
    ),
    NamedTarget(
        "x86-64-v3",
        "x86_64-linux-gnu",
        "x86-64-v3",
        "x86-64 from about 2013: AVX2 and FMA",
        "qemu-x86_64 -cpu max",
        features=_V3,
    ),
    NamedTarget("x86-64-v4", "x86_64-linux-gnu", "x86-64-v4", "x86-64 with AVX-512", "natively", features=_V4),
    NamedTarget(
        "x86_64-linux-musl",
        "x86_64-linux-musl",
        "x86-64-v3",
        "Alpine and static programs",
        "qemu-x86_64 -cpu max",
        features=_V3,
    ),
    NamedTarget("aarch64-linux-gnu", "aarch64-linux-gnu", "", "every 64-bit Arm processor: NEON", "qemu-aarch64"),
    NamedTarget("aarch64-linux-musl", "aarch64-linux-musl", "", "the same without glibc", "qemu-aarch64"),
    NamedTarget("cortex-a53", "aarch64-linux-gnu", "cortex-a53", "small cores, in order", "qemu-aarch64"),
    NamedTarget(
        "cortex-a72",
        "aarch64-linux-gnu",
        "cortex-a72",
        "large cores of 2015",
        "qemu-aarch64 -cpu cortex-a72",
    ),
    NamedTarget(
        "cortex-a76",
        "aarch64-linux-gnu",
        "cortex-a76",
        "large cores of 2018: dot products, half precision",
        "qemu-aarch64 -cpu cortex-a76",
        features=_CORTEX_A76,
    ),
    NamedTarget("raspberrypi3", "aarch64-linux-gnu", "cortex-a53", "Raspberry Pi 3, 64-bit system", "qemu-aarch64"),
    NamedTarget(
        "raspberrypi4",
        "aarch64-linux-gnu",
        "cortex-a72",
        "Raspberry Pi 4, 64-bit system",
        "qemu-aarch64 -cpu cortex-a72",
        attributes=("-aes", "-sha2"),  # its processor comes without the cryptographic extension
    ),
    NamedTarget(
        "raspberrypi5",
        "aarch64-linux-gnu",
        "cortex-a76",
        "Raspberry Pi 5",
        "qemu-aarch64 -cpu cortex-a76",
        features=_CORTEX_A76,
    ),
    NamedTarget(
        "armv7-linux-gnueabihf",
        "armv7-linux-gnueabihf",
        "",
        "32-bit Arm from Cortex-A7 and A15 on: NEON with fused multiply-add",
        "qemu-arm",
        attributes=_FUSED_ARM,
        features=_ARMV7,
    ),
    NamedTarget(
        "armv7-linux-musleabihf",
        "armv7-linux-musleabihf",
        "",
        "the same without glibc",
        "qemu-arm",
        attributes=_FUSED_ARM,
        features=_ARMV7,
    ),
    NamedTarget("raspberrypi2", "armv7-linux-gnueabihf", "cortex-a7", "Raspberry Pi 2", "qemu-arm", features=_ARMV7),
    NamedTarget("riscv64-linux-gnu", "riscv64-linux-gnu", "", "RV64GC, without vectors", "qemu-riscv64"),
    NamedTarget("riscv64-linux-musl", "riscv64-linux-musl", "", "the same without glibc", "qemu-riscv64"),
    NamedTarget(
        "riscv64gcv-linux-gnu",
        "riscv64-linux-gnu",
        "",
        "RV64GC with vectors of 128 bits or more",
        "qemu-riscv64 -cpu rv64,v=true",
        attributes=("+v", "+zvl128b"),
        features=_RISCV_VECTORS,
    ),
    NamedTarget(
        "riscv64gcv-linux-musl",
        "riscv64-linux-musl",
        "",
        "the same without glibc",
        "qemu-riscv64 -cpu rv64,v=true",
        attributes=("+v", "+zvl128b"),
        features=_RISCV_VECTORS,
    ),
    NamedTarget("wasm32-wasi", "wasm32-wasi", "", "WebAssembly with SIMD128, one thread", "Node.js"),
    NamedTarget(
        "wasm32-relaxed",
        "wasm32-wasi",
        "",
        "the same with relaxed SIMD: multiply-adds",
        "Node.js",
        attributes=("+relaxed-simd",),
        features=("relaxed-simd",),
    ),
    NamedTarget(
        "wasm32-threads",
        "wasm32-wasi",
        "",
        "WebAssembly with SIMD128, and threads where memory can be shared with workers",
        "Node.js, Chromium",
        attributes=("+atomics",),
        features=("atomics",),
    ),
    NamedTarget(
        "wasm32-relaxed-threads",
        "wasm32-wasi",
        "",
        "both",
        "Node.js, Chromium",
        attributes=("+relaxed-simd", "+atomics"),
        features=("relaxed-simd", "atomics"),
    ),
    *(
        NamedTarget(
            f"wasm32-relaxed-{dot}{'-threads' * len(threads)}",
            "wasm32-wasi",
            "",
            f"relaxed SIMD{' and threads' * len(threads)} where its dot product takes {sign} bytes",
            "Node.js" if dot == "udot" else "code for it is made",
            attributes=(f"+relaxed-{dot}", *(f"+{feature}" for feature in threads)),
            features=("relaxed-simd", f"relaxed-{dot}", *threads),
        )
        for threads in ((), ("atomics",))
        for dot, sign in (("udot", "unsigned"), ("sdot", "signed"))
    ),
    NamedTarget("aarch64-linux-android", "aarch64-linux-android", "", "Android 9 and newer: arm64-v8a", _LINKED),
    NamedTarget(
        "armv7-linux-androideabi",
        "armv7-linux-androideabi",
        "",
        "the same, of 32 bits: armeabi-v7a with NEON and fused multiply-add",
        _LINKED,
        attributes=_FUSED_ARM,
        features=_ARMV7,
    ),
    NamedTarget(
        "x86_64-linux-android",
        "x86_64-linux-android",
        "x86-64-v2",
        "the same, for emulators and Chromebooks: x86_64",
        _LINKED,
        features=_V2,
    ),
    NamedTarget(
        "i686-linux-android",
        "i686-linux-android",
        "",
        "the same, of 32 bits: x86 with SSSE3, which all of them have",
        _LINKED,
        attributes=("+ssse3",),
        features=_V2[:2],
    ),
    NamedTarget(
        "aarch64-macos",
        "aarch64-macos",
        "apple-a14",
        "macOS 11 and newer on Apple's processors",
        _LINKED,
        features=_APPLE_A14,
    ),
    NamedTarget("aarch64-ios", "aarch64-ios", "apple-a12", "iOS 14 and newer, from A12 on", _LINKED, (), _APPLE_A12),
    NamedTarget(
        "aarch64-ios-simulator",
        "aarch64-ios-simulator",
        "apple-a14",
        "its simulator on Macs with Apple's processors",
        _LINKED,
        features=_APPLE_A14,
    ),
    NamedTarget(
        "aarch64-ios-macabi",
        "aarch64-ios-macabi",
        "apple-a14",
        "Mac Catalyst: apps of iOS on such Macs",
        _LINKED,
        features=_APPLE_A14,
    ),
    NamedTarget("x86_64-windows-gnu", "x86_64-windows-gnu", "x86-64-v3", "Windows 10 and newer", "wine", features=_V3),
    NamedTarget(
        "cortex-m0plus", "thumb-none-eabi", "cortex-m0plus", "RP2040, SAMD21, STM32G0: no unit for floats", _MPS
    ),
    NamedTarget("cortex-m3", "thumb-none-eabi", "cortex-m3", "STM32F1, SAM3X, LPC17: no unit for floats", _MPS),
    NamedTarget("cortex-m4", "thumb-none-eabihf", "cortex-m4", "STM32F4, nRF52, SAM4: float32, DSP", _MPS, (), _DSP),
    NamedTarget(
        "cortex-m7", "thumb-none-eabihf", "cortex-m7", "STM32F7 and H7, i.MX RT, Teensy 4: the same", _MPS, (), _DSP
    ),
    NamedTarget(
        "cortex-m33", "thumb-none-eabihf", "cortex-m33", "RP2350, nRF53 and 91, STM32U5: the same", _MPS, (), _DSP
    ),
    NamedTarget("cortex-m55", "thumb-none-eabihf", "cortex-m55", "vectors: Helium (MVE)", _MPS, (), _MVE),
    NamedTarget("cortex-m85", "thumb-none-eabihf", "cortex-m85", "the same, faster: RA8", _MPS, (), _MVE),
    NamedTarget(
        "riscv32imc", "riscv32-none-elf", "", "RISC-V of 32 bits without floats: ESP32-C3, CH32V", "qemu-riscv32"
    ),
    NamedTarget("esp32c3", "riscv32-none-elf", "", "ESP32-C3", "qemu-riscv32"),
)
