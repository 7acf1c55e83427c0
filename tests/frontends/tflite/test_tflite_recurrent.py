"""Recurrent layers give what LiteRT gives, and keep their states between runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Variant:
    """What an LSTM of one direction has.

    Attributes:
        dtype: of the weights; signed bytes may be declared as uint8.
        asymmetric: whether what is multiplied with bytes has zero points.
    """

    coupled: bool = False
    peepholes: bool = False
    projected: bool = False
    normalized: bool = False
    dtype: str = "float32"
    asymmetric: bool = False


VARIANTS = (
    Variant(True, True, True, True),
    Variant(True, True, True, True, "int8", True),
    Variant(True),
    Variant(False, False, False, True),
    Variant(False, True, True, False, "int8"),
    Variant(dtype="uint8"),
)


def add_variant(graph: Graph, variant: Variant, single: bool) -> None:
    def matrix(*shape: int) -> int:
        if variant.dtype == "float32":
            return constant(graph, *shape)
        value = RNG.integers(-127, 128, shape).astype(np.int8).view(variant.dtype)
        return graph.tensor(shape, variant.dtype, value, scale=RNG.uniform(0.004, 0.006))

    def gates(is_there: bool, make: Callable[[], int], count: int = 4) -> list[int]:
        return [make() if is_there and not (variant.coupled and k == 0) else -1 for k in range(count)]

    outputs = 2 if variant.projected else CELLS
    given = [graph.input((BATCH, DEPTH) if single else (BATCH, TIME, DEPTH))]
    given += gates(True, lambda: matrix(CELLS, DEPTH)) + gates(True, lambda: matrix(CELLS, outputs))
    given += gates(variant.peepholes, lambda: matrix(CELLS), 3) + gates(True, lambda: constant(graph, CELLS))
    given += [matrix(outputs, CELLS), constant(graph, outputs)] if variant.projected else [-1, -1]
    given += [state(graph, BATCH, outputs), state(graph, BATCH, CELLS)]
    given += gates(variant.normalized, lambda: constant(graph, CELLS))
    name, options = ("LSTM", "LSTMOptions") if single else (
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions")  # fmt: skip
    fields = {"fused_activation_function": 4, "cell_clip": 0.5, "asymmetric_quantize_inputs": variant.asymmetric}
    graph.add(name, given, [graph.output(())], options, **fields)


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
    steps = (TIME, BATCH, DEPTH) if name == "BIDIRECTIONAL_SEQUENCE_RNN" else (BATCH, TIME, DEPTH)
    x = graph.input((BATCH, DEPTH) if single else steps)
    results = [graph.output(()) for _ in range(2 if name.startswith("BIDIRECTIONAL") else 1)]
    if name.endswith("RNN"):
        weights = [
            [constant(graph, CELLS, DEPTH), constant(graph, CELLS, CELLS), constant(graph, CELLS)] for _ in results
        ]
        given = [x]
        for each in weights:
            given += [*each, state(graph, BATCH, CELLS)]
        options = "RNNOptions" if single else "SequenceRNNOptions"
        if len(results) == 2:
            # An auxiliary input without weights is that of the second direction; LiteRT reads it with the time first.
            options, given = "BidirectionalSequenceRNNOptions", [*given, graph.input(steps), -1, -1]
        graph.add(name, given, results, options, **tanh, **({"time_major": True} if len(results) == 2 else {}))
        return
    outputs = 2 if name == "LSTM" else CELLS
    given = [x, *lstm_inputs(graph, outputs, peepholes=name == "LSTM")]
    if len(results) == 2:
        given += [*lstm_inputs(graph, CELLS, False)]
        given += [state(graph, BATCH, CELLS) for _ in range(4)] + [graph.input((BATCH, TIME, 2))]
        given += [constant(graph, CELLS, 2) for _ in range(8)]
        graph.add(name, given, results, "BidirectionalSequenceLSTMOptions", time_major=False, **tanh)
        return
    given += [state(graph, BATCH, outputs), state(graph, BATCH, CELLS), -1, -1, -1, -1]
    clips = {"cell_clip": 0.1, "proj_clip": 0.02}
    options = "LSTMOptions" if single else "UnidirectionalSequenceLSTMOptions"
    graph.add(name, given, results, options, **tanh, **clips)


def integers(graph: Graph, shape: tuple[int, ...], dtype: str, scale: float, limit: int = 127) -> int:
    """A constant of random integers up to a limit."""
    return graph.tensor(shape, dtype, RNG.integers(-limit, limit + 1, shape).astype(dtype), scale=scale)


def add_integer_lstm(graph: Graph, whole: bool, single: bool, normalized: bool = False) -> None:
    """An LSTM with 8-bit weights and 16-bit cells; if `whole`, with peepholes, clips and coupled gates.

    Whole ones, and single steps, are projected. LiteRT takes peepholes of a projected layer for the wrong cells, unless
    there are as many cells as outputs.
    """
    outputs, scales = CELLS if whole or not single else 2, (0.02, 0.01, 0.008)
    shape = (BATCH, DEPTH) if single else (BATCH, TIME, DEPTH)
    given = [graph.input(shape, "int8", scale=scales[0], zero=3)]
    for depth, factor in ((DEPTH, scales[1]), (outputs, 0.012)):
        coupled = [-1] if whole else [integers(graph, (CELLS, depth), "int8", factor)]
        given += coupled + [integers(graph, (CELLS, depth), "int8", factor) for _ in range(3)]
    peepholes = [integers(graph, (CELLS,), "int16", 2e-5, 30000) if whole else -1 for _ in range(3)]
    biases = [integers(graph, (CELLS,), "int32", scales[0] * scales[1], 3000) for _ in range(4)]
    if whole:
        peepholes[0] = biases[0] = -1
    given += [*peepholes, *biases]
    if whole or single:
        given += [integers(graph, (outputs, CELLS), "int8", 0.009), integers(graph, (outputs,), "int32", 7e-5, 900)]
    else:
        given += [-1, -1]
    given += [graph.tensor((BATCH, outputs), "int8", scale=scales[2], zero=-2, is_variable=True)]
    given += [graph.tensor((BATCH, CELLS), "int16", scale=2.0**-11, is_variable=True)]
    gains = [integers(graph, (CELLS,), "int16", 3e-5, 30000) if normalized else -1 for _ in range(4)]
    given += [-1 if whole else gains[0], *gains[1:]]
    gates = [graph.tensor((), "int16", scale=3e-4 if normalized else 2.0**-12) for _ in range(4)]
    hidden = graph.tensor((), "int8", scale=0.0075, zero=4)
    clips = {"cell_clip": 0.9, "proj_clip": 0.4} if whole else {}
    name, options = ("LSTM", "LSTMOptions") if single else (
        "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions")  # fmt: skip
    made = graph.output((), "int8", scale=scales[2], zero=-2)
    graph.add(name, given, [made], options, intermediates=[*gates, hidden], fused_activation_function=4, **clips)


def add_integer_svdf(graph: Graph) -> None:
    rank, memory = 2, 3
    x = graph.input((BATCH, DEPTH), "int8", scale=0.02, zero=3)
    given = [
        x,
        integers(graph, (2 * CELLS, DEPTH), "int8", 0.01),
        integers(graph, (2 * CELLS, memory), "int16", 3e-4, 3000),
    ]
    given += [integers(graph, (CELLS,), "int32", 3e-7, 1 << 20)]
    given += [graph.tensor((BATCH, 2 * CELLS * memory), "int16", scale=1e-3, is_variable=True)]
    made = graph.output((BATCH, CELLS), "int8", scale=0.02, zero=-100)
    graph.add("SVDF", given, [made], "SVDFOptions", rank=rank, fused_activation_function=1)


LAYERS = (
    "SVDF", "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "BIDIRECTIONAL_SEQUENCE_LSTM",
)  # fmt: skip


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_layers_agree_over_several_runs(whole: bool, tmp_path: Path) -> None:
    """Integers give the same bits."""
    graph = Graph()
    for name in LAYERS if whole else LAYERS[2:]:  # the others are single steps, and real SVDF
        add_layer(graph, name)
    for variant in VARIANTS if whole else VARIANTS[:2]:
        add_variant(graph, variant, single=not whole)
    add_integer_lstm(graph, whole=True, single=False)
    add_integer_lstm(graph, whole=True, single=not whole, normalized=True)
    add_integer_svdf(graph)
    if whole:
        add_variant(graph, VARIANTS[0], single=True)
        add_integer_lstm(graph, whole=False, single=False)
        add_integer_lstm(graph, whole=False, single=True)
        add_integer_lstm(graph, whole=False, single=True, normalized=True)
    content = model_file(graph)
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    session = nnefc.compile(path).load()
    inputs = [graph.tensors[index] for index in graph.inputs]
    runs = [
        [RNG.integers(-128, 128, t["shape"], np.int8) if t["type"] else real(*t["shape"]) for t in inputs]
        for _ in range(3)
    ]
    names = [each["name"] for each in inputs]
    for run, wanted in zip(runs, reference(content, *runs), strict=True):
        found = session.run(dict(zip(names, run, strict=True)))
        for (name, mine), other in zip(found.items(), wanted, strict=True):
            assert mine.dtype == other.dtype
            np.testing.assert_allclose(mine, other, atol=2e-6 if mine.dtype == np.float32 else 0, err_msg=name)
