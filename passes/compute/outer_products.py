"""Computes matrix products by outer products, with both factors packed in blocks of 32 rows and columns (SME).

    A[M, K] → [M / 32, K, 32]            B[K, N] → [N / 32, K, 32]

Each step of a sum then reads neighbouring rows of A and columns of B. A task computes some columns of 32 rows by one
call of assembly, see `passes/tir/cpu/microkernels/aarch64_sme.py`. Of a convolution, A has a row for each pixel of the
result, with all that its window covers (im2col), and B the filters: `[*k, I, O]` as `[K, O]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import te, tirx

from nnefc.passes.compute.blocked import blocks
from nnefc.passes.tir.common.expressions import int64
from nnefc.passes.tir.cpu.microkernels.aarch64_sme import BLOCK, OUTER_PRODUCTS
from nnefc.symbolic.dims import Dimension, is_known
from nnefc.targets.machine.cpu.matrix_units import SME
from nnefc.targets.machine.cpu.target import Target

__all__ = ["BLOCK", "block_rows", "multiply_outer", "pack_rows", "pack_windows", "takes_outer_products"]

_TASKS = 16  # of a product with few rows
_TERMS = 4  # of bytes, in one number
_WORD_BYTES = 4
_PAIRED = 2  # dot products of an instruction of pairs of rows, in the time of one of vectors


def takes_outer_products(
    target: Target, types: tuple[str, str], rows: Dimension, depth: Dimension, columns: Dimension, speed: float = 1.0
) -> bool:
    """Whether a product with a constant right factor takes less time by outer products than by vectors.

    Args:
        types: of the factors.
        rows, depth, columns: M, K and N.
        speed: products of the other algorithm in the time of one multiply-add.
    """
    if SME.feature not in target.tiles or types not in OUTER_PRODUCTS or target.small or target.reproducible:
        return False
    if not is_known(rows, depth, columns):
        return False
    m, n = int(rows), int(columns)
    steps = int(depth) if types[0] == "float32" else -(-int(depth) // _TERMS)
    if types[0] != "float32" and "i8mm" in target.features:
        speed *= _PAIRED
    panels, parts, _ = _split(m, n)
    weights = _WORD_BYTES * steps * n
    reading = weights / target.costs.bytes_per_cycle(weights)
    by_vectors = m * steps * n / target.lanes("float32") / target.costs.multiply_adds / speed
    return SME.cycles(m, steps, n, panels * parts, reading) < max(by_vectors, reading)


def pack_rows(left: te.Tensor) -> te.Tensor:
    """`[M, K]` → `[M / 32, K, 32]`, filled up with zeros."""
    rows, depth = map(int, left.shape)

    def element(panel: tirx.Var, k: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        row = panel * BLOCK + lane
        if rows % BLOCK == 0:
            return left(row, k)
        return tirx.if_then_else(row < rows, left(row, k), tirx.const(0, left.dtype))

    return te.compute((blocks(rows, BLOCK), depth, BLOCK), element, name="pack_rows")


def pack_windows(
    data: te.Tensor, kernel: Sequence[int], channels: int, strides: Sequence[int], dilation: Sequence[int]
) -> te.Tensor:
    """Packs the elements of each window as a row, in panels as of :func:`pack_rows` (im2col).

    Args:
        data: `[N, C blocks, *spatial, b]`, with its padding.
    """
    batch, _, *sizes, size = map(int, data.shape)
    counts = [(e - (k - 1) * d - 1) // s + 1 for e, k, s, d in zip(sizes, kernel, strides, dilation, strict=True)]
    rows, depth = batch * math.prod(counts), channels * math.prod(kernel)

    def element(panel: tirx.Var, k: tirx.Var, lane: tirx.Var) -> tirx.Expr:
        row = panel * BLOCK + lane
        image, *position = _digits(row, (batch, *counts))
        *taps, channel = _digits(k, (*kernel, channels))
        at = [p * s + t * d for p, s, t, d in zip(position, strides, taps, dilation, strict=True)]
        value = data(image, channel // size, *at, channel % size)
        return value if rows % BLOCK == 0 else tirx.if_then_else(row < rows, value, tirx.const(0, data.dtype))

    return te.compute((blocks(rows, BLOCK), depth, BLOCK), element, name="pack_windows")


def _digits(number: tirx.Expr, sizes: Sequence[int]) -> list[tirx.Expr]:
    """Splits a running number into an index for axes of these sizes."""
    digits: list[tirx.Expr] = []
    for size in reversed(sizes[1:]):
        digits.append(tirx.floormod(number, int64(size)))
        number = tirx.floordiv(number, int64(size))
    return [number, *reversed(digits)]


def block_rows(product: te.Tensor, sizes: tuple[int, ...], size: int) -> te.Tensor:
    """Reorders rows of a product, one for each pixel, as blocks of channels `[N, C blocks, *spatial, b]`, filled up
    with zeros.

    Args:
        sizes: N and the spatial ones.
        size: channels of a block, b.
    """
    columns = int(product.shape[1])

    def element(image: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        row: tirx.Expr = image
        for index, extent in zip(position, sizes[1:], strict=True):
            row = row * extent + index
        channel = block * size + lane
        if columns % size == 0:
            return product(row, channel)
        return tirx.if_then_else(channel < columns, product(row, channel), tirx.const(0, product.dtype))

    return te.compute((sizes[0], blocks(columns, size), *sizes[1:], size), element, name="block_rows")


def multiply_outer(left: te.Tensor, right: te.Tensor, rows: int, columns: int, types: tuple[str, str]) -> te.Tensor:
    """Multiplies packed factors: `[rows, columns]`; `types` are those of the factors before they were packed."""
    depth = int(left.shape[1])
    sources = [tirx.decl_buffer(x.shape, x.dtype, name, elem_offset=0) for x, name in ((left, "a"), (right, "b"))]
    shape, dtype = (int64(rows), int64(columns)), "float32" if left.dtype == "float32" else "int32"
    target = tirx.decl_buffer(shape, dtype, "c", elem_offset=0)
    panels, parts, size = _split(rows, columns)

    def body(ins: Sequence[tirx.Var], outs: Sequence[tirx.Var]) -> tirx.Stmt:
        (a, b), c, task = ins, outs[0], tirx.Var("task", "int64")
        panel, part = tirx.floordiv(task, int64(parts)), tirx.floormod(task, int64(parts))
        row, column = panel * int64(BLOCK), part * int64(size * BLOCK)
        call = tirx.call_extern(
            "void",
            f"nnefc_tile_{OUTER_PRODUCTS[types]}",
            tirx.address_of(a[panel, 0, 0]),
            tirx.address_of(b[part * int64(size), 0, 0]),
            tirx.address_of(c[row, column]),
            tirx.min(int64(rows) - row, int64(BLOCK)),
            int64(depth),
            tirx.min(int64(columns) - column, int64(size * BLOCK)),
            int64(columns),
        )
        kind = tirx.ForKind.PARALLEL if panels * parts > 1 else tirx.ForKind.SERIAL
        return tirx.For(task, int64(0), int64(panels * parts), kind, tirx.Evaluate(call))

    return te.extern(
        [shape], [left, right], body, dtype=[dtype], in_buffers=sources, out_buffers=[target], name="matmul"
    )


def _split(rows: int, columns: int) -> tuple[int, int, int]:
    """Returns the panels of rows, into how many parts the columns are split, and the blocks of a part."""
    panels, count = blocks(rows, BLOCK), blocks(columns, BLOCK)
    size = -(-count // max(1, _TASKS // panels))
    return panels, -(-count // size), size
