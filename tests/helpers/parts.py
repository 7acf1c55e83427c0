"""Divides the tests into parts that take about equally long, for runs in several nights."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import pytest

QUICK_SECONDS, SLOW_SECONDS = 0.3, 2.0
"""About how long a processor takes for a test that is not slow, and for one that is, where slow tests run too."""


def part_asked_for(text: str) -> tuple[int, int]:
    """The number of a part, and how many there are."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--part {text}: such as 2/4, the second of four")
    return int(number), int(count)


def seconds_of(test: pytest.Item) -> float:
    """About how long a test takes, in seconds; one that is marked with `slow(600)` takes ten minutes."""
    marked = [float(mark.args[0]) if mark.args else SLOW_SECONDS for mark in test.iter_markers("slow")]
    return max(marked, default=QUICK_SECONDS)


def slice_of_part(seconds: Sequence[float], number: int, count: int) -> slice:
    """Which tests are a part: those that begin in its share of the time that all take, one after the other.

    A part has neighbours, in whole files but for its first and its last. A new test moves few to another part.
    """
    begins = list(accumulate(seconds, initial=0.0))
    total = begins.pop()
    return slice(bisect_left(begins, (number - 1) * total / count), bisect_left(begins, number * total / count))
