"""Reads matrices in the formats of compressed-tensors: packed integers and floats, and those of 8 bits.

weight_packed [N, K bits / 32]      codes of a row in words of 32 bits, the lowest bits first; half the range is 0
weight_shape [2]                    N and K
weight_scale [N, groups]            or [N, 1], or one
weight_zero_point [N bits / 32, groups]   packed along the first axis; without it half the range
weight_g_idx [K]                    the group of each column; without it groups follow each other

weight [N, K]                       signed bytes, or floats of 8 bits, with a `weight_scale`
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.frontends.decoder.weights import JoinedTensor, shown
from nnefc.frontends.huggingface.quantized.fp8 import joined_fp8
from nnefc.frontends.huggingface.quantized.groups import (
    elements_of_bytes,
    group_order,
    integer_type,
    size_of_groups,
    tensor_in_groups,
    tensor_of_groups,
)
from nnefc.frontends.huggingface.quantized.modules import Module, Tensors, modules_with, without
from nnefc.frontends.huggingface.quantized.mxfp4 import tensor_of_four_bit_floats
from nnefc.frontends.tensor_types.blocks_of_32 import MXFP4, half_powers_of_two
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.support.diagnostics import CompileError

__all__ = ["joined_compressed"]

_PACKED, _INTEGERS, _FLOATS = "pack-quantized", ("int-quantized", "naive-quantized"), ("float-quantized",)
_FOUR_BITS = ("nvfp4-pack-quantized", "mxfp4-pack-quantized")
_FORMATS = (_PACKED, *_INTEGERS, *_FLOATS, *_FOUR_BITS, "dense")
_PARTS = ("weight_packed", "weight_shape", "weight_scale", "weight_zero_point", "weight_g_idx", "weight_global_scale")
_BYTES = ("weight", "weight_scale", "weight_zero_point")


def joined_compressed(tensors: Tensors, given: Mapping[str, Any], source: Path) -> Tensors:
    """Returns the tensors of a folder with each quantized matrix as one.

    Raises:
        CompileError: a matrix is not as it must be, or its format is not known.
    """
    _check_formats(given, source / "config.json")
    group_size = _group_size(given)
    made = dict(tensors)
    for module in modules_with("weight_packed", tensors, source):
        without(made, module.name, _PARTS)
        is_float = module.tensor("weight_packed").type.name == "U8"
        made[f"{module.name}.weight"] = _four_bit_floats(module) if is_float else _packed(module, group_size)
    for module in modules_with("weight_scale", tensors, source):
        if module.has("weight") and module.tensor("weight").type.name == "I8":
            without(made, module.name, _BYTES)
            made[f"{module.name}.weight"] = _eight_bits(module, group_size)
    return joined_fp8(made, given, source)


def _check_formats(given: Mapping[str, Any], config: Path) -> None:
    """Refuses formats that are not known, of the whole model and of groups of modules."""
    groups = given.get("config_groups")
    own = groups.values() if isinstance(groups, Mapping) else ()
    found = [given.get("format"), *(group.get("format") for group in own if isinstance(group, Mapping))]
    unknown = next((each for each in found if each is not None and each not in (*_FORMATS, "mixed-precision")), None)
    if unknown is not None:
        raise CompileError(
            f"'{config}': the key 'quantization_config.format' is '{shown(unknown)}', which is not supported",
            hint=f"supported are {', '.join(_FORMATS)}",
        )
    sparsity = given.get("sparsity_config")
    sparse = sparsity.get("format") if isinstance(sparsity, Mapping) else None
    if sparse not in (None, "dense"):
        raise CompileError(
            f"'{config}': the key 'quantization_config.sparsity_config.format' is '{shown(sparse)}', which is not "
            "supported"
        )


def _packed(module: Module, group_size: object) -> JoinedTensor:
    words, shape = module.integers("weight_packed", "I32"), module.integers("weight_shape", "I64", "I32", rank=1)
    scales = module.floats("weight_scale")
    if shape.shape != (2,) or not (0 < shape[0] == len(words) and 0 < shape[1] <= 32 * words.shape[1]):
        raise module.refused(f"has words {list(words.shape)}, and says its shape is {shape.tolist()[:8]}")
    rows, depth = int(shape[0]), int(shape[1])
    bits = next((bits for bits in (8, 4, 2) if words.shape[1] == -(-depth // (32 // bits))), 0)
    scales = np.broadcast_to(scales.reshape(1, 1), (rows, 1)) if scales.size == 1 else scales
    if not bits or len(scales.shape) != 2 or scales.shape[0] != rows or not 0 < scales.shape[1] <= depth:
        sizes = f"words {list(words.shape)} and scales {list(scales.shape)}"
        raise module.refused(f"has {sizes}, which do not fit a matrix {[rows, depth]}")
    index = _groups(module, depth, scales.shape[1], group_size)
    zeros = _zero_points(module, bits, scales.shape)
    order, group = group_order(index, scales.shape[1])
    join = partial(_decoded, words, scales, zeros, bits, index)
    kind = integer_type("compressed", bits)
    return module.joined(kind, (rows, depth), _PARTS, join, order if group else None)


def _groups(module: Module, depth: int, groups: int, group_size: object) -> Array:
    """Returns the group of each column.

    Raises:
        CompileError: there is no such group, or none of a column.
    """
    if not module.has("weight_g_idx") or (module.integers("weight_g_idx", "I32", "I64", rank=1) == -1).all():
        return np.arange(depth) // _columns_of_group(module, depth, groups, group_size)
    index = module.integers("weight_g_idx", "I32", "I64", rank=1)
    if index.shape != (depth,) or index.min() < 0 or index.max() >= groups:
        raise module.refused(f"has groups {list(index.shape)} of {groups} for {depth} columns")
    return index


def _group_size(given: Mapping[str, Any]) -> object:
    """Returns how many columns have a scale, by the configuration; None if that is not the same for all matrices."""
    groups = given.get("config_groups")
    found = []
    for own in groups.values() if isinstance(groups, Mapping) else ():
        weights = own.get("weights") if isinstance(own, Mapping) else None
        found.append(weights.get("group_size") if isinstance(weights, Mapping) else None)
    return found[0] if found and all(size == found[0] for size in found) else None


def _columns_of_group(module: Module, depth: int, groups: int, group_size: object) -> int:
    """Returns how many columns a group has.

    Raises:
        CompileError: nothing says it.
    """
    size = size_of_groups(depth, groups, group_size)
    if not size:
        raise module.refused(f"has {groups} groups for {depth} columns, and nothing says how many a group has")
    return size


def _zero_points(module: Module, bits: int, shape: tuple[int, ...]) -> Array | None:
    """Returns the zero points, `[N, groups]`, uint8; None for half the range."""
    if not module.has("weight_zero_point"):
        return None
    words = module.integers("weight_zero_point", "I32")
    if words.shape != (-(-shape[0] // (32 // bits)), shape[1]):
        raise module.refused(f"has zero points {list(words.shape)} for scales {list(shape)}")
    elements = elements_of_bytes(np.ascontiguousarray(words.T).view(np.uint8), bits)
    return np.ascontiguousarray(elements[:, : shape[0]].T)


def _decoded(words: Array, scales: Array, zeros: Array | None, bits: int, index: Array) -> Array | BlockTensor:
    return tensor_of_groups(np.ascontiguousarray(words).view(np.uint8), scales, zeros, bits, index)


def _four_bit_floats(module: Module) -> JoinedTensor:
    """Floats of 4 bits in blocks of 16 or 32 (NVFP4, MXFP4)."""
    data, scales = module.integers("weight_packed", "U8"), module.tensor("weight_scale")
    divisor = None if scales.type.name == "U8" else module.floats("weight_global_scale")
    rows, depth = len(data), 2 * data.shape[1]
    block = 32 if divisor is None else 16
    if scales.shape != (rows, depth // block) or depth % block or (divisor is not None and divisor.size != 1):
        raise module.refused(f"has scales {list(scales.shape)} for a matrix {[rows, depth]} in blocks of {block}")

    def join() -> BlockTensor:
        if divisor is None:
            found = half_powers_of_two(module.integers("weight_scale", "U8"))
        else:
            found = module.floats("weight_scale") / divisor.reshape(-1)[0] * np.float32(0.5)
        return tensor_of_four_bit_floats(data.reshape(-1, block // 2), found.reshape(-1, 1), (rows, depth))

    return module.joined(MXFP4, (rows, depth), _PARTS, join)


def _eight_bits(module: Module, group_size: object) -> JoinedTensor:
    codes, scales = module.integers("weight", "I8"), module.floats("weight_scale")
    rows, depth = module.sizes("weight")
    groups = 1 if scales.size in (1, rows) else scales.size // rows
    if scales.size not in (1, rows * groups) or not 0 < groups <= depth:
        raise module.refused(f"has scales {list(scales.shape)} for a matrix {[rows, depth]}")
    wide = np.broadcast_to(scales.reshape(-1, groups), (rows, groups))
    size = _columns_of_group(module, depth, groups, group_size)

    def join() -> Array | BlockTensor:
        zeros = None
        if module.has("weight_zero_point"):
            points = module.integers("weight_zero_point", "I8", rank=len(module.tensor("weight_zero_point").shape))
            zeros = np.broadcast_to(points.reshape(-1, groups).astype(np.int16) + 128, wide.shape)
        return tensor_in_groups(codes.view(np.uint8) ^ np.uint8(128), wide, zeros, 8, size, depth)

    return module.joined(integer_type("compressed", 8), codes.shape, _BYTES, join)
