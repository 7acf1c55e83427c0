"""Operators of StableHLO that LiteRT has no kernels for give what NumPy gives, by their specification."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_files import Graph, model_file

import nnefc
from nnefc.frontends.tflite import load
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(8)
X, Y = RNG.uniform(-3, 3, (2, 3)).astype(np.float32), RNG.uniform(0.5, 2, (2, 3)).astype(np.float32)
M, N = RNG.integers(-9, 9, (2, 3)).astype(np.int32), np.array([[2, -3, 5], [-7, 1, 4]], np.int32)
IMAGE, FILTER = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 6, 4), (3, 2, 2, 6)))


class Builder:
    """Adds operators, each with a result of its own, to one graph."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.wanted: list[np.ndarray] = []

    def input(self, value: np.ndarray) -> int:
        return self.graph.input(value.shape, str(value.dtype))

    def add(self, name: str, inputs: list[int], shape: tuple[int, ...], dtype: str = "float32", **fields: Any) -> int:
        made = self.graph.tensor(shape, dtype)
        options = "".join(part.capitalize() for part in name.split("_")) + "Options" if fields else ""
        self.graph.add(f"STABLEHLO_{name}", inputs, [made], f"Stablehlo{options}" if fields else "", **fields)
        return made

    def number(self, value: Any, dtype: str = "int32") -> int:
        array = np.array(value, dtype)
        return self.graph.tensor(array.shape, dtype, array)

    def sum(self, parts: list[int], shape: tuple[int, ...] = (2, 3), dtype: str = "float32") -> int:
        made = parts[0]
        for part in parts[1:]:
            made = self.add("ADD", [made, part], shape, dtype)
        return made

    def output(self, index: int, wanted: np.ndarray) -> None:
        self.graph.outputs.append(index)
        self.wanted.append(wanted)


def add_elementwise(b: Builder, x: int, y: int, i: int, j: int) -> None:
    """Sums of functions, which are one kernel each."""
    unary = {
        "ABS": abs, "COSINE": np.cos, "EXPONENTIAL": np.exp, "FLOOR": np.floor, "LOG": np.log, "TANH": np.tanh,
        "LOGISTIC": lambda v: 1 / (1 + np.exp(-v)), "NEGATE": np.negative, "RSQRT": lambda v: v**-0.5,
    }  # fmt: skip
    b.output(b.sum([b.add(name, [y], (2, 3)) for name in unary]), sum(f(Y) for f in unary.values()))
    binary = {"DIVIDE": np.divide, "SUBTRACT": np.subtract, "REMAINDER": np.fmod}
    parts = [b.add(name, [x, y], (2, 3)) for name in binary] + [b.add("POWER", [y, x], (2, 3))]
    b.output(b.sum(parts), sum(f(X, Y) for f in binary.values()) + Y**X)
    whole = {"DIVIDE": lambda a, c: np.trunc(a / c), "REMAINDER": np.fmod, "AND": np.bitwise_and, "OR": np.bitwise_or}
    parts = [b.add(name, [i, j], (2, 3), "int32") for name in whole]
    b.output(b.sum(parts, dtype="int32"), sum(f(M, N) for f in whole.values()))
    less = b.add("COMPARE", [x, y], (2, 3), "bool", comparison_direction=5)
    more = b.add("COMPARE", [i, j], (2, 3), "bool", comparison_direction=2)
    both = b.add("AND", [less, more], (2, 3), "bool")
    ends = [b.number(end, "float32") for end in (-1, 1)]
    clamped = b.add("CLAMP", [ends[0], x, ends[1]], (2, 3))
    real = b.add("CONVERT", [i], (2, 3))
    b.output(b.add("SELECT", [both, clamped, real], (2, 3)), np.where((X < Y) & (M >= N), X.clip(-1, 1), M))


def add_movements(b: Builder, x: int, i: int) -> None:
    columns = b.add("TRANSPOSE", [x], (3, 2), permutation=[1, 0])
    flat = b.add("RESHAPE", [columns], (6,))
    part = b.add("SLICE", [flat], (3,), start_indices=[1], limit_indices=[6], strides=[2])
    joined = b.add("CONCATENATE", [part, flat], (9,), dimension=0)
    line = np.concatenate([X.T.reshape(-1)[1:6:2], X.T.reshape(-1)])
    spread = b.add("BROADCAST_IN_DIM", [joined], (2, 9, 2), broadcast_dimensions=[1])
    b.output(spread, np.broadcast_to(line[:, None], (2, 9, 2)))
    swapped = b.add("BROADCAST_IN_DIM", [x], (3, 4, 2), broadcast_dimensions=[2, 0])
    steps = b.add("IOTA", [], (3, 4, 2), iota_dimension=1)
    wanted = np.broadcast_to(X.T[:, None], (3, 4, 2)) + np.arange(4)[:, None]
    b.output(b.add("ADD", [swapped, steps], (3, 4, 2)), wanted)
    first = b.add("SLICE", [i], (1, 1), "int32", start_indices=[0, 0], limit_indices=[1, 1], strides=[1, 1])
    start, one = b.add("RESHAPE", [first], (), "int32"), b.number(1)
    chosen = b.add("DYNAMIC_SLICE", [x, start, one], (1, 2), slice_sizes=[1, 2])
    row = min(max(int(M[0, 0]), 0), 1)
    b.output(chosen, X[row : row + 1, 1:])
    update = b.number([[7.0, 8.0]], "float32")
    wanted = X.copy()
    wanted[row, 1:] = 7, 8
    b.output(b.add("DYNAMIC_UPDATE_SLICE", [x, update, start, one], (2, 3)), wanted)


def add_products(b: Builder, x: int, y: int) -> None:
    image, window = b.input(IMAGE), b.input(FILTER)
    dimensions = {"input_batch_dimension": 0, "input_feature_dimension": 3, "input_spatial_dimensions": [1, 2],
                  "output_batch_dimension": 0, "output_feature_dimension": 3, "output_spatial_dimensions": [1, 2],
                  "kernel_input_feature_dimension": 2, "kernel_output_feature_dimension": 3,
                  "kernel_spatial_dimensions": [0, 1]}  # fmt: skip
    made = b.add("CONVOLUTION", [image, window], (2, 2, 6, 6), window_strides=[2, 1], padding=[0, 0, 1, 0],
                 feature_group_count=2, batch_group_count=1, **dimensions)  # fmt: skip
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 0), (0, 0)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (1, 2))[:, ::2]
    groups = [np.einsum("nhwcij,ijco->nhwo", patches[..., 2 * g : 2 * g + 2, :, :], FILTER[..., 3 * g : 3 * g + 3])
              for g in (0, 1)]  # fmt: skip
    b.output(made, np.concatenate(groups, 3))
    sides = {"lhs_batching_dimensions": [0], "rhs_batching_dimensions": [0], "lhs_contracting_dimensions": [1, 3],
             "rhs_contracting_dimensions": [1, 2]}  # fmt: skip
    other = b.number(RNG.standard_normal((2, 5, 4)), "float32")
    value = np.frombuffer(b.graph.data[other], np.float32).reshape(2, 5, 4)
    dot = b.add("DOT_GENERAL", [image, other], (2, 6), **sides)
    b.output(dot, np.einsum("nhwc,nhc->nw", IMAGE, value))
    zero = b.number(0, "float32")
    reduced = b.add("REDUCE", [image, zero], (2, 6), dimensions=[1, 3], body_subgraph_index=1)
    b.output(reduced, IMAGE.max((1, 3)).clip(0))
    results = [b.graph.tensor((2, 3)) for _ in range(2)]
    fields = {"dimension": 1, "comparator_subgraph_index": 2}
    b.graph.add("STABLEHLO_SORT", [x, y], results, "StablehloSortOptions", **fields)
    order = np.argsort(-X, 1)
    for index, given in zip(results, (X, Y), strict=True):
        b.output(index, np.take_along_axis(given, order, 1))


def largest() -> Graph:
    graph = Graph("largest")
    graph.add("STABLEHLO_MAXIMUM", [graph.input(()), graph.input(())], [graph.output(())])
    return graph


def comparator(operand: int = 0) -> Graph:
    """Larger elements of an operand come first."""
    graph = Graph("comparator")
    given = [graph.input(()) for _ in range(4)]
    pair = given[2 * operand : 2 * operand + 2]
    graph.add("STABLEHLO_COMPARE", pair, [graph.output((), "bool")], "StablehloCompareOptions", comparison_direction=3)
    return graph


def test_operators_follow_their_specification(tmp_path: Path) -> None:
    b = Builder()
    x, y, i, j = map(b.input, (X, Y, M, N))
    add_elementwise(b, x, y, i, j)
    add_movements(b, x, i)
    add_products(b, x, y)
    path = tmp_path / "model.tflite"
    path.write_bytes(model_file(b.graph, largest(), comparator()))
    names = [b.graph.tensors[index]["name"] for index in b.graph.inputs]
    found = nnefc.compile(path).run(dict(zip(names, (X, Y, M, N, IMAGE, FILTER), strict=True)))
    for (name, mine), wanted in zip(found.items(), b.wanted, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=2e-5, err_msg=name)


def test_a_sort_by_another_tensor_is_refused(tmp_path: Path) -> None:
    graph = Graph()
    given, results = [[make((2, 3)) for _ in range(2)] for make in (graph.input, graph.output)]
    graph.add("STABLEHLO_SORT", given, results, "StablehloSortOptions", dimension=1, comparator_subgraph_index=1)
    path = tmp_path / "model.tflite"
    path.write_bytes(model_file(graph, comparator(1)))
    with pytest.raises(CompileError, match="does not order by the first tensor"):
        load(path)
