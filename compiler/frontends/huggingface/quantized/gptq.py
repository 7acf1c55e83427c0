"""Reads matrices quantized by GPTQ (Frantar et al., 2022): `qweight`, `qzeros`, `scales`, and perhaps `g_idx`.

    qweight [K bits / 32, N]   the codes of a column, in words of 32 bits, the lowest bits first
    qzeros  [G, N bits / 32]   the zero points of a group; files of the first format store them less one
    scales  [G, N]
    g_idx   [K]                the group of each row; without it groups follow each other

Where rows are not in the order of their groups (`desc_act`), the columns of the matrix are put into that order, and the
network reads the elements of its operand in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.frontends.decoder.weights import JoinedTensor, shown
from nnefc.frontends.huggingface.quantized.groups import (
    elements_of_bytes,
    group_order,
    integer_type,
    size_of_groups,
    tensor_of_groups,
)
from nnefc.frontends.huggingface.quantized.modules import Module, Tensors, modules_with, without
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.support.diagnostics import CompileError

__all__ = ["joined_gptq"]

_BITS = (2, 3, 4, 8)
_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_FORMATS = {"gptq": 1, "gptq_v2": 0}
"""What has to be added to the zero points in files of each format."""


def joined_gptq(tensors: Tensors, given: Mapping[str, Any], source: Path) -> Tensors:
    """Returns the tensors of a folder with each quantized matrix as one.

    Raises:
        CompileError: a matrix is not as it must be, or its format is not known.
    """
    layout = given.get("checkpoint_format") or "gptq"
    if not isinstance(layout, str) or layout not in _FORMATS:
        raise CompileError(
            f"'{source / 'config.json'}': the key 'quantization_config.checkpoint_format' is '{shown(layout)}', which "
            f"is not supported",
            hint=f"supported are {', '.join(_FORMATS)}",
        )
    made = dict(tensors)
    for module in modules_with("qweight", tensors, source):
        made[f"{module.name}.weight"] = _joined(module, _FORMATS[layout], given.get("group_size"))
        without(made, module.name, _PARTS)
    return made


def _joined(module: Module, less: int, group_size: object) -> JoinedTensor:
    words, zeros = module.integers("qweight", "I32"), module.integers("qzeros", "I32")
    groups, columns = module.sizes("scales")
    bits = 32 * zeros.shape[1] // max(columns, 1)
    depth = 32 * words.shape[0] // bits if bits in _BITS else 0
    fits = words.shape[1] == columns and zeros.shape == (groups, columns * bits // 32) and columns * bits % 32 == 0
    if not depth or not fits or words.shape[0] * 32 != depth * bits or not 0 < groups <= depth:
        raise module.refused(
            f"has codes {list(words.shape)}, zero points {list(zeros.shape)} and scales {[groups, columns]}, which do "
            "not fit each other"
        )
    index = _groups(module, depth, groups, group_size)
    order, group = group_order(index, groups)
    join = partial(_decoded, module, words, zeros, bits, less, index)
    kind = integer_type("GPTQ", bits)
    return module.joined(kind, (columns, depth), _PARTS, join, order if group else None)


def _groups(module: Module, depth: int, groups: int, group_size: object) -> Array:
    """Returns the group of each row.

    Raises:
        CompileError: there is no such group, or none of a row.
    """
    if not module.has("g_idx"):
        size = size_of_groups(depth, groups, group_size)
        if not size:
            raise module.refused(f"has {groups} groups for {depth} rows, and nothing says how many a group has")
        return np.arange(depth) // size
    index = module.integers("g_idx", "I32", "I64", rank=1)
    if index.shape != (depth,) or index.min() < 0 or index.max() >= groups:
        raise module.refused(f"has groups {list(index.shape)} of {groups} for {depth} rows")
    return index


def _decoded(module: Module, words: Array, zeros: Array, bits: int, less: int, index: Array) -> Array | BlockTensor:
    """Returns the matrix `[N, K]`, with its columns in the order of their groups if these have one size."""
    data = np.ascontiguousarray(words.T).view(np.uint8)
    points = elements_of_bytes(np.ascontiguousarray(zeros).view(np.uint8), bits)
    points = (points + np.uint8(less)) & np.uint8((1 << bits) - 1)
    scales = np.ascontiguousarray(module.floats("scales").T)
    return tensor_of_groups(data, scales, points.T, bits, index)
