"""Schedules contractions for tensor cores: floats of 16 and 8 bits, bytes, or TF32 (float32 rounded to 10 bits).

The loops are those of `contraction.py`; what a thread multiplied there, a warp multiplies here, by the instruction
`mma.sync` (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions"): 16 rows and 8 columns at once, summed up in
float32, or in int32 for bytes. Lane 4 g + t of a warp holds, of

    left      rows g and g + 8      depths 2 t, 2 t + 1, 2 t + 8, 2 t + 9          16-bit floats
                                    depths 4 t to 4 t + 3, 4 t + 16 to 4 t + 19    bytes, floats of 8 bits
                                    depths t, t + 4                                TF32
    right     column g              the same depths

and sums as `tensor_launch.py` says. In bytes of memory the first two are the same fragments, which `ldmatrix` reads.
Tiles in shared memory are swizzled where they are copied along depths (`swizzled_tile.py`); rows of others are longer
than needed by so much that what a warp reads at once falls into all of the banks. `ldmatrix` transposes pairs of bytes,
not bytes: both operands of a product of bytes must lie along depths, as passes lay them out
(`pack_deep_matmul.py`, `vector_convolution.py`). Where the target has products of warpgroups, or tensor memory,
tiles of these (`warpgroup_launch.py`, `bulk_launch.py`, `tensor_memory_launch.py`) are tried too; of single
precision, those that bulk copies fetch and round.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from tvm import s_tir, tirx
from tvm.backend.cuda.op import cuda_func_call

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.bulk_launch import (
    BULK_LAUNCHES,
    BulkLaunch,
    are_boxed,
    are_boxes_of_filters,
    pixels_of,
)
from nnefc.passes.schedule.cuda.pair_launch import PAIR_LAUNCHES
from nnefc.passes.schedule.cuda.pixel_boxes import Rectangles
from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledTile
from nnefc.passes.schedule.cuda.tensor_launch import COLUMNS, FLOATS, ROWS, TensorLaunch, as_multiplied
from nnefc.passes.schedule.cuda.tensor_memory_launch import TENSOR_MEMORY_LAUNCHES
from nnefc.passes.schedule.cuda.warp_matrices import byte_multiplier, multiplier, read_matrices
from nnefc.passes.schedule.cuda.warp_tiles import (
    BYTE_TILES,
    COPIED_TILES,
    FLOAT16_TILES,
    SINGLE_TILES,
    BulkTile,
    CopiedTile,
    PairTile,
    TensorMemoryTile,
    WarpgroupTile,
    bulk_tiles,
    tensor_memory_tiles,
    unpacking_tiles,
    warpgroup_tiles,
)
from nnefc.passes.schedule.cuda.warpgroup_launch import WARPGROUP_LAUNCHES
from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts, product_of
from nnefc.passes.schedule.gpu.contractions.operand_fetch import is_loaded
from nnefc.passes.schedule.gpu.contractions.operand_tile import OperandTile, PositionTile, lanes_along, lies_along_depth
from nnefc.passes.schedule.gpu.contractions.packed_fetch import unpacked_tile
from nnefc.passes.schedule.gpu.contractions.packed_vectors import packing_of
from nnefc.passes.schedule.gpu.contractions.tiled_launch import OperandTiles, tiled
from nnefc.passes.schedule.gpu.contractions.tiling import AnyTile, Tiling, choose_tiling
from nnefc.passes.schedule.gpu.nest import load, sequence, store
from nnefc.passes.tir.common.expressions import number
from nnefc.passes.tir.common.shapes import Size
from nnefc.support.element_types import BYTES, EIGHT_BITS, FLOAT8, element_bytes
from nnefc.symbolic.dims import bounds, is_known, may_exceed, size_hint
from nnefc.targets.machine.cuda.capabilities import MATRIX_INSTRUCTIONS
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.gpu.description import LOAD_BYTES, WARP, Gpu

__all__ = ["TensorCoreRule", "copied_byte_tiles", "copied_tiles", "is_faster"]

_MIN = 8  # rows, columns and depths that are worth it
_BOTH_WAYS = (False, True)  # 16 bytes of neighbouring positions, or depths
_LANES = 8  # 16-bit floats of a vector
_HALF, _SINGLE, _BYTE = (MATRIX_INSTRUCTIONS[dtype] for dtype in ("float16", "float32", "int8"))


class TensorCoreRule:
    """A sum of products of floats of 16 or 8 bits or of bytes; or of single precision, if the target may round it."""

    def apply(self, kernel: KernelAnalysis, target: CudaTarget) -> s_tir.Schedule | None:
        plan = _plan_of(kernel, target)
        return None if plan is None else tiled(plan.product, plan.tiling, plan.launch)

    @staticmethod
    def has_own_instructions(kernel: KernelAnalysis, target: CudaTarget) -> bool:
        """Whether the rule takes instructions that only some architectures have: `wgmma` or `tcgen05.mma`."""
        if not target.multiplies_boxes:
            return False
        plan = _plan_of(kernel, target)
        return plan is not None and isinstance(plan.tiling.tile, WarpgroupTile)


@dataclass(frozen=True)
class _Plan:
    """How a product is computed: in which tiles, and by which instructions."""

    product: SumOfProducts
    tiling: Tiling
    launch: Callable[..., TensorLaunch]


def _plan_of(kernel: KernelAnalysis, target: CudaTarget) -> _Plan | None:
    """Returns the plan of the model for the target's device; None for kernels that tensor cores do not compute."""
    product = product_of(kernel, target)
    if product is None or target.oldest < max(_HALF.oldest, _SINGLE.oldest, _BYTE.oldest):
        return None
    if not all(map(_is_worth, (product.rows.size, product.columns.size, product.depth.size))):
        return None
    match product.accumulator:
        case "float32":
            return _of_bytes(product, FLOAT8, target) or _of_floats(product, target)
        case "int32":
            return _of_bytes(product, BYTES, target)
    return None


def _is_worth(size: Size) -> bool:
    """Whether rows, columns or depths are, or may be, enough: a single row has code of its own (`single_row.py`)."""
    return size_hint(size) >= _MIN or (not is_known(size) and bounds(size)[1] >= _MIN)


def _of_floats(product: SumOfProducts, target: CudaTarget) -> _Plan | None:
    fp16_factors = _multiplied(product, FLOATS)
    types = {_type_of(half) for half in fp16_factors}
    if len(fp16_factors) == 2 and len(types) == 1:
        if _are_copied(fp16_factors, COPIED_TILES, _BOTH_WAYS, target):
            tiles = copied_tiles(target)
        else:
            tiles = (*FLOAT16_TILES, *_unpacking_tiles(fp16_factors, target))
        element = types.pop()
        return _planned(product, (*tiles, *_bulk_tiles(product, target, element)), element, target)
    if target.precision == "tf32" and not fp16_factors:
        return _planned(product, (*SINGLE_TILES, *_bulk_tiles(product, target, "float32")), "float32", target)
    return None


def _of_bytes(product: SumOfProducts, types: Collection[str], target: CudaTarget) -> _Plan | None:
    """Returns the plan of a product of integers, or of floats, of 8 bits; None if it is of other types."""
    factors = _multiplied(product, types)
    if len(factors) < 2 or not _are_copied(factors, BYTE_TILES, (True,), target):
        return None
    tuned = replace(target, device=target.gpu.for_float8) if _type_of(factors[0]) in FLOAT8 else target
    tiles = (*copied_byte_tiles(target), *_bulk_tiles(product, target, "int8"))
    return _planned(product, tiles, "int8", tuned)


def _planned(product: SumOfProducts, tiles: Sequence[AnyTile], element: str, target: CudaTarget) -> _Plan:
    """Returns the product by the best of some tiles, or by rectangles of pixels where these are faster.

    Args:
        element: the type of the operands in shared memory.
    """
    tiling = _tiling(product, target, tiles)
    by_rectangles = _by_rectangles(product, target, element)
    if by_rectangles is not None and is_faster(by_rectangles[1], tiling, target.gpu):
        rectangles, of_pixels = by_rectangles
        launch = partial(_bulk_launches(of_pixels.tile)[element], rectangles=rectangles)
        return _Plan(rectangles.product, of_pixels, launch)
    return _Plan(product, tiling, _launches(tiling.tile)[element])


def _by_rectangles(product: SumOfProducts, target: CudaTarget, element: str) -> tuple[Rectangles, Tiling] | None:
    """Returns the best rectangles of pixels that bulk copies fetch, and their tiles; None for other products."""
    tiles = [tile for tile in _tiles_of_boxes(product, target, element) if are_boxes_of_filters(product, tile)]
    pixels = pixels_of(product) if tiles else None
    if pixels is None:
        return None
    found = [
        (rectangles, _tiling(rectangles.product, target, [tile for tile in tiles if tile.rows == rows]))
        for rows in sorted({tile.rows for tile in tiles})
        if (rectangles := pixels.rectangles(rows)) is not None
    ]
    return min(found, key=lambda it: it[1].expected.cycles(target.gpu), default=None)


def is_faster(tiling: Tiling, than: Tiling, gpu: Gpu) -> bool:
    """Whether the model takes a tiling to be faster than another one, for size hints."""
    return tiling.expected.cycles(gpu) < than.expected.cycles(gpu)


def _tiling(product: SumOfProducts, target: CudaTarget, tiles: Sequence[AnyTile]) -> Tiling:
    sizes = (product.batch.size, product.rows.size, product.columns.size, product.depth.size)
    return choose_tiling(*sizes, target.gpu, tiles, product.moved_bytes)


def _multiplied(product: SumOfProducts, types: Collection[str]) -> list[Factor]:
    """Returns the operands that are converted from one of `types`, as they are before."""
    return [found for operand in product.operands if (found := as_multiplied(operand, types)) is not None]


def _type_of(operand: Factor) -> str:
    return str(operand.value.expr_ty().dtype)


def copied_tiles(target: CudaTarget) -> Sequence[AnyTile]:
    """Returns the tiles of 16-bit floats that threads copy, for all instructions that the target has."""
    return (*COPIED_TILES, *(warpgroup_tiles(target.gpu.architecture) if target.has_warpgroup_products else ()))


def copied_byte_tiles(target: CudaTarget) -> Sequence[AnyTile]:
    """Returns the same of bytes."""
    has_warpgroups = target.has_warpgroup_products
    return (*BYTE_TILES, *(warpgroup_tiles(target.gpu.architecture, 1) if has_warpgroups else ()))


def _unpacking_tiles(factors: Sequence[Factor], target: CudaTarget) -> Sequence[AnyTile]:
    """Returns the tiles of warpgroups for a product of a packed operand and one that is copied."""
    if not target.has_warpgroup_products:
        return ()
    for packed, other in (factors, reversed(factors)):
        packing = None if is_loaded(packed) else packing_of(packed, _LANES, _LANES, _LANES)
        if packing is not None and _are_copied((other,), COPIED_TILES, _BOTH_WAYS, target):
            return unpacking_tiles(target.gpu.architecture, packing.bits, unpacks_rows=packed is factors[0])
    return ()


def _bulk_tiles(product: SumOfProducts, target: CudaTarget, element: str) -> Sequence[AnyTile]:
    """Returns the tiles of the product that bulk copies fetch."""
    return _tiles_of_boxes(product, target, element) if are_boxed(product) else ()


def _tiles_of_boxes(product: SumOfProducts, target: CudaTarget, element: str) -> Sequence[BulkTile]:
    """Returns the tiles of bulk copies that the target has for a product.

    Copies round single precision, but do not convert other types to it. Tensor memory has no sums before the first
    product: it is not for a depth that may be 0.
    """
    size = element_bytes(element)
    if element == "float32" and _multiplied(product, EIGHT_BITS):
        return ()
    if target.has_warpgroup_products:
        return bulk_tiles(target.gpu.architecture, size)
    of_integers = product.accumulator == "int32"
    has_memory = target.has_tensor_memory_of_integers if of_integers else target.has_tensor_memory
    if has_memory and not may_exceed(1, product.depth.size):
        return tensor_memory_tiles(target.gpu.architecture, size)
    return ()


def _are_copied(
    factors: Sequence[Factor], tiles: Sequence[CopiedTile], ways: Sequence[bool], target: CudaTarget
) -> bool:
    """Whether tiles of both operands can be copied, 16 bytes at once, whichever of `tiles` is taken.

    Args:
        ways: whether the 16 bytes may be of neighbouring positions (False), of neighbouring depths (True).
    """
    fit = max(tile.shared_bytes for tile in tiles) <= target.max_shared_bytes
    if not fit or not all(map(is_loaded, factors)):
        return False
    positions, depths = min(tile.rows for tile in tiles), min(tile.depth for tile in tiles)
    lanes = LOAD_BYTES // tiles[0].element_bytes
    return all(any(lanes_along(factor, positions, depths, way, lanes) == lanes for way in ways) for factor in factors)


_MULTIPLY_SINGLE = """
__device__ __forceinline__ void nnefc_multiply_single(float *sums, const float *left, const float *right) {
  asm volatile (
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
      : "r"(__float_as_uint(left[0])), "r"(__float_as_uint(left[1])), "r"(__float_as_uint(left[2])),
        "r"(__float_as_uint(left[3])), "r"(__float_as_uint(right[0])), "r"(__float_as_uint(right[1])), "f"(sums[0]),
        "f"(sums[1]), "f"(sums[2]), "f"(sums[3]));
}
"""
_ROUND = """
__device__ __forceinline__ float nnefc_round_single(float value) {
  unsigned bits;
  asm volatile ("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}
"""


class _FragmentLaunch(TensorLaunch):
    """The part that all types of `mma.sync` share: fragments, one after another."""

    _depth: ClassVar[int]  # of one instruction
    _fragment: ClassVar[str]
    _padding: ClassVar[tuple[int, int]]  # of tiles that lie depth by depth, and position by position
    _multiplier: tuple[str, str]  # the name and the source of the instruction's function

    def __init__(self, product: SumOfProducts, tiling: Tiling, slices: tirx.Var | None) -> None:
        super().__init__(product, tiling, slices)
        self._left = self._nest.buffer("left_part", 4 * self._rows, self._fragment, "local")
        self._right = self._nest.buffer("right_part", 2 * self._columns, self._fragment, "local")

    def _side(self, operand: Factor, positions: int) -> OperandTile:
        tile, widest = self._tile, LOAD_BYTES // self._tile.element_bytes
        operand = as_multiplied(operand, FLOATS) or operand
        layout = PositionTile(operand, positions, tile.depth, widest, True, tile.threads, self._padding[1])
        if not is_loaded(operand) and (unpacked := unpacked_tile(layout)) is not layout:
            return unpacked
        across, along = (lanes_along(operand, positions, tile.depth, way, widest) for way in (False, True))
        if across > 1 or (along == 1 and not lies_along_depth(operand)):
            return OperandTile(operand, positions, tile.depth, across, False, tile.threads, self._padding[0])
        if tile.is_copied:
            return SwizzledTile(operand, positions, tile.depth, along, True, tile.threads, 0)
        return replace(layout, lanes=along)

    def multiply(self, thread: tirx.Expr, half: tirx.Expr) -> tirx.Stmt:
        """Returns the sums of a tile of the depth, from one half of the shared memory."""
        nest = self._nest
        row, column, _, _ = self._tile.position(thread)
        function, source = self._multiplier

        def one(i: tirx.Expr, j: tirx.Expr) -> tirx.Stmt:
            at = (i * number(self._columns) + j) * number(4)
            parts = ((self._sums, at), (self._left, i * number(4)), (self._right, j * number(2)))
            return tirx.Evaluate(
                cuda_func_call(
                    function, *(tirx.address_of(load(part, index)) for part, index in parts), source_code=source
                )
            )

        def step(index: tirx.Expr) -> tirx.Stmt:
            depth = index * number(self._depth)
            return sequence(
                self._read_left(thread, half, row, depth),
                self._read_right(thread, half, column, depth),
                nest.unrolled(self._rows, lambda i: nest.unrolled(self._columns, lambda j: one(i, j))),
            )

        return nest.unrolled(self._tile.depth // self._depth, step, "depth")

    @abstractmethod
    def _read_left(self, thread: tirx.Expr, half: tirx.Expr, row: tirx.Expr, depth: tirx.Expr) -> tirx.Stmt:
        """Fetches the warp's rows at a position of the depth."""

    @abstractmethod
    def _read_right(self, thread: tirx.Expr, half: tirx.Expr, column: tirx.Expr, depth: tirx.Expr) -> tirx.Stmt:
        """Fetches the warp's columns at a position of the depth."""


class _MatrixLaunch(_FragmentLaunch):
    """Operands of two bytes or one: fragments by `ldmatrix`, four blocks of 8 rows of 16 bytes at once."""

    _fragment = "uint32"
    _padding = (8, 8)

    def begin(self) -> tirx.Stmt:
        """Zeros, in the fragments too: TVM makes them as small as it sees them used, which it does not in assembly."""
        nest, zero = self._nest, tirx.const(0, self._fragment)
        return sequence(
            super().begin(),
            nest.unrolled(4 * self._rows, lambda i: store(self._left, zero, i)),
            nest.unrolled(2 * self._columns, lambda i: store(self._right, zero, i)),
        )

    def _read_left(self, thread: tirx.Expr, half: tirx.Expr, row: tirx.Expr, depth: tirx.Expr) -> tirx.Stmt:
        eighth, second, last = _of_lane(thread)  # blocks: rows 0 and 8, then the same for the second half of the depth
        side, half_depth = self._sides[0], number(self._depth // 2)

        def fragment(i: tirx.Expr) -> tirx.Stmt:
            position = row + i * number(ROWS)
            if side.tile.along_depth:
                at = (position + second * number(8) + eighth, depth + last * half_depth)
            else:
                at = (position + second * number(8), depth + last * half_depth + eighth)
            return self._read(side, half, *at, self._left, i * number(4))

        return self._nest.unrolled(self._rows, fragment)

    def _read_right(self, thread: tirx.Expr, half: tirx.Expr, column: tirx.Expr, depth: tirx.Expr) -> tirx.Stmt:
        eighth, second, last = _of_lane(thread)  # blocks: both halves of the depth, then those of the columns from 8 on
        side, half_depth = self._sides[1], number(self._depth // 2)

        def fragments(j: tirx.Expr) -> tirx.Stmt:
            position = column + j * number(2 * COLUMNS)
            if side.tile.along_depth:
                at = (position + last * number(8) + eighth, depth + second * half_depth)
            else:
                at = (position + last * number(8), depth + second * half_depth + eighth)
            return self._read(side, half, *at, self._right, j * number(4))

        return self._nest.unrolled(self._columns // 2, fragments)

    def _read(
        self,
        side: OperandTiles,
        half: tirx.Expr,
        position: tirx.Expr,
        depth: tirx.Expr,
        into: tirx.Var,
        at: tirx.Expr,
    ) -> tirx.Stmt:
        offset = self._nest.simplify(side.base(half) + side.tile.at(position, depth))
        return read_matrices(into, at, side.shared, offset, not side.tile.along_depth)


class _Float16Launch(_MatrixLaunch):
    """16-bit floats: 16 depths at once."""

    _depth = _HALF.depth
    _element = "float16"
    _multiplier = multiplier("f16")


class _BrainLaunch(_Float16Launch):
    """The same with bfloat16."""

    _element = "bfloat16"
    _multiplier = multiplier("bf16")


class _ByteLaunch(_MatrixLaunch):
    """Bytes and floats of 8 bits: 32 depths at once. In shared memory, which only instructions read, they are int8."""

    _depth = _BYTE.depth
    _element = "int8"

    def __init__(self, product: SumOfProducts, tiling: Tiling, slices: tirx.Var | None) -> None:
        left, right = map(_type_of, _multiplied(product, EIGHT_BITS))
        self._multiplier = byte_multiplier(left, right, product.accumulator)
        super().__init__(product, tiling, slices)

    def _side(self, operand: Factor, positions: int) -> OperandTile:
        tile, stored = self._tile, as_multiplied(operand, EIGHT_BITS)
        assert stored is not None
        return SwizzledTile(stored, positions, tile.depth, LOAD_BYTES, True, tile.threads, 0)


def _of_lane(thread: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
    """Returns the row that a thread addresses in a block of 8 by 8, and the block's position along both axes."""
    lane = tirx.floormod(thread, number(WARP))
    eighth = tirx.floormod(lane, number(8))
    return eighth, tirx.floormod(tirx.floordiv(lane, number(8)), number(2)), tirx.floordiv(lane, number(16))


class _SingleLaunch(_FragmentLaunch):
    """Single precision, rounded on the way to shared memory: 8 depths at once."""

    _depth = _SINGLE.depth
    _element = "float32"
    _fragment = "float32"
    _padding = (8, 4)
    _multiplier = ("nnefc_multiply_single", _MULTIPLY_SINGLE)

    def convert(self, registers: tirx.Var, count: int) -> tirx.Stmt:
        """Round, rather than cut off."""

        def one(index: tirx.Expr) -> tirx.Stmt:
            value = cuda_func_call(
                "nnefc_round_single", load(registers, index), source_code=_ROUND, return_type="float32"
            )
            return store(registers, value, index)

        return self._nest.unrolled(count, one)

    def _read_left(self, thread: tirx.Expr, half: tirx.Expr, row: tirx.Expr, depth: tirx.Expr) -> tirx.Stmt:
        _, _, group, pair = self._tile.position(thread)

        def one(i: tirx.Expr, later: tirx.Expr, lower: tirx.Expr) -> tirx.Stmt:
            position = row + i * number(ROWS) + lower * number(8) + group
            element = self._element_at(0, half, position, depth + later * number(4) + pair)
            return store(self._left, element, i * number(4) + later * number(2) + lower)

        nest = self._nest
        return nest.unrolled(
            self._rows, lambda i: nest.unrolled(2, lambda later: nest.unrolled(2, lambda lower: one(i, later, lower)))
        )

    def _read_right(self, thread: tirx.Expr, half: tirx.Expr, column: tirx.Expr, depth: tirx.Expr) -> tirx.Stmt:
        _, _, group, pair = self._tile.position(thread)

        def one(j: tirx.Expr, later: tirx.Expr) -> tirx.Stmt:
            position = column + j * number(COLUMNS) + group
            element = self._element_at(1, half, position, depth + later * number(4) + pair)
            return store(self._right, element, j * number(2) + later)

        nest = self._nest
        return nest.unrolled(self._columns, lambda j: nest.unrolled(2, lambda later: one(j, later)))

    def _element_at(self, which: int, half: tirx.Expr, position: tirx.Expr, depth: tirx.Expr) -> tirx.Expr:
        side = self._sides[which]
        return load(side.shared, self._nest.simplify(side.base(half) + side.tile.at(position, depth)))


_LAUNCHES: Mapping[str, type[TensorLaunch]] = {
    "float16": _Float16Launch,
    "bfloat16": _BrainLaunch,
    "int8": _ByteLaunch,
    "float32": _SingleLaunch,
}


def _launches(tile: AnyTile) -> Mapping[str, type[TensorLaunch]]:
    """Returns the launches of a tile by the type of the operands in shared memory."""
    if isinstance(tile, BulkTile):
        return _bulk_launches(tile)
    return WARPGROUP_LAUNCHES if isinstance(tile, WarpgroupTile) else _LAUNCHES


def _bulk_launches(tile: AnyTile) -> Mapping[str, type[BulkLaunch]]:
    """Returns the same of a tile that bulk copies fetch."""
    if isinstance(tile, PairTile):
        return PAIR_LAUNCHES
    return TENSOR_MEMORY_LAUNCHES if isinstance(tile, TensorMemoryTile) else BULK_LAUNCHES
