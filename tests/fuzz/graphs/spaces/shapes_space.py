"""Operators that move elements and make shapes."""

from __future__ import annotations

import numpy as np
from graph import element_type
from steps import Rejected
from walk import Walk

from spaces.declared import ANY, BOOL, I32, I64, INTEGERS, F, axes_of, axis_of, some, space


@space("Reshape")
def _reshape(w: Walk, name: str) -> object:
    x = w.pick(ANY)
    elements, shape = x.array.size, []
    while elements > 1 and len(shape) < 4:
        divisors = [d for d in range(1, elements + 1) if elements % d == 0]
        shape.append(int(w.rng.choice(divisors)))
        elements //= shape[-1]
    shape.append(elements)
    w.rng.shuffle(shape)
    if w.chance(0.4):
        shape[w.number(0, len(shape) - 1)] = -1
    return w.add(name, x, w.integers(*shape))


@space("Transpose")
def _transpose(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 6))
    return w.add(name, x, **some(w, perm=[int(a) for a in w.rng.permutation(x.array.ndim)]))


@space("Unique")
def _unique(w: Walk, name: str) -> object:
    x = w.pick(INTEGERS, range(1, 4), minimum=1)
    if w.chance(0.3):  # along an axis, or with fewer results, the reference takes others
        return w.add(name, x, outputs=4, sorted=0)
    return w.add(name, x, outputs=w.number(1, 4), **some(w, axis=axis_of(w, x)))


@space("Squeeze")
def _squeeze(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 6))
    axes = [axis for axis, size in enumerate(x.shape) if size == 1]
    return w.add(name, x, w.integers(*axes) if axes and w.chance(0.7) else None)


@space("Unsqueeze")
def _unsqueeze(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(5))
    return w.add(name, x, w.integers(axis_of(w, x, 1)))


@space("Flatten")
def _flatten(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    return w.add(name, x, **some(w, axis=axis_of(w, x)))


@space("Concat")
def _concat(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 6))
    axis = axis_of(w, x)
    parts = [x]
    for _ in range(w.number(0, 3)):
        others = [
            t
            for t in w.tensors
            if t.array.dtype == x.array.dtype
            and t.array.ndim == x.array.ndim
            and all(a == b for k, (a, b) in enumerate(zip(t.shape, x.shape, strict=True)) if k != axis % x.array.ndim)
        ]
        shape = list(x.shape)
        shape[axis] = w.size()
        parts.append(w.one(*others) if w.chance(0.7) else w.constant(w.random(shape, x.array.dtype)))
    w.rng.shuffle(parts)  # type: ignore[arg-type]
    return w.add(name, *parts, axis=axis)


@space("Split")
def _split(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 6))
    axis = axis_of(w, x)
    size = x.shape[axis]
    if size < 2:
        raise Rejected("nothing to split")
    if w.chance(0.4):
        parts = w.number(2, min(4, size))
        if -(-size // parts) * (parts - 1) >= size:
            raise Rejected("nothing is left for the last part")
        if w.opset >= 18:
            return w.add(name, x, outputs=parts, axis=axis, num_outputs=parts)
        if size % parts == 0:
            return w.add(name, x, outputs=parts, axis=axis)
    cuts = sorted({int(c) for c in w.rng.integers(1, size, w.number(1, 3))})
    sizes = np.diff([0, *cuts, size])
    return w.add(name, x, w.integers(*map(int, sizes)), outputs=len(sizes), axis=axis)


@space("Slice")
def _slice(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 6))
    axes = axes_of(w, x)
    starts, ends, steps = [], [], []
    for axis in axes:
        size, step = x.shape[axis], w.one(1, 1, 2, 3, -1, -2)
        a, b = sorted(int(v) for v in w.rng.integers(0, size + 1, 2))
        b = min(max(b, a + 1), size)
        a = min(a, b - 1)
        if step < 0:
            a, b = b - 1, a - 1 if a else -(1 << 40)
        elif w.chance(0.2):
            b = (1 << 63) - 1
        starts.append(a - size if w.chance(0.2) else a)
        ends.append(b)
        steps.append(step)
    return w.add(name, x, w.integers(*starts), w.integers(*ends), w.integers(*axes), w.integers(*steps))


@space("Pad")
def _pad(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    mode = w.one("constant", "constant", "reflect", "edge", *["wrap"] * (w.opset >= 19))
    maximum = [min(3, size - 1) if mode != "constant" else 3 for size in x.shape]
    pads = [w.number(0, max(0, m)) if w.chance(0.6) else 0 for m in (*maximum, *maximum)]
    if mode == "constant" and w.chance(0.2):
        pads = [-1 if p == 1 and s > 4 else p for p, s in zip(pads, (*x.shape, *x.shape), strict=True)]
    value = w.constant(w.random((), x.array.dtype)) if mode == "constant" and w.chance(0.5) else None
    if w.opset < 18 or w.chance(0.7):
        return w.add(name, x, w.integers(*pads), value, mode=mode)
    axes = axes_of(w, x)
    pads = [pads[axis + half] for half in (0, len(x.shape)) for axis in (axis % len(x.shape) for axis in axes)]
    return w.add(name, x, w.integers(*pads), value, w.integers(*axes), mode=mode)


@space("Tile")
def _tile(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    return w.add(name, x, w.integers(*(w.one(1, 1, 2, 3) for _ in x.shape)))


@space("Expand")
def _expand(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(5))
    shape = [w.size() if size == 1 else w.one(size, 1) for size in x.shape]
    return w.add(name, x, w.integers(*([w.number(1, 3)] if w.chance(0.3) else []), *shape))


@space("DepthToSpace")
def _depth_to_space(w: Walk, name: str) -> object:
    block = w.number(1, 3)
    x = (
        w.new_input((w.number(1, 2), block * block * w.number(1, 4), w.number(1, 6), w.number(1, 6)))
        if len(w.inputs) < w.max_inputs - 1
        else w.pick(ranks=[4])
    )
    return w.add(name, x, blocksize=block, **some(w, mode=w.one("DCR", "CRD")))


@space("SpaceToDepth")
def _space_to_depth(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    size = w.one(1, 2, 3)
    if any(pixels % size for pixels in x.shape[2:]):
        raise Rejected("not full blocks")
    return w.add(name, x, blocksize=size)


@space("Trilu")
def _triangle(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(2, 5))
    return w.add(name, x, w.constant(w.number(-3, 3), I64) if w.chance(0.6) else None, **some(w, upper=w.number(0, 1)))


@space("CenterCropPad")
def _crop(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    axes = axes_of(w, x)
    return w.add(name, x, w.integers(*(w.size() for _ in axes)), axes=axes)


@space("ReverseSequence")
def _reverse(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(2, 5))
    time = w.number(0, 1)
    lengths = [w.number(1, x.shape[time]) for _ in range(x.shape[1 - time])]
    return w.add(name, x, w.integers(*lengths), time_axis=time, batch_axis=1 - time)


@space("Shape", "Size")
def _shape(w: Walk, name: str) -> object:
    x = w.pick(ANY)
    return w.add(name, x, **(some(w, start=w.number(-3, 2), end=w.number(-2, 4)) if name == "Shape" else {}))


@space("EyeLike")
def _eye(w: Walk, name: str) -> object:
    x = w.pick(ANY, [2])
    kind = w.one(w.floats, BOOL, *(INTEGERS if w.takes_integers else ()))
    dtype = {"dtype": element_type(np.empty(0, kind))} if w.chance(0.4) else {}
    return w.add(name, x, **dtype, **some(w, k=w.number(-3, 3)))


@space("ConstantOfShape")
def _filled(w: Walk, name: str) -> object:
    from onnx import numpy_helper

    shape = w.integers(*(w.size() for _ in range(w.number(1, 3))))
    value = {"value": numpy_helper.from_array(w.random((1,), w.one(*ANY)))}
    return w.add(name, shape, **value if w.floats != F else some(w, **value))


@space("Range")
def _range(w: Walk, name: str) -> object:
    start, step = w.number(-9, 9), w.one(1, 2, 3, -1, -2)
    return w.add(name, *(w.constant(v, I64) for v in (start, start + step * w.size(), step)))


@space("OneHot")
def _one_hot(w: Walk, name: str) -> object:
    x = w.pick((I64, I32), range(4))
    return w.add(
        name,
        x,
        w.constant(w.number(2, 9), I64),
        w.constant(w.random((2,), w.one(*ANY))),
        **some(w, axis=axis_of(w, x, 1)),
    )
