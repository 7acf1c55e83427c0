"""Matrices quantized in blocks, compared with onnxruntime; they stay packed in the library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from emulation import MACHINES, run_on
from onnx import TensorProto, helper, numpy_helper
from onnx_operator_cases import Case, by_onnxruntime, check, compiled, feeds_of, model_of
from pass_runs import optimized

import nnefc
from nnefc.backends import backend_of
from nnefc.frontends.onnx import load
from nnefc.operators.nn.block_quantization import packed, unpacked
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.parsing import parse_target

RNG = np.random.default_rng(23)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def codes(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def case(op: str, *inputs: np.ndarray | None, constant: tuple[int, ...], **given: Any) -> Case:
    return Case(op, inputs, given, frozenset(constant), domain="com.microsoft")


def product(rows: tuple[int, ...], depth: int, columns: int, block: int, bits: int = 4, **options: Any) -> Case:
    """`MatMulNBits`, with zero points that are left out, packed or floats."""
    blocks = -(-depth // block)
    data, scales = codes(columns, blocks, block * bits // 8), abs(real(columns, blocks)) * 0.05
    zeros = {
        None: None,
        "packed": codes(columns, -(-blocks * bits // 8)),
        "floats": 3 * real(columns, blocks) + 8,
    }[options.get("zeros")]
    if options.get("flat"):
        scales, zeros = scales.reshape(-1), None if zeros is None else zeros.reshape(-1)
    groups = RNG.permutation(depth).astype(np.int32) // block if options.get("groups") else None
    bias = real(columns) if options.get("bias") else None
    constant = options.get("constant", (1, 2, 3, 4, 5))
    shapes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    shapes |= {"accuracy_level": options["level"]} if "level" in options else {}
    return case("MatMulNBits", real(*rows, depth), data, scales, zeros, groups, bias, constant=constant, **shapes)


def test_products_agree_with_onnxruntime() -> None:
    given = [
        product((3,), 64, 40, 32),
        product((3,), 64, 48, 16, zeros="packed", bias=True),
        product((3,), 96, 33, 32, zeros="floats"),
        product((3,), 128, 32, 64, bits=8, zeros="packed"),
        product((2, 5), 100, 20, 32, zeros="packed"),
        product((1,), 100, 20, 16, bits=8),
        product((1, 1), 256, 64, 256, zeros="packed", flat=True),
        product((1, 17), 512, 64, 32, zeros="packed"),
        product((3,), 64, 40, 32, bits=2),
        product((3,), 64, 32, 32, groups=True),
        product((3,), 64, 40, 32, zeros="packed", constant=()),
    ]
    check(given, compiled(given, 21), by_onnxruntime(given, 21), tolerance=1e-4)


def zero_points(zeros: np.ndarray | None, bits: int, shape: tuple[int, int]) -> np.ndarray:
    """`[columns, blocks]`, of what a product is given: nothing, packed integers, or floats as they are."""
    if zeros is None:
        return np.full(shape, 1 << (bits - 1))
    return zeros if zeros.dtype == np.float32 else unpacked(zeros, bits)[:, : shape[1]]


def rounded_product(given: Case) -> np.ndarray:
    """What a product is whose left factor is rounded to 8 bits, a scale for each block, in double precision."""
    x, data, scales, zeros = given.inputs[:4]
    depth, columns, bits, block = (given.attributes[name] for name in ("K", "N", "bits", "block_size"))
    blocks = -(-depth // block)
    padded = np.zeros((*x.shape[:-1], blocks * block), np.float32)
    padded[..., :depth] = x
    parts = padded.reshape(*x.shape[:-1], blocks, block)
    ranges = np.maximum(abs(parts).max(-1, keepdims=True), np.float32(1e-30)) * np.float32(1 / 127)
    rows = (np.round(parts / ranges) * ranges.astype(np.float64)).reshape(padded.shape)
    points = zero_points(zeros, bits, (columns, blocks))
    elements = unpacked(data, bits).reshape(columns, blocks, block) - points[..., None].astype(np.float64)
    return np.asarray(rows @ (elements * scales[..., None]).reshape(columns, -1).T)


FLOATS_LEVEL, FLOAT16_LEVEL, BYTES_LEVEL = 0, 2, 4
"""Of `accuracy_level`: float32, which is also what models mean that have none; float16; int8."""

BYTES_TARGET = "llvm -mcpu=x86-64-v4 -mattr=+avx512vnni"
HAS_BYTES = Path("/proc/cpuinfo").exists() and "avx512_vnni" in Path("/proc/cpuinfo").read_text()
RUNS_BYTES = pytest.mark.skipif(not HAS_BYTES, reason="needs: a machine with AVX-512 VNNI")
RUN_TARGET = BYTES_TARGET if HAS_BYTES else "x86-64-v3"
"""What multiplies bytes here: `vpdpbusd`, or `vpmaddubsw`."""

BYTES = [
    product((1,), 256, 64, 32, level=BYTES_LEVEL),
    product((9,), 2048, 40, 32, zeros="packed", level=BYTES_LEVEL),  # with rows that are padded
    product((2, 5), 100, 33, 16, zeros="packed", level=BYTES_LEVEL),
    product((17,), 128, 48, 128, bits=8, level=BYTES_LEVEL),
    product((4,), 128, 48, 32, bits=8, zeros="packed", level=BYTES_LEVEL),
    product((4,), 64, 32, 16, bits=2, zeros="packed", level=BYTES_LEVEL),
]


def test_rows_are_rounded_to_bytes_where_the_model_lets_them(tmp_path: Path) -> None:
    """And one instruction multiplies four bytes."""
    wanted = [[rounded_product(each).astype(np.float32)] for each in BYTES]
    check(BYTES, compiled(BYTES, 21, target=RUN_TARGET), wanted, tolerance=2e-6)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(BYTES, 21).SerializeToString())
    machine = next(machine for machine in MACHINES if machine.name == "cortex-a76")
    found = run_on(machine, nnefc.compile(path, target=machine.target), feeds_of(BYTES))
    check(BYTES, [[array] for array in found.values()], wanted, tolerance=2e-6)


def at_level(given: Case, level: int) -> Case:
    return replace(given, attributes=given.attributes | {"accuracy_level": level})


FLOATS = [at_level(each, FLOATS_LEVEL) for each in BYTES]


def exact_product(given: Case) -> np.ndarray:
    """Of the numbers as they are, in double precision."""
    x, data, scales, zeros = given.inputs[:4]
    depth, columns, bits, block = (given.attributes[name] for name in ("K", "N", "bits", "block_size"))
    blocks = -(-depth // block)
    points = zero_points(zeros, bits, (columns, blocks))
    elements = unpacked(data, bits).reshape(columns, blocks, block) - points[..., None].astype(np.float64)
    return np.asarray(x.astype(np.float64) @ (elements * scales[..., None]).reshape(columns, -1).T[:depth])


@pytest.mark.parametrize(
    "outlier", [pytest.param(1.0, marks=pytest.mark.slow), pytest.param(1e3, marks=pytest.mark.slow), 1e5]
)
@pytest.mark.parametrize("target", [pytest.param(BYTES_TARGET, marks=RUNS_BYTES), "x86-64-v3"])
def test_rows_are_as_exact_as_onnxruntimes_where_the_model_says_nothing(outlier: float, target: str) -> None:
    """Each column compared with float64, also those whose weight of an outlier is zero."""
    given = [product((6,), 512, 96, 32), product((1,), 512, 96, 64, bits=8), product((3,), 512, 96, 32, level=1)]
    for each in given:
        each.inputs[0][:, 5] *= outlier
    found, theirs = compiled(given, 21, target=target), by_onnxruntime(given, 21)
    for case_, ((ours,), (other,)) in zip(given, zip(found, theirs, strict=True), strict=True):
        wanted = exact_product(case_)
        points = 1 << (case_.attributes["bits"] - 1)
        weights = np.abs(unpacked(case_.inputs[1], case_.attributes["bits"]).astype(np.float64) - points)
        scales = case_.inputs[2].astype(np.float64)[..., None]
        terms = np.abs(case_.inputs[0]).astype(np.float64) @ (weights * scales).reshape(len(scales), -1).T
        maximum = (np.abs(other - wanted) / terms).max()
        assert (np.abs(ours - wanted) / terms).max() <= max(2 * maximum, 2.0**-22)


def test_rows_have_two_bytes_where_bytes_are_multiplied_and_the_model_allows_fp16(tmp_path: Path) -> None:
    """Unless they are compiled strictly; the error is below a ten-thousandth."""
    more = [product((5,), 384, 40, 128, zeros="packed"), product((3,), 512, 32, 256, bits=8)]
    given = [at_level(each, FLOAT16_LEVEL) for each in (*FLOATS, *more)]
    wanted = [[exact_product(each).astype(np.float32)] for each in given]
    check(given, compiled(given, 21, target=RUN_TARGET), wanted, tolerance=5e-5)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(given, 21).SerializeToString())
    machine = next(machine for machine in MACHINES if machine.name == "cortex-a76")
    found = run_on(machine, nnefc.compile(path, target=machine.target), feeds_of(given))
    check(given, [[array] for array in found.values()], wanted, tolerance=5e-5)


@pytest.mark.parametrize("strict", [False, True])
def test_products_that_share_integers_keep_their_own_scales_and_points(strict: bool, tmp_path: Path) -> None:
    """And their own order of the integers, where one is of bytes and the other is not."""
    first = product((3,), 64, 32, 32)
    data, scales = first.inputs[1:3]
    points = codes(32, 1)
    others = [(scales * 3 + 1, None, 0), (scales, points, 2), (scales, points + 3, 2), (scales, None, 4)]
    given = [first]
    for scale, zeros, level in others:
        inputs = (real(3, 64), data, scale, zeros, None, None)
        given.append(replace(first, inputs=inputs, attributes=first.attributes | {"accuracy_level": level}))
    model = model_of(given, 21)
    for node in model.graph.node:
        node.input[1] = model.graph.node[0].input[1]
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    found = nnefc.compile(path, RUN_TARGET, strict=strict).run(feeds_of(given)).values()
    for case_, array in zip(given, found, strict=True):
        rounded = case_.attributes.get("accuracy_level") == 4
        wanted = rounded_product(case_) if rounded else exact_product(case_)
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-4 * abs(wanted).max())


def instructions(folder: Path, given: Case, *names: str, **options: Any) -> list[int]:
    """Returns how often instructions are in the code of a product."""
    path = folder / "model.onnx"
    path.write_bytes(model_of([given], 21).SerializeToString())
    nnefc.compile(path, BYTES_TARGET, **options).emit("asm", folder / "code")
    text = "".join(part.read_text() for part in (folder / "code").glob("*.s"))
    return [text.count(f"\t{name}") for name in names]


def test_both_bytes_are_multiplied_by_the_same_elements_in_registers(tmp_path: Path) -> None:
    given = product((1,), 512, 256, 32, level=FLOAT16_LEVEL)
    products, permutations = instructions(tmp_path, given, "vpdpbusd", "vpermps")
    assert products >= 4 * 2
    assert permutations == 0


def test_rows_stay_floats_in_strict_code_and_where_the_model_does_not_let_them_be_rounded(tmp_path: Path) -> None:
    given = product((1,), 512, 256, 32)
    assert instructions(tmp_path, given, "vpdpbusd") == [0]
    given = product((1,), 512, 256, 32, level=FLOAT16_LEVEL)
    assert instructions(tmp_path, given, "vpdpbusd", strict=True) == [0]


@pytest.mark.parametrize("level", [FLOATS_LEVEL, FLOAT16_LEVEL])
def test_nan_in_a_row_is_none_in_the_product(level: int) -> None:
    given = product((4,), 64, 32, 32, level=level)
    given.inputs[0][1:, 40] = np.nan, np.inf, -np.inf
    (found,) = compiled([given], 21, target=RUN_TARGET)
    assert np.isfinite(found[0]).all(1).tolist() == [True, False, False, False]
    assert not np.isfinite(found[0][1:]).any()


def test_rows_stay_floats_without_such_an_instruction() -> None:
    half = len(BYTES) // 2  # matrices of 8, 4 and 2 bits
    found = compiled([*BYTES[half:], *FLOATS[half:]], 21, target="x86-64-v2")
    for one, other in zip(found[:half], found[half:], strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("rounded", [False, True])
def test_products_of_blocks_take_any_number_of_rows(rounded: bool, tmp_path: Path) -> None:
    given = product((1,), 96, 80, 32, zeros="packed", level=BYTES_LEVEL if rounded else FLOATS_LEVEL)
    model = model_of([given], 21)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    artifact = nnefc.compile(path, target=RUN_TARGET, shape={"rows": "1..40"})
    assert "if rows == T.int64(1)" in artifact.code.module.script()  # one row has tiles of its own
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for rows in (1, 2, 7, 12, 33, 40):
        feeds = {model.graph.input[0].name: real(rows, 96)}
        found, wanted = next(iter(artifact.run(feeds).values())), session.run(None, feeds)[0]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=5e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("zeros", [None, "packed"])
def test_elements_of_four_bits_are_looked_up(zeros: str | None, tmp_path: Path) -> None:
    """By one instruction, in registers; a scale is applied once a block."""
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([product((1,), 512, 256, 32, zeros=zeros)], 21).SerializeToString())
    nnefc.compile(path, target="x86-64-v4").emit("asm", tmp_path / "code")
    lines = [line.split() for path in (tmp_path / "code").glob("*.s") for line in path.read_text().splitlines()]
    looked_up = sum(line[0] in ("vpermps", "vpermd") for line in lines if line)
    multiplied = sum(line[0].startswith("vfmadd") and "zmm" in line[-1] for line in lines if line)
    assert 0 < looked_up <= multiplied < 1.5 * looked_up


def test_zero_points_of_groups_agree_with_the_definition() -> None:
    """onnxruntime leaves them out where there are groups."""
    given = product((3,), 64, 32, 32, zeros="packed", groups=True)
    x, data, scales, zeros, groups, _ = given.inputs
    elements = unpacked(data, 4).reshape(32, 64).astype(np.float64)
    weights = (elements - unpacked(zeros, 4)[:, groups]) * scales[:, groups]
    check([given], compiled([given], 21), [[(x @ weights.T).astype(np.float32)]], tolerance=1e-4)


def test_float16(tmp_path: Path) -> None:
    """Scales and zero points in half precision; the product is computed in float32."""
    wide = product((2, 3), 64, 24, 32, zeros="floats")
    half = [x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in wide.inputs]
    given = Case(wide.op, half, wide.attributes, wide.constant, domain=wide.domain, types={0: TensorProto.FLOAT16})
    same = [x.astype(np.float32) if x is not None and x.dtype == np.float16 else x for x in half]
    wanted = by_onnxruntime([Case(wide.op, same, wide.attributes, wide.constant, domain=wide.domain)], 21)
    check([given], compiled([given], 21), [[array.astype(np.float16) for array in wanted[0]]], tolerance=2e-3)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bytes_are_packed_and_unpacked(bits: int) -> None:
    data = codes(5, 3, 8)
    elements = unpacked(data, bits)
    assert elements.shape == (5, 3, 64 // bits)
    assert elements.max() < 1 << bits
    np.testing.assert_array_equal(packed(elements, bits), data)


def test_matrices_stay_packed(tmp_path: Path) -> None:
    """No kernel widens a matrix before the product, and the library's constants are about as large as the model's."""
    given = [product((1,), 256, 512, 32, zeros="packed"), product((1,), 512, 256, 64, bits=8)]
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(given, 21).SerializeToString())
    network = optimized(load(path), backend_of(parse_target("llvm -mcpu=x86-64-v3")))
    names = {gv.name_hint for gv in network.module.get_global_vars()}
    assert not any("dequantize" in name for name in names)
    stored = sum(
        array.nbytes for each in given for position, array in enumerate(each.inputs) if position and array is not None
    )
    artifact = nnefc.compile(path)
    assert artifact.description.constant_bytes < 1.2 * stored


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.sample(1)
def test_matrices_that_the_standard_dequantizes_in_blocks_stay_packed(dtype: str, tmp_path: Path) -> None:
    """Where a product takes them; what else reads them has the same values."""
    low, high = (-8, 8) if dtype == "int4" else (0, 16)
    kind = getattr(TensorProto, dtype.upper())
    elements, zeros = RNG.integers(low, high, (192, 256)), RNG.integers(low, high, (6, 256))
    scales, left, other = abs(real(6, 256)) * 0.1, real(3, 192), real(192, 256)
    made = [
        helper.make_tensor("w", kind, elements.shape, elements.reshape(-1)),
        numpy_helper.from_array(scales, "s"),
        helper.make_tensor("z", kind, zeros.shape, zeros.reshape(-1)),
    ]
    info, matrix = helper.make_tensor_value_info, (elements - np.repeat(zeros, 32, 0)) * np.repeat(scales, 32, 0)
    wide = helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=32)
    for op, x, wanted in (("MatMul", left, left @ matrix), ("Add", other, other + matrix)):
        nodes = [wide, helper.make_node(op, ["x", "d"], ["y"])]
        inputs, outputs = [info("x", TensorProto.FLOAT, x.shape)], [info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph(nodes, "g", inputs, outputs, made)
        path = tmp_path / f"{op}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
        artifact = nnefc.compile(path)
        np.testing.assert_allclose(artifact.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-3)
        stored = elements.size / 2 + scales.nbytes + zeros.size
        assert (artifact.description.constant_bytes < 1.2 * stored) == (op == "MatMul")


def table_product(rows: int, depth: int, columns: int, block: int, kind: int) -> Case:
    data, scales = codes((columns * depth + 1) // 2), abs(real(-(-columns * depth // block)))
    shapes = {"K": depth, "N": columns, "block_size": block, "quant_type": kind}
    return case("MatMulBnb4", real(rows, depth), data, scales, constant=(1, 2), **shapes)


def gather(shape: tuple[int, ...], indices: np.ndarray, block: int, bits: int, zeros: bool = True) -> Case:
    data, blocks = codes(*shape), shape[-1] * (8 // bits) // block
    zero = codes(*shape[:-1], -(-blocks * bits // 8)) if zeros else None
    given = {"gather_axis": 0, "quantize_axis": len(shape) - 1, "block_size": block, "bits": bits}
    scales = abs(real(*shape[:-1], blocks))
    return case("GatherBlockQuantized", data, indices, scales, zero, constant=(0, 2, 3), **given)


def test_tables_and_gathers_agree_with_onnxruntime() -> None:
    given = [
        table_product(3, 64, 40, 32, 1),
        table_product(3, 65, 31, 16, 0),
        gather((9, 32), RNG.integers(0, 9, (2, 3)), 16, 4),
        gather((9, 32), RNG.integers(-9, 9, 4).astype(np.int32), 16, 8, zeros=False),
        gather((9, 32), RNG.integers(0, 9, (2, 3)), 32, 4, zeros=False),
    ]
    check(given, compiled(given, 21), by_onnxruntime(given, 21), tolerance=1e-4)


def test_gathers_of_integers_of_four_bits_agree_with_onnxruntime(tmp_path: Path) -> None:
    table, zeros = RNG.integers(-8, 8, (9, 32)), RNG.integers(-8, 8, (9, 2))
    made = [
        helper.make_tensor("t", TensorProto.INT4, table.shape, table.reshape(-1)),
        numpy_helper.from_array(abs(real(9, 2)), "s"),
        helper.make_tensor("z", TensorProto.INT4, zeros.shape, zeros.reshape(-1)),
    ]
    node = helper.make_node("GatherBlockQuantized", ["t", "i", "s", "z"], ["y"], domain="com.microsoft", block_size=16)
    info = helper.make_tensor_value_info
    inputs, outputs = [info("i", TensorProto.INT64, [5])], [info("y", TensorProto.FLOAT, [5, 32])]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", inputs, outputs, made)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)

    feeds = {"i": np.array([0, 8, 3, 3, 1])}
    (wanted,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(nnefc.compile(path).run(feeds)["y"], wanted, rtol=1e-5, atol=1e-6)


def test_weights_in_the_order_of_a_gpu_are_refused() -> None:
    given = product((3,), 64, 32, 32)
    prepacked = Case(
        given.op, given.inputs, {**given.attributes, "weight_prepacked": 1}, given.constant, 1, given.domain
    )
    with pytest.raises(CompileError, match="weights in the order of a GPU") as failure:
        compiled([prepacked], 21)
    assert failure.value.hint == "quantize without weight_prepacked"
