"""Recurrent layers give what LiteRT gives, and keep their states between runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_files import Graph, model_file, reference

import nnefc

pytest.importorskip("ai_edge_litert")

RNG = np.random.default_rng(4)
BATCH, TIME, DEPTH, CELLS = 2, 4, 5, 3


def real(*shape: int) -> np.ndarray:
    return RNG.uniform(-0.6, 0.6, shape).astype(np.float32)


def constant(graph: Graph, *shape: int) -> int:
    return graph.tensor(shape, value=real(*shape))


def state(graph: Graph, *shape: int) -> int:
    return graph.tensor(shape, is_variable=True)


def lstm_inputs(graph: Graph, outputs: int, peepholes: bool) -> list[int]:
    """Weights, peepholes, biases and projection of one direction."""
    weights = [constant(graph, CELLS, DEPTH) for _ in range(4)] + [constant(graph, CELLS, outputs) for _ in range(4)]
    diagonal = [constant(graph, CELLS) if peepholes else -1 for _ in range(3)]
    biases = [constant(graph, CELLS) for _ in range(4)]
    return [*weights, *diagonal, *biases, constant(graph, outputs, CELLS) if outputs != CELLS else -1, -1]


def add_layer(graph: Graph, name: str) -> None:
    """One layer with an input of its own."""
    tanh = {"fused_activation_function": 4}
    if name == "SVDF":
        x, rank, memory = graph.input((BATCH, DEPTH)), 2, 3
        given = [x, constant(graph, 2 * CELLS, DEPTH), constant(graph, 2 * CELLS, memory), constant(graph, CELLS)]
        given += [state(graph, BATCH, 2 * CELLS * memory)]
        graph.add(name, given, [graph.output((BATCH, CELLS))], "SVDFOptions", rank=rank)
        return
    single = name in ("LSTM", "RNN")
    x = graph.input((BATCH, DEPTH) if single else (BATCH, TIME, DEPTH))
    results = [graph.output(()) for _ in range(2 if name.startswith("BIDIRECTIONAL") else 1)]
    if name.endswith("RNN"):
        weights = [
            [constant(graph, CELLS, DEPTH), constant(graph, CELLS, CELLS), constant(graph, CELLS)] for _ in results
        ]
        given = [x]
        for each in weights:
            given += [*each, state(graph, BATCH, CELLS)]
        options = "RNNOptions" if single else "SequenceRNNOptions"
        options = "BidirectionalSequenceRNNOptions" if len(results) == 2 else options
        graph.add(name, given + [-1] * (3 * (len(results) - 1)), results, options, **tanh)
        return
    outputs = 2 if name == "LSTM" else CELLS
    given = [x, *lstm_inputs(graph, outputs, peepholes=name == "LSTM")]
    if len(results) == 2:
        given += [*lstm_inputs(graph, CELLS, False)]
        given += [state(graph, BATCH, CELLS) for _ in range(4)] + [-1] * 9
        graph.add(name, given, results, "BidirectionalSequenceLSTMOptions", time_major=False, **tanh)
        return
    given += [state(graph, BATCH, outputs), state(graph, BATCH, CELLS), -1, -1, -1, -1]
    graph.add(name, given, results, "LSTMOptions" if single else "UnidirectionalSequenceLSTMOptions", **tanh)


LAYERS = (
    "SVDF", "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "BIDIRECTIONAL_SEQUENCE_LSTM",
)  # fmt: skip


def test_layers_agree_over_several_runs(tmp_path: Path) -> None:
    graph = Graph()
    for name in LAYERS:
        add_layer(graph, name)
    content = model_file(graph)
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    session = nnefc.compile(path).load()
    shapes = [graph.tensors[index]["shape"] for index in graph.inputs]
    runs = [[real(*shape) for shape in shapes] for _ in range(3)]
    names = [graph.tensors[index]["name"] for index in graph.inputs]
    for run, wanted in zip(runs, reference(content, *runs), strict=True):
        found = session.run(dict(zip(names, run, strict=True)))
        for (name, mine), other in zip(found.items(), wanted, strict=True):
            np.testing.assert_allclose(mine, other, atol=2e-6, err_msg=name)
