"""Defines where buffers lie: areas of memory by their kind, and offsets into them."""

from __future__ import annotations

from dataclasses import dataclass

from nnefc.symbolic.dims import Dimension

__all__ = ["NEW_STATE", "OUTPUT", "MemoryLocation"]

OUTPUT = "output"
"""The base of an output, which is in the caller's memory."""

NEW_STATE = "new state"
"""The base of a value that the body of a loop computes for its next iteration."""


@dataclass(frozen=True)
class MemoryLocation:
    """An address: `offset` bytes into an input, an output, a state, a constant or the workspace.

    `base` is the value of a :class:`~nnefc.passes.plan.program.MemoryKind`, `OUTPUT` or `NEW_STATE`; `index` counts
    what there are several of, parts of a workspace too.
    """

    base: str
    index: int
    offset: Dimension
