"""Writes pooling and resizing."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.nnef.operations.resize import METHODS
from nnefc.frontends.nnef.writing.data_movement import MODES
from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.products import window_arguments
from nnefc.frontends.nnef.writing.rules import says, shape_of
from nnefc.operators.base import Shape
from nnefc.operators.nn.pooling import AdaptivePool, ArgMaxPool, AveragePool, LpPool, MaxPool, SumPool
from nnefc.operators.nn.unpooling import SampleWindows, SpreadWindows
from nnefc.operators.nn.window import Window
from nnefc.operators.vision.interpolation import AxisScaling, Interpolation
from nnefc.operators.vision.resize import Resize
from nnefc.symbolic.dims import is_known


def _whole(window: Window, shape: Shape, ceil: bool = False) -> tuple[Window, dict[str, Any]]:
    """The window over all dimensions, and its attributes."""
    lead = len(shape) - window.rank
    covering = window.covering(shape[lead:]) if ceil else window
    ones = (1,) * lead
    whole = Window(
        ones + covering.size, ones + covering.stride, ones + covering.dilation, ((0, 0),) * lead + covering.padding
    )
    return whole, {"size": list(whole.size), **window_arguments(whole)}


@says(MaxPool)
def _max_pool(document: Document, operator: MaxPool, x: Any) -> Any:
    _, arguments = _whole(operator.window, shape_of(x), operator.ceil)
    return document.call("max_pool", input=document.tensor(x), border="ignore", **arguments)


@says(ArgMaxPool)
def _argmax_pool(document: Document, operator: ArgMaxPool, x: Any) -> Any:
    if operator.within != "window":
        raise Unsayable("NNEF numbers the elements of a window, here positions are numbered in the whole tensor")
    _, arguments = _whole(operator.window, shape_of(x), operator.ceil)
    return document.call("argmax_pool", input=document.tensor(x), border="ignore", **arguments)


@says(SumPool)
def _sum_pool(document: Document, operator: SumPool, x: Any) -> Any:
    _, arguments = _whole(operator.window, shape_of(x), operator.ceil)
    return document.call("box", input=document.tensor(x), border="constant", **arguments)


@says(AveragePool)
def _average_pool(document: Document, operator: AveragePool, x: Any) -> Any:
    whole, arguments = _whole(operator.window, shape_of(x), operator.ceil)
    lead = len(shape_of(x)) - operator.window.rank
    exact = whole.padding[lead:] == operator.window.padding
    if operator.divisor is not None:
        total = document.call("box", input=document.tensor(x), border="constant", **arguments)
        return document.call("div", x=total, y=float(operator.divisor))
    if operator.count_padding and not exact:
        raise Unsayable("NNEF counts all of the padding in an average or none, here only a part of it counts")
    border = "constant" if operator.count_padding else "ignore"
    return document.call("avg_pool", input=document.tensor(x), border=border, **arguments)


@says(LpPool)
def _lp_pool(document: Document, operator: LpPool, x: Any) -> Any:
    """The norms 1 and 2; of the norm 1 without signs."""
    if operator.p not in (1, 2) or (operator.p == 1 and operator.signed):
        raise Unsayable(f"NNEF has no operation for the norm {operator.p} of windows")
    powers = document.call("sqr" if operator.p == 2 else "abs", x=document.tensor(x))
    total = _sum_pool(document, SumPool(operator.window, operator.ceil), powers)
    return document.call("sqrt", x=total) if operator.p == 2 else total


@says(AdaptivePool)
def _adaptive_pool(document: Document, operator: AdaptivePool, x: Any) -> Any:
    shape = shape_of(x)
    lead = len(shape) - len(operator.results)
    sizes = shape[lead:]
    if all(isinstance(count, int) and count == 1 for count in operator.results):
        name = "mean_reduce" if operator.average else "max_reduce"
        return document.call(name, input=document.tensor(x), axes=list(range(lead, len(shape))))
    if not is_known(*sizes, *operator.results) or any(n % m for n, m in zip(sizes, operator.results, strict=True)):
        raise Unsayable("NNEF's windows are of one size, here the parts of a tensor differ")
    size = tuple(n // m for n, m in zip(sizes, operator.results, strict=True))
    window = Window.of(size, stride=size)
    if operator.average:
        return _average_pool(document, AveragePool(window), x)
    return _max_pool(document, MaxPool(window), x)


@says(SampleWindows)
def _sample(document: Document, operator: SampleWindows, x: Any, index: Any) -> Any:
    _, arguments = _whole(operator.window, shape_of(x))
    given = {"input": document.tensor(x), "index": document.tensor(index)}
    return document.call("sample", border=MODES[operator.border], **given, **arguments)


@says(SpreadWindows)
def _spread(document: Document, operator: SpreadWindows, x: Any, index: Any = None) -> Any:
    _, arguments = _whole(operator.window, operator.result)
    spread = operator.window.spread(shape_of(x))
    if spread != tuple(operator.result):
        arguments["output_shape"] = list(operator.result)
    if index is not None:
        given = {"input": document.tensor(x), "index": document.tensor(index)}
        return document.call("desample", border=MODES[operator.border], **given, **arguments)
    border = "ignore" if operator.shares == "inside" else MODES[operator.border]
    return document.call(
        "debox", input=document.tensor(x), border=border, normalize=operator.shares is not None, **arguments
    )


@says(Resize)
def _resize(document: Document, operator: Resize, x: Any) -> Any:
    """Write a resize by whole factors, of the dimensions after the channels."""
    shape = shape_of(x)
    scalings = dict(operator.axes)
    changed = {axis: s for axis, s in scalings.items() if not s.keeps_positions}
    if not changed:
        return document.value(x)
    if len(shape) < 3 or min(changed) < 2:
        raise Unsayable("NNEF resizes the dimensions behind the channels only")
    factors = [_factor(changed.get(axis)) for axis in range(2, len(shape))]
    up = [factor for factor, larger in factors if larger]
    if len(up) == len(factors):
        return _upsample(document, operator.interpolation, x, up, changed)
    down = [factor for factor, larger in factors if not larger or factor == 1]
    if len(down) == len(factors):
        return _downsample(document, operator.interpolation, x, down, changed)
    raise Unsayable("NNEF makes all dimensions larger, or all smaller")


def _factor(scaling: AxisScaling | None) -> tuple[int, bool]:
    """The factor of a dimension, and whether it becomes larger."""
    if scaling is None:
        return 1, True
    if (scaling.begin, scaling.end) == (0.0, 1.0):
        scale = scaling.scale
        whole = round(scale) if scale is not None and scale >= 1 else 0
        if whole and scale == whole and scaling.results == scaling.elements * whole:
            return whole, True
        if is_known(scaling.elements, scaling.results) and not scaling.elements % scaling.results:
            part = scaling.elements // scaling.results
            if scale is not None and abs(scale * part - 1) < 1e-6:
                return part, False
    raise Unsayable(f"NNEF resizes by whole factors, here {scaling.elements} elements become {scaling.results}")


def _upsample(
    document: Document, how: Interpolation, x: Any, factors: list[int], changed: dict[int, AxisScaling]
) -> Any:
    if how.mode == "nearest":
        if not all(_repeats(how, scaling) for scaling in changed.values()):
            raise Unsayable("NNEF repeats elements, here other elements are the nearest")
        return document.call("nearest_upsample", input=document.tensor(x), factor=factors)
    method = {coordinates: name for name, coordinates in METHODS.items()}.get(how.coordinates)
    if how.coordinates == "pytorch_half_pixel":  # which differs for a single result only
        method = "symmetric"
    if how.mode != "linear" or method is None or how.outside not in ("edge", "zero"):
        raise Unsayable(f"NNEF interpolates linearly, here it is '{how.mode}' with '{how.coordinates}'")
    border = "constant" if how.outside == "zero" else "replicate"
    return document.call("multilinear_upsample", input=document.tensor(x), factor=factors, method=method, border=border)


def _repeats(how: Interpolation, scaling: AxisScaling) -> bool:
    """Returns whether every result is the element that it lies in."""
    if not scaling.is_known:
        return how.repeats_elements(scaling) > 0
    elements, _ = how.taps(scaling)
    factor = scaling.results // scaling.elements
    return bool((elements[:, 0] == np.arange(scaling.results) // factor).all())


def _downsample(
    document: Document, how: Interpolation, x: Any, factors: list[int], changed: dict[int, AxisScaling]
) -> Any:
    def is_first(scaling: AxisScaling) -> bool:
        elements, _ = how.taps(scaling)
        return bool((elements[:, 0] == np.arange(scaling.results) * (scaling.elements // scaling.results)).all())

    if how.mode != "nearest" or not all(map(is_first, changed.values())):
        raise Unsayable("NNEF takes the first element of each block where a tensor becomes smaller")
    return document.call("nearest_downsample", input=document.tensor(x), factor=factors)
