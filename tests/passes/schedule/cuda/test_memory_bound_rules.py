"""Schedules for CUDA of kernels that move memory: run in the emulator, against NumPy; what they need of a device."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from emulate import device_code
from memory_bound_cases import TARGET, Case, case, check, kernels_of, real, rules_of
from tvm import te, tirx, topi

from nnefc.passes.legalize.lower_row_reductions import _REDUCERS, reduce_row_wise
from nnefc.passes.schedule.gpu.element_wise.element_wise import ElementWiseRule
from nnefc.passes.schedule.gpu.reductions import reduction
from nnefc.targets.codegen.cuda.compiler import compile_image
from nnefc.targets.machine.gpu.description import Gpu

DTYPES = ["float32", "float16", "float64", "int64", "int32", "int8", "uint8", "bool"]
SHAPES = [(), (1,), (7,), (1, 1, 1), (3, 1, 5), (2, 3, 4, 5), (13, 17), (2, 33, 32), (1, 4099)]


def scaled(x: te.Tensor) -> te.Tensor:
    return topi.add(topi.multiply(x, tirx.const(3, x.dtype)), tirx.const(1, x.dtype))


def long_chain(x: te.Tensor) -> te.Tensor:
    """x * 1.5^3 + 4.75, in steps that are worth more together than a thread computes twice; then its tanh."""
    for _ in range(3):
        x = topi.add(topi.multiply(x, tirx.const(1.5, "float32")), tirx.const(1, "float32"))
    for _ in range(40):
        x = topi.negative(topi.negative(x))
    return topi.tanh(x)


ELEMENT_WISE = [
    *(case("scaled", scaled, lambda x: x * x.dtype.type(3) + x.dtype.type(1), real(*shape)) for shape in SHAPES),
    *(case("copy", topi.identity, lambda x: x, real(4, 6, 16, dtype=dtype)) for dtype in DTYPES),
    *(case("cast", lambda x: topi.cast(x, "float32"), lambda x: x, real(5, 48, dtype=dtype)) for dtype in DTYPES),
    case("not", topi.logical_not, np.logical_not, real(3, 32, dtype="bool")),
    case("less", topi.less, np.less, real(3, 32), real(32)),
    *(
        case("sum", topi.add, np.add, real(*left), real(*right))
        for left, right in [
            ((2, 3, 4, 16), (3, 1, 1)),
            ((2, 3, 4, 16), (16,)),
            ((2, 3, 4, 16), (4, 1)),
            ((5, 1, 7), (3, 1)),
            ((), (2, 4)),
            ((64,), (64,)),
            ((2, 6, 7, 7), (2, 6, 1, 1)),
            ((2, 8, 6, 6), (1, 8, 1, 1)),
        ]
    ),
    case(
        "three of them used twice",
        lambda x: topi.multiply(topi.tanh(x), topi.sigmoid(topi.tanh(x))),
        lambda x: np.tanh(x) / (1 + np.exp(-np.tanh(x))),
        real(3, 40),
    ),
    *(
        case("a chain that is too long for one step", long_chain, lambda x: np.tanh(x * 1.5**3 + 4.75), real(*shape))
        for shape in [(), (5, 7), (64, 4096)]
    ),
]


def slices(x: te.Tensor) -> te.Tensor:
    return topi.strided_slice(x, [1, 10], [5, 0], [2, -3], [0, 1])


GATHERED = [
    *(
        case(
            f"concatenation along {axis}",
            lambda *parts, axis=axis: topi.concatenate(parts, axis),
            lambda *parts, axis=axis: np.concatenate(parts, axis),
            *(real(*shape) for shape in shapes),
        )
        for axis, shapes in [
            (0, [(2, 8), (3, 8), (1, 8)]),
            (1, [(2, 3), (2, 1), (2, 12)]),
            (1, [(2, 4, 8), (2, 4, 8)]),
            (0, [(1,), (5,)]),
        ]
    ),
    case(
        "padding",
        lambda x: topi.nn.pad(x, [0, 1, 2], [1, 0, 3], 7.0),
        lambda x: np.pad(x, [(0, 1), (1, 0), (2, 3)], constant_values=7),
        real(2, 3, 5),
    ),
    case("slices", slices, lambda x: x[1:5:2, 10:0:-3], real(6, 11)),
    case("flip", lambda x: topi.flip(x, 1), lambda x: x[:, ::-1], real(3, 16)),
    case("repetition", lambda x: topi.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1), real(3, 8)),
    case("tiles", lambda x: topi.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3)), real(3, 8)),
    *(
        case(
            f"lines along {axis}",
            lambda x, i, axis=axis: topi.take(x, i, axis, mode="fast"),
            lambda x, i, axis=axis: np.take(x, i, axis),
            real(6, 32),
            np.array([[5, 0], [3, 3]], np.int64),
        )
        for axis in (0, 1)
    ),
    case(
        "nearest neighbours",
        lambda x: topi.image.resize2d(x, [0.0] * 4, [14, 9], "NCHW", "nearest_neighbor", "asymmetric", "floor"),
        lambda x: x[:, :, np.arange(14) // 2][:, :, :, np.arange(9) // 3],
        real(1, 2, 7, 3),
    ),
    case("reshape", lambda x: topi.reshape(x, (6, 20)), lambda x: x.reshape(6, 20), real(2, 3, 4, 5)),
    case("parts", lambda x: list(topi.split(x, (2, 5), 1)), lambda x: np.split(x, [2, 5], 1), real(3, 8)),
]


def test_element_wise_steps(tmp_path: Path) -> None:
    check(ELEMENT_WISE, tmp_path, taken="ElementWiseRule")


def test_gathers(tmp_path: Path) -> None:
    check(GATHERED, tmp_path, taken="ElementWiseRule")


def test_full_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors as if they were large: threads take several elements where these lie side by side."""
    monkeypatch.setattr(Gpu, "busy_threads", 1)
    code = check([*ELEMENT_WISE, *GATHERED], tmp_path, [ElementWiseRule()])
    assert ("*(float4*)" in code.source and "*(uint4*)" in code.source) or "half" in code.source


LARGE = real(96, 30, 64)


@pytest.mark.parametrize(
    ("made", "at_once"),
    [
        (case("relu", topi.nn.relu, lambda x: x, LARGE), 4),
        (case("to float16", lambda x: topi.cast(x, "float16"), lambda x: x, LARGE), 4),
        (case("to doubles", lambda x: topi.cast(x, "float64"), lambda x: x, LARGE), 2),
        (case("sum", topi.add, np.add, LARGE, real(96, 1, 1)), 4),
        (case("flat", topi.add, np.add, real(1021, 2, 3, 7), real(1021, 2, 3, 7)), 2),
        (case("flip", lambda x: topi.flip(x, 2), lambda x: x, LARGE), 1),
        (case("odd", topi.nn.relu, lambda x: x, real(331, 333)), 1),
        (case("small", topi.nn.relu, lambda x: x, real(64, 64)), 1),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else None,
)
def test_a_thread_takes_what_lies_side_by_side(made: Case, at_once: int) -> None:
    (launch,) = device_code(kernels_of([made]), TARGET).launches
    assert launch.threads // launch.block[0] == -(-made.expected[0].size // at_once // launch.block[0])


REDUCED = [
    ((7,), 0),
    ((40,), 0),
    ((1, 1), (0, 1)),
    ((3, 5), 0),
    ((5, 48), 1),
    ((300, 33), 1),
    ((2, 17, 3, 3), (2, 3)),
    ((2, 16, 4, 4), 1),
    ((2, 16, 4, 4), (0, 2)),
    ((4, 3, 131), 1),
    ((70, 8), 0),
    ((131, 7), 0),
    ((64, 96), 0),
    ((3, 2, 5, 2, 64), (1, 3)),
    ((1, 9, 1), 1),
    ((3, 4099), 1),
    ((1000, 3), (0, 1)),
]


def mean(x: te.Tensor, axis: int | tuple[int, ...]) -> te.Tensor:
    total = topi.sum(x, axis)
    count = math.prod(map(int, x.shape)) // max(1, math.prod(map(int, total.shape)))
    return topi.nn.relu(topi.multiply(total, tirx.const(1 / count, x.dtype)))


def largest(x: te.Tensor, axis: int) -> te.Tensor:
    """A maximum that starts from minus infinity and keeps NaN: none that TVM knows."""

    def better(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        return tirx.Select(tirx.any(a > b, tirx.isnan(a)), a, b)

    reducer = te.comm_reducer(better, lambda dtype: tirx.const(-math.inf, dtype), name="largest")
    k = te.reduce_axis((0, x.shape[axis]), "k")
    tail = [size for a, size in enumerate(x.shape) if a != axis]
    return te.compute(tail, lambda *i: reducer(x(*i[:axis], k, *i[axis:]), axis=k), name="largest")


def index_of_largest(x: te.Tensor, axis: int) -> te.Tensor:
    """The first position of NaN, or of the largest; the largest itself is unused."""

    def better(a: list[tirx.Expr], b: list[tirx.Expr]) -> tuple[tirx.Expr, tirx.Expr]:
        nan = tirx.isnan(a[1])
        same = tirx.any(a[1] == b[1], tirx.all(nan, tirx.isnan(b[1])))
        stays = tirx.any(a[1] > b[1], tirx.all(nan, tirx.Not(tirx.isnan(b[1]))), tirx.all(same, a[0] < b[0]))
        return tirx.Select(stays, a[0], b[0]), tirx.Select(stays, a[1], b[1])

    def first(position: str, value: str) -> tuple[tirx.Expr, tirx.Expr]:
        return tirx.const(1 << 62, position), tirx.const(-math.inf, value)

    reducer = te.comm_reducer(better, first, name="slot")
    k = te.reduce_axis((0, x.shape[axis]), "k")
    tail = [size for a, size in enumerate(x.shape) if a != axis]
    return te.compute(tail, lambda *i: reducer((k.var, x(*i[:axis], k, *i[axis:])), axis=k), name="slot")[0]


def with_nan(*shape: int) -> np.ndarray:
    array = real(*shape)
    array.reshape(-1)[:: max(3, array.size // 5)] = np.nan
    return array


REDUCTIONS = [
    *(
        case(
            f"{name} over {axis}", lambda x, f=f, axis=axis: f(x, axis), lambda x, g=g, axis=axis: g(x, axis), real(*s)
        )
        for name, f, g in [
            ("sum", topi.sum, lambda x, axis: x.astype(np.float64).sum(axis)),
            ("largest", topi.max, np.max),
            ("mean", mean, lambda x, axis: np.maximum(x.astype(np.float64).mean(axis), 0)),
        ]
        for s, axis in (REDUCED if f is topi.sum else REDUCED[1::4])
    ),
    *(
        case(f"sum over {axis}", lambda x, a=axis: topi.sum(x, a), lambda x, a=axis: x.sum(a), real(*s, dtype=dtype))
        for dtype, (s, axis) in itertools.product(["float64", "int64", "int32"], [((5, 70), 1), ((70, 8), 0)])
    ),
    case("sum", lambda x: topi.sum(x, 1), lambda x: x.sum(1, dtype=np.float64), real(4, 40, dtype="float16")),
    case("all", lambda x: topi.all(x, 1), lambda x: x.all(1), real(9, 40, dtype="bool") | True),
    case("any", lambda x: topi.any(x, 0), lambda x: x.any(0), real(40, 9, dtype="bool")),
    *(
        case(f"slot over {axis}", lambda x, f=f, a=axis: f(x, a), lambda x, g=g, a=axis: g(x, a), real(*s))
        for f, g in [(topi.argmax, np.argmax), (topi.argmin, np.argmin)]
        for s, axis in [((6, 200), 1), ((90, 8), 0), ((3, 5, 7), 1)]
    ),
    *(
        case(f"largest over {axis}", lambda x, a=axis: largest(x, a), lambda x, a=axis: x.max(a), x)
        for x, axis in [(with_nan(5, 100), 1), (with_nan(70, 8), 0), (with_nan(6, 4), 1), (real(5, 100), 1)]
    ),
    *(
        case(f"first largest over {axis}", lambda x, a=axis: index_of_largest(x, a), lambda x, a=axis: x.argmax(a), x)
        for x, axis in [(with_nan(5, 100), 1), (real(70, 8), 0), (with_nan(6, 4), 1), (np.ones((3, 65), np.float32), 1)]
    ),
    case(
        "sum of what is computed on the way",
        lambda x: topi.sum(topi.exp(x), 1),
        lambda x: np.exp(x.astype(np.float64)).sum(1),
        real(6, 300),
    ),
]


def test_reductions(tmp_path: Path) -> None:
    check(REDUCTIONS, tmp_path, taken="ReductionRule")


IN_PARTS = [
    case("sum", lambda x: topi.sum(x, 1), lambda x: x.sum(1, dtype=np.float64), real(2, 3000)),
    case("mean", lambda x: mean(x, 1), lambda x: np.maximum(x.mean(1, dtype=np.float64), 0), real(2, 3000)),
    case("sum", topi.sum, lambda x: x.sum(dtype=np.float64), real(7, 11, 31)),
    case("mean", lambda x: mean(x, (0, 1)), lambda x: np.maximum(x.mean(dtype=np.float64), 0), real(96, 31)),
    case("columns", lambda x: topi.sum(x, 0), lambda x: x.sum(0, dtype=np.float64), real(1024, 8)),
    case("columns", lambda x: topi.max(x, 0), lambda x: x.max(0), real(1008, 16)),
    case("slots", lambda x: topi.argmax(x, 1), lambda x: x.argmax(1), real(3, 2048)),
    case("largest", lambda x: largest(x, 1), lambda x: x.max(1), with_nan(3, 2048)),
]


def test_few_results_of_many_elements_take_two_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_LONG", 1000)
    monkeypatch.setattr(reduction, "_PART", 100)
    code = check(IN_PARTS, tmp_path)
    counts = {c.name: len(function.launches) for c, function in zip(IN_PARTS, code.functions, strict=True)}
    assert {name for name, count in counts.items() if count != 2} <= {"mean of float32[96, 31]"}


def layer_norm(x: te.Tensor) -> te.Tensor:
    length = int(x.shape[-1])

    def average(y: te.Tensor) -> te.Tensor:
        return topi.multiply(reduce_row_wise(y, 1, _REDUCERS["sum"], 1), 1 / length)

    centred = topi.subtract(x, average(x))
    return topi.multiply(centred, topi.rsqrt(topi.add(average(topi.multiply(centred, centred)), 1e-5)))


def normalized(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


ROWS = [
    *(
        case(
            f"softmax along {a}", lambda x, a=a: topi.nn.softmax(x, a), lambda x, a=a: softmax(x, a), real(*s, dtype=d)
        )
        for s, a, d in [
            ((7, 64), 1, "float32"),
            ((8, 1000), 1, "float32"),
            ((2, 3, 37), 2, "float32"),
            ((2, 2051), 1, "float32"),
            ((600, 33), 1, "float32"),
            ((1, 12000), 1, "float32"),
            ((2, 5, 9, 8), 1, "float32"),
            ((128, 5), 1, "float32"),
            ((64,), 0, "float32"),
            ((7, 17), 0, "float32"),
            ((8, 100), 1, "float16"),
            ((8, 100), 1, "float64"),
        ]
    ),
    case("log-softmax", topi.nn.log_softmax, lambda x: np.log(softmax(x, 1)), real(9, 130)),
    *(
        case("layer norm", layer_norm, normalized, real(*s))
        for s in [(7, 64), (3, 1, 768), (1, 37), (70, 7), (2, 5000)]
    ),
]


def test_rows(tmp_path: Path) -> None:
    code = check(ROWS, tmp_path, taken="RowReductionRule")
    assert all(len(function.launches) == 1 for function in code.functions)


def test_few_rows_that_are_too_long_for_a_block_are_shared_by_many(tmp_path: Path) -> None:
    few = [case("softmax", lambda x: topi.nn.softmax(x, 1), lambda x: softmax(x, 1), real(1, 70000))]
    assert rules_of(few) == ["ReductionRule"]
    code = check(few, tmp_path)
    assert max(launch.grid[0] for launch in code.launches) > 1


TRANSPOSITIONS = [
    *(
        case(f"{axes}", lambda x, a=axes: topi.transpose(x, a), lambda x, a=axes: x.transpose(a), real(*s, dtype=dtype))
        for s, axes, dtype in [
            ((64, 80), (1, 0), "float32"),
            ((37, 41), (1, 0), "bool"),
            ((37, 41), (1, 0), "int64"),
            ((13, 100), (1, 0), "float16"),
            ((2, 16, 15, 14), (0, 2, 3, 1), "float32"),
            ((2, 15, 14, 16), (0, 3, 1, 2), "float32"),
            ((3, 5, 32, 17), (3, 1, 0, 2), "float64"),
            ((3, 13, 17), (0, 2, 1), "uint8"),
        ]
    ),
    case(
        "within steps",
        lambda x, y: topi.nn.relu(topi.add(topi.transpose(x, (0, 2, 1)), y)),
        lambda x, y: np.maximum(x.transpose(0, 2, 1) + y, 0),
        real(2, 33, 40),
        real(2, 40, 33),
    ),
    case(
        "with a value for each line",
        lambda x, y: topi.multiply(topi.transpose(x, (1, 0)), y),
        lambda x, y: x.T * y,
        real(33, 40),
        real(33),
    ),
]


def test_transpositions(tmp_path: Path) -> None:
    check(TRANSPOSITIONS, tmp_path, taken="TranspositionRule")


@pytest.mark.parametrize("shape", [(64, 41, 43), (3, 200, 35)])
@pytest.mark.sample(1)
def test_rows_of_a_block_are_rows_of_one_matrix(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Else TVM keeps all rows of two matrices in shared memory."""
    rows = case("softmax", lambda x: topi.nn.softmax(x, 2), lambda x: softmax(x, 2), real(*shape))
    code = check([rows], tmp_path)
    kept = [int(size) for size in re.findall(r"__shared__ .*\[(\d+)\];", code.source)]
    (launch,) = code.launches
    assert sum(kept) == launch.block[1] * shape[-1]


NOTHING = np.zeros((0, 64), np.float32)
EMPTY = [
    case("relu", topi.nn.relu, lambda x: x, NOTHING),
    case("sum", lambda x: topi.sum(x, 0), lambda x: x.sum(0), NOTHING),
    case("sum", lambda x: topi.sum(x, 1), lambda x: x.sum(1), NOTHING),
    case("softmax", lambda x: topi.nn.softmax(x, 1), lambda x: x, NOTHING),
    case("softmax", lambda x: topi.nn.softmax(x, 0), lambda x: x, NOTHING),
    case("transposed", lambda x: topi.transpose(x, (1, 0)), np.transpose, NOTHING),
    case("joined", lambda x, y: topi.concatenate((x, y), 0), lambda x, y: y, NOTHING, real(3, 64)),
]


def test_empty_tensors(tmp_path: Path) -> None:
    code = check(EMPTY, tmp_path)
    assert [len(function.launches) for function in code.functions] == [0, 1, 0, 0, 2, 0, 1]


def test_what_is_padded_is_not_read_where_it_is_not(tmp_path: Path) -> None:
    padded = case(
        "padded, then transposed",
        lambda x: topi.transpose(topi.nn.pad(x, [1, 2], [3, 1], 0.5), (1, 0)),
        lambda x: np.pad(x, [(1, 3), (2, 1)], constant_values=0.5).T,
        real(30, 40),
    )
    check([padded], tmp_path)


def test_narrow_matrices_are_transposed_without_tiles() -> None:
    narrow = case("transposed", lambda x: topi.transpose(x, (1, 0)), np.transpose, real(3, 1000))
    assert rules_of([narrow]) == ["ElementWiseRule"]


def random_cases(count: int) -> list[Case]:
    rng = np.random.default_rng(7)
    cases = []
    for _ in range(count):
        shape = tuple(int(e) for e in rng.choice([1, 2, 3, 5, 8, 13, 16, 31, 32, 33], rng.integers(1, 5)))
        while math.prod(shape) > 20000:
            shape = shape[1:]
        axes = tuple(int(a) for a in rng.permutation(len(shape)))
        some = tuple(sorted(axes[: rng.integers(1, len(shape) + 1)]))
        ones = tuple(1 if rng.random() < 0.5 else size for size in shape)
        cases += [
            case(f"{axes}", lambda x, a=axes: topi.transpose(x, a), lambda x, a=axes: x.transpose(a), real(*shape)),
            case(
                f"sum over {some}",
                lambda x, a=some: topi.sum(x, a),
                lambda x, a=some: x.sum(a, np.float64),
                real(*shape),
            ),
            case(f"product, {axes}", topi.multiply, np.multiply, real(*shape), real(*ones)),
        ]
    return cases


@pytest.mark.slow
def test_random_shapes(tmp_path: Path) -> None:
    check(random_cases(12), tmp_path)


@pytest.mark.slow
def test_kernels_need_few_registers_and_no_memory_of_their_own() -> None:
    """Each rule's kernels on two architectures; with more than 64 registers, half of a processor would stay idle."""
    chosen = [
        case("sum", lambda x, y: topi.nn.relu(topi.add(x, y)), np.add, LARGE, LARGE),
        case("float16", lambda x: topi.cast(x, "float16"), lambda x: x, LARGE),
        GATHERED[0],
        GATHERED[2],
        case("rows", lambda x: topi.sum(x, 1), lambda x: x.sum(1), real(300, 3000)),
        case("columns", lambda x: topi.sum(x, 0), lambda x: x.sum(0), real(3000, 64)),
        case("all", topi.sum, np.sum, real(300, 300)),
        case("each", lambda x: topi.sum(x, 1), lambda x: x.sum(1), real(3000, 9)),
        case("slots", lambda x: topi.argmax(x, 1), lambda x: x.argmax(1), real(300, 3000)),
        *ROWS[:7],
        *ROWS[-5:],
        *TRANSPOSITIONS[:6],
    ]
    image = compile_image(device_code(kernels_of(chosen), TARGET).source, [80, 90])
    print(*image.usage, sep="\n")
    assert {usage.architecture for usage in image.usage} == {80, 90}
    assert all(
        usage.spill_stores == usage.spill_loads == usage.stack_bytes == 0 and usage.registers <= 64
        for usage in image.usage
    ), image.usage
    assert all(usage.shared_bytes <= TARGET.shared_bytes for usage in image.usage)
