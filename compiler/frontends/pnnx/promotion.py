"""Promotes element types by PyTorch's rules (PyTorch documentation, "Tensor Attributes", type promotion)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["DEFAULT_FLOAT", "Typed", "category", "promote", "result_type"]

DEFAULT_FLOAT = "float32"

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_SIGNED = ("int8", "int16", "int32", "int64")


@dataclass(frozen=True)
class Typed:
    """Operand of type promotion: its element type, and whether it is a number or has no dimensions."""

    dtype: str
    rank: int
    number: bool = False


def category(dtype: str) -> int:
    """0 for booleans, 1 for integers, 2 for reals."""
    if dtype == "bool":
        return 0
    return 2 if dtype in _FLOATS else 1


def promote(left: str, right: str) -> str:
    """The smallest type that holds both, as `torch.promote_types`."""
    if left == right:
        return left
    low, high = sorted((left, right), key=category)
    if category(low) != category(high):
        return high
    if category(low) == 2:
        if {left, right} == {"float16", "bfloat16"}:
            return "float32"
        return max(left, right, key=_FLOATS.index)
    if "uint8" not in (left, right):
        return max(left, right, key=_SIGNED.index)
    other = left if right == "uint8" else right
    return "int16" if other == "int8" else other


def result_type(operands: Iterable[Typed]) -> str:
    """The type in which an operation on `operands` computes, as `torch.result_type`.

    Tensors with dimensions decide; those without, and then numbers, only where they are of a higher category.
    """
    ranked: list[str | None] = [None, None, None]
    for operand in operands:
        rank = 2 if operand.number else (0 if operand.rank else 1)
        before = ranked[rank]
        ranked[rank] = operand.dtype if before is None else promote(before, operand.dtype)
    result: str | None = None
    for rank, dtype in enumerate(ranked):
        if dtype is None:
            continue
        if rank == 2 and dtype in _FLOATS:
            dtype = DEFAULT_FLOAT
        if result is None or category(dtype) > category(result):
            result = dtype
    return result or DEFAULT_FLOAT
