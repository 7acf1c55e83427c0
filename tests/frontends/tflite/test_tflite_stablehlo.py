"""Operators of StableHLO that take functions as subgraphs give what LiteRT gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_files import Graph, model_file, reference

import nnefc
from nnefc.support.diagnostics import CompileError

pytest.importorskip("ai_edge_litert")

RNG = np.random.default_rng(7)
FUNCTIONS = ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")


def written(folder: Path, content: bytes) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


def function(operator: str) -> Graph:
    """A function of two scalars; without an operator, the second one."""
    graph = Graph(operator or "second")
    x, y = graph.input(()), graph.input(())
    if operator:
        graph.add(operator, [x, y], [graph.output(())])
    else:
        graph.outputs.append(y)
    return graph


def check(path: Path, graph: Graph, *others: Graph, values: list[np.ndarray]) -> None:
    """Compares all outputs with LiteRT's."""
    content = model_file(graph, *others)
    path.write_bytes(content)
    names = [graph.tensors[index]["name"] for index in graph.inputs]
    found = nnefc.compile(path).run(dict(zip(names, values, strict=True)))
    (wanted,) = reference(content, values)
    for mine, other in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-6)


SQUARES = {
    "update_window_dims": [2, 3], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [1, 0],
    "index_vector_dim": 2,
}  # fmt: skip
PARTS = {
    "update_window_dims": [1, 2], "inserted_window_dims": [], "scatter_dims_to_operand_dims": [1],
    "index_vector_dim": 1,
}  # fmt: skip


@pytest.mark.parametrize("known", [False, True])
def test_scatters(known: bool, tmp_path: Path) -> None:
    """By each function, with indices that are known or not; those outside drop their updates."""
    graph, values = Graph(), []
    indices = RNG.integers(0, 3, (2, 3, 2)).astype(np.int32)
    for number in range(len(FUNCTIONS)):
        given = [RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 2), (2, 3, 2, 2))]
        x = graph.input((3, 4, 2))
        where = graph.tensor((2, 3, 2), "int32", indices) if known else graph.input((2, 3, 2), "int32")
        update = graph.input((2, 3, 2, 2))
        values += [given[0], *([] if known else [indices]), given[1]]
        graph.add("STABLEHLO_SCATTER", [x, where, update], [graph.output((3, 4, 2))], "StablehloScatterOptions",
                  update_computation_subgraph_index=number + 1, **SQUARES)  # fmt: skip
    check(tmp_path / "model.tflite", graph, *map(function, FUNCTIONS), values=values)


def test_windows_smaller_than_the_operand_replace_elements(tmp_path: Path) -> None:
    graph, indices = Graph(), np.array([[0], [4]], np.int32)
    operands = [graph.input((5, 7)), graph.tensor((2, 1), "int32", indices), graph.input((2, 3, 2))]
    graph.add("STABLEHLO_SCATTER", operands, [graph.output((5, 7))], "StablehloScatterOptions",
              update_computation_subgraph_index=1, **PARTS)  # fmt: skip
    x, update = RNG.standard_normal((5, 7)).astype(np.float32), RNG.standard_normal((2, 3, 2)).astype(np.float32)
    wanted = x.copy()
    for k, (first,) in enumerate(indices):
        wanted[:3, first : first + 2] = update[k]
    path = written(tmp_path, model_file(graph, function("")))
    np.testing.assert_array_equal(next(iter(nnefc.compile(path).run({"t0": x, "t2": update}).values())), wanted)


def test_windows_are_reduced_by_each_function(tmp_path: Path) -> None:
    graph, values = Graph(), []
    for number in range(len(FUNCTIONS)):
        x, first = graph.input((5, 7)), graph.tensor((), "float32", np.float32(0.5))
        values.append(RNG.standard_normal((5, 7)).astype(np.float32))
        graph.add("STABLEHLO_REDUCE_WINDOW", [x, first], [graph.output((6, 5))], "StablehloReduceWindowOptions",
                  window_dimensions=[2, 3], window_strides=[2, 1], base_dilations=[2, 1], window_dilations=[1, 2],
                  padding=[1, 3, 0, 2], body_subgraph_index=number + 1)  # fmt: skip
    check(tmp_path / "model.tflite", graph, *map(function, FUNCTIONS), values=values)


def test_a_function_that_is_no_reduction_is_refused(tmp_path: Path) -> None:
    graph = Graph()
    x, first = graph.input((5, 7)), graph.tensor((), "float32", np.float32(0))
    graph.add("STABLEHLO_REDUCE_WINDOW", [x, first], [graph.output((4, 6))], "StablehloReduceWindowOptions",
              window_dimensions=[2, 2], body_subgraph_index=1)  # fmt: skip
    with pytest.raises(CompileError, match="subgraph 1 is neither an update, a sum, a product"):
        nnefc.compile(written(tmp_path, model_file(graph, function("SUB"))))


def test_case_runs_the_branch_of_a_number(tmp_path: Path) -> None:
    """And the last one for numbers without a branch."""
    main = Graph()
    number, x = main.input((), "int32"), main.input((2, 3))
    fields = {"branch_subgraph_indices": [1, 2, 3]}
    main.add("STABLEHLO_CASE", [number, x], [main.output((2, 3))], "StablehloCaseOptions", **fields)
    branches = []
    for operator in ("ABS", "NEG", "EXP"):
        branch = Graph(operator)
        branch.add(operator, [branch.input((2, 3))], [branch.output((2, 3))])
        branches.append(branch)
    session = nnefc.compile(written(tmp_path, model_file(main, *branches))).load()
    value = RNG.standard_normal((2, 3)).astype(np.float32)
    for chosen, wanted in (
        (0, np.abs(value)),
        (1, -value),
        (2, np.exp(value)),
        (-1, np.exp(value)),
        (7, np.exp(value)),
    ):
        (found,) = session.run({"t0": np.array(chosen, np.int32), "t1": value}).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_cube_roots_and_shifts(tmp_path: Path) -> None:
    """LiteRT has no kernels for them."""
    graph = Graph()
    graph.add("STABLEHLO_CBRT", [graph.input((4,))], [graph.output((4,))])
    given = [graph.input((4,), "int8"), graph.input((4,), "int8")]
    graph.add("STABLEHLO_SHIFT_LEFT", given, [graph.output((4,), "int8")], "StablehloShiftLeftOptions")
    value = np.array([-27, 0, 0.125, 1e30], np.float32)
    numbers, counts = np.array([-7, 5, 100, -128], np.int8), np.array([0, 3, 1, 2], np.int8)
    library = nnefc.compile(written(tmp_path, model_file(graph)))
    root, shifted = library.run({"t0": value, "t2": numbers, "t3": counts}).values()
    np.testing.assert_allclose(root, np.cbrt(value), rtol=2e-6)
    np.testing.assert_array_equal(shifted, numbers << counts)
