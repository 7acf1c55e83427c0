"""Scatter and ScatterElements in all their versions, to the letter of the standard."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnx_operator_cases import HOST, SAMPLE_AND_ALL, Case, check, compiled, model_of, sample

from nnefc.driver.compile import compile_network
from nnefc.frontends.onnx import load
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError

VERSIONS = [("Scatter", 9), ("ScatterElements", 11), ("ScatterElements", 13), ("ScatterElements", 16)]
TYPES = (
    "bool",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)


def scatter(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int = 0, reduction: str = "none"
) -> np.ndarray:
    """The loops of the standard's text, written down."""
    result = data.copy()
    combine = {
        "none": lambda _old, new: new,
        "add": lambda old, new: old + new,
        "mul": lambda old, new: old * new,
        "max": max,
        "min": min,
    }[reduction]
    with np.errstate(over="ignore"):
        for position in np.ndindex(indices.shape):
            target = list(position)
            target[axis] = int(indices[position])
            result[tuple(target)] = combine(result[tuple(target)], updates[position])
    return result


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return rng.integers(0, 50, shape).astype(dtype)


EXAMPLE_1 = (
    np.zeros((3, 3), np.float32),
    np.array([[1, 0, 2], [0, 2, 1]]),
    np.array([[1.0, 1.1, 1.2], [2.0, 2.1, 2.2]], np.float32),
)
EXAMPLE_2 = (
    np.array([[1.0, 2.0, 3.0, 4.0, 5.0]], np.float32),
    np.array([[1, 3]]),
    np.array([[1.1, 2.1]], np.float32),
)


@pytest.mark.parametrize(("op", "opset"), [*VERSIONS, ("ScatterElements", 18)])
@pytest.mark.sample(2)
def test_the_examples_of_the_standard_come_out_in_every_version(op: str, opset: int) -> None:
    cases = [Case(op, EXAMPLE_1), Case(op, EXAMPLE_2, {"axis": 1})]
    first, second = compiled(cases, opset)
    np.testing.assert_array_equal(first[0], np.array([[2.0, 1.1, 0.0], [1.0, 0.0, 2.2], [0.0, 2.1, 1.2]], np.float32))
    np.testing.assert_array_equal(second[0], np.array([[1.0, 1.1, 3.0, 2.1, 5.0]], np.float32))


@SAMPLE_AND_ALL
def test_all_types_axes_and_index_types_scatter(whole: bool) -> None:
    rng = np.random.default_rng(0)
    cases = []
    for dtype, index, axis in product(TYPES, (np.int32, np.int64), (0, -1, 1)):
        data, positions = values(rng, (4, 5, 3), dtype), (2, 4, 3) if axis != 1 else (3, 2, 2)
        size = data.shape[axis]
        # Distinct along the axis, so that the order does not matter; half of them negative.
        extents = [size if a == axis % 3 else positions[a] for a in range(3)]
        order = np.argsort(rng.random(extents), axis=axis)
        indices = np.take(order, np.arange(positions[axis]), axis)
        indices = np.where(rng.random(positions) < 0.5, indices, indices - size).astype(index)
        cases.append(Case("ScatterElements", [data, indices, values(rng, positions, dtype)], {"axis": axis}))
    cases = [cases[index] for index in sample(cases, whole)]
    check(cases, compiled(cases, 18), [[scatter(*case.inputs, **case.attributes)] for case in cases])


@SAMPLE_AND_ALL
def test_reductions_add_up_all_duplicates(whole: bool) -> None:
    rng = np.random.default_rng(1)
    cases = []
    for dtype, reduction in product(("float32", "float64", "int32", "int64", "uint8"), ("add", "mul", "max", "min")):
        data, indices = values(rng, (3, 6), dtype), rng.integers(-6, 6, (2, 9))
        attributes = {"axis": 1, "reduction": reduction}
        cases.append(Case("ScatterElements", [data, indices, values(rng, (2, 9), dtype)], attributes))
    cases = [cases[index] for index in sample(cases, whole)]
    check(cases, compiled(cases, 18), [[scatter(*case.inputs, **case.attributes)] for case in cases])


def test_of_duplicates_the_last_update_stays() -> None:
    case = Case(
        "ScatterElements", [np.zeros(4, np.float32), np.array([2, -2, 2, 0]), np.arange(1, 5, dtype=np.float32)]
    )
    np.testing.assert_array_equal(compiled([case], 18)[0][0], [4, 0, 3, 0])


def test_reductions_over_booleans_are_logic() -> None:
    data, indices = np.array([True, False, False, True]), np.array([0, 1, 2, 3])
    updates = np.array([False, True, False, True])
    cases = [Case("ScatterElements", [data, indices, updates], {"reduction": r}) for r in ("add", "mul", "max", "min")]
    found = [outputs[0] for outputs in compiled(cases, 18)]
    for result, wanted in zip(found, (data | updates, data & updates, data | updates, data & updates), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_constant_indices_scatter_like_computed_ones() -> None:
    rng = np.random.default_rng(2)
    data, indices, updates = rng.random((5, 4), np.float32), rng.integers(-4, 4, (5, 4)), rng.random((5, 4), np.float32)
    attributes = {"axis": 1, "reduction": "add"}
    fixed, free = (Case("ScatterElements", [data, indices, updates], attributes, frozenset(c)) for c in ({1}, ()))
    one, other = compiled([fixed, free], 18)
    np.testing.assert_array_equal(one[0], other[0])


def test_large_scatters_run_on_several_threads() -> None:
    rng = np.random.default_rng(3)
    data, indices = rng.random((64, 300), np.float32), rng.integers(-300, 300, (64, 300))
    case = Case("ScatterElements", [data, indices, rng.random((64, 300), np.float32)], {"axis": 1, "reduction": "max"})
    check([case], compiled([case], 18, threads=2), [[scatter(*case.inputs, **case.attributes)]])


def test_nothing_to_scatter_leaves_the_data() -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    empty = Case(
        "ScatterElements", [data, np.zeros((0, 3), np.int64), np.zeros((0, 3), np.float32)], {}, frozenset({1, 2})
    )
    np.testing.assert_array_equal(compiled([empty], 18)[0][0], data)


@pytest.mark.parametrize("index", [3, -4])
def test_constant_index_out_of_range_is_an_error_of_the_compiler(index: int) -> None:
    case = Case(
        "ScatterElements", [np.zeros(3, np.float32), np.array([0, index]), np.ones(2, np.float32)], {}, frozenset({1})
    )
    with pytest.raises(CompileError, match=rf"the index {index} is out of the range \[-3,2\]"):
        compiled([case], 18)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND", "Gather", "GatherElements", "GatherND"])
@pytest.mark.sample(2)
def test_computed_index_out_of_range_fails_the_run_and_no_later_one(op: str, tmp_path: Path) -> None:
    def feeds(index: int) -> dict[str, np.ndarray]:
        indices = np.array([[0], [index]]) if op.endswith("ND") else np.array([0, index])
        arrays = [np.arange(3, dtype=np.float32), indices, np.full(2, 7, np.float32)]
        return {f"x0_{i}": array for i, array in enumerate(arrays[: 3 if op.startswith("Scatter") else 2])}

    path = tmp_path / "model.onnx"
    path.write_bytes(model_of([Case(op, list(feeds(0).values()))], 18).SerializeToString())
    with compile_network(load(path), HOST).load(threads=1) as model:
        for index in (3, -4, 2**40):
            with pytest.raises(RunError, match=f"{op}: an index is out of range"):
                model.run(feeds(index))
        result = model.run(feeds(-1))["y0_0"]
    np.testing.assert_array_equal(result, [7, 1, 7] if op.startswith("Scatter") else [0, 2])


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([(3, 3), (2, 3), (2, 2)], {}, "must have one shape"),
        ([(3, 3), (2,), (2,)], {}, "rank"),
        ([(3, 3), (2, 4), (2, 4)], {}, "reach beyond"),
        ([(3, 3), (2, 3), (2, 3)], {"axis": 2}, "axis 2"),
        ([(3, 3), (2, 3), (2, 3)], {"axis": -3}, "axis -3"),
        ([(3, 3), (2, 3), (2, 3)], {"reduction": "mean"}, "reduction 'mean'"),
    ],
)
def test_what_does_not_fit_is_refused(
    inputs: list[tuple[int, ...]], attributes: dict[str, object], message: str
) -> None:
    data, indices, updates = (np.zeros(shape, kind) for shape, kind in zip(inputs, ("f4", "i8", "f4"), strict=True))
    with pytest.raises(CompileError, match=message):
        compiled([Case("ScatterElements", [data, indices, updates], attributes)], 18)
