"""Lists the alignments of the workspace, of buffers in it, of constants, and of buffers on the stack."""

from __future__ import annotations

from nnefc.symbolic.dims import Dimension

__all__ = ["aligned"]

_ALIGNMENT = 64  # bytes: a line of the cache, and the widest vector


def aligned(size: Dimension) -> Dimension:
    """Returns the size rounded up to the alignment, so that what follows is aligned too."""
    return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
