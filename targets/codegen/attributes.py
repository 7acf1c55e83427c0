"""Attributes of functions of TIR that tell a code generator what it could not see: schedule rules set them."""

from __future__ import annotations

__all__ = ["CHECKED", "CHOOSES", "ITEM_RANGES", "MASK", "NO_ALIAS", "OF_OPEN_SIZES", "SYNCHRONIZED"]

MASK = "nnefc.mask"
"""Of a vectorized loop: how many of its lanes there are."""

CHECKED = "nnefc.checked"
"""The function looks at every place that it reads or writes, and at every divisor."""

ITEM_RANGES = "nnefc.item_ranges"
"""Of a function that is checked: the least and the greatest item of its parameters of integers that are constants in
all calls, by their numbers."""

CHOOSES = "nnefc.chooses"
"""Of a function of open sizes: whether values in it depend on conditions that are not about these sizes."""

OF_OPEN_SIZES = "nnefc.of_open_sizes"
"""The function computes open sizes, in tiles of several sizes."""

SYNCHRONIZED = "nnefc.synchronized"
"""The function says itself where the threads of a block wait for each other."""

NO_ALIAS = "tirx.noalias"
"""TVM's attribute: the function's parameters never share memory; they are `__restrict__` in CUDA source."""
