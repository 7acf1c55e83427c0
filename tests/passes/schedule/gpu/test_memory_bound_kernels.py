"""Kernels of all rules for memory-bound computations on GPUs: empty tensors, and random shapes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from memory_bound_cases import Case, case, check, real
from tvm import topi

NOTHING = np.zeros((0, 64), np.float32)
EMPTY = [
    case("relu", topi.nn.relu, lambda x: x, NOTHING),
    case("sum", lambda x: topi.sum(x, 0), lambda x: x.sum(0), NOTHING),
    case("sum", lambda x: topi.sum(x, 1), lambda x: x.sum(1), NOTHING),
    case("softmax", lambda x: topi.nn.softmax(x, 1), lambda x: x, NOTHING),
    case("softmax", lambda x: topi.nn.softmax(x, 0), lambda x: x, NOTHING),
    case("transposed", lambda x: topi.transpose(x, (1, 0)), np.transpose, NOTHING),
    case("joined", lambda x, y: topi.concatenate((x, y), 0), lambda x, y: y, NOTHING, real(3, 64)),
]


def test_empty_tensors(tmp_path: Path) -> None:
    code = check(EMPTY, tmp_path)
    assert [len(function.launches) for function in code.functions] == [0, 1, 0, 0, 2, 0, 1]


def random_cases(count: int) -> list[Case]:
    rng = np.random.default_rng(7)
    cases = []
    for _ in range(count):
        shape = tuple(int(e) for e in rng.choice([1, 2, 3, 5, 8, 13, 16, 31, 32, 33], rng.integers(1, 5)))
        while math.prod(shape) > 20000:
            shape = shape[1:]
        axes = tuple(int(a) for a in rng.permutation(len(shape)))
        some = tuple(sorted(axes[: rng.integers(1, len(shape) + 1)]))
        ones = tuple(1 if rng.random() < 0.5 else size for size in shape)
        cases += [
            case(f"{axes}", lambda x, a=axes: topi.transpose(x, a), lambda x, a=axes: x.transpose(a), real(*shape)),
            case(
                f"sum over {some}",
                lambda x, a=some: topi.sum(x, a),
                lambda x, a=some: x.sum(a, np.float64),
                real(*shape),
            ),
            case(f"product, {axes}", topi.multiply, np.multiply, real(*shape), real(*ones)),
        ]
    return cases


@pytest.mark.slow
def test_random_shapes(tmp_path: Path) -> None:
    check(random_cases(12), tmp_path)
