"""Compiles and links for Android without its NDK, by headers of our own and stub libraries.

At load time, Android's linker needs the names of the functions in its C library. The stub libraries that are linked
here, `libc.so` and others, define the functions of `runtime/android/bionic.h` without code. A network whose C code
calls other functions has to be linked by the NDK's compiler, `--cc`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnefc.targets.link.zig import run_compiler

__all__ = ["ANDROID_FLAGS", "android_functions", "stub_libraries"]

_HEADERS = Path(__file__).parents[1] / "runtime" / "android"
_ARM_MEMORY = ("memcpy", "memmove", "memset", "memclr")

ANDROID_FLAGS = ("-nostdlibinc", "-isystem", str(_HEADERS))
"""Options by which zig finds the headers."""

_LIBRARIES = {"math.h": "libm.so", "dlfcn.h": "libdl.so"}
_OTHERS = "libc.so"
_ALWAYS = {
    _OTHERS: (
        *("__cxa_atexit", "__cxa_finalize", "__stack_chk_fail"),
        *(f"__aeabi_{name}{align}" for name in _ARM_MEMORY for align in ("", "4", "8")),
    )
}
"""What compilers call besides."""


@functools.cache
def android_functions() -> Mapping[str, tuple[str, ...]]:
    """Return the names that the headers declare, by the library of Android that defines them."""
    found: dict[str, list[str]] = {name: list(names) for name, names in _ALWAYS.items()}
    library = _OTHERS
    for line in (_HEADERS / "bionic.h").read_text(encoding="utf-8").splitlines():
        if section := re.fullmatch(r"/\* ([\w/]+\.h) \*/", line):
            library = _LIBRARIES.get(section[1], _OTHERS)
        found.setdefault(library, []).extend(_declared(line))
    return {name: tuple(sorted(names)) for name, names in sorted(found.items())}


def _declared(line: str) -> list[str]:
    """Return the functions and variables that a line of a header declares."""
    if both := re.fullmatch(r"NNEFC_OF_(?:ONE|TWO)\((\w+)\)", line):
        return [both[1], f"{both[1]}f"]
    line = re.sub(r"__attribute__\(\(.*?\)\)\)? ?(?=\w)", "", line)
    if variable := re.fullmatch(r"extern \w+ \*?(\w+);", line):
        return [variable[1]]
    function = re.match(r"(?!typedef|struct \w+ \{|#|/| )[\w *]*?\b(\w+)\(.*\)[^()]*(\(\(.*\)\))?;$", line)
    return [function[1]] if function else []


def stub_libraries(compiler: Sequence[str], folder: Path) -> list[str]:
    """Link the stub libraries, and return their paths.

    Args:
        compiler: zig's command for the target.
        folder: for the libraries.

    Raises:
        CompileError: the linker fails.
    """
    made = []
    for library, names in android_functions().items():
        source, output = folder / f"{library}.S", folder / library
        lines = [f".globl {name}\n.type {name}, %function\n{name}:" for name in names]
        source.write_text(".text\n" + "\n".join(lines) + "\n", encoding="utf-8")
        words = ["-nostdlib", "-shared", "-Xlinker", "-soname", "-Xlinker", library, str(source), "-o", str(output)]
        run_compiler([*compiler, *words], folder)
        made.append(str(output))
    return made
