"""Transpositions on GPUs, by tiles in shared memory: results on the emulator, and registers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from memory_bound_cases import case, check, check_resources, real
from tvm import topi

TRANSPOSITIONS = [
    *(
        case(f"{axes}", lambda x, a=axes: topi.transpose(x, a), lambda x, a=axes: x.transpose(a), real(*s, dtype=dtype))
        for s, axes, dtype in [
            ((64, 80), (1, 0), "float32"),
            ((37, 41), (1, 0), "bool"),
            ((37, 41), (1, 0), "int64"),
            ((13, 100), (1, 0), "float16"),
            ((2, 16, 15, 14), (0, 2, 3, 1), "float32"),
            ((2, 15, 14, 16), (0, 3, 1, 2), "float32"),
            ((3, 5, 32, 17), (3, 1, 0, 2), "float64"),
            ((3, 13, 17), (0, 2, 1), "uint8"),
        ]
    ),
    case(
        "within steps",
        lambda x, y: topi.nn.relu(topi.add(topi.transpose(x, (0, 2, 1)), y)),
        lambda x, y: np.maximum(x.transpose(0, 2, 1) + y, 0),
        real(2, 33, 40),
        real(2, 40, 33),
    ),
    case(
        "with a value for each line",
        lambda x, y: topi.multiply(topi.transpose(x, (1, 0)), y),
        lambda x, y: x.T * y,
        real(33, 40),
        real(33),
    ),
]


def test_transpositions(tmp_path: Path) -> None:
    check(TRANSPOSITIONS, tmp_path, taken="TranspositionRule")


def test_what_is_padded_is_not_read_where_it_is_not(tmp_path: Path) -> None:
    padded = case(
        "padded, then transposed",
        lambda x: topi.transpose(topi.nn.pad(x, [1, 2], [3, 1], 0.5), (1, 0)),
        lambda x: np.pad(x, [(1, 3), (2, 1)], constant_values=0.5).T,
        real(30, 40),
    )
    check([padded], tmp_path)


@pytest.mark.slow
def test_kernels_need_few_registers_and_no_memory_of_their_own() -> None:
    check_resources(TRANSPOSITIONS[:6])
