"""Products of warpgroups: tiles for well-known sizes, and tensor maps of the operands that bulk copies fetch.

Results and machine code are tested in `test_asynchronous_products.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contraction_cases import TARGET, Operation, assert_nearly_equal, execute, kernels, lowered, random
from emulated_networks import on_cuda
from fake_driver import FakeDriver
from product_cases import DynamicProducts, choose_kind
from small_networks import Net
from tvm import relax, te, tirx

import nnefc
from nnefc.ir.tensor_maps import TensorMap
from nnefc.loader import RunError
from nnefc.passes.schedule.cuda import tensor_core
from nnefc.passes.schedule.cuda.warp_tiles import COPIED_TILES, BulkTile, WarpgroupTile, bulk_tiles, warpgroup_tiles
from nnefc.passes.schedule.gpu.contractions.tiling import Tiling, choose_tiling
from nnefc.targets.codegen.cuda.compiler import image_name
from nnefc.targets.codegen.cuda.device_functions import EncodedMap
from nnefc.targets.machine.cuda.capabilities import SPECIFIC_FEATURES
from nnefc.targets.machine.gpu.devices import GPUS

HOPPER = replace(TARGET, architectures=(90,))
H200 = next(gpu for gpu in GPUS if gpu.name == "h200")
TILES = warpgroup_tiles(H200.architecture)
TILES_OF_BYTES = warpgroup_tiles(H200.architecture, element_bytes=1)


@pytest.mark.slow
def test_convolutions_are_products_of_warpgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(seed=1)
    x = net.floats(2, 16, 9, 7)
    y = net.do("Relu", net.do("Conv", x, net.weight(24, 16, 3, 3), net.weight(24), pads=[1, 1, 1, 1]))
    z = net.do("Add", y, net.do("Conv", y, net.weight(24, 24, 3, 3), pads=[1, 1, 1, 1]))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([z]).SerializeToString())
    (wanted,) = nnefc.compile(path).run(net.inputs).values()

    choose_kind(monkeypatch, WarpgroupTile)
    with on_cuda(precision="fp16", architectures=(90,)) as made:
        (found,) = nnefc.compile(path).run(net.inputs).values()
    assert made[-1].code.kernels.source.count("nnefc_begin_products_") >= 3  # the function, and two calls
    assert np.abs(found - wanted).max() < 4e-3 * np.abs(wanted).max()


def test_libraries_encode_tensor_maps_for_the_addresses_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net(seed=2)
    rng = np.random.default_rng(2)
    x, weight = (rng.standard_normal(shape).astype(np.float16) / 8 for shape in ((72, 128), (128, 128)))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([net.do("MatMul", net.given(x), net.constant(weight))]).SerializeToString())

    choose_kind(monkeypatch, BulkTile)
    with on_cuda(precision="fp16", architectures=(90,)) as made, nnefc.compile(path).load() as model:
        driver = FakeDriver.install()
        driver.fail(1, 1, "cuTensorMapEncodeTiled")
        with pytest.raises(RunError, match=r"describing a tensor to the GPU \(cuTensorMapEncodeTiled\)"):
            model(x)
        driver.clear()
        results = [model(x, out="device")]
        for _ in range(2):
            results.append(model(results[-1], out="device"))  # other addresses
        again = [model(x) for _ in range(3)]  # launches, then a graph
        encoded = driver.names.count("cuTensorMapEncodeTiled")
        found = [result.numpy() for result in results]
        del results  # which have memory of the device
    (launch,) = made[-1].code.kernels.launches
    maps = [each for each in launch.arguments if isinstance(each, EncodedMap)]
    assert [each.sizes for each in maps] == [(128, 72, 1), (128, 128, 1)]
    assert encoded <= 2 * 5
    wanted = x.astype(np.float64)
    for result in found:
        wanted = wanted @ weight.astype(np.float64)
        assert np.abs(result - wanted).max() < 4e-3 * np.abs(wanted).max()
    assert all(np.array_equal(result, found[0]) for result in again)


def test_tensor_maps_of_dynamic_sizes_are_encoded_for_those_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = DynamicProducts(tmp_path)
    choose_kind(monkeypatch, BulkTile)
    with on_cuda(precision="fp16", architectures=(90,)) as made, nnefc.compile(products.path).load() as model:
        driver = FakeDriver.install()
        for n, m, h, s in ((1, 2, 1, 3), (2, 37, 3, 70), (1, 3, 0, 5)):
            driver.clear()
            products.check(model, n, m, h, s)
            assert driver.names.count("cuTensorMapEncodeTiled") == 2 + 2 * (h > 0)
    maps = [
        each for launch in made[-1].code.kernels.launches for each in launch.arguments if isinstance(each, EncodedMap)
    ]
    sizes = {tuple(map(str, each.sizes)) for each in maps}
    assert sizes == {
        ("128", "(size0 * size1)", "1"),
        ("72", "128", "1"),
        ("64", "size1", "size0"),
        ("72", "64", "size0"),
    }


def test_heads_within_rows_are_the_second_dimension_of_tensor_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, made = np.random.default_rng(4), []

    def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, 64), "k")
        return te.compute(
            (3, 67, 72),
            lambda h, i, j: te.sum(a[i, h + 1, k].astype("float32") * b[h, k, j].astype("float32"), axis=k),
        )

    def called(tensor_map: TensorMap, first: tirx.Expr) -> tirx.Expr:
        made.append(tensor_map)
        return call(tensor_map, first)

    call = TensorMap.call
    monkeypatch.setattr(TensorMap, "call", called)
    choose_kind(monkeypatch, BulkTile)
    x, weight = (random(rng, shape).astype(np.float16) for shape in ((67, 5, 64), (3, 64, 72)))
    found, _ = execute(lambda a, b: relax.BlockBuilder.current().emit_te(product, a, b), [x, weight], [], HOPPER)
    assert_nearly_equal(found, x.astype(np.float64).swapaxes(0, 1)[1:4] @ weight.astype(np.float64))
    assert {(of.sizes, of.strides) for of in made} == {((64, 3, 67), (64, 320)), ((72, 64, 3), (72, 72 * 64))}
    assert {of.box[1:].index(1) for of in made} == {0, 1}, "of a box that is one head wide"


@pytest.mark.parametrize(
    ("sizes", "strides", "box", "result"),
    [
        ((64, 3, 67), (128, 384), (64, 1, 64), 0),
        ((64, 67, 3), (384, 128), (64, 64, 1), 1),  # the batch within the rows
        ((64, 67, 3), (384, 400 * 64), (64, 64, 1), 1),  # no multiple
        ((64, 67, 3), (120, 120 * 67), (64, 64, 1), 1),  # rows that overlap, and lie between vectors
        ((64, 67, 3), (112, 112 * 67), (64, 64, 1), 1),  # rows that overlap
        ((64, 67, 3), (128, 128 * 66), (64, 64, 1), 1),  # matrices that overlap
        ((64, 67, 3), (128, 1 << 40), (64, 64, 1), 1),
        ((64, 67, 0), (128, 128 * 67), (64, 64, 1), 1),
        ((64, 67, 3), (128, 128 * 67), (64, 264, 1), 1),
        ((64, 67, 3), (128, 128 * 67), (72, 64, 1), 1),  # rows longer than the swizzle
    ],
    ids=str,
)
def test_the_stand_in_for_the_driver_refuses_tensors_that_no_map_has(
    sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], result: int
) -> None:
    driver, given = FakeDriver.install(), (ctypes.c_uint8 * 256)()
    address = ctypes.addressof(given) // 64 * 64 + 64
    arrays = ((ctypes.c_uint64 * 3)(*sizes), (ctypes.c_uint64 * 2)(*strides), (ctypes.c_uint32 * 3)(*box))
    with driver.context():
        tensor = ctypes.c_void_p(4096)
        encoded = driver.dll.cuTensorMapEncodeTiled(
            ctypes.c_void_p(address), 1, 3, tensor, *arrays, (ctypes.c_uint32 * 3)(1, 1, 1), 0, 3, 2, 0
        )
    assert encoded == result
    driver.clear()


def test_only_code_for_one_architecture_has_them() -> None:
    has = [any(isinstance(t, WarpgroupTile) for t in tensor_core.copied_tiles(target)) for target in (HOPPER, TARGET)]
    assert has == [True, False]
    macro = SPECIFIC_FEATURES[90]
    names = [image_name(source, number) for source in (f"#ifdef {macro}", "") for number in (90, 100)]
    assert names == ["90a", "100", "90", "100"]


@pytest.mark.parametrize("size", [(2048, 2304, 768), (2048, 768, 768), (2048, 3072, 768), (2048, 768, 3072)], ids=str)
def test_tiles_fill_the_processors_of_a_device(size: tuple[int, int, int]) -> None:
    tiling = choose_tiling(1, *size, H200, (*COPIED_TILES, *TILES))
    waves = -(-tiling.blocks // H200.processors)
    assert isinstance(tiling.tile, WarpgroupTile)
    assert size[0] * size[1] / (waves * H200.processors * tiling.tile.rows * tiling.tile.columns) > 0.85
    assert tiling.cycles(H200) < 0.8 * choose_tiling(1, *size, H200, COPIED_TILES).cycles(H200)


def test_bulk_copies_need_matrices_of_constant_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    has: list[bool] = []

    def choose(*sizes: int) -> Tiling:
        *of_product, gpu, tiles, moved_bytes = sizes
        has.append(any(isinstance(tile, BulkTile) for tile in tiles))
        return choose_tiling(*of_product, gpu, tiles, moved_bytes)

    def operation(element: Callable[[te.Tensor, tirx.Expr, tirx.Expr], tirx.Expr]) -> Operation:
        def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
            k = te.reduce_axis((0, 64), "k")
            return te.compute(
                (96, 72), lambda i, j: te.sum(element(a, i, k).astype("float32") * b[k, j].astype("float32"), axis=k)
            )

        return lambda a, b: relax.BlockBuilder.current().emit_te(product, a, b)

    def padded(a: te.Tensor, i: tirx.Expr, k: tirx.Expr) -> tirx.Expr:
        return tirx.if_then_else(i < 80, a[i, k], tirx.const(0, "float16"))

    monkeypatch.setattr(tensor_core, "choose_tiling", choose)
    cases = (
        (lambda a, i, k: a[i, k + 8], True),  # a slice
        (lambda a, i, k: a[i, k + 4], False),  # that begins between vectors
        (lambda a, i, k: a[k, i], True),
        (lambda a, i, k: a[i // 2, i % 2 * 8 + k], False),
        (padded, False),
    )
    for element, _ in cases:
        kernels(lowered(operation(element), [np.zeros((96, 96), np.float16), np.zeros((64, 72), np.float16)]), HOPPER)
    assert has == [wanted for *_, wanted in cases]


def test_bulk_copies_need_rows_of_whole_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    has: list[bool] = []

    def choose(*sizes: int) -> Tiling:
        *of_product, gpu, tiles, moved_bytes = sizes
        has.append(any(isinstance(tile, BulkTile) for tile in tiles))
        return choose_tiling(*of_product, gpu, tiles, moved_bytes)

    def product(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, 64), "k")
        return te.compute(
            (3, 67, 72),
            lambda h, i, j: te.sum(a[i, h * 64 + k].astype("float32") * b[h, k, j].astype("float32"), axis=k),
        )

    monkeypatch.setattr(tensor_core, "choose_tiling", choose)
    for width in (192, 200, 256):
        given = [np.zeros((67, width), np.float16), np.zeros((3, 64, 72), np.float16)]
        kernels(lowered(lambda a, b: relax.BlockBuilder.current().emit_te(product, a, b), given), HOPPER)
    assert has == [True, False, True]


def test_models_choose_bulk_copies_for_one_warpgroup_a_processor() -> None:
    tiles = (*COPIED_TILES, *TILES, *bulk_tiles(H200.architecture))
    chosen = [choose_tiling(1, rows, 768, 768, H200, tiles).tile for rows in (32, 512, 2048)]
    assert [isinstance(tile, BulkTile) for tile in chosen] == [False, True, False]


def test_small_products_stay_with_warps() -> None:
    tiling = choose_tiling(1, 32, 768, 768, H200, (*COPIED_TILES, *TILES))
    assert not isinstance(tiling.tile, WarpgroupTile)


def test_every_tile_has_whole_instructions_and_vectors() -> None:
    for tile in (*TILES, *TILES_OF_BYTES):
        assert tile.rows % 64 == tile.columns % 32 == tile.threads % 128 == 0
        vectors = [side * tile.depth * tile.element_bytes // 16 for side in (tile.rows, tile.columns)]
        assert all(count % tile.threads == 0 for count in vectors)
        assert tile.sums <= 128
