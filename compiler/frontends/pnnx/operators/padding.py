"""Padding: constant, reflect, replicate, circular."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Ints, Result, operator
from nnefc.frontends.pnnx.promotion import category
from nnefc.operators.base import check_size
from nnefc.operators.tensor.padding import Pad
from nnefc.support.diagnostics import CompileError

__all__ = ["pad"]

Pairs = Sequence[tuple[int, int]]


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_REACH: Mapping[str, Callable[[int], int]] = {
    "constant": lambda n: 1 << 31,
    "reflect": lambda n: n - 1,
    "replicate": lambda n: 1 << 31,
    "circular": lambda n: n,
}


def pad(ctx: Lowering, input: Tensor, pairs: Pairs, mode: str, value: float) -> Tensor:
    """The input with borders: `pairs` is how many elements are added before and after each dimension.

    Negative numbers take elements away.
    """
    shape, dtype = shape_of(input), dtype_of(input)
    result = check_size([n + before + after for n, (before, after) in zip(shape, pairs, strict=True)])
    if 0 in result or 0 in shape:
        raise CompileError(f"the padded input would have the shape {list(result)}")
    if mode not in _MODES:
        raise CompileError(f"there is no padding mode '{mode}': there are {', '.join(_MODES)}")
    for n, (before, after) in zip(shape, pairs, strict=True):
        if max(before, after) > _REACH[mode](n):
            raise CompileError(f"the padding ({before}, {after}) is too large for a dimension of {n} and '{mode}'")
    if not np.isfinite(value) and category(dtype) != 2:
        raise CompileError(f"the value {value} is none of {dtype}")
    filling = np.array(value).astype(dtype if dtype != "bfloat16" else "float32").item()
    return Pad(tuple(pairs), _MODES[mode], filling).lower(ctx, input)


def _pairs(padding: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """PyTorch's list, which begins at the last dimension, as pairs for every dimension."""
    if len(padding) % 2 or len(padding) > 2 * rank:
        raise CompileError(f"a padding of {len(padding)} numbers does not fit an input of rank {rank}")
    if any(abs(amount) >= 1 << 31 for amount in padding):
        raise CompileError(f"the padding {list(padding)} is too large: its numbers must fit into 32 bits")
    pairs = list(zip(padding[::2], padding[1::2], strict=True))
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


@operator("F.pad")
def _pad(ctx: Lowering, input: Tensor, pad: Ints, mode: str = "constant", value: float | None = None) -> Result:
    return _function(ctx, input, pad, mode, value or 0.0)


def _function(ctx: Lowering, input: Tensor, padding: Sequence[int], mode: str, value: float) -> Result:
    return pad(ctx, input, _pairs(padding, len(shape_of(input))), mode, value)


def _declare_module(name: str, mode: str, rank: int) -> None:
    @operator(f"nn.{name}{rank}d", mode=mode, rank=rank)
    def _module(ctx: Lowering, input: Tensor, padding: Ints, mode: str, rank: int, value: float = 0.0) -> Result:
        amounts = padding * (2 * rank) if len(padding) == 1 else padding
        if len(amounts) != 2 * rank:
            raise CompileError(f"'padding' should have {2 * rank} elements, it has {len(amounts)}")
        return _function(ctx, input, amounts, mode, value)


for _rank in (1, 2, 3):
    _declare_module("ConstantPad", "constant", _rank)
    _declare_module("ZeroPad", "constant", _rank)
    _declare_module("ReflectionPad", "reflect", _rank)
    _declare_module("ReplicationPad", "replicate", _rank)
    _declare_module("CircularPad", "circular", _rank)
