"""Reads experts in floats of 4 bits with a power of two for each 32 (Open Compute Project, 2023), as gpt-oss has them.

gate_up_proj_blocks [experts, rows, K / 32, 16]   two elements in a byte, the low bits the first
gate_up_proj_scales [experts, rows, K / 32]       exponents
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.frontends.decoder.weights import JoinedTensor
from nnefc.frontends.huggingface.quantized.modules import Tensors
from nnefc.frontends.tensor_types.blocks_of_32 import MXFP4, four_bit_floats, half_powers_of_two
from nnefc.frontends.tensor_types.integers import integers_of
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor, packed, unpacked
from nnefc.support.diagnostics import CompileError

__all__ = ["joined_mxfp4", "tensor_of_four_bit_floats"]

_BLOCKS, _SCALES = "_blocks", "_scales"
_BYTES, _ELEMENTS = 16, 32


def joined_mxfp4(tensors: Tensors, given: Mapping[str, Any], source: Path) -> Tensors:
    """Returns the tensors of a folder with each quantized one as a matrix, the experts' rows below each other.

    Raises:
        CompileError: blocks and scales do not fit each other.
    """
    made = dict(tensors)
    for label, blocks in tensors.items():
        name = label.removesuffix(_BLOCKS)
        scales = tensors.get(f"{name}{_SCALES}")
        if name == label or scales is None:
            continue
        if (
            {blocks.type.name, scales.type.name} != {"U8"}
            or blocks.shape != (*scales.shape, _BYTES)
            or not scales.shape
        ):
            raise CompileError(
                f"'{source}': the tensor '{label}' has the shape {list(blocks.shape)}, its scales {list(scales.shape)}"
            )
        del made[label], made[f"{name}{_SCALES}"]
        *rows, count = scales.shape
        shape = (int(np.prod(rows)), count * _ELEMENTS)
        codes, exponents = (integers_of("U8", each.data, each.shape) for each in (blocks, scales))
        join = partial(_decoded, codes, exponents, shape)
        made[f"{name}.weight"] = JoinedTensor(MXFP4, shape, blocks.data[:0], parts=(blocks, scales), join=join)
    return made


def _decoded(blocks: Array, exponents: Array, shape: tuple[int, int]) -> BlockTensor:
    return tensor_of_four_bit_floats(blocks.reshape(-1, _BYTES), half_powers_of_two(exponents.reshape(-1, 1)), shape)


def tensor_of_four_bit_floats(rows: Array, half_scales: Array, shape: tuple[int, int]) -> BlockTensor:
    """Returns a matrix of floats of 4 bits.

    Args:
        rows: `[blocks, bytes]`, two elements in a byte, the low bits the first.
        half_scales: the scales times 0.5, `[blocks, 1]`.
        shape: of the matrix.
    """
    found = four_bit_floats(unpacked(rows, 4), half_scales)
    assert isinstance(found.scales, np.ndarray)
    codes = packed(found.codes, found.bits).reshape(shape[0], -1, found.codes.shape[1])
    return BlockTensor(shape, found.bits, codes, found.scales.reshape(shape[0], -1))
