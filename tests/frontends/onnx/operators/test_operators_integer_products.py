"""Sums of 8-bit products by the instructions of several targets, and networks of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from emulated_amx import EMULATED, emulation
from emulation import Machine, run_on, with_glibc
from exact_products import EXACT_PRODUCTS
from onnx import helper, numpy_helper
from onnx_operator_cases import SAMPLE_AND_ALL, Case, check, feeds_of, model_of
from pass_runs import optimized
from test_operators_integer import conv_integer, whole_range

from nnefc.backends import backend_of
from nnefc.driver.compile import compile_network
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.passes.compute.dot.dot_intrinsics import use_dot_products
from nnefc.targets.machine.cpu.parsing import parse_target

# Instructions for four terms, for two in wide and in narrow registers, what this machine has, and a matrix unit.
TILES = f"llvm -mcpu=x86-64-v4 -mattr=+avx512vnni,+amx-int8{EMULATED}"
VNNI = "llvm -mcpu=x86-64-v3 -mattr=+avxvnni"
WIDER = ("llvm -mcpu=x86-64-v2", "llvm -mcpu=x86-64-v3")  # the instructions of the first, and more registers
TARGETS = ("llvm", *WIDER, VNNI, "llvm -mcpu=x86-64-v4", TILES)

Family = Callable[[np.random.Generator], tuple[list[Case], list[list[np.ndarray]]]]

_CONVOLUTIONS = (
    # data, filter, groups, pads, strides, dilations
    ((1, 20, 7, 6), (18, 20, 3, 3), 1, [1, 1, 1, 1], [1, 1], [1, 1]),
    ((2, 3, 9, 8), (17, 3, 3, 2), 1, [1, 0, 0, 2], [2, 1], [1, 2]),
    ((1, 32, 5, 5), (32, 16, 1, 1), 2, [0, 0, 0, 0], [1, 1], [1, 1]),
    ((1, 12, 5, 7), (12, 4, 3, 3), 3, [1, 1, 0, 0], [1, 1], [1, 1]),
    ((1, 19, 6, 6), (19, 1, 3, 3), 19, [1, 1, 1, 1], [1, 1], [1, 1]),
    ((1, 5, 11), (6, 5, 3), 1, [2, 1], [2], [2]),
    ((1, 4, 4, 5, 3), (5, 4, 2, 2, 2), 1, [0, 1, 0, 1, 0, 1], [1, 2, 1], [1, 1, 1]),
)


def convolutions(rng: np.random.Generator) -> tuple[list[Case], list[list[np.ndarray]]]:
    """Every shape in every mix of types, with the exact sums; zero points whole, of channels, and computed."""
    cases, wanted = [], []
    for number, (shape, mix) in enumerate(product(_CONVOLUTIONS, product(("uint8", "int8"), repeat=2))):
        data, filters, groups, pads, strides, dilations = shape
        x, w = whole_range(rng, data, mix[0]), whole_range(rng, filters, mix[1])
        x_zero = whole_range(rng, (), mix[0]) if number % 3 else np.zeros((), mix[0])
        w_zero = whole_range(rng, (filters[0],) if number % 2 else (), mix[1])
        if number % 5 == 0:
            w_zero = np.zeros_like(w_zero)
        attributes = {"pads": pads, "strides": strides, "dilations": dilations, "group": groups}
        constant = frozenset({1} if number % 4 == 3 else {1, 2, 3})
        cases.append(Case("ConvInteger", [x, w, np.array(x_zero), np.array(w_zero)], attributes, constant))
        wanted.append([conv_integer(x, w, int(x_zero), w_zero, pads, strides, dilations, groups)])
    return cases, wanted


def products(rng: np.random.Generator) -> tuple[list[Case], list[list[np.ndarray]]]:
    """Matrix products in every mix of types; zero points of rows and columns; right factors that are computed."""
    cases, wanted = [], []
    shapes = (((5, 13), (13, 19)), ((2, 3, 8), (8, 33)), ((2, 7, 9), (2, 9, 4)), ((11,), (11, 6)), ((1, 64), (64, 1)))
    for number, (shape, mix) in enumerate(product(shapes, product(("uint8", "int8"), repeat=2))):
        a, b = whole_range(rng, shape[0], mix[0]), whole_range(rng, shape[1], mix[1])
        rows = (shape[0][-2],) if number % 2 and len(shape[0]) > 1 else ()
        a_zero = whole_range(rng, rows, mix[0])
        b_zero = whole_range(rng, (shape[1][-1],) if number % 3 else (), mix[1])
        constant = frozenset({1, 2, 3} if number % 4 < 2 else {2} if number % 4 == 2 else ())
        cases.append(Case("MatMulInteger", [a, b, np.array(a_zero), np.array(b_zero)], {}, constant))
        left = a.astype(np.int64) - (a_zero[:, None].astype(np.int64) if rows else a_zero.astype(np.int64))
        wanted.append([(left @ (b.astype(np.int64) - b_zero.astype(np.int64))).astype(np.int32)])
    return cases, wanted


def some_of(family: Family, turn: int, whole: bool) -> tuple[list[Case], list[list[np.ndarray]]]:
    """Returns every shape in one mix of types, another one at the next turn; in two mixes where `whole` is set."""
    cases, wanted = family(np.random.default_rng(12))
    period = 2 if whole else 4
    numbers = [number for number in range(len(cases)) if (number // 4 + number + turn) % period == 0]
    return [cases[number] for number in numbers], [wanted[number] for number in numbers]


@SAMPLE_AND_ALL
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in WIDER)) for name in TARGETS])
@pytest.mark.parametrize("family", [convolutions, products])
@pytest.mark.sample(3)
def test_sums_are_exact_by_the_instructions_of_every_target(name: str, family: Family, whole: bool) -> None:
    cases, wanted = some_of(family, TARGETS.index(name), whole)
    target = parse_target(name.removesuffix(EMULATED))
    flags = Path("/proc/cpuinfo").read_text()
    if "avx512f" in target.features and "avx512f" not in flags:
        pytest.skip("needs: a machine with AVX-512")
    if "avxvnni" in target.features and "avx_vnni" not in flags:
        pytest.skip("needs: a machine with AVX-VNNI")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model_of(cases, 10).SerializeToString())
        network = load_network(path)
    with emulation(name):
        artifact = compile_network(network, target)
    with artifact.load(threads=2) as model:
        results = model.run(feeds_of(cases))
    check(cases, [[results[f"y{i}_0"]] for i in range(len(cases))], wanted)


@pytest.mark.parametrize("name", ["llvm", TILES])
def test_products_of_dynamic_sizes_are_exact(name: str, tmp_path: Path) -> None:
    """Rows, columns and what is summed up; of integers as they are, and of what stands for reals."""
    if "avx512" in name and "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("needs: a machine with AVX-512")
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b", "u", "v"], ["sums"]),
        helper.make_node("DequantizeLinear", ["a", "s", "u"], ["p"]),
        helper.make_node("DequantizeLinear", ["b", "s", "v"], ["q"]),
        helper.make_node("MatMul", ["p", "q"], ["reals"]),
        helper.make_node("QuantizeLinear", ["reals", "t", "v"], ["steps"]),
    ]
    values = {"u": np.uint8(128), "v": np.int8(3), "s": np.float32(0.5), "t": np.float32(4096)}
    info, types = helper.make_tensor_value_info, onnx.TensorProto
    inputs = [info("a", types.UINT8, [1, "n", "k"]), info("b", types.INT8, [1, "k", "n"])]
    outputs = [info("sums", types.INT32, None), info("steps", types.INT8, None)]
    constants = [numpy_helper.from_array(np.asarray(value), key) for key, value in values.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    network = load_network(tmp_path / "model.onnx", ReadOptions(shape={"n": "1..512", "k": "1..600"}))
    rng = np.random.default_rng(4)
    with emulation(name) as emulated:
        artifact = compile_network(network, parse_target(emulated))
    with artifact.load(threads=2) as library:
        for rows, depth in ((1, 1), (7, 13), (40, 130)):
            a, b = whole_range(rng, (1, rows, depth), "uint8"), whole_range(rng, (1, depth, rows), "int8")
            wanted = (a.astype(np.int64) - 128) @ (b.astype(np.int64) - 3)
            results = library.run({"a": a, "b": b})
            np.testing.assert_array_equal(results["sums"], wanted)
            np.testing.assert_array_equal(results["steps"], np.clip(np.rint(wanted / 16384) + 3, -128, 127))


@SAMPLE_AND_ALL
@pytest.mark.parametrize("family", [products, pytest.param(convolutions, marks=pytest.mark.slow)])
def test_sums_of_pairs_of_rows_are_exact_on_arm(family: Family, whole: bool, tmp_path: Path) -> None:
    """By `smmla` and `ummla`."""
    machine = with_glibc("arm", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n2", "qemu-aarch64", "-cpu", "max")
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    cases, wanted = some_of(family, 1, whole)
    (tmp_path / "model.onnx").write_bytes(model_of(cases, 10).SerializeToString())
    artifact = compile_network(load_network(tmp_path / "model.onnx"), parse_target(machine.target))
    artifact.emit("asm", tmp_path)
    text = "".join(path.read_text() for path in tmp_path.glob("kernels*.s"))
    assert {"smmla", "ummla"} <= set(text.split())
    results = run_on(machine, artifact, feeds_of(cases))
    check(cases, [[results[f"y{i}_0"]] for i in range(len(cases))], wanted)


@pytest.mark.parametrize(
    ("machine", "instruction", "loops"),
    [
        (with_glibc("a53", "cortex-a53", "qemu-aarch64", "-cpu", "cortex-a53"), "smlal2", 3),
        (with_glibc("armv7", "armv7-linux-gnueabihf", "qemu-arm", "-cpu", "cortex-a7"), "vpadal.s16", 2),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.sample(1)
def test_open_rows_are_summed_up_in_assembler_on_arm(
    machine: Machine, instruction: str, loops: int, tmp_path: Path
) -> None:
    """By few and by many: each number of rows of a tile has a loop of its own."""
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    rng = np.random.default_rng(15)
    w = rng.integers(-127, 128, (36, 24)).astype(np.int8)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT8, ("rows", 36))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, ("rows", 24))],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    artifact = compile_network(load_network(tmp_path / "model.onnx"), parse_target(machine.target))
    artifact.emit("asm", tmp_path)
    text = "".join(path.read_text() for path in tmp_path.glob("kernels*.s"))
    assembler = re.findall(r"(?://|@)APP\n(.*?)(?://|@)NO_APP", text, re.DOTALL)
    assert sum(instruction in part for part in assembler) >= loops
    for rows in (1, 3, 7, 19):
        x = rng.integers(-128, 128, (rows, 36)).astype(np.int8)
        found = run_on(machine, artifact, {"x": x})
        np.testing.assert_array_equal(found["y"], x.astype(np.int32) @ w.astype(np.int32))


_DEPTHWISE = (
    # data, kernel, pads, strides, dilations
    ((2, 19, 7, 6), (3, 3), [1, 1, 1, 1], [1, 1], [1, 1]),
    ((1, 32, 15, 13), (3, 3), [0, 1, 2, 1], [2, 2], [1, 1]),
    ((1, 8, 9, 11), (5, 5), [2, 2, 2, 2], [1, 1], [1, 2]),
    ((1, 6, 8, 9), (7, 7), [3, 3, 3, 3], [1, 2], [1, 1]),
    ((1, 17, 11), (4,), [2, 1], [2], [2]),
    ((1, 9, 4, 5, 6), (2, 1, 3), [0, 0, 1, 1, 0, 1], [1, 1, 1], [1, 1, 1]),
)


@SAMPLE_AND_ALL
@pytest.mark.parametrize(
    ("machine", "instruction"),
    [
        (with_glibc("a53", "cortex-a53", "qemu-aarch64", "-cpu", "cortex-a53"), "smlal"),
        pytest.param(
            with_glibc("a76", "cortex-a76", "qemu-aarch64", "-cpu", "cortex-a76"), "smlal", marks=pytest.mark.slow
        ),
        pytest.param(
            with_glibc("armv7", "armv7-linux-gnueabihf", "qemu-arm", "-cpu", "cortex-a7"),
            "vmlal.s8",
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_channels_are_convolved_by_products_of_16_bits_on_arm(
    machine: Machine, instruction: str, whole: bool, tmp_path: Path
) -> None:
    """Exactly, for the smallest and largest weights too, of which two products do not fit into 16 bits."""
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    rng = np.random.default_rng(14)
    cases, wanted = [], []
    for number, (shape, kernel, pads, strides, dilations) in enumerate(_DEPTHWISE * (2 if whole else 1)):
        mix, channels = ("uint8", "int8")[number % 2 ^ number // len(_DEPTHWISE)], shape[1]
        x = np.where(rng.random(shape) < 0.5, np.iinfo(mix).min, whole_range(rng, shape, mix)).astype(mix)
        w = np.where(rng.random((channels, 1, *kernel)) < 0.5, -127, whole_range(rng, (channels, 1, *kernel), "int8"))
        w = np.maximum(w, -128 if number % 4 == 3 else -127).astype(np.int8)
        zero = whole_range(rng, (), mix)
        attributes = {"pads": pads, "strides": strides, "dilations": dilations, "group": channels}
        cases.append(Case("ConvInteger", [x, w, np.array(zero)], attributes, frozenset({1, 2})))
        zeros = np.zeros((), np.int8)
        wanted.append([conv_integer(x, w, int(zero), zeros, pads, strides, dilations, channels)])
    (tmp_path / "model.onnx").write_bytes(model_of(cases, 10).SerializeToString())
    artifact = compile_network(load_network(tmp_path / "model.onnx"), parse_target(machine.target))
    artifact.emit("asm", tmp_path)
    text = "".join(path.read_text() for path in tmp_path.glob("kernels*.s"))
    pairs = 4 if whole else 2  # for each result in a row
    assert text.split().count(instruction) >= pairs * 9  # taps
    results = run_on(machine, artifact, feeds_of(cases))
    check(cases, [[results[f"y{i}_0"]] for i in range(len(cases))], wanted)


def chain(types: tuple[str, str, str]) -> onnx.ModelProto:
    """Three quantized convolutions, the second depthwise, and a pooling between; `types` are those of the data."""
    rng = np.random.default_rng(13)
    arrays = {"zero": np.array(3, types[0]), "one": np.float32(0.05)}
    nodes = []
    shapes = (((32, 3, 3, 3), 1), ((32, 1, 3, 3), 32), ((20, 32, 1, 1), 1))
    source, kind = "x", types[0]
    for i, (shape, groups) in enumerate(shapes):
        result = types[min(i + 1, 2)]
        arrays |= {
            f"w{i}": whole_range(rng, shape, "int8"),
            f"ws{i}": rng.random(shape[0]).astype(np.float32) * 0.01,
            f"wz{i}": np.zeros(shape[0], np.int8),
            f"z{i}": np.array(5, result),
            f"s{i}": np.float32(0.2),
            f"xz{i}": np.array(3, kind),
            f"b{i}": rng.integers(-99, 99, shape[0]).astype(np.int32),
        }
        names = [source, "one", f"xz{i}", f"w{i}", f"ws{i}", f"wz{i}", f"s{i}", f"z{i}", f"b{i}"]
        pads = [shape[2] // 2] * 4
        nodes.append(helper.make_node("QLinearConv", names, [f"y{i}"], group=groups, pads=pads))
        source, kind = f"y{i}", result
        if i == 1:
            nodes.append(helper.make_node("MaxPool", [source], ["p"], kernel_shape=[2, 2], strides=[2, 2]))
            source = "p"
    element = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("uint8", "int8")}
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", element[types[0]], (1, 3, 12, 12))],
        [helper.make_tensor_value_info(source, element[types[2]], (1, 20, 6, 6))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@EXACT_PRODUCTS
@pytest.mark.parametrize("types", [("uint8", "uint8", "uint8"), ("int8", "int8", "int8")])
def test_quantized_networks_agree_with_onnxruntime(types: tuple[str, str, str], tmp_path: Path) -> None:
    model = chain(types)
    onnx.save(model, tmp_path / "chain.onnx")
    x = whole_range(np.random.default_rng(14), (1, 3, 12, 12), types[0])
    with compile_network(load_network(tmp_path / "chain.onnx"), parse_target("llvm")).load(threads=1) as library:
        found = next(iter(library.run({"x": x}).values()))
    options = onnxruntime.SessionOptions()  # its optimizations choose kernels that it does not have for int8
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})[0]
    # Both round real quotients: they may differ where one lies on the border of two integers.
    difference = np.abs(found.astype(int) - wanted.astype(int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02
    assert len(np.unique(wanted)) > 20


def test_quantized_networks_on_arm_multiply_by_lanes(tmp_path: Path) -> None:
    machine = with_glibc("a76", "cortex-a76", "qemu-aarch64", "-cpu", "cortex-a76")
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    model = chain(("uint8", "uint8", "uint8"))
    onnx.save(model, tmp_path / "chain.onnx")
    artifact = compile_network(load_network(tmp_path / "chain.onnx"), parse_target(machine.target))
    artifact.emit("asm", tmp_path)
    text = "".join(path.read_text() for path in tmp_path.glob("kernels*.s"))
    assert len(re.findall(r"sdot\s.*\[", text)) >= 8
    x = whole_range(np.random.default_rng(14), (1, 3, 12, 12), "uint8")
    found = next(iter(run_on(machine, artifact, {"x": x}).values()))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    difference = np.abs(found.astype(int) - session.run(None, {"x": x})[0].astype(int))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.02


def test_quantized_networks_keep_the_blocked_layout(tmp_path: Path) -> None:
    onnx.save(chain(("uint8", "uint8", "uint8")), tmp_path / "chain.onnx")
    target = parse_target("llvm -mcpu=x86-64-v4")
    use_dot_products()
    with target.to_tvm():
        network = load_network(tmp_path / "chain.onnx")
        module = optimized(network, backend_of(target)).module
    names = [gv.name_hint for gv in module.functions if isinstance(module[gv], tvm.tirx.PrimFunc)]
    assert sum("block" in name for name in names) == 2  # in and out
    assert sum(name.startswith("fused_integer") for name in names) == 3  # requantized in the write-back
