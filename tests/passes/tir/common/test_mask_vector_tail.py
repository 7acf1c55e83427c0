"""Rows of dynamic length in vectors, the last of which leaves out lanes."""

import pytest
import tvm
from tir_programs import function
from tvm import tirx

from nnefc.passes.tir.common.mask_vector_tail import mask_vector_tails
from nnefc.passes.tir.common.peel_tail_tiles import TiledAxis


def changed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function whose last parameters are a row's length and its number of vectors."""
    axis = TiledAxis(*func.params[-2:], 16, ())
    return tirx.PrimFunc(func.params, mask_vector_tails(func.body, [axis]), func.ret_type, func.attrs)


def assert_same(func: tirx.PrimFunc, expected: tirx.PrimFunc) -> None:
    """Up to what TVM simplifies, with a variable of its own for each loop."""
    simplify = tvm.transform.Sequential([tirx.transform.StmtSimplify(), tirx.transform.ConvertSSA()])
    tvm.ir.assert_structural_equal(*(simplify(tvm.IRModule({"main": f})) for f in (func, expected)))


ROW = """
    X: T.Buffer((T.int64(99),)), Y: T.Buffer((T.int64(99),)), n: T.int64, q: T.int64
    for v in range(q):
        for lane in T.vectorized(T.int64(16)):
            if v * T.int64(16) + lane < n:
                Y[v * T.int64(16) + lane] = X[v * T.int64(16) + lane] + T.float32(1)
"""


FULL_VECTORS_AND_ONE = """
    X: T.Buffer((T.int64(99),)), Y: T.Buffer((T.int64(99),)), n: T.int64, q: T.int64
    for v in range(T.max(T.min(n // T.int64(16), q), T.int64(0))):
        for lane in T.vectorized(T.int64(16)):
            Y[v * T.int64(16) + lane] = X[v * T.int64(16) + lane] + T.float32(1)
    last: T.let[T.int64] = T.max(T.min(n // T.int64(16), q), T.int64(0))
    if last < q and last * T.int64(16) < n:
        T.attr(T.int64(0), "nnefc.mask", n - last * T.int64(16))
        for lane in T.vectorized(T.int64(16)):
            Y[last * T.int64(16) + lane] = X[last * T.int64(16) + lane] + T.float32(1)
"""


def test_a_loop_over_vectors_becomes_one_over_whole_ones_and_the_last() -> None:
    assert_same(changed(function(ROW)), function(FULL_VECTORS_AND_ONE))


ONE_VECTOR = """
    X: T.Buffer((T.int64(99),)), Y: T.Buffer((T.int64(99),)), m: T.int64, n: T.int64, q: T.int64
    for lane in T.vectorized(T.int64(16)):
        if lane < n and lane < m:
            Y[lane] = X[lane]
"""


IN_TWO_VERSIONS = """
    X: T.Buffer((T.int64(99),)), Y: T.Buffer((T.int64(99),)), m: T.int64, n: T.int64, q: T.int64
    if T.int64(16) <= n and T.int64(16) <= m:
        for lane in T.vectorized(T.int64(16)):
            Y[lane] = X[lane]
    else:
        T.attr(T.int64(0), "nnefc.mask", T.min(n, m))
        for lane in T.vectorized(T.int64(16)):
            Y[lane] = X[lane]
"""


def test_a_vector_alone_is_whole_or_has_the_lanes_that_all_conditions_let_through() -> None:
    assert_same(changed(function(ONE_VECTOR)), function(IN_TWO_VERSIONS))


GREATEST = """
    X: T.Buffer((T.int64(99),)), m: T.Buffer((T.int64(16),)), n: T.int64, q: T.int64
    for v in range(q):
        for lane in T.vectorized(T.int64(16)):
            m[lane] = T.max(
                m[lane], T.if_then_else(v * T.int64(16) + lane < n, X[v * T.int64(16) + lane], T.float32(-9))
            )
"""


GREATEST_OF_FULL_VECTORS = """
    X: T.Buffer((T.int64(99),)), m: T.Buffer((T.int64(16),)), n: T.int64, q: T.int64
    for v in range(T.max(T.min(n // T.int64(16), q), T.int64(0))):
        for lane in T.vectorized(T.int64(16)):
            m[lane] = T.max(m[lane], X[v * T.int64(16) + lane])
    last: T.let[T.int64] = T.max(T.min(n // T.int64(16), q), T.int64(0))
    if last < q and last * T.int64(16) < n:
        T.attr(T.int64(0), "nnefc.mask", n - last * T.int64(16))
        for lane in T.vectorized(T.int64(16)):
            m[lane] = T.max(m[lane], X[last * T.int64(16) + lane])
"""


def test_a_reduction_takes_what_is_there_instead_of_its_first_value_beyond_the_end() -> None:
    assert_same(changed(function(GREATEST)), function(GREATEST_OF_FULL_VECTORS))


CHOICE_BY_DATA = """
    X: T.Buffer((T.int64(99),)), Y: T.Buffer((T.int64(99),)), n: T.int64, q: T.int64
    for lane in T.vectorized(T.int64(16)):
        if T.float32(0) < X[lane]:
            Y[lane] = X[lane]
"""


FIRST_LANES_LEFT_OUT = """
    X: T.Buffer((T.int64(99),)), Y: T.Buffer((T.int64(99),)), n: T.int64, q: T.int64
    for lane in T.vectorized(T.int64(16)):
        if n < lane:
            Y[lane] = X[lane]
"""


EVERY_SECOND = """
    X: T.Buffer((T.int64(99),)), Y: T.Buffer((T.int64(99),)), n: T.int64, q: T.int64
    for lane in T.vectorized(T.int64(16)):
        if lane * T.int64(2) < n:
            Y[lane] = X[lane]
"""


FLOAT16_TYPES = """
    X: T.Buffer((T.int64(99),), "float16"), Y: T.Buffer((T.int64(99),), "float16"), n: T.int64, q: T.int64
    for lane in T.vectorized(T.int64(16)):
        if lane < n:
            Y[lane] = X[lane]
"""


OTHERWISE = """
    X: T.Buffer((T.int64(99),)), Y: T.Buffer((T.int64(99),)), n: T.int64, q: T.int64
    for lane in T.vectorized(T.int64(16)):
        if lane < n:
            Y[lane] = X[lane]
        else:
            Y[lane] = T.float32(0)
"""


@pytest.mark.parametrize(
    "text", [CHOICE_BY_DATA, FIRST_LANES_LEFT_OUT, EVERY_SECOND, FLOAT16_TYPES, OTHERWISE],
    ids=["by data", "first lanes", "every second lane", "16-bit floats", "otherwise"],
)  # fmt: skip
def test_other_vectors_stay_as_they_are(text: str) -> None:
    func = function(text)
    assert changed(func).body.same_as(func.body)
