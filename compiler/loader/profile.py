"""Reads the times of kernels, which a session measures on request and a library compiled with --profile always."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .interface import KernelTimesStruct
from .tensors import RunError

__all__ = ["KernelTime", "Piece", "kernel_times", "traced"]

_SECOND = 1e-9  # a nanosecond
_USUAL = 1 << 20
"""Pieces for which memory is allocated at first."""
_PIECE = np.dtype([("kernel", "i4"), ("thread", "i4"), ("begin", "u8"), ("nanoseconds", "u8")])  # nnefc_piece


@dataclass(frozen=True)
class KernelTime:
    """Total time of a kernel's calls at one position in the network.

    Attributes:
        kernel: its name in the library.
        tensors: of the model, that the kernel computes or was made for.
        rule: the schedule rule that was applied to it.
        operations: arithmetic operations of one call; 0 if unknown.
        bytes: that one call reads and writes, each once; 0 if unknown.
        calls: the number of calls; in a library compiled with profiling, of all sessions.
        seconds: of all calls.
        last_begin, last_seconds: start of the last call, in seconds since an arbitrary moment, and its duration.
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


@dataclass(frozen=True)
class Piece:
    """The part of a kernel's call that one thread executed without interruption, or a complete call.

    Attributes:
        kernel: its index in the list that :meth:`Model.profile` returns.
        thread: the number of the thread, 0 for the calling one; None for a complete call.
        begin, seconds: start, in seconds since the same moment as `KernelTime.last_begin`, and duration.
    """

    kernel: int
    thread: int | None
    begin: float
    seconds: float


def traced(
    trace: Callable[[int | None, int], int], run: Callable[[], object], maximum: int | None = None
) -> list[Piece]:
    """Run, and return the pieces of the run in the order in which they began.

    Args:
        trace: the library's function `nnefc_profile_trace`.
        run: runs the network once.
        maximum: the pieces for which memory is allocated; None: a default, and a run that has more pieces is repeated
            with more memory.

    Raises:
        RunError: there are more than `maximum` pieces, or `run` raises it.
    """
    if maximum is not None and maximum < 1:
        raise RunError(f"most is {maximum}: let there be room for a piece at least")
    room, count = _recorded(trace, run, maximum or _USUAL)
    if maximum is None and count > _USUAL:
        room, count = _recorded(trace, run, count + count // 8)  # threads may divide loops a little differently
    if count > (maximum := room.size):
        raise RunError(f"the run has {count:,} pieces, more than {maximum:,}: let there be room for more")
    found = room[:count]
    return [
        Piece(kernel, thread if thread >= 0 else None, begin * _SECOND, took * _SECOND)
        for kernel, thread, begin, took in found[np.argsort(found["begin"], kind="stable")].tolist()
    ]


def _recorded(
    trace: Callable[[int | None, int], int], run: Callable[[], object], maximum: int
) -> tuple[np.ndarray, int]:
    """Return an array of `maximum` pieces of a run, and the number of pieces, which may be larger."""
    room = np.empty(maximum, _PIECE)
    trace(room.ctypes.data, maximum)
    try:
        run()
    finally:
        count = trace(None, 0)
    return room, count


def kernel_times(read: Callable[[Any, int], int]) -> list[KernelTime]:
    """Return the times of kernels, in the order in which the network runs them.

    `read` is the library's function `nnefc_profile`, or `nnefc_session_times` for a session.
    """
    count = read(None, 0)
    found = (KernelTimesStruct * count)()
    read(found, count)
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
