"""Describes how bulk copies fetch the filters of a convolution of bytes: in vectors of the depth.

Filters of bytes are `[*k, I / 16, O / 16, 16, 16]`, input channels last (`vector_convolution.py`): the vectors of all
positions lie side by side, and then those of the next 16 depths. A box has the vectors of a tile of positions at eight
of these, in lines of 256 bytes, as long as a box can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.tensor_maps import TensorMap
from nnefc.passes.schedule.cuda.swizzled_tile import RowTile
from nnefc.passes.schedule.gpu.contractions.analysis import Factor
from nnefc.passes.schedule.gpu.nest import Nest, load
from nnefc.passes.tir.common.expressions import is_number, linear_strides, number
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import is_known
from nnefc.targets.machine.cuda.capabilities import MAX_BOX
from nnefc.targets.machine.gpu.description import LOAD_BYTES

__all__ = ["Filters", "filters_of"]


@dataclass(frozen=True)
class Filters:
    """An operand whose vectors along the depth lie side by side for all positions, and of all of a batch.

    Attributes:
        source: the buffer, which begins with the first element.
        lanes: elements of a vector.
        lines: of vectors of one depth, each of as many elements as a box can have.
        vectors: of a position.
        of_batch: lines from one of the batch to the next.
    """

    source: tirx.Var
    lanes: int
    lines: int
    vectors: int
    of_batch: int

    def map_of(self, tile: RowTile) -> tirx.Expr:
        """Returns the tensor map, whose box is a tile."""
        box = (MAX_BOX, tile.positions * self.lanes // MAX_BOX, tile.depths // self.lanes)
        strides = (MAX_BOX, MAX_BOX * self.lines)
        of = TensorMap((MAX_BOX, self.lines, self.vectors), strides, box, (1, 1, 1), 1)
        return of.call(load(self.source, number(0)))

    def coordinates(self, position: tirx.Expr, depth: tirx.Expr, batch: tirx.Expr) -> Sequence[tirx.Expr]:
        """Returns the coordinates in the tensor map of a tile that begins at a position and a depth."""
        line = batch * number(self.of_batch) + tirx.floordiv(position * number(self.lanes), number(MAX_BOX))
        return number(0), line, tirx.floordiv(depth, number(self.lanes))


def filters_of(operand: Factor) -> Filters | None:
    """Returns how bulk copies see an operand that lies in such vectors; None if it does not."""
    sizes = operand.batch.size, operand.positions.size, operand.depth.size
    source = operand.value.source if isinstance(operand.value, TensorLoad) else None
    if source is None or not operand.aligned or not is_known(*sizes):
        return None
    batch, positions, depth = map(int, sizes)
    lanes = LOAD_BYTES // element_bytes(str(source.dtype))
    if depth % lanes or positions * lanes % MAX_BOX:
        return None
    nest = Nest(operand.aligned)
    numbers = (batch, positions, depth // lanes, lanes)
    index = [
        nest.variable(name, size) for name, size in zip(("batch", "position", "vector", "lane"), numbers, strict=True)
    ]
    value = operand.at(nest, index[0], index[1], index[2] * number(lanes) + index[3])
    offset = nest.simplify(value.indices[0]) if isinstance(value, TensorLoad) else None
    strides = None if offset is None else linear_strides(offset, index)
    if offset is None or strides is None or not is_known(*strides):
        return None
    of_batch, of_position, of_vector, of_lane = map(int, strides)
    linear = sum((var * number(step) for var, step in zip(index, map(int, strides), strict=True)), number(0))
    if not is_number(nest.simplify(offset - linear), 0) or (of_position, of_lane) != (lanes, 1):
        return None
    of_vector = of_vector if depth > lanes else batch * positions * lanes
    if of_batch % MAX_BOX or of_vector % MAX_BOX or of_batch * (batch - 1) + positions * lanes > of_vector:
        return None
    return Filters(source, lanes, of_vector // MAX_BOX, depth // lanes, of_batch // MAX_BOX)
