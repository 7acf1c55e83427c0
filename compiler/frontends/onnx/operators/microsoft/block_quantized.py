"""Products with block-quantized matrices, as onnxruntime's weight-only quantizers and onnxruntime-genai write them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.tensors import fail, input_at, normal_axis, optional_input, spell
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.nn.block_quantization import (
    BlockDequantization,
    BlockGather,
    TableDequantization,
    packed,
    unpacked,
)
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Reshape
from nnefc.symbolic.dims import ceil_div
from nnefc.symbolic.unification import unify_counts

__all__: list[str] = []

_ROW_BYTES: dict[int, Literal[0, 1, 2]] = {0: 0, 1: 0, 2: 2, 3: 2, 4: 1}
"""`accuracy_level` (unset, float32, float16, bfloat16, int8) → bytes to which the other factor may be rounded."""

_FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
_TABLES = {0: (*_FP4, *(-number for number in _FP4)), 1: _NF4}


@operator("MatMulNBits", since=(1,), domain=DOMAIN)
def _matmul_n_bits(ctx: Context, node: Node) -> Value:
    """The scales, and zero points, of older models have one dimension."""
    given = node.attributes
    depth, columns, bits, block = (given[name] for name in ("K", "N", "bits", "block_size"))
    if given["weight_prepacked"]:
        raise fail(node, "weights in the order of a GPU are not supported", "quantize without weight_prepacked")
    if bits not in (2, 4, 8) or block < 16 or block & (block - 1):
        raise fail(node, f"blocks of {block} integers of {bits} bits are not supported")
    blocks = ceil_div(depth, block)
    x, zeros, bias = input_at(node, 0), optional_input(node, 3), optional_input(node, 5)
    data = _of_shape(ctx, node, input_at(node, 1), (columns, blocks, block * bits // 8))
    scales = _of_shape(ctx, node, input_at(node, 2), (columns, blocks))
    if zeros is not None:
        width = ceil_div(blocks * bits, 8) if zeros.dtype == "uint8" else blocks
        zeros = _of_shape(ctx, node, zeros, (columns, width))
    if optional_input(node, 4) is not None:
        x, data = _in_groups(ctx, node, x, data, bits)
    level = given["accuracy_level"]
    if level not in _ROW_BYTES:
        raise fail(node, f"'accuracy_level' is {level}, it must be from 0 to 4")
    weights = ctx.apply(BlockDequantization(depth, bits, row_bytes=_ROW_BYTES[level]), data, scales, zeros)
    made: Value = ctx.apply(MatMul(), x, weights)
    return made if bias is None else binary(ctx, "Add", made, bias)


def _of_shape(ctx: Context, node: Node, x: Value, shape: tuple[int, ...]) -> Value:
    """The same elements in another shape of as many elements; dynamic dimensions become those of `shape`."""
    if not unify_counts(x.shape, shape):
        raise fail(node, f"{spell(x.shape)} should be {spell(shape)}")
    made: Value = ctx.apply(Reshape(shape), x)
    return made


def _in_groups(ctx: Context, node: Node, x: Value, data: Value, bits: int) -> tuple[Value, Value]:
    """Columns of the left factor, and integers, in the order of the groups that share a scale."""
    groups, codes = ctx.constant(input_at(node, 4)), ctx.constant(data)
    depth, block = node.attributes["K"], node.attributes["block_size"]
    if groups is None or codes is None:
        raise fail(node, "groups of rows must be known at compile time")
    order = np.argsort(groups[:depth], kind="stable")
    if not np.array_equal(groups[order], np.arange(depth) // block):
        raise fail(node, "groups of rows that are not as long as the blocks are not supported")
    if np.array_equal(order, np.arange(depth)):
        return x, data
    elements = unpacked(codes, bits).reshape(len(codes), -1)
    elements[:, :depth] = elements[:, order]
    moved = packed(elements.reshape(*codes.shape[:2], block), bits)
    return ctx.apply(Gather(x.rank - 1), x, ctx.known(order)), ctx.known(moved)


@operator("MatMulBnb4", since=(1,), domain=DOMAIN)
def _matmul_bnb4(ctx: Context, node: Node) -> Value:
    given = node.attributes
    table = _TABLES.get(given["quant_type"])
    if table is None:
        raise fail(node, f"'quant_type' is {given['quant_type']}, neither 0 nor 1")
    weights = ctx.apply(
        TableDequantization(given["N"], given["K"], given["block_size"], table), input_at(node, 1), input_at(node, 2)
    )
    made: Value = ctx.apply(MatMul(transpose_b=bool(given["transB"])), input_at(node, 0), weights)
    return made


@operator("GatherBlockQuantized", since=(1,), domain=DOMAIN)
def _gather_block_quantized(ctx: Context, node: Node) -> Any:
    """Integers of 4 bits are one in a byte here; those in bytes of the model are packed along the last axis."""
    data, indices, scales = (input_at(node, i) for i in range(3))
    given = node.attributes
    axis, along = (normal_axis(node, given[name], data.rank) for name in ("gather_axis", "quantize_axis"))
    bits = given["bits"] if data.dtype == "uint8" else 8
    if bits not in (2, 4, 8) or (bits < 8 and (axis == data.rank - 1 or data.rank < 2)):
        raise fail(node, f"integers of {bits} bits along axis {axis} are not supported")
    zero = 1 << (bits - 1) if data.dtype == "uint8" else 0
    zeros = optional_input(node, 3)
    gather = BlockGather(axis, along, given["block_size"], bits, zero)
    return ctx.apply(gather, data, indices, scales, zeros)
