"""Rewrites vectors as one scalar per lane, since C99 has no vectors.

    y[ramp(i, 1, 2)] = x[ramp(i, 1, 2)] * broadcast(a)     →     y[i] = x[i] * a
                                                                 y[i + 1] = x[i + 1] * a

No earlier pass vectorizes loops for C. The remaining vectors are operands of instructions, such as the four bytes of a
word.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.support.element_types import bits_of
from nnefc.targets.codegen.c.helpers import LOAD_WORD
from nnefc.targets.codegen.cpu.expressions import dtype_of, lanes_of, name_of, operands_of, rebuilt

__all__ = ["lane_of", "scalar_type"]

_WORD = 32  # bits


def scalar_type(expr: tirx.Expr) -> str:
    """Returns the type of one lane."""
    return dtype_of(expr).partition("x")[0]


def lane_of(expr: tirx.Expr, lane: int) -> tirx.Expr:
    """Return one lane of a vector as a scalar; a scalar is returned unchanged."""
    if lanes_of(expr) == 1:
        return _without_vectors(expr)
    match expr:
        case tirx.Broadcast():
            inner = lanes_of(expr.value)
            return lane_of(expr.value, lane % inner)
        case tirx.Ramp():
            return expr.base + expr.stride * tirx.const(lane, dtype_of(expr.stride))
        case tirx.Shuffle():
            return _shuffled(expr, lane)
        case tirx.Cast():
            return lane_of(expr.value, lane).astype(scalar_type(expr))
        case tirx.Let():
            return _let(expr, lane)
        case TensorLoad():
            return tirx.BufferLoad(expr.source, [lane_of(index, lane) for index in expr.indices])
        case Call() if name_of(expr) == "tirx.reinterpret":
            return _reinterpreted(expr, lane)
        case Call():
            args = [lane_of(arg, lane) if _is_vector(arg) else arg for arg in expr.args]
            return Call(expr.op, args, expr.attrs, ret_ty=tvm.ir.PrimType(scalar_type(expr)))
    parts = [lane_of(part, lane) for part in operands_of(expr)]
    made: tirx.Expr = type(expr)(*parts)
    return made


def _let(expr: tirx.Let, lane: int) -> tirx.Expr:
    """Return a lane of a let expression; vectors get a name for each lane."""
    lanes = lanes_of(expr.value)
    if lanes == 1:
        return tirx.Let(expr.var, expr.value, lane_of(expr.body, lane))
    ty = tvm.ir.PrimType(scalar_type(expr.value))
    names = [tirx.Var(f"{expr.var.name}_{number}", ty) for number in range(lanes)]
    parts = tirx.Shuffle(names, list(range(lanes)))
    body = tvm_ffi.structural_map(expr.body, (tirx.Var, lambda var: parts if var.same_as(expr.var) else var))
    made = lane_of(body, lane)
    used: set[tirx.Var] = set()
    tvm_ffi.structural_walk(made, (tirx.Var, used.add))
    for number, name in enumerate(names):
        if name in used:
            made = tirx.Let(name, lane_of(expr.value, number), made)
    return made


def _is_vector(expr: object) -> bool:
    return isinstance(expr, tirx.Expr) and hasattr(expr.ty, "dtype") and lanes_of(expr) > 1


def _without_vectors(expr: tirx.Expr) -> tirx.Expr:
    """Return a scalar expression without vector subexpressions."""
    if isinstance(expr, tirx.Shuffle):
        return _shuffled(expr, 0)
    if isinstance(expr, Call) and name_of(expr) == "tirx.reinterpret" and _is_vector(expr.args[0]):
        return _joined(expr)
    return rebuilt(expr, lambda part: part if _is_vector(part) else _without_vectors(part))


def _shuffled(expr: tirx.Shuffle, lane: int) -> tirx.Expr:
    index = int(expr.indices[lane])
    for vector in expr.vectors:
        if index < lanes_of(vector):
            return lane_of(vector, index)
        index -= lanes_of(vector)
    raise AssertionError(f"lane {lane} of {expr}")


def _reinterpreted(expr: Call, lane: int) -> tirx.Expr:
    """Return a lane of a reinterpret cast, from lanes of the same width or from a wider integer."""
    (value,) = expr.args
    target, source = scalar_type(expr), scalar_type(value)
    narrow, wide = bits_of(target), bits_of(source)
    if narrow == wide:
        return tirx.reinterpret(target, lane_of(value, lane))
    if narrow < wide and not target.startswith("float"):
        per_word = wide // narrow
        word = tirx.reinterpret(f"uint{wide}", lane_of(value, lane // per_word))
        part = word >> tirx.const(lane % per_word * narrow, f"uint{wide}")
        return part.astype(f"uint{narrow}").astype(target)
    return _joined_lanes(value, lane, target)


def _joined(expr: Call) -> tirx.Expr:
    """Return a word assembled from the lanes of a vector."""
    return _joined_lanes(expr.args[0], 0, scalar_type(expr))


def _joined_lanes(vector: tirx.Expr, word: int, target: str) -> tirx.Expr:
    source = scalar_type(vector)
    narrow, wide = bits_of(source), bits_of(target)
    count, made = wide // narrow, tirx.const(0, f"uint{wide}")
    if isinstance(vector, TensorLoad) and wide == _WORD and not target.startswith("float"):
        (index,) = vector.indices
        if isinstance(index, tirx.Ramp) and isinstance(index.stride, tirx.IntImm) and int(index.stride) == 1:
            first = tirx.address_of(tirx.BufferLoad(vector.source, [lane_of(index, word * count)]))
            loaded = tirx.call_pure_extern("int32", LOAD_WORD, first)
            return loaded if target == "int32" else tirx.reinterpret(target, loaded)
    for part in range(count):
        bits = tirx.reinterpret(f"uint{narrow}", lane_of(vector, word * count + part)).astype(f"uint{wide}")
        made = made | (bits << tirx.const(part * narrow, f"uint{wide}"))
    return tirx.reinterpret(target, made)
