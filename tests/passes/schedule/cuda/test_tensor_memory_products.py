"""Products with sums in tensor memory: results on the emulator, tiles for well-known sizes, machine code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import contraction_cases
import emulate
import numpy as np
import onnx
import pytest
from contraction_cases import TARGET, execute, kernels, lowered, random
from emulate import device_code, run_kernel
from emulated_networks import on_cuda
from test_pixel_boxes import CASES as CONVOLUTIONS
from test_pixel_boxes import by_rectangles
from test_warpgroup_products import expected, multiplied, multiply_bytes
from tvm import tirx

import nnefc
from nnefc.passes.compute.vector_convolution import pack_vectors
from nnefc.passes.schedule.cuda import tensor_core
from nnefc.passes.schedule.cuda.tiling import AnyTile, Tiling, choose_tiling
from nnefc.passes.schedule.cuda.warp_tiles import COPIED_TILES, TensorMemoryTile, tensor_memory_tiles
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler, image_name
from nnefc.targets.codegen.cuda.kernels import DeviceFunction
from nnefc.targets.machine.cuda.gpus import GPUS, SPECIFIC_FEATURES, Gpu

BLACKWELL = replace(TARGET, architectures=(100,))
B200 = next(gpu for gpu in GPUS if gpu.name == "b200")
TILES = tensor_memory_tiles(B200.capability)


@pytest.fixture
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TensorMemoryTile:
    """The tile of so many columns and stages, chosen for every product; further parameters say that it is of bytes."""
    columns, stages, *kinds = request.param
    tiles = tensor_memory_tiles(B200.capability, "bytes" in kinds)
    found = next(tile for tile in tiles if (tile.columns, tile.stages) == (columns, stages))
    assert isinstance(found, TensorMemoryTile)

    def choose(
        batch: int, rows: int, columns: int, depth: int, _gpu: Gpu, tiles: Sequence[AnyTile], _moved_bytes: int
    ) -> Tiling:
        assert found in tiles
        return Tiling(found, batch, rows, columns, depth, 1)

    monkeypatch.setattr(tensor_core, "choose_tiling", choose)
    return found


@pytest.mark.parametrize(
    ("tile", "sizes", "transposed", "dtype"),
    [
        ((64, 4), (130, 72, 328), (), "float16"),
        ((96, 3), (61, 104, 136), (1,), "bfloat16"),
        ((128, 3), (2, 136, 131, 264), (0, 1), "float16"),
        ((160, 6), (264, 168, 456), (0,), "bfloat16"),
        ((256, 4), (3, 130, 264, 64), (1,), "float16"),
    ],
    ids=str,
    indirect=["tile"],
)
@pytest.mark.sample(2)
def test_tails_batches_and_epilogues(
    tile: TensorMemoryTile, sizes: tuple[int, ...], transposed: tuple[int, ...], dtype: str
) -> None:
    operation, given = multiplied(sizes, transposed, dtype)
    result, rules = execute(operation, given[:3], given[3:], BLACKWELL)
    wanted = expected(given, transposed)
    assert np.abs(result - wanted).max() <= 2e-6 * np.abs(wanted).max()
    assert rules == ["TensorCoreRule"]


@pytest.mark.parametrize(
    ("tile", "types"),
    [
        ((64, 4, "bytes"), ("uint8", "int8")),
        ((96, 3, "bytes"), ("float8_e5m2", "float8_e4m3fn")),
        pytest.param((128, 6, "bytes"), ("int8", "int8"), marks=pytest.mark.slow),
        pytest.param((256, 4, "bytes"), ("float8_e4m3fn", "float8_e4m3fn"), marks=pytest.mark.slow),
    ],
    ids=str,
    indirect=["tile"],
)
def test_operands_of_8_bits(tile: TensorMemoryTile, types: tuple[str, str]) -> None:
    rng = np.random.default_rng(2)
    shapes = (tile.rows + 6, 336), (tile.columns + 8, 336)
    a, b = (random(rng, shape, dtype) for shape, dtype in zip(shapes, types, strict=True))
    result, rules = execute(multiply_bytes, [a, b], target=BLACKWELL)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    limit = 0 if result.dtype == np.int32 else 2e-6 * np.abs(wanted).max()
    assert np.abs(result - wanted).max() <= limit
    assert rules == ["TensorCoreRule"]


@pytest.mark.parametrize("tile", [(96, 3)], indirect=True)
@pytest.mark.slow
def test_other_architectures_have_the_sums_in_registers(
    tile: TensorMemoryTile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulate, "emulate", _emulate_portable)
    for transposed in ((), (0, 1)):
        operation, given = multiplied((136, 104, 200), transposed, "float16")
        result, _ = execute(operation, given[:3], given[3:], BLACKWELL)
        wanted = expected(given, transposed)
        assert np.abs(result - wanted).max() <= 2e-6 * np.abs(wanted).max()


_EMULATE = emulate.emulate


def _emulate_portable(source: str, *given: Any, **options: Any) -> emulate.EmulatedKernels:
    """Emulates code as for other architectures."""
    assert SPECIFIC_FEATURES[100] in source
    for macro in SPECIFIC_FEATURES.values():
        source = source.replace(macro, "NO_SUCH_FEATURES")
    return _EMULATE(source, *given, **options)


@pytest.mark.parametrize(
    ("tile", "transposed"),
    [((64, 4), ()), ((192, 4), (0,)), ((256, 4), (0, 1)), ((160, 3), (1,))],
    indirect=["tile"],
    ids=str,
)
@pytest.mark.sample(1)
def test_machine_code_has_the_products_and_spills_nothing(tile: TensorMemoryTile, transposed: tuple[int, ...]) -> None:
    operation, given = multiplied((512, 768, 1024), transposed, "float16")
    code = device_code(kernels(lowered(operation, given[:3], given[3:]), BLACKWELL), BLACKWELL)
    (launch,) = code.launches
    assert (math.prod(launch.block), launch.shared_bytes) == (tile.launched_threads, tile.shared_bytes)
    compiler = find_compiler()
    image = compile_image(code.source, (100,), compiler)
    (usage,) = image.usage
    assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
    assert usage.registers <= tile.registers
    portable = compiler.ptx(code.source, 100)
    assert b"tcgen05" not in portable
    assert b"mma.sync.aligned.m16n8k16" in portable


@pytest.mark.slow
@pytest.mark.parametrize("tile", [(256, 4, "bytes")], indirect=True)
@pytest.mark.parametrize("types", [("int8", "uint8"), ("float8_e4m3fn", "float8_e5m2")])
def test_machine_code_of_8_bits_spills_nothing(tile: TensorMemoryTile, types: tuple[str, str]) -> None:
    given = [np.zeros((size, 1024), dtype) for size, dtype in zip((512, 768), types, strict=True)]
    code = device_code(kernels(lowered(multiply_bytes, given), BLACKWELL), BLACKWELL)
    (usage,) = compile_image(code.source, (100,), find_compiler()).usage
    assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
    assert usage.registers <= tile.registers


@pytest.mark.parametrize(
    "case", ["3x3, odd sizes, stride 2", "1x1, lines joined", "grouped bytes", "float8 of both types"]
)
@pytest.mark.sample(1)
def test_convolutions_by_rectangles_of_pixels(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, convolution = CONVOLUTIONS[case]
    by_rectangles(monkeypatch, 128, 64)
    x, filters = convolution.arrays()
    sources: list[str] = []

    def run(func: tirx.PrimFunc, *given: Any) -> DeviceFunction:
        sources.append(device_code([func], BLACKWELL).source)
        return run_kernel(func, *given)

    monkeypatch.setattr(contraction_cases, "run_kernel", run)
    found, _ = execute(convolution.build, [x], [pack_vectors(filters, convolution.lanes)], BLACKWELL)
    wanted = convolution.expected(x, filters)
    assert np.abs(found - wanted).max() <= (0 if convolution.dtype == "int8" else 2e-6 * np.abs(wanted).max())
    assert all("nnefc_multiply_into_memory" in source for source in sources)


def choose_memory(*sizes: int) -> Tiling:
    """The best tile with sums in tensor memory."""
    *of_product, gpu, tiles, moved_bytes = sizes
    return choose_tiling(*of_product, gpu, [t for t in tiles if isinstance(t, TensorMemoryTile)], moved_bytes)


def test_dynamic_rows_and_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(3).standard_normal((128, 72)).astype(np.float16) / 8
    types = {"x": ["n", "m", 128], "a": ["h", "s", 64], "b": ["h", 64, 72], "y": None, "z": None}
    x, a, b, y, z = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, s) for n, s in types.items())
    nodes = [onnx.helper.make_node("MatMul", names, [to]) for names, to in ((("x", "w"), "y"), (("a", "b"), "z"))]
    graph = onnx.helper.make_graph(nodes, "g", [x, a, b], [y, z], [onnx.numpy_helper.from_array(weight, "w")])
    path = tmp_path / "network.onnx"
    path.write_bytes(onnx.helper.make_model(graph, ir_version=10).SerializeToString())
    monkeypatch.setattr(tensor_core, "choose_tiling", choose_memory)
    with on_cuda(precision="fp16", architectures=(100,)) as made, nnefc.compile(path).load() as model:
        rng = np.random.default_rng(3)
        for n, m, h, s in ((1, 2, 1, 3), (2, 67, 3, 130), (1, 3, 0, 5)):
            given = [rng.standard_normal(shape).astype(np.float16) for shape in ((n, m, 128), (h, s, 64), (h, 64, 72))]
            found = model(*given)
            wide = [x.astype(np.float64) for x in given]
            wanted = wide[0] @ weight.astype(np.float64), wide[1] @ wide[2]
            for result, correct in zip(found, wanted, strict=True):
                assert np.abs(result - correct).max(initial=0) <= 1e-3 * np.abs(correct).max(initial=0)
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
        kernels(lowered(multiply_bytes, [np.zeros((96, 128), dtype), np.zeros((64, 128), dtype)]), target)
    assert found == [has_memory, of_integers]
    source = f"#if defined({SPECIFIC_FEATURES[100]}) || defined({SPECIFIC_FEATURES[103]})"
    assert [image_name(source, number) for number in (90, 100, 103, 120)] == ["90", "100a", "103a", "120"]


@pytest.mark.parametrize("size", [(2048, 2304, 768), (2048, 3072, 768), (4096, 4096, 4096)], ids=str)
def test_models_choose_them_for_large_products(size: tuple[int, int, int]) -> None:
    tiling = choose_tiling(1, *size, B200, (*COPIED_TILES, *TILES))
    assert isinstance(tiling.tile, TensorMemoryTile)
    assert tiling.cycles(B200) < 0.7 * choose_tiling(1, *size, B200, COPIED_TILES).cycles(B200)
    assert not isinstance(choose_tiling(1, 32, *size[1:], B200, (*COPIED_TILES, *TILES)).tile, TensorMemoryTile)


def test_tiles_fit_tensor_memory() -> None:
    for tile in (*TILES, *tensor_memory_tiles(B200.capability, of_bytes=True)):
        assert isinstance(tile, TensorMemoryTile)
        assert tile.rows == 128
        assert tile.columns % 32 == 0
        assert tile.columns <= tile.memory_columns <= 512 // tile.max_blocks(B200)
