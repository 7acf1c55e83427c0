"""What TVM knows of expressions and bindings, and what it does not know of opaque ones.

A test that fails after an update of TVM tells that the behaviour is gone, and that what relies on it can go.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
import tvm_ffi
from tir_programs import function
from tvm import s_tir, tirx
from tvm.sym import Analyzer

from nnefc.passes.tir.common.expressions import variables_of
from nnefc.passes.tir.tvm_workarounds.opaque import bound_value, opaque, opaque_binding, visible

X, N = tirx.Var("x", "float32"), tirx.Var("n", "int64")


@pytest.mark.parametrize("value", [tirx.const(0.0, "float32"), X - X, N * 2 - N])
def test_tvm_folds_an_expression_and_no_opaque_one(value: tirx.Expr) -> None:
    assert not tvm_ffi.structural_equal(Analyzer().simplify(value + value), opaque(value) + opaque(value))
    kept = Analyzer().simplify(opaque(value))
    assert not isinstance(kept, tirx.IntImm | tirx.FloatImm | tirx.Var)


def test_what_is_hidden_can_be_seen_again() -> None:
    value = N + 1
    assert visible(opaque(value)).same_as(value)
    assert visible(value).same_as(value)
    other = tirx.reinterpret("int32", X)
    assert visible(other).same_as(other)


def indices(bind: Callable[[tirx.Var, tirx.Expr], tirx.Bind]) -> set[str]:
    """The variables of the indices after TVM has simplified a function that binds `a` to `n * m`."""
    func = function("A: T.Buffer((99,)), a: T.int64, n: T.int64, m: T.int64\n    A[a + T.int64(1)] = T.float32(0)")
    tensor, a, n, m = func.params
    body = tirx.SeqStmt([bind(a, n * m), func.body])
    made = s_tir.transform.StmtSimplify()(tvm.IRModule({"main": tirx.PrimFunc([tensor, n, m], body)}))["main"]
    found: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(made.body, (tirx.BufferStore, found.append))
    return {var.name for var in variables_of(found[0].indices)}


def test_tvm_replaces_a_variable_by_its_value_even_if_that_is_opaque_but_not_that_of_an_opaque_binding() -> None:
    assert indices(tirx.Bind) == {"n", "m"}
    assert indices(lambda var, value: tirx.Bind(var, opaque(value))) == {"n", "m"}
    assert indices(opaque_binding) == {"a"}


def test_the_value_of_an_opaque_binding_is_known() -> None:
    value = N * 3
    assert bound_value(opaque_binding(N, value).value).same_as(value)
    assert bound_value(value).same_as(value)


def test_tvm_replaces_a_let_of_a_value_that_becomes_simpler_and_keeps_one_of_an_opaque_value() -> None:
    """`vector_math.named` binds values in expressions of which TVM meets copies at different times."""
    var, simpler = tirx.Var("v", "float32"), tirx.Select(N < 3, X, X)
    assert not isinstance(Analyzer().simplify(tirx.Let(var, simpler, var * var)), tirx.Let)
    assert isinstance(Analyzer().simplify(tirx.Let(var, opaque(simpler), var * var)), tirx.Let)
