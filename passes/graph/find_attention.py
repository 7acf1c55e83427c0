"""Find attention in the steps that front ends and exporters write it with: product – changes – softmax – product.

    s = matmul(q, kᵀ);  t = f(s, …);  w = softmax(t);  y = matmul(w, v)

`f` is element-wise: a scale, a mask that is added or chooses, a soft cap, conditions on positions. The softmax may be
one operator or its steps, with or without zeros for rows of minus infinity. In between, tensors may change their shape.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from tvm import relax, tirx
from tvm.ir.expr import TensorLoad

from nnefc.passes.graph.element_kernels import element_of_kernel
from nnefc.passes.graph.moved_items import SHAPES
from nnefc.passes.graph.rewriter import array_of, is_call, is_constant, operands, shape_of

__all__ = ["ELEMENT_WISE", "Found", "Program", "find_attention", "number_of"]

_MOST_STEPS = 32
"""Between the product and the softmax."""


def _extremum(of_numbers: Callable[..., tirx.Expr], a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """The larger or the smaller of scores and others; not a number if one of both is none."""
    other, score = (a, b) if isinstance(a, TensorLoad | tirx.FloatImm) else (b, a)
    chosen = of_numbers(other, score)  # the second, where a comparison does not hold
    if isinstance(other, tirx.FloatImm) and not math.isnan(other.value):
        return chosen
    return tirx.Select(tirx.isnan(other), other, chosen)


ELEMENT_WISE: Mapping[str, Callable[..., tirx.Expr]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "maximum": lambda a, b: _extremum(tirx.Max, a, b),
    "minimum": lambda a, b: _extremum(tirx.Min, a, b),
    "negative": lambda a: tirx.const(0, a.expr_ty().dtype) - a,
    "tanh": tirx.tanh,
    "where": tirx.Select,
}
"""What changes scores item by item."""


@dataclass(frozen=True)
class _Scores:
    """A product, changed in so many steps."""

    steps: int


@dataclass(frozen=True)
class _Highest:
    """The largest of each row of scores; `finite` if it is so even where all are minus infinity."""

    scores: relax.Var
    finite: bool = False


@dataclass(frozen=True)
class _Shifted:
    highest: _Highest


@dataclass(frozen=True)
class _Powers:
    highest: _Highest


@dataclass(frozen=True)
class _Total:
    """The sum of each row of powers; `filled` if it is at least 1."""

    highest: _Highest
    filled: bool = False


@dataclass(frozen=True)
class _Weights:
    """The softmax of scores, which it uses so many times; zeros for rows of minus infinity if they are `empty`."""

    scores: relax.Var
    uses: int
    empty: bool


_Fact = _Scores | _Highest | _Shifted | _Powers | _Total | _Weights


@dataclass(frozen=True)
class Found:
    """An attention.

    Attributes:
        last: the variable of the second product.
        product: that product.
        scores: what the softmax is taken of.
        empty: see :class:`_Weights`.
    """

    last: relax.Var
    product: relax.Call
    scores: relax.Var
    empty: bool


class Program:
    """What a function binds its variables to, and how often it uses them; and which of them are made of one product."""

    def __init__(self, func: relax.Function) -> None:
        self.definitions: dict[relax.Var, relax.Expr] = {}
        self.uses: Counter[relax.Var] = Counter()
        self.users: dict[relax.Var, relax.Var] = {}
        self.scores: set[relax.Var] = set()
        for block in func.body.blocks:
            for binding in block.bindings:
                self.definitions[binding.var] = binding.value
                for var in _used(binding.value):
                    self.uses[var] += 1
                    self.users[var] = binding.var
        self.uses.update(_used(func.body.body))

    def only_user(self, var: relax.Var) -> relax.Var | None:
        """The variable of the only binding that uses `var`."""
        return self.users.get(var) if self.uses[var] == 1 else None


def _used(expr: relax.Expr) -> list[relax.Var]:
    match expr:
        case relax.Var():
            return [expr]
        case relax.Tuple():
            return [var for field in expr.fields for var in _used(field)]
        case relax.TupleGetItem():
            return _used(expr.tuple_value)
        case relax.Call():
            return [arg for arg in operands(expr) if isinstance(arg, relax.Var)]
    return []


def find_attention(func: relax.Function, kernels: Mapping[object, tirx.PrimFunc]) -> tuple[Program, list[Found]]:
    """All attentions of a function, in order; `kernels` are those of its module."""
    program = Program(func)
    facts: dict[relax.Var, _Fact] = {}
    found = []
    for var, value in program.definitions.items():
        fact = _fact(var, value, facts, kernels)
        if fact is not None:
            facts[var] = fact
        if isinstance(fact, _Scores):
            program.scores.add(var)
        if is_call(value, "matmul") and (weights := _weights(value.args[0], program, facts)) is not None:
            found.append(Found(var, value, weights.scores, weights.empty))
    return program, found


def _weights(expr: relax.Expr, program: Program, facts: Mapping[relax.Var, _Fact]) -> _Weights | None:
    """What is known of a factor that is the softmax of scores, perhaps in another shape, and has no other use."""
    while program.only_user(expr) is not None:
        fact = facts.get(expr)
        if isinstance(fact, _Weights):
            return fact if program.uses[fact.scores] == fact.uses else None
        value = program.definitions.get(expr)
        if not is_call(value, *SHAPES):
            return None
        expr = value.args[0]
    return None


def _fact(
    var: relax.Var,
    value: relax.Expr,
    facts: Mapping[relax.Var, _Fact],
    kernels: Mapping[object, tirx.PrimFunc],
) -> _Fact | None:
    """What a variable is, if it has a part in an attention."""
    if not isinstance(value, relax.Call) or not isinstance(var.ty, relax.TensorType):
        return None
    if str(var.ty.dtype) != "float32":
        return None
    if is_call(value, "matmul"):
        return _Scores(0) if all(len(shape_of(arg)) >= 2 for arg in value.args) else None
    known = [facts.get(arg) if isinstance(arg, relax.Var) else None for arg in value.args]
    if is_call(value, "call_tir"):
        return _changed_by_kernel(var, value, facts, kernels)
    if not any(known):
        return None
    name = value.op.name.removeprefix("relax.") if hasattr(value.op, "name") else ""
    rule = _RULES.get(name)
    made = rule(value, known) if rule is not None else None
    return made if made is not None else _changed(var, value, name, known)


def _changed(var: relax.Var, value: relax.Call, name: str, known: list[_Fact | None]) -> _Fact | None:
    """Scores that were changed item by item, or have another shape."""
    scores = [(arg, fact) for arg, fact in zip(value.args, known, strict=True) if isinstance(fact, _Scores)]
    if len(scores) != 1 or (name not in ELEMENT_WISE and name not in SHAPES):
        return None
    ((arg, fact),) = scores
    same = shape_of(var) == shape_of(arg) or name in SHAPES
    return _Scores(fact.steps + 1) if same and fact.steps < _MOST_STEPS else None


def _changed_by_kernel(
    var: relax.Var, value: relax.Call, facts: Mapping[relax.Var, _Fact], kernels: Mapping[object, tirx.PrimFunc]
) -> _Fact | None:
    known = [(arg, fact) for arg in value.args[1].fields if isinstance(fact := facts.get(arg), _Scores)]
    if len(known) != 1 or shape_of(var) != shape_of(known[0][0]) or element_of_kernel(kernels[value.args[0]]) is None:
        return None
    steps = known[0][1].steps
    return _Scores(steps + 1) if steps < _MOST_STEPS else None


def _softmax(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    last = _is_last(call.args[0], [call.attrs.axis])
    return _Weights(call.args[0], 1, False) if isinstance(known[0], _Scores) and last else None


def _max(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    fits = isinstance(known[0], _Scores) and call.attrs.keepdims and _is_last(call.args[0], call.attrs.axis)
    return _Highest(call.args[0]) if fits else None


def _maximum(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    for fact, other in zip(known, reversed(call.args), strict=True):
        limit = number_of(other)
        if isinstance(fact, _Highest) and limit is not None and np.isfinite(limit) and limit <= -1e38:
            return _Highest(fact.scores, True)
        if isinstance(fact, _Total) and limit == 1:
            return _Total(fact.highest, True)
    return None


def _subtract(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    highest = known[1]
    return _Shifted(highest) if isinstance(highest, _Highest) and highest.scores.same_as(call.args[0]) else None


def _exp(_call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    return _Powers(known[0].highest) if isinstance(known[0], _Shifted) else None


def _sum(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    powers = known[0]
    fits = call.attrs.keepdims and _is_last(call.args[0], call.attrs.axis)
    return _Total(powers.highest) if isinstance(powers, _Powers) and fits else None


def _divide(_call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    powers, total = known
    if not isinstance(powers, _Powers) or not isinstance(total, _Total) or total.highest is not powers.highest:
        return None
    return _Weights(powers.highest.scores, 2, powers.highest.finite and total.filled)


def _is_last(data: relax.Expr, axes: Iterable[object] | None) -> bool:
    """Whether a reduction is over the last axis alone."""
    rank = len(shape_of(data))
    return axes is not None and [int(str(axis)) % rank for axis in axes] == [rank - 1]


def number_of(expr: relax.Expr) -> float | None:
    """The value of a constant of one item."""
    if not is_constant(expr) or int(np.prod(shape_of(expr))) != 1:
        return None
    return float(array_of(expr).reshape(()))


_RULES: Mapping[str, Callable[[relax.Call, list[_Fact | None]], _Fact | None]] = {
    "nn.softmax": _softmax,
    "max": _max,
    "maximum": _maximum,
    "subtract": _subtract,
    "exp": _exp,
    "sum": _sum,
    "divide": _divide,
}
