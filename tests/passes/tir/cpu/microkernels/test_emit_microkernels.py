"""Sums by lanes on 64-bit Arm: how their innermost loops load, and what networks with them compute."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emulation import run_on, with_glibc
from named_passes import NamedPasses
from small_networks import Net

import nnefc
from nnefc.passes.tir.cpu.microkernels.aarch64_fma import code_of
from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import MultiplyAdd, product_of
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, LoopCode
from nnefc.targets.machine.cpu.costs import microarchitecture_of

_MACHINE = with_glibc("arm", "cortex-a76", "qemu-aarch64", "-cpu", "cortex-a76")


def convolved(net: Net, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
    rng = np.random.default_rng(inputs + outputs)
    weights = rng.standard_normal((outputs, inputs // groups, kernel, kernel)) / np.sqrt(inputs * kernel**2 / groups)
    operands = [net.constant(a.astype(np.float32)) for a in (weights, rng.standard_normal(outputs))]
    return net.do("Conv", x, *operands, pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups)


@pytest.mark.parametrize(
    ("size", "kernel", "precision", "maximum"),
    [(14, 1, "fp16", 1.1), (9, 3, "fp16", 1.08), (13, 1, "fp32", 1.1), (9, 3, "fp32", 1.08)],
)
@pytest.mark.sample(2)
def test_neighbouring_vectors_are_loaded_together(size: int, kernel: int, precision: str, maximum: float) -> None:
    """Those of a row of a filter of 3 x 3 for its three taps, too."""
    text = f"""x: float32[1, 64, {size}, {size}]
        w: const float32[96, 64, {kernel}, {kernel}] = random
        y = R.nn.conv2d(x, w, padding=[{kernel // 2}, {kernel // 2}])
        -> y"""
    target = "cortex-a76" if precision == "fp32" else f"cortex-a76 -precision={precision}"
    _, made = NamedPasses(target, "fold constants .. assembly microkernels", "strict").texts(text)
    assembler = [part.split("\n    ") for part in re.findall(r'asm "(.*?)"', made, re.DOTALL)]
    loop = max(assembler, key=lambda lines: sum(line.startswith("fmla") for line in lines))
    code = [line for line in loop if not line.endswith(":")]
    sums = sum(line.startswith("fmla") for line in code)
    assert sums >= 96
    assert len(code) <= maximum * sums, code


@pytest.mark.parametrize(("precision", "error"), [("fp16", 5e-3), ("fp32", 1e-5)])
@pytest.mark.slow
def test_a_network_is_nearly_the_same(precision: str, error: float, tmp_path: Path) -> None:
    """Depthwise, strided, grouped and pointwise convolutions of odd sizes, residuals, limits, poolings, shuffled
    groups, parts of a tensor, a sum over a prime number of blocks."""
    if _MACHINE.missing:
        pytest.skip(f"needs: {_MACHINE.missing}")
    net = Net(seed=3)
    x = net.do("Relu", convolved(net, net.floats(1, 12, 23, 25), 12, 40, 3))
    x = net.do("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    limits = [net.constant(np.float32(limit)) for limit in (0, 6)]
    x = net.do("Clip", convolved(net, x, 40, 40, 3, 2, 40), *limits)
    x = convolved(net, x, 40, 24, 1)
    y = convolved(net, net.do("Relu", convolved(net, x, 24, 72, 1)), 72, 72, 5, 1, 72)
    x = net.do("Add", convolved(net, net.do("Relu", y), 72, 24, 1), x)
    y = net.do("Relu", convolved(net, x, 24, 16, 1))
    parts = [net.do("Relu", convolved(net, y, 16, 33, 1)), net.do("Relu", convolved(net, y, 16, 32, 3))]
    y = convolved(net, net.do("Concat", *parts, axis=1), 65, 10, 1)
    z = net.do("Relu", convolved(net, x, 24, 60, 1, groups=4))
    apart, order = (net.constant(np.array(sizes)) for sizes in ([1, 4, 15, 6, 6], [1, 60, 6, 6]))
    z = net.do("Transpose", net.do("Reshape", z, apart), perm=[0, 2, 1, 3, 4])
    z = net.do("Relu", convolved(net, net.do("Reshape", z, order), 60, 88, 3, 2, 4))
    z = convolved(net, z, 88, 9, 1)
    onnx.save(net.model([y, x, z]), tmp_path / "network.onnx")
    expected = onnxruntime.InferenceSession(tmp_path / "network.onnx").run(None, net.inputs)
    artifact = nnefc.compile(tmp_path / "network.onnx", _MACHINE.target, precision=precision)
    for single, half in zip(expected, run_on(_MACHINE, artifact, net.inputs).values(), strict=True):
        assert np.abs(single - half).max() < error * np.abs(single).max()


@pytest.mark.slow
def test_dynamic_sizes_are_computed_by_the_same_loops(tmp_path: Path) -> None:
    if _MACHINE.missing:
        pytest.skip(f"needs: {_MACHINE.missing}")
    net = Net(seed=1)
    x = net.do("Relu", convolved(net, net.floats(1, 16, 13, 11), 16, 24, 3))
    model = net.model([convolved(net, x, 24, 40, 1)])
    for value in (model.graph.input[0], model.graph.output[0]):
        for size, name in zip(value.type.tensor_type.shape.dim[2:], "hw", strict=True):
            size.dim_param = name
    onnx.save(model, tmp_path / "network.onnx")
    nnefc.compile(tmp_path / "network.onnx", "llvm").export(tmp_path / "network.so")
    with nnefc.load(tmp_path / "network.so") as own:
        (expected,) = own(*net.inputs.values())
    (found,) = run_on(_MACHINE, nnefc.compile(tmp_path / "network.onnx", _MACHINE.target), net.inputs).values()
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


def _product(scale: int = 0) -> MultiplyAdd:
    found = product_of("float32", scale)
    assert found is not None
    return found


def _steps(rows: int, columns: int, terms: int, lanes: int = 4) -> tuple[Accumulation, ...]:
    return tuple(
        Accumulation(lanes * (row * columns + column), 2 * terms * row + term, lanes * (term * columns + column))
        for term in range(terms)
        for row in range(rows)
        for column in range(columns)
    )


@pytest.mark.parametrize(("rows", "columns", "terms"), [(7, 2, 8), (13, 1, 8), (5, 3, 3), (15, 2, 1), (9, 2, 7)])
@pytest.mark.parametrize(
    ("together", "processor"), [(2, "cortex-a76"), (4, "cortex-a76"), (2, "cortex-a53"), (2, "cortex-a55")]
)
def test_each_sum_has_the_products_that_it_shall_have(
    rows: int, columns: int, terms: int, together: int, processor: str
) -> None:
    steps = _steps(rows, columns, terms)
    core = microarchitecture_of("aarch64", processor).in_order
    code = code_of(_product(), steps, 16 * columns * terms, False, together, core)
    assert code is not None
    made = executed(code, len({step.sum for step in steps}))
    assert sorted(made) == sorted((step.sum, 4 * step.left, 16 * (step.right // 4)) for step in steps)


def test_cores_that_are_in_order_find_loaded_what_they_multiply() -> None:
    """At few positions where results are written in order, else ahead of products; with hardly more instructions."""
    steps = _steps(7, 2, 16)
    other, few, ahead = (
        code_of(_product(), steps, 16 * 2 * 16, False, 2, microarchitecture_of("aarch64", name).in_order)
        for name in ("cortex-a76", "cortex-a53", "cortex-a55")
    )
    assert other is not None and few is not None and ahead is not None
    assert max(few.instructions, ahead.instructions) <= 1.03 * other.instructions
    loads = [line.startswith("ld") for line in few.text.split("\\0A")]
    assert sum(now and not before for before, now in itertools.pairwise(loads)) <= 6
    assert 2 * _late(ahead) < _late(other)


def _late(code: LoopCode) -> int:
    """Loads of what one of the next four products reads."""
    lines = code.text.partition('asm "')[2].split("\\0A")
    found = 0
    for number, line in enumerate(lines):
        if line.startswith("ld"):
            products = [each for each in lines[number + 1 :] if each.startswith("fmla")][:4]
            read = {register for each in products for register in re.findall(r"v(\d+)", each)[1:]}
            found += not read.isdisjoint(re.findall(r"[qv](\d+)", line.partition("[")[0]))
    return found


@pytest.mark.parametrize(("rows", "columns", "terms"), [(7, 2, 8), (6, 4, 4), (5, 3, 3), (4, 2, 7)])
@pytest.mark.parametrize("scale", [2, 4])
def test_vectors_of_sve_are_multiplied_by_elements_of_all_their_parts(
    rows: int, columns: int, terms: int, scale: int
) -> None:
    product = _product(scale)
    steps = _steps(rows, columns, terms, product.lanes)
    code = code_of(product, steps, product.size * columns * terms, False)
    assert code is not None
    made = executed(code, len({step.sum for step in steps}), product.size)
    assert sorted(made) == sorted((step.sum, 4 * step.left, 4 * step.right) for step in steps)
    assert all(int(element) < 8 for element in re.findall(r", z(\d+)\.s\[", code.text))


def test_too_many_sums_have_no_code() -> None:
    assert code_of(_product(), _steps(31, 1, 4), None, False) is None


_SIZES = {"ld1rqw": 16, "ld1rd": 8, "ld1rw": 4}


def executed(code: LoopCode, sums: int, width: int = 16) -> list[tuple[int, int, int]]:
    """The products that a round makes: the sum, and the bytes where the left element and the right vector are."""
    text = code.text
    lines = re.search(r'asm "([^"]*)"', text)
    outputs = re.search(r'asm "[^"]*", "((?:={[vz]\d+},?)+)', text)
    assert lines is not None and outputs is not None
    positions = [int(number) for number in re.findall(r"getelementptr i8, ptr %s, i64 (\d+)", text)]
    numbers = [int(number) for number in re.findall(r"{[vz](\d+)}", outputs[1])]
    of_sum = dict(zip(numbers, positions, strict=True))
    pointers = [("left", 4 * element) for element in code.left] + [("right", 4 * element) for element in code.right]
    held: dict[int, tuple[str, int]] = {}
    made = []
    for line in lines[1].split("\\0A"):
        if line.startswith("ld"):
            registers = [int(number) for number in re.findall(r"[vqdsz](\d+)", line.partition("[")[0].split(" ", 1)[1])]
            kind = line.split()[1][0]
            size = _SIZES.get(line.split()[0]) or {"q": 16, "d": 8, "s": 4, "{": 16, "z": width}[kind]
            pointer, at, vectors, after = re.findall(r"\[(\$\d+)(?:, #(\d+)(, mul vl)?)?\](?:, #(\d+))?", line)[0]
            at = int(at or 0) * (width if vectors else 1)
            number_of_pointer = int(pointer[1:]) - sums
            side, begin = pointers[number_of_pointer]
            for number, register in enumerate(registers):
                held[register] = side, begin + at + number * size
            pointers[number_of_pointer] = side, begin + int(after or 0)
        elif line.startswith("fmla"):
            total, vector, element, lane = map(
                int, re.findall(r"[vz](\d+)\.4?s, [vz](\d+)\.4?s, [vz](\d+)\.s\[(\d)\]", line)[0]
            )
            (left, position), (other, begin) = held[element], held[vector]
            assert (left, other) == ("left", "right")
            made.append((of_sum[total] // 4, position + 4 * lane, begin))
    return made
