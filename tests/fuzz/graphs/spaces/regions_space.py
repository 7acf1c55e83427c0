"""Operators of images' regions and positions, and of boxes."""

from __future__ import annotations

import math

import numpy as np
from steps import Rejected
from walk import Walk

from spaces.declared import I64, F, reshaped, some, space, weight


@space("RoiAlign")
def _aligned_regions(w: Walk, name: str) -> object:
    if w.opset < 16:
        raise Rejected("the reference takes the mode of later operator sets")
    x = w.pick(ranks=[4], minimum=1)
    count = w.number(1, 4)
    corners = np.sort(w.rng.uniform(-1, max(x.shape[2:]) + 1, (count, 2, 2)), axis=1)
    batches = w.constant(w.rng.integers(0, x.shape[0], count), I64)
    return w.add(
        name,
        x,
        w.constant(corners.reshape(count, 4).astype(F)),
        batches,
        output_height=w.number(1, 4),
        output_width=w.number(1, 4),
        **some(
            w,
            mode=w.one("avg", "max"),
            sampling_ratio=w.number(0, 3),
            spatial_scale=w.one(1.0, 0.5, 0.25),
            coordinate_transformation_mode=w.one("half_pixel", "output_half_pixel"),
        ),
    )


@space("MaxRoiPool")
def _pooled_regions(w: Walk, name: str) -> object:
    if w.floats not in (F, np.float64):
        raise Rejected("of float32 and float64")
    x = w.pick(ranks=[4], minimum=1)
    count = w.number(1, 4)
    corners = np.sort(w.rng.uniform(-1, max(x.shape[2:]) + 1, (count, 2, 2)), axis=1).reshape(count, 4)
    rois = np.concatenate([w.rng.integers(0, x.shape[0], (count, 1)), corners], 1)
    pooled = [w.number(1, 4), w.number(1, 4)]
    return w.add(name, x, w.constant(rois.astype(F)), pooled_shape=pooled, **some(w, spatial_scale=w.one(1.0, 0.5)))


@space("Col2Im")
def _columns_to_images(w: Walk, name: str) -> object:
    rank = w.one(1, 2, 2, 2)
    block = [w.number(1, 3) for _ in range(rank)]
    sizes = [w.number(size, 9) for size in block]
    strides, dilations = ([w.one(1, 1, 2) for _ in range(rank)] for _ in range(2))
    pads = [w.one(0, 0, 1) for _ in range(2 * rank)]
    counts = [
        (sizes[k] + pads[k] + pads[rank + k] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1 for k in range(rank)
    ]
    if min(counts) < 1:
        raise Rejected("the blocks fit nowhere")
    shape = (w.number(1, 3), w.number(1, 4) * math.prod(block), math.prod(counts))
    x = reshaped(w, shape) or w.new_input(shape)
    return w.add(name, x, w.integers(*sizes), w.integers(*block), strides=strides, dilations=dilations, pads=pads)


@space("AffineGrid")
def _affine_grid(w: Walk, name: str) -> object:
    rank = w.one(2, 2, 3)
    batch = w.number(1, 3)
    sizes = (batch, w.number(1, 3), *(w.number(1, 6) for _ in range(rank)))
    theta = weight(w, w.random((batch, rank, rank + 1)))
    return w.add(name, theta, w.integers(*sizes), **some(w, align_corners=w.number(0, 1)))


@space("MaxUnpool")
def _unpooled(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4], minimum=1)
    rank = x.array.ndim - 2
    kernel = [w.number(1, 3) for _ in range(rank)]
    strides = [w.number(1, 3) for _ in range(rank)]
    sizes = [(size - 1) * s + k for size, s, k in zip(x.shape[2:], strides, kernel, strict=True)]
    elements = math.prod(sizes)
    lead = math.prod(x.shape[:2])
    indices = np.stack([w.rng.permutation(elements)[: x.array.size // lead] + elements * k for k in range(lead)])
    return w.add(name, x, w.constant(indices.reshape(x.shape), I64), kernel_shape=kernel, strides=strides)


@space("NonMaxSuppression")
def _suppression(w: Walk, name: str) -> object:
    if not w.takes_integers:
        raise Rejected("gives integers")
    batch, classes, count = w.number(1, 2), w.number(1, 3), w.number(1, 12)
    corners = w.rng.uniform(0, 1, (batch, count, 4)).astype(F)
    boxes = w.input_of(corners) if len(w.inputs) < w.max_inputs else w.constant(corners)
    scores = w.constant(w.rng.permutation(batch * classes * count).reshape(batch, classes, count) / 100.0, F)
    limits = [
        w.constant([w.number(0, 6)], I64),
        w.constant([w.real(0.1, 0.8)], F, is_float32=True) if w.chance(0.8) else None,
        w.constant([w.real(0, 0.2)], F, is_float32=True) if w.chance(0.5) else None,
    ]
    return w.add(name, boxes, scores, *limits, **some(w, center_point_box=w.number(0, 1)))
