"""Keeps loops that store one bfloat16 value repeatedly scalar: TVM cannot broadcast a bfloat16.

    for lane in vectorized(8): y[8 i + lane] = x[0]     →     for lane in range(8): y[8 i + lane] = x[0]

Values that are converted to float32 before they are broadcast, such as row elements of a product, stay in vectors.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import variables_of

__all__ = ["splat_bfloat16"]


def splat_bfloat16(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statements with serial loops in place of vectorized ones that repeat a bfloat16."""
    return tvm_ffi.structural_map(stmt, (tirx.For, _serial_where_repeated))


def _serial_where_repeated(loop: tirx.For) -> tirx.For:
    if loop.kind != tirx.ForKind.VECTORIZED:
        return loop
    found: list[tirx.BufferStore] = []

    def note(store: tirx.BufferStore) -> None:
        if _repeats(store.value, loop.loop_var):
            found.append(store)

    tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, note))
    if not found:
        return loop
    return with_fields(loop, kind=tirx.ForKind.SERIAL)


def _repeats(value: tirx.Expr, lane: tirx.Var) -> bool:
    """Whether all lanes of a bfloat16 vector are the same value."""
    if str(value.expr_ty().dtype) != "bfloat16":
        return False
    if lane not in variables_of([value]):
        return True
    if isinstance(value, tirx.Select):
        return _repeats(value.true_value, lane) or _repeats(value.false_value, lane)
    return isinstance(value, Call) and any(_repeats(operand, lane) for operand in value.args)
