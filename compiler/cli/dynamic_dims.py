"""Parses the ranges of dynamic dimensions on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nnefc.cli.tables import columns
from nnefc.ir.sample_inputs import Ranged
from nnefc.symbolic.named_formulas import Formula, spelled

__all__ = ["range_lines", "range_text", "sizes_text"]

NO_LIMIT = 1 << 28
"""A max from this value on means that the size is unlimited, up to a bound of `nnefc.symbolic.dims`."""


def range_lines(dimensions: Iterable[Ranged], formulas: Mapping[str, Formula]) -> list[str]:
    """Return a line for each dynamic dimension: `dimension  height  32 to 1280, multiples of 32, typically 320`.

    Args:
        dimensions: with their ranges.
        formulas: of the dimensions that are computed from others, by name.
    """
    rows = []
    for dimension in dimensions:
        multiples = f", multiples of {dimension.multiple:,}" if dimension.multiple > 1 else ""
        upward = "or more" if dimension.maximum > NO_LIMIT else f"to {dimension.maximum:,}"
        sizes = f"{dimension.minimum:,} {upward}{multiples}, typically {dimension.size_hint:,}"
        if dimension.name in formulas:
            sizes = f"{spelled(formulas[dimension.name], str)}, {dimension.minimum:,} {upward}{multiples}"
        rows.append(("dimension", dimension.name, sizes))
    return columns(rows)


def range_text(dimension: Ranged) -> str:
    """Returns the name and sizes of a dynamic dimension, in a few words: `height 32 to 1,280, multiples of 32`."""
    multiples = f", multiples of {dimension.multiple:,}" if dimension.multiple > 1 else ""
    upward = "or more" if dimension.maximum > NO_LIMIT else f"to {dimension.maximum:,}"
    return f"{dimension.name} {dimension.minimum:,} {upward}{multiples}"


def sizes_text(dimensions: Iterable[Ranged], size: str) -> str:
    """Return a size of each dynamic dimension, by the attribute `size` (`size_hint` or `maximum`): `batch 8, height
    320`.
    """
    return ", ".join(f"{dimension.name} {getattr(dimension, size):,}" for dimension in dimensions)
