"""Registers a reduction's combiner with TVM, so that lanes or threads can share the reduction.

TVM recognizes sums, products, max and min that start from the smallest finite number, and some more. What front ends
define otherwise (max that starts from minus infinity or propagates NaN; argmax) must be registered. The combiner is
derived from the computation itself:

    C = select(C > f(A), C, f(A)), first -∞      →      combine(a, b) = select(a > b, a, b), identity -∞
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from nnefc.passes.tir.common.expressions import replaced, substituted

__all__ = ["Reducer", "reducer_of", "register_reducer"]

_COMMUTATIVE = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min, tirx.And, tirx.Or)


@dataclass(frozen=True)
class Reducer:
    """The combiner of two partial results, `left` and `right`; `first` is its identity.

    `elements` are what the results so far are combined with.
    """

    left: tuple[tirx.Var, ...]
    right: tuple[tirx.Var, ...]
    combined: tuple[tirx.Expr, ...]
    first: tuple[tirx.Expr, ...]
    elements: tuple[tirx.Expr, ...]

    def joined(self, left: Sequence[tirx.Expr], right: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        """Combines two partial results."""
        values = dict(zip((*self.left, *self.right), (*left, *right), strict=True))
        return [substituted(expr, values) for expr in self.combined]


def register_reducer(node: s_tir.SBlock) -> None:
    """Registers the reduction of a block with TVM, if its combiner can be derived; TVM knows simple sums."""
    reducer = reducer_of(node)
    if reducer is None:
        return
    text = f"{reducer.first} {reducer.combined}"
    with _LOCK:
        if text not in _KNOWN:
            _KNOWN.add(text)
            _register(reducer)


_KNOWN: set[str] = set()
_LOCK = threading.Lock()
_NUMBERS = itertools.count()


def _register(reducer: Reducer) -> None:
    def is_of_others(values: Sequence[tirx.Expr]) -> bool:
        """Whether values have other types than the reducer's: TVM asks about reductions of all types."""
        return any(value.ty != own.ty for value, own in zip(values, reducer.left, strict=True))

    def combine(left: Sequence[tirx.Expr], right: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        if is_of_others(left):  # something of both, which no reduction is
            return [tirx.Select(tirx.EQ(a, b), a, b) for a, b in zip(left, right, strict=True)]
        return reducer.joined(left, right)

    def identity(values: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        return list(values if is_of_others(values) else reducer.first)

    # TVM would destroy functions that it is given after Python has ended; registered ones stay alive.
    names = [f"nnefc.reducer{next(_NUMBERS)}" for _ in range(2)]
    for name, function in zip(names, (combine, identity), strict=True):
        tvm.register_global_func(name, function)
    tvm.get_global_func("s_tir.schedule.RegisterReducer")(len(reducer.left), *map(tvm.get_global_func, names))


def reducer_of(node: s_tir.SBlock) -> Reducer | None:
    """Returns the combiner of a block's reduction, if it can be derived."""
    updates, first = _stores(node.body), _stores(node.init)
    buffers = list(updates)
    if list(first) != buffers or not buffers:
        return None
    results = [buffer[tuple(positions)] for buffer, (_, positions) in updates.items()]
    left, right = (tuple(tirx.Var(f"{side}{i}", r.ty) for i, r in enumerate(results)) for side in ("left", "right"))
    elements = [_element(value, result) for (value, _), result in zip(updates.values(), results, strict=True)]
    known = [*zip(results, left, strict=True), *((e, r) for e, r in zip(elements, right, strict=True) if e is not None)]
    combined = tuple(replaced(value, known) for value, _ in updates.values())
    found = tuple(element for element in elements if element is not None)
    if len(found) < len(elements) or not all(_is_of(expr, {*left, *right}) for expr in combined):
        return None
    return Reducer(left, right, combined, tuple(value for value, _ in first.values()), found)


def _stores(stmt: tirx.Stmt | None) -> Mapping[tirx.Var, tuple[tirx.Expr, list[tirx.Expr]]]:
    """Returns the assigned values and indices by tensor; empty if there are other statements."""
    bound: dict[tirx.Var, tirx.Expr] = {}
    found: dict[tirx.Var, tuple[tirx.Expr, list[tirx.Expr]]] = {}
    for part in stmt.seq if isinstance(stmt, tirx.SeqStmt) else [stmt]:
        match part:
            case tirx.Bind():
                bound[part.var] = part.value
            case tirx.BufferStore():
                found[part.buffer] = (bound.get(part.value, part.value), list(part.indices))
            case _:
                return {}
    return found


def _element(value: tirx.Expr, result: tirx.Expr) -> tirx.Expr | None:
    """Returns the value that an update combines with the previous result."""
    match value:
        case tirx.Select():
            sides = value.true_value, value.false_value
        case _ if isinstance(value, _COMMUTATIVE):
            sides = value.a, value.b
        case _:
            return None
    others = [side for side in sides if not tvm_ffi.structural_equal(side, result)]
    return others[0] if len(others) == 1 else None


def _is_of(expr: tirx.Expr, variables: set[tirx.Var]) -> bool:
    """Whether an expression depends on these variables only."""
    used = tirx.analysis.undefined_vars(tirx.Evaluate(expr), [])
    return all(var in variables for var in used)
