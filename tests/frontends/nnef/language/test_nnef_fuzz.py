"""What fuzzing found, and a short run of the fuzzer; `tests/fuzz/readers` runs for as long as one likes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnef_cases import load_text, run_network

from nnefc.support.diagnostics import CompileError

GRAPH = "version 1.0;\ngraph g(x) -> (y)\n{{\n    x = external(shape = [2, 4, 5]);\n    {}\n}}\n"


def test_constants_may_have_rank_0(tmp_path: Path) -> None:
    network = load_text(GRAPH.format("c = constant(shape = [], value = [2.0]); y = mul(x, c);"), tmp_path)
    x = np.ones((2, 4, 5), np.float32)
    np.testing.assert_array_equal(run_network(network, [x])[0], 2 * x)


def test_random_variables_may_have_rank_0(tmp_path: Path) -> None:
    statement = "w = variable<scalar>(shape = [], label = 'w'); y = min(x, w);"
    network = load_text(GRAPH.format(statement), tmp_path, random_weights=0)
    x = np.full((2, 4, 5), 9, np.float32)
    assert (run_network(network, [x])[0] < 9).all()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("y = max_pool(x, size = [1, 1, 2], stride = [1, 1, 2147483648]);", "than a window may have"),
        (
            "y = max_pool(x, size = [1, 1, 2], dilation = [1, 1, 9223372036854775807]);",
            "than a window may have",
        ),
        ("y = box(x, size = [1, 1, 4294967296], border = 'ignore');", "than a window may have"),
        ("y = avg_pool(x, size = [1], padding = [(0, 0), (0, 0), (2147483648, 0)]);", "than a window may have"),
        ("y = debox(1.0, size = []);", "at least one dimension"),
        ("y = max_pool(1.0, size = []);", "at least one dimension"),
    ],
)
def test_windows_that_no_index_can_walk_are_refused(tmp_path: Path, statement: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        load_text(GRAPH.format(statement), tmp_path)
    assert message in caught.value.message


@pytest.mark.parametrize(
    "statement", ["y = copy<integer>(2147483648);", "y = constant<integer>(shape = [2], value = [0, -2147483649]);"]
)
def test_integers_beyond_32_bits_are_refused(tmp_path: Path, statement: str) -> None:
    with pytest.raises(CompileError) as caught:
        load_text(GRAPH.format(statement), tmp_path)
    assert "have 32 bits" in caught.value.message
    assert caught.value.location is not None
