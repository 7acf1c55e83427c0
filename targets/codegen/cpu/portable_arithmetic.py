"""Rewrites arithmetic so that its results are bit-identical on all processors, for reproducible libraries.

    c + a * b      →     c + fenced(a * b)           rounded twice everywhere, also where one instruction does both
    int32(x)       →     saturated(x)                the nearest number that int32 holds; 0 of NaN
    sin(x)         →     additions and products      see `portable_functions.py`

Sums, products, quotients and square roots of IEEE 754 are the same everywhere. TVM and LLVM make multiply-adds of the
first form; what is behind a fence they do not look into.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.support.diagnostics import CompileError
from nnefc.targets.codegen.cpu.expressions import IF_THEN_ELSE, rebuilt
from nnefc.targets.codegen.cpu.portable_functions import FUNCTIONS, Kept

__all__ = ["check_functions", "define_integer_conversions", "insert_rounding_fences", "use_portable_functions"]

_FENCE = "llvm.arithmetic.fence"
_FLOATS = {"float16": "f16", "float32": "f32", "float64": "f64"}
_OF_LIBRARIES = frozenset(
    {
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp",
        "exp10", "exp2", "expm1", "hypot", "lgamma", "log", "log10", "log1p", "log2", "pow", "sigmoid", "sin", "sinh",
        "tan", "tanh", "tgamma",
    }
)  # fmt: skip
"""Operators of TIR that are functions of a C library, but for types with functions of this compiler's own."""

_OWN = frozenset({"atanh", "erf", "exp", "log", "log1p", "sigmoid", "tanh"})
"""Those of float32 that TVM has been given polynomials for, see `passes/compute/vector_math.py`,"""

_LOWERING = "llvm.FLowerIntrinsic"
"""as this attribute of the operators."""


def _scalar(expr: tirx.Expr) -> tuple[str, int]:
    """Return the type of one lane, and the number of lanes."""
    dtype = tvm.DataType(str(expr.expr_ty().dtype))
    return str(dtype).partition("x")[0], int(dtype.lanes)


def _as_type(scalar: str, lanes: int) -> str:
    return f"{scalar}x{lanes}" if lanes > 1 else scalar


def _suffix(code: str, lanes: int) -> str:
    return f"v{lanes}{code}" if lanes > 1 else code


def insert_rounding_fences(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a vectorized function in which products and quotients are rounded before they are used."""

    def fenced(expr: tirx.Mul | tirx.Div) -> tirx.Expr:
        scalar, lanes = _scalar(expr)
        if scalar not in _FLOATS or _is_negation(expr):
            return expr
        name = f"{_FENCE}.{_suffix(_FLOATS[scalar], lanes)}"
        return tirx.call_llvm_pure_intrin(_as_type(scalar, lanes), name, expr)

    return tvm_ffi.structural_map(func, ((tirx.Mul, tirx.Div), fenced))


def _is_negation(expr: tirx.Mul | tirx.Div) -> bool:
    """Return whether it is a multiplication by -1, which is exact: see `passes/legalize/ieee_differences.py`."""
    factor = expr.b.value if isinstance(expr.b, tirx.Broadcast) else expr.b
    return isinstance(expr, tirx.Mul) and isinstance(factor, tirx.FloatImm) and factor.value == -1


def define_integer_conversions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a vectorized function whose conversions to integers are defined for all floats."""

    def saturated(cast: tirx.Cast) -> tirx.Expr:
        (scalar, lanes), (source, _) = _scalar(cast), _scalar(cast.value)
        kind = tvm.DataType(scalar)
        if source not in _FLOATS or not scalar.startswith(("int", "uint")) or kind.bits < 8:
            return cast
        name = "llvm.fptosi.sat" if scalar.startswith("int") else "llvm.fptoui.sat"
        types = f"{_suffix(f'i{kind.bits}', lanes)}.{_suffix(_FLOATS[source], lanes)}"
        return tirx.call_llvm_pure_intrin(_as_type(scalar, lanes), f"{name}.{types}", cast.value)

    return tvm_ffi.structural_map(func, (tirx.Cast, saturated))


def use_portable_functions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a vectorized function without functions of the C library for float32 and float16.

    y[i] = sin(x[i])     →     a[0] = … x[i] …; b[0] = … a[0] …; y[i] = … b[0] …

    Intermediate values are computed before the statement that has the call. If the call is under a condition, so are
    loads for these values.
    """
    if not _functions_in(func.body):
        return func

    def portable_statement(stmt: tirx.Stmt) -> tirx.Stmt:
        keep = Kept()

        def change(expr: tirx.Expr) -> tirx.Expr:
            return _portable(expr, keep, ()) if _functions_in(expr) else expr

        match stmt:
            case tirx.BufferStore():
                made = tirx.BufferStore(stmt.buffer, change(stmt.value), list(map(change, stmt.indices)))
            case tirx.Bind():
                made = tirx.Bind(stmt.var, change(stmt.value))
            case tirx.Evaluate():
                made = tirx.Evaluate(change(stmt.value))
            case tirx.IfThenElse():
                made = tirx.IfThenElse(change(stmt.condition), stmt.then_case, stmt.else_case)
        return tirx.SeqStmt([*keep.statements, made]) if keep.statements else made

    def flat(stmt: tirx.SeqStmt) -> tirx.Stmt:
        parts = [inner for part in stmt.seq for inner in (part.seq if isinstance(part, tirx.SeqStmt) else [part])]
        return tirx.SeqStmt(parts) if len(parts) > len(stmt.seq) else stmt

    changed = (tirx.BufferStore, tirx.Bind, tirx.Evaluate, tirx.IfThenElse)
    made = tvm_ffi.structural_map(func, [(changed, portable_statement), (tirx.SeqStmt, flat)])
    left = _functions_in(made.body)
    if left:
        raise AssertionError(f"{left[0]} is called where nothing can be computed before it")
    return made


def _portable(expr: tirx.Expr, keep: Kept, conditions: Sequence[tirx.Expr]) -> tirx.Expr:
    """Return an expression without functions of the C library.

    Args:
        expr: the expression.
        keep: holds intermediate values.
        conditions: under which the expression is evaluated; without calls of functions.
    """

    def change(part: tirx.Expr) -> tirx.Expr:
        return _portable(part, keep, conditions)

    match expr:
        case tvm.ir.Call() if _is_function(expr):
            operands = list(map(change, _operands(expr)))
            scalar, lanes = _scalar(expr)
            single = _as_type("float32", lanes)
            if _name(expr) in FUNCTIONS:
                wide = [_under(conditions, operand).astype(single) for operand in operands]
                return FUNCTIONS[_name(expr)](keep, *wide).astype(_as_type(scalar, lanes))
            call = tirx.call_intrin(single, f"tirx.{_name(expr)}", *(operand.astype(single) for operand in operands))
            return call.op.get_attr(_LOWERING)(call).astype(_as_type(scalar, lanes))
        case tvm.ir.Call() if getattr(expr.op, "name", "") in IF_THEN_ELSE:
            condition, then, other = expr.args
            condition = change(condition)
            then = _portable(then, keep, (condition, *conditions))
            return tirx.if_then_else(condition, then, _portable(other, keep, (tirx.Not(condition), *conditions)))
        case tirx.Let() if _functions_in(expr.body):  # what comes before does not have the name
            value = keep(_under(conditions, change(expr.value)))
            named = tvm_ffi.structural_map(expr.body, (tirx.Var, lambda var: value if var.same_as(expr.var) else var))
            return change(named)
    return rebuilt(expr, change)


def _under(conditions: Sequence[tirx.Expr], value: tirx.Expr) -> tirx.Expr:
    """Return a value where all conditions hold, else 0; each condition is evaluated only where the following ones
    hold.
    """
    for condition in conditions:
        value = tirx.if_then_else(condition, value, tirx.const(0, str(value.expr_ty().dtype)))
    return value


def _functions_in(node: tirx.Stmt | tirx.Expr) -> list[str]:
    """Return the names of functions of the C library that statements or an expression call."""
    found: list[str] = []

    def look(call: tvm.ir.Call) -> None:
        if _is_function(call):
            found.append(_name(call))

    tvm_ffi.structural_walk(node, (tvm.ir.Call, look))
    return found


def check_functions(funcs: Iterable[tirx.PrimFunc]) -> None:
    """Check that results do not depend on the C library.

    Raises:
        CompileError: a function calls it.
    """

    found: dict[tuple[str, str], None] = {}

    def look(call: tvm.ir.Call) -> None:
        if _is_function(call):
            name, (scalar, _) = _name(call), _scalar(call)
            if scalar == "float64" or (name not in _OWN and name not in FUNCTIONS):
                found[name, scalar] = None

    for func in funcs:
        tvm_ffi.structural_walk(func, (tvm.ir.Call, look))
    for name, scalar in found:
        raise CompileError(
            f"the function {name} of {scalar} is the C library's, and has other results in each",
            hint="reproducible results need the function in float32"
            if scalar == "float64"
            else "compile it without --reproducible",
        )


def _name(call: tvm.ir.Call) -> str:
    """Return the name of a function without C's suffix for float32."""
    name = str(getattr(call.op, "name", "")).removeprefix("tirx.").removeprefix("prim.")  # the binary logarithm's
    if name != "call_pure_extern":
        return name
    called = str(call.args[0].value)
    return called.removesuffix("f") if called.removesuffix("f") in _OF_LIBRARIES else called


def _operands(call: tvm.ir.Call) -> list[tirx.Expr]:
    return [operand for operand in call.args if not isinstance(operand, tvm.ir.StringImm)]


def _is_function(call: tvm.ir.Call) -> bool:
    """Return whether a call is of a float function of the C library."""
    return _name(call) in _OF_LIBRARIES and _scalar(call)[0] in _FLOATS
