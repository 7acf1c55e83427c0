"""Whatever format a network comes from, an operator is the same Relax: the library defines it once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import tvm
from computations import COMPUTATIONS
from formats import Computation, modules_of
from operators_page import PAGE, page

SHARED = [each for each in COMPUTATIONS if [each.nnef, each.onnx, each.pnnx].count(None) < 2]


@pytest.mark.parametrize("computation", SHARED, ids=str)
def test_formats_make_the_same_relax(computation: Computation, tmp_path: Path) -> None:
    modules = modules_of(computation, tmp_path)
    assert len(modules) >= 2
    for (one, first), (other, second) in pairwise(modules.items()):
        assert len(first) == len(second)
        for left, right in zip(first, second, strict=True):
            try:
                tvm.ir.assert_structural_equal(left, right)
            except ValueError as error:
                pytest.fail(f"{one} and {other} differ: {error}\n{left}\n{right}")


def test_the_page_of_operators_is_up_to_date(tmp_path: Path) -> None:
    assert PAGE.read_text() == page(tmp_path), "run: python tests/operators/operators_page.py"
