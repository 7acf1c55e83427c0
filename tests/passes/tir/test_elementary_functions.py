"""Elementary functions after the whole way through the compiler, for every type and at the borders of their domains."""

import numpy as np
import pytest
from relax_programs import UNARY, Case, build, check, target
from tvm import relax, tirx

from nnefc.driver.compile import compile_network
from nnefc.passes.compute.vector_math import exp_of_negative

FUNCTIONS = {
    "acos": (np.arccos, -0.99, 0.99),
    "acosh": (np.arccosh, 1.01, 50.0),
    "asin": (np.arcsin, -0.99, 0.99),
    "asinh": (np.arcsinh, -50.0, 50.0),
    "atan": (np.arctan, -50.0, 50.0),
    "atanh": (np.arctanh, -0.99, 0.99),
    "cos": (np.cos, -10.0, 10.0),
    "cosh": (np.cosh, -20.0, 20.0),
    "exp": (np.exp, -80.0, 80.0),
    "log": (np.log, 1e-6, 1e6),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -80.0, 80.0),
    "sin": (np.sin, -10.0, 10.0),
    "sinh": (np.sinh, -20.0, 20.0),
    "sqrt": (np.sqrt, 0.0, 1e6),
    "tan": (np.tan, -1.5, 1.5),
    "tanh": (np.tanh, -10.0, 10.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_function_compiles_and_is_close_to_numpy(dtype: str) -> None:
    cases = []
    for name, (function, low, high) in FUNCTIONS.items():
        x = np.random.default_rng(0).uniform(low, high, 1023).astype(dtype)
        emit = getattr(relax.op, name)
        cases.append(
            Case(
                [x.reshape(31, 33)],
                lambda graph, v, emit=emit, function=function: graph.emit(emit(v.expr), function(v.array)),
                3e-6 if dtype == "float32" else 1e-13,
                name,
            )
        )
    check(cases)


def test_infinities_and_nans_pass_through() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 100.0, -100.0, 0.0], np.float32)
    with np.errstate(all="ignore"):
        check(
            [
                Case(
                    [np.repeat(x, 16)],
                    lambda graph, v, name=name: graph.emit(
                        getattr(relax.op, name)(v.expr), FUNCTIONS[name][0](v.array.astype(np.float32)).astype(float)
                    ),
                    name=name,
                )
                for name in ("exp", "tanh", "sigmoid", "cosh", "sinh", "sqrt", "log")
            ]
        )


@pytest.mark.parametrize(
    ("name", "limit", "positions"), [("exp", 86.0, 2), ("tanh", 10.0, 8), ("sigmoid", 87.0, 3), ("erf", 5.0, 8)]
)
@pytest.mark.sample(2)
def test_polynomials_err_in_the_last_positions_only(name: str, limit: float, positions: int) -> None:
    x = np.concatenate([np.linspace(-limit, limit, 40_000), np.geomspace(1e-6, limit, 8_000)]).astype(np.float32)
    built = build([Case([x], lambda graph, v: graph.unary(name, v))])
    with compile_network(built.network, target("llvm")).load(threads=1) as model:
        (result,) = model.run(built.inputs).values()
    expected = UNARY[name][1](x.astype(np.float64))
    assert np.max(np.abs(result - expected) / np.spacing(np.abs(expected).astype(np.float32))) <= positions


def test_exp_of_what_is_not_positive_errs_in_the_last_positions_only_and_ends_at_zero() -> None:
    x = np.concatenate([np.linspace(-87.3, 0, 40_000), [-0.0, -1e-30, -88.1, -1e30, -np.inf, np.nan]]).astype(
        np.float32
    )
    with np.errstate(all="ignore"):
        expected = np.exp(x.astype(np.float64))
    built = build([Case([x], lambda graph, v: graph.compute(exp_of_negative, v, expected))])
    with compile_network(built.network, target("llvm")).load(threads=1) as model:
        (result,) = model.run(built.inputs).values()
    assert np.array_equal(result[-6:], np.array([1, 1, 0, 0, 0, np.nan], np.float32), equal_nan=True)
    positions = np.abs(result - expected)[:-6] / np.spacing(expected[:-6].astype(np.float32))
    assert np.max(positions) <= 2


def test_log1p_errs_in_the_last_positions_only_where_the_sum_rounds_its_argument_away_too() -> None:
    small = np.geomspace(np.finfo(np.float32).smallest_normal, np.finfo(np.float32).max, 40_003)
    x = np.concatenate([small, -np.geomspace(1e-38, 0.9999, 40_003), [0, -1, np.inf, np.nan, -2]]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = np.log1p(x.astype(np.float64))
    built = build([Case([x], lambda graph, v: graph.compute(tirx.log1p, v, expected))])
    with compile_network(built.network, target("llvm")).load(threads=1) as model:
        (result,) = model.run(built.inputs).values()
    assert np.array_equal(result[-5:], expected[-5:].astype(np.float32), equal_nan=True)
    positions = np.abs(result - expected)[:-5] / np.spacing(np.abs(expected[:-5]).astype(np.float32))
    assert np.max(positions) <= 3


def test_logarithms_err_in_the_last_place_only_subnormals_too() -> None:
    small, large = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    x = np.concatenate([np.geomspace(small, large, 40_003), np.linspace(0.5, 2.0, 40_000)]).astype(np.float32)
    built = build([Case([x], lambda graph, v: graph.unary("log", v))])
    for name in ("llvm", "llvm -mcpu=x86-64"):
        with compile_network(built.network, target(name)).load(threads=1, flush_subnormals=False) as model:
            (result,) = model.run(built.inputs).values()
        expected = np.log(x.astype(np.float64))
        assert np.max(np.abs(result - expected) / np.spacing(np.abs(expected).astype(np.float32))) <= 1


def test_logarithms_outside_of_their_domain() -> None:
    x = np.array([0.0, -0.0, -1.0, -1e-40, -np.inf, np.inf, np.nan, 1.0] * 17, np.float32)
    built = build([Case([x], lambda graph, v: graph.emit(relax.op.log(v.expr), v.array))])
    with compile_network(built.network, target("llvm")).load(threads=1, flush_subnormals=False) as model:
        (result,) = model.run(built.inputs).values()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(result, np.log(x))


def test_small_arguments_of_the_inverse_tangent_keep_their_positions() -> None:
    x = np.concatenate([np.geomspace(1e-30, 0.999, 4001), -np.geomspace(1e-30, 0.999, 4001), [0, -0.0, 1, -1, 2]])
    x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = np.arctanh(x.astype(float))
    built = build([Case([x], lambda graph, v: graph.emit(relax.op.atanh(v.expr), exact))])
    (found,) = compile_network(built.network, target("llvm")).run(built.inputs).values()
    found, usual = found.reshape(-1), np.isfinite(exact) & (exact != 0)
    assert np.max(np.abs(found[usual] - exact[usual]) / np.spacing(np.abs(exact[usual]).astype(np.float32))) <= 4
    assert np.array_equal(found[-5:-1], exact[-5:-1])
    assert np.array_equal(np.signbit(found[-5:-3]), [False, True])
    assert np.isnan(found[-1])
