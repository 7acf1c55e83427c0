"""Reads matrices quantized by AWQ (Lin et al., 2023) in the order of its products: `qweight`, `qzeros`, `scales`.

qweight [K, N / 8]   a word of 32 bits has the codes of eight columns, the lowest bits those of column 0, then of
qzeros  [G, N / 8]   columns 2, 4, 6, 1, 3, 5 and 7
scales  [G, N]
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.frontends.decoder.weights import JoinedTensor, shown
from nnefc.frontends.huggingface.quantized.groups import integer_type, tensor_in_groups
from nnefc.frontends.huggingface.quantized.modules import Module, Tensors, modules_with, without
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor, packed, unpacked
from nnefc.support.diagnostics import CompileError

__all__ = ["joined_awq"]

_PARTS = ("qweight", "qzeros", "scales")
_BITS, _PER_WORD = 4, 8
_POSITIONS = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""Which four bits of a word each of its columns has."""
_VERSIONS = ("gemm", "exllama")


def joined_awq(tensors: Tensors, given: Mapping[str, Any], source: Path) -> Tensors:
    """Returns the tensors of a folder with each quantized matrix as one.

    Raises:
        CompileError: a matrix is not as it must be, or its layout is not known.
    """
    config = source / "config.json"
    version = str(given.get("version") or "gemm").lower()
    if version not in _VERSIONS:
        raise CompileError(
            f"'{config}': the key 'quantization_config.version' is '{shown(version)}', which is not supported",
            hint=f"supported are {', '.join(_VERSIONS)}",
        )
    if given.get("bits", given.get("w_bit", _BITS)) != _BITS:
        raise CompileError(f"'{config}': the key 'quantization_config.bits' is {shown(given.get('bits'))}, not 4")
    made = dict(tensors)
    for module in modules_with("qweight", tensors, source):
        made[f"{module.name}.weight"] = _joined(module)
        without(made, module.name, _PARTS)
    return made


def _joined(module: Module) -> JoinedTensor:
    words, zeros = module.integers("qweight", "I32"), module.integers("qzeros", "I32")
    groups, columns = module.sizes("scales")
    depth = words.shape[0]
    shapes = words.shape[1], zeros.shape
    if shapes != (columns // _PER_WORD, (groups, columns // _PER_WORD)) or columns % _PER_WORD or depth % groups:
        raise module.refused(
            f"has codes {list(words.shape)}, zero points {list(zeros.shape)} and scales {[groups, columns]}, which do "
            "not fit each other"
        )
    join = partial(_decoded, module, words, zeros, depth // groups)
    return module.joined(integer_type("AWQ", _BITS), (columns, depth), _PARTS, join)


def _decoded(module: Module, words: Array, zeros: Array, group: int) -> Array | BlockTensor:
    codes, points = (np.ascontiguousarray(_columns(each).T) for each in (words, zeros))
    scales = np.ascontiguousarray(module.floats("scales").T)
    return tensor_in_groups(packed(codes, _BITS), scales, points, _BITS, group, len(words))


def _columns(words: Array) -> Array:
    """`[rows, words]` as `[rows, columns]`, uint8."""
    elements = unpacked(np.ascontiguousarray(words).view(np.uint8), _BITS)
    apart = elements.reshape(len(words), -1, _PER_WORD)
    return np.asarray(apart[..., _POSITIONS].reshape(len(words), -1))
