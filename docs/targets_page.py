"""Writes docs/targets.md, from the declarations of targets.

python docs/targets_page.py
"""

from __future__ import annotations

from pathlib import Path

from nnefc.targets.machine.cpu.isa_levels import LEVELS
from nnefc.targets.machine.target_rows import target_rows

__all__ = ["PAGE", "targets_page"]

PAGE = Path(__file__).with_name("targets.md")

_PAGE = """# Targets

nnefc compiles on one machine for another: `nnefc compile model.onnx --target NAME -o model.so`. A name is one of

- `llvm` or `native`: this machine, with all its features
- a name from the table below, which `nnefc targets` also prints
- LLVM's name of an x86-64, Arm or RISC-V processor that runs Linux: `znver4`, `cortex-a78`, `sifive-x280`
- `cuda`: [NVIDIA GPUs](cuda.md), with options such as `cuda -arch=sm_90 -host=aarch64-linux-gnu -precision=fp16`
- TVM's options, in any combination: `llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=-dotprod`
- a JSON file: `{{"triple": "aarch64-linux-gnu", "cpu": "cortex-a76", "attributes": ["-dotprod"], "l2_bytes": 262144}}`

| name | triple | machines | file | vectors | checked at run time | tested |
|---|---|---|---|---|---|---|
{table}

This table is generated from `targets/machine/named_targets.py`; to bring it up to date, run
`python docs/targets_page.py`.

**Vectors** are the number and width in bits of the vector registers that kernels use. *FMA* means that one instruction
multiplies and adds. WebAssembly's SIMD128 has none: products are rounded before they are added. On machines without
vectors, kernels are planned with four scalar registers in place of each. With vectors of RISC-V, code is generated
for registers of 128 bits and also runs on longer ones; `-mattr=+v,+zvl256b` uses 256. Its instructions take groups of
registers for one (LMUL), such that 512 bits are computed at once: `8 × 4 × 128` are eight groups of four.

**Checked at run time** are features that `nnefc_create` looks for before any of the network's code runs. On a machine
that lacks one, or whose operating system does not save the registers that go with it, it returns
`NNEFC_UNSUPPORTED_CPU` and a message that names what is missing. All other features that LLVM knows of a processor and
that are not part of its baseline (cryptography, RISC-V vendors' extensions, …) are switched off, and a warning
says so where `-mattr` asks for them. WebAssembly engines check a module themselves.

**Tested** says how: the same networks are compiled for each target, run under this emulator, and compared with NumPy.
[SqueezeNet was compared with onnxruntime](../benchmarks/results/emulated.md); the same page counts the instructions of
four networks on cores from Cortex-A53 to Cortex-X925: ncnn, LiteRT and onnxruntime execute as many or more in each row.
Libraries for Windows run under Wine.
Those for Android and Apple's systems are linked, and their headers, symbols and dependencies are checked; they have not
been run.

## 32-bit Arm

LLVM joins loads and stores of neighbours to one instruction, and takes a register for their address that is still
needed: [llvm-project 223630](https://github.com/llvm/llvm-project/issues/223630), in versions 14 to 24. The pass is
left out here: the digits take 24 to 248 bytes more of some 50,000 on Cortex-M0+ to M55. Who compiles C for 32-bit Arm
with a clang of their own should leave it out, too: `-mllvm -arm-load-store-opt=false`.

## Vectors of SVE

Instructions of SVE leave open how long vectors are; registers and tiles of kernels do not. Code is made for one length,
where that is longer than NEON's: `-mattr=+sve256` or `+sve512`, as in
`llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=+sve256,+bf16`. For `neoverse-v1` (Graviton 3) and `a64fx`
that length is taken without being asked, and `-mattr=-sve256` leaves it out; all others have 128 bits, or a length that
LLVM's name does not tell. `native` takes this machine's. `nnefc_create` looks at the length that the system gives to
threads, and refuses any other one, also a longer one, as a feature that is missing.

## Outer products (SME)

With `-mattr=+sme`, or `+sme2`, under Linux, as in `llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v2 -mattr=+sme`,
matrix products with a constant right factor, and convolutions in one group, of known sizes, are computed by outer
products where a cost model says that these take less time than vectors: `fmopa` for float32, and for matrix products
of bytes of any signs `smopa`, `umopa`, `usmopa` and `sumopa`. Both factors are packed in blocks of 32 rows and
columns, the constant one at compile time; one call of assembly then enters streaming mode, computes up to 32 rows of
the result, and leaves it. It saves what a caller left in ZA, as the procedure call standard asks. The same library
runs with every length of streaming vectors, and was run with 128, 256 and 512 bits under `qemu-aarch64 -cpu max`. A
library with such kernels looks for `sme`, and refuses other machines.

The costs are estimates for vectors of 512 bits: no such machine was measured. On Apple's systems code uses no SME,
and `+sme` is a warning of one line. Products of two computed factors, dynamic sizes, quantized convolutions, float16,
bfloat16, `--small` and `--reproducible` stay with vectors. Of SME2, nothing but what SME has is used.

## One library for a kind of processor

    nnefc compile model.onnx --target x86-64 --multi -o model.so

makes a library with a program for each ISA level of the target (multiversioning):

| target | ISA levels |
|---|---|
{levels}

The first call of `nnefc_describe` or `nnefc_create` chooses the last level whose instructions the processor has and
the system permits; the description is that of this level, whose name is its `target` (`Model.target` in Python). The
environment variable `NNEFC_LEVEL` names another one that the processor can run, for measurements and tests.
`nnefc inspect` prints the levels of a file. Everything else is as in other libraries: dynamic sizes, specializations,
states, integers, profiles.

- **Arm.** SVE is in no level: with vectors of 128 bits, code is that for NEON, and longer ones would make the blocks
  of all levels wider. Compile for `neoverse-v1` or with `-mattr=+sve256` to use them.
- **Features.** What `-mattr=-avx512f` switches off is in no level.
- **Code.** A level that would compute everything as the one before is left out: float32 has no use for those after
  `x86-64-v4`. A kernel that is the same on two levels with the same vectors is there once.
- **Constants** are there once: filters and factors are in blocks as wide as the widest vectors. A level whose tensors
  have narrower blocks, because the network's channels would not fill wider ones, finds two of its own in each block
  of a filter. An older level takes the newest one's choice of algorithms with larger constants, such as Winograd's,
  unless that costs it 2 % of its time, or 5 % on processors without multiply-adds. In two orders are filters of
  depthwise convolutions and of Winograd's algorithm where blocks differ, and bytes that are multiplied four at a time
  on one level and two at a time on another.
- Matrix products of levels with narrower vectors than the newest one's have fewer tiles to choose from, and Strassen's
  algorithm is for libraries for one processor.
- The compilation takes as long as that of all levels, one after the other.

[Each level compared with a library for it alone](../benchmarks/results/znver4/levels.md).

A processor below all levels, as one of before 2009 is for `x86-64`, is refused by `nnefc_create`, as always: see
*checked at run time* above.

## The toolchain

`ziglang` from PyPI compiles the runtime and links for every target. Where it is not installed, the system's compiler
does it [for this machine](deployment.md#from-python). Wherever a vendor's compiler is wanted, `--cc` names a command
with GCC's options, such as `--cc aarch64-linux-android28-clang` of Android's NDK.

Android's C library and those of Apple's systems are not in ziglang. For Android, the runtime is compiled with headers
of its own (`targets/runtime/android`), and libraries are linked against the names of Android's functions; C of yours
that needs other functions than these headers declare is compiled with the NDK. iOS, its simulator, Mac Catalyst, tvOS
and visionOS have the functions, types and calling convention of macOS: files are linked for macOS, and name the system
that they are for. tvOS and visionOS are named by triples: `llvm -mtriple=aarch64-tvos`, `aarch64-xros`.

Shared libraries for Linux, macOS and Windows are linked with what these systems have. Where a network's code, or C of
yours, calls a function that they do not have, zig compiles its own libraries before it links: seconds, for Windows
minutes, once for each target.

The compiled runtime is kept in the user's cache, in `~/.cache/nnefc` or `$XDG_CACHE_HOME/nnefc`: about 60 KB for each
target. These files can be deleted at any time.

## Page sizes

The largest memory page that a library can be loaded with is 4 KiB on x86-64 and RISC-V; 16 KiB on 32-bit Arm, whose
programs some 64-bit kernels run with such pages, and on Android; and 64 KiB on 64-bit Arm, where Linux for servers
uses them. Files for
Arm contain some zeros for this, less than two such pages.

## WebAssembly

A module imports no function. [`nnefc.mjs`](../targets/runtime/nnefc.mjs) loads it in Node.js and browsers:
[how to](how-to/browser.md). Trained values of a megabyte and more are a section at the end of the file, which the
program writes into the module's memory; until then `nnefc_create` answers `NNEFC_BAD_WEIGHTS`. Other hosts than
JavaScript do the same by [the layout of the sections](ABI.md#modules-of-webassembly).

`wasm32-relaxed` adds relaxed SIMD, which engines have from 2023 on: multiply-adds, which an engine may round
once or twice, so that the last bits of results differ between processors. A module for it is refused by engines
without; the loader takes a list of modules, and the first of these that the engine can run. `wasm32-threads` and
`wasm32-relaxed-threads` share memory with workers. Where that is not possible, as in pages that are not isolated, the
same module runs on one thread. An instance of a module without threads has memory of its own, and runs on the thread
that calls it.

Bytes are multiplied in pairs of 16 bits, by `i32x4.dot_i16x8_s`: exactly, on all engines. The dot product of relaxed
SIMD is defined for 7 bits of one operand. What it does with 8 bits is an engine's choice, which the specification wants
to be the same throughout a program. So it can be tried out: `wasm32-relaxed-udot` is for engines where it is the exact
product of unsigned and signed bytes, as with AVX-VNNI, and `wasm32-relaxed-sdot` for those where it is that of signed
ones, as on Arm. Networks of bytes are faster on these. `supports` of the loader tells which
an engine is, and a session is refused elsewhere.

## Microcontrollers

Targets without an operating system, such as `cortex-m4`, give a static library and a header: see
[how to run a network on a microcontroller](how-to/microcontroller.md). The floats of those with a unit for them are
passed in its registers (`-mfloat-abi=hard`).

## Threads

A session starts as many threads as `nnefc_options` or `NNEFC_NUM_THREADS` says. The default is the number of processors
that the process may use: by its affinity mask, and on Linux by the quota of its container, rounded up (`cpu.max`, or
`cpu.cfs_quota_us` of control groups version 1).
"""


def targets_page() -> str:
    """docs/targets.md."""
    lines = [
        f"| `{r.name}` | {r.triple} | {r.about} | {r.file} | {r.vectors} | {r.features} | {r.proof} |"
        for r in target_rows()
    ]
    return _PAGE.format(table="\n".join(lines), levels=_levels())


_FAMILIES = {"x86_64": "x86-64", "aarch64": "64-bit Arm"}


def _levels() -> str:
    """Returns a row of the table of ISA levels for each instruction set that has some."""
    rows = []
    for architecture, levels in LEVELS.items():
        names = (f"`{level.name}`{f' ({level.about})' if level.about else ''}" for level in levels)
        rows.append(f"| {_FAMILIES[architecture]} | {', '.join(names)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    PAGE.write_text(targets_page(), encoding="utf-8")
