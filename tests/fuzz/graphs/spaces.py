"""The attribute spaces of ONNX's operators: how a random node of each is made.

An entry takes a walk, chooses tensors, constants and attributes, and adds a node. What an entry chooses need not be
valid: the walk takes back what ONNX's reference refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from walk import Rejected, Tensor, Walk

__all__ = ["SPACES"]

Space = Callable[[Walk], object]
SPACES: dict[str, Space] = {}

F, I64, I32, BOOL = np.float32, np.int64, np.int32, np.bool_
INTEGERS = (I64, I32, np.int8, np.uint8)
ANY = (F, F, F, *INTEGERS, BOOL)


def space(*names: str) -> Callable[[Callable[[Walk, str], object]], Callable[[Walk, str], object]]:
    """Declare how nodes of these operators are made, by a function of the walk and the operator's name."""

    def declare(make: Callable[[Walk, str], object]) -> Callable[[Walk, str], object]:
        for name in names:
            SPACES[name] = lambda walk, name=name: make(walk, name)  # type: ignore[misc]
        return make

    return declare


def some(w: Walk, **choices: Any) -> dict[str, Any]:
    """Some of the attributes, the others left at their defaults."""
    return {name: value for name, value in choices.items() if w.chance(0.6)}


def axis_of(w: Walk, t: Tensor, extra: int = 0) -> int:
    """An axis of a tensor, from the front or from the back."""
    rank = t.array.ndim + extra
    if not rank:
        raise Rejected("a scalar has no axes")
    return w.number(-rank, rank - 1)


def axes_of(w: Walk, t: Tensor) -> list[int]:
    """Several axes of a tensor, each once."""
    rank = t.array.ndim
    if not rank:
        raise Rejected("a scalar has no axes")
    chosen = w.rng.permutation(rank)[: w.number(1, rank)]
    return [int(axis) - rank * w.chance(0.3) for axis in chosen]


# ── Element by element ───────────────────────────────────────────────────────────────────────────────────────────────


# fmt: off
_UNARY = (
    "Asinh", "Atan", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Mish", "Relu", "Round", "Selu", "Sigmoid", "Sin", "Sinh", "Cosh", "Softplus",
    "Softsign", "Tanh", "ThresholdedRelu", "Shrink",
)
# fmt: on
_ALPHA = {"LeakyRelu", "Elu", "ThresholdedRelu", "HardSigmoid", "Celu"}


@space(*_UNARY)
def _unary(w: Walk, name: str) -> object:
    attributes: dict[str, Any] = {}
    if name in _ALPHA:
        attributes = some(w, alpha=w.real(0.05, 1.5))
    if name == "Gelu":
        attributes = some(w, approximate=w.one("none", "tanh"))
    if name == "Shrink":
        attributes = some(w, lambd=w.real(0.1, 1), bias=w.real(-1, 1))
    return w.add(name, w.pick(), **attributes)


_RANGES = {
    "Acos": (-0.95, 0.95),
    "Asin": (-0.95, 0.95),
    "Atanh": (-0.9, 0.9),
    "Tan": (-1.2, 1.2),
    "Acosh": (1.05, 9.0),
}


@space("Acos", "Asin", "Atanh", "Acosh", "Log", "Sqrt", "Reciprocal", "Tan")
def _bounded(w: Walk, name: str) -> object:
    x = w.pick()
    ranges = {
        "Acos": (-0.95, 0.95),
        "Asin": (-0.95, 0.95),
        "Atanh": (-0.9, 0.9),
        "Tan": (-1.2, 1.2),
        "Acosh": (1.05, 9.0),
    }
    low, high = ranges.get(name, (0.05, 50.0))
    (kept,) = w.add("Clip", x, w.constant(low, F), w.constant(high, F))
    return w.add(name, kept)


@space("Abs", "Neg", "Sign")
def _unary_of_any(w: Walk, name: str) -> object:
    return w.add(name, w.pick((F, F, I64, I32, np.int8)))


@space("Not")
def _not(w: Walk, name: str) -> object:
    return w.add(name, w.pick((BOOL,)))


@space("BitwiseNot")
def _bitwise_not(w: Walk, name: str) -> object:
    return w.add(name, w.pick(INTEGERS))


@space("IsNaN", "IsInf")
def _tests(w: Walk, name: str) -> object:
    return w.add(name, w.pick())


@space("Add", "Sub", "Mul")
def _arithmetic(w: Walk, name: str) -> object:
    a = w.pick((F, F, F, I64, I32))
    return w.add(name, *_shuffled(w, a, w.fitting(a)))


@space("Div")
def _division(w: Walk, name: str) -> object:
    a = w.pick((F, F, I64, I32))
    b = w.fitting(a)
    array = w.rng.uniform(0.3, 3, b.shape) * w.rng.choice([-1, 1], b.shape)
    values = array if a.is_float else np.where(array < 0, np.floor(array), np.ceil(array))
    return w.add(name, a, w.constant(values.astype(a.array.dtype)))


@space("Mod")
def _modulus(w: Walk, name: str) -> object:
    a = w.pick((F, I64, I32))
    b = w.fitting(a)
    divisor = w.constant((w.rng.integers(1, 8, b.shape) * w.rng.choice([-1, 1], b.shape)).astype(a.array.dtype))
    return w.add(name, a, divisor, fmod=1 if a.is_float else w.number(0, 1))


@space("Pow")
def _power(w: Walk, name: str) -> object:
    x = w.pick()
    if w.chance(0.5):
        return w.add(name, x, w.constant(w.one(0.0, 1.0, 2.0, 3.0), F))
    (kept,) = w.add("Clip", x, w.constant(0.1, F), w.constant(4.0, F))
    return w.add(name, kept, w.constant(w.rng.uniform(-2, 2, kept.shape[-1:]).astype(F)))


@space("PRelu")
def _prelu(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 6))
    return w.add(name, x, w.constant(w.random([1 if w.chance(0.4) else s for s in x.shape])))


@space("And", "Or", "Xor")
def _logic(w: Walk, name: str) -> object:
    a = w.pick((BOOL,))
    return w.add(name, a, w.fitting(a))


@space("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def _bits(w: Walk, name: str) -> object:
    a = w.pick(INTEGERS)
    return w.add(name, a, w.fitting(a))


@space("BitShift")
def _shift(w: Walk, name: str) -> object:
    a = w.pick((np.uint8,))
    return w.add(name, a, w.constant(w.rng.integers(0, 7, a.shape).astype(np.uint8)), direction=w.one("LEFT", "RIGHT"))


@space("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def _comparison(w: Walk, name: str) -> object:
    a = w.pick((F, F, I64, I32))
    return w.add(name, a, w.fitting(a))


@space("Max", "Min", "Mean", "Sum")
def _variadic(w: Walk, name: str) -> object:
    a = w.pick()
    return w.add(name, a, *(w.fitting(a) for _ in range(w.number(0, 3))))


@space("Where")
def _where(w: Walk, name: str) -> object:
    condition = w.pick((BOOL,))
    a = w.constant(w.random(condition.shape)) if w.chance(0.5) else w.pick()
    return w.add(name, condition, a, w.fitting(a))


@space("Clip")
def _clip(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32, np.int8))
    bounds = [w.constant(v, x.array.dtype) if w.chance(0.7) else None for v in (-1, 2)]
    return w.add(name, x, *bounds)


@space("Cast")
def _cast(w: Walk, name: str) -> object:
    x = w.pick(ANY)
    to = np.dtype(w.one(F, I32, I64, BOOL, np.int8, np.uint8))
    if x.is_float and to.kind in "iu":
        (x,) = w.add("Clip", x, w.constant(0 if to.kind == "u" else -100, F), w.constant(100, F))
    from onnx import helper

    return w.add(name, x, to=int(helper.np_dtype_to_tensor_dtype(to)))


def _shuffled(w: Walk, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return (a, b) if w.chance(0.5) else (b, a)


# ── Reductions ───────────────────────────────────────────────────────────────────────────────────────────────────────


@space(*(f"Reduce{k}" for k in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Sum", "SumSquare", "Prod")))
def _reduction(w: Walk, name: str) -> object:
    x = w.pick((F, F, F, I32) if name in ("ReduceMax", "ReduceMin", "ReduceSum") else (F,), range(1, 6))
    axes = w.integers(*axes_of(w, x)) if w.chance(0.8) else None
    return w.add(name, x, axes, **some(w, keepdims=w.number(0, 1), noop_with_empty_axes=w.number(0, 1)))


@space("ReduceLogSum")
def _log_sum(w: Walk, name: str) -> object:
    (x,) = w.add("Abs", w.pick(ranks=range(1, 6)))
    (x,) = w.add("Add", x, w.constant(0.1, F))
    return w.add(name, x, w.integers(*axes_of(w, x)), **some(w, keepdims=w.number(0, 1)))


@space("ArgMax", "ArgMin")
def _arg(w: Walk, name: str) -> object:
    x = w.pick((F, I32), range(1, 6))
    return w.add(name, x, axis=axis_of(w, x), **some(w, keepdims=w.number(0, 1), select_last_index=w.number(0, 1)))


@space("CumSum")
def _cumulative(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32), range(1, 5))
    return w.add(name, x, w.constant(axis_of(w, x), I64), **some(w, exclusive=w.number(0, 1), reverse=w.number(0, 1)))


@space("Softmax", "LogSoftmax", "Hardmax")
def _softmax(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 6))
    return w.add(name, x, **some(w, axis=axis_of(w, x)))


@space("TopK")
def _top(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32), range(1, 5))
    axis = axis_of(w, x)
    return w.add(
        name,
        x,
        w.integers(w.number(1, x.shape[axis])),
        outputs=2,
        axis=axis,
        sorted=1,
        **some(w, largest=w.number(0, 1)),
    )


# ── Shapes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@space("Reshape")
def _reshape(w: Walk, name: str) -> object:
    x = w.pick(ANY)
    items, shape = x.array.size, []
    while items > 1 and len(shape) < 4:
        divisors = [d for d in range(1, items + 1) if items % d == 0]
        shape.append(int(w.rng.choice(divisors)))
        items //= shape[-1]
    shape.append(items)
    w.rng.shuffle(shape)
    if w.chance(0.4):
        shape[w.number(0, len(shape) - 1)] = -1
    return w.add(name, x, w.integers(*shape))


@space("Transpose")
def _transpose(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 6))
    return w.add(name, x, **some(w, perm=[int(a) for a in w.rng.permutation(x.array.ndim)]))


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
        return w.add(name, x, outputs=(parts := w.number(2, min(4, size))), axis=axis, num_outputs=parts)
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
    x = w.pick((F, F, I32), range(1, 5))
    mode = w.one("constant", "constant", "reflect", "edge", "wrap")
    most = [min(3, size - 1) if mode != "constant" else 3 for size in x.shape]
    pads = [w.number(0, max(0, m)) if w.chance(0.6) else 0 for m in (*most, *most)]
    if mode == "constant" and w.chance(0.2):
        pads = [-1 if p == 1 and s > 4 else p for p, s in zip(pads, (*x.shape, *x.shape), strict=True)]
    value = w.constant(w.random((), x.array.dtype)) if mode == "constant" and w.chance(0.5) else None
    return w.add(name, x, w.integers(*pads), value, mode=mode)


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
        if len(w.inputs) < 5
        else w.pick(ranks=[4])
    )
    return w.add(name, x, blocksize=block, **some(w, mode=w.one("DCR", "CRD")))


@space("SpaceToDepth")
def _space_to_depth(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    return w.add(name, x, blocksize=w.one(1, 2, 3))


@space("Trilu")
def _triangle(w: Walk, name: str) -> object:
    x = w.pick((F, I32), range(2, 5))
    return w.add(name, x, w.constant(w.number(-3, 3), I64) if w.chance(0.6) else None, **some(w, upper=w.number(0, 1)))


@space("CenterCropPad")
def _crop(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    axes = axes_of(w, x)
    return w.add(name, x, w.integers(*(w.size() for _ in axes)), axes=axes)


@space("ReverseSequence")
def _reverse(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(2, 5))
    time = w.number(0, 1)
    lengths = [w.number(1, x.shape[time]) for _ in range(x.shape[1 - time])]
    return w.add(name, x, w.integers(*lengths), time_axis=time, batch_axis=1 - time)


@space("Shape", "Size")
def _shape(w: Walk, name: str) -> object:
    x = w.pick(ANY)
    return w.add(name, x, **(some(w, start=w.number(-3, 2), end=w.number(-2, 4)) if name == "Shape" else {}))


@space("EyeLike")
def _eye(w: Walk, name: str) -> object:
    return w.add(name, w.pick((F, I32), [2]), **some(w, k=w.number(-3, 3)))


@space("ConstantOfShape")
def _filled(w: Walk, name: str) -> object:
    from onnx import numpy_helper

    shape = w.integers(*(w.size() for _ in range(w.number(1, 3))))
    return w.add(name, shape, **some(w, value=numpy_helper.from_array(w.random((1,), w.one(F, I64, I32)))))


@space("Range")
def _range(w: Walk, name: str) -> object:
    start, step = w.number(-9, 9), w.one(1, 2, 3, -1, -2)
    return w.add(name, *(w.constant(v, I64) for v in (start, start + step * w.size(), step)))


@space("OneHot")
def _one_hot(w: Walk, name: str) -> object:
    x = w.pick(INTEGERS[:2], range(4))
    return w.add(name, x, w.constant(w.number(2, 9), I64), w.constant(w.random((2,))), **some(w, axis=axis_of(w, x, 1)))


# ── Indices ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _indices(w: Walk, shape: tuple[int, ...], size: int) -> Tensor:
    """Random indices of an axis, some from the back."""
    found = w.rng.integers(-size if w.chance(0.3) else 0, size, shape)
    return w.constant(found.astype(w.one(I64, I32)))


@space("Gather")
def _gather(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    axis = axis_of(w, x)
    return w.add(name, x, _indices(w, tuple(w.number(1, 5) for _ in range(w.number(0, 2))), x.shape[axis]), axis=axis)


@space("GatherElements")
def _gather_elements(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    axis = axis_of(w, x)
    shape = list(x.shape)
    shape[axis] = w.size()
    return w.add(name, x, _indices(w, tuple(shape), x.shape[axis]), axis=axis)


@space("GatherND")
def _gather_nd(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    batch = w.number(0, min(1, x.array.ndim - 1))
    depth = w.number(1, x.array.ndim - batch)
    lead = (*x.shape[:batch], *(w.number(1, 4) for _ in range(w.number(0, 2))))
    columns = [w.rng.integers(0, x.shape[batch + k], lead) for k in range(depth)]
    return w.add(name, x, w.constant(np.stack(columns, -1).astype(I64)), **({"batch_dims": batch} if batch else {}))


@space("ScatterElements")
def _scatter_elements(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32), range(1, 4))
    axis = axis_of(w, x)
    kind = w.one("none", "add", "max", "min", "mul")
    shape = [w.number(1, size) for size in x.shape]
    indices = np.argsort(w.rng.random((*x.shape,)), axis)[tuple(slice(s) for s in shape)]
    if kind != "none" and w.chance(0.5):
        indices = w.rng.integers(0, x.shape[axis], shape)
    updates = w.constant(w.random(shape, x.array.dtype))
    return w.add(
        name, x, w.constant(indices.astype(I64)), updates, axis=axis, **({} if kind == "none" else {"reduction": kind})
    )


@space("ScatterND")
def _scatter_nd(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32), range(1, 4))
    depth = w.number(1, x.array.ndim)
    kind = w.one("none", "add", "max", "min", "mul")
    count = int(np.prod(x.shape[:depth]))
    chosen = w.rng.permutation(count)[: w.number(1, min(count, 6))]
    if kind != "none" and w.chance(0.5):
        chosen = w.rng.integers(0, count, len(chosen))
    indices = np.stack(np.unravel_index(chosen, x.shape[:depth]), -1)
    updates = w.constant(w.random((len(chosen), *x.shape[depth:]), x.array.dtype))
    return w.add(name, x, w.constant(indices.astype(I64)), updates, **({} if kind == "none" else {"reduction": kind}))


@space("Compress")
def _compress(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 4))
    axis = axis_of(w, x)
    condition = w.random((w.number(1, x.shape[axis]),), BOOL)
    condition[0] = True
    return w.add(name, x, w.constant(condition), axis=axis)


@space("NonZero")
def _nonzero(w: Walk, name: str) -> object:
    return w.add(name, w.pick((BOOL, I32), range(1, 4)))


# ── Contractions ─────────────────────────────────────────────────────────────────────────────────────────────────────


@space("MatMul")
def _product(w: Walk, name: str) -> object:
    a = w.pick(ranks=range(1, 5))
    n = w.size()
    others = [t for t in w.tensors if t.is_float and t.array.ndim == 2 and t.shape[0] == a.shape[-1]]
    if others and w.chance(0.4):
        return w.add(name, a, w.one(*others))
    lead = a.shape[:-2] if a.array.ndim > 2 and w.chance(0.4) else ()
    return w.add(name, a, w.constant(w.random((*lead, a.shape[-1], n)) / np.float32(np.sqrt(a.shape[-1]))))


@space("Gemm")
def _gemm(w: Walk, name: str) -> object:
    a = w.pick(ranks=[2])
    turned, other = w.number(0, 1), w.number(0, 1)
    k, m, n = a.shape[1 - turned], a.shape[turned], w.size()
    b = w.constant(w.random((n, k) if other else (k, n)) / np.float32(np.sqrt(k)))
    c = w.constant(w.random(w.one((m, n), (n,), (1, n), (m, 1), (), (1,)))) if w.chance(0.7) else None
    return w.add(name, a, b, c, transA=turned, transB=other, **some(w, alpha=w.real(-2, 2), beta=w.real(-2, 2)))


# fmt: off
_EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->", "ii->i", "bij->bj", "ij,kj->ik", "i,j->ij", "...ij->...ji",
    "bhqd,bhkd->bhqk", "ijk,ilk->jl",
)
# fmt: on


@space("Einsum")
def _einsum(w: Walk, name: str) -> object:
    equations = (
        "ij,jk->ik",
        "bij,bjk->bik",
        "ij->ji",
        "ij->",
        "ii->i",
        "bij->bj",
        "ij,kj->ik",
        "i,j->ij",
        "...ij->...ji",
        "bhqd,bhkd->bhqk",
        "ijk,ilk->jl",
    )
    equation = w.one(*equations)
    terms = equation.partition("->")[0].split(",")
    a = w.pick(ranks=[len(terms[0].replace("...", "b"))])
    sizes = dict(zip(terms[0].replace("...", ""), a.shape, strict=False))
    rest = [w.constant(w.random([sizes.setdefault(c, w.size()) for c in term])) for term in terms[1:]]
    return w.add(name, a, *rest, equation=equation)


def _window(w: Walk, x: Tensor) -> dict[str, Any]:
    """Attributes of a convolution's or pooling's window."""
    rank = x.array.ndim - 2
    kernel = [w.one(1, 1, 2, 3, 3, 3, 4, 5) for _ in range(rank)]
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if w.chance(0.5):
        attributes["strides"] = [w.one(1, 2, 2, 3) for _ in range(rank)]
    if w.chance(0.25):
        attributes["dilations"] = [w.one(1, 2, 3) for _ in range(rank)]
    if w.chance(0.2) and "dilations" not in attributes:
        attributes["auto_pad"] = w.one("SAME_UPPER", "SAME_LOWER", "VALID")
    elif w.chance(0.6):
        attributes["pads"] = [w.number(0, k // 2) for k in (*kernel, *kernel)]
    return attributes


@space("Conv")
def _convolution(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4, 4, 4, 5])
    attributes = _window(w, x)
    channels = x.shape[1]
    groups = w.one(1, 1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0))
    outputs = groups * w.one(1, 1, 2, 4, 8, 16) if groups > 1 else w.size()
    kernel = attributes["kernel_shape"]
    weight = w.random((outputs, channels // groups, *kernel)) / np.float32(
        np.sqrt(channels // groups * np.prod(kernel))
    )
    bias = w.constant(w.random((outputs,))) if w.chance(0.5) else None
    return w.add(name, x, w.constant(weight), bias, group=groups, **attributes)


@space("ConvTranspose")
def _deconvolution(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4, 4])
    attributes = _window(w, x)
    attributes.pop("auto_pad", None)
    channels, kernel = x.shape[1], attributes["kernel_shape"]
    groups = w.one(1, 1, channels)
    outputs = w.one(1, 2, 3, 8)
    weight = w.random((channels, outputs, *kernel)) / np.float32(np.sqrt(channels * np.prod(kernel)))
    if "strides" in attributes and w.chance(0.3):
        attributes["output_padding"] = [w.number(0, s - 1) for s in attributes["strides"]]
    bias = w.constant(w.random((groups * outputs,))) if w.chance(0.5) else None
    return w.add(name, x, w.constant(weight), bias, group=groups, **attributes)


@space("MaxPool", "AveragePool", "LpPool")
def _pooling(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4, 4, 5])
    attributes = _window(w, x)
    if name == "AveragePool":
        attributes |= some(w, count_include_pad=w.number(0, 1))
    if "auto_pad" not in attributes and w.chance(0.3):
        attributes["ceil_mode"] = 1
    return w.add(name, x, **attributes)


@space("GlobalAveragePool", "GlobalMaxPool")
def _global_pooling(w: Walk, name: str) -> object:
    return w.add(name, w.pick(ranks=[3, 4, 5]))


# ── Normalization ────────────────────────────────────────────────────────────────────────────────────────────────────


@space("BatchNormalization")
def _batch_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(2, 6))
    c = x.shape[1]
    scale, bias, mean = (w.constant(w.random((c,))) for _ in range(3))
    return w.add(
        name,
        x,
        scale,
        bias,
        mean,
        w.constant(w.rng.uniform(0.3, 2, c).astype(F)),
        **some(w, epsilon=w.real(1e-5, 1e-2)),
    )


@space("InstanceNormalization")
def _instance_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(3, 6))
    return w.add(name, x, *(w.constant(w.random((x.shape[1],))) for _ in range(2)), epsilon=0.1)


@space("LayerNormalization")
def _layer_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    axis = axis_of(w, x)
    shape = x.shape[axis % x.array.ndim :]
    bias = w.constant(w.random(shape)) if w.chance(0.6) else None
    return w.add(name, x, w.constant(w.random(shape)), bias, axis=axis, epsilon=0.1)


@space("GroupNormalization")
def _group_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(3, 5))
    groups = w.one(*(g for g in (1, 2, 3, 4, 8) if x.shape[1] % g == 0))
    return w.add(name, x, *(w.constant(w.random((x.shape[1],))) for _ in range(2)), num_groups=groups, epsilon=0.1)


@space("LRN")
def _lrn(w: Walk, name: str) -> object:
    return w.add(
        name,
        w.pick(ranks=[4]),
        size=w.one(1, 3, 5),
        **some(w, alpha=w.real(0.01, 0.5), beta=w.real(0.3, 1), bias=w.real(1, 2)),
    )


@space("LpNormalization")
def _lp(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 4))
    return w.add(name, x, **some(w, axis=axis_of(w, x), p=w.number(1, 2)))


@space("MeanVarianceNormalization")
def _mvn(w: Walk, name: str) -> object:
    return w.add(name, w.pick(ranks=[4], least=64))


# ── Pictures and sequences ───────────────────────────────────────────────────────────────────────────────────────────


@space("Resize")
def _resize(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3, 4])
    mode = w.one("nearest", "linear", "cubic")
    attributes: dict[str, Any] = {"mode": mode}
    attributes |= some(
        w, coordinate_transformation_mode=w.one("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    )
    if mode == "nearest":
        attributes |= some(w, nearest_mode=w.one("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"))
    sizes = [*x.shape[:2], *(w.number(1, 12) for _ in x.shape[2:])]
    if w.chance(0.5):
        return w.add(name, x, None, None, w.integers(*sizes), **attributes)
    scales = np.array([1, 1, *(w.one(0.5, 1.0, 1.5, 2.0, 3.0) for _ in x.shape[2:])], F)
    return w.add(name, x, None, w.constant(scales), **attributes)


@space("GridSample")
def _grid_sample(w: Walk, name: str) -> object:
    x = w.pick(ranks=[4])
    grid = w.constant(w.rng.uniform(-1.2, 1.2, (x.shape[0], w.number(1, 6), w.number(1, 6), 2)).astype(F))
    return w.add(
        name,
        x,
        grid,
        **some(
            w,
            mode=w.one("linear", "nearest"),
            padding_mode=w.one("zeros", "border", "reflection"),
            align_corners=w.number(0, 1),
        ),
    )


@space("LSTM", "GRU", "RNN")
def _recurrent(w: Walk, name: str) -> object:
    x = w.pick(ranks=[3])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    hidden, directions = w.one(1, 3, 8, 16, 17), w.one(1, 1, 2)
    weight = w.constant(w.random((directions, gates * hidden, x.shape[2])) / np.float32(2))
    recurrence = w.constant(w.random((directions, gates * hidden, hidden)) / np.float32(2))
    bias = w.constant(w.random((directions, 2 * gates * hidden))) if w.chance(0.6) else None
    direction = "bidirectional" if directions == 2 else w.one("forward", "reverse")
    extra = {"linear_before_reset": w.number(0, 1)} if name == "GRU" else {}
    return w.add(
        name,
        x,
        weight,
        recurrence,
        bias,
        outputs=3 if name == "LSTM" else 2,
        hidden_size=hidden,
        direction=direction,
        **extra,
    )


# ── Quantization ─────────────────────────────────────────────────────────────────────────────────────────────────────


@space("QuantizeLinear")
def _quantize(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    zero = w.one(np.int8(w.number(-20, 20)), np.uint8(w.number(0, 200)))
    (q,) = w.add(name, x, w.constant(w.real(0.02, 0.3), F), w.constant(zero))
    if w.chance(0.7):
        return w.add("DequantizeLinear", q, w.constant(w.real(0.02, 0.3), F), w.constant(zero))
    return q


@space("DequantizeLinear")
def _dequantize(w: Walk, name: str) -> object:
    x = w.pick((np.int8, np.uint8), range(1, 5))
    zero = w.constant(w.number(0, 20), x.array.dtype) if w.chance(0.6) else None
    return w.add(name, x, w.constant(w.real(0.02, 0.3), F), zero)


@space("ConvInteger")
def _convolve_integers(w: Walk, name: str) -> object:
    x = w.pick((np.uint8,), [4])
    attributes = _window(w, x)
    weight = w.rng.integers(-90, 90, (w.size(), x.shape[1], *attributes["kernel_shape"])).astype(np.int8)
    zero = w.constant(w.number(0, 200), np.uint8) if w.chance(0.6) else None
    return w.add(name, x, w.constant(weight), zero, **attributes)


@space("MatMulInteger")
def _multiply_integers(w: Walk, name: str) -> object:
    x = w.pick((np.uint8, np.int8), range(2, 4))
    weight = w.rng.integers(-90, 90, (x.shape[-1], w.size())).astype(np.int8)
    zero = w.constant(w.number(0, 100), x.array.dtype) if w.chance(0.6) else None
    return w.add(name, x, w.constant(weight), zero)


@space("DynamicQuantizeLinear")
def _quantize_dynamically(w: Walk, name: str) -> object:
    return w.add(name, w.pick(ranks=range(1, 4)), outputs=3)
