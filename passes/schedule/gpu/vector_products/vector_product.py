"""Analyzes products of a matrix and few vectors, and writes their results."""

from __future__ import annotations

from tvm import tirx

from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts
from nnefc.passes.schedule.gpu.contractions.operand_tile import main_load, shares_bytes
from nnefc.passes.schedule.gpu.contractions.tiled_launch import ELEMENTS
from nnefc.passes.schedule.gpu.contractions.write_back import write_one
from nnefc.passes.schedule.gpu.nest import Nest
from nnefc.passes.tir.common.shapes import elements_of
from nnefc.symbolic.dims import is_known, may_exceed, size_hint
from nnefc.targets.machine.gpu.description import Gpu

__all__ = ["VectorProduct", "few_and_many"]

_MAX_VECTORS = 4
_MIN_POSITIONS = 8  # fewer are no matrix
_MIN_DEPTH = 16
_BLOCKS_OF_PROCESSOR = 2  # that keep it busy


def few_and_many(product: SumOfProducts) -> tuple[Factor, Factor, bool] | None:
    """Returns the vectors and the matrix that a product is of, and whether the matrix is the left one.

    None where it is no product of a matrix and few vectors.
    """
    if product.accumulator not in ELEMENTS or size_hint(product.depth.size) < _MIN_DEPTH:
        return None
    left, right = product.operands
    if _are_few(left) and left.positions.size <= size_hint(right.positions.size):
        few, many, rows_are_many = left, right, False
    elif _are_few(right):
        few, many, rows_are_many = right, left, True
    else:
        return None
    if size_hint(many.positions.size) < _MIN_POSITIONS or not _is_matrix(many):
        return None
    return few, many, rows_are_many


def _are_few(operand: Factor) -> bool:
    """Whether an operand is a few vectors; how many must be known, for a thread has a sum for each."""
    return is_known(operand.positions.size) and operand.positions.size <= _MAX_VECTORS


def _is_matrix(operand: Factor) -> bool:
    """Whether no element is fetched twice, but scales that blocks share; of the windows of a convolution most are."""
    elements = operand.batch.size * operand.positions.size * operand.depth.size
    load = main_load(operand.value)
    return load is not None and (shares_bytes(operand) or not may_exceed(elements, elements_of(load.source)))


class VectorProduct:
    """The part that all schedules of such products share."""

    def __init__(self, product: SumOfProducts, few: Factor, many: Factor, rows_are_many: bool, gpu: Gpu) -> None:
        self._blocks = _BLOCKS_OF_PROCESSOR * gpu.processors
        self._product, self._few, self._many, self._rows_are_many = product, few, many, rows_are_many
        self._vectors, self._positions = few.positions.size, many.positions.size
        self._batch, self._depth = product.batch.size, product.depth.size
        self._nest = Nest(product.aligned)

    def _guarded(self, value: tirx.Expr, *conditions: tirx.Expr) -> tirx.Expr:
        """Returns the value where the conditions hold, else zero."""
        unknown = [self._nest.simplify(c) for c in conditions if not self._nest.holds(c)]
        if not unknown:
            return value
        return tirx.if_then_else(tirx.all(*unknown), value, tirx.const(0, self._product.accumulator))

    def _write(
        self,
        batch: tirx.Expr,
        vector: tirx.Expr,
        position: tirx.Expr,
        total: tirx.Expr,
        slices: tirx.Var | None = None,
        which: tirx.Expr | None = None,
    ) -> tirx.Stmt:
        row, column = (position, vector) if self._rows_are_many else (vector, position)
        return write_one(self._nest, self._product, batch, row, column, total, slices, which)
