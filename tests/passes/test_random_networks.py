"""Random networks against NumPy; the seeds are fixed, other ones may be tried at will."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from random_dynamic_networks import random_dynamic_case
from random_networks import random_case
from random_shrinking_networks import random_cut_case
from random_structures import bytes_case, structures_case, tokens_case
from relax_programs import Case, check, target

import nnefc
from nnefc.driver.compile import compile_network


def slow(*given: object) -> Any:
    """Arguments of a slow test."""
    return pytest.param(*given, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("first", "count", "name"),
    [
        (0, 2, "llvm"),
        slow(0, 4, "llvm"),
        slow(100, 4, "llvm -mcpu=x86-64-v3"),
        slow(200, 4, "llvm -mcpu=x86-64-v2"),
        slow(300, 4, "llvm"),
    ],
)
def test_random_networks_have_the_same_values(first: int, count: int, name: str) -> None:
    check([random_case(seed, steps=10) for seed in range(first, first + count)], name)


@pytest.mark.parametrize(
    ("case", "first", "name", "strict"),
    [
        (structures_case, 100, "llvm -mcpu=x86-64-v3", False),
        (tokens_case, 0, "llvm", False),
        (bytes_case, 200, "llvm -mcpu=x86-64-v2", False),
        slow(structures_case, 0, "llvm", False),
        slow(structures_case, 200, "llvm -mcpu=x86-64-v2", True),
        slow(tokens_case, 100, "llvm -mcpu=x86-64-v3", False),
        slow(bytes_case, 0, "llvm", False),
        slow(bytes_case, 100, "llvm -mcpu=x86-64-v3", False),
    ],
)
@pytest.mark.sample(1)
def test_structures_that_passes_know_keep_their_values(
    case: Callable[[int, int], Case], first: int, name: str, strict: bool
) -> None:
    check([case(seed, 7) for seed in range(first, first + 3)], name, strict=strict)


def test_networks_that_once_were_wrong_are_right() -> None:
    """In-place steps next to views, zeros next to one position, reductions to one element, scratch of unrolled
    loops."""
    check([random_case(seed, steps=14) for seed in (1044, 1146, 1228, 1244)])


@pytest.mark.parametrize(("seed", "name"), [(102, "llvm"), slow(0, "llvm"), slow(100, "llvm -mcpu=x86-64-v3")])
def test_random_networks_of_dynamic_sizes_have_the_same_values(seed: int, name: str) -> None:
    """Compiled once, run at ten sizes."""
    case = random_dynamic_case(seed, steps=10)
    rng = np.random.default_rng(seed)
    with compile_network(case.network, target(name)).load(threads=2) as model:
        for _ in range(10):
            n, h, w = (int(size) for size in (rng.integers(1, 4), *rng.integers(1, 40, 2)))
            x = rng.standard_normal((n, case.channels, h, w)).astype(np.float32)
            results = model.run({"x": x}).values()
            for result, expected in zip(results, case.expected(x), strict=True):
                assert result.shape == expected.shape
                scale = max(1.0, float(np.abs(expected).max(initial=0)))
                np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * scale, err_msg=f"{n, h, w}")


@pytest.mark.parametrize(("seed", "steps"), [(27, 9), (36, 10), slow(2, 9), slow(8, 9), slow(33, 9)])
@pytest.mark.sample(1)
def test_random_networks_that_cut_more_than_there_is_have_the_same_values(
    seed: int, steps: int, tmp_path: Path
) -> None:
    case = random_cut_case(seed, steps)
    onnx.save(case.model, tmp_path / "cut.onnx")
    rng = np.random.default_rng(seed)
    with nnefc.compile(tmp_path / "cut.onnx").load(threads=1) as model:
        for width in (*range(1, 12), 29):
            x = rng.standard_normal((2, case.channels, width)).astype(np.float32)
            for result, expected in zip(model.run({"t0": x}).values(), case.expected(x), strict=True):
                assert result.shape == expected.shape
                scale = max(1.0, float(np.abs(expected).max(initial=0)))
                np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * scale, err_msg=f"{width}")
