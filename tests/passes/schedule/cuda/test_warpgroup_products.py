"""Products of warpgroups: results on the emulator, tiles for well-known sizes, instructions of the machine code."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import emulate
import numpy as np
import onnx
import pytest
from contraction_cases import TARGET, Operation, execute, kernels, lowered, random
from emulate import device_code
from emulated_networks import on_cuda
from fake_driver import FakeDriver
from small_networks import Net
from tvm import relax, te, tirx
from tvm.relax import op

import nnefc
from nnefc.ir.tensor_maps import TensorMap
from nnefc.loader import RunError
from nnefc.passes.compute.fp16_matmul import multiply_transposed
from nnefc.passes.graph.quantized.quantized_values import sum_type
from nnefc.passes.schedule.cuda import tensor_core
from nnefc.passes.schedule.cuda.tiling import AnyTile, Tiling, choose_tiling
from nnefc.passes.schedule.cuda.warp_tiles import COPIED_TILES, BulkTile, WarpgroupTile, bulk_tiles, warpgroup_tiles
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler, image_name
from nnefc.targets.codegen.cuda.kernels import EncodedMap
from nnefc.targets.machine.cuda.gpus import GPUS, SPECIFIC_FEATURES, Gpu

HOPPER = replace(TARGET, architectures=(90,))
H200 = next(gpu for gpu in GPUS if gpu.name == "h200")
TILES = warpgroup_tiles(H200.capability)
TILES_OF_BYTES = warpgroup_tiles(H200.capability, of_bytes=True)


@pytest.fixture
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WarpgroupTile:
    """The tile of so many rows, columns and stages, chosen for every product, with so many slices of the depth.

    Further parameters say that it is a tile of bytes, and that bulk copies fetch it.
    """
    rows, columns, stages, slices, *kinds = request.param
    tiles = (bulk_tiles if "bulk" in kinds else warpgroup_tiles)(H200.capability, "bytes" in kinds)
    found = next(t for t in tiles if (t.rows, t.columns, t.stages) == (rows, columns, stages))

    def choose(
        batch: int, rows: int, columns: int, depth: int, _gpu: Gpu, tiles: Sequence[AnyTile], _moved_bytes: int
    ) -> Tiling:
        assert found in tiles
        return Tiling(found, batch, rows, columns, depth, slices)

    monkeypatch.setattr(tensor_core, "choose_tiling", choose)
    return found


def multiplied(sizes: tuple[int, ...], transposed: tuple[int, ...], dtype: str) -> tuple[Operation, list[np.ndarray]]:
    """A product with a bias, an activation and a residual, of operands that lie as they are or transposed."""
    *batch, rows, columns, depth = sizes
    rng = np.random.default_rng(depth)
    shapes = ((*batch, rows, depth), (*batch, depth, columns))
    operands = [random(rng, shape).astype(dtype) for shape in shapes]
    given = [x.swapaxes(-1, -2).copy() if side in transposed else x for side, x in enumerate(operands)]
    given += [random(rng, (*batch, rows, columns)), random(rng, (columns,))]

    def product(*of: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), "k")

        def element(side: int, *position: tirx.Expr) -> tirx.Expr:
            *outer, a, b = position
            return of[side][(*outer, b, a) if side in transposed else position].astype("float32")

        return te.compute(
            (*batch, rows, columns),
            lambda *at: te.sum(element(0, *at[:-1], k) * element(1, *at[:-2], k, at[-1]), axis=k),
        )

    def operation(a: relax.Expr, b: relax.Expr, residual: relax.Expr, bias: relax.Expr) -> relax.Expr:
        builder = relax.BlockBuilder.current()
        return op.add(op.nn.relu(op.add(builder.emit_te(product, a, b), bias)), residual)

    return operation, given


def expected(given: Sequence[np.ndarray], transposed: tuple[int, ...]) -> np.ndarray:
    wide = [x.astype(np.float64) for x in given]
    a, b = (x.swapaxes(-1, -2) if side in transposed else x for side, x in enumerate(wide[:2]))
    return np.maximum(a @ b + wide[3], 0) + wide[2]


@pytest.mark.parametrize(
    ("tile", "sizes", "transposed", "dtype"),
    [
        ((64, 64, 4, 1), (70, 72, 328), (), "float16"),
        ((64, 96, 3, 1), (61, 104, 136), (), "bfloat16"),
        ((128, 64, 3, 1), (136, 67, 200), (0, 1), "float16"),
        ((128, 160, 4, 1), (131, 168, 72), (), "float16"),
        ((128, 256, 3, 1), (3, 129, 259, 64), (1,), "bfloat16"),
        ((256, 128, 4, 1), (264, 136, 200), (0,), "float16"),
        ((64, 64, 4, 3), (2, 65, 72, 520), (1,), "float16"),
        ((64, 96, 4, 1, "bulk"), (70, 72, 328), (), "float16"),
        ((128, 64, 3, 1, "bulk"), (2, 136, 67, 264), (0, 1), "float16"),
        ((256, 96, 4, 1, "bulk"), (264, 104, 456), (1,), "bfloat16"),
        ((256, 128, 3, 1, "bulk"), (264, 136, 264), (), "float16"),
    ],
    ids=str,
    indirect=["tile"],
)
@pytest.mark.sample(1)
def test_tails_batches_and_epilogues(
    tile: WarpgroupTile, sizes: tuple[int, ...], transposed: tuple[int, ...], dtype: str
) -> None:
    operation, given = multiplied(sizes, transposed, dtype)
    result, rules = execute(operation, given[:3], given[3:], HOPPER)
    wanted = expected(given, transposed)
    assert np.abs(result - wanted).max() <= 2e-6 * np.abs(wanted).max()
    assert rules == ["TensorCoreRule"]


def multiply_bytes(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """The product of a matrix with the transpose of another, both along the depth."""
    return relax.BlockBuilder.current().emit_te(multiply_transposed, a, b, sum_type(str(a.ty.dtype)))


@pytest.mark.parametrize(
    ("tile", "types", "is_portable"),
    [
        ((64, 96, 3, 2, "bytes"), ("uint8", "int8"), False),
        ((64, 64, 3, 1, "bytes", "bulk"), ("int8", "uint8"), False),
        pytest.param((128, 64, 3, 1, "bytes", "bulk"), ("int8", "int8"), True, marks=pytest.mark.slow),
        pytest.param((256, 128, 4, 1, "bytes"), ("int8", "int8"), False, marks=pytest.mark.slow),
        pytest.param((128, 64, 3, 1, "bytes"), ("int8", "uint8"), True, marks=pytest.mark.slow),
    ],
    ids=str,
    indirect=["tile"],
)
def test_bytes_are_summed_up_exactly(
    tile: WarpgroupTile, types: tuple[str, str], is_portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_portable:
        monkeypatch.setattr(emulate, "emulate", _emulate_portable)
    rng = np.random.default_rng(1)
    a, b = (
        random(rng, (size, 336), dtype) for size, dtype in zip((tile.rows + 6, tile.columns + 8), types, strict=True)
    )
    result, rules = execute(multiply_bytes, [a, b], target=HOPPER)
    assert np.array_equal(result, a.astype(np.int64) @ b.astype(np.int64).T)
    assert rules == ["TensorCoreRule"]


@pytest.mark.parametrize(
    ("tile", "types", "is_portable"),
    [
        ((64, 64, 3, 1, "bytes"), ("float8_e4m3fn", "float8_e5m2"), False),
        ((64, 64, 3, 1, "bytes", "bulk"), ("float8_e5m2", "float8_e4m3fn"), False),
        pytest.param((128, 96, 4, 2, "bytes"), ("float8_e4m3fn", "float8_e4m3fn"), False, marks=pytest.mark.slow),
        pytest.param((128, 64, 3, 1, "bytes"), ("float8_e5m2", "float8_e4m3fn"), True, marks=pytest.mark.slow),
    ],
    ids=str,
    indirect=["tile"],
)
def test_floats_of_8_bits_are_summed_up_in_float32(
    tile: WarpgroupTile, types: tuple[str, str], is_portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_portable:
        monkeypatch.setattr(emulate, "emulate", _emulate_portable)
    rng = np.random.default_rng(2)
    shapes = (tile.rows + 6, 336), (tile.columns + 8, 336)
    a, b = (random(rng, shape, dtype) for shape, dtype in zip(shapes, types, strict=True))
    result, rules = execute(multiply_bytes, [a, b], target=HOPPER)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(result - wanted).max() <= 2e-6 * np.abs(wanted).max()
    assert rules == ["TensorCoreRule"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "instruction"),
    [
        (("int8", "uint8"), b"m16n8k32.row.col.s32.s8.u8.s32"),
        (("float8_e4m3fn", "float8_e5m2"), b"m16n8k32.row.col.f32.e4m3.e5m2.f32"),
    ],
)
@pytest.mark.parametrize(
    "tile",
    [(128, 256, 4, 1, "bytes"), (256, 128, 4, 1, "bytes"), (128, 64, 3, 1, "bytes", "bulk")],
    ids=str,
    indirect=True,
)
def test_machine_code_of_8_bits_has_the_products_and_spills_nothing(
    tile: WarpgroupTile, types: tuple[str, str], instruction: bytes
) -> None:
    given = [np.zeros((size, 1024), dtype) for size, dtype in zip((512, 768), types, strict=True)]
    code = device_code(kernels(lowered(multiply_bytes, given), HOPPER), HOPPER)
    compiler = find_compiler()
    assembled, log = compiler.cubin(code.source, image_name(code.source, 90))
    assert assembled and "serialized" not in log
    (usage,) = compile_image(code.source, (90,), compiler).usage
    assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
    assert b"mma.sync.aligned." + instruction in compiler.ptx(code.source, 90)


@pytest.mark.parametrize("tile", [(128, 96, 4, 1), (64, 96, 3, 1, "bulk")], indirect=True)
@pytest.mark.slow
def test_other_architectures_multiply_the_same_tiles_by_warps(
    tile: WarpgroupTile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulate, "emulate", _emulate_portable)
    for transposed in ((), (0, 1)):
        operation, given = multiplied((136, 104, 200), transposed, "float16")
        result, _ = execute(operation, given[:3], given[3:], HOPPER)
        wanted = expected(given, transposed)
        assert np.abs(result - wanted).max() <= 2e-6 * np.abs(wanted).max()


_EMULATE = emulate.emulate


def _emulate_portable(source: str, *given: Any, **options: Any) -> emulate.EmulatedKernels:
    """Emulates code as for other architectures."""
    assert SPECIFIC_FEATURES[90] in source
    return _EMULATE(source.replace(SPECIFIC_FEATURES[90], "NO_SUCH_FEATURES"), *given, **options)


@pytest.mark.parametrize(
    ("tile", "transposed"),
    [
        ((64, 64, 4, 1), ()),
        ((128, 256, 4, 1), ()),
        ((128, 192, 4, 1), (0,)),
        ((256, 128, 4, 1), (1,)),
        ((64, 192, 4, 1, "bulk"), (0, 1)),
        ((128, 192, 4, 1, "bulk"), ()),
        ((256, 96, 4, 1, "bulk"), (1,)),
        ((128, 256, 4, 1, "bulk"), (0,)),
        ((256, 128, 4, 1, "bulk"), ()),
    ],
    indirect=["tile"],
    ids=str,
)
@pytest.mark.sample(1)
def test_machine_code_has_the_products_and_spills_nothing(tile: WarpgroupTile, transposed: tuple[int, ...]) -> None:
    operation, given = multiplied((512, 768, 1024), transposed, "float16")
    code = device_code(kernels(lowered(operation, given[:3], given[3:]), HOPPER), HOPPER)
    (launch,) = code.launches
    assert (math.prod(launch.block), launch.shared_bytes) == (tile.launched_threads, tile.shared_bytes)
    compiler = find_compiler()
    _, log = compiler.cubin(code.source, image_name(code.source, 90))
    assert "serialized" not in log
    assert "setmaxnreg" not in log  # ignored, if it were
    image = compile_image(code.source, (90,), compiler)
    (usage,) = image.usage
    assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
    assert usage.registers <= tile.registers + 40
    portable = compiler.ptx(code.source, 90)
    assert b"wgmma" not in portable
    assert b"mma.sync.aligned.m16n8k16" in portable


@pytest.mark.slow
def test_convolutions_are_products_of_warpgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(seed=1)
    x = net.floats(2, 16, 9, 7)
    y = net.do("Relu", net.do("Conv", x, net.weight(24, 16, 3, 3), net.weight(24), pads=[1, 1, 1, 1]))
    z = net.do("Add", y, net.do("Conv", y, net.weight(24, 24, 3, 3), pads=[1, 1, 1, 1]))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([z]).SerializeToString())
    (wanted,) = nnefc.compile(path).run(net.inputs).values()

    def choose(*sizes: int) -> Tiling:
        *of_product, gpu, tiles, moved_bytes = sizes
        return choose_tiling(*of_product, gpu, [t for t in tiles if isinstance(t, WarpgroupTile)] or tiles, moved_bytes)

    monkeypatch.setattr(tensor_core, "choose_tiling", choose)
    with on_cuda(precision="fp16", architectures=(90,)) as made:
        (found,) = nnefc.compile(path).run(net.inputs).values()
    assert made[-1].code.kernels.source.count("nnefc_begin_products_") >= 3  # the function, and two calls
    assert np.abs(found - wanted).max() < 4e-3 * np.abs(wanted).max()


def choose_bulk(*sizes: int) -> Tiling:
    """The best tile that bulk copies fetch."""
    *of_product, gpu, tiles, moved_bytes = sizes
    return choose_tiling(*of_product, gpu, [t for t in tiles if isinstance(t, BulkTile)], moved_bytes)


def test_libraries_encode_tensor_maps_for_the_addresses_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net(seed=2)
    rng = np.random.default_rng(2)
    x, weight = (rng.standard_normal(shape).astype(np.float16) / 8 for shape in ((72, 128), (128, 128)))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([net.do("MatMul", net.given(x), net.constant(weight))]).SerializeToString())

    monkeypatch.setattr(tensor_core, "choose_tiling", choose_bulk)
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
    weight = np.random.default_rng(3).standard_normal((128, 72)).astype(np.float16) / 8
    types = {"x": ["n", "m", 128], "a": ["h", "s", 64], "b": ["h", 64, 72], "y": None, "z": None}
    x, a, b, y, z = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, s) for n, s in types.items())
    nodes = [onnx.helper.make_node("MatMul", names, [to]) for names, to in ((("x", "w"), "y"), (("a", "b"), "z"))]
    graph = onnx.helper.make_graph(nodes, "g", [x, a, b], [y, z], [onnx.numpy_helper.from_array(weight, "w")])
    path = tmp_path / "network.onnx"
    path.write_bytes(onnx.helper.make_model(graph, ir_version=10).SerializeToString())
    monkeypatch.setattr(tensor_core, "choose_tiling", choose_bulk)
    with on_cuda(precision="fp16", architectures=(90,)) as made, nnefc.compile(path).load() as model:
        driver, rng = FakeDriver.install(), np.random.default_rng(3)
        for n, m, h, s in ((1, 2, 1, 3), (2, 37, 3, 70), (1, 3, 0, 5)):
            given = [rng.standard_normal(shape).astype(np.float16) for shape in ((n, m, 128), (h, s, 64), (h, 64, 72))]
            driver.clear()
            found = model(*given)
            assert driver.names.count("cuTensorMapEncodeTiled") == 2 + 2 * (h > 0)
            wide = [x.astype(np.float64) for x in given]
            for result, wanted in zip(found, (wide[0] @ weight.astype(np.float64), wide[1] @ wide[2]), strict=True):
                assert np.abs(result - wanted).max(initial=0) <= 1e-3 * np.abs(wanted).max(initial=0)
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
    monkeypatch.setattr(tensor_core, "choose_tiling", choose_bulk)
    x, weight = (random(rng, shape).astype(np.float16) for shape in ((67, 5, 64), (3, 64, 72)))
    found, _ = execute(lambda a, b: relax.BlockBuilder.current().emit_te(product, a, b), [x, weight], [], HOPPER)
    wanted = x.astype(np.float64).swapaxes(0, 1)[1:4] @ weight.astype(np.float64)
    assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()
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
    tiles = (*COPIED_TILES, *TILES, *bulk_tiles(H200.capability))
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
