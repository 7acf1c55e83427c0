"""Folds the addition of a dot product to its accumulator into the dot-product instruction.

    sum[i] = sum[i] + dot(0, a, b)     →     sum[i] = dot(sum[i], a, b)

TE has no such reduction, and schedules divide only sums that are additions, so that it becomes one here. Where an
instruction keeps two numbers of 16 bits instead of a sum of 32, what reads the sum gets both added up. So does what
reads a sum of numbers of two bytes, which becomes two sums:

    sum[i] = sum[i] + join_bytes(dot(0, h, b), dot(0, l, b))     →     high[i] = dot(high[i], h, b)
                                                                       sum[i] = dot(sum[i], l, b)
    … sum[i] …                                                   →     … join_bytes(high[i], sum[i]) …
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.rebuild import with_fields
from nnefc.passes.compute.dot.dot_product import accumulated, has_half_sums, whole_sum
from nnefc.passes.tir.dot.byte_split import byte_parts_of, is_byte_split, join_bytes
from nnefc.passes.tir.dot.dot_instructions import is_dot_product

__all__ = ["fold_dot_accumulators"]


def fold_dot_accumulators(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel whose sums of dot products accumulate."""
    func = _with_byte_products(func)
    buffers: list[tuple[tirx.Var, str]] = []

    def product_of(tensor: tirx.Var) -> str:
        """Returns the operator that adds to two sums of 16 bits in a tensor; "" for other tensors."""
        return next((product for buffer, product in buffers if buffer.same_as(tensor)), "")

    def find(stmt: tirx.BufferStore) -> tirx.BufferStore:
        made = _accumulating(stmt)
        if not made.same_as(stmt) and has_half_sums(made.value):
            buffers.append((stmt.buffer, made.value.op.name))
        return made

    def read(load: TensorLoad) -> tirx.Expr:
        product = product_of(load.source)
        return whole_sum(load, product) if product else load

    def accumulate(stmt: tirx.BufferStore) -> tirx.BufferStore:
        """Folds additions into dot products; what the sum itself reads is unchanged."""
        own = stmt.value
        if not (has_half_sums(own) and product_of(stmt.buffer)):
            return stmt
        return tirx.BufferStore(stmt.buffer, accumulated(own, own.args[0].args[0]), stmt.indices)

    made = tvm_ffi.structural_map(func, (tirx.BufferStore, find))
    if not buffers:
        return made
    return tvm_ffi.structural_map(tvm_ffi.structural_map(made, (TensorLoad, read)), (tirx.BufferStore, accumulate))


def _accumulating(stmt: tirx.BufferStore) -> tirx.BufferStore:
    """Returns an addition of a dot product as a dot product that accumulates; other expressions unchanged."""
    match stmt.value:
        case tirx.Add(a=total, b=product) if is_dot_product(product):
            return tirx.BufferStore(stmt.buffer, accumulated(product, total), stmt.indices)
    return stmt


def _with_byte_products(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Splits each sum of two-byte numbers into a sum of their high bytes, in a tensor of its own, and one of their low
    bytes.
    """
    found: list[tuple[tirx.Var, tirx.Var]] = []

    def find(stmt: tirx.BufferStore) -> None:
        match stmt.value:
            case tirx.Add(b=term) if is_byte_split(term) and _high_of(stmt.buffer, found) is None:
                low = stmt.buffer
                found.append((low, tirx.decl_buffer(low.shape, low.dtype, f"{low.name}_high", layout=None)))

    tvm_ffi.structural_walk(func, (tirx.BufferStore, find))
    if not found:
        return func

    def read(load: TensorLoad) -> tirx.Expr:
        high = _high_of(load.source, found)
        return load if high is None else join_bytes(tirx.BufferLoad(high, load.indices), load)

    def store(stmt: tirx.BufferStore) -> tirx.Stmt:
        high = _high_of(stmt.buffer, found)
        if high is None:
            return stmt
        pairs = (high, stmt.buffer)
        if isinstance(stmt.value, tirx.Add) and is_byte_split(stmt.value.b):
            values = [
                tirx.BufferLoad(sums, stmt.indices) + term
                for sums, term in zip(pairs, byte_parts_of(stmt.value.b), strict=True)
            ]
        else:
            values = [stmt.value, stmt.value]  # zero, where a sum begins
        return tirx.SeqStmt(
            [tirx.BufferStore(sums, value, stmt.indices) for sums, value in zip(pairs, values, strict=True)]
        )

    read_whole = tvm_ffi.structural_map(func, (TensorLoad, read))
    stored = tvm_ffi.structural_map(read_whole, (tirx.BufferStore, store))
    return tvm_ffi.structural_map(stored, (s_tir.SBlock, lambda block: _with_tensors(block, found)))


def _high_of(tensor: tirx.Var, found: Sequence[tuple[tirx.Var, tirx.Var]]) -> tirx.Var | None:
    """Returns the tensor of the high bytes' accumulators."""
    return next((high for low, high in found if low.same_as(tensor)), None)


def _with_tensors(block: s_tir.SBlock, found: Sequence[tuple[tirx.Var, tirx.Var]]) -> s_tir.SBlock:
    """Returns a block with accumulators of high bytes next to those of low bytes."""
    own = [high for tensor in block.alloc_buffers if (high := _high_of(tensor, found)) is not None]
    if not own:
        return block
    return with_fields(block, alloc_buffers=[*block.alloc_buffers, *own])
