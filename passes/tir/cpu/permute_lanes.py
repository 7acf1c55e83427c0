"""Rewrites permuted vector loads as contiguous loads followed by a register shuffle.

    for lane in vectorized(16): s[lane] += x[16 i + (lane ^ t)] * w[lane]
                                        ↓
    for lane in vectorized(16): s[lane] += permuted(x[16 i + lane], t) * w[lane]

TVM loads vector elements that are not contiguous one by one.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import linear_strides, variables_of
from nnefc.passes.tir.common.intrinsics import register_pure_operator

__all__ = ["is_permuted", "permute_lanes", "use_permuted_loads"]

_NAME = "nnefc.permuted"


def is_permuted(index: tirx.Expr) -> bool:
    """Whether an index is a lane with some of its bits flipped: `lane ^ turn`."""
    return isinstance(index, tirx.BitwiseXor)


def permute_lanes(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statement with shuffled contiguous loads in its loops over lanes."""
    return tvm_ffi.structural_map(
        stmt, (tirx.For, lambda loop: _permuted(loop) if loop.kind == tirx.ForKind.VECTORIZED else loop)
    )


def _permuted(loop: tirx.For) -> tirx.For:
    def change(load: TensorLoad) -> tirx.Expr:
        return _load(load, loop)

    body = tvm_ffi.structural_map(loop.body, (TensorLoad, change))
    if body.same_as(loop.body):
        return loop
    return with_fields(loop, body=body)


def _load(load: TensorLoad, loop: tirx.For) -> tirx.Expr:
    """Rewrites a load of permuted lanes; returns other loads unchanged."""
    positions: list[tirx.BitwiseXor] = []
    tvm_ffi.structural_walk(load.indices[0], (tirx.BitwiseXor, positions.append))
    if len(positions) != 1:
        return load
    (position,) = positions
    lane, turn = position.a, position.b
    moved = tirx.Var("slot", lane.expr_ty())
    index = tvm_ffi.structural_map(load.indices[0], (tirx.BitwiseXor, lambda _: moved))
    first = Analyzer().simplify(tirx.floormod(lane - loop.loop_var, loop.extent))
    whole = isinstance(first, tirx.IntImm) and int(first) == 0
    if not whole or linear_strides(index, [moved, loop.loop_var]) != [1, 0] or loop.loop_var in variables_of([turn]):
        return load
    straight = tvm_ffi.structural_map(index, (tirx.Var, lambda var: lane if var.same_as(moved) else var))
    return tirx.call_intrin(str(load.source.dtype), _NAME, tirx.BufferLoad(load.source, [straight]), turn)


def use_permuted_loads() -> None:
    """Registers the operator with TVM and its code generator for CPUs, in this process."""
    register_pure_operator(_NAME, "a vector with lane i where lane i ^ n was", _lowered)


def _lowered(call: tvm.ir.Call) -> tirx.Expr:
    vector, turn = call.args
    number = int(turn.value if isinstance(turn, tirx.Broadcast) else turn)
    lanes = int(tvm.DataType(str(vector.expr_ty().dtype)).lanes)
    return tirx.Shuffle([vector], [lane ^ number for lane in range(lanes)]) if number else vector
