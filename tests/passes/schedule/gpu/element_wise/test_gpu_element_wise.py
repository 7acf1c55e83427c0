"""Element-wise kernels on GPUs, gathers among them: results on the emulator, elements of a thread, registers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulate import device_code
from memory_bound_cases import TARGET, Case, case, check, check_resources, kernels_of, real, rules_of
from tvm import te, tirx, topi

from nnefc.passes.schedule.gpu.element_wise.element_wise import ElementWiseRule
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


def test_narrow_matrices_are_transposed_without_tiles() -> None:
    narrow = case("transposed", lambda x: topi.transpose(x, (1, 0)), np.transpose, real(3, 1000))
    assert rules_of([narrow]) == ["ElementWiseRule"]


@pytest.mark.slow
def test_kernels_need_few_registers_and_no_memory_of_their_own() -> None:
    added = case("sum", lambda x, y: topi.nn.relu(topi.add(x, y)), np.add, LARGE, LARGE)
    to_half = case("float16", lambda x: topi.cast(x, "float16"), lambda x: x, LARGE)
    check_resources([added, to_half, GATHERED[0], GATHERED[2]])
