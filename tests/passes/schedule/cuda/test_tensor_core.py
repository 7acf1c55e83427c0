"""Contractions by tensor cores: half precision, and single precision where the target may round it."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from contraction_cases import TARGET, execute, kernels, lowered, random
from emulate import device_code
from numpy_reference import convolve
from tvm import relax, te, tirx
from tvm.relax import op

from nnefc.ir.attributes import RULE
from nnefc.passes.compute.fp16_matmul import multiply_transposed
from nnefc.targets.codegen.cuda.compiler import find_compiler

ROUNDED = replace(TARGET, precision="tf32")
OLD = replace(TARGET, architectures=(75, 90))
ADA = replace(TARGET, architectures=(89, 90))


def rounded(array: np.ndarray) -> np.ndarray:
    """Single precision with 10 bits of mantissa, to nearest."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)


def close(result: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Whether each element differs by no more than a part of the largest."""
    assert np.abs(result.astype(np.float64) - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 37, 51), (2, 51, 39)), ((64, 512), (512, 64))],
    ids=["primes", "slices"],
)
@pytest.mark.sample(1)
def test_half_precision_is_summed_up_in_single_precision(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = random(rng, left, "float16"), random(rng, right, "float16")
    result, rules = execute(lambda a, b: op.matmul(a, b, out_dtype="float32"), [a, b])
    close(result, a.astype(np.float64) @ b.astype(np.float64), 1e-6)
    assert rules == ["TensorCoreRule"]


@pytest.mark.parametrize(
    ("batch", "rows", "columns", "depth", "transposed", "dtype"),
    [
        ((), 70, 72, 200, (), "float16"),
        ((), 80, 72, 200, (0,), "bfloat16"),
        ((), 80, 72, 200, (1,), "float16"),
        ((), 136, 264, 32, (0, 1), "float16"),
        ((), 136, 264, 32, (), "bfloat16"),
        ((2,), 24, 40, 1000, (1,), "float16"),
    ],
    ids=str,
)
@pytest.mark.sample(1)
def test_tiles_are_copied_past_the_registers(
    batch: tuple[int, ...], rows: int, columns: int, depth: int, transposed: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(depth)
    shapes = ((*batch, rows, depth), (*batch, depth, columns))
    wanted = [random(rng, shape).astype(dtype) for shape in shapes]
    given = [x.swapaxes(-1, -2).copy() if side in transposed else x for side, x in enumerate(wanted)]

    def product(*given: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), "k")

        def element(side: int, *position: tirx.Expr) -> tirx.Expr:
            *outer, a, b = position
            return given[side][(*outer, b, a) if side in transposed else position].astype("float32")

        return te.compute(
            (*batch, rows, columns),
            lambda *at: te.sum(element(0, *at[:-1], k) * element(1, *at[:-2], k, at[-1]), axis=k),
        )

    def multiply(*given: relax.Expr) -> relax.Expr:
        return relax.BlockBuilder.current().emit_te(product, *given)

    source = device_code(kernels(lowered(multiply, given)), TARGET).source
    assert "cp.async" in source
    result, _ = execute(multiply, given)
    a, b = (x.astype(np.float64) for x in wanted)
    close(result, a @ b, 1e-6)


def test_sums_of_copied_tiles_go_through_the_epilogue() -> None:
    rng = np.random.default_rng(5)
    a, b, c = (random(rng, shape, "float16") for shape in ((33, 128), (128, 64), (64,)))

    def dense(a: relax.Expr, b: relax.Expr, c: relax.Expr) -> relax.Expr:
        return op.nn.relu(op.add(op.matmul(a, b, out_dtype="float32"), op.astype(c, "float32")))

    result, rules = execute(dense, [a], [b, c])
    close(result, np.maximum(a.astype(np.float64) @ b + c, 0), 1e-6)
    assert rules[-1] == "TensorCoreRule"


@pytest.mark.parametrize(
    ("types", "sizes"),
    [
        (("uint8", "int8"), ((70, 208), (72, 208))),
        (("int8", "uint8"), ((33, 2064), (136, 2064))),  # slices of the depth
        (("int8", "int8"), ((2, 24, 48), (2, 40, 48))),
    ],
    ids=str,
)
@pytest.mark.sample(2)
def test_bytes_are_summed_up_exactly(types: tuple[str, ...], sizes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (random(rng, shape, dtype) for shape, dtype in zip(sizes, types, strict=True))

    def multiply(a: relax.Expr, b: relax.Expr) -> relax.Expr:
        return relax.BlockBuilder.current().emit_te(multiply_transposed, a, b, "int32")

    result, rules = execute(multiply, [a, b])
    assert np.array_equal(result, a.astype(np.int64) @ b.astype(np.int64).swapaxes(-1, -2))
    assert rules == ["TensorCoreRule"]


@pytest.mark.parametrize(
    ("types", "sizes"),
    [
        (("float8_e4m3fn", "float8_e4m3fn"), ((70, 208), (72, 208))),
        (("float8_e5m2", "float8_e4m3fn"), ((33, 1040), (40, 1040))),  # slices of the depth
        (("float8_e4m3fn", "float8_e5m2"), ((2, 24, 48), (2, 40, 48))),
    ],
    ids=str,
)
@pytest.mark.sample(2)
def test_floats_of_8_bits_are_summed_up_in_float32(types: tuple[str, ...], sizes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (random(rng, shape, dtype) for shape, dtype in zip(sizes, types, strict=True))

    def multiply(a: relax.Expr, b: relax.Expr) -> relax.Expr:
        return relax.BlockBuilder.current().emit_te(multiply_transposed, a, b, "float32")

    source = device_code(kernels(lowered(multiply, [a, b]), ADA), ADA).source
    result, rules = execute(multiply, [a, b], target=ADA)
    close(result, a.astype(np.float64) @ b.astype(np.float64).swapaxes(-1, -2), 1e-6)
    assert "m16n8k32.row.col.f32" in source and "nnefc_from_" not in source
    assert rules == ["TensorCoreRule"]


def test_a_convolution_of_bfloat16_rounds_once() -> None:
    rng = np.random.default_rng(7)
    x, w = (random(rng, shape).astype(ml_dtypes.bfloat16) for shape in ((1, 16, 9, 7), (24, 16, 3, 3)))
    result, rules = execute(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1)), [x], [w])
    expected = convolve(x.astype(np.float32), w.astype(np.float32), (1, 1), (1, 1, 1, 1), (1, 1), 1)
    close(result, expected, 2**-8)
    assert result.dtype == ml_dtypes.bfloat16
    assert rules == ["TensorCoreRule"]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.sample(1)
def test_a_convolution_of_half_precision_rounds_once(groups: int) -> None:
    rng = np.random.default_rng(groups)
    x, w = random(rng, (2, 16, 9, 7), "float16"), random(rng, (24, 16 // groups, 3, 3), "float16")
    result, rules = execute(lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), groups=groups), [x], [w])
    expected = convolve(x, w, (1, 1), (1, 1, 1, 1), (1, 1), groups)
    close(result, expected, 2**-11)
    assert result.dtype == np.float16
    assert rules == ["TensorCoreRule"]


def test_single_precision_is_rounded_where_that_is_asked() -> None:
    rng = np.random.default_rng(1)
    x, w = random(rng, (1, 24, 6, 8)), random(rng, (40, 24, 1, 1))
    result, rules = execute(lambda x, w: op.nn.conv2d(x, w), [x], [w], ROUNDED)
    close(result, convolve(rounded(x), rounded(w), (1, 1), (0, 0, 0, 0), (1, 1), 1), 1e-6)
    assert rules == ["TensorCoreRule"]


def test_rows_and_depths_need_not_fill_a_tile() -> None:
    rng = np.random.default_rng(2)
    a, b = random(rng, (19, 44)), random(rng, (44, 51))
    result, rules = execute(op.matmul, [a, b], target=ROUNDED)
    close(result, rounded(a).astype(np.float64) @ rounded(b), 1e-6)
    assert rules == ["TensorCoreRule"]


def test_single_precision_stays_exact_where_nothing_is_asked() -> None:
    a, b = np.ones((16, 16), np.float32), np.ones((16, 16), np.float32)
    (kernel,) = kernels(lowered(op.matmul, [a, b]))
    assert kernel.attrs[RULE] == "ContractionRule"


def test_devices_without_the_instructions_get_other_code() -> None:
    rng = np.random.default_rng(3)
    a, b = random(rng, (20, 24), "float16"), random(rng, (24, 12), "float16")
    result, rules = execute(lambda a, b: op.matmul(a, b, out_dtype="float32"), [a, b], target=OLD)
    close(result, a.astype(np.float64) @ b.astype(np.float64), 1e-6)
    assert rules == ["ContractionRule"]


def test_fragments_have_room_for_all_that_assembly_writes() -> None:
    a, b = np.ones((4096, 64), np.float16), np.ones((64, 4096), np.float16)
    source = device_code(kernels(lowered(op.matmul, [a, b])), TARGET).source
    sizes = {name: int(size) for name, size in re.findall(r"uint (left|right)_part_ptr\[(\d+)\]", source)}
    reads = re.findall(r"u_\d+ < (\d+); \+\+u_\d+\) {\s*nnefc_read_matrices\w*\(\(&\((left|right)_part_ptr", source)
    assert {name for _, name in reads} == {"left", "right"}
    assert all(sizes[name] == 4 * int(count) for count, name in reads)


@pytest.mark.parametrize(
    ("dtype", "target", "instructions"),
    [
        ("float16", TARGET, (b"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", b"ldmatrix.sync.aligned.m8n8.x4")),
        ("bfloat16", TARGET, (b"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", b"cp.async.cg.shared.global")),
        ("float32", ROUNDED, (b"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", b"cvt.rna.tf32.f32")),
    ],
)
def test_the_compiler_knows_the_instructions(dtype: str, target: object, instructions: tuple[bytes, ...]) -> None:
    a, b = np.ones((64, 64), dtype), np.ones((64, 64), dtype)
    source = device_code(kernels(lowered(op.matmul, [a, b]), target), target).source
    ptx = find_compiler().ptx(source, 80)
    assert all(instruction in ptx for instruction in instructions)
    assert b"fma.rn.f32" not in ptx
