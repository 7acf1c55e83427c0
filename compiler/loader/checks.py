"""Checks arrays against the inputs and outputs of a model, and explains mismatches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .tensors import DTYPES, RunError, Tensor

__all__ = ["check_overlap", "check_type", "refuse_nan"]


def check_type(role: str, tensor: Tensor, array: np.ndarray) -> None:
    wanted = DTYPES[tensor.dtype]
    if array.dtype != wanted and not (tensor.dtype == "bfloat16" and array.dtype.name == "bfloat16"):
        raise RunError(
            f'{role} "{tensor.name}" is an array of {array.dtype}, but the model has {tensor.dtype}: '
            + (_conversion(tensor) if role in ("input", "state") else _new_array(tensor))
        )
    if array.shape != tensor.shape:
        raise RunError(
            f'{role} "{tensor.name}" has the shape {list(array.shape)}, but the model has {list(tensor.shape)}'
            + (_way_between(array.shape, tensor.shape) if role in ("input", "state") else f": {_new_array(tensor)}")
        )


def _conversion(tensor: Tensor) -> str:
    if tensor.dtype == "bfloat16":
        return "convert it with .view(np.uint16), its bit patterns"
    return f"convert it with .astype(np.{DTYPES[tensor.dtype].name})"


def _new_array(tensor: Tensor) -> str:
    """Return a hint: the call of NumPy that makes an array for an output."""
    name = "object_" if tensor.dtype == "string" else DTYPES[tensor.dtype].name
    return f"make it with np.empty({tensor.shape}, np.{name})"


def _way_between(given: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Return a hint how to transpose (NHWC to NCHW) or reshape an array to the wanted shape; empty if impossible."""
    if math.prod(given) != math.prod(wanted):
        return ""
    reshape = f".reshape({wanted})"
    if _without_ones(given) == _without_ones(wanted):
        return f": use {reshape}"
    if sorted(_without_ones(given)) != sorted(_without_ones(wanted)):
        return f"; if the order of elements is right, use {reshape}"
    axes = list(range(len(given)))
    for order in (  # channels last → first, first → last, both again for arrays without a batch, all axes reversed
        [*axes[:1], *axes[-1:], *axes[1:-1]],
        [*axes[:1], *axes[2:], *axes[1:2]],
        [*axes[-1:], *axes[:-1]],
        [*axes[1:], *axes[:1]],
        axes[::-1],
    ):
        moved = tuple(given[axis] for axis in order)
        if _without_ones(moved) == _without_ones(wanted):
            return f": its axes are in another order, use .transpose({order}){'' if moved == wanted else reshape}"
    return ": its axes are in another order, use .transpose(…)"


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]


def refuse_nan(role: str, tensors: tuple[Tensor, ...], arrays: Sequence[np.ndarray], cause: str = "") -> None:
    """Raise an error if an array has NaN.

    Args:
        role: "input" or "output", for the message.
        tensors: of the model.
        arrays: one for each tensor.
        cause: the end of the message.

    Raises:
        RunError: an array has NaN.
    """
    for tensor, array in zip(tensors, arrays, strict=True):
        if tensor.dtype == "bfloat16":
            found = (array.view(np.uint16) & 0x7FFF) > 0x7F80
        elif DTYPES[tensor.dtype].kind == "f":
            found = np.isnan(array)
        else:
            continue
        count = np.count_nonzero(found)
        if count > 0:
            first = [int(index) for index in np.unravel_index(found.argmax(), found.shape)]
            raise RunError(f'{role} "{tensor.name}": {count} of {found.size} elements are NaN, first {first}{cause}')


def check_overlap(
    inputs: tuple[Tensor, ...], sources: list[np.ndarray], outputs: tuple[Tensor, ...], results: list[np.ndarray]
) -> None:
    for i, result in enumerate(results):
        others = [*zip(inputs, sources, strict=True), *zip(outputs[:i], results[:i], strict=True)]
        for tensor, other in others:
            if np.may_share_memory(result, other):
                raise RunError(f'out for "{outputs[i].name}" overlaps "{tensor.name}": use an array of its own')
