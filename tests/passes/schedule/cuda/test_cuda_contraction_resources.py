"""What kernels of contractions take of a GPU, at the sizes of well-known networks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import TARGET, Operation, kernels, lowered
from emulate import device_code
from tvm import relax, tirx
from tvm.relax import op

from nnefc.passes.compute.fp16_matmul import multiply_transposed
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.warp_tiles import BYTE_TILES, COPIED_TILES, FLOAT16_TILES, SINGLE_TILES, warpgroup_tiles
from nnefc.passes.schedule.gpu.contractions.analysis import product_of
from nnefc.passes.schedule.gpu.contractions.tiling import TILES, AnyTile, choose_tiling
from nnefc.targets.codegen.cuda.compiler import compile_image
from nnefc.targets.machine.gpu.devices import GPUS

Shapes = tuple[tuple[int, ...], ...]

REGISTERS = 64 << 10  # of a processor
RESNET = [  # rows, pixels and depth of convolutions of ResNet-50
    (64, 112 * 112, 147), (64, 56 * 56, 64), (64, 56 * 56, 576), (256, 56 * 56, 64), (128, 28 * 28, 1152),
    (512, 28 * 28, 128), (256, 14 * 14, 2304), (1024, 14 * 14, 256), (512, 7 * 7, 4608), (2048, 7 * 7, 512),
]  # fmt: skip


def convolution(channels: int, size: int, outputs: int, kernel: int, groups: int = 1) -> tuple[Operation, Shapes]:
    """A convolution of a batch of 8, and its operands' shapes."""
    pad = kernel // 2

    def operation(x: object, w: object, b: object) -> object:
        return op.nn.relu(op.add(op.nn.conv2d(x, w, padding=(pad, pad), groups=groups), b))

    shapes = ((8, channels, size, size), (outputs, channels // groups, kernel, kernel), (1, outputs, 1, 1))
    return operation, shapes


@pytest.mark.parametrize(
    ("operation", "shapes", "dtype", "precision"),
    [
        (*convolution(128, 28, 128, 3), "float32", "fp32"),
        (*convolution(256, 14, 1024, 1), "float32", "fp32"),
        (*convolution(96, 28, 96, 3, groups=96), "float32", "fp32"),
        (*convolution(128, 28, 128, 3), "float16", "fp16"),
        (lambda a, b, c: op.add(op.matmul(a, b), c), ((512, 768), (768, 3072), (3072,)), "float32", "tf32"),
        (lambda a, b, c: op.add(op.matmul(a, b), c), ((1, 2048), (2048, 1000), (1000,)), "float32", "fp32"),
    ],
    ids=["convolution", "pointwise", "depthwise", "half", "rounded", "vector"],
)
@pytest.mark.sample(3)
def test_nothing_spills_and_threads_find_room(operation: Operation, shapes: Shapes, dtype: str, precision: str) -> None:
    target = replace(TARGET, precision=precision)
    data, *constants = (np.zeros(shape, dtype) for shape in shapes)
    code = device_code(kernels(lowered(operation, [data], constants), target), target)
    threads = {launch.kernel: math.prod(launch.block) for launch in code.launches}
    for usage in compile_image(code.source, (80, 90)).usage:
        print(usage)
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert usage.shared_bytes <= TARGET.shared_bytes
        registers = usage.registers - (8 if "nnefc_is_last" in code.source else 0)  # for the sums of other slices
        assert registers * threads[usage.kernel] <= REGISTERS // (1 if precision == "fp16" else 2)


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


@pytest.mark.slow
def test_registers_hold_the_largest_tile_of_bytes() -> None:
    def dense(a: relax.Expr, b: relax.Expr) -> relax.Expr:
        sums = relax.BlockBuilder.current().emit_te(multiply_transposed, a, b, "int32")
        return op.astype(
            op.clip(op.round(op.multiply(op.astype(sums, "float32"), relax.const(0.01))), -128, 127), "int8"
        )

    data, weights = np.zeros((4096, 768), "int8"), np.zeros((3072, 768), "int8")
    code = device_code(kernels(lowered(dense, [data], [weights])), TARGET)
    (launch,) = code.launches
    assert launch.block == (128, 1, 1)  # four warps of 64 by 64
    for usage in compile_image(code.source, (80, 90)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert usage.registers * 128 <= REGISTERS // 2


@pytest.mark.slow
def test_registers_hold_the_largest_tile_of_floats_of_8_bits() -> None:
    """With a quantization to such floats, for all architectures that multiply them."""
    target = replace(TARGET, architectures=(89, 90, 100))

    def dense(a: relax.Expr, b: relax.Expr, scales: relax.Expr) -> relax.Expr:
        sums = relax.BlockBuilder.current().emit_te(multiply_transposed, a, b, "float32")
        return op.astype(op.nn.relu(op.multiply(sums, scales)), "float8_e4m3fn")

    data, weights = (np.zeros((size, 768), "float8_e4m3fn") for size in (4096, 3072))
    code = device_code(kernels(lowered(dense, [data], [weights, np.ones(3072, np.float32)]), target), target)
    assert [launch.block for launch in code.launches] == [(128, 1, 1)]  # four warps of 64 by 64
    for usage in compile_image(code.source, (89, 90, 100)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert usage.registers * 128 <= REGISTERS // 2


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_registers_hold_the_largest_tile_that_is_copied(dtype: str) -> None:
    def dense(a: object, b: object) -> object:
        return op.nn.relu(op.matmul(a, b, out_dtype="float32"))

    data, weights = np.zeros((4096, 768), dtype), np.zeros((768, 3072), dtype)
    code = device_code(kernels(lowered(dense, [data], [weights])), TARGET)
    (launch,) = code.launches
    assert launch.block == (128, 1, 1)  # four warps of 64 by 64
    assert launch.shared_bytes > TARGET.shared_bytes
    for usage in compile_image(code.source, (80, 90)).usage:
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert usage.registers * 128 <= REGISTERS // 2


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
