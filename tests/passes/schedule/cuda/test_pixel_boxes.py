"""Convolutions whose pixels bulk copies fetch in rectangles: results on the emulator, tensor maps, the choice."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import emulate
import numpy as np
import onnx
import pytest
from contraction_cases import TARGET, execute, kernels, lowered, random
from emulate import device_code
from emulated_networks import on_cuda
from fake_driver import FakeDriver
from product_cases import rounded
from tvm import relax, te

import nnefc
from nnefc.passes.compute.vector_convolution import convolve_vectors, pack_vectors
from nnefc.passes.schedule.cuda import tensor_core
from nnefc.passes.schedule.cuda.pixel_boxes import Pixels, Rectangles
from nnefc.passes.schedule.cuda.warp_tiles import BulkTile
from nnefc.passes.schedule.gpu.contractions.tiling import AnyTile, Tiling, choose_tiling
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler, image_name
from nnefc.targets.codegen.cuda.device_functions import EncodedMap
from nnefc.targets.machine.cuda.capabilities import SPECIFIC_FEATURES
from nnefc.targets.machine.gpu.description import Gpu
from nnefc.targets.machine.gpu.devices import GPUS

H200 = next(gpu for gpu in GPUS if gpu.name == "h200")
HOPPER = replace(TARGET, architectures=(90,), device=H200, precision="tf32")


@dataclass(frozen=True)
class Convolution:
    """A convolution of tensors in blocks of channels: sizes of an image, of a window, and how this moves.

    Attributes:
        weights: the type of the filters, if it is another one than that of the data.
    """

    data: tuple[int, ...]
    filters: tuple[int, ...]
    before: tuple[int, ...] = (0, 0)
    after: tuple[int, ...] = (0, 0)
    strides: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    dtype: str = "float16"
    weights: str | None = None

    @property
    def lanes(self) -> int:
        return 8 if self.dtype in ("float16", "bfloat16", "float32") else 16

    def build(self, x: relax.Expr, packed: relax.Expr) -> relax.Expr:
        sums = "int32" if self.dtype == "int8" else "float32"
        of = (self.before, self.after, self.strides, self.dilation, self.groups, sums)

        def convolve(x: te.Tensor, packed: te.Tensor) -> te.Tensor:
            return convolve_vectors(x, packed, *of)

        return relax.BlockBuilder.current().emit_te(convolve, x, packed)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Data in blocks, and filters that are not."""
        rng = np.random.default_rng(sum(self.data))
        n, channels, *spatial = self.data
        return (
            random(rng, (n, channels // self.lanes, *spatial, self.lanes), self.dtype),
            random(rng, self.filters, self.weights or self.dtype),
        )

    def expected(self, x: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """The result, in blocks, by shifted products in float64."""
        x, filters = rounded(x), rounded(filters)
        pad = [(0, 0), (0, 0), *zip(self.before, self.after, strict=True)]
        wide = np.pad(np.moveaxis(x.astype(np.float64), -1, 2).reshape(self.data), pad)
        outputs, inputs, *window = self.filters
        sizes = [
            (length - (size - 1) * dilation - 1) // stride + 1
            for length, size, dilation, stride in zip(wide.shape[2:], window, self.dilation, self.strides, strict=True)
        ]
        by_group = wide.reshape(len(x), self.groups, inputs, *wide.shape[2:])
        weights = filters.astype(np.float64).reshape(self.groups, outputs // self.groups, inputs, *window)
        result = np.zeros((len(x), self.groups, outputs // self.groups, *sizes))
        for tap in np.ndindex(*window):
            shifted = tuple(
                slice(t * dilation, t * dilation + (size - 1) * stride + 1, stride)
                for t, dilation, size, stride in zip(tap, self.dilation, sizes, self.strides, strict=True)
            )
            result += np.einsum("ngi...,goi->ngo...", by_group[(..., *shifted)], weights[(..., *tap)])
        blocks = result.reshape(len(x), outputs // self.lanes, self.lanes, *sizes)
        return np.moveaxis(blocks, 2, -1)


def by_rectangles(monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, stages: int = 4, blocks: int = 1) -> None:
    """Lets bulk copies fetch each convolution that they can, for tiles of so many rows, columns, stages and blocks that
    multiply together."""

    def choose(
        batch: int, of_rows: int, of_columns: int, depth: int, gpu: Gpu, tiles: Sequence[AnyTile], moved: int
    ) -> Tiling:
        bulk = [
            t
            for t in tiles
            if isinstance(t, BulkTile) and (t.columns, t.stages, t.blocks_of_cluster) == (columns, stages, blocks)
        ]
        return choose_tiling(batch, of_rows, of_columns, depth, gpu, bulk or tiles, moved)

    def is_faster(tiling: Tiling, _than: Tiling, _gpu: Gpu) -> bool:
        assert isinstance(tiling.tile, BulkTile)
        return True

    def only(rows_of: Pixels, count: int) -> Rectangles | None:
        return rectangles(rows_of, count) if count == rows else None

    rectangles = Pixels.rectangles
    monkeypatch.setattr(Pixels, "rectangles", only)
    monkeypatch.setattr(tensor_core, "choose_tiling", choose)
    monkeypatch.setattr(tensor_core, "is_faster", is_faster)


def maps_of(convolution: Convolution) -> list[EncodedMap]:
    x, filters = convolution.arrays()
    module = lowered(convolution.build, [x], [pack_vectors(filters, convolution.lanes)])
    (launch,) = device_code(kernels(module, HOPPER), HOPPER).launches
    return [given for given in launch.arguments if isinstance(given, EncodedMap)]


CASES = {
    "3x3, odd sizes, stride 2": (64, Convolution((2, 24, 13, 15), (40, 24, 3, 3), (1, 1), (1, 1), (2, 2))),
    "dilated, bfloat16": (
        64,
        Convolution((1, 64, 11, 20), (72, 64, 3, 3), (2, 1), (2, 2), dilation=(2, 1), dtype="bfloat16"),
    ),
    "1x1, lines joined": (128, Convolution((2, 72, 9, 17), (24, 72, 1, 1))),
    "1x1, stride 2": (64, Convolution((2, 72, 9, 14), (24, 72, 1, 1), strides=(2, 2))),
    "7x7 of few channels": (128, Convolution((1, 8, 25, 22), (16, 8, 7, 4), (3, 2), (3, 1), (2, 1))),
    "grouped bytes": (
        64,
        Convolution((2, 64, 9, 11), (64, 32, 3, 3), (1, 1), (1, 0), (2, 1), groups=2, dtype="int8"),
    ),
    "1-D": (64, Convolution((3, 16, 1, 70), (24, 16, 1, 3), (0, 1), (0, 1))),
    "float8 of both types": (
        64,
        Convolution(
            (2, 48, 13, 15),
            (32, 48, 3, 3),
            (1, 1),
            (1, 1),
            (2, 2),
            dtype="float8_e4m3fn",
            weights="float8_e5m2",
        ),
    ),
    "grouped float8, dilated": (
        128,
        Convolution((1, 64, 9, 17), (32, 32, 3, 3), (2, 1), (2, 2), dilation=(2, 1), groups=2, dtype="float8_e5m2"),
    ),
    "single, 3x3, stride 2": (
        64,
        Convolution((2, 24, 13, 15), (40, 24, 3, 3), (1, 1), (1, 1), (2, 2), dtype="float32"),
    ),
    "single, 1x1": (128, Convolution((2, 72, 9, 17), (24, 72, 1, 1), dtype="float32")),
    "single, grouped, dilated": (
        64,
        Convolution((1, 64, 9, 11), (64, 32, 3, 3), (2, 1), (1, 2), dilation=(2, 1), groups=2, dtype="float32"),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.sample(2)
def test_rectangles_have_zeros_around_images_and_end_with_the_result(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, convolution = CASES[case]
    by_rectangles(monkeypatch, rows, 64)
    x, filters = convolution.arrays()
    found, rules = execute(convolution.build, [x], [pack_vectors(filters, convolution.lanes)], HOPPER)
    wanted = convolution.expected(x, filters)
    assert rules == ["TensorCoreRule"]
    assert np.abs(found - wanted).max() <= (0 if convolution.dtype == "int8" else 2e-6 * np.abs(wanted).max())


def test_infinities_outside_of_a_box_do_not_reach_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rectangles(monkeypatch, 64, 64)
    convolution = Convolution((2, 24, 6, 7), (8, 24, 1, 3), (0, 1), (0, 1))
    x, filters = convolution.arrays()
    x[1, 0, 0, 0, 0] = np.inf
    found, _ = execute(convolution.build, [x], [pack_vectors(filters, 8)], HOPPER)
    infinite = np.isinf(found[..., 0])
    assert infinite[1, 0, 0, :2].all() and infinite.sum() == 2 and not np.isnan(found).any()


def test_tensor_maps_join_pixels_with_their_channels_where_windows_do_not_stride(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_rectangles(monkeypatch, 128, 64)
    data, _ = maps_of(Convolution((2, 64, 14, 30), (64, 64, 3, 3), (1, 1), (1, 1)))
    assert (data.element_bytes, data.sizes, data.strides) == (8, (60, 14, 8, 2), (480, 6720, 53760))
    assert (data.box, data.steps, data.row_vectors) == ((64, 4, 8, 1), (1, 1, 1, 1), 1)
    data, _ = maps_of(Convolution((2, 64, 14, 30), (64, 64, 3, 3), (1, 1), (1, 1), (2, 2)))
    assert (data.sizes, data.strides) == ((2, 30, 14, 8, 2), (16, 480, 6720, 53760))
    assert (data.box, data.steps) == ((2, 31, 15, 8, 1), (1, 2, 2, 1, 1))
    data, _ = maps_of(Convolution((2, 64, 14, 30), (64, 64, 1, 1)))
    assert (data.sizes, data.box) == ((840, 1, 8, 2), (256, 1, 8, 1))
    data, filters = maps_of(Convolution((2, 64, 14, 30), (64, 64, 3, 3), (1, 1), (1, 1), dtype="float32"))
    assert (data.element_bytes, data.sizes, data.strides) == (4, (8, 30, 14, 8, 2), (32, 960, 13440, 107520))
    assert (data.box, data.row_vectors) == ((8, 32, 4, 4, 1), 2)
    assert (filters.sizes, filters.box, filters.row_vectors) == ((576, 64, 1), (32, 64, 1), 8)


def test_threads_copy_pixels_that_are_further_apart_than_a_box_can_step(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rectangles(monkeypatch, 64, 64)
    assert maps_of(Convolution((1, 16, 9, 200), (24, 16, 1, 1), strides=(1, 8)))
    assert maps_of(Convolution((1, 16, 9, 200), (24, 16, 1, 1), strides=(1, 9))) == []


@pytest.mark.parametrize(
    ("box", "steps", "result"),
    [
        ((2, 255, 3, 8, 1), (1, 2, 8, 1, 1), 0),
        ((2, 257, 3, 8, 1), (1, 2, 1, 1, 1), 1),
        ((2, 255, 9, 8, 1), (1, 1, 9, 1, 1), 1),
        ((2, 255, 9, 8, 1), (2, 1, 1, 1, 1), 1),
        ((1, 255, 9, 8, 1), (1, 1, 1, 1, 1), 1),  # half of a vector
    ],
    ids=str,
)
def test_the_stand_in_for_the_driver_refuses_boxes_that_no_map_has(
    box: tuple[int, ...], steps: tuple[int, ...], result: int
) -> None:
    driver, given = FakeDriver.install(), (ctypes.c_uint8 * 256)()
    address = ctypes.addressof(given) // 64 * 64 + 64
    sizes, strides = (2, 300, 14, 8, 2), (16, 4800, 67200, 537600)
    arrays = ((ctypes.c_uint64 * 5)(*sizes), (ctypes.c_uint64 * 4)(*strides), (ctypes.c_uint32 * 5)(*box))
    with driver.context():
        encoded = driver.dll.cuTensorMapEncodeTiled(
            ctypes.c_void_p(address), 4, 5, ctypes.c_void_p(4096), *arrays, (ctypes.c_uint32 * 5)(*steps), 0, 0, 2, 0
        )
    assert encoded == result
    driver.clear()


def test_a_dynamic_number_of_images_is_in_tensor_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    weight = (rng.standard_normal((24, 16, 3, 3)) / 8).astype(np.float32)
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 16, 9, 10]), ("y", None))
    )
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph([node], "g", [x], [y], [onnx.numpy_helper.from_array(weight, "w")])
    path = tmp_path / "network.onnx"
    path.write_bytes(onnx.helper.make_model(graph, ir_version=10).SerializeToString())
    by_rectangles(monkeypatch, 64, 64)
    with on_cuda(precision="fp16", architectures=(90,)) as made, nnefc.compile(path).load() as model:
        for n in (2, 1, 3, 0):
            given = rng.standard_normal((n, 16, 9, 10)).astype(np.float16)
            blocks = given.reshape(n, 2, 8, 9, 10).transpose(0, 1, 3, 4, 2)
            convolution = Convolution((n, 16, 9, 10), weight.shape, (1, 1), (1, 1))
            wanted = convolution.expected(blocks, weight).transpose(0, 1, 4, 2, 3).reshape(n, 24, 9, 10)
            (found,) = (model(given.astype(np.float32)),)
            assert np.abs(found - wanted).max(initial=0) <= 4e-3 * np.abs(wanted).max(initial=0)
    maps = [
        each for launch in made[-1].code.kernels.launches for each in launch.arguments if isinstance(each, EncodedMap)
    ]
    assert [str(each.sizes[-1]) for each in maps if len(each.sizes) > 3] == ["size0"]


@pytest.mark.slow
def test_machine_code_of_pixels_spills_nothing_and_newer_devices_multiply_by_warps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    convolution = Convolution((4, 128, 28, 28), (256, 128, 3, 3), (1, 1), (1, 1), (2, 2))
    for rows, columns in ((128, 128), (256, 128)):
        with monkeypatch.context() as patch:
            by_rectangles(patch, rows, columns, 4)
            x, filters = convolution.arrays()
            code = device_code(kernels(lowered(convolution.build, [x], [pack_vectors(filters, 8)]), HOPPER), HOPPER)
        compiler = find_compiler()
        _, log = compiler.cubin(code.source, image_name(code.source, 90))
        (usage,) = compile_image(code.source, (90,), compiler).usage
        assert "serialized" not in log and "setmaxnreg" not in log
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert b"cp.async.bulk.tensor.5d" in compiler.ptx(code.source, 90)
    rows, small = CASES["3x3, odd sizes, stride 2"]
    by_rectangles(monkeypatch, rows, 64)
    emulated = emulate.emulate
    monkeypatch.setattr(
        emulate,
        "emulate",
        lambda source, *given, **options: emulated(
            source.replace(SPECIFIC_FEATURES[90], "NO_SUCH_FEATURES"), *given, **options
        ),
    )
    x, filters = small.arrays()
    found, _ = execute(small.build, [x], [pack_vectors(filters, 8)], HOPPER)
    wanted = small.expected(x, filters)
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize(("images", "is_boxed"), [(8, True), (64, False)])
def test_the_model_takes_rectangles_where_a_processor_has_one_warpgroup(images: int, is_boxed: bool) -> None:
    convolution = Convolution((images, 1024, 14, 14), (256, 1024, 1, 1))
    data = np.zeros((images, 128, 14, 14, 8), np.float16)
    module = lowered(convolution.build, [data], [np.zeros((1, 1, 128, 8, 32, 8), np.float16)])
    (launch,) = device_code(kernels(module, HOPPER), HOPPER).launches
    assert any(isinstance(given, EncodedMap) for given in launch.arguments) == is_boxed
