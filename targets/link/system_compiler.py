"""Finds the system's C compiler, which replaces zig where ziglang is not installed."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import shutil
import sys

from nnefc.support.diagnostics import CompileError

__all__ = ["has_zig", "is_this_machine", "system_archiver", "system_compiler"]

_NAMES = ("cc", "gcc", "clang")
"""The programs that are searched if the variable CC names none; all accept GCC's options."""

_ZIG = "pip install ziglang, which has the headers and libraries of every target"


@functools.cache
def has_zig() -> bool:
    """Returns whether ziglang is installed."""
    from importlib.util import find_spec

    return find_spec("ziglang") is not None


def system_compiler(zig_target: str) -> tuple[str, ...]:
    """Return the command that compiles and links for a target that is this machine's own system.

    A library that is linked by it needs the version of the C library that is installed here, whereas zig links for the
    oldest version that nnefc supports.

    Args:
        zig_target: zig's name of the target, such as `x86_64-linux-gnu.2.28`.

    Raises:
        CompileError: the target is another system or processor, or there is no compiler.
    """
    if not is_this_machine(zig_target):
        raise CompileError(
            f"ziglang is not installed, and the compiler of this system does not link for {zig_target}",
            hint=f"{_ZIG}, or name a compiler for the target: --cc aarch64-linux-gnu-gcc",
        )
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [[name] for name in _NAMES]:
        if shutil.which(command[0]) is not None:
            return tuple(command)
    looked_for = named[0] if named else ", ".join(_NAMES)
    raise CompileError(
        f"ziglang is not installed, and there is no compiler of C here (looked for {looked_for})",
        hint=f"install one, such as the package gcc or clang of the system, or: {_ZIG}",
    )


def system_archiver() -> tuple[str, ...]:
    """Return the system's command `ar`.

    Raises:
        CompileError: there is none.
    """
    program = os.environ.get("AR") or "ar"
    if shutil.which(program) is None:
        raise CompileError(f"ziglang is not installed, and there is no program {program} here", hint=_ZIG)
    return (program,)


def is_this_machine(zig_target: str) -> bool:
    """Return whether the target is this machine's system: processor, kernel and C library."""
    processor, system, *library = zig_target.split("-")
    if processor != {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine()):
        return False
    if system == "linux":
        own = "gnu" if platform.libc_ver()[0] == "glibc" else "musl"
        return sys.platform == "linux" and bool(library) and library[0].split(".")[0] == own
    return system.split(".")[0] == "macos" and sys.platform == "darwin"
