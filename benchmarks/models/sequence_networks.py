"""The ONNX twins of the documents next to this file that describe transformers, recurrent networks and a perceptron.

Each function takes nothing from the document: it states the architecture a second time, so that the comparison of
results also compares two readings of the paper.
"""

from __future__ import annotations

import math

import numpy as np
from models.onnx_graph import OnnxGraph

__all__ = ["bert_base", "bert_small", "gru", "lstm", "mlp", "vit_b16"]

Built = tuple[OnnxGraph, str]  # and the name of the output

WIDTH, HEADS, LAYERS = 768, 12, 12
STEPS, CELLS = 100, 256


def bert_base(tokens: int = 128) -> Built:
    return _bert("bert_base", WIDTH, HEADS, LAYERS, tokens)


def bert_small() -> Built:
    """For browsers: no document next to this file has it."""
    return _bert("bert_small", 256, 4, 4)


def _bert(name: str, width: int, heads: int, layers: int, tokens: int = 128) -> Built:
    graph = OnnxGraph(name, (1, tokens, width))
    x = "input"
    for layer in range(1, layers + 1):
        scope = f"layer{layer}"
        attention = _attention(graph, x, tokens, scope, width, heads)
        x = graph.norm(graph.node("Add", x, attention), width, f"{scope}/norm1", 1e-12)
        x = graph.norm(graph.node("Add", x, _feed_forward(graph, x, scope, width)), width, f"{scope}/norm2", 1e-12)
    return graph, x


def vit_b16() -> Built:
    patches, patch = 196, 16
    graph = OnnxGraph("vit_b16", (1, 3, 224, 224))
    x = graph.conv_bias("input", WIDTH, patch, "patches", stride=patch)
    x = graph.node("Transpose", graph.node("Reshape", x, graph.constant([1, WIDTH, patches])), perm=[0, 2, 1])
    of_class = graph.weight("class", graph.normal((1, 1, WIDTH), 1, 1.0), (1, 1, WIDTH))
    positions = graph.weight("positions", graph.normal((1, patches + 1, WIDTH), 25, 1.0), (1, patches + 1, WIDTH))
    x = graph.node("Add", graph.node("Concat", of_class, x, axis=1), positions)
    for layer in range(1, LAYERS + 1):
        scope = f"layer{layer}"
        normal = graph.norm(x, WIDTH, f"{scope}/norm1", 1e-6)
        x = graph.node("Add", x, _attention(graph, normal, patches + 1, scope))
        x = graph.node("Add", x, _feed_forward(graph, graph.norm(x, WIDTH, f"{scope}/norm2", 1e-6), scope))
    x = graph.norm(x, WIDTH, "norm", 1e-6)
    x = graph.node("Gather", x, graph.constant(0), axis=1)
    return graph, graph.linear(x, WIDTH, 1000, "classifier")


def _attention(graph: OnnxGraph, x: str, tokens: int, scope: str, width: int = WIDTH, heads: int = HEADS) -> str:
    apart = graph.constant([1, tokens, heads, width // heads])
    query, key, value = (
        graph.node("Reshape", graph.dense(x, width, width, f"{scope}/{part}"), apart)
        for part in ("query", "key", "value")
    )
    query, value = (graph.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 2, 3, 1]))
    scores = graph.node("Div", scores, graph.constant(math.sqrt(width / heads)))
    mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), value)
    mixed = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", mixed, graph.constant([1, tokens, width]))
    return graph.dense(joined, width, width, f"{scope}/joined")


def _feed_forward(graph: OnnxGraph, x: str, scope: str, width: int = WIDTH) -> str:
    wide = graph.node("Gelu", graph.dense(x, width, 4 * width, f"{scope}/wide"), approximate="tanh")
    return graph.dense(wide, 4 * width, width, f"{scope}/narrow", gain=2.0)


def lstm() -> Built:
    """Gates in ONNX's order, which is the document's."""
    graph = OnnxGraph("lstm", (STEPS, 1, CELLS))
    filters, biases = _recurrent(graph, 4, ("input",))
    sequence = graph.nodes("LSTM", 1, "input", *filters, _joined(graph, biases), hidden_size=CELLS)[0]
    return graph, graph.node("Squeeze", sequence, graph.constant([1]))


def gru() -> Built:
    graph = OnnxGraph("gru", (STEPS, 1, CELLS))
    filters, biases = _recurrent(graph, 3, ("input", "recurrent"))
    setting = {"hidden_size": CELLS, "linear_before_reset": 1}
    sequence = graph.nodes("GRU", 1, "input", *filters, _joined(graph, biases), **setting)[0]
    return graph, graph.node("Squeeze", sequence, graph.constant([1]))


def mlp() -> Built:
    graph = OnnxGraph("mlp", (1, 784))
    x = graph.node("Relu", graph.linear("input", 784, 128, "first"))
    x = graph.node("Relu", graph.linear(x, 128, 64, "second", gain=2.0))
    return graph, graph.linear(x, 64, 10, "last", gain=2.0)


def _recurrent(graph: OnnxGraph, gates: int, biased: tuple[str, ...]) -> tuple[list[str], list[np.ndarray]]:
    """The filters [1, gates * cells, cells] of the inputs and of the cells' outputs, and both biases."""
    rows = gates * CELLS
    filters, biases = [], []
    for part in ("input", "recurrent"):
        filters.append(graph.weight(f"{part}/filter", graph.normal((1, rows, CELLS), CELLS, 1.0), (rows, CELLS)))
        biases.append(graph.normal((rows,), 100, 1.0) if part in biased else np.zeros(rows, np.float32))
        if part in biased:
            graph.weights[f"{part}/bias"] = biases[-1].reshape(1, rows)
    return filters, biases


def _joined(graph: OnnxGraph, biases: list[np.ndarray]) -> str:
    return graph.constant(np.concatenate(biases)[np.newaxis])
