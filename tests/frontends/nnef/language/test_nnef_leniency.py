"""Breaches of the standard that leave no doubt: warnings, errors with `pedantic`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnef_cases import run_network

import nnefc
from nnefc.frontends.nnef.files.tensor_file import write_tensor
from nnefc.frontends.nnef.frontend import load
from nnefc.frontends.nnef.outline import outline
from nnefc.support.diagnostics import CompileError, ModelWarning

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
    "an array for a tensor": (
        "",
        "a = copy([0.5]);\n b = mul(x, [2, 4.0]); y = add(x, mul(b, min(a, [1.0, 0.25])));",
        "arrays of numbers are read as constants in lines 3, 4, which the standard does not do",
        "cannot be deduced",
    ),
    "arrays for pairs": (
        "",
        "a = add(x, x); b = pad(a, padding = [[1, 0], [0, 2]]);"
        "y = slice(b, axes = [0, 1], begin = [1, 0], end = [0, 3]);",
        "arrays are read as tuples",
        "integer\\[\\]\\[\\]",
    ),
    "a product of more dimensions": (
        "",
        "a = constant(shape = [1, 1, 1], value = [2.0]); b = unsqueeze(x, axes = [2]);"
        "c = reshape(b, shape = [6, 1, 1]); d = linear(c, a); y = reshape(d, shape = [2, 3]);",
        "'linear' of tensors of rank above 2",
        "must have rank 2",
    ),
    "a bias of more dimensions": (
        "",
        "a = constant(shape = [1, 1, 1], value = [1.0]); b = constant(shape = [1, 1, 1], value = [0.5]);"
        "c = unsqueeze(x, axes = [1]); d = conv(c, a, b); e = conv(c, a, constant(shape = [1, 1], value = [-0.5]));"
        "f = add(d, e); y = squeeze(f, axes = [1]);",
        "a bias of rank above 2",
        "does not fit 1 channels",
    ),
    "a constant of rank 0 for a number": (
        "",
        "a = constant(shape = [], value = [-1.0]); b = leaky_relu(x, alpha = a); c = add(x, b); y = copy(c);",
        "tensors of rank 0 are read as the numbers in them where numbers are needed: 'a'",
        "'alpha' is of type scalar",
    ),
    "a variable of rank 0 for a number": (
        "",
        "a = variable<scalar>(label = '/slope', shape = []); b = leaky_relu(x, alpha = a);"
        "c = mul(x, 1.0); y = add(b, c);",
        "tensors of rank 0 are read as the numbers in them where numbers are needed: 'a'",
        "'alpha' is of type scalar",
    ),
    "a fragment of the standard": (
        "extension KHR_enable_fragment_definitions; extension KHR_enable_operator_expressions;"
        "fragment sqr(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x ^ 2.0; }",
        "y = div(sqr(add(x, x)), mul(x, 2.0));",
        "the fragment 'sqr' is left out",
        "is an operation of the standard",
    ),
    "a fragment of the standard with another body": (
        "extension KHR_enable_fragment_definitions; extension KHR_enable_operator_expressions;"
        "fragment sqr_1(x: tensor<scalar>) -> (y: tensor<scalar>) { y = sqr(x) / x; }"
        "fragment sqr(x: tensor<scalar>) -> (y: tensor<scalar>) { y = 2.0 * x ^ 2.0; }",
        "m, v = moments(stack([x, x + 2.0], axis = 0), axes = [0]); y = sqr_1(x) + squeeze(v - 1.0, axes = [0]);",
        "the fragment 'sqr' is taken, not the standard's operation",
        "is an operation of the standard",
    ),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_clear_breach_is_a_warning(name: str, tmp_path: Path) -> None:
    before, body, warning, error = BREACHES[name]
    (tmp_path / "graph.nnef").write_text(
        f"version 1.0;\n{before}\ngraph g(x) -> (y) {{ x = external<scalar>(shape = [2, 3]); {body} }}"
    )
    write_tensor(tmp_path / "slope.dat", np.array(1, np.float32))
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    with pytest.warns(ModelWarning, match="--pedantic") as caught:
        network = load(tmp_path)
    assert [warning in str(each.message) for each in caught] == [True]
    np.testing.assert_array_equal(run_network(network, [x])[0], x + x)
    with pytest.raises(CompileError, match=error):
        load(tmp_path, pedantic=True)
    with pytest.warns(ModelWarning), pytest.raises(CompileError):
        outline(tmp_path)
        outline(tmp_path, pedantic=True)


def test_codes_of_quantized_variables_are_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(
        "version 1.0; graph g(x) -> (y) { x = external<scalar>(shape = [1, 2]);"
        "a = variable<scalar>(label = 'a', shape = []); y = leaky_relu(x, alpha = a); }"
    )
    entry = "zero_point_linear_quantize(zero_point = 0, scale = 0.001, bits = 8, signed = false, symmetric = false)"
    (tmp_path / "graph.quant").write_text(f'"a": {entry};')
    write_tensor(tmp_path / "a.dat", np.array(7, np.uint8), quantized=True)
    with pytest.raises(CompileError, match="the parameter 'alpha' is of type scalar"):
        nnefc.compile(tmp_path)


def test_a_long_expression_and_a_constant_are_read(tmp_path: Path) -> None:
    total = " + ".join(["c"] * 2_000)
    (tmp_path / "graph.nnef").write_text(
        "version 1.0; extension KHR_enable_operator_expressions; graph g(x) -> (y) { x = external<scalar>(shape = [1]);"
        f"c = constant<scalar>(shape = [1], value = [1.0]); y = x + {total}; }}"
    )
    assert outline(tmp_path).operations["add"] == 2_000


def test_another_fragment_of_a_name_of_the_standard_is_an_error(tmp_path: Path) -> None:
    text = (
        "extension KHR_enable_fragment_definitions; fragment sqr(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>)"
    )
    (tmp_path / "graph.nnef").write_text(
        f"version 1.0; {text} {{ y = relu(x); }} graph g(x) -> (y) {{ x = external(shape = [1]); y = sqr(x, 2); }}"
    )
    with pytest.raises(CompileError, match="is an operation of the standard"):
        load(tmp_path)


SLOPE = """version 1.0; graph g(x) -> (y)
{ x = external(shape = [2]); a = variable<scalar>(label = '/slope', shape = []); y = leaky_relu(x, alpha = a); }"""


def test_the_number_of_a_variable_is_that_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(SLOPE)
    with pytest.warns(ModelWarning):
        assert outline(tmp_path).operations == {"leaky_relu": 1}  # which needs no file
    with pytest.raises(CompileError, match="'alpha' is of type scalar"):
        load(tmp_path)
    write_tensor(tmp_path / "slope.dat", np.array(0.25, np.float32))
    with pytest.warns(ModelWarning):
        artifact = nnefc.compile(tmp_path)
    np.testing.assert_array_equal(artifact.run({"x": np.float32([-4, 4])})["y"], [-1, 4])


def test_tensors_of_rank_0_stay_tensors_where_these_are_needed(tmp_path: Path) -> None:
    text = SLOPE.replace("leaky_relu(x, alpha = a)", "mul(x, a)")
    (tmp_path / "graph.nnef").write_text(text)
    write_tensor(tmp_path / "slope.dat", np.array(0.25, np.float32))
    np.testing.assert_array_equal(nnefc.compile(tmp_path).run({"x": np.float32([-4, 4])})["y"], [-1, 1])
