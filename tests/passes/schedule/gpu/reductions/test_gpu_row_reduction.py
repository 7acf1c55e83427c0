"""Softmax and normalizations on GPUs, rows by warps and blocks: results on the emulator, shared memory, registers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from memory_bound_cases import case, check, check_resources, real, rules_of
from tvm import te, topi

from nnefc.passes.legalize.lower_row_reductions import _REDUCERS, reduce_row_wise


def layer_norm(x: te.Tensor) -> te.Tensor:
    length = int(x.shape[-1])

    def average(y: te.Tensor) -> te.Tensor:
        return topi.multiply(reduce_row_wise(y, 1, _REDUCERS["sum"], 1), 1 / length)

    centred = topi.subtract(x, average(x))
    return topi.multiply(centred, topi.rsqrt(topi.add(average(topi.multiply(centred, centred)), 1e-5)))


def normalized(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


ROWS = [
    *(
        case(
            f"softmax along {a}", lambda x, a=a: topi.nn.softmax(x, a), lambda x, a=a: softmax(x, a), real(*s, dtype=d)
        )
        for s, a, d in [
            ((7, 64), 1, "float32"),
            ((8, 1000), 1, "float32"),
            ((2, 3, 37), 2, "float32"),
            ((2, 2051), 1, "float32"),
            ((600, 33), 1, "float32"),
            ((1, 12000), 1, "float32"),
            ((2, 5, 9, 8), 1, "float32"),
            ((128, 5), 1, "float32"),
            ((64,), 0, "float32"),
            ((7, 17), 0, "float32"),
            ((8, 100), 1, "float16"),
            ((8, 100), 1, "float64"),
        ]
    ),
    case("log-softmax", topi.nn.log_softmax, lambda x: np.log(softmax(x, 1)), real(9, 130)),
    *(
        case("layer norm", layer_norm, normalized, real(*s))
        for s in [(7, 64), (3, 1, 768), (1, 37), (70, 7), (2, 5000)]
    ),
]


def test_rows(tmp_path: Path) -> None:
    code = check(ROWS, tmp_path, taken="RowReductionRule")
    assert all(len(function.launches) == 1 for function in code.functions)


def test_few_rows_that_are_too_long_for_a_block_are_shared_by_many(tmp_path: Path) -> None:
    few = [case("softmax", lambda x: topi.nn.softmax(x, 1), lambda x: softmax(x, 1), real(1, 70000))]
    assert rules_of(few) == ["ReductionRule"]
    code = check(few, tmp_path)
    assert max(launch.grid[0] for launch in code.launches) > 1


@pytest.mark.parametrize("shape", [(64, 41, 43), (3, 200, 35)])
@pytest.mark.sample(1)
def test_rows_of_a_block_are_rows_of_one_matrix(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Else TVM keeps all rows of two matrices in shared memory."""
    rows = case("softmax", lambda x: topi.nn.softmax(x, 2), lambda x: softmax(x, 2), real(*shape))
    code = check([rows], tmp_path)
    kept = [int(size) for size in re.findall(r"__shared__ .*\[(\d+)\];", code.source)]
    (launch,) = code.launches
    assert sum(kept) == launch.block[1] * shape[-1]


@pytest.mark.slow
def test_kernels_need_few_registers_and_no_memory_of_their_own() -> None:
    check_resources([*ROWS[:7], *ROWS[-5:]])
