"""Products with a matrix that is quantized in blocks: many rows by warpgroups, and what is loaded at once."""

from __future__ import annotations

import re
from dataclasses import replace

import emulate
import ml_dtypes  # noqa: F401  # bfloat16 of NumPy
import numpy as np
import pytest
from contraction_cases import TARGET, assert_nearly_equal, execute, generated, machine_code
from emulate import EmulatedKernels, EmulationError
from packed_matrix import Matrix
from product_cases import choose_tile, emulate_portable

from nnefc.passes.schedule.cuda.warp_tiles import FLOAT16_TILES, UnpackingTile, unpacking_tiles
from nnefc.passes.schedule.gpu.contractions.tiling import choose_tiling
from nnefc.targets.machine.gpu.devices import GPUS

HOPPER = replace(TARGET, architectures=(90,), precision="fp16")
H200 = next(gpu for gpu in GPUS if gpu.name == "h200")


def tile_of(rows: int, columns: int, stages: int, bits: int) -> UnpackingTile:
    tiles = unpacking_tiles(H200.architecture, bits, unpacks_rows=False)
    return next(t for t in tiles if (t.rows, t.columns, t.stages) == (rows, columns, stages))


@pytest.mark.parametrize(
    ("tile", "sizes", "bits", "kind", "dtype", "slices"),
    [
        ((64, 64, 4), (70, 72, 328), 4, "scales", "float16", 1),
        ((128, 96, 3), (131, 104, 200), 8, "scales", "bfloat16", 1),
        ((128, 128, 3), (61, 129, 256), 4, "offsets", "float16", 1),
        ((128, 64, 4), (136, 67, 264), 2, "zeros", "float16", 1),
        ((64, 96, 4), (65, 72, 520), 4, "zeros", "bfloat16", 3),
        ((256, 64, 4), (264, 72, 64), 8, "floats", "float16", 1),
    ],
    ids=str,
)
@pytest.mark.sample(2)
def test_warpgroups_multiply_what_threads_unpack(
    tile: tuple[int, int, int],
    sizes: tuple[int, int, int],
    bits: int,
    kind: str,
    dtype: str,
    slices: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, columns, depth = sizes
    choose_tile(monkeypatch, tile_of(*tile, bits), slices)
    matrix = Matrix(depth, columns, bits, kind)
    given = matrix.operands(rows, dtype)
    result, rules = execute(matrix.product(dtype), given[:1], given[1:], HOPPER)
    rounded = matrix.elements.astype(np.float32).astype(dtype).astype(np.float64)
    assert_nearly_equal(result, given[0].astype(np.float64) @ rounded)
    assert rules == ["TensorCoreRule"]


@pytest.mark.slow
def test_other_architectures_multiply_the_same_tiles_by_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate_portable(monkeypatch)
    choose_tile(monkeypatch, tile_of(128, 64, 3, 4))
    matrix = Matrix(328, 72, 4, "scales")
    given = matrix.operands(136, "float16")
    result, _ = execute(matrix.product("float16"), given[:1], given[1:], HOPPER)
    assert_nearly_equal(result, given[0].astype(np.float64) @ matrix.elements.astype(np.float16).astype(np.float64))


MISTAKES = {
    "no fence of the proxies": ("fence.proxy.async.shared::cta;", "", r"no fence\.proxy\.async and barrier between"),
    "a tile that is overwritten too soon": (
        "wgmma.wait_group.sync.aligned 1;",
        "wgmma.wait_group.sync.aligned 2;",
        "operand of wgmma has changed",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
@pytest.mark.sample(1)
def test_the_emulator_finds_mistakes_in_the_order_of_unpacking(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    correct, wrong, message = MISTAKES[case]
    emulated = emulate.emulate

    def mistaken(source: str, *given: object, **options: object) -> EmulatedKernels:
        assert correct in source
        return emulated(source.replace(correct, wrong), *given, **options)

    monkeypatch.setattr(emulate, "emulate", mistaken)
    choose_tile(monkeypatch, tile_of(64, 64, 3, 4))
    matrix = Matrix(384, 64, 4, "scales")
    given = matrix.operands(64, "float16")
    with pytest.raises(EmulationError, match=message):
        execute(matrix.product("float16"), given[:1], given[1:], HOPPER)


@pytest.mark.parametrize(
    ("tile", "bits", "kind", "dtype"),
    [
        ((128, 128, 3), 4, "scales", "float16"),
        ((128, 256, 3), 4, "zeros", "bfloat16"),
        ((256, 128, 3), 8, "scales", "float16"),
        ((64, 64, 4), 2, "zeros", "float16"),
    ],
    ids=str,
)
@pytest.mark.sample(1)
def test_machine_code_unpacks_what_16_bytes_have(
    tile: tuple[int, int, int], bits: int, kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tile_of(*tile, bits)
    choose_tile(monkeypatch, own)
    matrix = Matrix(1024, 768, bits, kind)
    code = generated(matrix.product(dtype), matrix.operands(512, dtype), HOPPER, data=1)
    usage, portable = machine_code(code, 90)
    assert usage.registers <= own.registers + 40
    assert b"mma.sync.aligned.m16n8k16" in portable and b"wgmma" not in portable
    assert not re.search(rb"ld\.global\S*\.u8\s", portable), "bytes one by one"
    at_once = 4 if bits > 2 else 2  # a block of 2 bits has 8 bytes
    assert re.search(rb"ld\.global\S*\.v%d\.[ub]32\s" % at_once, portable)


def test_models_choose_warpgroups_for_many_rows() -> None:
    tiles = (*FLOAT16_TILES, *unpacking_tiles(H200.architecture, 4, unpacks_rows=False))
    chosen = [choose_tiling(1, rows, 4096, 4096, H200, tiles) for rows in (512, 2048)]
    assert all(isinstance(tiling.tile, UnpackingTile) for tiling in chosen)
    by_warps = [choose_tiling(1, rows, 4096, 4096, H200, FLOAT16_TILES) for rows in (512, 2048)]
    assert all(new.cycles(H200) < 0.6 * old.cycles(H200) for new, old in zip(chosen, by_warps, strict=True))
