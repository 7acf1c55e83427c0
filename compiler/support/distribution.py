"""Names the distribution that nnefc was installed from, and what to install for what it lacks."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable

__all__ = ["COMPILERS", "RUNTIME", "compiler_hint", "extra_hint", "installed", "installed_version", "versions_of"]

COMPILERS = ("nnefc", "nnefc-slim")
"""The distributions with the compiler: with zig, and without, for the system's compiler of C."""

RUNTIME = "nnefc-runtime"
"""The distribution that loads, runs and serves libraries, without the compiler."""

_TVM_WHEELS = {("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64")}
"""Systems and processors, as markers of requirements name them, for which the compiler is installed: pyproject.toml."""

_LOADING = "libraries that are already compiled load and run without it"


def installed() -> tuple[str, str]:
    """Returns the name and version of the distribution, the one with the compiler if there are two.

    Raises:
        PackageNotFoundError: the package was copied, not installed.
    """
    from importlib.metadata import PackageNotFoundError, version  # which takes as long to import as the loader

    for name in (*COMPILERS, RUNTIME):
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    raise PackageNotFoundError(COMPILERS[0])


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the versions of distributions that are installed in folders, by their names; without the others.

    Reads the names of folders alone: Python's `importlib.metadata` takes as long to import as the loader.
    """
    spelled = {re.sub(r"[-_.]+", "_", name).lower(): name for name in names}
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:  # an archive, or not there
            continue
        for entry in sorted(entries):
            own, _, version = entry.removesuffix(".dist-info").partition("-")
            name = spelled.get(own.lower()) if entry.endswith(".dist-info") else None
            if name is not None:
                found.setdefault(name, version)
    return found


def installed_version() -> str:
    """Returns the version of the distribution; raises as `installed` does."""
    return installed()[1]


def extra_hint(extra: str) -> str:
    """Returns the command that installs an extra of the distribution that is installed."""
    return f"pip install '{_installed_name()}[{extra}]'"


def compiler_hint() -> str:
    """Returns how to get the compiler where it is not installed."""
    machine = sys.platform, platform.machine()
    if machine not in _TVM_WHEELS:
        return (
            f"TVM, which the compiler builds on, has no wheels for {machine[0]} on {machine[1]}: compile on another "
            f"machine, with --target for this one; {_LOADING}"
        )
    if _installed_name() == RUNTIME:
        return f"pip uninstall {RUNTIME}, then pip install nnefc, which has all of it and the compiler; {_LOADING}"
    return f"pip install nnefc; {_LOADING}"


def _installed_name() -> str:
    from importlib.metadata import PackageNotFoundError

    try:
        return installed()[0]
    except PackageNotFoundError:
        return COMPILERS[0]
