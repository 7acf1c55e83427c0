"""Finds the compiler and linker for a target: a user's command, zig, or the system's compiler."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from itertools import chain

from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.android import ANDROID_FLAGS
from nnefc.targets.link.system_compiler import has_zig, system_compiler
from nnefc.targets.link.zig import OTHER_COMPILERS, zig
from nnefc.targets.machine.cpu.architecture import architecture_of
from nnefc.targets.machine.llvm_quirks import wrong_passes
from nnefc.targets.machine.system import is_android, linker_target

__all__ = ["check_compiler", "command_of", "compiler_for", "stand_in"]


def compiler_for(zig_target: str, zig_cpu: str, cc: Sequence[str] = ()) -> Sequence[str]:
    """Return the command of the compiler for a target: the user's `cc`, zig, or the system's compiler if zig is
    missing.

    Raises:
        CompileError: zig is not installed, and the system's compiler cannot compile for the target.
    """
    cc = cc or stand_in(zig_target)
    if cc:
        return (*cc, *_page_flags(zig_target))
    left_out = (("-mllvm", f"-{option}=false") for option in wrong_passes(architecture_of(zig_target).name))
    system = _android_flags(zig_target) if is_android(zig_target) else ()
    options = (f"-mcpu={zig_cpu}", *chain.from_iterable(left_out), *_page_flags(zig_target), *system)
    return (*zig(), "cc", "-target", linker_target(zig_target), *options)


def _android_flags(zig_target: str) -> tuple[str, ...]:
    """Return the options for Android's headers and calling convention.

    On 32-bit Arm floats are passed in integer registers, but computed in the floating-point unit. Atomic operations are
    inline instructions: the compiler's library, which would choose them at run time, is not linked.
    """
    own = {"arm": ("-mfloat-abi=softfp",), "aarch64": ("-mno-outline-atomics",)}
    return (*ANDROID_FLAGS, *own.get(zig_target.partition("-")[0], ()))


def stand_in(zig_target: str) -> Sequence[str]:
    """Return the command of the system's compiler if zig is not installed; else empty."""
    return () if has_zig() else system_compiler(zig_target)


def _page_flags(zig_target: str) -> tuple[str, ...]:
    """Return the option for the maximum page size of systems for which the linker's default is larger than needed.

    Segments are aligned to this size, so files contain padding. 32-bit Arm has pages of 4 KiB, or 16 KiB under some
    64-bit kernels; the linker's default of 64 KiB is for 64-bit Arm only. Android has 4 or 16 KiB, but older linkers of
    its NDK use the smaller.
    """
    sixteen = zig_target.startswith("arm-") or is_android(zig_target)
    return ("-Wl,-z,max-page-size=16384",) if sixteen else ()


def check_compiler(zig_target: str, command: str | None) -> None:
    """Check that there is a compiler for a target, before work is done for it.

    Raises:
        CompileError: the user's command does not run, or there is no compiler for the target.
    """
    compiler_for(zig_target, "baseline", command_of(command) if command is not None else ())


def command_of(text: str) -> tuple[str, ...]:
    """Split a compiler's command that a user has given into words.

    Raises:
        CompileError: it is empty, has an unclosed quotation, or there is no such program.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise CompileError(f"the command {text!r} ends inside a quotation") from error
    if not words:
        raise CompileError("the command of the compiler is empty", hint="such as --cc aarch64-linux-gnu-gcc")
    if shutil.which(words[0]) is None:
        raise CompileError(f"cannot run the compiler {words[0]}: there is no such program", hint=OTHER_COMPILERS)
    return words
