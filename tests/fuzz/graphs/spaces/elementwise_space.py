"""Operators that work element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from graph import Tensor
from walk import Walk

from spaces.declared import ANY, BOOL, INTEGERS, F, some, space, weight

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
    low, high = _RANGES.get(name, (0.05, 50.0))
    (kept,) = w.add("Clip", x, w.constant(low, F), w.constant(high, F))
    return w.add(name, kept)


@space("Abs", "Neg", "Sign")
def _unary_of_any(w: Walk, name: str) -> object:
    return w.add(name, w.pick((F, F, F, *INTEGERS)))


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
    a = w.pick((F, F, F, F, F, *INTEGERS))
    return w.add(name, *_shuffled(w, a, w.fitting(a)))


@space("Div")
def _division(w: Walk, name: str) -> object:
    a = w.pick((F, F, F, *INTEGERS))
    b = w.fitting(a)
    signs = [1] if a.array.dtype.kind == "u" else [-1, 1]
    array = w.rng.uniform(0.3, 3, b.shape) * w.rng.choice(signs, b.shape)
    values = array if a.is_float else np.where(array < 0, np.floor(array), np.ceil(array))
    return w.add(name, a, w.constant(values.astype(a.array.dtype)))


@space("Mod")
def _modulus(w: Walk, name: str) -> object:
    a = w.pick((F, F, *INTEGERS))
    b = w.fitting(a)
    signs = [1] if a.array.dtype.kind == "u" else [-1, 1]
    divisor = w.constant((w.rng.integers(1, 8, b.shape) * w.rng.choice(signs, b.shape)).astype(a.array.dtype))
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
    return w.add(name, x, weight(w, w.random([1 if w.chance(0.4) else s for s in x.shape])))


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
    a = w.pick((F, F, F, *INTEGERS, *[BOOL] * (name == "Equal")))
    return w.add(name, a, w.fitting(a))


@space("Max", "Min", "Mean", "Sum")
def _variadic(w: Walk, name: str) -> object:
    a = w.pick((F, F, F, F, *INTEGERS) if name in ("Max", "Min") else (F,))
    return w.add(name, a, *(w.fitting(a) for _ in range(w.number(0, 3))))


@space("Where")
def _where(w: Walk, name: str) -> object:
    condition = w.pick((BOOL,))
    kinds = ANY if w.takes_integers else (F, BOOL)
    a = w.constant(w.random(condition.shape, w.one(*kinds))) if w.chance(0.5) else w.pick(kinds)
    return w.add(name, condition, a, w.fitting(a))


@space("Clip")
def _clip(w: Walk, name: str) -> object:
    x = w.pick((F, F, F, F, *INTEGERS))
    ends = (1, 4) if x.array.dtype.kind == "u" else (-1, 2)
    bounds = [w.constant(v, x.array.dtype) if w.chance(0.7) else None for v in ends]
    return w.add(name, x, *bounds)


@space("Cast")
def _cast(w: Walk, name: str) -> object:
    x = w.pick(ANY)
    to = np.dtype(w.one(w.floats, w.floats, BOOL, *INTEGERS))
    if x.is_float and to.kind in "iu":
        (x,) = w.add("Clip", x, w.constant(0 if to.kind == "u" else -100, F), w.constant(100, F))
    from onnx import helper

    return w.add(name, x, to=int(helper.np_dtype_to_tensor_dtype(to)))


@space("CastLike")
def _cast_like(w: Walk, name: str) -> object:
    x = w.pick(ANY)
    to = w.one(F, F, BOOL, *INTEGERS)
    if x.is_float and np.dtype(to).kind in "iu":
        (x,) = w.add("Clip", x, w.constant(0 if np.dtype(to).kind == "u" else -100, F), w.constant(100, F))
    return w.add(name, x, w.constant(w.random((w.number(1, 3),), to)))


@space("BitCast")
def _bit_cast(w: Walk, name: str) -> object:
    from onnx import TensorProto

    x = w.pick((np.int8, np.uint8))
    return w.add(name, x, to=TensorProto.UINT8 if x.array.dtype == np.int8 else TensorProto.INT8)


@space("Swish")
def _swish(w: Walk, name: str) -> object:
    return w.add(name, w.pick(), **some(w, alpha=w.real(0.2, 2)))


@space("SwiGLU")
def _swiglu(w: Walk, name: str) -> object:
    x = w.pick()
    return w.add(name, x, weight(w, w.random(x.shape)), **some(w, alpha=w.real(0.2, 2)))


@space("Dropout")
def _dropout(w: Walk, name: str) -> object:
    """As networks are run: nothing is left out."""
    return w.add(name, w.pick(), w.constant(0.3, F), outputs=w.number(1, 2))


def _shuffled(w: Walk, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return (a, b) if w.chance(0.5) else (b, a)
