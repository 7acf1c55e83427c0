"""Operators of onnxruntime's domain that none joins or quantizes, and experiments of the early standard."""

from __future__ import annotations

import math

import numpy as np
from graph import Tensor
from onnx import helper
from steps import Rejected, Step, attributes_of
from walk import Walk

from spaces.declared import ANY, DOMAIN, I32, I64, SPACES, F, axis_of, reshaped, some, space, weight


@space("ComplexMul", "ComplexMulConj")
def _complex_product(w: Walk, name: str) -> object:
    shape = (*(w.size() for _ in range(w.number(1, 3))), 2)
    return w.add(name, reshaped(w, shape) or w.new_input(shape), weight(w, w.random(shape)), domain=DOMAIN)


@space("CDist")
def _distances(w: Walk, name: str) -> object:
    x = w.pick(ranks=[2])
    other = weight(w, w.random((w.size(), x.shape[1])))
    return w.add(name, x, other, domain=DOMAIN, metric=w.one("euclidean", "sqeuclidean"))


@space("com.microsoft.Gelu", "com.microsoft.GridSample", "com.microsoft.GatherND", "com.microsoft.Trilu")
def _as_standard(w: Walk, name: str) -> object:
    """What the standard has, too."""
    kind = name.removeprefix(f"{DOMAIN}.")
    SPACES[kind](w)
    last = w.steps[-1]
    given = attributes_of(last.node)
    if given.get("mode") == "linear":
        given["mode"] = "bilinear"
    if last.node.op_type != kind or given.keys() & {"approximate", "batch_dims"}:
        raise Rejected("of the standard alone")
    node = helper.make_node(kind, last.node.input, last.node.output, domain=DOMAIN, **given)
    w.steps[-1] = Step(node, opset=w.opset)
    return node


@space("ExpandDims")
def _expand(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    return w.add(name, x, w.constant(axis_of(w, x, 1), I32), domain=DOMAIN)


@space("com.microsoft.Pad")
def _pad(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    mode = w.one("constant", "reflect", "edge")
    maximum = [3 if mode == "constant" else min(3, size - 1) for size in x.shape]
    value = w.constant(w.random((1,))) if mode == "constant" and w.chance(0.5) else None
    pads = w.integers(*(w.number(0, max(0, each)) for each in (*maximum, *maximum)))
    return w.add("Pad", x, pads, value, domain=DOMAIN, mode=mode)


@space("com.microsoft.Range")
def _range(w: Walk, name: str) -> object:
    numbers = (w.number(-5, 5), w.number(6, 20), w.number(1, 4))
    return w.add("Range", *(w.constant(number, w.one(I64)) for number in numbers), domain=DOMAIN)


@space("com.microsoft.Unique")
def _unique(w: Walk, name: str) -> object:
    x = w.pick(ranks=[1])
    return w.add("Unique", x, outputs=3, domain=DOMAIN)


@space("Inverse")
def _inverse(w: Walk, name: str) -> object:
    """Of matrices that are far from singular ones."""
    size = w.number(1, 9)
    shape = (*(w.size() for _ in range(w.number(0, 2))), size, size)
    x = reshaped(w, shape) or w.new_input(shape)
    (bounded,) = w.add("Tanh", x)
    (apart,) = w.add("Add", bounded, w.constant(np.eye(size) * 2 * size, F))
    return w.add(name, apart, domain=DOMAIN)


@space("Rfft", "Irfft")
def _transform(w: Walk, name: str) -> object:
    shape = tuple(w.size() for _ in range(w.number(1, 3)))
    shape = shape if name == "Rfft" else (*shape[:-1], w.number(2, 17), 2)
    x = reshaped(w, shape) or w.new_input(shape)
    return w.add(name, x, domain=DOMAIN, signal_ndim=1, onesided=1, normalized=0)


@space("CropAndResize")
def _crop_and_resize(w: Walk, name: str) -> object:
    x, count = w.pick(ranks=[4]), w.number(1, 4)
    corners = np.sort(w.rng.uniform(-0.1, 1.1, (count, 2, 2)), 1).reshape(count, 4)
    images = w.constant(w.rng.integers(0, x.shape[0], count), I32)
    size = w.constant([w.number(1, 7), w.number(1, 7)], I32)
    given = some(w, extrapolation_value=w.real(-2, 2), mode=w.one("bilinear", "nearest"))
    return w.add(name, x, w.constant(corners, F), images, size, domain=DOMAIN, **given)


@space("MurmurHash3")
def _hash(w: Walk, name: str) -> object:
    x = w.pick((I32, I64), range(1, 4))
    return w.add(name, x, domain=DOMAIN, **some(w, seed=w.number(0, 1 << 30), positive=w.number(0, 1)))


@space("MoE")
def _experts(w: Walk, name: str) -> object:
    x = w.pick(ranks=[2, 3])
    rows, width = math.prod(x.shape[:-1]), x.shape[-1]
    count, hidden = w.number(1, 5), w.one(2, 8, 16, 17)
    scores = reshaped(w, (rows, count)) or weight(w, w.random((rows, count)))
    layers: list[Tensor | None] = []
    for inner, outer in ((width, hidden), (hidden, width)):
        layers.append(weight(w, w.random((count, outer, inner)) / np.float32(np.sqrt(max(1, inner)))))
        layers.append(weight(w, w.random((count, outer))) if w.chance(0.6) else None)
    given = {"k": w.number(1, count), "activation_type": w.one("relu", "gelu", "silu")}
    return w.add(name, x, scores, *layers, domain=DOMAIN, **given, **some(w, normalize_routing_weights=1))


@space("Affine", "ParametricSoftplus", "ScaledTanh")
def _scaled(w: Walk, name: str) -> object:
    return w.add(name, w.pick(ranks=range(1, 5)), alpha=w.real(0.2, 2), beta=w.real(0.2, 2))


@space("ImageScaler")
def _scaled_image(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    return w.add(name, x, scale=w.real(0.2, 2), bias=[w.real(-2, 2) for _ in range(x.shape[1])])


@space("Crop")
def _crop(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    before = [w.number(0, max(0, size - 1)) for size in x.shape[2:]]
    left = [size - part for size, part in zip(x.shape[2:], before, strict=True)]
    if w.chance(0.5):
        size = [w.number(1, part) for part in left]
        return w.add(name, x, border=[*before[::-1], 0, 0], scale=size)
    after = [w.number(0, part - 1) for part in left]
    return w.add(name, x, border=[*before[::-1], *after[::-1]])
