"""Reals beyond integer types, NaN, and tensors without elements give what LiteRT gives; what it refuses is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_files import Graph, model_file, reference
from tflite_models import OUT, QO, C, Case, F, Q, T, family_model

import nnefc
from nnefc.support.diagnostics import CompileError

pytest.importorskip("ai_edge_litert")


def _results(graph: Graph, values: list[Any], path: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What nnefc and LiteRT give."""
    content = model_file(graph)
    path.write_bytes(content)
    names = [graph.tensors[index]["name"] for index in graph.inputs]
    found = nnefc.compile(path).run(dict(zip(names, values, strict=True)))
    return list(found.values()), reference(content, values)[0]


def test_casts_of_reals_saturate(tmp_path: Path) -> None:
    ends = [2.0**k for k in (7, 8, 15, 16, 31, 32, 63, 64)]
    x = np.array([*ends, *(-end for end in ends), 1e30, -1e30, -1.9, 1.9, np.inf, -np.inf, np.nan], np.float32)
    types = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool")
    graph = Graph()
    given, known = graph.input(x.shape, "float32"), graph.tensor(x.shape, "float32", x)
    for source in (given, known):
        for dtype in types:
            graph.add("CAST", [source], [graph.output((), dtype)])
    for mine, other in zip(*_results(graph, [x], tmp_path / "model.tflite"), strict=True):
        np.testing.assert_array_equal(mine, other, str(other.dtype))


def test_tensors_without_elements(tmp_path: Path) -> None:
    empty = F((0, 5))
    cases = [
        *(Case(name, [empty], [OUT]) for name in ("HARD_SWISH", "RELU", "EXP", "LOG_SOFTMAX")),
        Case("SOFTMAX", [empty], [OUT], "SoftmaxOptions", {"beta": 1.0}),
        Case("ADD", [empty, F((1, 5))], [OUT], "AddOptions"),
        Case("CONCATENATION", [empty, F((2, 5))], [OUT], "ConcatenationOptions", {"axis": 0}),
        Case("SUM", [empty, C([0])], [OUT], "ReducerOptions"),
        Case("SHAPE", [empty], [T((), "int32")], "ShapeOptions", {"out_type": 2}),
        Case("LOGISTIC", [Q(0, 3)], [QO("int8", 1 / 256, -128)]),
        Case("DYNAMIC_UPDATE_SLICE", [empty, F((0, 3)), C([0, 0])], [OUT]),
    ]
    graph, values, _ = family_model(cases)
    for case, mine, other in zip(cases, *_results(graph, values, tmp_path / "model.tflite"), strict=True):
        assert mine.shape == other.shape, case.name
        np.testing.assert_allclose(mine, other, rtol=1e-6)


@pytest.mark.parametrize(
    "case",
    [
        Case("CONCATENATION", [F((2, 3))] * 2, [OUT], "ConcatenationOptions", {"fused_activation_function": 1}),
        Case("L2_NORMALIZATION", [F((2, 3))], [OUT], "L2NormOptions", {"fused_activation_function": 4}),
        Case("L2_NORMALIZATION", [Q(2, 3)], [QO(scale=0.01, zero=0)], "L2NormOptions"),
        Case("FULLY_CONNECTED", [F((2, 3)), C(np.ones((4, 3)), "float32")], [OUT], "FullyConnectedOptions",
             {"fused_activation_function": 4}),
    ],
    ids=lambda case: case.name,
)  # fmt: skip
def test_what_litert_refuses(case: Case, tmp_path: Path) -> None:
    graph, values, _ = family_model([case])
    with pytest.raises(RuntimeError):
        reference(model_file(graph), values)
    path = tmp_path / "model.tflite"
    path.write_bytes(model_file(graph))
    with pytest.raises(CompileError, match=r"activation|scale"):
        nnefc.compile(path)
