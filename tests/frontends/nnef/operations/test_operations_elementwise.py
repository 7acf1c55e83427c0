"""Element-wise operations, comparisons and activations against NumPy, at run time and folded at compile time."""

import dataclasses

import numpy as np
import pytest
from nnef_cases import Case, check, check_expanded, with_share
from nnef_reference import left

RNG = np.random.default_rng(11)


def real(*shape, low=-3.0, high=3.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def away(x):
    """Half away from zero."""
    x = x.astype(np.float64)
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


TIES = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, -0.49999997, 8388607.0, 0.0, 2.4, -2.6], np.float32)

UNARY = {
    "exp": (np.exp, real(2, 3, 4)),
    "log": (np.log, real(2, 3, low=0.1)),
    "abs": (np.abs, real(3)),
    "sign": (np.sign, np.array([-2.0, 0.0, 3.0], np.float32)),
    "rcp": (lambda x: 1 / x, real(2, 3, low=0.2)),
    "neg": (np.negative, real(2, 2)),
    "floor": (np.floor, real(4, 4)),
    "ceil": (np.ceil, real(4, 4)),
    "round": (away, TIES),
    "sqr": (np.square, real(5)),
    "sqrt": (np.sqrt, real(5, low=0.0)),
    "rsqr": (lambda x: x**-2.0, real(5, low=0.3)),
    "rsqrt": (lambda x: x**-0.5, real(5, low=0.3)),
    "log2": (np.log2, real(5, low=0.3)),
    "relu": (lambda x: np.maximum(x, 0), real(2, 3, 4)),
    "sigmoid": (sigmoid, real(2, 3)),
    "sinh": (np.sinh, real(2, 3)),
    "cosh": (np.cosh, real(2, 3)),
    "tanh": (np.tanh, real(2, 3)),
    "softplus": (lambda x: np.logaddexp(x.astype(np.float64), 0), real(2, 3, low=-30, high=30)),
    "elu": (lambda x: np.where(x < 0, np.exp(x) - 1, x), real(2, 3)),
}
FINAL_UNARY = {
    "sin": (np.sin, real(3)),
    "cos": (np.cos, real(3)),
    "tan": (np.tan, real(3, low=-1, high=1)),
    "asin": (np.arcsin, real(3, low=-1, high=1)),
    "acos": (np.arccos, real(3, low=-1, high=1)),
    "atan": (np.arctan, real(3)),
    "asinh": (np.arcsinh, real(3)),
    "acosh": (np.arccosh, real(3, low=1.1)),
    "atanh": (np.arctanh, real(3, low=-0.9, high=0.9)),
    "copy": (np.copy, real(3)),
    "gelu": (lambda x: x * sigmoid(1.702 * x), real(2, 3)),
    "silu": (lambda x: x * sigmoid(x), real(2, 3)),
    "selu": (lambda x: 1.05070102 * np.where(x < 0, 1.67326319 * (np.exp(x) - 1), x), real(2, 3)),
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "lt": np.less,
    "gt": np.greater,
    "le": np.less_equal,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
SHAPES = [
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4, 2), (1, 3)),
    ((1, 3), (2, 3, 2)),
    ((2, 1, 4), (1, 3, 1)),
    ((3,), ()),
    ((), (2, 2)),
]


def unary_cases(table):
    return [Case(f"$y = {name}($x);", {"x": x}, {"y": f(x)}) for name, (f, x) in table.items()]


def binary_cases():
    cases = []
    for name, function in BINARY.items():
        for shapes in SHAPES:
            x, y = (real(*shape, low=0.5) for shape in shapes)
            if name in ("lt", "gt", "le", "ge", "eq", "ne"):
                x, y = np.round(x), np.round(y)
            cases.append(Case(f"$z = {name}($x, $y);", {"x": x, "y": y}, {"z": function(*left(x, y))}))
    return cases


def logical_cases():
    a, b = RNG.random((2, 3, 4)) < 0.5, RNG.random((1, 3)) < 0.5
    x, y = real(2, 3, 4), real(1, 3)
    chosen = np.where(a, *left(np.zeros((2, 3, 4), np.float32), y)) + np.where(a, x, np.float32(0))
    numbers = RNG.integers(-9, 9, (2, 3, 4)).astype(np.int32)
    return [
        Case("$z = and($a, $b);", {"a": a, "b": b}, {"z": np.logical_and(*left(a, b))}),
        Case("$z = or($b, $a);", {"a": a, "b": b}, {"z": np.logical_or(*left(a, b))}),
        Case("$z = not($a);", {"a": a}, {"z": ~a}),
        Case("$z = select($a, $x, $y);", {"a": a, "x": x, "y": y}, {"z": np.where(a, x, left(x, y)[1])}),
        Case("$z = select($a, $x, 2.5);", {"a": a, "x": x}, {"z": np.where(a, x, np.float32(2.5))}),
        Case("$z = select($a, $n, 7);", {"a": a, "n": numbers}, {"z": np.where(a, numbers, np.int32(7))}),
        Case("$z = select($b, $a, false);", {"a": a, "b": b}, {"z": np.logical_and(*left(b, a))}),
        Case("$z = select(true, $x, $y);", {"x": x, "y": y}, {"z": np.broadcast_to(x, chosen.shape)}),
    ]


def clamp_cases():
    x, a, b = real(2, 3, 4), real(1, 3, low=-1, high=0), real(2, low=0, high=1)
    arrays = left(x, a, b)
    return [
        Case("$y = clamp($x, $a, $b);", {"x": x, "a": a, "b": b}, {"y": np.clip(*arrays)}),
        Case("$y = clamp($x, -0.5, 0.75);", {"x": x}, {"y": np.clip(x, -0.5, 0.75)}),
        Case("$y = clamp($x, 1.0, -1.0);", {"x": x}, {"y": np.maximum(np.minimum(x, -1), 1)}),
        Case("$y = pow($x, 2.0);", {"x": x}, {"y": x**2}),
        Case("$y = pow(2.0, $x);", {"x": x}, {"y": 2.0**x}),
        Case("$y = rcp($x);", {"x": x}, {"y": 1 / x}),
        Case("$y = 2.0 / $x;", {"x": x}, {"y": 2 / x}),
    ]


def softmax(x, axes):
    e = np.exp(x - x.max(tuple(axes), keepdims=True).astype(np.float64)) if axes else np.ones(x.shape)
    return e / e.sum(tuple(axes), keepdims=True)


def activation_cases():
    x = real(2, 3, 4)
    cases = [
        Case(f"$y = softmax($x, axes = {axes});", {"x": x}, {"y": softmax(x, axes)})
        for axes in ([1], [0, 2], [2, 1], [])
    ]
    return [
        *cases,
        Case("$y = softmax($x);", {"x": x}, {"y": softmax(x, [1])}),
        Case("$y = softabs($x, epsilon = 0.1);", {"x": x}, {"y": np.sqrt(x**2 + 0.1)}),
        Case("$y = leaky_relu($x, alpha = 0.2);", {"x": x}, {"y": np.where(x < 0, 0.2 * x, x)}),
        Case("$y = leaky_relu($x, alpha = 2.0);", {"x": x}, {"y": np.where(x < 0, 2 * x, x)}),
    ]


def final_activation_cases():
    x = real(2, 3, 4)
    cases = []
    for shape in ((1, 3), (), (2, 3, 4), (1,)):
        alpha = real(*shape)
        cases.append(
            Case("$y = prelu($x, $a);", {"x": x, "a": alpha}, {"y": np.where(x < 0, left(x, alpha)[1] * x, x)})
        )
    return [
        *cases,
        Case("$y = elu($x, alpha = 0.3);", {"x": x}, {"y": np.where(x < 0, 0.3 * (np.exp(x) - 1), x)}),
        Case(
            "$y = selu($x, alpha = 1.5, lambda = 2.0);",
            {"x": x},
            {"y": 2 * np.where(x < 0, 1.5 * (np.exp(x) - 1), x)},
        ),
    ]


def folded(cases):
    """The same cases with all inputs, or only the last one, written into the document."""
    everything = [dataclasses.replace(case, known=frozenset(case.inputs)) for case in cases]
    last = [
        dataclasses.replace(case, known=frozenset(list(case.inputs)[-1:])) for case in cases if len(case.inputs) > 1
    ]
    return [case for case in everything + last if all(value.ndim for value in case.inputs.values())]


FINAL = [
    *unary_cases(UNARY),
    *unary_cases(FINAL_UNARY),
    *binary_cases(),
    *logical_cases(),
    *clamp_cases(),
    *activation_cases(),
    *final_activation_cases(),
]
PROVISIONAL = [
    case
    for case in [*unary_cases(UNARY), *binary_cases(), *clamp_cases(), *activation_cases()]
    if all(value.dtype == np.float32 for value in case.inputs.values()) and "/ $x" not in case.statements
]


def test_final_operations_agree_with_numpy(tmp_path):
    check(FINAL, tmp_path)


@with_share
def test_provisional_operations_agree_with_numpy(tmp_path, share):
    check(share(PROVISIONAL), tmp_path, "provisional")


@with_share
def test_operations_on_known_values_agree_with_numpy(tmp_path, share):
    check(share(folded(FINAL)), tmp_path)


@pytest.mark.parametrize(("dialect", "cases"), [("final", FINAL), ("provisional", PROVISIONAL)])
@with_share
@pytest.mark.sample(1)
def test_definitions_agree_with_the_direct_lowering(dialect, cases, share):
    # The definition of softplus overflows where the direct lowering does not.
    check_expanded([case for case in share(cases) if "softplus" not in case.statements], dialect)


def test_softplus_is_exact_where_its_definition_overflows(tmp_path):
    x = np.array([-200.0, -20.0, 0.0, 20.0, 200.0], np.float32)
    check([Case("$y = softplus($x);", {"x": x}, {"y": np.logaddexp(x.astype(np.float64), 0)}, 1e-7)], tmp_path)
