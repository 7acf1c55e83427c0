"""Matrices in blocks of bytes that are few different ones or need few bits, and of floats of 8 bits; float64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from emulation import MACHINES, run_on
from relax_programs import Case, Graph, Value, build, differences
from tvm import relax

from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_network
from nnefc.driver.options import CodeOptions
from nnefc.operators.base import Emitter
from nnefc.operators.nn.block_quantization import BlockTensor, Multiples, float_codes
from nnefc.targets.machine.any_target import parse_any_target

COLUMNS, DEPTH, BLOCK = 72, 192, 32
RNG = np.random.default_rng(11)
NUMBERS = np.array([3, 20, 44, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241], np.uint8)
"""Bytes of which half the range is taken away."""


def matrix(codes: np.ndarray, offsets: bool = False, is_float: bool = False, block: int = BLOCK) -> BlockTensor:
    """Of random codes."""
    shape = (COLUMNS, DEPTH // block, block)
    scales = RNG.uniform(0.5, 1.5, shape[:2]).astype(np.float32)
    given = RNG.standard_normal(shape[:2]).astype(np.float32) if offsets else None
    return BlockTensor((COLUMNS, DEPTH), 8, RNG.choice(codes, shape), scales, given, is_float)


FLOATS = np.array([code for code in range(256) if code & 127 != 127], np.uint8)
TABLE, WITH_OFFSETS, FEW = matrix(NUMBERS), matrix(NUMBERS, offsets=True), matrix(NUMBERS[:3])
SMALL_FLOATS = matrix(FLOATS, is_float=True)


def with_multiples(codes: np.ndarray, block: int, offsets: bool) -> BlockTensor:
    """Of random codes; three blocks that follow each other have a common factor, which takes 16 bits."""
    counts = (COLUMNS, DEPTH // block)
    factors = RNG.uniform(0.01, 0.02, (COLUMNS, DEPTH // block // 3)).astype(np.float16).astype(np.float32)
    scales, added = (Multiples(RNG.integers(-128, 128, counts, np.int8), factor) for factor in (factors, -factors))
    given = RNG.choice(codes, (*counts, block))
    return BlockTensor((COLUMNS, DEPTH), 8, given, scales, added if offsets else None)


FIVE_BITS = with_multiples(np.arange(32, dtype=np.uint8), 32, offsets=True)
SIX_BITS = with_multiples(np.arange(96, 160, dtype=np.uint8), 16, offsets=False)


def used(tensor: BlockTensor, graph: Graph, x: Value) -> list[Value]:
    """Products with a matrix, and some of its rows."""
    builder, values = graph._builder, tensor.values().astype(np.float64)
    wide = tensor.lower(Emitter(builder))
    rows = np.array([71, 0, 33])
    product = builder.emit(relax.op.matmul(x.expr, builder.emit(relax.op.permute_dims(wide))))
    taken = builder.emit(relax.op.take(wide, relax.const(rows), axis=0, mode="clip"))
    return [Value(product, x.array @ values.T), Value(taken, values[rows])]


def case(tensor: BlockTensor, rows: int, tolerance: float) -> Case:
    x = RNG.standard_normal((rows, DEPTH)).astype(np.float32)
    return Case([x], partial(used, tensor), tolerance, f"{tensor.is_float} {rows}")


BYTES_TARGET = "llvm -mcpu=x86-64-v4 -mattr=+avx512vnni"
HAS_BYTES = Path("/proc/cpuinfo").exists() and "avx512_vnni" in Path("/proc/cpuinfo").read_text()
RUNS_BYTES = pytest.mark.skipif(not HAS_BYTES, reason="needs: a machine with AVX-512 VNNI")


def outputs_of(artifact: Artifact, inputs: Mapping[str, np.ndarray], emulated: str | None) -> dict[str, np.ndarray]:
    if emulated is None:
        return artifact.run(inputs)
    return run_on(next(machine for machine in MACHINES if machine.name == emulated), artifact, dict(inputs))


@pytest.mark.parametrize(
    ("machine", "strict", "bits", "emulated"),
    [
        pytest.param(BYTES_TARGET, False, 4, None, marks=[RUNS_BYTES, pytest.mark.slow]),
        pytest.param(BYTES_TARGET, True, 4, None, marks=[RUNS_BYTES, pytest.mark.slow]),
        ("llvm -mcpu=x86-64-v3", False, 4, None),
        pytest.param("cortex-a76", False, 4, "cortex-a76", marks=pytest.mark.slow),
        pytest.param("cortex-a76", True, 8, "cortex-a76", marks=pytest.mark.slow),
    ],
)
def test_products_and_rows_of_bytes_in_a_table_and_of_small_floats(
    machine: str, strict: bool, bits: int, emulated: str | None
) -> None:
    """Rows are multiplied as floats, or in two bytes, which costs some 5e-5."""
    tensors = [(TABLE, 5), (WITH_OFFSETS, 1), (FEW, 1), (SMALL_FLOATS, 5)]
    built = build([case(tensor, rows, 3e-6 if strict else 2e-4) for tensor, rows in tensors])
    artifact = compile_network(built.network, parse_any_target(machine, None), CodeOptions(strict=strict))
    assert not differences(built.expected, outputs_of(artifact, built.inputs, emulated))
    codes = COLUMNS * DEPTH * (3 * bits + 8) // 8
    assert codes < artifact.description.constant_bytes < codes * 5 // 4 + 5 * 4 * 80 * DEPTH // BLOCK + 8192


@pytest.mark.parametrize(
    ("machine", "strict"),
    [
        pytest.param(BYTES_TARGET, False, marks=RUNS_BYTES),
        pytest.param("llvm -mcpu=x86-64-v3", False, marks=pytest.mark.slow),
        pytest.param("llvm -mcpu=x86-64-v3", True, marks=pytest.mark.slow),
    ],
)
def test_products_and_rows_of_5_and_6_bits_with_scales_in_8_bits(machine: str, strict: bool) -> None:
    """Where floats are multiplied, elements have 8 bits."""
    built = build([case(tensor, rows, 2e-4) for tensor, rows in [(FIVE_BITS, 1), (SIX_BITS, 5)]])
    artifact = compile_network(built.network, parse_any_target(machine, None), CodeOptions(strict=strict))
    assert not differences(built.expected, artifact.run(built.inputs))
    codes = COLUMNS * DEPTH * (16 if strict else 5 + 6) // 8
    scales = COLUMNS * DEPTH * ((1 + 2 / 3) * (2 / 32 + 1 / 16))
    assert codes + scales < artifact.description.constant_bytes < (codes + scales) * 5 // 4 + 4096


def test_a_matrix_with_scales_in_8_bits_that_no_product_reads_is_computed() -> None:
    def whole(graph: Graph, x: Value) -> list[Value]:
        wide = graph._builder.emit(relax.op.add(x.expr, FIVE_BITS.lower(Emitter(graph._builder))))
        return [Value(wide, x.array + FIVE_BITS.values().astype(np.float64))]

    built = build([Case([np.zeros((COLUMNS, DEPTH), np.float32)], whole, 1e-7, "whole")])
    artifact = compile_network(built.network, parse_any_target("llvm -mcpu=x86-64-v3", None))
    assert not differences(built.expected, artifact.run(built.inputs))


def test_floats_of_8_bits_are_those_of_the_format() -> None:
    exponent, mantissa = (FLOATS >> 3 & 15).astype(float), (FLOATS & 7) / 8
    size = np.where(exponent > 0, (1 + mantissa) * 2.0 ** (exponent - 7), mantissa * 2.0**-6)
    np.testing.assert_array_equal(float_codes(FLOATS), np.where(FLOATS > 127, -size, size))
