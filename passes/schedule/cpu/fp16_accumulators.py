"""Accumulates short sums of float16 products in float16, whose vectors have twice as many lanes as float32's.

    P = 0.0                                      P = float16(0.0)
    for k in 64: P += half_product(A[k], B[k])   →     for k in 64: P = float16_multiply_add(P, A[k], B[k])
    C += P                                             C += P          # float16 too, where these are few
    D = max(C + bias, 0)                               D = max(float32(C) + bias, 0)

Schedules are made for sums of float32, and annotate the blocks whose sums are to become float16. All others multiply
and add as float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad, TensorRegion

from nnefc.ir.attributes import FP16_ACCUMULATORS
from nnefc.ir.rebuild import with_fields
from nnefc.passes.compute.dot.dot_product import float16_multiply_add, is_float16_product
from nnefc.passes.schedule.analysis import ScheduleBlock

__all__ = ["accumulate_in_fp16", "type_of_sums"]


def type_of_sums(step: ScheduleBlock) -> str:
    """Returns the type of a step's accumulators."""
    product = step.value.b if isinstance(step.value, tirx.Add) else None
    return "float16" if is_float16_product(product) else step.dtype


def accumulate_in_fp16(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel whose annotated blocks accumulate in float16."""
    fp16_sums: list[tuple[tirx.Var, tirx.Var]] = []

    def find(block: s_tir.SBlock) -> None:
        if FP16_ACCUMULATORS in block.annotations:
            for region in block.writes:
                if _float16_of(region.source, fp16_sums) is None:
                    old = region.source
                    fp16_sums.append((old, tirx.decl_buffer(old.shape, "float16", old.name, layout=None)))

    tvm_ffi.structural_walk(func, (s_tir.SBlock, find))
    if not fp16_sums:
        return func

    def store(stmt: tirx.BufferStore) -> tirx.BufferStore:
        half = _float16_of(stmt.buffer, fp16_sums)
        return tirx.BufferStore(
            stmt.buffer if half is None else half,
            _converted(stmt.value, fp16_sums) if half is None else _narrow(stmt.value, fp16_sums),
            stmt.indices,
        )

    made = tvm_ffi.structural_map(func, (tirx.BufferStore, store))
    return tvm_ffi.structural_map(made, (s_tir.SBlock, lambda block: _with_tensors(block, fp16_sums)))


def _float16_of(tensor: tirx.Var, fp16_sums: Sequence[tuple[tirx.Var, tirx.Var]]) -> tirx.Var | None:
    return next((half for old, half in fp16_sums if old.same_as(tensor)), None)


def _narrow(value: tirx.Expr, fp16_sums: Sequence[tuple[tirx.Var, tirx.Var]]) -> tirx.Expr:
    """Returns the update of an accumulator in float16: zero, or the old value plus the new term."""
    if isinstance(value, TensorLoad) and (half := _float16_of(value.source, fp16_sums)) is not None:
        return tirx.BufferLoad(half, value.indices)
    if isinstance(value, tirx.Add):
        return _narrow(value.a, fp16_sums) + _narrow(value.b, fp16_sums)
    if is_float16_product(value):
        total, left, right = value.args
        return float16_multiply_add(_narrow(total, fp16_sums), left, right)
    return _converted(value, fp16_sums).astype("float16")


def _converted(value: tirx.Expr, fp16_sums: Sequence[tuple[tirx.Var, tirx.Var]]) -> tirx.Expr:
    """Returns an expression that reads float16 accumulators as float32."""

    def read(load: TensorLoad) -> tirx.Expr:
        half = _float16_of(load.source, fp16_sums)
        return load if half is None else tirx.BufferLoad(half, load.indices).astype("float32")

    return tvm_ffi.structural_map(value, (TensorLoad, read))


def _with_tensors(block: s_tir.SBlock, fp16_sums: Sequence[tuple[tirx.Var, tirx.Var]]) -> s_tir.SBlock:
    """Returns a block with these tensors as its own, and as the ones it accesses."""
    annotations = {key: value for key, value in block.annotations.items() if key != FP16_ACCUMULATORS}
    return with_fields(
        block,
        reads=[_region(region, fp16_sums) for region in block.reads],
        writes=[_region(region, fp16_sums) for region in block.writes],
        alloc_buffers=[
            tensor if (half := _float16_of(tensor, fp16_sums)) is None else half for tensor in block.alloc_buffers
        ],
        annotations=annotations,
    )


def _region(region: TensorRegion, fp16_sums: Sequence[tuple[tirx.Var, tirx.Var]]) -> TensorRegion:
    half = _float16_of(region.source, fp16_sums)
    return region if half is None else TensorRegion(half, region.region, half.ty)
