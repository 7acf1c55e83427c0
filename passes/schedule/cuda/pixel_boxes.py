"""Describes how bulk copies fetch the pixels of a convolution: in rectangles, with zeros around the image.

Tensors lie in blocks of channels, `[N, C / 8, H, W, 8]` (`vector_convolution.py`), of 16 bytes, or of two to eight such
vectors, as of single precision: these are swizzled. A box has the pixels of a rectangle and some of the blocks, at one
tap of the window; the device writes zeros for pixels outside of the image, and skips pixels where the window strides.
So the rows of the product, pixels of the result, are taken in an order in which those of a tile are a rectangle:

    image, y, x    →    image, y // h, x // w, y % h, x % w        h * w rows in a tile

Rectangles at the ends of lines and columns have rows that the result does not. A tile of the depth is some blocks of
channels at as many taps as they belong to. Where these are eight, and a tap has three, each is a box; where it has a
multiple of eight, all eight are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import tvm
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.tensor_maps import TensorMap
from nnefc.passes.schedule.cuda.swizzled_tile import RowTile
from nnefc.passes.schedule.cuda.tensor_coordinates import Affine, coordinates_of
from nnefc.passes.schedule.cuda.tensor_launch import FLOATS, as_multiplied
from nnefc.passes.schedule.gpu.axes import Axes
from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts, simplify_indices
from nnefc.passes.schedule.gpu.nest import Nest, load
from nnefc.passes.tir.common.expressions import is_number, number, substituted
from nnefc.passes.tir.common.shapes import Size, sizes_of
from nnefc.support.element_types import EIGHT_BITS, element_bytes
from nnefc.symbolic.dims import ceil_div, is_known
from nnefc.targets.machine.cuda.capabilities import MAX_BOX, MAX_BOX_STEP
from nnefc.targets.machine.gpu.description import LOAD_BYTES

__all__ = ["Pixels", "Rectangles"]

_LANE, _X, _Y, _BLOCK, _IMAGE = range(5)
"""The dimensions, that whose elements are neighbours first."""
_PARTS = 2
"""Elements in a tensor map of a block of 16 bytes, of 8 each: the larger they are, the longer the lines of a box can
be."""
_ROWS = (LOAD_BYTES, 2 * LOAD_BYTES, 4 * LOAD_BYTES, 8 * LOAD_BYTES)
"""Bytes of a block of channels, which is a row of a tile in shared memory; one of float32 has two vectors or more,
for joined elements would not be rounded."""


@dataclass(frozen=True)
class Pixels:
    """The left operand of a convolution.

    Attributes:
        product: its rows are pixels of the result.
        source: the buffer.
        sizes: of its dimensions: lanes of a block, x, y, blocks, images.
        coordinates: of the element for values of the product's axes.
        x, y: the rows' axes along these dimensions; None where the result has one value.
    """

    product: SumOfProducts
    source: tirx.Var
    sizes: tuple[Size, ...]
    coordinates: tuple[Affine, ...]
    x: tirx.Var | None
    y: tirx.Var | None

    @staticmethod
    def of(product: SumOfProducts) -> Pixels | None:
        """Returns how bulk copies see the left operand of a convolution; None if it lies in memory as they cannot.

        Sizes of an image and the number of its channels must be known, the number of images may be dynamic.
        """
        operand = as_multiplied(product.operands[0], (*FLOATS, *EIGHT_BITS)) or product.operands[0]
        conditional = _read(operand.value)
        if conditional is None or not product.aligned:
            return None
        condition, read = conditional
        tensors = dict(zip(product.params, product.func.params, strict=True))
        sizes = tuple(reversed(sizes_of(tensors[read.source])))
        sizes = (*sizes[:2], 1, *sizes[2:]) if len(sizes) == _IMAGE else sizes  # images of one line
        if len(sizes) != 5 or not is_known(*sizes[:_IMAGE]):
            return None
        dtype = str(read.source.dtype)
        if sizes[_LANE] * element_bytes(dtype) not in (_ROWS[1:] if dtype == "float32" else _ROWS):
            return None
        axes = (product.batch, product.rows, product.depth)
        of_axes = {var: size for each in axes for var, size in zip(each.variables, each.sizes, strict=True)}
        coordinates = coordinates_of(read.indices[0], condition, of_axes, sizes)
        if coordinates is None or not _are_vectors(product.depth, coordinates, sizes[_LANE]):
            return None
        along = [[v for v in product.rows.variables if v in coordinates[d].steps] for d in (_X, _Y, _IMAGE)]
        x, y, image = along
        if max(map(len, along)) > 1 or sum(map(len, along)) != len(product.rows.variables) or not (x or y):
            return None
        if any(of_axes[v] != sizes[_IMAGE] for v in image) or not is_known(*(of_axes[v] for v in (*x, *y))):
            return None
        found = Pixels(product, read.source, sizes, coordinates, x[0] if x else None, y[0] if y else None)
        return found._on_one_line() if condition is None and x and y else found

    def _on_one_line(self) -> Pixels:
        """Returns the same with y and x as one axis, where pixels are read one after another throughout."""
        assert self.x is not None and self.y is not None
        lanes, width, height, *others = self.sizes
        lines = self.length(self.y)
        if self.length(self.x) != width or self.coordinates[_X] != Affine({self.x: 1}, 0):
            return self
        if self.coordinates[_Y] != Affine({self.y: 1}, 0):
            return self
        of, nest = self.product, Nest(self.product.aligned)
        pixel = nest.variable("pixel", lines * width)
        for axes in (of.batch, of.rows, of.columns, of.depth):
            for var, size in zip(axes.variables, axes.sizes, strict=True):
                nest.bound(var, size)
        of_rows = [*self.images, (pixel, lines * width)]
        made = {self.y: tirx.floordiv(pixel, number(width)), self.x: tirx.floormod(pixel, number(width))}
        changed = {name: simplify_indices(substituted(getattr(of, name), made), nest) for name in ("left", "value")}
        position = nest.simplify(substituted(of.position, made))
        rows = Axes(tuple(var for var, _ in of_rows), tuple(size for _, size in of_rows))
        coordinates = (self.coordinates[_LANE], Affine({pixel: 1}, 0), Affine({}, 0), *self.coordinates[_BLOCK:])
        product = replace(of, rows=rows, position=position, **changed)
        return Pixels(product, self.source, (lanes, width * height, 1, *others), coordinates, pixel, None)

    @property
    def steps(self) -> tuple[int, int]:
        """Returns the distances between pixels of neighbouring results along x and y."""
        x, y = ((self.coordinates[d].steps[v] if v is not None else 1) for d, v in ((_X, self.x), (_Y, self.y)))
        return x, y

    @property
    def images(self) -> list[tuple[tirx.Var, Size]]:
        """Returns the rows' other axis and its size, if there is one: the images."""
        rows = self.product.rows
        steps = self.coordinates[_IMAGE].steps
        return [(var, size) for var, size in zip(rows.variables, rows.sizes, strict=True) if var in steps]

    def rectangles(self, rows: int) -> Rectangles | None:
        """Returns the rectangles of so many pixels that have the fewest pixels too many; of several, the widest."""
        width, height = (self.length(var) for var in (self.x, self.y))
        shapes = [(rows // w, w) for w in (1 << power for power in range(9)) if rows % w == 0]
        fitting = [(h, w) for h, w in shapes if self._fits(h, w)]
        if not fitting:
            return None
        chosen = min(fitting, key=lambda it: (ceil_div(height, it[0]) * ceil_div(width, it[1]), -it[1]))
        return Rectangles(self, *chosen)

    def _fits(self, height: int, width: int) -> bool:
        """Whether a box can have these pixels."""
        lengths = ((width, self.x, self.steps[0]), (height, self.y, self.steps[1]))
        return all(
            (size == 1 or var is not None) and (size - 1) * step + 1 <= MAX_BOX and step <= MAX_BOX_STEP
            for size, var, step in lengths
        )

    def length(self, var: tirx.Var | None) -> int:
        """Returns the values of one of the rows' axes; 1 without one."""
        rows = self.product.rows
        sizes = dict(zip(rows.variables, rows.sizes, strict=True))
        return 1 if var is None else int(sizes[var])


@dataclass(frozen=True)
class Rectangles:
    """Rectangles of pixels as tiles of a convolution's rows.

    Attributes:
        height, width: of one, in pixels of the result.
    """

    pixels: Pixels
    height: int
    width: int

    @property
    def counts(self) -> tuple[int, int]:
        """Returns the rectangles along y and x."""
        of = self.pixels
        y, x = ceil_div(of.length(of.y), self.height), ceil_div(of.length(of.x), self.width)
        return y, x

    @cached_property
    def product(self) -> SumOfProducts:
        """Returns the convolution with rows in the order of rectangles; some of these are not in the result."""
        of, made, present = self.pixels.product, {}, []
        outer: list[tuple[tirx.Var, int]] = []
        inner: list[tuple[tirx.Var, int]] = []
        lengths = zip((self.pixels.y, self.pixels.x), self.counts, (self.height, self.width), strict=True)
        for var, count, length in lengths:
            if var is None:
                continue
            rectangle, pixel = (tirx.Var(f"{var.name}_{part}", "int32") for part in ("rectangle", "pixel"))
            outer += [(rectangle, count)] if count > 1 else []
            inner += [(pixel, length)] if length > 1 else []
            first = rectangle * number(length) if count > 1 else number(0)
            made[var] = first + pixel if length > 1 else first
            size = self.pixels.length(var)
            present += [made[var] < number(size)] if size % length else []
        axes = [*self.pixels.images, *outer, *inner]
        rows = Axes(tuple(var for var, _ in axes), tuple(size for _, size in axes))
        changed = {name: substituted(getattr(of, name), made) for name in ("left", "position", "value")}
        return replace(of, rows=rows, present=tirx.all(*present) if present else None, **changed)

    def tile(self, operand: Factor, depths: int, threads: int) -> RowTile:
        """Returns how a tile lies in shared memory."""
        lanes, of_block = LOAD_BYTES // element_bytes(str(self.pixels.source.dtype)), int(self.pixels.sizes[_LANE])
        return RowTile(operand, self.height * self.width, depths, lanes, True, threads, 0, of_block)

    def blocks(self, depths: int) -> int:
        """Returns how many blocks of channels a box has, of a tile of so many depths.

        Without taps and groups it has all: those beyond the last channel are outside of the tensor.
        """
        depth, steps = self.pixels.product.depth, self.pixels.coordinates[_BLOCK].steps
        outer = list(zip(depth.variables, depth.sizes, strict=True))[:-1]
        of_tile = depths // int(self.pixels.sizes[_LANE])
        if [var for var, _ in outer] == list(steps):
            return of_tile
        return math.gcd(next((int(size) for var, size in outer[-1:] if steps.get(var) == 1), 1), of_tile)

    @property
    def _joins_lanes(self) -> bool:
        """Whether the pixels of a line are one dimension with their lanes: boxes should have long lines."""
        return self._row_vectors == 1 and self.pixels.steps[0] == 1 and self.width * _PARTS <= MAX_BOX

    @property
    def _row_vectors(self) -> int:
        """Returns the vectors of 16 bytes of a block."""
        return int(self.pixels.sizes[_LANE]) * element_bytes(str(self.pixels.source.dtype)) // LOAD_BYTES

    def map_of(self, depths: int) -> tirx.Expr:
        """Returns the tensor map, whose boxes have the blocks of channels that lie at one tap."""
        sizes, (x, y) = self.pixels.sizes, self.pixels.steps
        lanes, row_vectors = int(sizes[_LANE]), self._row_vectors
        parts = _PARTS if row_vectors == 1 else lanes
        box: tuple[int, ...] = (parts, (self.width - 1) * x + 1, (self.height - 1) * y + 1, self.blocks(depths), 1)
        steps: tuple[int, ...] = (1, x, y, 1, 1)
        strides = tuple(math.prod(sizes[:dimension]) for dimension in range(1, 5))
        sizes = (parts, *sizes[1:])
        if self._joins_lanes:
            sizes, strides = (_PARTS * sizes[_X], *sizes[_Y:]), strides[1:]
            box, steps = (_PARTS * self.width, *box[_Y:]), steps[1:]
        of = TensorMap(sizes, strides, box, steps, row_vectors, lanes // parts)
        return of.call(load(self.pixels.source, number(0)))

    def coordinates(
        self, nest: Nest, batch: tirx.Expr, tile: tirx.Expr, block: tirx.Expr, depths: int
    ) -> Sequence[tirx.Expr]:
        """Returns the coordinates of a box in the tensor map.

        Args:
            batch: the index of the product's batch.
            tile: the number of the tile of rows.
            block: the number of the first block of channels, counted along the whole depth: beyond its end, the box
                is outside of the tensor.
            depths: of a tile.
        """
        of, lanes = self.pixels, int(self.pixels.sizes[_LANE])
        depth, groups = of.product.depth, of.product.batch
        *image, y, x = _digits(tile, [*(size for _, size in of.images), *self.counts])
        values = dict(zip((var for var, _ in of.images), image, strict=True))
        at = ((of.y, y * number(self.height)), (of.x, x * number(self.width)))
        values |= {var: first for var, first in at if var is not None}
        values |= dict(zip(groups.variables, _digits(batch, groups.sizes), strict=True))
        values |= dict(zip(depth.variables[:-1], _digits(block, depth.sizes[:-1]), strict=True))
        found = [coordinate.at(values) for coordinate in of.coordinates]
        if depth.size // lanes % (depths // lanes):
            present = block < number(depth.size // lanes)
            found[_BLOCK] = tirx.Select(present, found[_BLOCK], number(of.sizes[_BLOCK]))
        if self._joins_lanes:
            found = [found[_X] * number(_PARTS), *found[_Y:]]
        return [nest.simplify(coordinate) for coordinate in found]


def _digits(index: tirx.Expr, sizes: Sequence[Size]) -> list[tirx.Expr]:
    """Returns the values of axes whose fused index is `index`; the first has what is left."""
    found: list[tirx.Expr] = []
    for which, size in enumerate(reversed(sizes)):
        found.append(index if which == len(sizes) - 1 else tirx.floormod(index, number(size)))
        index = tirx.floordiv(index, number(size))
    return found[::-1]


def _read(value: tirx.Expr) -> tuple[tirx.Expr | None, TensorLoad] | None:
    """Returns the condition on which an element is read, and the read; None if it is not 0 otherwise."""
    match value:
        case TensorLoad():
            return None, value
        case Call(op=tvm.ir.Op(name="prim.if_then_else")) if isinstance(value.args[1], TensorLoad):
            condition, read, around = value.args
            return (condition, read) if is_number(around, 0) else None
    return None


def _are_vectors(depth: Axes, coordinates: Sequence[Affine], lanes: Size) -> bool:
    """Whether the depth's last axis has the lanes of a block, and no other axis has any."""
    if not depth.variables or depth.sizes[-1] != lanes:
        return False
    last = depth.variables[-1]
    return coordinates[_LANE] == Affine({last: 1}, 0) and not any(last in c.steps for c in coordinates[_X:])
