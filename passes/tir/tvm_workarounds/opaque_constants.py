"""Hides operands that may become constants on which TVM's constant folding fails.

    y[i] = 1 / if_then_else(i < n, x[i], 0)     →     y[i] = 1 / opaque(if_then_else(i < n, x[i], 0))
    y[i] = 1 / float(x[i] - x[i])               →     y[i] = 1 / opaque(float(x[i] - x[i]))

Behaviour of TVM 0.27: it partitions loops where a condition on their variables changes, unrolls others, and then folds
constants. It raises an InternalError or a ValueError for `1 / 0` and for a cast of a number that the type cannot hold,
where a machine has a result, or one that is never used. Differences of unsigned integers and arithmetic of fp16 are
hidden too: what TVM folds them to may be beyond their type.

Divisions of integers are written for divisors of zero already. Nothing is changed in indices.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer

from nnefc.passes.tir.common.expressions import IF_THEN_ELSE
from nnefc.passes.tir.tvm_workarounds.opaque import opaque

__all__ = ["hide_constants"]

_REINTERPRET = Op.get("tirx.reinterpret")
_DEEPEST = 64  # operators between a value and a constant, beyond which one is taken for granted
_COMPARED = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)  # TVM compares differences with zero
_REFUSED = (tirx.Cast, tirx.Div, tirx.Add, tirx.Sub, tirx.Mul, *_COMPARED)


def hide_constants(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel with opaque operands where TVM's constant folding may fail."""
    known = _Values(func)
    if not known.has_hidden_constant(func):
        return func
    known.exempt_indices(func)
    return tvm_ffi.structural_map(func, (_REFUSED, known.hidden))


class _Values:
    """The values of a kernel that may become constants when conditions on loops are decided."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        self._bound: dict[tirx.Var, tirx.Expr] = {}
        self._indices: set[int] = set()
        self._verdicts: dict[int, tuple[tirx.Expr, bool]] = {}  # by the address of an expression, which is kept
        tvm_ffi.structural_walk(func.body, ((tirx.Let, tirx.Bind), self._bind))

    def has_hidden_constant(self, func: tirx.PrimFunc) -> bool:
        """Whether any constant may be refused, if only in indices: most kernels have none."""
        found: list[tirx.Expr] = []

        def note(expr: tirx.Expr) -> None:
            if self.hidden(expr) is not expr:
                found.append(expr)

        tvm_ffi.structural_walk(func.body, (_REFUSED, note))
        return bool(found)

    def exempt_indices(self, func: tirx.PrimFunc) -> None:
        """Leaves the parts of indices unchanged."""
        tvm_ffi.structural_walk(func.body, ((TensorLoad, tirx.BufferStore), self._exempt))

    def _bind(self, binding: tirx.Let | tirx.Bind) -> None:
        self._bound[binding.var] = binding.value

    def _exempt(self, access: TensorLoad | tirx.BufferStore) -> None:
        for index in access.indices:
            tvm_ffi.structural_walk(index, (_REFUSED, lambda expr: self._indices.add(hash(expr))))

    def hidden(self, expr: tirx.Expr) -> tirx.Expr:
        """Returns an expression with an opaque operand, if TVM may refuse that operand."""
        if hash(expr) in self._indices:
            return expr
        kind = type(expr)
        if kind is tirx.Cast:
            source, result = (str(each.expr_ty().dtype) for each in (expr.value, expr))
            if _may_exceed(source, result) and self._may_be_constant(expr.value):
                return tirx.Cast(result, opaque(expr.value))
            return expr
        dtype = str(expr.a.expr_ty().dtype)
        if dtype in _BITS_OF_FLOATS and kind in (tirx.Div, tirx.Mul):
            # To TVM, zero times or over anything is zero, NaN and infinity too.
            if _cancels(expr.a):
                return self.hidden(kind(opaque(expr.a), expr.b))
            if kind is tirx.Mul and _cancels(expr.b):
                return tirx.Mul(expr.a, opaque(expr.b))
        if kind is tirx.Div:
            if dtype in _BITS_OF_FLOATS and not _is_number(expr.b) and self._may_be_constant(expr.b):
                return tirx.Div(expr.a, opaque(expr.b))
        elif _is_refused(expr, dtype) and self._may_be_constant(expr.a) and self._may_be_constant(expr.b):
            if _is_number(expr.b):
                return kind(opaque(expr.a), expr.b)
            return kind(expr.a, opaque(expr.b))
        return expr

    def _may_be_constant(self, expr: tirx.Expr, depth: int = 0) -> bool:
        if depth == _DEEPEST:
            return True
        if _is_number(expr):
            return True
        if isinstance(expr, TensorLoad):
            return False
        if isinstance(expr, tirx.Var):
            return expr in self._bound and self._may_be_constant(self._bound[expr], depth + 1)
        key = hash(expr)
        if key not in self._verdicts:
            self._verdicts[key] = expr, self._follows(expr, depth + 1)
        return self._verdicts[key][1]

    def _follows(self, expr: tirx.Expr, depth: int) -> bool:
        """Returns whether an expression is constant, given the verdicts on its operands."""

        def each(*operands: tirx.Expr) -> list[bool]:
            return [self._may_be_constant(operand, depth) for operand in operands]

        match expr:
            case tirx.Cast():
                counts = str(expr.expr_ty().dtype) in _BITS_OF_FLOATS and not _reads(expr.value)
                return counts or self._may_be_constant(expr.value, depth)
            case tirx.Select():
                return _any_or_all(expr.condition, each(expr.true_value, expr.false_value))
            case tirx.Let():
                return self._may_be_constant(expr.body, depth)
            case Call() if str(getattr(expr.op, "name", "")) in IF_THEN_ELSE:
                return _any_or_all(expr.args[0], each(*expr.args[1:]))
            case Call():
                return expr.op != _REINTERPRET and all(each(*expr.args))
            case tirx.Mul() | tirx.Div() | tirx.And() | tirx.Or():  # a zero or a boolean is enough
                return any(each(expr.a, expr.b)) or _is_simply_a_number(expr)
            case tirx.Not():
                return self._may_be_constant(expr.a, depth)
            case _ if hasattr(expr, "b"):
                return all(each(expr.a, expr.b)) or _is_simply_a_number(expr)
        return False


_BITS_OF_FLOATS = {"float64": 64, "float32": 32, "float16": 16}
"""Types that kernels compute with: others of floats become one of these."""


def _is_refused(expr: tirx.Expr, dtype: str) -> bool:
    """Whether TVM refuses some constants of the type `dtype` as both operands."""
    if dtype.startswith("uint"):
        return isinstance(expr, (tirx.Sub, *_COMPARED))
    return dtype == "float16" and not isinstance(expr, _COMPARED)


def _any_or_all(condition: tirx.Expr, constant: list[bool]) -> bool:
    """Whether a select may become constant: one with a data-dependent condition only if its values are equal."""
    return all(constant) if _reads(condition) else any(constant)


def _reads(expr: tirx.Expr) -> bool:
    found: list[tirx.Expr] = []
    tvm_ffi.structural_walk(expr, (TensorLoad, found.append))
    return bool(found)


def _is_number(expr: tirx.Expr) -> bool:
    return isinstance(expr, (tirx.IntImm, tirx.FloatImm))


def _cancels(expr: tirx.Expr) -> bool:
    """Whether a float is an integer computed from data but known nevertheless, such as `float(x - x)`."""
    if not isinstance(expr, tirx.Cast):
        return False
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    is_computed = hasattr(expr, "b") or isinstance(expr, tirx.Not | tirx.Select)
    return is_computed and str(expr.expr_ty().dtype) not in _BITS_OF_FLOATS and _is_simply_a_number(expr)


def _is_simply_a_number(expr: tirx.Expr) -> bool:
    """Whether TVM finds a constant value for a computation with data, such as `x - x`, or fails at it."""
    try:
        return _is_number(_ANALYZER.simplify(expr))
    except tvm.error.TVMError:
        return True


_ANALYZER = Analyzer()


def _may_exceed(source: str, result: str) -> bool:
    """Whether a cast between these types may overflow the result type."""
    if "bool" in (source, result):
        return False
    if source in _BITS_OF_FLOATS:
        return _BITS_OF_FLOATS.get(result, 0) < _BITS_OF_FLOATS[source]
    if not source.startswith(("int", "uint")):
        return False
    if not result.startswith(("int", "uint")):
        return result == "float16"
    bits, room = (int(name.lstrip("uint")) for name in (source, result))
    if source.startswith("uint") == result.startswith("uint"):
        return room < bits
    return result.startswith("uint") or room <= bits
