"""The functions of the element-wise operators: at run time as at compile time, and as NumPy has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from nnefc.driver.compile import compile_network
from nnefc.ir.network import Network
from nnefc.operators.base import Emitter
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Clip, Elementwise, Where
from nnefc.operators.math.functions import FUNCTIONS
from nnefc.targets.machine.cpu.parsing import parse_target

REALS = np.array([-np.inf, -3.7, -2.5, -1.0, -0.5, -1e-6, -0.0, 0.0, 0.3, 0.5, 1.0, 1.5, 2.5, np.inf, np.nan])
INTEGERS = {
    "int8": np.array([-128, -127, -7, -2, -1, 0, 1, 2, 3, 5, 100, 127], np.int8),
    "int64": np.array([-(2**63), -(2**63) + 1, -7, -1, 0, 1, 2, 63, 64, 2**31, 2**62, 2**63 - 1], np.int64),
    "uint32": np.array([0, 1, 2, 3, 7, 31, 32, 33, 100, 2**31 - 1, 2**31, 2**32 - 1], np.uint32),
}
OF_REALS = [
    name
    for name in FUNCTIONS
    if not name.startswith(("bitwise", "logical")) and not name.endswith("_shift") and name != "sign_or_zero"
]
OF_INTEGERS = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "fmod", "power", "maximum", "minimum",
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift", "equal", "not_equal",
    "less", "less_equal", "greater", "greater_equal", "negative", "abs", "sign", "square", "cube", "floor", "round",
    "isnan", "isinf", "isfinite",
]  # fmt: skip


def arity(name: str) -> int:
    """How many operands a function takes."""
    return FUNCTIONS[name].known.nin if isinstance(FUNCTIONS[name].known, np.ufunc) else 1 + (name in BINARY)


BINARY = {"divide", "power", "left_shift", "right_shift"}


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every value with every other one."""
    return tuple(np.ascontiguousarray(side) for side in np.meshgrid(values, values, indexing="ij"))


def build(dtype: str, shape: tuple[int, ...], outputs: Callable[[Emitter, list[relax.Var]], Any]) -> Any:
    """The function that a library has, of `x` and `y`; `outputs` builds its results."""
    builder = relax.BlockBuilder()
    params = [relax.Var(name, relax.TensorType(shape, dtype)) for name in "xy"]
    with builder.function("main", params):
        with builder.dataflow():
            ctx = Emitter(builder)
            made = [ctx.emit(made) for made in outputs(ctx, params)]
            result = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(result)
    network = Network("net", builder.finalize(), ("x", "y"), tuple(f"y{index}" for index in range(len(made))))
    return compile_network(network, parse_target("llvm")).load(threads=1)


@pytest.mark.parametrize(("dtype", "names"), [("float32", OF_REALS), *((dtype, OF_INTEGERS) for dtype in INTEGERS)])
@pytest.mark.sample(2)
def test_functions_compute_at_run_time_what_numpy_does(dtype: str, names: list[str]) -> None:
    x, y = pairs(REALS.astype(dtype) if dtype == "float32" else INTEGERS[dtype])

    def outputs(ctx: Emitter, params: list[relax.Var]) -> list[relax.Expr]:
        return [Elementwise(name).lower(ctx, *params[: arity(name)]) for name in names]

    results = build(dtype, x.shape, outputs)(x, y)
    for name, result in zip(names, results, strict=True):
        with np.errstate(all="ignore"):
            expected = np.asarray(FUNCTIONS[name].known(*(x, y)[: arity(name)]))
        expected = expected.astype(FUNCTIONS[name].dtype or dtype)
        defined = np.ones(x.shape, bool)
        if dtype != "float32" and name in ("divide", "floor_divide", "remainder", "fmod"):
            defined = y != 0
        elif dtype != "float32" and name == "power":
            with np.errstate(all="ignore"):
                defined = np.abs(x.astype(np.float64)) ** y < 2.0 ** (8 * x.itemsize - 1)
        np.testing.assert_allclose(
            result[defined].astype(np.float64), expected[defined].astype(np.float64), 3e-6, 1e-6, err_msg=name
        )


CASTS = {
    "float32": np.array([-2.7, -1.0, -0.0, 0.0, 0.3, 1.0, 2.5, 100.9], np.float32),
    "int64": np.array([-(2**40), -129, -1, 0, 1, 127, 255, 2**40 + 3], np.int64),
    "bool": np.array([False, True] * 4),
}


@pytest.mark.parametrize("source", CASTS)
@pytest.mark.sample(1)
def test_casts_cut_towards_zero_and_keep_the_low_bits(source: str) -> None:
    x = CASTS[source]
    targets = ("float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")
    targets = tuple(target for target in targets if target != source)

    def outputs(ctx: Emitter, params: list[relax.Var]) -> list[relax.Expr]:
        return [Cast(target).lower(ctx, params[0]) for target in targets]

    for target, result in zip(targets, build(source, x.shape, outputs)(x, x), strict=True):
        if source == "float32" and target == "uint8":
            expected = x.astype(np.int32).astype(np.uint8)
        else:
            with np.errstate(all="ignore"):
                expected = x.astype(target)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected, err_msg=target)


def test_nan_is_true_and_stays_in_limits() -> None:
    x = np.array([np.nan, 0.0, -3.0, 3.0], np.float32)
    low, high = (np.array(bound, np.float32) for bound in (-1, 1))

    def outputs(ctx: Emitter, params: list[relax.Var]) -> list[relax.Expr]:
        cut = Clip().lower(ctx, params[0], low, high)
        below = Clip().lower(ctx, params[0], None, high)
        truth = ctx.bound(Cast("bool").lower(ctx, params[0]))
        return [cut, below, Where().lower(ctx, truth, params[0], params[1])]

    cut, below, chosen = build("float32", x.shape, outputs)(x, np.full_like(x, 7))
    np.testing.assert_array_equal(cut, [np.nan, 0, -1, 1])
    np.testing.assert_array_equal(below, [np.nan, 0, -3, 1])
    np.testing.assert_array_equal(chosen, [np.nan, 7, -3, 3])
