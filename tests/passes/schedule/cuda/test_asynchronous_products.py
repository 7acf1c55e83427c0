"""Products of warpgroups and with sums in tensor memory: results on the emulator, and instructions of machine code."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from contraction_cases import TARGET, assert_nearly_equal, execute, generated, machine_code, random
from product_cases import choose_tile, emulate_portable, expected, multiplied, multiply_deep

from nnefc.passes.schedule.cuda.warp_tiles import (
    PairTile,
    TensorMemoryTile,
    WarpgroupTile,
    bulk_tiles,
    tensor_memory_tiles,
    warpgroup_tiles,
)
from nnefc.targets.codegen.cuda.compiler import Usage
from nnefc.targets.machine.cuda.capabilities import CAPABILITIES, default_gpu
from nnefc.targets.machine.cuda.target import CudaTarget

TILES = {
    "copied": warpgroup_tiles,
    "bulk": bulk_tiles,
    "memory": tensor_memory_tiles,
    "copied bytes": partial(warpgroup_tiles, element_bytes=1),
    "bulk bytes": partial(bulk_tiles, element_bytes=1),
    "memory bytes": partial(tensor_memory_tiles, element_bytes=1),
    "bulk single": partial(bulk_tiles, element_bytes=4),
    "memory single": partial(tensor_memory_tiles, element_bytes=4),
    "pair": tensor_memory_tiles,
    "pair bytes": partial(tensor_memory_tiles, element_bytes=1),
    "pair single": partial(tensor_memory_tiles, element_bytes=4),
}


@pytest.fixture
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WarpgroupTile:
    """The tile of a kind with so many rows, columns, stages and, if they are given, slices of the depth."""
    kind, rows, columns, stages, *slices = request.param
    tiles = TILES[kind](CAPABILITIES[100 if kind.startswith(("memory", "pair")) else 90].architecture)
    is_pair = kind.startswith("pair")
    found = next(
        t for t in tiles if (t.rows, t.columns, t.stages, isinstance(t, PairTile)) == (rows, columns, stages, is_pair)
    )
    choose_tile(monkeypatch, found, *slices)
    return found


def target_of(tile: WarpgroupTile) -> CudaTarget:
    """The architecture that has the tile's instruction, which may round float32."""
    return replace(TARGET, architectures=(100 if isinstance(tile, TensorMemoryTile) else 90,), precision="tf32")


@pytest.mark.parametrize(
    ("tile", "sizes", "transposed", "dtype"),
    [
        (("copied", 64, 64, 4), (70, 72, 328), (), "float16"),
        (("copied", 64, 96, 3), (61, 104, 136), (), "bfloat16"),
        (("copied", 128, 64, 3), (136, 67, 200), (0, 1), "float16"),
        (("copied", 128, 160, 4), (131, 168, 72), (), "float16"),
        (("copied", 128, 256, 3), (3, 129, 259, 64), (1,), "bfloat16"),
        (("copied", 256, 128, 4), (264, 136, 200), (0,), "float16"),
        (("copied", 64, 64, 4, 3), (2, 65, 72, 520), (1,), "float16"),
        (("bulk", 64, 96, 4), (70, 72, 328), (), "float16"),
        (("bulk", 128, 64, 3), (2, 136, 67, 264), (0, 1), "float16"),
        (("bulk", 256, 96, 4), (264, 104, 456), (1,), "bfloat16"),
        (("bulk", 256, 128, 3), (264, 136, 264), (), "float16"),
        (("memory", 128, 64, 4), (130, 72, 328), (), "float16"),
        (("memory", 128, 96, 3), (61, 104, 136), (1,), "bfloat16"),
        (("memory", 128, 128, 3), (2, 136, 131, 264), (0, 1), "float16"),
        (("memory", 128, 160, 6), (264, 168, 456), (0,), "bfloat16"),
        (("memory", 128, 256, 4), (3, 130, 264, 64), (1,), "float16"),
        (("pair", 128, 64, 4), (130, 72, 328), (), "float16"),
        (("pair", 128, 96, 6), (61, 104, 136), (1,), "bfloat16"),
        (("pair", 128, 128, 3), (2, 296, 131, 264), (0, 1), "float16"),
        (("pair", 128, 160, 4), (264, 168, 200), (0,), "bfloat16"),
        (("pair", 128, 256, 4), (2, 130, 264, 64), (1,), "float16"),
        (("pair", 128, 352, 5), (2, 130, 360, 136), (1,), "float16"),
        (("pair", 128, 352, 3), (264, 344, 200), (0,), "bfloat16"),
        (("pair", 128, 384, 4), (130, 712, 72), (), "float16"),
        (("pair single", 128, 288, 4), (131, 296, 100), (1,), "float32"),
        (("pair single", 128, 96, 3), (261, 136, 100), (1,), "float32"),
        (("bulk single", 64, 96, 4), (70, 104, 164), (1,), "float32"),
        (("bulk single", 128, 64, 3), (2, 136, 67, 100), (1,), "float32"),
        (("bulk single", 256, 128, 4), (264, 136, 228), (1,), "float32"),
        (("memory single", 128, 256, 4), (131, 264, 228), (1,), "float32"),
        (("memory single", 128, 96, 3), (2, 130, 104, 100), (1,), "float32"),
    ],
    ids=str,
    indirect=["tile"],
)
@pytest.mark.sample(3)
def test_tails_batches_and_epilogues(
    tile: WarpgroupTile, sizes: tuple[int, ...], transposed: tuple[int, ...], dtype: str
) -> None:
    operation, given = multiplied(sizes, transposed, dtype)
    result, rules = execute(operation, given[:3], given[3:], target_of(tile))
    assert_nearly_equal(result, expected(given, transposed))
    assert rules == ["TensorCoreRule"]


@pytest.mark.parametrize(
    ("tile", "types", "is_portable"),
    [
        (("copied bytes", 64, 96, 3, 2), ("uint8", "int8"), False),
        (("bulk bytes", 64, 64, 3), ("int8", "uint8"), False),
        (("memory bytes", 128, 64, 4), ("uint8", "int8"), False),
        (("copied bytes", 64, 64, 3), ("float8_e4m3fn", "float8_e5m2"), False),
        (("bulk bytes", 64, 64, 3), ("float8_e5m2", "float8_e4m3fn"), False),
        (("memory bytes", 128, 96, 3), ("float8_e5m2", "float8_e4m3fn"), False),
        (("pair bytes", 128, 64, 4), ("uint8", "int8"), False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (("bulk bytes", 128, 64, 3), ("int8", "int8"), True),
                (("copied bytes", 256, 128, 4), ("int8", "int8"), False),
                (("copied bytes", 128, 64, 3), ("int8", "uint8"), True),
                (("copied bytes", 128, 96, 4, 2), ("float8_e4m3fn", "float8_e4m3fn"), False),
                (("copied bytes", 128, 64, 3), ("float8_e5m2", "float8_e4m3fn"), True),
                (("memory bytes", 128, 128, 6), ("int8", "int8"), False),
                (("pair bytes", 128, 96, 6), ("int8", "int8"), True),
                (("pair bytes", 128, 320, 5), ("int8", "int8"), False),
                (("pair bytes", 128, 288, 4), ("float8_e5m2", "float8_e4m3fn"), True),
                (("pair bytes", 128, 160, 4), ("float8_e4m3fn", "float8_e5m2"), False),
                (("memory bytes", 128, 256, 4), ("float8_e4m3fn", "float8_e4m3fn"), False),
            )
        ),
    ],
    ids=str,
    indirect=["tile"],
)
def test_operands_of_8_bits(
    tile: WarpgroupTile, types: tuple[str, str], is_portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Integers are summed up exactly."""
    if is_portable:
        emulate_portable(monkeypatch)
    rng = np.random.default_rng(2)
    shapes = (tile.rows + 6, 336), (tile.columns + 8, 336)
    a, b = (random(rng, shape, dtype) for shape, dtype in zip(shapes, types, strict=True))
    result, rules = execute(multiply_deep, [a, b], target=target_of(tile))
    assert_nearly_equal(result, a.astype(np.float64) @ b.astype(np.float64).T)
    assert rules == ["TensorCoreRule"]


@pytest.mark.parametrize(
    ("tile", "dtype"),
    [
        (("copied", 128, 96, 4), "float16"),
        (("bulk", 64, 96, 3), "float16"),
        (("memory", 128, 96, 3), "float16"),
        (("pair", 128, 96, 3), "float16"),
        (("pair", 128, 352, 4), "float16"),
        (("bulk single", 64, 96, 3), "float32"),
        (("memory single", 128, 96, 3), "float32"),
        (("pair single", 128, 96, 3), "float32"),
    ],
    indirect=["tile"],
)
@pytest.mark.slow
def test_other_architectures_multiply_the_same_tiles_by_warps(
    tile: WarpgroupTile, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate_portable(monkeypatch)
    for transposed in ((), (0, 1)) if dtype == "float16" else ((1,),):
        operation, given = multiplied((136, 104, 200), transposed, dtype)
        result, _ = execute(operation, given[:3], given[3:], target_of(tile))
        assert_nearly_equal(result, expected(given, transposed))


def assert_fits(usage: Usage, tile: WarpgroupTile) -> None:
    """The registers are about the model's; with sums in tensor memory, the model's blocks have room for them."""
    if not isinstance(tile, TensorMemoryTile):
        assert usage.registers <= tile.registers + 40
        return
    device = default_gpu(100)
    registers = usage.registers * tile.launched_threads * tile.resident_blocks(device)
    assert registers <= device.architecture.registers_per_processor


@pytest.mark.parametrize(
    ("tile", "transposed"),
    [
        (("copied", 64, 64, 4), ()),
        (("copied", 128, 256, 4), ()),
        (("copied", 128, 192, 4), (0,)),
        (("copied", 256, 128, 4), (1,)),
        (("bulk", 64, 192, 4), (0, 1)),
        (("bulk", 128, 192, 4), ()),
        (("bulk", 256, 96, 4), (1,)),
        (("bulk", 128, 256, 4), (0,)),
        (("bulk", 256, 128, 4), ()),
        (("memory", 128, 64, 4), ()),
        (("memory", 128, 192, 4), (0,)),
        (("memory", 128, 256, 4), (0, 1)),
        (("memory", 128, 160, 3), (1,)),
        (("pair", 128, 256, 6), ()),
        (("pair", 128, 96, 8), (0, 1)),
        (("pair", 128, 352, 5), ()),
        (("pair", 128, 384, 5), (1,)),
    ],
    indirect=["tile"],
    ids=str,
)
@pytest.mark.sample(2)
def test_machine_code_has_the_products_and_spills_nothing(tile: WarpgroupTile, transposed: tuple[int, ...]) -> None:
    operation, given = multiplied((512, 768, 1024), transposed, "float16")
    target = target_of(tile)
    code = generated(operation, given, target, data=3)
    (launch,) = code.launches
    assert (math.prod(launch.block), launch.shared_bytes) == (tile.launched_threads, tile.shared_bytes)
    usage, portable = machine_code(code, target.oldest)
    assert_fits(usage, tile)
    if isinstance(tile, TensorMemoryTile):
        assert f"__launch_bounds__({tile.launched_threads}, {tile.resident_blocks(default_gpu(100))})" in code.source
    assert b"wgmma" not in portable and b"tcgen05" not in portable
    assert b"mma.sync.aligned.m16n8k16" in portable


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tile", "types", "instruction"),
    [
        *(
            (tile, types, instruction)
            for tile in (
                ("copied bytes", 128, 256, 4),
                ("copied bytes", 256, 128, 4),
                ("bulk bytes", 128, 64, 3),
                ("memory bytes", 128, 256, 4),
                ("pair bytes", 128, 256, 6),
            )
            for types, instruction in (
                (("int8", "uint8"), b"m16n8k32.row.col.s32.s8.u8.s32"),
                (("float8_e4m3fn", "float8_e5m2"), b"m16n8k32.row.col.f32.e4m3.e5m2.f32"),
            )
        ),
        *(
            (tile, ("float32", "float32"), b"m16n8k8.row.col.f32.tf32.tf32.f32")
            for tile in (
                ("bulk single", 64, 192, 4),
                ("bulk single", 128, 256, 4),
                ("bulk single", 256, 128, 4),
                ("memory single", 128, 256, 4),
                ("pair single", 128, 256, 4),
            )
        ),
    ],
    ids=str,
    indirect=["tile"],
)
def test_machine_code_of_deep_operands_has_the_products_and_spills_nothing(
    tile: WarpgroupTile, types: tuple[str, str], instruction: bytes
) -> None:
    given = [np.zeros((size, 1024), dtype) for size, dtype in zip((512, 768), types, strict=True)]
    target = target_of(tile)
    usage, portable = machine_code(generated(multiply_deep, given, target), target.oldest)
    assert_fits(usage, tile)
    assert b"mma.sync.aligned." + instruction in portable
