"""The loader and arrays: what may be written into, NaN, and what it says when axes are in another order."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tvm
from runtime_samples import INITIAL_COUNT, SAMPLE, WEIGHTS, link, object_of, sample_library

from nnefc.loader import Model, RunError, load
from nnefc.loader.checks import check_type
from nnefc.targets.description.library import TensorDescription

X = np.random.default_rng(4).standard_normal(1024).astype(np.float32)
X[0] = 1  # the sample network takes negative values there as orders


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with load(sample_library(), threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """Loads a network with the output y, a copy of x."""
    source = (
        "#include <stdint.h>\n#include <string.h>\nint32_t nnefc_network(void *x, void *y, uint8_t *s, uint8_t *w,"
        " const uint8_t *c) { memcpy(y, x, BYTES); return 0; }"
    )

    def loaded(dtype: str, shape: tuple[int, ...]) -> Model:
        ports = [TensorDescription(name, dtype, shape) for name in "xy"]
        description = replace(
            SAMPLE,
            inputs=(ports[0],),
            outputs=(ports[1],),
            states=(),
            state_bytes=0,
            constant_bytes=0,
            state_initial_offset=0,
        )
        size = int(np.prod(shape)) * {"float64": 8, "float32": 4}.get(dtype, 2)
        code = object_of(source.replace("BYTES", str(size)), f"copying{size}")
        path = tmp_path_factory.mktemp("copying") / "copying.so"
        return load(link([code], b"", description, path), threads=1)

    return loaded


# --- arrays of other libraries to write into


class Lent:
    """An array that shows itself by DLPack alone, as PyTorch's do; `versioned` in the manner of version 1."""

    def __init__(self, array: np.ndarray, versioned: bool = True, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self._versioned, self._device = array, versioned, device

    def __dlpack__(self, **options: Any) -> Any:
        if self._versioned:
            return self.array.__dlpack__(**options)
        if options:
            raise TypeError("unexpected keywords")
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class ArrayImpl(Lent):
    """Like an array of JAX's, which DLPack shows as one that may be written."""

    __module__ = "jaxlib._jax"


@pytest.mark.parametrize("versioned", [True, False])
def test_outputs_are_written_into_arrays_of_other_libraries(model: Model, versioned: bool) -> None:
    y, count = Lent(np.zeros(1024, np.float32), versioned), Lent(np.zeros(1, np.int64), versioned)
    model.reset()
    results = model(X, out=(y, count))
    assert results[0] is y and results[1] is count
    assert np.array_equal(y.array, X * WEIGHTS)
    assert count.array.tolist() == [INITIAL_COUNT + 1]
    assert model.run({"x": X}, out={"y": y})["y"] is y


def test_outputs_are_written_into_tensors_of_onnxruntime_and_tvm(model: Model) -> None:
    zeros = np.zeros(1024, np.float32)
    for tensor in (onnxruntime.OrtValue.ortvalue_from_numpy(zeros), tvm.runtime.tensor(zeros)):
        assert model(X, out=(tensor, None))[0] is tensor
        assert np.array_equal(tensor.numpy(), X * WEIGHTS)


READ_ONLY = np.zeros(1024, np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (Lent(READ_ONLY), 'out for "y" must be writable'),
        (Lent(READ_ONLY, versioned=False), 'out for "y" is a Lent that cannot be written .*read'),
        (Lent(np.zeros(2048, np.float32)[::2]), 'out for "y" must be writable, dense'),
        (Lent(np.zeros(1024)), 'out for "y" is an array of float64, but the model has float32'),
        (Lent(np.zeros(512, np.float32)), r'out for "y" has the shape \[512\]'),
        (Lent(np.zeros(1024, np.complex64)), "its elements are of a type that NumPy lacks"),
        (Lent(np.zeros(1024, np.float32), device=(2, 0)), "it is not in the host's memory"),
        (ArrayImpl(np.zeros(1024, np.float32)), 'out for "y" is a ArrayImpl, which cannot be written'),
        (bytearray(4096), 'out for "y" is a bytearray, neither a NumPy array'),
    ],
)
def test_arrays_of_other_libraries_that_do_not_fit_are_refused(model: Model, out: Any, message: str) -> None:
    with pytest.raises(RunError, match=message):
        model(X, out=(out, None))


def test_arrays_of_other_libraries_must_not_overlap_the_inputs(model: Model) -> None:
    x = X.copy()
    with pytest.raises(RunError, match='out for "y" overlaps "x"'):
        model(x, out=(Lent(x), None))


class Brain(Lent):
    """uint16 that says it is bfloat16, which NumPy cannot say."""

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        ctypes.c_uint8.from_address(pointer(capsule, b"dltensor") + 20).value = 4  # the code of DLTensor's type
        return capsule


def test_bfloat16_of_other_libraries_is_read_and_written(copying: Callable[..., Model]) -> None:
    bits = np.arange(12, dtype=np.uint16).reshape(3, 4)
    out = Brain(np.zeros((3, 4), np.uint16))
    with copying("bfloat16", (3, 4)) as model:
        assert model(Brain(bits), out=out) is out
    assert np.array_equal(out.array, bits)


# --- NaN


@pytest.mark.parametrize(("dtype", "shape"), [("float16", (3, 4)), ("float32", (2, 3)), ("float64", (1, 3))])
def test_nan_is_reported_with_its_position_before_the_run(
    dtype: str, shape: Any, copying: Callable[..., Model]
) -> None:
    x = np.zeros(shape, dtype)
    out = np.ones_like(x)
    with copying(dtype, shape) as model:
        model(x, check_nan=True)
        x[-1, 1:] = np.nan
        count = x.shape[1] - 1
        assert np.isnan(model(x)).sum() == count
        with pytest.raises(
            RunError, match=rf'^input "x": {count} of {x.size} elements are NaN, first \[{len(x) - 1}, 1\]'
        ):
            model(x, check_nan=True, out=out)
        with pytest.raises(RunError, match='input "x"'):
            model.run({"x": x}, check_nan=True)
    assert (out == 1).all()


def test_nan_of_a_scalar_is_reported(copying: Callable[..., Model]) -> None:
    with copying("float64", ()) as model:
        model(np.float64(1))
        with pytest.raises(RunError, match=r'input "x": 1 of 1 elements are NaN, first \[\]'):
            model(np.float64("nan"), check_nan=True)


def test_nan_of_bfloat16_is_found_by_its_bits(copying: Callable[..., Model]) -> None:
    bits = np.full((3, 4), 0x7F80, np.uint16)  # infinity
    with copying("bfloat16", (3, 4)) as model:
        model(bits, check_nan=True)
        bits[2, 0] = 0xFFC0
        with pytest.raises(RunError, match=r'input "x": 1 of 12 elements are NaN, first \[2, 0\]'):
            model(bits, check_nan=True)


def test_nan_in_an_output_alone_is_an_error_after_the_run(model: Model) -> None:
    x = X.copy()
    x[7] = np.inf  # times zero is NaN, and the sample's weights get a zero here
    with load(sample_library("without_weights", 0.0), threads=1) as zero:
        with pytest.raises(RunError, match=r'output "y": 1 of 1024 .*\[7\], though no input has one; a state may'):
            zero(x, check_nan=True)
        assert np.isnan(zero(x)[0][7])


# --- what is meant


@pytest.mark.parametrize(
    ("given", "wanted", "way"),
    [
        ((1, 224, 224, 3), (1, 3, 224, 224), r"\.transpose\(\[0, 3, 1, 2\]\)$"),
        ((1, 3, 224, 224), (1, 224, 224, 3), r"\.transpose\(\[0, 2, 3, 1\]\)$"),
        ((224, 224, 3), (1, 3, 224, 224), r"\.transpose\(\[2, 0, 1\]\)\.reshape\(\(1, 3, 224, 224\)\)$"),
        ((3, 224, 224), (224, 224, 3), r"\.transpose\(\[1, 2, 0\]\)$"),
        ((2, 5, 6, 7, 3), (2, 3, 5, 6, 7), r"\.transpose\(\[0, 4, 1, 2, 3\]\)$"),
        ((10, 64), (64, 10), r"\.transpose\(\[1, 0\]\)$"),
        ((4, 2, 3), (3, 2, 4), r"\.transpose\(\[2, 1, 0\]\)$"),
        ((4, 3, 2, 5), (3, 4, 2, 5), r"its axes are in another order, use \.transpose\(…\)$"),
        ((3, 224, 224), (1, 3, 224, 224), r"\]: use \.reshape\(\(1, 3, 224, 224\)\)$"),
        ((784,), (1, 1, 28, 28), r"if the order of elements is right, use \.reshape\(\(1, 1, 28, 28\)\)$"),
        ((2, 3, 224, 224), (1, 3, 224, 224), r"but the model has \[1, 3, 224, 224\]$"),
    ],
)
def test_shapes_that_differ_come_with_the_way_between_them(given: Any, wanted: Any, way: str, model: Model) -> None:
    tensor = replace(model.inputs[0], shape=wanted)
    with pytest.raises(RunError, match=way):
        check_type("input", tensor, np.zeros(given, np.float32))


def test_the_ways_of_other_runtimes_are_reported_nnefcs(model: Model) -> None:
    usage = r'write model\.run\({"x": array}\), or model\(array\)'
    with pytest.raises(RunError, match=f"run got None in place of inputs by name: {usage}; all outputs are returned"):
        model.run(None, {"x": X})  # type: ignore[arg-type]
    with pytest.raises(RunError, match=f"run got a list in place of inputs by name: {usage}"):
        model.run(["y"], {"x": X})  # type: ignore[arg-type]
    with pytest.raises(RunError, match=f"run got a ndarray in place of inputs by name: {usage}"):
        model.run(X)  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r'input "x" is a dict: run\(…\) takes inputs by name'):
        model({"x": X})
    with pytest.raises(RunError, match="out of run is a ndarray, not arrays by the names of outputs"):
        model.run({"x": X}, np.zeros(1024))  # type: ignore[arg-type]
