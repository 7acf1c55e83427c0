"""Maps names of machines that are not targets to the target to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = ["instead_of", "near"]

_NO_SYSTEM = (
    "of microcontrollers nnefc knows cortex-m0plus, cortex-m3, cortex-m4, cortex-m7, cortex-m33, cortex-m55, "
    "cortex-m85 and riscv32imc; for all others there is C source, generic-c"
)
_ONLY_NVIDIA = "of GPUs nnefc knows NVIDIA's: say cuda; without one, llvm"

# Names without their capitals, blanks, hyphens, dots and underscores, as regular expressions → what to say instead.
_SPELLINGS = (
    (
        r"arm64(v8)?a?|armv[89]\d?a?|aarch64",
        "64-bit Arm: say aarch64-linux-gnu, aarch64-linux-android, aarch64-macos or aarch64-ios",
    ),
    (r"arm|armhf|arm32(v7)?|armv7(a|l|hf)?", "32-bit Arm: say armv7-linux-gnueabihf"),
    (r"armv6(l|hf)?|armel|armv5.*", "of 32-bit Arm nnefc needs NEON, as of version 7: say armv7-linux-gnueabihf"),
    (r"(x86|amd|x)64|intel(64)?|amd|x8664v1|ryzen|epyc|xeon", "64-bit x86: say x86-64-v3, or x86-64 for the oldest"),
    (r"x86|x8632|i[3-6]86|ia32", "x86 of 32 bits: say i686-linux-android; of 64 bits, x86-64"),
    (r"sse[23]?", "every x86 processor of 64 bits has it: say x86-64"),
    (r"ssse3|sse4.*|popcnt", "x86 with SSE4.2: say x86-64-v2"),
    (r"avx2?|fma3?|f16c|bmi2?", "x86 with AVX2 and FMA: say x86-64-v3"),
    (r"avx512\w*", "x86 with AVX-512: say x86-64-v4"),
    (r"neon|asimd|simd", "every 64-bit Arm processor has NEON: say aarch64-linux-gnu"),
    (r"(sve2?|i8mm|bf16)", r"say llvm -mtriple=aarch64-linux-gnu -mattr=+\1, or a processor such as neoverse-v2"),
    (r"dotprod|fullfp16|fp16", "64-bit Arm with dot products and half precision: say cortex-a76"),
    (r"(arm)?cortexm(0|1|23)|armv6m|armv8mbase|rp2040|samd21.*|stm32[gl]0.*|nrf51.*", "say cortex-m0plus"),
    (r"(arm)?cortexm3|armv7m|stm32(f[12]|l1).*|sam3x.*|lpc17.*|arduinodue", "Cortex-M3: say cortex-m3"),
    (r"(arm)?cortexm4f?|armv7em|stm32(f4|l4|g4).*|nrf52.*|arduinonano33.*", "Cortex-M4: say cortex-m4"),
    (r"(arm)?cortexm7f?|stm32[fh]7.*|imxrt.*|teensy4.*|portenta.*", "Cortex-M7: say cortex-m7"),
    (r"(arm)?cortexm(33|35p|52)f?|armv8mmain|rp2350|nrf(53|91|54).*|stm32[ul]5.*", "Cortex-M33: say cortex-m33"),
    (r"(arm)?cortexm(55|85)f?|armv81mmain", r"with vectors: say cortex-m\2"),
    (r"esp32(c\d|h2)", "RISC-V without floats: say riscv32imc"),
    (r"esp32(s\d.*|p4)?|esp8266|xtensa.*|tensilica", "C source for any C compiler: say generic-c"),
    (r"(arm)?cortex[mr]\d.*|stm32.*|arduino.*|esp32.*", _NO_SYSTEM),
    (
        r"(apple)?(silicon)?m1(pro|max|ultra)?|applesilicon|mac(os)?|darwin|osx|apple",
        "Apple's processors: say aarch64-macos",
    ),
    (r"(apple)?m2(pro|max|ultra)?", "macOS on Apple's M2: say llvm -mtriple=aarch64-macos -mcpu=apple-a15"),
    (r"(apple)?m3(pro|max|ultra)?", "macOS on Apple's M3: say llvm -mtriple=aarch64-macos -mcpu=apple-a16"),
    (r"(apple)?m([45])(pro|max|ultra)?", r"macOS on Apple's M\2: say llvm -mtriple=aarch64-macos -mcpu=apple-m\2"),
    (r"ios(arm64)?|iphone(os)?|ipad(os)?", "iOS: say aarch64-ios; for its simulator, aarch64-ios-simulator"),
    (r"(ios|iphone)simulator(arm64)?", "the simulator of iOS: say aarch64-ios-simulator"),
    (r"(mac)?catalyst|macabi", "Mac Catalyst: say aarch64-ios-macabi"),
    (r"(apple)?(tv|vision|x)r?os", r"say llvm -mtriple=aarch64-tvos or llvm -mtriple=aarch64-xros"),
    (r"win(dows|32|64)?|mingw(64)?|msvc", "64-bit Windows: say x86_64-windows-gnu"),
    (r"android(arm64)?|arm64v8a(android)?", "64-bit Android: say aarch64-linux-android"),
    (r"androidarm|armeabiv7a", "32-bit Android: say armv7-linux-androideabi"),
    (r"androidx86(64)?", "Android's emulator: say x86_64-linux-android, or i686-linux-android of 32 bits"),
    (r"wasm(32)?|wasi|web(assembly)?|browser|js|node(js)?", "WebAssembly: say wasm32-wasi"),
    (r"wasm64", "WebAssembly of 32 bits is what engines run: say wasm32-wasi"),
    (r"riscv(64)?|rv64.*|riscv64gc", "say riscv64-linux-gnu, or riscv64gcv-linux-gnu with vectors"),
    (r"riscv32|rv32.*", "RISC-V of 32 bits, for microcontrollers: say riscv32imc"),
    (r"cpu|host|local|auto|default|generic|this|linux", "this machine: say llvm"),
    (
        r"c|c99|ansic|csource|plainc|(iar|keil|avr|msp430|dsp\w*)",
        "C source for any C compiler: say generic-c",
    ),
    (r"gpu|nvidia|nvptx(64)?|cudnn|tensorrt|ptx", "NVIDIA's GPUs: say cuda"),
    (r"(cuda)?sm(\d\d\d?)a?", r"say cuda -arch=sm_\2"),
    (
        r"(nvidia|tesla|geforce)*(v100|t4|a100|a10|l4|l40s|h100|h200|b200|b300|rtx[345]090)(sxm.*|pcie)?",
        r"say cuda -device=\2",
    ),
    (
        r"jetson(agx|nano|nx)*(orin.*)?|orin.*",
        "say cuda -arch=sm_87 -host=aarch64-linux-gnu, or cortex-a78ae for its processors alone",
    ),
    (r"opencl|metal|vulkan|rocm|hip|amdgpu|webgpu|directml|coreml|npu|tpu|hexagon|ethosu?.*", _ONLY_NVIDIA),
    (r"(rpi|pi|raspberrypi|raspi|raspberry)([2-5])b?", r"say raspberrypi\2"),
    (
        r"(rpi|pi|raspberrypi|raspi|raspberry)(0|zero)(2?w?)",
        "Raspberry Pi Zero 2: say raspberrypi3; the first Zero lacks NEON",
    ),
    (r"graviton2|altra|ampere1?altra", "say neoverse-n1"),
    (r"(aws)?graviton3e?", "say neoverse-v1"),
    (r"(aws)?graviton4|gracehopper", "say neoverse-v2"),
    (r"(amd)?zen([1-5])", r"say znver\2"),
    (r"icelake|icl", "say icelake-client or icelake-server"),
    (r"skylakeserver|skylakesp", "say skylake-avx512"),
)


def instead_of(name: str) -> str:
    """Return which target to write instead of a name that is not a target; "" if unknown."""
    short = _short(name)
    for pattern, hint in _SPELLINGS:
        found = re.fullmatch(pattern, short)
        if found:
            return found.expand(hint) if "\\" in hint else hint
    return ""


def near(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint: similar names among the known ones if there are any, and then `otherwise`.

    Names that differ only in case, blanks and hyphens count as the same.
    """
    names = list(dict.fromkeys(known))
    matches = [other for other in names if _short(other) == _short(name)]
    matches = matches or difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    return "; ".join(filter(None, (f"did you mean {' or '.join(map(repr, matches))}?" if matches else "", otherwise)))


def _short(name: str) -> str:
    return re.sub(r"[\s._-]", "", name.lower())
