"""Joins weights in floats of 8 bits with their scales, which are tensors of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.frontends.decoder import StoredTensor
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.huggingface.quantized.modules import Tensors
from nnefc.support.diagnostics import CompileError

__all__ = ["joined_fp8"]

_SCALES = ("_scale_inv", "_scale")
_UNUSED = (
    ".input_scale",
    ".output_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".input_zero_point",
    ".input_global_scale",
)
"""Name endings of the scales of activations and caches, which are ignored: both stay floats."""


def joined_fp8(tensors: Tensors, given: Mapping[str, Any], source: Path) -> Tensors:
    """Returns the tensors of a folder; of those with scales, both in one.

    Raises:
        CompileError: scales do not fit their tensor.
    """
    made = dict(tensors)
    for label, tensor in tensors.items():
        for ending in _SCALES:
            scales = made.get(f"{label}{ending}")
            if scales is None:
                continue
            del made[f"{label}{ending}"]
            factors = scales.value_as_floats()
            made[label] = replace(tensor, scales=factors, scale_blocks=_blocks(tensor, factors.shape, given, label))
    return {label: tensor for label, tensor in made.items() if not label.endswith(_UNUSED)}


def _blocks(tensor: StoredTensor, scales: tuple[int, ...], given: Mapping[str, Any], label: str) -> tuple[int, ...]:
    """Returns how many elements along each axis share a scale.

    Raises:
        CompileError: the scales do not fit the tensor.
    """
    sizes = given.get("weight_block_size")
    rank = len(tensor.shape)
    if int(np.prod(scales)) == 1:
        return tensor.shape
    if len(scales) in (1, 2) and scales == (tensor.shape[0], *[1] * (len(scales) - 1)):
        return (1, *tensor.shape[1:])
    if isinstance(sizes, list) and len(sizes) == rank == len(scales):
        known = all(isinstance(size, int) and size > 0 for size in sizes)
        if known and all(-(-n // b) == s for n, b, s in zip(tensor.shape, sizes, scales, strict=True)):
            return tuple(sizes)
    raise CompileError(
        f"the scales {list(scales)} of the tensor '{shown(label)}' do not fit its shape {list(tensor.shape)}"
    )
