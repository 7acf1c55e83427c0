"""Sums of products of words: one at a time, and as each target's instruction."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from nnefc.ir.attributes import RULE
from nnefc.passes.compute.dot.dot_intrinsics import use_dot_products
from nnefc.passes.compute.dot.dot_product import Multiplication, multiplication_of
from nnefc.passes.compute.dot.pack_dot_operands import packed_array
from nnefc.passes.compute.matmul import multiply_packed, pack_right_array
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.cpu.fold_dot_accumulators import fold_dot_accumulators
from nnefc.passes.schedule.rule import scheduled
from nnefc.targets.machine.cpu.parsing import parse_target


def product(how: Multiplication, rows: int, words: int, columns: int) -> tirx.PrimFunc:
    """The matrix product of words `[rows, words]` and packed ones, as they are kept, not scheduled."""
    use_dot_products()
    left = te.placeholder((rows, words), "int32")
    packed = te.placeholder((columns // 16, words, 16), "int16" if how.stored else "int32")
    return te.create_prim_func([left, packed, multiply_packed(left, packed, columns, rows, how.product)])


@pytest.mark.parametrize(
    ("target", "weights", "instruction"),
    [
        ("llvm -mcpu=x86-64-v4 -mattr=+avx512vnni", "int8", "vpdpbusd"),
        ("llvm -mcpu=x86-64-v4", "int8", "vpmaddwd"),
        ("llvm -mcpu=x86-64-v3 -mattr=+avxvnni", "int8", "vpdpbusd"),
        ("x86-64-v3", "uint8", "vpmaddwd"),
        ("x86-64-v2", "int8", "pmaddwd"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76", "int8", "sdot"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76", "uint8", "udot"),
        ("cortex-a53", "int8", "smull"),
        ("cortex-a53", "uint8", "umull"),
        ("armv7-linux-gnueabihf", "int8", "vpadal.s16"),
        ("wasm32-wasi", "int8", "i32x4.dot_i16x8_s"),
        ("wasm32-wasi", "uint8", "i32x4.dot_i16x8_s"),
    ],
)
@pytest.mark.sample(6)
def test_targets_sum_up_by_their_instruction_in_registers(target: str, weights: str, instruction: str) -> None:
    machine = parse_target(target)
    func = scheduled(
        KernelAnalysis(product(multiplication_of(machine, "uint8", weights), 12, 16, 32)), CPU_RULES, machine
    )
    assert str(func.attrs[RULE]) == "ContractionRule"
    library = tvm.compile(
        tvm.IRModule({"main": fold_dot_accumulators(func).with_attr("global_symbol", "main")}), target=machine.to_tvm()
    )
    lines = [line.split() for line in library.mod.inspect_source("asm").splitlines()]
    assert sum(instruction in line[:2] for line in lines) >= 8  # "{vex}" may come before it


@pytest.mark.parametrize(
    "name", ["llvm -mcpu=x86-64-v4 -mattr=+avx512vnni", "x86-64-v3", "cortex-a76", "cortex-a53", "wasm32-wasi"]
)
@pytest.mark.parametrize("weights", ["uint8", "int8"])
@pytest.mark.sample(5)
def test_single_words_are_summed_up_by_arithmetic(name: str, weights: str) -> None:
    how = multiplication_of(parse_target(name), "uint8", weights)
    rng = np.random.default_rng(1)
    limits = [np.iinfo(dtype) for dtype in (how.data if how.terms == 4 else "uint8", weights)]
    a = rng.integers(limits[0].min, limits[0].max + 1, (3, 8)).astype(how.data)
    b = rng.integers(limits[1].min, limits[1].max + 1, (8, 16)).astype(how.stored or how.weights)
    words = [packed_array(a, 1, how.terms), pack_right_array(packed_array(b, 0, how.terms), 16)]
    library = tvm.compile(product(how, 3, 8 // how.terms, 16), target="llvm")  # not scheduled: no vectors
    result = tvm.runtime.tensor(np.zeros((3, 16), np.int32))
    library["main"](*map(tvm.runtime.tensor, words), result)
    np.testing.assert_array_equal(result.numpy(), a.astype(np.int64) @ b.astype(np.int64))


def test_two_products_are_added_in_16_bits_where_the_weights_let_them() -> None:
    how = multiplication_of(parse_target("cortex-a53"), "int8", "int8")
    minimum, maximum = np.full((2, 4), -127, np.int8), np.full((2, 4), -128, np.int8)
    assert how.dot is not None and not how.dot.joined
    assert how.of_values(maximum) == how
    joined = how.of_values(minimum).dot
    assert joined is not None and joined.joined


def test_machines_without_an_instruction_multiply_bytes_one_by_one() -> None:
    how = multiplication_of(parse_target("llvm -mtriple=riscv64-linux-gnu"), "uint8", "int8")
    assert (how.dot, how.terms, how.weights) == (None, 1, "int8")
