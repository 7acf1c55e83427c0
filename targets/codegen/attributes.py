"""Attributes of functions of TIR that tell a code generator what it could not see: schedule rules set them."""

from __future__ import annotations

__all__ = ["MASK", "NO_ALIAS", "OPEN_SIZES", "SYNCHRONIZED"]

MASK = "nnefc.mask"
"""Of a vectorized loop: how many of its lanes there are."""

OPEN_SIZES = "nnefc.sizes"
"""Of a kernel with open dimensions: their variables."""

SYNCHRONIZED = "nnefc.synchronized"
"""The function says itself where the threads of a block wait for each other."""

NO_ALIAS = "tirx.noalias"
"""TVM's attribute: the function's parameters never share memory; they are `__restrict__` in CUDA source."""
