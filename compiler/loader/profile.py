"""Reads the times of kernels: of a session that takes them, or of a library that was compiled with --profile."""

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
"""Pieces that there is room for at first."""
_PIECE = np.dtype([("kernel", "i4"), ("thread", "i4"), ("begin", "u8"), ("nanoseconds", "u8")])  # nnefc_piece


@dataclass(frozen=True)
class KernelTime:
    """Total time of a kernel's calls at one location of a network.

    Attributes:
        kernel: its name in the library.
        tensors: of the model, that it computes or was made for.
        rule: the schedule rule that it got.
        operations: arithmetic of one call; 0 if it is not known.
        bytes: that one call reads and writes, each once; 0 if it is not known.
        calls: how many there were; of all sessions in a library compiled with profiling.
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


@dataclass(frozen=True)
class Piece:
    """What one thread of a session computed of a kernel at one stretch, or a whole call of a kernel.

    Attributes:
        kernel: its number in what :meth:`Model.profile` returns.
        thread: the thread's number, of which the one that called has 0; None for a whole call.
        begin, seconds: when it began, in seconds since the moment that `KernelTime.last_begin` counts from, and what it
            took.
    """

    kernel: int
    thread: int | None
    begin: float
    seconds: float


def traced(
    trace: Callable[[int | None, int], int], run: Callable[[], object], maximum: int | None = None
) -> list[Piece]:
    """The pieces of a run, in the order in which they began; `trace` is a library's `nnefc_profile_trace`.

    Without a number of pieces that there is room for, a run that has more than usual is repeated with more room.

    Raises:
        RunError: there are more than `maximum`, or `run` raises it.
    """
    if maximum is not None and maximum < 1:
        raise RunError(f"most is {maximum}: let there be room for a piece at least")
    room, count = _noted(trace, run, maximum or _USUAL)
    if maximum is None and count > _USUAL:
        room, count = _noted(trace, run, count + count // 8)  # threads may share loops out a little otherwise
    if count > (maximum := room.size):
        raise RunError(f"the run has {count:,} pieces, more than {maximum:,}: let there be room for more")
    found = room[:count]
    return [
        Piece(kernel, thread if thread >= 0 else None, begin * _SECOND, took * _SECOND)
        for kernel, thread, begin, took in found[np.argsort(found["begin"], kind="stable")].tolist()
    ]


def _noted(trace: Callable[[int | None, int], int], run: Callable[[], object], maximum: int) -> tuple[np.ndarray, int]:
    """Room with the pieces of a run, and how many these are."""
    room = np.empty(maximum, _PIECE)
    trace(room.ctypes.data, maximum)
    try:
        run()
    finally:
        count = trace(None, 0)
    return room, count


def kernel_times(read: Callable[[Any, int], int]) -> list[KernelTime]:
    """Returns the times of kernels in the order in which the network runs them; `read` is a library's `nnefc_profile`,
    or its `nnefc_session_times` for a session.
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
