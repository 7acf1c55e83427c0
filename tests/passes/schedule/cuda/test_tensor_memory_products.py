"""Products with sums in tensor memory: convolutions, dynamic sizes, and tiles for well-known sizes.

Results and machine code of matrix products are tested in `test_asynchronous_products.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import contraction_cases
import numpy as np
import pytest
from contraction_cases import TARGET, assert_nearly_equal, execute, kernels, lowered
from emulate import device_code, run_kernel
from emulated_networks import on_cuda
from onnx import helper, numpy_helper
from product_cases import DynamicProducts, choose_kind, multiply_deep
from test_pixel_boxes import CASES as CONVOLUTIONS
from test_pixel_boxes import by_rectangles
from tvm import tirx

import nnefc
from nnefc.passes.compute.vector_convolution import pack_vectors
from nnefc.passes.schedule.cuda import tensor_core
from nnefc.passes.schedule.cuda.pair_launch import PAIR_LAUNCHES
from nnefc.passes.schedule.cuda.tensor_memory_launch import TENSOR_MEMORY_LAUNCHES
from nnefc.passes.schedule.cuda.warp_tiles import COPIED_TILES, PairTile, TensorMemoryTile, tensor_memory_tiles
from nnefc.passes.schedule.gpu.contractions.tiling import Tiling, choose_tiling
from nnefc.targets.codegen.cuda.compiler import image_name
from nnefc.targets.codegen.cuda.device_functions import DeviceFunction
from nnefc.targets.machine.cuda.capabilities import SPECIFIC_FEATURES
from nnefc.targets.machine.gpu.devices import GPUS

BLACKWELL = replace(TARGET, architectures=(100,), precision="tf32")
B200 = next(gpu for gpu in GPUS if gpu.name == "b200")
TILES = tensor_memory_tiles(B200.architecture)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(
    "case",
    [
        "3x3, odd sizes, stride 2",
        "1x1, lines joined",
        "grouped bytes",
        "float8 of both types",
        "single, 3x3, stride 2",
        "single, grouped, dilated",
    ],
)
@pytest.mark.sample(2)
def test_convolutions_by_rectangles_of_pixels(case: str, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _, convolution = CONVOLUTIONS[case]
    by_rectangles(monkeypatch, 128, 64, blocks=blocks)
    x, filters = convolution.arrays()
    sources: list[str] = []

    def run(func: tirx.PrimFunc, *given: Any) -> DeviceFunction:
        sources.append(device_code([func], BLACKWELL).source)
        return run_kernel(func, *given)

    monkeypatch.setattr(contraction_cases, "run_kernel", run)
    found, _ = execute(convolution.build, [x], [pack_vectors(filters, convolution.lanes)], BLACKWELL)
    assert_nearly_equal(found, convolution.expected(x, filters))
    assert all("nnefc_multiply_into_memory" in source for source in sources)
    assert all(("__cluster_dims__(2, 1, 1)" in source) == (blocks == 2) for source in sources)


@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", -128), ("uint8", 128)])
def test_bytes_around_images_are_zeros_of_the_other_type(
    dtype: str, zero_point: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (2, 32, 9, 7), dtype, endpoint=True)
    w = rng.integers(-128, 128, (40, 32, 3, 3), np.int8)
    constants = [numpy_helper.from_array(np.asarray(a), n) for a, n in ((w, "w"), (np.asarray(zero_point, dtype), "z"))]
    given, result = (
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(of)), shape)
        for name, of, shape in (("x", dtype, x.shape), ("y", "int32", None))
    )
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 1, 1, 1])
    path = tmp_path / "network.onnx"
    graph = helper.make_graph([node], "g", [given], [result], constants)
    path.write_bytes(helper.make_model(graph, ir_version=10).SerializeToString())
    by_rectangles(monkeypatch, 128, 64, blocks=2)
    with on_cuda(precision="fp16", architectures=(100,)) as made, nnefc.compile(path).load() as model:
        found = model(x)
    assert "nnefc_multiply_into_memory_" in made[-1].code.kernels.source
    padded = np.pad(x.astype(np.int64) - zero_point, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    np.testing.assert_array_equal(found, np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64)))


@pytest.mark.parametrize("blocks", [1, 2])
def test_dynamic_rows_and_batches(blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    products = DynamicProducts(tmp_path)
    choose_kind(monkeypatch, TensorMemoryTile, blocks)
    with on_cuda(precision="fp16", architectures=(100,)) as made, nnefc.compile(products.path).load() as model:
        for n, m, h, s in ((1, 2, 1, 3), (2, 67, 3, 130), (1, 3, 0, 5)):
            products.check(model, n, m, h, s)
    assert made[-1].code.kernels.source.count("nnefc_free_sums_") >= 3  # the function, and two calls


@pytest.mark.parametrize(
    ("architectures", "has_memory", "of_integers"),
    [((100,), True, True), ((103,), True, False), ((100, 103), True, False), ((90, 100), False, False)],
)
def test_only_code_for_devices_with_tensor_memory_has_them(
    architectures: tuple[int, ...], has_memory: bool, of_integers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def choose(*sizes: int) -> Tiling:
        *of_product, gpu, tiles, moved_bytes = sizes
        found.append(any(isinstance(tile, TensorMemoryTile) for tile in tiles))
        return choose_tiling(*of_product, gpu, tiles, moved_bytes)

    monkeypatch.setattr(tensor_core, "choose_tiling", choose)
    target = replace(TARGET, architectures=architectures)
    for dtype in ("float8_e4m3fn", "int8"):
        kernels(lowered(multiply_deep, [np.zeros((96, 128), dtype), np.zeros((64, 128), dtype)]), target)
    assert found == [has_memory, of_integers]
    source = f"#if defined({SPECIFIC_FEATURES[100]}) || defined({SPECIFIC_FEATURES[103]})"
    assert [image_name(source, number) for number in (90, 100, 103, 120)] == ["90", "100a", "103a", "120"]


@pytest.mark.parametrize("size", [(2048, 2304, 768), (2048, 3072, 768), (4096, 4096, 4096)], ids=str)
def test_models_choose_them_for_large_products(size: tuple[int, int, int]) -> None:
    tiling = choose_tiling(1, *size, B200, (*COPIED_TILES, *TILES))
    assert isinstance(tiling.tile, TensorMemoryTile)
    assert tiling.cycles(B200) < 0.7 * choose_tiling(1, *size, B200, COPIED_TILES).cycles(B200)
    assert not isinstance(choose_tiling(1, 32, *size[1:], B200, (*COPIED_TILES, *TILES)).tile, TensorMemoryTile)


@pytest.mark.parametrize(("size", "part"), [((2048, 3072, 768), 0.75), ((4096, 4096, 4096), 0.7)], ids=str)
def test_models_choose_pairs_where_they_fetch_less(size: tuple[int, int, int], part: float) -> None:
    alone = [tile for tile in TILES if tile.blocks_of_cluster == 1]
    tiling = choose_tiling(1, *size, B200, TILES)
    assert isinstance(tiling.tile, PairTile)
    assert tiling.cycles(B200) < part * choose_tiling(1, *size, B200, alone).cycles(B200)


@pytest.mark.parametrize(
    ("size", "columns"), [((2048, 3072, 768), 352), ((8192, 768, 3072), 384), ((2048, 2304, 768), 256)], ids=str
)
def test_models_choose_columns_that_fill_the_processors(size: tuple[int, int, int], columns: int) -> None:
    assert choose_tiling(1, *size, B200, TILES).tile.columns == columns


def test_pairs_multiply_all_types_that_single_blocks_do() -> None:
    assert PAIR_LAUNCHES.keys() == TENSOR_MEMORY_LAUNCHES.keys()


def test_tiles_fit_tensor_memory() -> None:
    for tile in (*TILES, *tensor_memory_tiles(B200.architecture, element_bytes=1)):
        assert isinstance(tile, TensorMemoryTile)
        assert tile.rows == 128
        assert tile.columns % 32 == 0
        assert tile.columns <= tile.memory_columns <= 512 // tile.max_blocks(B200)
