"""Matches attention in the operators of front ends and exporters: product, element-wise changes, softmax, product.

    s = matmul(q, kᵀ);  t = f(s, …);  w = softmax(t);  y = matmul(w, v)

`f` is element-wise: a scale, a mask that is added or chooses, a soft cap, conditions on positions. The softmax may be
one operator or its steps, with or without zeros for rows of minus infinity or of NaN. In between, tensors may change
their shape or the order of their axes, so scores may have keys as rows, and weights may be the right factor:

    s = matmul(k, qᵀ);  w = softmax(s, axis=-2);  yᵀ = matmul(vᵀ, w)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax, tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.attention.softmax_weights import condition_in
from nnefc.passes.graph.fusion.elementwise_kernels import element_of_kernel
from nnefc.passes.graph.index_maps import SHAPES
from nnefc.passes.graph.rewriter import array_of, is_call, is_constant, operands, shape_of
from nnefc.passes.tir.common.expressions import is_number

__all__ = ["ELEMENT_WISE", "AttentionProgram", "Found", "find_attention", "number_of"]

_MAX_STEPS = 32
"""The largest number of operators between the product and the softmax."""


def _extremum(of_numbers: Callable[..., tirx.Expr], a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    """Returns the max or min of two scores; NaN if either is NaN."""
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
"""Element-wise operators that may stand between the product and the softmax."""


@dataclass(frozen=True)
class _Scores:
    """A product after `steps` element-wise operators."""

    steps: int


@dataclass(frozen=True)
class _Highest:
    """The maximum of scores along an axis; `finite` if it is replaced by a finite number where all are minus
    infinity.
    """

    scores: relax.Var
    axis: int
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
class _Logarithms:
    """The logarithms of a softmax of scores along an axis."""

    scores: relax.Var
    axis: int


@dataclass(frozen=True)
class _Weights:
    """The softmax of scores along an axis.

    Attributes:
        uses: how often the steps of the softmax use the scores.
        empty: zeros come of rows of minus infinity, not NaN.
        inner: the weights before these, with NaN in such rows.
    """

    scores: relax.Var
    axis: int
    uses: int
    empty: bool = False
    inner: relax.Var | None = None


@dataclass(frozen=True)
class _OfWeights:
    """A value computed from weights, which are bound to `base`, by element-wise operators and moves."""

    base: relax.Var
    steps: int


@dataclass(frozen=True)
class _Hidden:
    """Booleans: whether scores are minus infinity; with an axis, whether all along it are."""

    scores: relax.Var
    axis: int | None = None


_Fact = _Scores | _Highest | _Shifted | _Powers | _Total | _Logarithms | _Weights | _OfWeights | _Hidden


@dataclass(frozen=True)
class Found:
    """An attention.

    Attributes:
        last: the variable of the second product.
        product: that product.
        factor: which of its factors is made of weights, 0 or 1.
        scores: what the softmax is taken of.
        axis: along which.
        weights: the variable of the softmax.
        steps: what is made of it before the product, in order.
        empty: see :class:`_Weights`.
    """

    last: relax.Var
    product: relax.Call
    factor: int
    scores: relax.Var
    axis: int
    weights: relax.Var
    steps: Sequence[relax.Var]
    empty: bool


class AttentionProgram:
    """A function's bindings with their use counts, and the variables that derive from one product."""

    def __init__(self, func: relax.Function) -> None:
        self.definitions: dict[relax.Var, relax.Expr] = {}
        self.uses: Counter[relax.Var] = Counter()
        self.users: dict[relax.Var, relax.Var] = {}
        self.scores: set[relax.Var] = set()
        for binding in bindings_of(func):
            self.definitions[binding.var] = binding.value
            for var in _used(binding.value):
                self.uses[var] += 1
                self.users[var] = binding.var
        self.uses.update(_used(func.body.body))

    def only_user(self, var: relax.Var) -> relax.Var | None:
        """Returns the variable of the only binding that uses `var`."""
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


def find_attention(
    func: relax.Function, kernels: Mapping[object, tirx.PrimFunc]
) -> tuple[AttentionProgram, list[Found]]:
    """Returns all attentions of a function, in order; `kernels` are those of its module."""
    program = AttentionProgram(func)
    facts: dict[relax.Var, _Fact] = {}
    steps: dict[relax.Var, list[relax.Var]] = {}
    found = []
    for var, value in program.definitions.items():
        fact = _fact(var, value, facts, kernels)
        if fact is not None:
            facts[var] = fact
        if isinstance(fact, _Scores):
            program.scores.add(var)
        if isinstance(fact, _OfWeights):
            steps.setdefault(fact.base, []).append(var)
        if is_call(value, "matmul"):
            for factor, arg in enumerate(value.args):
                base = _base(arg, facts)
                weights = facts[base] if base is not None else None
                if base is not None and isinstance(weights, _Weights) and _is_alone(weights, program):
                    own = weights.scores, weights.axis, base, tuple(steps.get(base, ())), weights.empty
                    found.append(Found(var, value, factor, *own))
    return program, found


def _is_alone(weights: _Weights, program: AttentionProgram) -> bool:
    """Whether only these weights use the values that they are computed from."""
    inner = weights.inner
    return program.uses[weights.scores] == weights.uses and (inner is None or program.uses[inner] == 1)


def _base(expr: relax.Expr, facts: Mapping[relax.Var, _Fact]) -> relax.Var | None:
    """Returns the weights that a value is, or is computed from."""
    match facts.get(expr) if isinstance(expr, relax.Var) else None:
        case _Weights():
            return expr
        case _OfWeights(base, _):
            return base
    return None


def _fact(
    var: relax.Var,
    value: relax.Expr,
    facts: Mapping[relax.Var, _Fact],
    kernels: Mapping[object, tirx.PrimFunc],
) -> _Fact | None:
    """Returns the role of a variable in an attention, if it has one."""
    if not isinstance(value, relax.Call) or not isinstance(var.ty, relax.TensorType):
        return None
    if is_call(value, "matmul"):
        is_product = str(var.ty.dtype) == "float32" and all(len(shape_of(arg)) >= 2 for arg in value.args)
        return _Scores(0) if is_product else None
    if is_call(value, "call_tir"):
        return _changed_by_kernel(var, value, facts, kernels)
    known = [facts.get(arg) if isinstance(arg, relax.Var) else None for arg in value.args]
    if not any(known):
        return None
    name = value.op.name.removeprefix("relax.") if hasattr(value.op, "name") else ""
    rule = _RULES.get(name)
    made = rule(value, known) if rule is not None else None
    return made if made is not None else _changed(var, value, name, known, facts)


def _changed(
    var: relax.Var, value: relax.Call, name: str, known: list[_Fact | None], facts: Mapping[relax.Var, _Fact]
) -> _Fact | None:
    """Scores or weights that were changed element by element, or moved."""
    if name not in ELEMENT_WISE and name not in _MOVED:
        return None
    changed = [arg for arg, fact in zip(value.args, known, strict=True) if isinstance(fact, _CHANGEABLE)]
    return _after(var, changed, facts, moved=name in _MOVED)


def _after(
    var: relax.Var, changed: Sequence[relax.Var], facts: Mapping[relax.Var, _Fact], moved: bool = False
) -> _Fact | None:
    """Derives the scores or weights after an operation on operands with those roles."""
    if not changed or not (moved or all(shape_of(var) == shape_of(arg) for arg in changed)):
        return None
    scores = [fact for arg in changed if isinstance(fact := facts[arg], _Scores)]
    if scores:
        is_next = len(changed) == 1 and scores[0].steps < _MAX_STEPS and str(var.ty.dtype) == "float32"
        return _Scores(scores[0].steps + 1) if is_next else None
    first, *others = (_base(arg, facts) for arg in changed)
    steps = 1 + max(fact.steps if isinstance(fact := facts[arg], _OfWeights) else 0 for arg in changed)
    same = first is not None and all(other is first or first.same_as(other) for other in others)
    return _OfWeights(first, steps) if first is not None and same and steps <= _MAX_STEPS else None


def _changed_by_kernel(
    var: relax.Var, value: relax.Call, facts: Mapping[relax.Var, _Fact], kernels: Mapping[object, tirx.PrimFunc]
) -> _Fact | None:
    known = [arg for arg in value.args[1].fields if arg in facts]
    element = element_of_kernel(kernels[value.args[0]]) if known else None
    if element is None:
        return None
    first = facts[known[0]]
    if isinstance(first, _Hidden):
        return first if isinstance(condition_in(element[1]), TensorLoad) else None
    if isinstance(first, _Scores) and len(known) == 1 and _asks_for_infinity(element[1]):
        return _Hidden(known[0])
    known = [arg for arg in known if isinstance(facts[arg], _CHANGEABLE)]
    return _after(var, known, facts)


def _asks_for_infinity(value: tirx.Expr) -> bool:
    """Whether a kernel computes, element by element, whether its operand is minus infinity."""
    condition = condition_in(value)
    if not isinstance(condition, tirx.EQ):
        return False
    sides = condition.a, condition.b
    return any(is_number(side, -math.inf) for side in sides) and any(isinstance(side, TensorLoad) for side in sides)


def _softmax(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    axis = _axis(call.args[0], [call.attrs.axis])
    return _Weights(call.args[0], axis, 1) if isinstance(known[0], _Scores) and axis is not None else None


def _log_softmax(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    axis = _axis(call.args[0], [call.attrs.axis])
    return _Logarithms(call.args[0], axis) if isinstance(known[0], _Scores) and axis is not None else None


def _max(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    axis = _axis(call.args[0], call.attrs.axis) if call.attrs.keepdims else None
    return _Highest(call.args[0], axis) if isinstance(known[0], _Scores) and axis is not None else None


def _maximum(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    for fact, other in zip(known, reversed(call.args), strict=True):
        limit = number_of(other)
        if isinstance(fact, _Highest) and limit is not None and np.isfinite(limit) and limit <= -1e38:
            return _Highest(fact.scores, fact.axis, True)
        if isinstance(fact, _Total) and limit == 1:
            return _Total(fact.highest, True)
    return None


def _subtract(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    highest = known[1]
    return _Shifted(highest) if isinstance(highest, _Highest) and highest.scores.same_as(call.args[0]) else None


def _exp(_call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    match known[0]:
        case _Shifted(highest):
            return _Powers(highest)
        case _Logarithms(scores, axis):
            return _Weights(scores, axis, 1)
    return None


def _sum(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    powers = known[0]
    if not isinstance(powers, _Powers) or not call.attrs.keepdims:
        return None
    return _Total(powers.highest) if _axis(call.args[0], call.attrs.axis) == powers.highest.axis else None


def _divide(_call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    powers, total = known
    if not isinstance(powers, _Powers) or not isinstance(total, _Total) or total.highest is not powers.highest:
        return None
    highest = powers.highest
    return _Weights(highest.scores, highest.axis, 2, highest.finite and total.filled)


def _all(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    """Derives whether all scores along an axis are minus infinity, from the minimum of booleans or of integers
    converted from them.
    """
    hidden = known[0]
    if not isinstance(hidden, _Hidden) or hidden.axis is not None or not call.attrs.keepdims:
        return None
    axis = _axis(call.args[0], call.attrs.axis)
    return _Hidden(hidden.scores, axis) if axis is not None else None


def _cast(_call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    return known[0] if isinstance(known[0], _Hidden) else None


def _equal(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    for fact, scores, other in zip(known, call.args, reversed(call.args), strict=True):
        if isinstance(fact, _Scores) and number_of(other) == -math.inf:
            return _Hidden(scores)
    return None


def _where(call: relax.Call, known: list[_Fact | None]) -> _Fact | None:
    """Derives weights whose rows are zeros where all scores are minus infinity."""
    hidden, _, weights = known
    if not isinstance(hidden, _Hidden) or not isinstance(weights, _Weights) or number_of(call.args[1]) != 0:
        return None
    same = hidden.scores.same_as(weights.scores) and hidden.axis == weights.axis
    return _Weights(weights.scores, weights.axis, weights.uses + 1, True, call.args[2]) if same else None


def _axis(data: relax.Expr, axes: Iterable[object] | None) -> int | None:
    """Returns the only axis of a reduction."""
    rank = len(shape_of(data))
    found = [] if axes is None else [int(str(axis)) % rank for axis in axes]
    return found[0] if len(found) == 1 else None


def number_of(expr: relax.Expr) -> float | None:
    """Returns the value of a constant of one element."""
    if not is_constant(expr) or int(np.prod(shape_of(expr))) != 1:
        return None
    return float(array_of(expr).reshape(()))


_CHANGEABLE = (_Scores, _Weights, _OfWeights)
_MOVED = (*SHAPES, "permute_dims")

_RULES: Mapping[str, Callable[[relax.Call, list[_Fact | None]], _Fact | None]] = {
    "nn.softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "max": _max,
    "maximum": _maximum,
    "subtract": _subtract,
    "exp": _exp,
    "sum": _sum,
    "divide": _divide,
    "equal": _equal,
    "min": _all,
    "all": _all,
    "astype": _cast,
    "where": _where,
}
