"""Weights in the order of `smmla`: their layout, which libraries have it, and that sums are exact."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulation import run_on, with_glibc
from numpy_reference import convolve
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.passes.compute.dot.dot_product import multiplication_of
from nnefc.passes.compute.dot.matrix_units import paired_terms
from nnefc.passes.compute.dot.paired_weights import pair_terms
from nnefc.targets.machine.cpu.multiversioning import with_levels
from nnefc.targets.machine.cpu.parsing import parse_target

MACHINE = with_glibc("v2", "neoverse-v2", "qemu-aarch64", "-cpu", "max")


def test_the_dot_operands_of_a_column_follow_each_other() -> None:
    packed = np.arange(2 * 4 * 3).reshape(2, 4, 3)  # [outer, sum, columns]
    made = pair_terms(packed, 2)
    assert made.shape == (2, 2, 3, 2)
    for outer, term, column in np.ndindex(packed.shape):
        assert made[outer, term // 2, column, term % 2] == packed[outer, term, column]


def test_levels_of_one_library_share_the_order_of_vectors() -> None:
    alone = parse_target("neoverse-v2")
    how = multiplication_of(alone, "int8", "int8")
    assert paired_terms(how, alone) == 2
    assert [paired_terms(how, level) for level in with_levels(parse_target("aarch64-linux-gnu")).levels] == [0, 0, 0]
    assert paired_terms(multiplication_of(parse_target("cortex-a76"), "int8", "int8"), parse_target("cortex-a76")) == 0


def test_sums_are_exact_and_the_loop_brings_no_weights_together(tmp_path: Path) -> None:
    """Convolutions of odd sizes, strides and groups, those of few channels, matrix products of several rows and of one,
    and convolutions whose sums become bytes."""
    if MACHINE.missing:
        pytest.skip(f"needs: {MACHINE.missing}")
    random, nodes, constants, inputs, wanted = np.random.default_rng(3), [], [], {}, []
    for outputs, channels, size, kernel, stride, groups in (
        (32, 32, (9, 7), 3, 1, 1),
        (19, 32, (9, 7), 1, 1, 1),
        (16, 48, (7, 11), 3, 2, 1),
        (32, 32, (6, 5), 3, 1, 2),
        (16, 16, (3, 3), 3, 1, 1),
        (19, 3, (9, 8), 3, 2, 1),
        (16, 4, (6, 9), 5, 1, 1),
        (16, 7, (6, 5), 3, 1, 1),
    ):
        n = len(nodes)
        x = inputs[f"x{n}"] = random.integers(-128, 128, (1, channels, *size)).astype(np.int8)
        w = random.integers(-128, 128, (outputs, channels // groups, kernel, kernel)).astype(np.int8)
        constants.append(numpy_helper.from_array(w, f"w{n}"))
        how = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": groups}
        nodes.append(helper.make_node("ConvInteger", [f"x{n}", f"w{n}"], [f"y{n}"], **how))
        wanted.append(convolve(x, w, [stride] * 2, [kernel // 2] * 4, [1, 1], groups))
    for rows, depth, columns in ((13, 40, 33), (5, 21, 64), (1, 64, 32)):
        n = len(nodes)
        x = inputs[f"x{n}"] = random.integers(-128, 128, (rows, depth)).astype(np.int8)
        w = random.integers(-128, 128, (depth, columns)).astype(np.int8)
        constants.append(numpy_helper.from_array(w, f"w{n}"))
        nodes.append(helper.make_node("MatMulInteger", [f"x{n}", f"w{n}"], [f"y{n}"]))
        wanted.append(x.astype(np.int64) @ w.astype(np.int64))
    outputs = [helper.make_tensor_value_info(f"y{n}", TensorProto.INT32, None) for n in range(len(wanted))]
    for kernel, zero in ((3, -128), (1, 5)):
        wanted.append(_requantized(random, nodes, constants, inputs, f"y{len(wanted)}", kernel, zero))
        outputs.append(helper.make_tensor_value_info(f"y{len(outputs)}", TensorProto.INT8, None))
    data = [helper.make_tensor_value_info(name, TensorProto.INT8, x.shape) for name, x in inputs.items()]
    graph = helper.make_graph(nodes, "g", data, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    artifact = nnefc.compile(tmp_path / "m.onnx", MACHINE.target)
    found = run_on(MACHINE, artifact, inputs)
    for n, result in enumerate(wanted):
        np.testing.assert_array_equal(found[f"y{n}"], result, err_msg=f"y{n}")
    artifact.emit("asm", tmp_path / "asm")
    text = "".join(path.read_text() for path in sorted((tmp_path / "asm").glob("*.s")))
    blocks = [block.split() for block in re.findall(r"//APP\n(.*?)//NO_APP", text, re.DOTALL)]
    main = max(blocks, key=lambda words: words.count("smmla"))
    zips = sum(word in ("zip1", "zip2", "ins", "trn1", "trn2", "add") for word in main)
    assert zips == 0 < main.count("ld4") + main.count("ld1") <= main.count("smmla") / 8


def _requantized(
    random: np.random.Generator,
    nodes: list[onnx.NodeProto],
    constants: list[TensorProto],
    inputs: dict[str, np.ndarray],
    name: str,
    kernel: int,
    zero: int,
) -> np.ndarray:
    """Adds a convolution of bytes, with a bias and scale for each channel, and a sum with other bytes; all scales are
    powers of two, so that results are exact. Returns them."""
    x, other = (random.integers(-128, 128, (1, count, 5, 7)).astype(np.int8) for count in (16, 32))
    inputs |= {f"{name}x": x, f"{name}o": other}
    w = random.integers(-127, 128, (32, 16, kernel, kernel)).astype(np.int8)
    bias = random.integers(-9999, 9999, 32).astype(np.int32)
    scales = (2.0 ** random.integers(-12, -8, 32)).astype(np.float32)

    def dequantized(data: str, array: np.ndarray | None, scale: np.ndarray, point: np.ndarray) -> str:
        arrays = {"s": np.asarray(scale, np.float32), "z": point} | ({} if array is None else {"": array})
        constants.extend(numpy_helper.from_array(each, data + key) for key, each in arrays.items())
        axis = {"axis": 0} if np.ndim(scale) else {}
        nodes.append(helper.make_node("DequantizeLinear", [data, f"{data}s", f"{data}z"], [f"{data}d"], **axis))
        return f"{data}d"

    nothing = np.zeros(32, np.int8)
    factors = [
        dequantized(f"{name}x", None, np.float32(1), np.int8(3)),
        dequantized(f"{name}w", w, scales, nothing),
        dequantized(f"{name}b", bias, scales, nothing.astype(np.int32)),
    ]
    more = dequantized(f"{name}o", None, np.float32(0.5), np.int8(-7))
    for key, number in (("s", np.float32(0.25)), ("z", np.int8(zero))):
        constants.append(numpy_helper.from_array(np.asarray(number), name + key))
    nodes.append(helper.make_node("Conv", factors, [f"{name}c"], pads=[kernel // 2] * 4))
    nodes.append(helper.make_node("Relu", [f"{name}c"], [f"{name}r"]))
    nodes.append(helper.make_node("Add", [f"{name}r", more], [f"{name}a"]))
    nodes.append(helper.make_node("QuantizeLinear", [f"{name}a", f"{name}s", f"{name}z"], [name]))
    sums = convolve(x.astype(np.int64) - 3, w, [1, 1], [kernel // 2] * 4, [1, 1], 1) + bias[:, None, None]
    value = np.maximum(sums * scales.astype(np.float64)[:, None, None], 0) + (other.astype(np.float64) + 7) * 0.5
    rounded: np.ndarray = np.clip(np.rint(value / 0.25) + zero, -128, 127).astype(np.int8)
    return rounded
