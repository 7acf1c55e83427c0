"""Sums of products of bytes on machines that sum them up in different ways, to the last bit compared with
onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emulation import MACHINES, Machine, run_on, with_relaxed_simd
from numpy_reference import convolve
from onnx import helper, numpy_helper
from small_networks import Net

import nnefc

EMULATED = {"aarch64", "cortex-a76", "armv7", "riscv64gcv", "wasm32"}


@pytest.fixture(params=[pytest.param(machine, id=machine.name) for machine in MACHINES if machine.name in EMULATED])
def machine(request: pytest.FixtureRequest) -> Machine:
    found: Machine = request.param
    if found.missing:
        pytest.skip(f"needs: {found.missing}")
    return found


def elements(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], at_limits: bool) -> np.ndarray:
    """Of the whole range, or its ends alone: the largest sums that are possible."""
    limits = np.iinfo(dtype)
    if at_limits:
        return np.full(shape, limits.min if limits.min else limits.max, dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def products(rng: np.random.Generator) -> Iterator[tuple[str, str, str, tuple[int, ...], tuple[int, ...], int, bool]]:
    """Operator, types, shapes, groups, and whether all elements are at the limits."""
    for data, weights in (("uint8", "int8"), ("uint8", "uint8")):
        inputs, outputs, size = (int(n) for n in rng.integers((3, 5, 3), (40, 40, 12)))
        kernel = int(rng.integers(1, 4))
        shape = (outputs, inputs, kernel, kernel)
        yield "ConvInteger", data, weights, (1, inputs, size + 2, size), shape, 1, False
        yield "ConvInteger", data, weights, (1, 24, 9, 9), (24, 1, 3, 3), 24, False
        yield "ConvInteger", data, weights, (1, 16, 4, 7), (16, 16, 1, 1), 1, True
        yield "ConvInteger", data, weights, (1, 32, 6, 13), (24, 32, 3, 3), 1, False  # 13 results and one to drop
    for data, weights in (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")):
        rows, depth, columns = (int(n) for n in rng.integers(1, 50, 3))
        yield "MatMulInteger", data, weights, (rows, depth), (depth, columns), 1, False
        yield "MatMulInteger", data, weights, (4, 64), (64, 16), 1, True
        yield "MatMulInteger", data, weights, (1, 72), (72, 40), 1, False


def network(rng: np.random.Generator, step: int = 1) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Many such operators, or every `step`-th of them, side by side, and their data."""
    nodes, constants, inputs = [], [], {}
    element = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("uint8", "int8", "int32")}
    for n, (operator, data, weights, of_data, of_weights, groups, at_limits) in enumerate([*products(rng)][::step]):
        inputs[f"x{n}"] = elements(rng, data, of_data, at_limits)
        factors = elements(rng, weights, of_weights, at_limits)
        if n % 2 and weights == "int8":
            factors = np.maximum(factors, -127)  # as quantizers make them: two products fit into 16 bits
        constants.append(numpy_helper.from_array(factors, f"w{n}"))
        if operator == "ConvInteger":
            attributes = {"group": groups, "pads": [of_weights[-1] // 2] * 4}
            nodes.append(helper.make_node(operator, [f"x{n}", f"w{n}"], [f"y{n}"], **attributes))
        else:
            nodes.append(helper.make_node(operator, [f"x{n}", f"w{n}"], [f"y{n}"]))
    graph = helper.make_graph(
        nodes,
        "sums",
        [helper.make_tensor_value_info(name, element[str(a.dtype)], a.shape) for name, a in inputs.items()],
        [helper.make_tensor_value_info(f"y{n}", element["int32"], None) for n in range(len(nodes))],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), inputs


@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.sample(1)
def test_sums_of_products_are_exact(machine: Machine, step: int, tmp_path: Path) -> None:
    model, inputs = network(np.random.default_rng(20), step)
    onnx.save(model, tmp_path / "sums.onnx")
    found = run_on(machine, nnefc.compile(tmp_path / "sums.onnx", machine.target), inputs)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, wanted in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        np.testing.assert_array_equal(found[output.name], wanted, err_msg=output.name)


# Sizes of the filter, strides, dilation, width of the data, padding before and after, and the types of both operands.
WINDOWS = [
    ((3, 3), (1, 1), (1, 1), 14, (1, 1), "uint8", "int8"),
    ((3, 3), (2, 2), (1, 1), 28, (1, 1), "uint8", "int8"),
    ((3, 3), (1, 1), (1, 1), 35, (1, 1), "uint8", "int8"),
    ((3, 3), (1, 1), (1, 1), 7, (0, 0), "uint8", "int8"),
    ((5, 5), (1, 1), (1, 1), 7, (2, 2), "uint8", "int8"),
    ((5, 5), (2, 2), (1, 1), 33, (2, 1), "uint8", "int8"),
    ((2, 7), (1, 3), (1, 1), 24, (0, 3), "uint8", "int8"),
    ((1, 9), (1, 1), (1, 1), 40, (4, 4), "uint8", "int8"),
    ((3, 2), (1, 1), (2, 1), 17, (0, 1), "uint8", "int8"),
    ((3, 3), (1, 1), (1, 2), 14, (2, 2), "uint8", "int8"),
    ((3, 3), (1, 1), (1, 1), 14, (1, 1), "int8", "int8"),
    ((3, 3), (1, 1), (1, 1), 14, (1, 1), "uint8", "uint8"),
]


OTHERS = (1, 3, 6, 7, 9, 10, 11)
"""Those of `WINDOWS` that differ most from each other."""


def windows(
    folder: Path, numbers: Sequence[int] = range(len(WINDOWS))
) -> tuple[Path, dict[str, np.ndarray], list[np.ndarray]]:
    """A network of filters of their own for each channel, its inputs, and what it computes."""
    rng, net, results, wanted = np.random.default_rng(5), Net(seed=5), [], []
    for kernel, strides, dilation, width, pads, data, weights in (WINDOWS[number] for number in numbers):
        x, w = elements(rng, data, (1, 40, 11, width), False), elements(rng, weights, (40, 1, *kernel), False)
        around = [pads[0]] * 2 + [pads[1]] * 2
        attributes = {"group": 40, "pads": around, "strides": strides, "dilations": dilation}
        results.append(net.do("ConvInteger", net.given(x), net.constant(w), **attributes))
        wanted.append(convolve(x, w, strides, around, dilation, 40))
    onnx.save(net.model(results), folder / "windows.onnx")
    return folder / "windows.onnx", net.inputs, wanted


@pytest.mark.parametrize(
    ("target", "numbers"),
    [
        ("x86-64-v3", OTHERS),
        *(
            pytest.param(each, range(len(WINDOWS)), marks=pytest.mark.slow)
            for each in ("llvm", "llvm -mcpu=x86-64-v3 -mattr=+avxvnni", "x86-64-v2", "x86-64-v3")
        ),
    ],
)
def test_sums_of_windows_are_exact(target: str, numbers: Sequence[int], tmp_path: Path) -> None:
    """Their pixels are multiplied four at once, or two."""
    network, inputs, wanted = windows(tmp_path, numbers)
    try:
        model = nnefc.compile(network, target).load()
    except nnefc.LoadError as error:
        pytest.skip(str(error))
    with model:
        for found, exact in zip(model.run(inputs).values(), wanted, strict=True):
            np.testing.assert_array_equal(found, exact)


def engine() -> Machine:
    (machine,) = (one for one in MACHINES if one.name == "wasm32")
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    return machine


@pytest.mark.parametrize(
    ("target", "step"),
    [
        ("wasm32-relaxed-udot", 4),
        *(pytest.param(f"wasm32-relaxed-{dot}", 2, marks=pytest.mark.slow) for dot in ("udot", "sdot")),
    ],
)
def test_relaxed_dot_products_are_exact_or_refused(target: str, step: int, tmp_path: Path) -> None:
    machine = replace(engine(), command=with_relaxed_simd())
    model, inputs = network(np.random.default_rng(22), step)
    onnx.save(model, tmp_path / "sums.onnx")
    artifact = nnefc.compile(tmp_path / "sums.onnx", target)
    artifact.emit("asm", tmp_path)
    assert any("i32x4.relaxed_dot_i8x16_i7x16_add_s" in path.read_text() for path in tmp_path.glob("kernels*.s"))
    try:
        found = run_on(machine, artifact, inputs)
    except AssertionError as error:
        assert f"lacks {target.removeprefix('wasm32-')}" in str(error)
        return
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, wanted in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        np.testing.assert_array_equal(found[output.name], wanted, err_msg=output.name)


@pytest.mark.slow
def test_engines_sum_windows_exactly(tmp_path: Path) -> None:
    machine = engine()
    network, inputs, wanted = windows(tmp_path)
    found = run_on(machine, nnefc.compile(network, machine.target), inputs)
    for here, exact in zip(found.values(), wanted, strict=True):
        np.testing.assert_array_equal(here, exact)


def code_of(model: onnx.ModelProto, target: str, folder: Path) -> str:
    onnx.save(model, folder / "model.onnx")
    nnefc.compile(folder / "model.onnx", target).emit("asm", folder)
    return "\n".join(path.read_text() for path in folder.glob("kernels*.s"))


@pytest.mark.parametrize(("target", "maximum"), [("sapphirerapids", 1), ("llvm -mcpu=x86-64-v4 -mattr=+avx512vnni", 2)])
@pytest.mark.sample(1)
def test_neighbouring_windows_share_the_words_of_their_pixels(target: str, maximum: int, tmp_path: Path) -> None:
    """14 results have 7 words in each of 3 rows, and one or two instructions make a word."""
    net = Net(seed=6)
    x = net.given(np.zeros((1, 64, 14, 14), np.uint8))
    weights = net.constant(np.ones((64, 1, 3, 3), np.int8))
    text = code_of(net.model([net.do("ConvInteger", x, weights, group=64, pads=[1] * 4)]), target, tmp_path)
    (code,) = (part for part in text.split(".cfi_endproc") if "vpdpbusd" in part)
    assert code.count("\tvpdpbusd") == 14 * 3
    assert 7 * 3 <= code.count("\tvperm") + code.count("\tvpshufb") <= maximum * 7 * 3


@pytest.mark.parametrize(("kernel", "group"), [(3, 1), (1, 1), (1, 2)])
@pytest.mark.sample(1)
def test_loops_of_sums_load_little_compared_with_their_products_on_32_bit_arm(
    kernel: int, group: int, tmp_path: Path
) -> None:
    net = Net(seed=8)
    x = net.given(np.zeros((1, 64, 14, 13), np.uint8))
    weights = net.constant(np.ones((32, 64 // group, kernel, kernel), np.int8))
    text = code_of(
        net.model([net.do("ConvInteger", x, weights, group=group, pads=[kernel // 2] * 4)]),
        "armv7-linux-gnueabihf",
        tmp_path,
    )
    loops = re.findall(r"@APP\n(.*?)@NO_APP", text, re.DOTALL)
    assert any(loop.count("vpadal.s16") >= 8 for loop in loops)
    for loop in loops:
        sums = sum(loop.count(name) for name in ("vmull.s8", "vmlal.s8", "vpadal.s16", "vpaddl.s16"))
        assert sums >= 2 * loop.count("vld1.32")
    assert "vshrn" not in text and "vdup.16" not in text  # halves of words


def test_numbers_are_rounded_by_the_conversion_and_saturated(tmp_path: Path) -> None:
    net = Net(seed=7)
    step, zero = net.constant(np.float32(0.1)), net.constant(np.uint8(0))
    data = net.do("DequantizeLinear", net.given(np.zeros((1, 64, 8, 8), np.uint8)), step, zero)
    weights = net.do("DequantizeLinear", net.constant(np.ones((64, 64, 1, 1), np.int8)), step)
    result = net.do("QuantizeLinear", net.do("Conv", data, weights), step, zero)
    text = code_of(net.model([result]), "llvm -mcpu=x86-64-v4 -mattr=+avx512vnni", tmp_path)
    assert "vcvtps2dq" in text and "vpmovusdb" in text
    assert "vrndscaleps" not in text and "vcvttps2dq" not in text and "vminps" not in text


def residual(seed: int, results: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A convolution that is rounded to bytes, added to other bytes and rounded again, to limits and beyond; those,
    and one result or two."""
    net = Net(seed=seed)
    rng = np.random.default_rng(seed)
    step, middle, large = (net.constant(np.float32(size)) for size in (0.1, 3, 19))
    zeros = [net.constant(np.int8(zero)) for zero in (3, -5, 11)]
    data = net.do("DequantizeLinear", net.given(elements(rng, "int8", (1, 32, 9, 7), False)), step, zeros[0])
    quantized, summands = [], []
    for size, zero in ((large, zeros[1]), (middle, zeros[2])):
        weights = net.do("DequantizeLinear", net.constant(elements(rng, "int8", (40, 32, 1, 1), False)), step)
        sums = net.do("QuantizeLinear", net.do("Conv", data, weights), size, zero)
        quantized.append(sums)
        summands.append(net.do("DequantizeLinear", sums, size, zero))
    added = net.do("Add", *summands)
    rectified = net.do("Relu", added)
    outputs = [net.do("QuantizeLinear", value, size, zeros[0]) for value, size in ((added, step), (rectified, large))]
    return net.model([*quantized[1:], *outputs[:results]]), net.inputs


@pytest.mark.sample(1)
def test_bytes_that_are_added_and_rounded_again_have_the_same_bits_everywhere(machine: Machine, tmp_path: Path) -> None:
    model, inputs = residual(9, 2)
    onnx.save(model, tmp_path / "residual.onnx")
    found = run_on(machine, nnefc.compile(tmp_path / "residual.onnx", machine.target), inputs)
    with nnefc.compile(tmp_path / "residual.onnx").load() as own:
        for name, wanted in own.run(inputs).items():
            np.testing.assert_array_equal(found[name], wanted, err_msg=name)
            assert {-128, 127} <= set(wanted.flat) or wanted.min() == 3  # the zero point of what is rectified
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, wanted in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        assert np.abs(found[output.name].astype(int) - wanted).max() <= 1, output.name


def test_64_bit_arm_cuts_numbers_while_they_become_bytes_and_widens_eight_at_once(tmp_path: Path) -> None:
    text = code_of(residual(9, 1)[0], "cortex-a76", tmp_path)
    (code,) = (part for part in text.split(".cfi_endproc") if "sdot" in part and "sshll" in part)
    words = set(code.split())
    assert {"fcvtns", "sqxtn", "sqxtn2"} <= words
    assert not {"xtn", "uzp1", "zip1", "zip2", "shl"} & words
    assert code.count("fmax") == code.count("\tscvtf") // 3  # of the bytes in between
