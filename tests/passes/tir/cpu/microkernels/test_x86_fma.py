"""Sums on x86-64 with AVX2: the instructions of their innermost loops, and what networks with them compute."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest
from named_passes import NamedPasses
from small_networks import Net
from test_emit_microkernels import convolved

import nnefc
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation
from nnefc.passes.tir.cpu.microkernels.x86_fma import code_of
from nnefc.targets.machine.cpu.parsing import parse_target


def steps(rows: int, columns: int, terms: int) -> tuple[Accumulation, ...]:
    """Of a tile: sums one after the other, rows 160 elements apart, columns 1,024 vectors apart."""
    return tuple(
        Accumulation(8 * (row * columns + column), 7 + 160 * row + term, 8 * (1024 * column + term))
        for term in range(terms)
        for row in range(rows)
        for column in range(columns)
    )


def executed(text: str, sums: int) -> list[tuple[int, int, int]]:
    """The products of an iteration: the sum, and the bytes from each pointer on that its factors are loaded from."""
    (assembler,) = re.findall(r'asm "(.*?)"', text)
    registers: dict[str, int] = {}
    made = []
    for line in assembler.split("\\0A"):
        name, _, operands = line.partition(" ")
        factors = operands.split(", ")
        memory = re.fullmatch(r"(\d+)\(\$(\d+)\)", factors[0])
        if name in ("vbroadcastss", "vmovups"):
            assert memory is not None and int(memory[2]) == sums + (name == "vmovups")
            registers[factors[1]] = int(memory[1])
        elif name == "vfmadd231ps":
            vector = int(memory[1]) if memory is not None else registers[factors[0]]
            made.append((int(factors[2].removeprefix("%ymm")), *sorted((vector, registers[factors[1]]))))
    assert all(int(register.removeprefix("%ymm")) in range(sums, 16) for register in registers)
    return made


@pytest.mark.parametrize(("rows", "columns"), [(6, 2), (4, 3), (2, 5), (12, 1), (1, 8), (1, 1), (3, 4)])
def test_each_sum_has_its_products_and_each_factor_is_loaded_once(rows: int, columns: int) -> None:
    code = code_of(steps(rows, columns, 4), False)
    assert code is not None
    assert (code.left, code.right) == ((7,), (0,))
    wanted = [(step.sum // 8, *sorted((4 * (step.left - 7), 4 * step.right))) for step in steps(rows, columns, 4)]
    assert sorted(executed(code.text, rows * columns)) == sorted(wanted)
    loads = re.findall(r"\d+\(\$\d+\)", code.text)
    assert len(loads) == len(set(loads)) == 4 * (rows + columns)
    assert code.instructions == 4 * (rows * columns + rows + columns) + 4 - (4 * columns if rows == 1 < columns else 0)


def test_a_loop_of_one_iteration_does_not_jump() -> None:
    once, often = (code_of(steps(6, 2, 1), once) for once in (True, False))
    assert once is not None and often is not None
    assert "jne" in often.text and "jne" not in once.text


@pytest.mark.parametrize(("rows", "columns"), [(15, 1), (5, 3), (3, 5)])
def test_tiles_that_registers_do_not_hold_are_not_written(rows: int, columns: int) -> None:
    assert code_of(steps(rows, columns, 1), False) is None


def test_float32_alone_is_written_in_assembler() -> None:
    text = """x: float32[1, 64, 14, 14]
        w: const float32[96, 64, 1, 1] = random
        y = R.nn.conv2d(x, w)
        -> y"""
    for target, count in (("x86-64-v3", 1), ("x86-64-v4", 0)):
        _, made = NamedPasses(target, "fold constants .. assembly microkernels", "strict").texts(text)
        assert made.count("vfmadd231ps") // 12 >= count
        assert count or "vfmadd231ps" not in made


@pytest.mark.skipif("fma" not in parse_target("llvm").features, reason="this processor has no AVX2")
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_network_is_nearly_the_same(is_dynamic: bool) -> None:
    """Odd sizes, padding, strides, more channels than one part of a sum has, a prime number of blocks of channels."""
    net = Net(seed=5)
    x = net.do("Relu", convolved(net, net.floats(2, 12, 23, 25), 12, 40, 3))
    x = net.do("Relu", convolved(net, x, 40, 56, 5, 2))
    x = net.do("Add", x, convolved(net, x, 56, 56, 1))
    model = net.model([convolved(net, net.do("Relu", convolved(net, x, 56, 520, 1)), 520, 33, 1)])
    for value in (model.graph.input[0], model.graph.output[0]) if is_dynamic else ():
        for size, name in zip(value.type.tensor_type.shape.dim, ("n", "", "h", "w"), strict=True):
            if name:
                size.dim_param = name
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, net.inputs)
    (found,) = nnefc.compile(model, "x86-64-v3").run(net.inputs).values()
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
