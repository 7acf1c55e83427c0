"""Kernels of all rules over awkward shapes, for three widths of vectors, against NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from pass_runs import lower
from relax_programs import Case, Graph, Value, build, check, target

from nnefc.backends import backend_of
from nnefc.ir.attributes import RULE
from nnefc.passes.graph.algorithms import choose_algorithms

TARGETS = ["llvm", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"]

PARTS = pytest.mark.parametrize(
    ("name", "part"),
    [
        *(pytest.param(name, slice(first, None, 9), id=name) for first, name in enumerate(TARGETS)),
        *(
            pytest.param(name, slice((first + later) % 9, None, 9), id=f"{name}, part {later}", marks=pytest.mark.slow)
            for first, name in enumerate(TARGETS)
            for later in range(1, 9)
        ),
    ],
)
"""A third of the cases, each at one of the widths; the slow ones are all others."""


def shuffled(cases: list[Case], part: slice) -> list[Case]:
    """A part of the cases in an order of chance: neighbours in the lists differ in one argument, the same each time."""
    order = np.random.default_rng(0).permutation(len(cases))
    return [cases[number] for number in order[part]]


def values(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(math.prod(shape)).standard_normal(shape) * scale).astype(np.float32)


def convolution(
    shape: tuple[int, ...], outputs: int, kernel: tuple[int, ...], groups: int = 1, **attributes: object
) -> Case:
    inputs = shape[1] // groups
    weights = values(outputs, inputs, *kernel, scale=1 / math.sqrt(inputs * math.prod(kernel)))

    def make(graph: Graph, x: Value) -> Value:
        return graph.convolve(x, weights, groups=groups, **attributes)

    return Case([values(*shape)], make, 1e-5, f"{shape} to {outputs} by {kernel}, {groups} groups, {attributes}")


CONVOLUTIONS = [
    *(convolution((1, c, 9, 11), 16, (3, 3), padding=1) for c in (1, 2, 3, 7, 8, 17, 33)),
    *(convolution((1, c, 24, 28), 32, (3, 3), padding=1) for c in (1, 3, 15, 40)),
    *(convolution((1, 16, 5, 7), o, (1, 1)) for o in (1, 2, 3, 10, 15, 17, 31)),
    convolution((2, 3, 23, 19), 24, (7, 7), strides=2, padding=3),
    convolution((1, 16, 13, 13), 16, (3, 3), strides=[3, 2], padding=[0, 1, 2, 0]),
    convolution((1, 16, 31, 29), 32, (5, 3), strides=[7, 11], padding=2),
    convolution((3, 24, 12, 10), 8, (3, 3), dilation=[2, 3], padding=3),
    convolution((1, 17, 1, 1), 19, (1, 1)),
    convolution((1, 16, 3, 3), 16, (3, 3)),
    convolution((5, 16, 1, 37), 16, (1, 5)),
    convolution((1, 16, 2, 2), 16, (3, 3), padding=[3, 0, 4, 2]),
    *(convolution((1, c, 8, 9), c, (3, 3), groups=c, padding=1) for c in (1, 3, 16, 17, 40)),
    convolution((2, 32, 9, 7), 32, (5, 3), groups=32, strides=2, dilation=[1, 2], padding=2),
    *(convolution((1, g * 3, 6, 5), g * 5, (3, 3), groups=g, padding=1) for g in (2, 3, 7)),
    convolution((1, 64, 6, 5), 32, (3, 3), groups=2, padding=1),
    convolution((1, 6, 6, 5), 24, (3, 3), groups=6),
    convolution((2, 5, 37), 11, (4,), strides=3, padding=[2, 1]),
    convolution((1, 1, 115), 33, (7,), strides=3),
    convolution((2, 16, 43), 48, (3,), padding=2, dilation=2),
    convolution((1, 16, 64), 16, (16,), groups=16),
    convolution((1, 3, 5, 6, 7), 17, (3, 2, 3), padding=1),
    convolution((1, 32, 7, 37), 48, (3, 3), strides=[1, 2], padding=1),
    convolution((2, 3, 31, 29), 32, (5, 5), padding=2),
    convolution((1, 32, 31, 53), 48, (1, 1)),
    convolution((1, 16, 3, 7, 37), 33, (2, 2, 2), padding=1),
    convolution((1, 16, 4, 4, 4), 16, (3, 3, 3), groups=16, strides=2, padding=1),
]


@PARTS
@pytest.mark.sample(1)
def test_convolutions(name: str, part: slice) -> None:
    check(shuffled(CONVOLUTIONS, part), name)


def pooling(shape: tuple[int, ...], kind: str, *window: object) -> Case:
    def make(graph: Graph, x: Value) -> Value:
        return getattr(graph, kind)(x, *window)

    return Case([values(*shape)], make, 1e-6, f"{kind} of {shape}: {window}")


def blocked(case: Case) -> Case:
    """The same after a convolution, in whose layout it then is."""
    (shape,) = (array.shape for array in case.inputs)
    weights = values(shape[1], shape[1], *(1,) * (len(shape) - 2), scale=shape[1] ** -0.5)
    return Case(
        case.inputs, lambda graph, x: case.build(graph, graph.convolve(x, weights)), 1e-5, f"{case.name}, blocked"
    )


WINDOWS = [
    # size, strides, padding, dilation, ceiling mode
    (2, 2, 0, 1, False),
    (3, 2, 1, 1, False),
    (3, 2, 1, 1, True),
    (3, 1, 1, 1, False),
    ([5, 2], [1, 3], [2, 0, 1, 1], 1, True),
    (1, 2, 0, 1, False),
    (3, 2, [1, 0, 0, 1], 1, False),
    ([13, 11], 1, 0, 1, False),
]
MAX_POOLS = [pooling((1, c, 13, 11), "max_pool", *window) for c, window in itertools.product((3, 17), WINDOWS)]
MAX_POOLS += [
    pooling((2, 16, 13, 11), "max_pool", [3, 2], 1, 1, [2, 3]),
    pooling((2, 5, 17), "max_pool", 4, 3, 2),
    pooling((1, 5, 6, 7, 4), "max_pool", 2, 2, [1, 0, 1, 0, 1, 0], 1, True),
]
AVERAGE_POOLS = [
    pooling((1, c, 13, 11), "average_pool", *window, padded)
    for c, window, padded in itertools.product((3, 17), WINDOWS, (False, True))
]
AVERAGE_POOLS += [
    pooling((2, 5, 17), "average_pool", 4, 3, 2, 1, True, True),
    pooling((1, 5, 6, 7, 4), "average_pool", 2, 2, 1, 1, True, False),
]


@PARTS
@pytest.mark.sample(1)
def test_poolings(name: str, part: slice) -> None:
    check(shuffled([*MAX_POOLS, *AVERAGE_POOLS, *map(blocked, MAX_POOLS), *map(blocked, AVERAGE_POOLS)], part), name)


@pytest.mark.parametrize("name", [TARGETS[1], *(pytest.param(TARGETS[n], marks=pytest.mark.slow) for n in (0, 2))])
def test_the_largest_of_infinities_is_infinite(name: str) -> None:
    low, high, mixed = (values(1, 16, 9, 8) for _ in range(3))
    low[:], high[0, :, 4, 4], mixed[0, ::2] = -np.inf, np.inf, -np.inf
    whole = np.full((1, 5, 7, 7), np.iinfo(np.int32).min, np.int32)
    cases = [Case([x], lambda graph, x: graph.max_pool(x, 3, 2, 1), 0.0) for x in (low, high, mixed, whole)]

    def logarithms_of_zeros(graph: Graph, x: Value) -> Value:
        y = graph.convolve(x, -np.eye(16, dtype=np.float32).reshape(16, 16, 1, 1))
        with np.errstate(divide="ignore"):
            return graph.max_pool(graph.unary("log", graph.unary("relu", y)), 3, 2, 1)

    check([*cases, Case([np.abs(values(1, 16, 9, 8))], logarithms_of_zeros)], name)


def product(shape: tuple[int, ...], columns: int) -> Case:
    weights = values(shape[-1], columns, scale=shape[-1] ** -0.5)
    return Case(
        [values(*shape)], lambda graph, x: graph.matmul(x, graph.constant(weights)), 1e-5, f"{shape} by {columns}"
    )


def product_of_two(left: tuple[int, ...], right: tuple[int, ...]) -> Case:
    operands = [values(*left), values(*right, scale=right[-2] ** -0.5)]
    return Case(operands, lambda graph, x, y: graph.matmul(x, y), 1e-5, f"{left} by {right}")


PRODUCTS = [
    *(product((m, 19), n) for m, n in itertools.product((1, 2, 7, 33), (1, 10, 16, 17, 1000))),
    *(product((*batch, 4, k), 24) for batch, k in itertools.product([(1,), (3,), (2, 5)], (1, 64))),
    *(product_of_two((m, 8), (8, n)) for m, n in [(1, 1), (5, 16), (3, 7), (16, 40)]),
    product_of_two((3, 4, 5), (3, 5, 6)),
    product_of_two((2, 3, 4, 16), (2, 3, 16, 16)),
    product_of_two((2, 1, 4, 16), (3, 16, 8)),
    product_of_two((4, 5), (2, 5, 6)),
]


@PARTS
@pytest.mark.sample(2)
def test_matrix_products(name: str, part: slice) -> None:
    check(shuffled(PRODUCTS, part), name)


REDUCED = [
    ((7,), (0,)),
    ((64,), (0,)),
    ((1, 1), (0, 1)),
    ((3, 5), (0,)),
    ((5, 48), (1,)),
    ((2, 17, 3, 3), (2, 3)),
    ((2, 16, 4, 4), (1,)),
    ((2, 16, 4, 4), (0, 2)),
    ((3, 48, 1, 1, 1), (0, 1, 2, 3, 4)),
    ((1, 128, 7, 7), (2, 3)),
    ((4, 3, 1031), (1,)),
    ((50, 640), (0,)),
    ((3, 2, 5, 2, 64), (1, 3)),
    ((1, 9, 1), (1,)),
]


def reduction(name: str, shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> Case:
    return Case(
        [values(*shape)],
        lambda graph, x: graph.reduce(name, x, axes, keep),
        1e-5,
        f"{name} of {shape} over {axes}, {keep}",
    )


@PARTS
@pytest.mark.sample(1)
def test_reductions_and_softmax(name: str, part: slice) -> None:
    cases = [
        reduction(kind, *position, keep)
        for kind, position, keep in itertools.product(("sum", "mean", "max", "min"), REDUCED, (True, False))
    ]
    cases += [
        Case([values(*shape)], lambda graph, x, axis=axis: graph.softmax(x, axis), 1e-5, f"softmax {shape} {axis}")
        for shape, axis in [((1, 1000), 1), ((7, 17), 0), ((33, 200), 0), ((3, 16, 5), 1), ((2, 3, 33), 2), ((1,), 0)]
    ]
    check(shuffled(cases, part), name)


def epilogue(name: str, function: Callable[[Graph, Value, Value], Value]) -> Case:
    """A function of a convolution's input and its result, of the same shape."""
    weights = values(16, 16, 3, 3, scale=1 / 12)
    return Case(
        [values(1, 16, 7, 5)], lambda graph, x: function(graph, x, graph.convolve(x, weights, padding=1)), 1e-5, name
    )


def excited(graph: Graph, x: Value, y: Value) -> Value:
    weights = values(16, 16, 1, 1, scale=0.25)
    return graph.binary("multiply", y, graph.unary("sigmoid", graph.convolve(graph.reduce("mean", y, [2, 3]), weights)))


def narrow_then_padded(graph: Graph, x: Value, y: Value) -> Value:
    """A result of one position, and zeros after it only."""
    inner = graph.unary("relu", graph.convolve(y, values(16, 16, 7, 5, scale=1 / 24)))
    return graph.convolve(inner, values(16, 16, 3, 3), padding=[0, 0, 2, 2])


def padded_for_the_next(graph: Graph, x: Value, y: Value) -> Value:
    return graph.convolve(graph.unary("relu", y), values(8, 16, 3, 3), padding=1)


def of_prime_width_then_padded(graph: Graph, x: Value, y: Value) -> Value:
    """Columns are added for the first convolution, cut off, and then zeros are put there for the second."""
    wide = graph.concatenate([graph.concatenate([x, y] * 4, 2)] * 7, 3)  # [1, 16, 56, 35]
    inner = graph.unary("relu", graph.convolve(wide, values(48, 16, 1, 5, scale=0.1)))
    return graph.binary(
        "add",
        graph.convolve(inner, values(16, 48, 3, 3, scale=0.05), padding=1),
        graph.convolve(inner, values(16, 48, 1, 1)),
    )


EPILOGUES = [
    epilogue("of prime width, then padded", of_prime_width_then_padded),
    epilogue("sum of columns", lambda graph, x, y: graph.unary("relu", graph.reduce("sum", y, [0, 1, 2], False))),
    epilogue("residual", lambda graph, x, y: graph.unary("relu", graph.binary("add", x, y))),
    epilogue("used twice", lambda graph, x, y: graph.binary("add", graph.unary("relu", y), graph.unary("tanh", y))),
    epilogue("squeeze and excite", excited),
    epilogue(
        "padded for the next",
        lambda graph, x, y: graph.convolve(graph.unary("relu", y), values(8, 16, 3, 3), padding=1),
    ),
    epilogue("one position, padded on one side", narrow_then_padded),
    epilogue("broadcast over rows", lambda graph, x, y: graph.binary("add", y, graph.constant(values(1, 1, 7, 1)))),
    epilogue("pooled", lambda graph, x, y: graph.max_pool(graph.unary("relu", y), 3, 2, 1)),
]


@PARTS
@pytest.mark.sample(1)
def test_steps_after_a_convolution(name: str, part: slice) -> None:
    check(shuffled(EPILOGUES, part), name)


def rules(case: Case, name: str = "llvm") -> set[str]:
    """Which rules took the kernels of a case."""
    seen: dict[str, object] = {}
    lower(build([case]).network, backend_of(target(name)), seen.__setitem__, memory_budget=math.inf)
    return {str(func.attrs[RULE]) for func in seen["schedule"].functions.values()}


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        (convolution((1, 16, 9, 9), 16, (5, 5)), "ContractionRule"),
        (convolution((1, 3, 9, 9), 17, (3, 3), strides=2), "ContractionRule"),
        (convolution((1, 24, 9, 9), 24, (3, 3), groups=24), "WindowsRule"),
        (blocked(pooling((1, 16, 8, 8), "max_pool", 2, 2)), "WindowsRule"),
        (blocked(pooling((1, 16, 8, 8), "average_pool", 2, 2)), "WindowsRule"),
        (product((4, 19), 17), "ContractionRule"),
        (convolution((1, 64, 56, 56), 64, (3, 3), padding=1), "TileTransformRule"),
    ],
    ids=["convolution", "first layer", "depthwise", "max pooling", "average pooling", "matrix product", "Winograd"],
)
def test_the_rule_made_for_a_kind_of_kernel_takes_it(case: Case, rule: str) -> None:
    assert rule in rules(case)


QUICK_TILES = [((2, 4), "llvm -mcpu=x86-64-v3"), ((4, 4), "llvm")]


@pytest.mark.parametrize(
    ("tile", "name"),
    [
        pytest.param(tile, name, marks=[pytest.mark.slow] * ((tile, name) not in QUICK_TILES))
        for tile in choose_algorithms.TILES
        for name in TARGETS
    ],
    ids=str,
)
@pytest.mark.sample(1)
def test_winograd_at_sizes_that_are_no_multiple_of_its_tiles(
    name: str, tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose_algorithms, "TILES", (tile,))
    monkeypatch.setattr(choose_algorithms, "winograd_saving", lambda *_: 1.0)  # however small
    cases = [
        convolution((n, i, h, w), o, (3, 3), padding=p)
        for n, i, h, w, o, p in [(1, 19, 13, 14, 33, 1), (2, 16, 7, 8, 17, [0, 1, 2, 0]), (1, 33, 4, 19, 8, 0)]
    ]
    check(cases, name)


TRANSPOSITIONS = [
    ((64, 80), (1, 0)),
    ((7, 48), (1, 0)),
    ((37, 41), (1, 0)),
    ((2, 16, 30, 28), (0, 2, 3, 1)),
    ((3, 5, 32, 17), (3, 1, 0, 2)),
    ((4, 1, 24, 8), (2, 3, 1, 0)),
]


@pytest.mark.parametrize("name", [TARGETS[1], *(pytest.param(TARGETS[n], marks=pytest.mark.slow) for n in (0, 2))])
def test_transpositions(name: str) -> None:
    check(
        [
            Case([values(*shape)], lambda graph, x, axes=axes: graph.transpose(x, axes), 0.0, f"{shape} as {axes}")
            for shape, axes in TRANSPOSITIONS
        ],
        name,
    )


def local_response(shape: tuple[int, ...], *parameters: float) -> Case:
    def make(graph: Graph, x: Value) -> Value:
        return graph.local_response(x, *parameters)

    return Case([values(*shape)], make, 1e-5, f"local response of {shape}: {parameters}")


LOCAL_RESPONSES = [
    # before, after, alpha, bias, beta
    local_response((1, 16, 7, 5), 2, 2, 0.5, 1.0, 0.75),
    local_response((2, 48, 3, 4), 1, 2, 2.0, 2.0, 0.5),
    local_response((1, 21, 6, 5), 3, 0, 1.5, 0.5, 1.0),
    local_response((1, 37, 9), 0, 8, 0.7, 1.0, 0.6),
    local_response((1, 32, 2, 3, 4), 9, 9, 1.0, 1.0, 0.75),
    local_response((1, 3, 5, 5), 4, 4, 1.0, 3.0, 0.75),
]


@PARTS
@pytest.mark.sample(1)
def test_local_response_normalizations(name: str, part: slice) -> None:
    check(shuffled([*LOCAL_RESPONSES, *map(blocked, LOCAL_RESPONSES)], part), name)
