from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from nnefc.symbolic.arrays import ELEMENTWISE, converted, is_dynamic, of_elements, reduced
from nnefc.symbolic.values import Quotient, elementwise, quotient


def fraction(element: Any) -> Any:
    return Fraction(element.above, element.below) if isinstance(element, Quotient) else element


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("add", (2, 3), 5),
        ("add", (0.5, 3), Fraction(7, 2)),
        ("div", (-7, 2), -3),
        ("div", (-7.0, 2), Fraction(-7, 2)),
        ("mod", (-7, 3), 2),
        ("fmod", (7.5, 2.0), Fraction(3, 2)),
        ("pow", (3, 4.0), 81),
        ("pow", (0.5, 2), 0.25),
        ("neg", (3,), -3),
        ("abs", (-3,), 3),
        ("max", (2, 2.5), Fraction(5, 2)),
        ("floor", (-2.5,), -3),
        ("ceil", (-2.5,), -2),
        ("round", (2.5,), 2),
        ("floor", (7,), 7),
        ("gt", (2, 1.5), True),
        ("ne", (2, 2.0), False),
        ("select", (False, 1, 2), 2),
    ],
)
def test_functions_of_numbers_are_exact(name: str, operands: tuple[Any, ...], expected: Any) -> None:
    arrays = [of_elements([operand], ()) for operand in operands]
    assert fraction(elementwise(ELEMENTWISE[name])(*arrays).item()) == expected


def test_a_remainder_that_depends_on_a_sign_is_not_known() -> None:
    with pytest.raises(ValueError, match="sign"):
        ELEMENTWISE["fmod"](-7, 3)


def test_elements_are_converted_to_each_kind_of_type() -> None:
    array = of_elements([quotient(2.5), -3, True, 0], (2, 2))
    assert converted(array, "int64").tolist() == [[2, -3], [1, 0]]
    assert converted(array, "bool").tolist() == [[True, True], [True, False]]
    assert [fraction(each) for each in converted(array, "float32").flat] == [Fraction(5, 2), -3, 1, 0]
    assert not is_dynamic(array)


@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_are_those_of_numpy_also_of_no_elements(keepdims: bool) -> None:
    array = np.arange(1, 7).reshape(2, 3).astype(object)
    assert np.array_equal(reduced(operator.mul, array, (0, -1), keepdims), np.prod(array, keepdims=keepdims))
    assert reduced(operator.add, array[:, :0], (1,), keepdims).reshape(-1).tolist() == [0, 0]
    assert reduced(ELEMENTWISE["max"], array, (0,), keepdims).reshape(-1).tolist() == [4, 5, 6]
