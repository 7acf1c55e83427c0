"""Tiles of contractions on GPUs: that they fit a block, which ones the model chooses, bytes that products move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import TARGET, Operation, lowered
from tvm import tirx
from tvm.relax import op

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.warp_tiles import BYTE_TILES, COPIED_TILES, FLOAT16_TILES, SINGLE_TILES, warpgroup_tiles
from nnefc.passes.schedule.gpu.contractions.analysis import product_of
from nnefc.passes.schedule.gpu.contractions.tiling import TILES, AnyTile, choose_tiling
from nnefc.targets.machine.gpu.devices import GPUS

Shapes = tuple[tuple[int, ...], ...]

RESNET = [  # rows, pixels and depth of convolutions of ResNet-50
    (64, 112 * 112, 147), (64, 56 * 56, 64), (64, 56 * 56, 576), (256, 56 * 56, 64), (128, 28 * 28, 1152),
    (512, 28 * 28, 128), (256, 14 * 14, 2304), (1024, 14 * 14, 256), (512, 7 * 7, 4608), (2048, 7 * 7, 512),
]  # fmt: skip


@pytest.mark.parametrize("tile", [*TILES, *FLOAT16_TILES, *SINGLE_TILES], ids=str)
def test_every_tile_fits_a_block(tile: AnyTile) -> None:
    either = [max(tile.depth * (side + 8), side * (tile.depth + 8)) for side in (tile.rows, tile.columns)]
    assert 32 <= tile.threads <= TARGET.threads_per_block
    assert tile.threads % 32 == 0
    assert 2 * tile.element_bytes * sum(either) <= TARGET.shared_bytes


@pytest.mark.parametrize("tile", [*COPIED_TILES, *BYTE_TILES], ids=str)
def test_every_tile_that_is_copied_fits_a_block_of_every_device(tile: AnyTile) -> None:
    assert 32 <= tile.threads <= TARGET.threads_per_block
    assert tile.threads % 32 == 0
    assert tile.shared_bytes <= replace(TARGET, architectures=(86,)).max_shared_bytes


@pytest.mark.parametrize(("rows", "pixels", "depth"), RESNET)
@pytest.mark.parametrize("tiles", [TILES, FLOAT16_TILES], ids=["single", "half"])
def test_one_image_fills_a_device(rows: int, pixels: int, depth: int, tiles: tuple[AnyTile, ...]) -> None:
    tiling = choose_tiling(1, rows, pixels, depth, TARGET.gpu, tiles)
    assert tiling.blocks * tiling.tile.threads >= 48 * 128


def test_large_products_get_large_tiles_and_no_slices() -> None:
    tiling = choose_tiling(1, 4096, 4096, 4096, TARGET.gpu)
    assert tiling.tile.rows * tiling.tile.columns >= 64 * 128
    assert tiling.slices == 1


def test_slices_cover_the_depth() -> None:
    for depth in (1, 7, 63, 64, 65, 1000, 4608):
        tiling = choose_tiling(1, 64, 49, depth, TARGET.gpu)
        covered = tiling.slices * tiling.tiles_of_slice * tiling.tile.depth
        assert covered >= depth > (tiling.slices - 1) * tiling.tiles_of_slice * tiling.tile.depth


@pytest.mark.parametrize(
    ("operation", "shapes", "moved"),
    [
        (
            lambda x, w: op.nn.conv2d(x, w, padding=1),
            ((8, 16, 28, 28), (24, 16, 3, 3)),
            4 * (8 * 16 * 28 * 28 + 24 * 16 * 9 + 8 * 24 * 28 * 28),
        ),
        (
            lambda x, w: op.nn.conv2d(x, w, strides=2),
            ((8, 16, 28, 28), (24, 16, 1, 1)),
            4 * (8 * 16 * 14 * 14 + 24 * 16 + 8 * 24 * 14 * 14),
        ),
        (
            lambda a, b, c: op.add(op.matmul(a, b), c),
            ((32, 48), (48, 64), (32, 64)),
            4 * (32 * 48 + 48 * 64 + 2 * 32 * 64),
        ),
    ],
    ids=["windows that overlap", "a quarter of the pixels", "a residual"],
)
def test_products_move_what_they_use_once(operation: Operation, shapes: Shapes, moved: int) -> None:
    module = lowered(operation, [np.zeros(shape, np.float32) for shape in shapes])
    computations = [func for func in module.functions.values() if isinstance(func, tirx.PrimFunc)]
    products = [product_of(KernelAnalysis(func), TARGET) for func in computations]
    assert [product.moved_bytes for product in products if product is not None] == [moved]


H100 = next(gpu for gpu in GPUS if gpu.name == "h100")


def test_no_tiles_are_faster_than_memory() -> None:
    gpu = H100.for_float8
    tiles = (*BYTE_TILES, *warpgroup_tiles(gpu.architecture, element_bytes=1))
    moved = 1536 * (64 + 24576) + 2 * 64 * 24576
    for tile in tiles:
        for of_memory in (moved, 10 * moved):
            tiling = choose_tiling(1, 64, 24576, 1536, gpu, [tile], of_memory)
            assert tiling.cycles(gpu) >= of_memory / gpu.memory_bytes_per_cycle
            assert tiling.cycles(gpu) >= choose_tiling(1, 64, 24576, 1536, gpu, [tile]).cycles(gpu)


def test_memory_chooses_among_tiles_that_it_limits() -> None:
    tiles = (*COPIED_TILES, *warpgroup_tiles(H100.architecture))

    def chosen(rows: int, columns: int, depth: int, factor: int) -> tuple[int, int, int, int]:
        moved = 2 * (depth * (rows + columns) + rows * columns)
        found = choose_tiling(1, rows, columns, depth, H100, tiles, factor * moved)
        return found.tile.rows, found.tile.columns, found.slices, found.blocks

    assert chosen(4096, 4096, 4096, 0) == chosen(4096, 4096, 4096, 1)  # multiplication takes longer
    *_, slices, blocks = chosen(64, 7168, 16384, 1)
    assert slices == 1 and blocks <= H100.processors < 2 * blocks  # on all processors at once
    assert chosen(64, 7168, 16384, 0)[2] > 1
