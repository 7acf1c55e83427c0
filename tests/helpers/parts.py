"""Divides the test files into parts that take about equally long, for runs in several nights."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


def part_asked_for(text: str) -> tuple[int, int]:
    """The number of a part, and how many there are."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--part {text}: such as 2/4, the second of four")
    return int(number), int(count)


def files_of_part(weights: Mapping[str, int], number: int, count: int) -> set[str]:
    """The files of a part: the heaviest first, each to the part that is lightest so far."""
    loads = [0] * count
    files: list[set[str]] = [set() for _ in range(count)]
    for file in sorted(weights, key=lambda file: (-weights[file], file)):
        lightest = loads.index(min(loads))
        loads[lightest] += weights[file]
        files[lightest].add(file)
    return files[number - 1]
