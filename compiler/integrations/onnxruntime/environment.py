"""Functions of onnxruntime that are about the process and the package: versions, loggers, seeds."""

from __future__ import annotations

import logging
import operator
import platform
import sys
from collections.abc import Callable
from typing import Any

from .fields import LOG, ignored
from .providers import CUDA, available_providers

__all__ = [
    "VERSION",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]

VERSION = "1.32.0"
"""The version of onnxruntime whose interface this is."""

_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Python's levels by onnxruntime's severities."""


def get_device() -> str:
    """Returns "GPU" where this machine has one of NVIDIA's, else "CPU"."""
    return "GPU" if CUDA in available_providers() else "CPU"


def get_version_string() -> str:
    """Returns the version of onnxruntime whose interface this is."""
    return VERSION


def get_build_info() -> str:
    """Returns the name and version of this package."""
    from importlib.metadata import PackageNotFoundError

    from nnefc.support.distribution import installed_version

    try:
        own = installed_version()
    except PackageNotFoundError:
        own = "of a source tree"
    return f"nnefc {own}, interface of ORT {VERSION}"


def has_collective_ops() -> bool:
    """Returns False: there are no collective operators."""
    return False


def set_default_logger_severity(severity: int, /) -> None:
    """Sets the level of the logger `nnefc.onnxruntime`: 0 for verbose, 4 for fatal errors alone.

    Raises:
        RuntimeError: there is no such severity.
    """
    number = operator.index(severity)
    if not 0 <= number < len(_LEVELS):
        raise RuntimeError(f"there is no severity {number}: 0 is verbose, 1 information, 2 warning, 3 error, 4 fatal")
    LOG.setLevel(_LEVELS[number])


def set_default_logger_verbosity(verbosity: int, /) -> None:
    """Is accepted, and has no effect."""
    operator.index(verbosity)
    ignored("set_default_logger_verbosity")


def set_default_logger_callback(callback: Callable[..., Any] | None, severity: int = 2) -> None:
    """Is accepted, and has no effect: messages go to the logger `nnefc.onnxruntime` of Python."""
    ignored("set_default_logger_callback")


def set_seed(seed: int, /) -> None:
    """Is accepted, and has no effect: a network that draws random numbers is compiled with its own seeds."""
    operator.index(seed)
    ignored("set_seed")


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0, **_: Any) -> None:
    """Is accepted, and has no effect: each session has threads of its own."""
    ignored("set_global_thread_pool_sizes")


def disable_telemetry_events() -> None:
    """Does nothing: there is no telemetry."""


def enable_telemetry_events() -> None:
    """Does nothing: there is no telemetry."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Does nothing: a library needs NVIDIA's driver alone."""


def print_debug_info() -> None:
    """Prints versions and the machine."""
    print(get_build_info())
    print(f"Python {sys.version.split()[0]} on {platform.platform()}")
    print(f"execution providers: {', '.join(available_providers())}")
