"""Geometry of sliding windows: default parameters, automatic padding, output sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nnefc.frontends.nnef.declarations import Arguments, Shape, ShapeError
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.operators.nn.window import Window, no_padding, same_padding
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import ceil_div

__all__ = ["BORDERS", "checked", "downsized", "make_window", "upsized"]

BORDERS = {
    "constant": "constant",
    "ignore": "constant",
    "replicate": "edge",
    "reflect": "reflect",
    "reflect-even": "symmetric",
}
"""NNEF's borders → modes of `Pad`. With "ignore", positions outside do not take part."""


def make_window(args: Arguments, size: Sequence[int], large: Shape, small: Shape | None) -> Window:
    """The window of an invocation with `border`, `padding`, `stride` and `dilation`.

    Args:
        size: the window's sizes, one per axis it covers.
        large: the sizes of the larger side along those axes (the input; of a transposed operation the output), used
            only for automatic padding.
        small: the sizes of the smaller side; None: `large` divided by the stride, rounded up.
    """
    rank = len(size)
    stride, dilation = _complete(args, "stride", rank), _complete(args, "dilation", rank)
    if any(length < 1 for length in size):
        raise ShapeError(f"the window {spell_shape(size)} must be positive", "size")
    if args.border not in BORDERS:
        raise ShapeError(f"unknown border '{args.border}'", "border", hint=f"known are {', '.join(BORDERS)}")
    window: Window = checked("size", Window, tuple(size), stride, dilation, tuple(args.padding) or no_padding(rank))
    if args.padding:
        if len(args.padding) != rank:
            raise ShapeError(
                f"'padding' needs {rank} pairs, one per dimension of the window, not {len(args.padding)}", "padding"
            )
        return window
    if small is None:
        small = tuple(map(ceil_div, large, stride))
    return window.padded(same_padding(window, large, small))


def _complete(args: Arguments, parameter: str, rank: int) -> Shape:
    values = tuple(args[parameter])
    if len(values) > rank:
        raise ShapeError(f"'{parameter}' has {len(values)} elements, the window only {rank} dimensions", parameter)
    if any(value < 1 for value in values):
        raise ShapeError(f"the elements of '{parameter}' must be positive, not {spell_shape(values)}", parameter)
    return values + (1,) * (rank - len(values))


def downsized(window: Window, sizes: Shape) -> Shape:
    """The sizes of the result of a window that slides over `sizes`."""
    made: Shape = checked("padding", window.results, sizes)
    return made


def checked(parameter: str, check: Callable[..., Any], *args: Any) -> Any:
    """Returns what a function of the operator library does; its errors are about a parameter."""
    try:
        return check(*args)
    except CompileError as error:
        raise ShapeError(error.message, parameter, hint=error.hint) from None


def upsized(window: Window, sizes: Shape) -> Shape:
    """The sizes of the result of the transposed operation."""
    result = window.spread(sizes)
    if any(size < 1 for size in result):
        raise ShapeError(
            f"the padding leaves nothing of the result: its spatial shape would be {spell_shape(result)}", "padding"
        )
    return result
