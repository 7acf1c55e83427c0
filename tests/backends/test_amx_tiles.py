"""Products by a matrix unit: AMX, which functions in C of the same meaning stand for on machines without it."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from emulated_amx import EMULATED, SOURCE, emulation
from relax_programs import program
from runtime_samples import ZIG_CC
from small_networks import Net

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.passes.graph.rewriter import is_call, shape_of
from nnefc.passes.legalize.pack_low_precision_matmul import pack_low_precision_matmul
from nnefc.passes.pipeline import register_operators
from nnefc.targets.machine.cpu.parsing import parse_target

_TILES = "sapphirerapids"
_EMULATED = f"{_TILES}{EMULATED}"


def _product(folder: Path, shape: tuple[int, ...], columns: int, target: str, **options: object) -> Artifact:
    net = Net(seed=1)
    x = net.floats(*shape)
    result = net.do("Relu", net.do("MatMul", x, net.weight(shape[-1], columns)))
    onnx.save(net.model([result]), folder / "network.onnx")
    with emulation(target) as emulated_target:
        return nnefc.compile(folder / "network.onnx", emulated_target, precision="bf16", **options)


def _loops(text: str) -> list[list[str]]:
    """The lines from each label to a jump back to it, where no other label is between."""
    found, label, lines = [], "", list[str]()
    for line in text.splitlines():
        if line.startswith(".LBB") and ":" in line:
            label, lines = line.split(":")[0], []
        elif label and line.split()[-1:] == [label]:
            found.append(list(lines))
        else:
            lines.append(line)
    return found


@pytest.mark.parametrize("rows", [64, 33, 82])
@pytest.mark.sample(1)
def test_tiles_of_sums_stay_in_the_unit(rows: int, tmp_path: Path) -> None:
    """Of 33 rows and of 82, the last tile has a configuration of its own."""
    _product(tmp_path, (rows, 8192), 64, _TILES).emit("asm", tmp_path)
    text = "\n".join(path.read_text() for path in sorted(tmp_path.glob("kernels*.s")))
    loop = max(_loops(text), key=lambda lines: sum("tdpbf16ps" in line for line in lines))
    counts = {
        name: sum(name in line for line in loop) for name in ("tdpbf16ps", "tileloadd", "tilestored", "ldtilecfg")
    }
    assert counts["tdpbf16ps"] == counts["tileloadd"] > 0
    assert counts["tilestored"] == counts["ldtilecfg"] == 0
    # Of 82 rows, full tiles and the last ones end in the same instructions, which LLVM joins.
    assert 0 < text.count("tilestored") == text.count("tilezero") // (2 if rows == 82 else 1)
    assert (text.count("ldtilecfg") > 1) == (rows != 64)  # else once for all tiles of a panel
    assert "tilerelease" in text


def test_libraries_need_the_unit_only_if_they_use_it(tmp_path: Path) -> None:
    wide = _product(tmp_path, (64, 512), 64, _TILES, keep_wide=["first"])
    narrow = _product(tmp_path, (64, 512), 64, _TILES)
    emulated = _product(tmp_path, (64, 512), 64, _EMULATED)
    features = {"amx-tile", "amx-bf16", "amx-int8"}
    needed = [features & set(artifact.description.cpu_features) for artifact in (wide, narrow, emulated)]
    assert needed == [set(), features, set()]


@pytest.mark.parametrize("target", [_TILES, _EMULATED])
@pytest.mark.sample(1)
def test_rows_of_dynamic_number_are_multiplied_in_tiles(target: str, tmp_path: Path) -> None:
    net = Net(seed=2)
    x = net.floats(4, 70)
    weights = np.random.default_rng(3).standard_normal((70, 48)).astype(np.float32)
    network = net.model([net.do("MatMul", x, net.constant(weights))])
    for tensor in (*network.graph.input, *network.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "rows"
    onnx.save(network, tmp_path / "network.onnx")
    with emulation(target) as emulated_target:
        artifact = nnefc.compile(tmp_path / "network.onnx", emulated_target, precision="bf16")
    try:
        model = artifact.load()
    except nnefc.LoadError as error:
        pytest.skip(str(error))
    rounded = weights.astype(ml_dtypes.bfloat16).astype(np.float64)
    with model:
        for rows in (1, 7, 16, 37):
            data = np.random.default_rng(rows).standard_normal((rows, 70)).astype(np.float32)
            wanted = data.astype(ml_dtypes.bfloat16).astype(np.float64) @ rounded
            np.testing.assert_allclose(model(data), wanted, atol=1e-4)


@pytest.mark.parametrize("target", [_TILES, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n2", "x86-64-v4"])
@pytest.mark.parametrize("depth", [20, 68, 197])
def test_two_matrices_have_the_same_number_of_dot_operands(depth: int, target: str) -> None:
    """Short tiles get zeros: rows of the left matrix, and columns of the right one, be this computed or of any rank."""
    register_operators()
    module = program(
        f"""a: uint8[2, 16, {depth}]; b: int8[2, {depth}, 32] -> y, z
            y = R.matmul(a, b, out_dtype="int32")
            z = R.matmul(a, W, out_dtype="int32")""",
        W=np.ones((2, depth, 32), np.int8),
    )
    bindings = pack_low_precision_matmul(module, parse_target(target))["main"].body.blocks[0].bindings
    calls = [binding.value for binding in bindings if is_call(binding.value, "call_tir")]
    products = [call.args[1].fields for call in calls if call.args[0].name_hint.startswith("integer_matmul")]
    assert len(products) == 2
    assert all(shape_of(left)[-1] == shape_of(right)[-2] for left, right in products)


def _emulation(folder: Path) -> ctypes.CDLL:
    command = [*ZIG_CC, "-shared", "-O2"]
    subprocess.run([*command, str(SOURCE), "-o", str(folder / "tiles.so")], check=True)
    return ctypes.CDLL(str(folder / "tiles.so"))


def test_the_emulated_product_is_that_of_the_manual(tmp_path: Path) -> None:
    """Even and odd terms are added up apart, each product fused, and subnormal numbers are zero (TDPBF16PS)."""
    unit, rng = _emulation(tmp_path), np.random.default_rng(4)
    rows, words, columns = 5, 7, 16
    a = rng.standard_normal((rows, 2 * words)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((words, columns, 2)).astype(ml_dtypes.bfloat16)
    a[0], b[:, 0] = ml_dtypes.bfloat16(1e-20), ml_dtypes.bfloat16(1e-20)  # products below 2^-126
    a[1, 0], b[0, 1, 0] = ml_dtypes.bfloat16(1e-39), ml_dtypes.bfloat16(1e30)  # an operand below it
    c = rng.standard_normal((rows, columns)).astype(np.float32)
    configuration = np.zeros(64, np.uint8)
    configuration[0] = 1
    for tile, (height, width) in enumerate([(rows, columns), (rows, words), (words, columns)]):
        configuration[16 + 2 * tile], configuration[48 + tile] = 4 * width, height
    unit.nnefc_emulated_shape(configuration.ctypes.data_as(ctypes.c_void_p))
    for tile, array in enumerate((c, a, b)):
        stride = ctypes.c_int64(array.strides[0])
        unit.nnefc_emulated_load(ctypes.c_int8(tile), array.ctypes.data_as(ctypes.c_void_p), stride)
    unit.nnefc_emulated_tdpbf16ps(0, 1, 2)
    found = np.zeros_like(c)
    unit.nnefc_emulated_store(0, found.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(found.strides[0]))
    unit.nnefc_emulated_release()
    np.testing.assert_array_equal(found, _by_the_manual(a, b, c))


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x).astype(np.float32)


def _by_the_manual(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """In float64, products of bfloat16 are exact, and their sums with float32 of like size too."""
    total = np.zeros((2, *c.shape), np.float32)
    for word in range(b.shape[0]):
        for odd in range(2):
            left = _flushed(a[:, 2 * word + odd].astype(np.float32)).astype(np.float64)
            right = _flushed(b[word, :, odd].astype(np.float32)).astype(np.float64)
            total[odd] = _flushed((left[:, None] * right + total[odd]).astype(np.float32))
    return _flushed(c + _flushed(total[0] + total[1]))
