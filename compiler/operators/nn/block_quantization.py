"""Products with block-quantized matrices: integers of 2, 4 or 8 bits, or floats of 8 bits, with one scale per block.

    q[n, k] = (B[n, k / block, …] >> …) & …          w[k, n] = (q[n, k] - zero[n, k / block]) * scale[n, k / block]
                                                     w[k, n] = q[n, k] * scale[n, k / block] + offset[n, k / block]

Scales and offsets are floats, or integers of 8 bits, several of which follow each other with a common factor.

The library stores the matrices packed. `passes/legalize/pack_block_matmul.py` dequantizes them inside of the product
where it can; else they are dequantized before the product, in each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tvm
from tvm import relax, te, tirx

from nnefc.ir.attributes import ADDS_OFFSETS, DEQUANTIZES_BLOCKS, FLOAT_BLOCKS, MAY_BE_WIDE, ROW_BYTES
from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, ceil_div, expression
from nnefc.symbolic.unification import unify_shapes

__all__ = [
    "BlockDequantization",
    "BlockGather",
    "BlockTensor",
    "Multiples",
    "TableDequantization",
    "element_of_block",
    "float_codes",
    "in_blocks",
    "number_of_block",
    "packed",
    "unpacked",
    "with_factors",
    "with_rows_of_bytes",
]


_BITS = (2, 4, 8)
_OPAQUE = 8  # Relax's number for kernels that stay alone


def unpacked(codes: Array, bits: int) -> Array:
    """`[…, bytes]` as `[…, bytes · 8 / bits]` uint8: the lowest bits of a byte come first."""
    each = 8 // bits
    words = codes.astype(f"<u{each}")  # a byte as the lowest of as many bytes as it has elements
    spread = words
    for position in range(1, each):
        spread = spread | words << position * (8 - bits)
    spread &= int.from_bytes([(1 << bits) - 1] * each, "little")
    return spread.view(np.uint8)


def packed(elements: Array, bits: int) -> Array:
    """The reverse of :func:`unpacked`."""
    each = 8 // bits
    words = np.ascontiguousarray(elements).view(f"<u{each}")
    joined = words
    for position in range(1, each):
        joined = joined | words >> position * (8 - bits)
    return joined.astype(np.uint8)  # the lowest byte of each word


def in_blocks(elements: Array, zeros: Array | None, bits: int, block: int, signed: bool) -> tuple[Array, Array | None]:
    """Integers `[K, N]` and zero points `[blocks, N]`, 0 without them, as a `BlockDequantization` takes them."""
    half = 1 << (bits - 1)
    depth, columns = elements.shape
    rows = np.zeros((columns, ceil_div(depth, block) * block), np.uint8)
    rows[:, :depth] = (elements.astype(np.int16) + (half if signed else 0)).T
    data = packed(rows.reshape(columns, -1, block), bits)
    origin = np.zeros((data.shape[1], columns)) if zeros is None else zeros.astype(np.float32)
    moved = (origin.T + (half if signed else 0)).astype(np.float32)
    return data, None if (moved == half).all() else np.ascontiguousarray(moved)


def _code(byte: tirx.Expr, position: Any, bits: int) -> tirx.Expr:
    """The element at a position among those that lie in bytes, as int32."""
    wide = byte.astype("int32")
    if bits == 8:
        return wide
    shift = (tirx.floormod(position, 8 // bits) * bits).astype("int32")
    return wide >> shift & tirx.const((1 << bits) - 1, "int32")


def float_codes(codes: Array) -> Array:
    """Returns the floats of 8 bits (E4M3) that codes are, float32; codes of NaN are not among them."""
    exponent = (codes >> 3 & 15).astype(np.int32)
    mantissa = (codes & 7).astype(np.int32) + np.where(exponent > 0, 8, 0)
    size = np.ldexp(mantissa.astype(np.float32), np.maximum(exponent, 1) - 10)
    return np.asarray(np.where(codes > 127, -size, size), np.float32)


def _float_of(code: tirx.Expr) -> tirx.Expr:
    """A float of 8 bits, as float32: its mantissa, shifted by its exponent, is an integer."""
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    exponent = code >> tirx.const(3, "int32") & tirx.const(15, "int32")
    mantissa = (code & tirx.const(7, "int32")) + tirx.Select(exponent > zero, tirx.const(8, "int32"), zero)
    size = (mantissa << (tirx.max(exponent, one) - one)).astype("float32") * tirx.const(2.0**-9, "float32")
    return tirx.Select(code > tirx.const(127, "int32"), tirx.const(0, "float32") - size, size)


def _type_of(tensor: te.Tensor | relax.Constant) -> str:
    return str(tensor.dtype) if isinstance(tensor, te.Tensor) else dtype_of(tensor)


def with_factors(tensors: Sequence[Any]) -> list[list[Any]]:
    """Returns the scales and, if there are any, what is stored besides: floats alone, int8 with their factors."""
    found: list[list[Any]] = []
    for tensor in tensors:
        if found and len(found[-1]) == 1 and _type_of(found[-1][0]) == "int8":
            found[-1].append(tensor)
        else:
            found.append([tensor])
    return found


def number_of_block(tensors: Sequence[te.Tensor], outer: tirx.Expr, block: tirx.Expr, *lane: tirx.Expr) -> tirx.Expr:
    """Returns the scale, the zero point or the offset of a block, float32.

    Args:
        tensors: floats or small integers `[…, blocks, …]`, and the factors `[…, blocks / count, …]` of int8.
        outer, block, lane: the position.
    """
    numbers, *factors = tensors
    found = numbers(outer, block, *lane).astype("float32")
    for factor in factors:
        count = int(numbers.shape[1]) // int(factor.shape[1])
        found = found * factor(outer, tirx.floordiv(block, count), *lane).astype("float32")
    return found


def element_of_block(
    tensors: Sequence[te.Tensor],
    k: tirx.Expr,
    n: tirx.Expr,
    bits: int,
    block: int,
    adds_offsets: bool,
    is_float: bool = False,
) -> tirx.Expr:
    """An element of a matrix `[K, N]` in blocks, float32.

    Args:
        tensors: `[N, blocks, bytes]` integers, `[N, blocks]` scales, and zero points or offsets, if there are any;
            those of int8 are followed by their factors.
        k, n: its position.
        bits, block: of an integer, and how many share a scale.
        adds_offsets: whether offsets are given, not zero points.
        is_float: whether integers are floats of 8 bits, without zero points.
    """
    data, *others = tensors
    own, position = (n, tirx.floordiv(k, block)), tirx.floormod(k, block)
    scale, *points = (number_of_block(parts, *own) for parts in with_factors(others))
    zero = points[0] if points else tirx.const(1 << (bits - 1), "float32")
    integer = _code(data(*own, tirx.floordiv(position, 8 // bits)), position, bits)
    if is_float:
        return _float_of(integer) * scale
    code = integer.astype("float32")
    return code * scale + zero if adds_offsets else (code - zero) * scale


def _zeros_of(ctx: Emitter, zeros: Operand, blocks: int, bits: int) -> Operand:
    """Zero points as float32, one a block: as they are, or packed as the integers are."""
    if dtype_of(zeros) != "uint8":
        made: Operand = ctx.apply(Cast("float32"), zeros)
        return made
    if isinstance(zeros, np.ndarray):
        return unpacked(zeros, bits)[..., :blocks].astype(np.float32)
    shape = (*shape_of(zeros)[:-1], blocks)

    def element(tensors: tuple[te.Tensor, ...], index: tuple[tirx.Var, ...]) -> tirx.Expr:
        *outer, block = index
        byte = tensors[0](*outer, tirx.floordiv(block, 8 // bits))
        return _code(byte, block, bits).astype("float32")

    return ctx.emit(ctx.elements(shape, element, zeros, name="zero_points"))


@dataclass(frozen=True)
class BlockDequantization(Operator):
    """A matrix `[K, N]`, float32, of integers in blocks along K.

    Attributes:
        depth: K.
        bits: of an integer.
        may_be_wide: whether it is computed at compile time where no product takes it.
        row_bytes: to how many bytes, 1 or 2, a product may round its other factor, with a scale for each block; 0 if it
            must not. Two cost some 2e-5 of the largest result.
        adds_offsets: whether what is given besides the scales is added to the scaled integers.
        is_float: whether integers of 8 bits are floats (E4M3, none of them NaN), and nothing besides scales is given.
    """

    depth: int
    bits: int
    may_be_wide: bool = False
    row_bytes: Literal[0, 1, 2] = 2
    adds_offsets: bool = False
    is_float: bool = False

    def shape(self, data: Shape, scales: Shape, zeros: Shape | None = None) -> Shape:
        """Return the shape of the result for packed integers `[N, blocks, bytes]` and scales `[N, blocks]`."""
        if self.bits not in _BITS:
            raise CompileError(f"integers of {self.bits} bits are not supported, only of 2, 4 and 8")
        if len(data) != 3 or data[1] != ceil_div(self.depth, data[2] * 8 // self.bits):
            raise CompileError(f"the integers {list(data)} are not those of {self.depth} rows in blocks")
        if not unify_shapes(scales, data[:2]):
            raise CompileError(f"the scales {list(scales)} do not fit the integers {list(data)}")
        return self.depth, data[0]

    def lower(
        self,
        ctx: Emitter,
        data: Operand,
        scales: Operand,
        zeros: Operand | None = None,
        factors: Operand | None = None,
        zero_factors: Operand | None = None,
    ) -> relax.Expr:
        """Lower it.

        Args:
            ctx: where to build.
            data: `[N, blocks, bytes]`, uint8.
            scales: `[N, blocks]`.
            zeros: `[N, blocks]` floats, or packed `[N, bytes]`; without them half the range of the integers. Or the
                offsets, floats.
            factors, zero_factors: `[N, blocks / count]` floats that scales and offsets of int8 are multiplied by.
        """
        _, blocks, size = shape_of(data)
        result = self.shape(shape_of(data), shape_of(scales))
        block = size * 8 // self.bits
        given = [data, *([ctx.apply(Cast("float32"), scales)] if factors is None else [scales, factors])]
        if zeros is not None and zero_factors is not None:
            given += [zeros, zero_factors]
        elif zeros is not None:
            given.append(ctx.bound(_zeros_of(ctx, zeros, blocks, self.bits)))

        def dequantized(*tensors: te.Tensor) -> te.Tensor:
            def element(k: tirx.Var, n: tirx.Var) -> tirx.Expr:
                return element_of_block(tensors, k, n, self.bits, block, self.adds_offsets, self.is_float)

            return te.compute(result, element, name="dequantize_blocks")

        attrs = {DEQUANTIZES_BLOCKS: self.bits, ROW_BYTES: self.row_bytes, "op_pattern": _OPAQUE}
        attrs |= {MAY_BE_WIDE: 1} if self.may_be_wide else {}
        attrs |= {ADDS_OFFSETS: 1} if self.adds_offsets else {}
        attrs |= {FLOAT_BLOCKS: 1} if self.is_float else {}
        return ctx.compute(dequantized, *given, name="dequantize_blocks", attrs=attrs)


def with_rows_of_bytes(mod: tvm.IRModule) -> tvm.IRModule:
    """Allows products that may round their other factor to integers of 2 bytes to round it to 1 byte."""
    found = {gv: func for gv, func in mod.functions.items() if func.attrs and func.attrs.get(ROW_BYTES, 0) == 2}
    if found:
        mod = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for gv, func in found.items():
        mod.update_func(gv, func.with_attr(ROW_BYTES, 1))
    return mod


@dataclass(frozen=True, eq=False)
class Multiples:
    """Scales or offsets that are integers times a factor, several of which follow each other with the same one.

    Attributes:
        integers: `[N, blocks]`, int8.
        factors: `[N, blocks / count]`, float32.
    """

    integers: Array
    factors: Array

    def __getitem__(self, rows: Any) -> Multiples:
        return Multiples(self.integers[rows], self.factors[rows])

    def values(self) -> Array:
        """Returns the numbers, `[N, blocks]` float32: their products are exact where factors have 16 bits."""
        parts = self.integers.reshape(*self.factors.shape, -1).astype(np.float32)
        return np.asarray((parts * self.factors[..., None]).reshape(self.integers.shape))


def _floats_of(numbers: Array | Multiples) -> Array:
    return numbers.values() if isinstance(numbers, Multiples) else numbers.astype(np.float32)


@dataclass(frozen=True, eq=False)
class BlockTensor:
    """A constant of float32, quantized in blocks along its flattened dimensions after the first.

    Attributes:
        shape: its own.
        bits: of an integer.
        codes: `[N, blocks, bytes]`, uint8, the lowest bits of a byte first.
        scales: `[N, blocks]`, floats or multiples of others.
        offsets: `[N, blocks]`, like scales; added after the scale is applied. None: half the range is taken away.
        is_float: whether codes of 8 bits are floats (E4M3, none of them NaN), from which nothing is taken away.
    """

    shape: tuple[int, ...]
    bits: int
    codes: Array
    scales: Array | Multiples
    offsets: Array | Multiples | None = None
    is_float: bool = False

    @property
    def dtype(self) -> str:
        """The element type of the dequantized numbers."""
        return "float32"

    def values(self) -> Array:
        """The numbers, float32."""
        scales = _floats_of(self.scales)[..., None]
        if self.is_float:
            return np.asarray((float_codes(self.codes) * scales).reshape(self.shape))
        elements = unpacked(self.codes, self.bits).astype(np.float32)
        if self.offsets is None:
            made = (elements - (1 << (self.bits - 1))) * scales
        else:
            made = elements * scales + _floats_of(self.offsets)[..., None]
        return np.asarray(made.reshape(self.shape))

    def lower(self, ctx: Emitter) -> relax.Expr:
        """The tensor; products and gathers read it as it is, and what else does has it wide in the library."""
        depth = self.codes.shape[1] * self.codes.shape[2] * 8 // self.bits
        made = BlockDequantization(
            depth,
            self.bits,
            may_be_wide=True,
            row_bytes=0 if self.is_float else 2,
            adds_offsets=self.offsets is not None,
            is_float=self.is_float,
        )
        parts = (self.scales, self.offsets)
        numbers = (part.integers if isinstance(part, Multiples) else part for part in parts)
        factors = (part.factors if isinstance(part, Multiples) else None for part in parts)
        matrix = ctx.apply(made, self.codes, *numbers, *factors)
        return ctx.reshaped(ctx.emit(relax.op.permute_dims(matrix)), self.shape)


@dataclass(frozen=True)
class TableDequantization(Operator):
    """A matrix `[N, K]`, float32, of codes of 4 bits that stand for entries of a table, times the scale of their block.

    The codes of the whole matrix lie one after the other, in each byte the high bits first, and so do the blocks.
    `bitsandbytes` (Dettmers et al., "QLoRA", 2023).

    Attributes:
        rows, columns: N and K.
        block: elements that share a scale.
        table: 16 numbers.
    """

    rows: int
    columns: int
    block: int
    table: tuple[float, ...]

    def shape(self, data: Shape, scales: Shape) -> Shape:
        """Return the shape of the result for packed codes `[bytes]` and scales `[blocks]`."""
        count = self.rows * self.columns
        if not unify_shapes((*data, *scales), (ceil_div(count, 2), ceil_div(count, self.block))):
            raise CompileError(f"the codes {list(data)} and scales {list(scales)} do not fit {count} elements")
        return self.rows, self.columns

    def lower(self, ctx: Emitter, data: Operand, scales: Operand) -> relax.Expr:
        shape = self.shape(shape_of(data), shape_of(scales))
        table = np.array(self.table, np.float32)

        def dequantized(data: te.Tensor, scales: te.Tensor, table: te.Tensor) -> te.Tensor:
            def element(n: tirx.Var, k: tirx.Var) -> tirx.Expr:
                position = n * self.columns + k
                byte = data(tirx.floordiv(position, 2)).astype("int32")
                shift = ((1 - tirx.floormod(position, 2)) * 4).astype("int32")
                return table(byte >> shift & tirx.const(15, "int32")) * scales(tirx.floordiv(position, self.block))

            return te.compute(shape, element, name="dequantize_table")

        attrs = {DEQUANTIZES_BLOCKS: 0, "op_pattern": _OPAQUE}
        given = data, ctx.apply(Cast("float32"), scales), table
        return ctx.compute(dequantized, *given, name="dequantize_table", attrs=attrs)


@dataclass(frozen=True)
class BlockGather(Operator):
    """Elements of a tensor quantized in blocks at the positions of a dimension that indices say, float32.

    An index out of range gives zeros.

    Attributes:
        axis: the dimension; those of the indices replace it.
        along: the dimension that blocks are along.
        block: elements that share a scale.
        packed: bits of the integers that lie in bytes along the last dimension; 8 for one in a byte.
        zero: the zero point where none are given.
    """

    axis: int
    along: int
    block: int
    packed: int = 8
    zero: int = 0

    def shape(self, data: Shape, indices: Shape, scales: Shape, zeros: Shape | None = None) -> Shape:
        """Return the shape of the data, the axis replaced by the indices; scales have the shape of the blocks."""
        whole = (*data[:-1], data[-1] * (8 // self.packed))
        blocks = tuple(ceil_div(size, self.block) if a == self.along else size for a, size in enumerate(whole))
        packed_blocks = (*blocks[:-1], ceil_div(blocks[-1], 8 // self.packed))
        if not unify_shapes(scales, blocks):
            raise CompileError(f"blocks of {self.block} need scales of the shape {list(blocks)}, not {list(scales)}")
        if zeros is not None and not unify_shapes(zeros, packed_blocks):
            raise CompileError(f"zero points should have the shape {list(packed_blocks)}, not {list(zeros)}")
        return (*whole[: self.axis], *indices, *whole[self.axis + 1 :])

    def lower(
        self, ctx: Emitter, data: Operand, indices: Operand, scales: Operand, zeros: Operand | None = None
    ) -> relax.Expr:
        """Lower it.

        Args:
            ctx: where to build.
            data: integers of 8 bits, or packed ones.
            indices: of any shape; negative ones count from the end.
            scales: one a block.
            zeros: one a block, of the data's type and packed as they are.
        """
        parameters = [scales] if zeros is None else [scales, zeros]
        shape, rank = self.shape(*map(shape_of, (data, indices, *parameters))), len(shape_of(indices))
        size: Dimension = shape_of(data)[self.axis]
        given = [data, indices, ctx.apply(Cast("float32"), scales), *([] if zeros is None else [zeros])]
        per = 8 // self.packed

        def read(tensor: te.Tensor, position: list[tirx.Expr]) -> tirx.Expr:
            return _code(tensor(*position[:-1], tirx.floordiv(position[-1], per)), position[-1], self.packed)

        def element(tensors: tuple[te.Tensor, ...], index: tuple[tirx.Var, ...]) -> tirx.Expr:
            data, indices, scales, *zeros = tensors
            before, inner, after = (
                index[: self.axis], index[self.axis : self.axis + rank], index[self.axis + rank :]
            )  # fmt: skip
            row, last = indices(*inner).astype("int64"), expression(size).astype("int64")
            row = tirx.Select(row < 0, row + last, row)
            there = tirx.all(row >= 0, row < last)
            position = [*before, tirx.max(tirx.min(row, last - 1), tirx.const(0, "int64")), *after]
            block = [tirx.floordiv(i, self.block) if a == self.along else i for a, i in enumerate(position)]
            zero = read(zeros[0], block) if zeros else tirx.const(self.zero, "int32")
            value = (read(data, position) - zero).astype("float32") * scales(*block)
            return tirx.Select(there, value, tirx.const(0, "float32"))

        return ctx.elements(shape, element, *given, name="gather_blocks")
