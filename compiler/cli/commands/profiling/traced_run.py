"""Traces one run: which thread ran which kernel when, and the contents of the workspace over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from nnefc.inspect.library_graph import Lifetime, lifetimes, title_of

if TYPE_CHECKING:
    from nnefc.loader import KernelTime, Piece
    from nnefc.targets.description.library import KernelDescription

__all__ = ["TracedRun", "chrome_trace", "last_calls"]

_MICROSECOND = 1e-6


@dataclass(frozen=True)
class TracedRun:
    """The trace of one run; times are in seconds.

    Attributes:
        kernels: the description of each kernel.
        pieces: of the kernels' calls, in the order in which they began.
        knows_threads: whether the pieces say which thread computed them; if not, they are complete calls only.
    """

    kernels: Sequence[KernelDescription]
    pieces: Sequence[Piece]
    knows_threads: bool = True

    @cached_property
    def calls(self) -> Sequence[Piece]:
        """The complete calls of kernels."""
        return [piece for piece in self.pieces if piece.thread is None]

    @cached_property
    def threads(self) -> Sequence[Sequence[Piece]]:
        """The pieces of each thread: parts of parallel loops, and for the first thread also calls without parallel
        loops. Empty if unknown.
        """
        if not self.knows_threads:
            return []
        count = 1 + max((piece.thread for piece in self.pieces if piece.thread is not None), default=0)
        found: list[list[Piece]] = [[] for _ in range(count)]
        shared = [piece for piece in self.pieces if piece.thread is not None]
        for piece in shared:
            found[piece.thread or 0].append(piece)
        index = 0
        for call in self.calls:
            while index < len(shared) and shared[index].begin < call.begin:
                index += 1
            if index == len(shared) or shared[index].begin >= call.begin + call.seconds:
                found[0].append(call)
        found[0].sort(key=lambda piece: piece.begin)
        return found

    @property
    def begin(self) -> float:
        """The start of the first call."""
        return self.calls[0].begin if self.calls else 0.0

    @property
    def seconds(self) -> float:
        """The time from the start of the first call to the end of the last."""
        return max((call.begin + call.seconds for call in self.calls), default=self.begin) - self.begin

    @cached_property
    def busy(self) -> Sequence[float]:
        """The time that each thread computed."""
        return [sum(piece.seconds for piece in pieces) for pieces in self.threads]

    @cached_property
    def seconds_of(self) -> Sequence[float]:
        """The time of each kernel's calls."""
        return self._sums([self.calls])

    @cached_property
    def busy_in(self) -> Sequence[float]:
        """The average number of threads that computed during each kernel's calls; 0 for kernels without calls."""
        return [a / b if b else 0.0 for a, b in zip(self._sums(self.threads), self.seconds_of, strict=True)]

    def _sums(self, rows: Sequence[Sequence[Piece]]) -> list[float]:
        sums = [0.0] * len(self.kernels)
        for piece in chain.from_iterable(rows):
            sums[piece.kernel] += piece.seconds
        return sums

    @cached_property
    def stays(self) -> Sequence[tuple[Lifetime, float, float]]:
        """The buffers in the workspace, with the start and the end of their lifetimes since the start of the run."""
        spans: dict[int, tuple[float, float]] = {}
        for call in self.calls:
            begin, end = call.begin - self.begin, call.begin + call.seconds - self.begin
            first, last = spans.get(call.kernel, (begin, end))
            spans[call.kernel] = min(first, begin), max(last, end)
        return [
            (life, spans[life.first][0], spans[life.last][1])
            for life in lifetimes(self.kernels)
            if life.first in spans and life.last in spans and spans[life.first][0] <= spans[life.last][1]
        ]

    def name(self, kernel: int) -> str:
        """Return the operators and the tensors that a kernel computes."""
        kernel_description = self.kernels[kernel]
        return (
            f"{title_of(kernel_description)}: {', '.join(kernel_description.tensors[:6]) or kernel_description.kernel}"
        )


def last_calls(kernels: Sequence[KernelTime]) -> list[Piece]:
    """Return the last call of each kernel as a piece, in the order in which they began."""
    from nnefc.loader import Piece

    made = [Piece(n, None, each.last_begin, each.last_seconds) for n, each in enumerate(kernels) if each.calls]
    return sorted(made, key=lambda piece: piece.begin)


def chrome_trace(run: TracedRun) -> dict[str, Any]:
    """Return the run in the Trace Event Format, for Perfetto and chrome://tracing.

    It has a row for the kernels, one for each thread, and a counter with the used bytes of the workspace.
    """
    names = ["kernels", *(f"thread {number}" for number in range(len(run.threads)))]
    events: list[dict[str, Any]] = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": row, "args": {"name": name}}
        for row, name in enumerate(names)
    ]
    for row, pieces in enumerate((run.calls, *run.threads)):
        events += (_event(run, piece, row) for piece in pieces)
    events += _memory(run)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _event(run: TracedRun, piece: Piece, row: int) -> dict[str, Any]:
    kernel_description = run.kernels[piece.kernel]
    return {
        "name": ", ".join(kernel_description.tensors) or kernel_description.kernel,
        "cat": kernel_description.rule,
        "ph": "X",
        "ts": (piece.begin - run.begin) / _MICROSECOND,
        "dur": piece.seconds / _MICROSECOND,
        "pid": 0,
        "tid": row,
        "args": {
            "kernel": kernel_description.kernel,
            "operations": kernel_description.operations,
            "bytes": kernel_description.bytes,
        },
    }


def _memory(run: TracedRun) -> Iterator[dict[str, Any]]:
    """Yield counter events with the used bytes of the workspace, one for each change."""
    changes: dict[float, int] = {}
    for life, begin, end in run.stays:
        changes[begin] = changes.get(begin, 0) + life.bytes
        changes[end] = changes.get(end, 0) - life.bytes
    held = 0
    for time in sorted(changes):
        held += changes[time]
        yield {"name": "workspace", "ph": "C", "pid": 0, "ts": time / _MICROSECOND, "args": {"bytes": held}}
