"""zig (`ziglang` on PyPI), the compiler and linker for every target: how it is run, and where it keeps files."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

from nnefc.diagnostics import CompileError

__all__ = ["OTHER_COMPILERS", "run_compiler", "user_cache", "zig"]

OTHER_COMPILERS = "install it, or give another; without one, zig comes with nnefc: pip install ziglang"
"""What users can do whose compiler does not run."""


@functools.cache
def zig() -> tuple[str, ...]:
    """The words that run zig: the program itself, which `python -m ziglang` would start a Python for."""
    package = find_spec("ziglang")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        program = Path(place) / ("zig.exe" if os.name == "nt" else "zig")
        if program.is_file():
            return (str(program),)
    return (sys.executable, "-m", "ziglang")  # which says what is missing


def run_compiler(command: Sequence[str], folder: Path, failure: str = "the linker failed") -> None:
    """Run a compiler, zig or another; zig with its local cache in `folder`: only the C library's stubs are kept.

    Args:
        command: its words.
        folder: whose name messages do not show.
        failure: what its messages are introduced with.

    Raises:
        CompileError: it cannot be run, or fails.
    """
    environment = {**os.environ, "ZIG_LOCAL_CACHE_DIR": str(folder)}
    cache = user_cache()
    if cache is None:
        environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(folder / "global"))  # slower, for nothing is kept
    elif os.name == "posix" and not {"HOME", "XDG_CACHE_HOME"} & {name for name, value in os.environ.items() if value}:
        environment.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache / "zig"))  # where it would be if zig knew the home
    try:
        done = run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    except OSError as error:
        raise CompileError(
            f"cannot run the compiler {command[0]}: {error.strerror}",
            hint=OTHER_COMPILERS,
        ) from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        message = "\n".join(lines[:20]).replace(str(folder), "<link>") or f"it ended with status {done.returncode}"
        raise CompileError(
            f"{failure}:\n{message}",
            hint="is the ziglang package whole, and does zig know the target?" if not lines else None,
        )


def user_cache() -> Path | None:
    """The folder under which zig keeps the stubs of C libraries by default; None if it cannot write there.

    In containers there may be no home; under systemd the system knows one, but not the environment, which is all that
    zig asks.
    """
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return cache if os.access(cache, os.W_OK | os.X_OK) else None
