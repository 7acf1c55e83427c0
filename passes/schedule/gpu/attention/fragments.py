"""Describes the parts of an attention's matrices that a thread has in registers, and a block in shared memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tvm import tirx

from nnefc.ir.gpu_operators import power_of_two
from nnefc.passes.schedule.gpu.attention.analysis import Matrix
from nnefc.passes.schedule.gpu.nest import Nest, load, store
from nnefc.passes.tir.common.expressions import number

__all__ = ["HIDDEN", "LOWEST", "Fragment", "SharedTile", "power_of"]

HIDDEN = float("-inf")
LOWEST = -3.4028234663852886e38  # of all finite numbers: what a row is compared with of which nothing is seen


def power_of(difference: tirx.Expr, factor: float) -> tirx.Expr:
    """Returns the power of e of a number times a factor, with an error of 2 parts in 2^22."""
    return power_of_two(difference, factor * math.log2(math.e))


@dataclass(frozen=True)
class Fragment:
    """The elements of a matrix in a thread's registers: of some rows, groups of neighbouring columns.

    Attributes:
        rows, groups, lanes: how many, and columns of a group.
        column: of the tile, at which a group begins.
        slot: the index of a row, a group and a lane in the registers.
        registers: the buffer.
    """

    rows: int
    groups: int
    lanes: int
    column: Callable[[tirx.Expr], tirx.Expr]
    slot: Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]
    registers: tirx.Var

    @property
    def size(self) -> int:
        """Returns the number of registers."""
        return self.rows * self.groups * self.lanes

    def at(self, row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        """Returns an element."""
        return load(self.registers, self.slot(row, group, lane))

    def put(self, value: tirx.Expr, row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
        """Returns the statement that stores an element."""
        return store(self.registers, value, self.slot(row, group, lane))

    def each(self, nest: Nest, body: Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body(row, group, lane)` for all elements."""
        return nest.unrolled(self.rows, lambda row: self.each_of_row(nest, partial(body, row)), "row")

    def each_of_row(self, nest: Nest, body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body(group, lane)` for all elements of a row."""
        return nest.unrolled(
            self.groups, lambda group: nest.unrolled(self.lanes, lambda lane: body(group, lane), "lane"), "group"
        )


@dataclass(frozen=True)
class SharedTile:
    """A tile of queries, keys or values in shared memory, row by row.

    Attributes:
        matrix: what it is a tile of.
        rows, columns: of the tile; columns beyond those of the matrix are zeros.
        first, stride: where it begins in shared memory, and from row to row.
        lanes: elements that a thread fetches at once.
        copied: whether they are copied past the registers.
        stages: tiles in shared memory, one behind the other.
    """

    matrix: Matrix
    rows: int
    columns: int
    first: int
    stride: int
    lanes: int
    copied: bool
    stages: int

    @property
    def size(self) -> int:
        """Elements of shared memory of a stage."""
        return self.rows * self.stride

    @property
    def end(self) -> int:
        """Where it ends in shared memory."""
        return self.first + self.stages * self.size

    def at(self, row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
        """Returns the index in shared memory, from the stage's first, of the elements that a thread fetches at once."""
        return row * number(self.stride) + column
