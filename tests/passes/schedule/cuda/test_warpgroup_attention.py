"""Attention by warpgroups, against NumPy in float64; its choice, its machine code, and code for newer devices."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from attention_kernels import TARGET, TOLERANCES, Case, assert_close
from emulate import device_code
from product_cases import emulate_portable

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda import tensor_core_attention
from nnefc.passes.schedule.cuda.tensor_core_attention import attention_tiles
from nnefc.passes.schedule.cuda.warpgroup_attention import WarpgroupAttentionTile
from nnefc.passes.schedule.gpu.attention.analysis import attention_of
from nnefc.passes.schedule.gpu.attention.tiles import AttentionTile, choose_tile
from nnefc.targets.codegen.cuda.compiler import find_compiler

HOPPER = replace(TARGET, architectures=(90,))


def choose(monkeypatch: pytest.MonkeyPatch, queries: int, keys: int) -> None:
    """Makes the rule take the tile of warpgroups of so many queries and keys."""

    def chosen(attention: object, tiles: list[AttentionTile], target: object) -> AttentionTile:
        return next(
            tile
            for tile in tiles
            if isinstance(tile, WarpgroupAttentionTile) and (tile.queries, tile.keys) == (queries, keys)
        )

    monkeypatch.setattr(tensor_core_attention, "choose_tile", chosen)


CASES = [
    (Case(70, 150, 64, heads=1, mask="causal", dtype="bfloat16"), (64, 64)),
    (Case(150, 150, 64, mask="window", heads=1), (128, 64)),
    (Case(70, 90, 40, width=24, mask="causal"), (64, 64)),
    (Case(20, 70, 256, heads=1, mask="added"), (64, 64)),
    (Case(77, 1, 64), (64, 128)),
    (Case(130, 300, 80, width=96, heads=1), (64, 128)),
    (Case(20, 145, 64, stored="float32", heads=4, sharing=2), (64, 64)),
    (Case(18, 19, 7, width=5), (64, 64)),
    (Case(50, 512, 64, heads=1, mask="window", window=200), (64, 128)),
    (Case(200, 130, 96, width=32, heads=1), (192, 64)),
    (Case(100, 30, 64, mask="causal", heads=1), (64, 64)),  # queries of the first tile see no key
    (Case(30, 140, 16, mask="added", hides_row=True), (64, 64)),
]


@pytest.mark.parametrize(("case", "tile"), CASES, ids=str)
@pytest.mark.sample(2)
def test_attention_is_what_numpy_computes(case: Case, tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, *tile)
    result, expected, rule = case.run(HOPPER)
    assert_close(result, expected, TOLERANCES[case.dtype])
    assert rule == "TensorCoreAttentionRule"


@pytest.mark.parametrize(("case", "tile"), CASES[:4], ids=str)
@pytest.mark.sample(1)
def test_newer_devices_multiply_by_warps(case: Case, tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, *tile)
    emulate_portable(monkeypatch)
    result, expected, _ = case.run(HOPPER)
    assert_close(result, expected, TOLERANCES[case.dtype])


@pytest.mark.parametrize(
    ("case", "tile"),
    [
        (Case(512, 512, 64, heads=12), (128, 128)),
        (Case(512, 512, 96, heads=12, mask="window"), (192, 64)),
        (Case(512, 512, 192, heads=12, mask="added"), (128, 64)),
        (Case(512, 512, 128, heads=12, mask="causal"), (128, 128)),
        (Case(512, 512, 256, heads=12, mask="added"), (128, 64)),
    ],
    ids=str,
)
@pytest.mark.sample(1)
def test_products_are_not_serialized_and_nothing_spills(
    case: Case, tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, *tile)
    source = device_code([case.scheduled(HOPPER)], HOPPER).source
    for architecture in ("90a", "100"):
        _, log = find_compiler().cubin(source, architecture)
        assert "C7510" not in log, "wgmma that ptxas serializes"
        assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", log) == [("0", "0", "0")]


def test_only_code_for_one_architecture_has_them() -> None:
    attention = attention_of(KernelAnalysis(Case(512, 512, 64).kernel()), HOPPER)
    assert attention is not None
    has = [
        any(isinstance(tile, WarpgroupAttentionTile) for tile in attention_tiles(attention, target))
        for target in (HOPPER, TARGET)
    ]
    assert has == [True, False]


@pytest.mark.parametrize(("size", "keys"), [(64, 512), (128, 4096)])
def test_models_choose_warpgroups_for_many_queries(size: int, keys: int) -> None:
    attention = attention_of(KernelAnalysis(Case(512, keys, size, heads=96).kernel()), HOPPER)
    assert attention is not None
    tiles = attention_tiles(attention, HOPPER)
    of_warps = [tile for tile in tiles if not isinstance(tile, WarpgroupAttentionTile)]
    chosen, other = (choose_tile(attention, each, HOPPER) for each in (tiles, of_warps))
    assert isinstance(chosen, WarpgroupAttentionTile) and other is not None
    cycles = [tile.cycles(192, 512, keys, HOPPER.gpu) for tile in (chosen, other)]
    assert cycles[0] < 0.7 * cycles[1]
