"""Writes the results of products by tensor cores: the loops of `contraction.py`, with a warp instead of a thread.

Lane 4 g + t of a warp has, of each product of 16 rows and 8 columns, `mma.sync` and `wgmma` alike,

    sums       rows g and g + 8      columns 2 t and 2 t + 1

(PTX ISA, "Matrix Fragments for mma.m16n8k16" and "Register Fragments and Shared Memory Matrix Layouts"). The four lanes
of a row exchange sums, so that each stores eight neighbouring columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import ClassVar

from tvm import tirx

from nnefc.ir.gpu_operators import exchanged
from nnefc.passes.schedule.cuda.warp_tiles import WarpTile
from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts
from nnefc.passes.schedule.gpu.contractions.operand_tile import OperandTile
from nnefc.passes.schedule.gpu.contractions.tiled_launch import TiledLaunch
from nnefc.passes.schedule.gpu.contractions.tiling import Tiling
from nnefc.passes.schedule.gpu.contractions.write_back import VECTOR, write, write_vector
from nnefc.passes.schedule.gpu.nest import buffer, load, sequence, store
from nnefc.passes.tir.common.expressions import number
from nnefc.support.element_types import EIGHT_BITS
from nnefc.targets.machine.cuda.capabilities import MATRIX_INSTRUCTIONS

__all__ = ["COLUMNS", "FLOATS", "ROWS", "TensorLaunch", "as_multiplied"]

ROWS, COLUMNS = MATRIX_INSTRUCTIONS["float16"].rows, MATRIX_INSTRUCTIONS["float16"].columns
"""Of the sums of an instruction of a warp, of any type."""

FLOATS = ("float16", "bfloat16")
"""Floats that tensor cores multiply as they are, both operands of the same type."""

_LANES_OF_ROW = 4  # that have the columns of a row of an instruction, two each
_WRITTEN = frozenset({*FLOATS, *EIGHT_BITS, "float32", "int32"})


def as_multiplied(operand: Factor, types: Collection[str]) -> Factor | None:
    """Returns the operand before its conversion from one of `types` to the type of the sum; None without one."""
    value = operand.value
    if isinstance(value, tirx.Cast) and str(value.value.expr_ty().dtype) in types:
        return replace(operand, value=value.value)
    return None


class TensorLaunch(TiledLaunch):
    """A launch whose accumulators are those of instructions of 16 rows and 8 columns."""

    _element: ClassVar[str]

    def __init__(self, product: SumOfProducts, tiling: Tiling, slices: tirx.Var | None) -> None:
        tile = tiling.tile
        assert isinstance(tile, WarpTile)
        self._tile = tile
        left, right = product.operands
        sides = self._side(left, tile.rows), self._side(right, tile.fetched_columns)
        super().__init__(product, tiling, slices, sides, self._element, tile.sums)
        self._rows, self._columns = tile.warp_rows // ROWS, tile.warp_columns // COLUMNS

    @abstractmethod
    def _side(self, operand: Factor, positions: int) -> OperandTile:
        """Returns how tiles of an operand are fetched and laid out."""

    def write(
        self,
        thread: tirx.Expr,
        batch: tirx.Expr,
        first_row: tirx.Expr,
        first_column: tirx.Expr,
        which: tirx.Expr,
    ) -> tirx.Stmt:
        """Returns the warp's sums to where they belong: eight neighbours at a time, or two."""
        row, column, group, _ = self._tile.position(thread)
        at = first_row + row, first_column + column
        return self._eight_at_once(thread, batch, *at, group, which) or self._two_at_once(
            thread, batch, *at, group, which
        )

    def _eight_at_once(
        self, thread: tirx.Expr, batch: tirx.Expr, row: tirx.Expr, column: tirx.Expr, group: tirx.Expr, which: tirx.Expr
    ) -> tirx.Stmt | None:
        """Exchanges sums among the four lanes of a row, so that each has all columns of an instruction.

        None where there are no four instructions next to each other, or their results do not lie in vectors.
        """
        nest, pair = self._nest, self._tile.position(thread)[3]
        target = self._product.output if self._slices is None else self._slices
        if self._columns % _LANES_OF_ROW or str(target.dtype) not in _WRITTEN:
            return None
        groups = self._columns // _LANES_OF_ROW

        def written(
            i: tirx.Expr, lower: tirx.Expr, j: tirx.Expr, sums: tirx.Var, results: tirx.Var
        ) -> tirx.Stmt | None:
            own_row = row + i * number(self._tile.row_step) + lower * number(8) + group
            own_column = column + (j * number(_LANES_OF_ROW) + pair) * number(COLUMNS)
            return write_vector(nest, self._product, batch, own_row, own_column, sums, results, self._slices, which)

        registers = [(name, VECTOR, dtype, "local") for name, dtype in self._row_registers(str(target.dtype))]
        index = [nest.variable(name, count) for name, count in (("i", self._rows), ("lower", 2), ("j", groups))]
        if written(*index, *(buffer(*register) for register in registers)) is None:
            return None
        sums, results = (nest.buffer(*register) for register in registers)
        moved = nest.buffer("moved", 1, self._product.accumulator, "local")

        def several(i: tirx.Expr, lower: tirx.Expr, j: tirx.Expr) -> tirx.Stmt:
            def slot(part: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
                tile = i * number(self._columns) + j * number(_LANES_OF_ROW) + part
                return tile * number(4) + lower * number(2) + lane

            def gather(part: tirx.Expr) -> tirx.Stmt:
                return nest.unrolled(
                    2, lambda lane: store(sums, load(self._sums, slot(part, lane)), part * number(2) + lane), "lane"
                )

            exchange = [self._exchanged(thread, slot, distance, moved) for distance in (1, 2)]
            gathered = nest.unrolled(_LANES_OF_ROW, gather, "part")
            return sequence(*exchange, gathered, written(i, lower, j, sums, results))

        return nest.unrolled(
            self._rows,
            lambda i: nest.unrolled(2, lambda lower: nest.unrolled(groups, lambda j: several(i, lower, j))),
        )

    def _row_registers(self, result: str) -> list[tuple[str, str]]:
        """Returns the names and types of the registers of a row of eight sums, and of what is written of them."""
        return [("row_sums", self._product.accumulator), ("row_results", result)]

    def _exchanged(
        self,
        thread: tirx.Expr,
        slot: Callable[[tirx.Expr, tirx.Expr], tirx.Expr],
        distance: int,
        register: tirx.Var,
    ) -> tirx.Stmt:
        """Exchanges sums of pairs of instructions with the lane at a distance: a step of a transposition."""
        nest, zero = self._nest, number(0)
        is_upper = tirx.bitwise_and(thread, number(distance)) != zero

        def one(index: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            part = index * number(2) if distance == 1 else index
            low, high = slot(part, lane), slot(part + number(distance), lane)
            sent = tirx.Select(is_upper, load(self._sums, low), load(self._sums, high))
            moved = load(register, zero)
            return sequence(
                store(register, exchanged(sent, distance), zero),
                store(self._sums, tirx.Select(is_upper, moved, load(self._sums, low)), low),
                store(self._sums, tirx.Select(is_upper, load(self._sums, high), moved), high),
            )

        return nest.unrolled(2, lambda index: nest.unrolled(2, lambda lane: one(index, lane), "lane"), "index")

    def _two_at_once(
        self, thread: tirx.Expr, batch: tirx.Expr, row: tirx.Expr, column: tirx.Expr, group: tirx.Expr, which: tirx.Expr
    ) -> tirx.Stmt:
        nest, pair = self._nest, self._tile.position(thread)[3]

        def two(i: tirx.Expr, j: tirx.Expr, lower: tirx.Expr) -> tirx.Stmt:
            at = (i * number(self._columns) + j) * number(4) + lower * number(2)
            return write(
                nest,
                self._product,
                batch,
                row + i * number(self._tile.row_step) + lower * number(8) + group,
                column + j * number(COLUMNS) + pair * number(2),
                lambda lane: load(self._sums, at + lane),
                self._slices,
                which,
                width=2,
            )

        return nest.unrolled(
            self._rows,
            lambda i: nest.unrolled(2, lambda lower: nest.unrolled(self._columns, lambda j: two(i, j, lower))),
        )
