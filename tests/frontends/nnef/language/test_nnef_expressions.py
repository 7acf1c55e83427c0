"""Expressions on meta-parameters: values of operators, arrays, strings, selections, comprehensions, casts."""

from __future__ import annotations

from typing import Any

import pytest
from nnef_language import final, flatten, provisional, value_of

from nnefc.frontends.nnef.language.types import Dialect

BOTH = [
    ("1 + 2 * 3", "integer", 7),
    ("(1 + 2) * 3", "integer", 9),
    ("7 / 2", "integer", 3),
    ("(0 - 7) / 2", "integer", -3),
    ("7 / (0 - 2)", "integer", -3),
    ("7.0 / 2.0", "scalar", 3.5),
    ("2 ^ 10", "integer", 1024),
    ("2 ^ 3 ^ 2", "integer", 64),
    ("2 ^ -1", "integer", 0),
    ("2.0 ^ -1.0", "scalar", 0.5),
    ("-2 ^ 2", "integer", -4),
    ("-2 + 3", "integer", 1),
    ("+2 - -3", "integer", 5),
    ("10 - 3 - 2", "integer", 5),
    ("100 / 10 / 5", "integer", 2),
    ("1e3", "scalar", 1000.0),
    ("1.5E-1", "scalar", 0.15),
    ("2.", "scalar", 2.0),
    ("1 < 2", "logical", True),
    ("2 <= 1", "logical", False),
    ("2.0 > 1.0", "logical", True),
    ("2 >= 2", "logical", True),
    ("'a' == 'a'", "logical", True),
    ("'a' != \"a\"", "logical", False),
    ("[1, 2] == [1, 2]", "logical", True),
    ("(1, 'a') != (1, 'b')", "logical", True),
    ("[] == [1]", "logical", False),
    ("!true || true", "logical", True),
    ("!(true || true)", "logical", False),
    ("false && true || true", "logical", True),
    ("true || true && false", "logical", True),
    ("1 + 1 == 2 && 3 > 2", "logical", True),
    ("false && 1 / 0 == 1", "logical", False),
    ("true || 1 / 0 == 1", "logical", True),
    ("1 if 2 > 1 else 1 / 0", "integer", 1),
    ("1 / 0 if 1 > 2 else 2", "integer", 2),
    ("1 if false else 2 if false else 3", "integer", 3),
    ("[1, 2][5] if false else 4", "integer", 4),
    ("[1, 2] + [3]", "integer[]", [1, 2, 3]),
    ("[] + [3] + []", "integer[]", [3]),
    ("[1, 2] * 2", "integer[]", [1, 2, 1, 2]),
    ("[(1, 2)] * 2 + [(3, 4)]", "(integer, integer)[]", [(1, 2), (1, 2), (3, 4)]),
    ("[1] * 0", "integer[]", []),
    ("[[1], [], [2, 3]]", "integer[][]", [[1], [], [2, 3]]),
    ("[1, 2, 3][1]", "integer", 2),
    ("[1, 2, 3][0:2]", "integer[]", [1, 2]),
    ("[1, 2, 3][:2]", "integer[]", [1, 2]),
    ("[1, 2, 3][1:]", "integer[]", [2, 3]),
    ("[1, 2, 3][:]", "integer[]", [1, 2, 3]),
    ("[1, 2, 3][2:2]", "integer[]", []),
    ("[1, 2, 3][2:1]", "integer[]", []),
    ("[1, 2, 3][3:]", "integer[]", []),
    ("[[1, 2], [3]][0][1]", "integer", 2),
    ("(1, 'a', true)[1]", "string", "a"),
    ("((1, 2), 3)[0][1]", "integer", 2),
    ("[(1, 2.0)][0][1]", "scalar", 2.0),
    ("'ab' + \"cd\"", "string", "abcd"),
    ("'ab' * 3", "string", "ababab"),
    ("'abc'[1]", "string", "b"),
    ("'abc'[1:]", "string", "bc"),
    ("'abc'[:1] + 'abc'[2:3]", "string", "ac"),
    ("length_of([1, 2, 3])", "integer", 3),
    ("length_of('four')", "integer", 4),
    ("length_of([])", "integer", 0),
    ("range_of([5, 6, 7])", "integer[]", [0, 1, 2]),
    ("range_of('ab')", "integer[]", [0, 1]),
    ("scalar(3)", "scalar", 3.0),
    ("scalar(true)", "scalar", 1.0),
    ("scalar(false)", "scalar", 0.0),
    ("scalar('2.5e1')", "scalar", 25.0),
    ("scalar('7')", "scalar", 7.0),
    ("logical(0)", "logical", False),
    ("logical(3)", "logical", True),
    ("logical(0.0)", "logical", False),
    ("logical(0.5)", "logical", True),
    ("logical('')", "logical", False),
    ("logical('false')", "logical", True),
    ("string(true)", "string", "true"),
    ("string(12)", "string", "12"),
    ("string(1.5)", "string", "1.5"),
    ("string('a')", "string", "a"),
    ("'block' + string(3) + '/w'", "string", "block3/w"),
]


@pytest.mark.parametrize(("expression", "type_", "expected"), BOTH)
@pytest.mark.parametrize("dialect", list(Dialect))
def test_values_in_both_dialects(expression: str, type_: str, expected: Any, dialect: Dialect) -> None:
    type_ = type_.replace("integer", "extent") if dialect is Dialect.PROVISIONAL else type_
    found = value_of(expression, type_, dialect)
    assert found == expected
    assert type(found) is type(expected)


FINAL_ONLY = [
    ("2 in [1, 2]", "logical", True),
    ("'c' in ['a', 'b']", "logical", False),
    ("1 in []", "logical", False),
    ("(1, 2) in [(1, 2)]", "logical", True),
    ("true && 1 in [1]", "logical", True),
    ("[1, 2, 3][-1]", "integer", 3),
    ("[1, 2, 3][-2:]", "integer[]", [2, 3]),
    ("'abc'[:-1]", "string", "ab"),
    ("integer(2.7)", "integer", 2),
    ("integer(-2.7)", "integer", -2),
    ("integer(true)", "integer", 1),
    ("integer('-12')", "integer", -12),
    ("[for i in [1, 2, 3] yield i * i]", "integer[]", [1, 4, 9]),
    ("[for i in [1, 2, 3] if i != 2 yield i]", "integer[]", [1, 3]),
    ("[for i in [1, 2], j in [3, 4] yield i * j]", "integer[]", [3, 8]),
    ("[for i in [1, 2], j in [3, 4] if i < j - 2 yield (i, j)]", "(integer, integer)[]", []),
    ("[for (a, b) in [(1, 'x'), (2, 'y')] yield b * a]", "string[]", ["x", "yy"]),
    ("[for i in [[1, 2], [3]] yield [for j in i yield j + 1]]", "integer[][]", [[2, 3], [4]]),
    ("[for i in [1, 2] yield i] + [for i in [3] yield i]", "integer[]", [1, 2, 3]),
    ("[for i in range_of([1, 2]) yield [5, 6][i] if i > 0 else 0]", "integer[]", [0, 6]),
]


@pytest.mark.parametrize(("expression", "type_", "expected"), FINAL_ONLY)
def test_values_in_the_final_dialect(expression: str, type_: str, expected: Any) -> None:
    assert value_of(expression, type_) == expected


PROVISIONAL_ONLY = [
    ("extent(2.7)", "extent", 2),
    ("extent(-2.7)", "extent", -3),
    ("extent(true)", "extent", 1),
    ("extent('12')", "extent", 12),
    ("[i * i for i in [1, 2, 3]]", "extent[]", [1, 4, 9]),
    ("[i for i in [1, 2, 3] if i != 2]", "extent[]", [1, 3]),
    ("[i * j for i in [1, 2], j in [3, 4]]", "extent[]", [3, 8]),
    ("[i if i > 1 else 0 for i in [1, 2]]", "extent[]", [0, 2]),
    ("[[5, 6][i] * [7, 8][i] for i in range_of([5, 6])]", "extent[]", [35, 48]),
    ("[[j for j in i if j > 1] for i in [[1, 2], [3]]]", "extent[][]", [[2], [3]]),
    ("shape_of(1.0)", "extent[]", [1, 1]),
]


@pytest.mark.parametrize(("expression", "type_", "expected"), PROVISIONAL_ONLY)
def test_values_in_the_provisional_dialect(expression: str, type_: str, expected: Any) -> None:
    assert value_of(expression, type_, Dialect.PROVISIONAL) == expected


def test_the_standards_recursive_sum_works_as_written() -> None:
    fragment = """fragment sum_of( elements: scalar[] ) -> ( sum: scalar )
    {
        sum = elements[0] + sum_of(elements[1:]) if length_of(elements) > 0 else 0.0
    }
    """
    assert value_of("sum_of([1.0, 2.0, 4.5])", "scalar", Dialect.PROVISIONAL, fragment) == 7.5
    assert value_of("sum_of([])", "scalar", Dialect.PROVISIONAL, fragment) == 0.0


def test_tuples_unpack_as_their_elements() -> None:
    fragment = """fragment pairs(n: extent) -> (r: extent[])
    {
        t = (n, [n + 1, n + 2], (n + 3, 'a'))
        a, [b, c], (d, s) = t
        e, f, g = t
        r = [a, b, c, d, t[0], g[0], length_of(s)]
    }
    """
    assert value_of("pairs(4)", "extent[]", Dialect.PROVISIONAL, fragment) == [4, 5, 6, 7, 4, 7, 1]


def test_a_shape_has_at_least_two_sizes_in_the_provisional_dialect_only() -> None:
    fragment = "fragment lengths(x: tensor) -> (y: tensor) { y = x * scalar(length_of(shape_of(x))) }"
    text = provisional(fragment, "y = lengths(x)").replace("[2,3,8,8]", "[5]")
    assert flatten(text).invocations[-1].arguments["y"] == 2.0
    fragment = "fragment lengths(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x * scalar(length_of(shape_of(x))); }"
    text = final(fragment, "y = lengths(x);").replace("[2,3,8,8]", "[5]")
    assert flatten(text).invocations[-1].arguments["y"] == 1.0


def test_shapes_of_intermediate_tensors_are_known() -> None:
    fragment = """fragment pooled(x: tensor<scalar>) -> (y: tensor<scalar>) {
        z = max_pool(x, size = [1,1,2,2], stride = [1,1,2,2], padding = [(0,0)] * 4, border = 'ignore');
        y = reshape(z, shape = [shape_of(z)[0], shape_of(z)[1] * shape_of(z)[2] * shape_of(z)[3]]);
    }"""
    assert flatten(final(fragment, "y = pooled(x);")).outputs[0].shape == (2, 48)
