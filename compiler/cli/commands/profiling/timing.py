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
"""Seconds of a turn, at least one run: long compared with a change of turns, short compared with what a processor's
clock does."""

TURNS = 10
"""How many turns a number of runs is divided into."""

PAUSE = 0.02
"""Seconds before each turn, in which threads of the last contender that wait for work go to sleep."""


@dataclass(frozen=True)
class Amount:
    """How much each contender runs: `runs` times on each stream, or for about `seconds`; before it, `warm_up` runs."""

    seconds: float
    runs: int | None
    warm_up: int


@dataclass
class Times:
    """Of one contender: the seconds of every run, those that its turns took with all streams side by side, and how
    often a stream has run at most."""

    runs: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    repeats: int = 0

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.runs)

    @property
    def mean(self) -> float:
        """Seconds."""
        return statistics.fmean(self.runs)

    @property
    def rate(self) -> float:
        """Runs a second, of all streams together."""
        return len(self.runs) / self.elapsed

    def percentile(self, percent: float) -> float:
        """Returns a percentile of the run times, in seconds."""
        ordered = sorted(self.runs)
        return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


@dataclass(frozen=True)
class Contender:
    """Something to time: one function for each stream, which runs the network once."""

    name: str
    streams: Sequence[Callable[[], object]]


def take_turns(contenders: Sequence[Contender], amount: Amount) -> list[Times]:
    """The times of each contender. An exception of a run ends all turns and is raised."""
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
    """One turn on all streams, which each run for its time, or equally often."""
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


_QUIET = 0.2
"""Processors that other programs may keep busy without a warning."""


def busy_warning(others: float | None) -> str:
    """Returns what to say of a machine whose other programs kept so many processors busy; empty if that is nothing."""
    if others is None or others < _QUIET:
        return ""
    return (
        f"other programs kept {others:.1f} processors busy meanwhile: the times are longer, and vary more, than on an "
        "idle machine"
    )


class Busy:
    """How many processors other programs kept busy since this was made, where the system tells (Linux)."""

    def __init__(self) -> None:
        self._start = self._read()

    def others(self) -> float | None:
        """Processors, on average; None if unknown."""
        now = self._read()
        if now is None or self._start is None:
            return None
        seconds, busy, own = (after - before for before, after in zip(self._start, now, strict=True))
        return max(0.0, (busy - own) / seconds) if seconds > 0 else None

    @staticmethod
    def _read() -> tuple[float, float, float] | None:
        """Seconds that went by, that all processors worked, and that this process did."""
        try:
            fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
            tick = float(os.sysconf("SC_CLK_TCK"))
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        user, nice, system, _, _, irq, soft, _ = fields
        own = os.times()
        return time.monotonic(), (user + nice + system + irq + soft) / tick, own.user + own.system
