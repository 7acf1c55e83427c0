"""Execution providers: which there are on this machine, and which of those that a program asks for are used."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .fields import ignored

__all__ = [
    "ALL_PROVIDERS",
    "CPU",
    "CUDA",
    "Provider",
    "available_providers",
    "check_and_normalize_provider_args",
    "get_all_providers",
    "get_available_providers",
    "providers_of",
]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"

ALL_PROVIDERS = (
    "TensorrtExecutionProvider",
    CUDA,
    "MIGraphXExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "CoreMLExecutionProvider",
    "DmlExecutionProvider",
    "RknpuExecutionProvider",
    "WebNNExecutionProvider",
    "WebGpuExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
    CPU,
)
"""All names of onnxruntime's providers, in its order of precedence."""

_TARGETS = {CPU: "llvm", CUDA: "cuda"}
"""Targets of nnefc by the names of providers."""


@dataclass(frozen=True)
class Provider:
    """An execution provider that a session uses, and its options."""

    name: str
    options: Mapping[str, str]

    @property
    def target(self) -> str:
        """What a model is compiled for."""
        return _TARGETS[self.name]

    @property
    def device(self) -> int:
        """The number of the GPU; 0 for processors."""
        return int(self.options.get("device_id", 0)) if self.name == CUDA else 0


@cache
def _has_gpu() -> bool:
    """Returns whether there is NVIDIA's driver, which is not initialized, so that the process may fork."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    if sys.platform == "linux" and not any(map(Path.exists, map(Path, ("/dev/nvidiactl", "/dev/dxg")))):
        return False
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def available_providers() -> list[str]:
    """Returns the providers that this machine has: that of NVIDIA's GPUs, if there is a driver, and the CPU."""
    return [CUDA, CPU] if _has_gpu() else [CPU]


def get_available_providers() -> list[str]:
    """Returns the providers that this machine has, in their order of precedence."""
    return available_providers()


def get_all_providers() -> list[str]:
    """Returns the names of all providers of onnxruntime."""
    return list(ALL_PROVIDERS)


def check_and_normalize_provider_args(
    providers: Sequence[Any] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Returns names of providers and as many mappings of options, without those that are not available.

    A provider that is not available, or occurs twice, is left out with a warning. Names that are no providers of
    onnxruntime stay: the session refuses them.

    Raises:
        ValueError: the arguments are no sequences of names, of pairs of a name and options, or of options.
    """
    if providers is None:
        return [], []
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        raise ValueError(f"providers is a {type(providers).__name__}, and not a sequence")
    found: dict[str, dict[str, str]] = {}
    for name, options in _pairs(providers, provider_options):
        if name in found:
            warnings.warn(f"the execution provider {name} is given twice: its first options are used", stacklevel=4)
            continue
        if name in ALL_PROVIDERS and name not in available_provider_names:
            known = ", ".join(available_provider_names)
            warnings.warn(
                f"the execution provider {name} is not available on this machine, and is left out; {known} can be used",
                stacklevel=4,
            )
            continue
        found[name] = {str(key): str(value) for key, value in options.items()}
    return list(found), list(found.values())


def _pairs(
    providers: Sequence[Any], provider_options: Sequence[Mapping[Any, Any]] | None
) -> list[tuple[str, Mapping[Any, Any]]]:
    """Returns names with options, given in pairs or in two sequences.

    Raises:
        ValueError: neither of these is given.
    """
    if provider_options is not None:
        if not isinstance(provider_options, Sequence):
            raise ValueError(f"provider_options is a {type(provider_options).__name__}, and not a sequence")
        if len(providers) != len(provider_options):
            raise ValueError(f"there are options of {len(provider_options)} providers, but {len(providers)} providers")
        if not all(isinstance(name, str) for name in providers):
            raise ValueError("with provider_options, each of the providers is a name")
        if not all(isinstance(options, Mapping) for options in provider_options):
            raise ValueError("each of provider_options is a mapping")
        return list(zip(providers, provider_options, strict=True))
    pairs: list[tuple[str, Mapping[Any, Any]]] = []
    for provider in providers:
        match provider:
            case str():
                pairs.append((provider, {}))
            case (str() as name, Mapping() as options):
                pairs.append((name, options))
            case _:
                kind = type(provider).__name__
                raise ValueError(f"a provider is a name, or a pair of a name and a mapping of options, not a {kind}")
    return pairs


def providers_of(
    providers: Sequence[Any] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    added: Sequence[tuple[str, dict[str, str]]] = (),
) -> list[Provider]:
    """Returns the providers that a session uses, the CPU last.

    Args:
        providers, provider_options: as the session gets them.
        added: those of its options, used where it gets none.

    Raises:
        ValueError: as :func:`check_and_normalize_provider_args`.
        RuntimeError: a name is no provider of onnxruntime.
    """
    names, options = check_and_normalize_provider_args(providers, provider_options, available_providers())
    if names and added:
        warnings.warn("the options of the session have execution providers, too: its arguments are used", stacklevel=3)
    pairs = list(zip(names, options, strict=True)) or list(added)
    for name, given in pairs:
        if name not in _TARGETS:
            raise RuntimeError(f"there is no execution provider {name}")
        number = given.get("device_id", "0")
        if name == CUDA and not number.isdecimal():
            raise ValueError(f"device_id of {CUDA} is {number!r}, and not the number of a GPU")
        for key in given:
            if (name, key) != (CUDA, "device_id"):
                ignored(f"the option {key} of {name}")
    found = [Provider(name, given) for name, given in pairs]
    return found if any(provider.name == CPU for provider in found) else [*found, Provider(CPU, {})]
