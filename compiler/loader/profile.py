"""What the kernels of a library take, if it was compiled with --profile."""

from __future__ import annotations

from ctypes import CDLL
from dataclasses import dataclass

from .interface import KernelTimesStruct

__all__ = ["KernelTime", "kernel_times"]

_SECOND = 1e-9  # a nanosecond


@dataclass(frozen=True)
class KernelTime:
    """What the calls of a kernel at one place of a network took, in a library compiled to take times.

    Attributes:
        kernel: its name in the library.
        tensors: of the model, that it computes or was made for.
        rule: the schedule rule that it got.
        operations: arithmetic of one call; 0 if it is not known.
        bytes: that one call reads and writes, each once; 0 if it is not known.
        calls: how many there were, of all sessions.
        seconds: of all calls.
        last_begin, last_seconds: when the last call began, in seconds since some moment, and what it took.
    """

    kernel: str
    tensors: tuple[str, ...]
    rule: str
    operations: int
    bytes: int
    calls: int
    seconds: float
    last_begin: float
    last_seconds: float


def kernel_times(dll: CDLL) -> list[KernelTime]:
    """Those of an opened library, in the order in which the network runs them."""
    count = dll.nnefc_profile(None, 0)
    found = (KernelTimesStruct * count)()
    dll.nnefc_profile(found, count)
    return [
        KernelTime(
            kernel=times.kernel.decode(),
            tensors=tuple(times.tensors.decode().split("\n")[:-1]),
            rule=times.rule.decode(),
            operations=times.operations,
            bytes=times.bytes,
            calls=times.calls,
            seconds=times.nanoseconds * _SECOND,
            last_begin=times.last_begin * _SECOND,
            last_seconds=times.last_nanoseconds * _SECOND,
        )
        for times in found
    ]
