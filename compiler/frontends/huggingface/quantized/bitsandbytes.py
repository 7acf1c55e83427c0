"""Reads matrices quantized by bitsandbytes: NF4 and FP4 (Dettmers et al., 2023), and integers of 8 bits (2022).

    weight [N K / 2, 1]               codes of 4 bits, the high bits of a byte first, of the whole matrix; bytes, or
                                      the same bytes as elements of another type
    weight.absmax [blocks]            scales of blocks of the whole matrix; or codes of them, with
    weight.nested_absmax, .nested_quant_map, and an offset in the state
    weight.quant_map [16]             which number a code stands for
    weight.quant_state.bitsandbytes__nf4   JSON: `shape`, `blocksize`, …

    weight [N, K], SCB [N]            signed bytes, and the number that 127 stands for in each row

A number of the table becomes the nearest of 255 multiples of one number, within a 254th of the largest of a block; the
library has codes of 4 bits where an instruction of the target looks up bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.frontends.decoder.weights import JoinedTensor, shown
from nnefc.frontends.huggingface.quantized.groups import integer_type, tensor_in_groups
from nnefc.frontends.huggingface.quantized.modules import Module, Tensors, modules_with, without
from nnefc.frontends.tensor_types import TensorType
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor

__all__ = ["joined_bitsandbytes"]

_STATE = "weight.quant_state.bitsandbytes__"
_NESTED = ("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")
_EIGHT = ("weight", "SCB", "weight_format")
_HALF = 128


def joined_bitsandbytes(tensors: Tensors, given: Mapping[str, Any], source: Path) -> Tensors:
    """Returns the tensors of a folder with each quantized matrix as one.

    Raises:
        CompileError: a matrix is not as it must be.
    """
    made = dict(tensors)
    for kind in ("nf4", "fp4"):
        for module in modules_with(f"{_STATE}{kind}", tensors, source):
            parts = ("weight", *_NESTED, f"{_STATE}{kind}")
            without(made, module.name, parts)
            made[f"{module.name}.weight"] = _four_bits(module, kind, parts)
    for module in modules_with("SCB", tensors, source):
        without(made, module.name, _EIGHT)
        made[f"{module.name}.weight"] = _eight_bits(module)
    return made


def _four_bits(module: Module, kind: str, parts: tuple[str, ...]) -> JoinedTensor:
    state = _state(module, f"{_STATE}{kind}")
    codes, shape, block = module.tensor("weight"), _sizes(state.get("shape")), _sizes([state.get("blocksize")])
    if len(shape) != 2 or not block or len(codes.data) != -(-math.prod(shape) // 2):
        sizes = f"the shape {shown(state.get('shape'))} and blocks of {shown(state.get('blocksize'))}"
        raise module.refused(f"has {len(codes.data):,} bytes of codes, and a state with {sizes}")
    join = partial(_decoded, module, (shape[0], shape[1]), block[0], state)
    computed = "4-bit codes of a table, within 1/254 of a block's largest element"
    stored = TensorType(kind.upper(), 1, 1, codes.type.decode, computed)
    return module.joined(stored, shape, parts, join)


def _sizes(value: object) -> tuple[int, ...]:
    """Returns sizes above 0; none where one is not."""
    found = tuple(value) if isinstance(value, list) else ()
    return found if all(_is_count(size) for size in found) else ()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40


def _state(module: Module, part: str) -> dict[str, Any]:
    content = module.integers(part, "U8", rank=1).tobytes()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise module.refused("has a state that is no object in JSON")
    return found


def _decoded(module: Module, shape: tuple[int, int], block: int, state: Mapping[str, Any]) -> Array | BlockTensor:
    count = math.prod(shape)
    data = module.tensor("weight").data  # of any type, which says how trainers move them
    codes = np.stack([data >> 4, data & 15], 1).reshape(-1)[:count]
    table, scales = module.floats("weight.quant_map").reshape(-1), _scales(module, state)
    if table.size != 16 or scales.size != -(-count // block):
        raise module.refused(f"has {table.size} numbers of codes, and {scales.size} scales of {count} elements")
    if not np.abs(table).max() <= 1:
        raise module.refused("has codes that stand for numbers beyond 1, which are shares of a scale")
    if shape[1] % block:  # a block reaches from one row into the next
        return np.asarray((table[codes] * np.repeat(scales, block)[:count]).reshape(shape))
    factor = _factor(table)
    signed = (np.rint(table * factor) + _HALF).astype(np.uint8)
    wide = scales.reshape(shape[0], -1) / factor
    return tensor_in_groups(signed[codes].reshape(shape), wide, None, 8, block, shape[1])


def _factor(table: Array) -> np.float32:
    """Returns what numbers from -1 to 1 are multiplied with, so that all of them are nearly integers."""
    factors = np.arange(64, 127.25, 0.25)
    errors = [np.abs(np.rint(table * factor) / factor - table).max() for factor in factors]
    return np.float32(factors[int(np.argmin(errors))])


def _scales(module: Module, state: Mapping[str, Any]) -> Array:
    """Returns the scale of each block; stored ones of 8 bits are codes with scales of their own."""
    if not module.has("weight.nested_absmax"):
        return module.floats("weight.absmax").reshape(-1)
    codes = module.integers("weight.absmax", "U8", rank=1)
    table, outer = (module.floats(f"weight.nested_{part}").reshape(-1) for part in ("quant_map", "absmax"))
    block, offset = state.get("nested_blocksize", 256), state.get("nested_offset", 0.0)
    if table.size != 256 or not _is_count(block) or not isinstance(offset, int | float):
        raise module.refused("has scales of 8 bits, whose own scales are not as they must be")
    if outer.size != -(-codes.size // block):
        raise module.refused(f"has {outer.size} scales of {codes.size} scales of 8 bits")
    return np.asarray(table[codes] * np.repeat(outer, block)[: codes.size] + np.float32(offset), np.float32)


def _eight_bits(module: Module) -> JoinedTensor:
    codes, scales = module.integers("weight", "I8"), module.floats("SCB").reshape(-1)
    if scales.size != codes.shape[0]:
        raise module.refused(f"has {scales.size} scales for the rows of {list(codes.shape)}")

    def join() -> Array | BlockTensor:
        wide = (scales / np.float32(127)).reshape(-1, 1)
        depth = codes.shape[1]
        return tensor_in_groups(codes.view(np.uint8) ^ np.uint8(_HALF), wide, None, 8, depth, depth)

    return module.joined(integer_type("bitsandbytes", 8), codes.shape, _EIGHT, join)
