"""Products, convolutions and windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.declared import F, some, space, weight


@space("MatMul")
def _product(w: Walk, name: str) -> object:
    a = w.pick(ranks=range(1, 5))
    n = w.size()
    others = [t for t in w.tensors if t.is_float and t.array.ndim == 2 and t.shape[0] == a.shape[-1]]
    if others and w.chance(0.4):
        return w.add(name, a, w.one(*others))
    lead = a.shape[:-2] if a.array.ndim > 2 and w.chance(0.4) else ()
    return w.add(name, a, weight(w, w.random((*lead, a.shape[-1], n)) / np.float32(np.sqrt(a.shape[-1]))))


@space("Gemm")
def _gemm(w: Walk, name: str) -> object:
    a = w.pick(ranks=[2])
    transposed, other = w.number(0, 1), w.number(0, 1)
    k, m, n = a.shape[1 - transposed], a.shape[transposed], w.size()
    b = weight(w, w.random((n, k) if other else (k, n)) / np.float32(np.sqrt(k)))
    c = weight(w, w.random(w.one((m, n), (n,), (1, n), (m, 1), (), (1,)))) if w.chance(0.7) else None
    return w.add(name, a, b, c, transA=transposed, transB=other, **some(w, alpha=w.real(-2, 2), beta=w.real(-2, 2)))


# fmt: off
_EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->", "ii->i", "bij->bj", "ij,kj->ik", "i,j->ij", "...ij->...ji",
    "bhqd,bhkd->bhqk", "ijk,ilk->jl",
)
# fmt: on


@space("Einsum")
def _einsum(w: Walk, name: str) -> object:
    equation = w.one(*_EQUATIONS)
    terms = equation.partition("->")[0].split(",")
    a = w.pick(ranks=[len(terms[0].replace("...", "b"))])
    sizes = dict(zip(terms[0].replace("...", ""), a.shape, strict=False))
    if terms[0] == "ii" and a.shape[0] != a.shape[1]:
        raise Rejected("no diagonal of a square")
    tail = [w.constant(w.random([sizes.setdefault(c, w.size()) for c in term])) for term in terms[1:]]
    return w.add(name, a, *tail, equation=equation)


def window_of(w: Walk, x: Tensor) -> dict[str, Any]:
    """Attributes of a convolution's or pooling's window, over images that have elements, if there are any images."""
    if 0 in x.shape[1:]:
        raise Rejected("no elements")
    rank = x.array.ndim - 2
    kernel = [w.one(1, 1, 2, 3, 3, 3, 4, 5) for _ in range(rank)]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if w.chance(0.5):
        attributes["strides"] = [w.one(1, 2, 2, 3) for _ in range(rank)]
    if w.chance(0.25):
        attributes["dilations"] = [w.one(1, 2, 3) for _ in range(rank)]
    if w.chance(0.2) and "dilations" not in attributes:
        strides = attributes.get("strides", [1] * rank)
        attributes["strides"] = [min(pair) for pair in zip(strides, kernel, strict=True)]
        attributes["auto_pad"] = w.one("SAME_UPPER", "SAME_LOWER", "VALID")
    elif w.chance(0.6):
        attributes["pads"] = [w.number(0, k // 2) for k in (*kernel, *kernel)]
    return attributes


@space("Conv")
def _convolution(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4, 4, 4, 5])
    attributes = window_of(w, x)
    channels = x.shape[1]
    groups = w.one(1, 1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0))
    outputs = groups * w.one(1, 1, 2, 4, 8, 16) if groups > 1 else w.size()
    kernel = attributes["kernel_shape"]
    inner = np.float32(np.sqrt(channels // groups * np.prod(kernel)))
    weights = weight(w, w.random((outputs, channels // groups, *kernel)) / inner)
    bias = weight(w, w.random((outputs,))) if w.chance(0.5) else None
    return w.add(name, x, weights, bias, group=groups, **attributes)


@space("ConvTranspose")
def _deconvolution(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4, 4])
    attributes = window_of(w, x)
    channels, kernel = x.shape[1], attributes["kernel_shape"]
    groups = w.one(1, 1, channels)
    outputs = w.one(1, 2, 3, 8)
    weights = weight(w, w.random((channels, outputs, *kernel)) / np.float32(np.sqrt(channels * np.prod(kernel))))
    if "strides" in attributes and w.chance(0.3):
        attributes["output_padding"] = [w.number(0, s - 1) for s in attributes["strides"]]
    bias = weight(w, w.random((groups * outputs,))) if w.chance(0.5) else None
    return w.add(name, x, weights, bias, group=groups, **attributes)


@space("MaxPool", "AveragePool", "LpPool")
def _pooling(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4, 4, 5])
    attributes = window_of(w, x)
    if name == "AveragePool":
        attributes |= some(w, count_include_pad=w.number(0, 1))
    if name == "LpPool":
        attributes |= some(w, p=w.number(1, 3))
    if "auto_pad" not in attributes and w.chance(0.3):
        attributes["ceil_mode"] = 1
    return w.add(name, x, **attributes)


@space("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def _global_pooling(w: Walk, name: str) -> object:
    return w.add(name, w.pick(ranks=[3, 4, 5]), **(some(w, p=w.number(1, 3)) if name == "GlobalLpPool" else {}))


@space("Det")
def _determinant(w: Walk, name: str) -> object:
    """Of a few rows: the products of many are too small or too large."""
    size = w.number(1, 5)
    return w.add(name, w.new_input((*(w.number(1, 3) for _ in range(w.number(0, 2))), size, size)))


@space("DeformConv")
def _deformed_convolution(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    attributes = window_of(w, x)
    attributes.pop("auto_pad", None)
    channels, kernel = x.shape[1], attributes["kernel_shape"]
    if x.array.size > 2048 or math.prod(kernel) > 9:
        raise Rejected("too many elements under the windows")
    groups, moved = (w.one(1, 1, channels) for _ in range(2))
    outputs = groups * w.one(1, 2, 3)
    weights = w.random((outputs, channels // groups, *kernel)) / np.float32(np.sqrt(channels * math.prod(kernel)))
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    pads = attributes.setdefault("pads", [0, 0, 0, 0])
    sizes = [
        (x.shape[2 + k] + pads[k] + pads[2 + k] - dilations[k] * (kernel[k] - 1) - 1) // strides[k] + 1 for k in (0, 1)
    ]
    if min(sizes) < 1:
        raise Rejected("the window fits nowhere")
    taps = moved * math.prod(kernel)
    offset = weight(w, w.random((x.shape[0], 2 * taps, *sizes)))
    bias = weight(w, w.random((outputs,))) if w.chance(0.5) else None
    mask = w.constant(w.rng.random((x.shape[0], taps, *sizes)).astype(F)) if w.chance(0.5) else None
    return w.add(name, x, weight(w, weights), offset, bias, mask, group=groups, offset_group=moved, **attributes)
