"""Lowers innermost loops of sums to an instruction that multiplies two vectors and sums all products.

    for k in 16: sum[i] += int32(A[a + k]) * int32(B[b + k])     →     sum[i] = lane_sum(sum[i], A[a : +16], B[b : +16])
    for lane in vectorized(4): … sum[lane] …                     →     … one of sum[0], …, sum[3] …

The instruction is Helium's `vmladava`, whose sum is in a register for integers:

    sum = vmladava(sum, A[k : k + 16], B[k : k + 16])

Each accumulator is therefore a separate variable until all are needed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import DOT_ACCUMULATE
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import linear_strides, substituted
from nnefc.passes.tir.common.intrinsics import register_pure_operator

__all__ = ["lower_dot_accumulate", "use_dot_accumulate"]


_NAME = "nnefc.lane_sum"
_CHOICE = "nnefc.chosen_sum"
_VECTOR_BITS = 128  # of Helium


def lower_dot_accumulate(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statement with the instruction in the loops that are annotated for it."""
    sums: list[tirx.Var] = []

    def change(loop: tirx.For) -> tirx.Stmt:
        return _summed(loop, sums) if DOT_ACCUMULATE in loop.annotations else loop

    made = tvm_ffi.structural_map(stmt, (tirx.For, change))
    if not sums:
        return stmt
    return tvm_ffi.structural_map(
        made, (tirx.For, lambda loop: _read(loop, sums) if loop.kind == tirx.ForKind.VECTORIZED else loop)
    )


def _read(loop: tirx.For, sums: list[tirx.Var]) -> tirx.For:
    """Returns a loop over lanes that takes each sum from its own variable."""
    var, count = loop.loop_var, int(loop.extent)

    def load(part: TensorLoad) -> tirx.Expr:
        if not any(part.source.same_as(buffer) for buffer in sums) or linear_strides(part.indices[0], [var]) != [1]:
            return part
        positions = [tirx.const(lane, str(var.ty.dtype)) for lane in range(count)]
        return _chosen_sum(
            [tirx.BufferLoad(part.source, [substituted(part.indices[0], {var: lane})]) for lane in positions], var
        )

    body = tvm_ffi.structural_map(loop.body, (TensorLoad, load))
    return with_fields(loop, body=body)


def _summed(loop: tirx.For, sums: list[tirx.Var]) -> tirx.Stmt:
    store = loop.body
    if not isinstance(store, tirx.BufferStore):
        return loop
    match store.value:
        case tirx.Add(a=total, b=tirx.Mul(a=tirx.Cast(value=left), b=tirx.Cast(value=right))):
            vectors = [_vector(factor, loop) for factor in (left, right)]
            if all(vector is not None for vector in vectors):
                sums.append(store.buffer)
                return tirx.BufferStore(store.buffer, _lane_sum(total, *vectors), store.indices)
    return loop


def _vector(factor: tirx.Expr, loop: tirx.For) -> tirx.Expr | None:
    """Returns the vector that a factor reads over all iterations of a loop; None if it is not contiguous."""
    if not isinstance(factor, TensorLoad) or linear_strides(factor.indices[0], [loop.loop_var]) != [1]:
        return None
    first = substituted(factor.indices[0], {loop.loop_var: loop.min})
    one = tirx.const(1, str(first.expr_ty().dtype))
    return tirx.BufferLoad(factor.source, [tirx.Ramp(first, one, int(loop.extent))])


def _lane_sum(total: tirx.Expr, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    """Returns `total`, int32, plus the products of the elements of two vectors of 8-bit integers of equal length."""
    return tirx.call_intrin("int32", _NAME, total, left, right)


def _chosen_sum(sums: Sequence[tirx.Expr], position: tirx.Expr) -> tirx.Expr:
    """Returns the sum at an index among several, int32: all of them as a vector, if the indices are its lanes.

    A load of that vector would keep LLVM from having the sums in registers of their own.
    """
    return tirx.call_intrin("int32", _CHOICE, position, *sums)


@functools.cache  # TVM refuses a second registration
def use_dot_accumulate() -> None:
    """Registers the operator with TVM and its code generator for CPUs, in this process."""
    register_pure_operator(_NAME, "a sum, and the products of the lanes of two vectors", _lowered)
    register_pure_operator(_CHOICE, "one of several sums", _chosen)


def _lowered(call: tvm.ir.Call) -> tirx.Expr:
    total, left, right = call.args
    dtype, lanes = str(left.expr_ty().dtype).split("x")
    bits = _VECTOR_BITS // int(lanes)
    same = dtype == str(right.expr_ty().dtype).split("x")[0]
    unsigned = int(bits == 8 and dtype == "uint8")
    if bits > 8 or not same:
        left, right = (vector.astype(f"int{bits}x{lanes}") for vector in (left, right))
    flags = [tirx.const(flag, "int32") for flag in (unsigned, 0, 0)]  # signed or not, no difference, no exchange
    return tirx.call_llvm_pure_intrin("int32", f"llvm.arm.mve.vmldava.v{lanes}i{bits}", *flags, total, left, right)


def _chosen(call: tvm.ir.Call) -> tirx.Expr:
    position, *sums = call.args
    single = [part.value if isinstance(part, tirx.Broadcast) else part for part in sums]
    # from the first on: loops over lanes are whole
    if isinstance(position, tirx.Ramp) and int(position.lanes) == len(sums):
        return tirx.Shuffle(single, list(range(len(sums))))
    made = sums[-1]
    for number in reversed(range(len(sums) - 1)):
        made = tirx.Select(position == tirx.const(number, str(position.expr_ty().dtype)), sums[number], made)
    return made
