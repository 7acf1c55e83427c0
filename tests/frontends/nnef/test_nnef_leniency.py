"""Breaches of the standard that leave no doubt: warnings, errors with `pedantic`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nnefc
from nnefc.diagnostics import CompileError, ModelWarning
from nnefc.frontends.nnef.frontend import load
from nnefc.frontends.nnef.outline import outline

BREACHES = {
    "fragments": (
        "fragment twice(x: tensor<scalar>) -> (y: tensor<scalar>) { y = add(x, x); }",
        "y = twice(x);",
        "extension KHR_enable_fragment_definitions;",
        "fragments are not enabled",
    ),
    "operators": ("", "y = x + x;", "extension KHR_enable_operator_expressions;", "must be an invocation"),
    "operators in arguments": ("", "y = mul(x, 1.0 + 1.0);", "KHR_enable_operator_expressions", "are not enabled"),
    "arrays of arrays for a tensor": (
        "",
        "a = [[2.0], [2.0]]; b = mul(x, a); y = add(b, [[0, 0, 0]]);",
        "arrays of arrays are read as constants",
        "must be an invocation",
    ),
    "arrays for pairs": (
        "",
        "a = add(x, x); b = pad(a, padding = [[1, 0], [0, 2]]);"
        "y = slice(b, axes = [0, 1], begin = [1, 0], end = [0, 3]);",
        "arrays are read as tuples",
        "integer\\[\\]\\[\\]",
    ),
    "a fragment of the standard": (
        "extension KHR_enable_fragment_definitions; extension KHR_enable_operator_expressions;"
        "fragment sqr(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x ^ 2.0; }",
        "y = div(sqr(add(x, x)), mul(x, 2.0));",
        "the fragment 'sqr' is left out",
        "is an operation of the standard",
    ),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_clear_breach_is_a_warning(name: str, tmp_path: Path) -> None:
    before, body, warning, error = BREACHES[name]
    (tmp_path / "graph.nnef").write_text(
        f"version 1.0;\n{before}\ngraph g(x) -> (y) {{ x = external<scalar>(shape = [2, 3]); {body} }}"
    )
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    with pytest.warns(ModelWarning, match="--pedantic") as caught:
        artifact = nnefc.compile(tmp_path)
    assert [warning in str(each.message) for each in caught] == [True]
    with artifact.load() as network:
        np.testing.assert_array_equal(network(x), x + x)
    with pytest.raises(CompileError, match=error):
        load(tmp_path, pedantic=True)
    with pytest.warns(ModelWarning), pytest.raises(CompileError):
        outline(tmp_path)
        outline(tmp_path, pedantic=True)


def test_another_fragment_of_a_name_of_the_standard_is_an_error(tmp_path: Path) -> None:
    text = (
        "extension KHR_enable_fragment_definitions; fragment sqr(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>)"
    )
    (tmp_path / "graph.nnef").write_text(
        f"version 1.0; {text} {{ y = relu(x); }} graph g(x) -> (y) {{ x = external(shape = [1]); y = sqr(x, 2); }}"
    )
    with pytest.raises(CompileError, match="is an operation of the standard"):
        load(tmp_path)
