"""Times several contenders in turns, and summarizes and compares their times."""

from __future__ import annotations

import gc
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Amount", "Busy", "Contender", "Times", "busy_warning", "take_turns"]

TURN = 0.2
"""Seconds of a turn, in which a contender runs at least once: long compared with changing the contender, and short
compared with changes of the clock rate.
"""

TURNS = 10
"""The number of turns over which a given number of runs is divided."""

PAUSE = 0.02
"""Seconds before each turn, so that the previous contender's threads stop spinning and go to sleep."""


@dataclass(frozen=True)
class Amount:
    """How long each contender runs.

    Attributes:
        seconds: total time of a contender, if `runs` is None.
        runs: on each stream; None: as many as fit in the time.
        warm_up: runs before the measurement.
    """

    seconds: float
    runs: int | None
    warm_up: int


@dataclass
class Times:
    """The times of one contender.

    Attributes:
        runs: seconds of each run.
        elapsed: seconds of all turns, in which the streams run in parallel.
        repeats: the number of runs on the stream that ran most often.
    """

    runs: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    repeats: int = 0

    @property
    def median(self) -> float:
        """The median of the run times, in seconds."""
        return statistics.median(self.runs)

    @property
    def mean(self) -> float:
        """The mean of the run times, in seconds."""
        return statistics.fmean(self.runs)

    @property
    def rate(self) -> float:
        """Runs per second on all streams together."""
        return len(self.runs) / self.elapsed

    def percentile(self, percent: float) -> float:
        """Returns a percentile of the run times, in seconds."""
        ordered = sorted(self.runs)
        return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


@dataclass(frozen=True)
class Contender:
    """Something to time.

    Attributes:
        name: in the report.
        streams: functions that run the network once; streams run in parallel.
    """

    name: str
    streams: Sequence[Callable[[], object]]


def take_turns(contenders: Sequence[Contender], amount: Amount) -> list[Times]:
    """Time several contenders in turns, and return the times of each. The exception of a run ends the measurement."""
    times = [Times() for _ in contenders]
    for contender in contenders:
        for run in contender.streams:
            for _ in range(amount.warm_up):
                run()
    kept = gc.isenabled()
    gc.disable()
    try:
        waiting = list(zip(contenders, times, strict=True))
        while waiting:
            for contender, own in waiting:
                time.sleep(PAUSE)
                _turn(contender, amount, own)
            waiting = [pair for pair in waiting if not _is_done(amount, pair[1])]
    finally:
        if kept:
            gc.enable()
    return times


def _is_done(amount: Amount, times: Times) -> bool:
    return times.elapsed >= amount.seconds if amount.runs is None else times.repeats >= amount.runs


def _turn(contender: Contender, amount: Amount, times: Times) -> None:
    """Run one turn of a contender: all its streams in parallel, for the time of a turn or a given number of runs."""
    if amount.runs is None:
        seconds, maximum = min(TURN, amount.seconds - times.elapsed), None
    else:
        seconds, maximum = math.inf, min(-(-amount.runs // TURNS), amount.runs - times.repeats)
    taken: list[list[float]] = [[] for _ in contender.streams]
    errors: list[BaseException] = []
    starting = threading.Barrier(len(contender.streams))

    def stream(run: Callable[[], object], own: list[float]) -> None:
        try:
            starting.wait()
            now = time.perf_counter()
            end = now + seconds
            while True:
                began = now
                run()
                now = time.perf_counter()
                own.append(now - began)
                if now >= end or len(own) == maximum:
                    return
        except BaseException as error:
            errors.append(error)

    began = time.perf_counter()
    if len(contender.streams) == 1:
        stream(contender.streams[0], taken[0])
    else:
        threads = [threading.Thread(target=stream, args=pair) for pair in zip(contender.streams, taken, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    times.elapsed += time.perf_counter() - began
    if errors:
        raise errors[0]
    for own in taken:
        times.runs += own
    times.repeats += max(map(len, taken))


_IDLE = 0.2
"""A machine counts as idle while other programs keep fewer processors than this busy."""


def busy_warning(others: float | None) -> str:
    """Return a warning about processors that other programs kept busy; empty if these are few, or unknown."""
    if others is None or others < _IDLE:
        return ""
    return (
        f"other programs kept {others:.1f} processors busy meanwhile: the times are longer, and vary more, than on an "
        "idle machine"
    )


class Busy:
    """Measures how many processors other programs keep busy from its creation on; on Linux only."""

    def __init__(self) -> None:
        self._start = self._read()

    def others(self) -> float | None:
        """Return the average number of processors that other programs kept busy; None if unknown."""
        now = self._read()
        if now is None or self._start is None:
            return None
        seconds, busy, own = (after - before for before, after in zip(self._start, now, strict=True))
        return max(0.0, (busy - own) / seconds) if seconds > 0 else None

    @staticmethod
    def _read() -> tuple[float, float, float] | None:
        """Return the time, the processor time of all programs, and that of this process, in seconds; None without
        /proc.
        """
        try:
            fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
            tick = float(os.sysconf("SC_CLK_TCK"))
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        user, nice, system, _, _, irq, soft, _ = fields
        own = os.times()
        return time.monotonic(), (user + nice + system + irq + soft) / tick, own.user + own.system
