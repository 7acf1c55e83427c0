"""Indices that checks compute in a wider type, to see whether their own type holds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm_ffi
from tvm import sym, tirx

from nnefc.targets.codegen.cpu.checks import _in_type

N = tirx.Var("n", "int32")
LARGE = 1 << 20

FORMS: dict[str, tuple[Callable[[], tirx.Expr], int]] = {
    "a product": (lambda: N * N, LARGE**2),
    "a product that is chosen": (lambda: tirx.Select(N > 4, N * N + 1, N), LARGE**2 + 1),
    "a product in a cast": (lambda: (N * N).astype("int64").astype("int32") + 1, LARGE**2 + 1),
    "a truncated quotient of a product": (lambda: tirx.Div(N * N, N + 1), LARGE**2 // (LARGE + 1)),
    "the smallest of two": (lambda: tirx.Min(N * N, N * 4096), LARGE * 4096),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_arithmetic_is_in_the_wider_type(form: str) -> None:
    index, expected = FORMS[form]
    wide = _in_type(index(), "int64")
    found = tvm_ffi.structural_map(wide, (tirx.Var, lambda _var: tirx.const(LARGE, "int32")))
    assert int(sym.Analyzer().simplify(found)) == expected


@pytest.mark.parametrize("kinds", [("int8", "uint8"), ("int32", "int8"), ("int64", "uint32")])
def test_casts_that_change_numbers_stay(kinds: tuple[str, str]) -> None:
    first, second = kinds
    number = tirx.Var("v", first).astype(second).astype("int32")
    assert tvm_ffi.structural_equal(_in_type(number * N, "int64"), number.astype("int64") * N.astype("int64"))
