"""An encoder as onnxruntime's transformer optimizer writes it, of dynamic batch and length, compared with
onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc

RNG = np.random.default_rng(31)
WORDS, LONGEST, HEADS, WIDTH, INNER = 60, 40, 4, 32, 64


class Encoder:
    """Nodes and constants; each `add` gives the name of a node's first result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def real(self, *shape: int) -> str:
        array = (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, op: str, *inputs: str, outputs: int = 1, domain: str = "com.microsoft", **attributes: Any) -> str:
        made = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, domain=domain, **attributes))
        return made[0]

    def linear(self, x: str, depth: int, columns: int) -> str:
        return self.add("MatMul", x, self.real(depth, columns), domain="")


def encoder(attention: str) -> onnx.ModelProto:
    """One layer; `attention` is `Attention`, with its projections, or `MultiHeadAttention`."""
    made = Encoder()
    norm = [made.real(WIDTH), made.real(WIDTH)]
    tables = [made.real(count, WIDTH) for count in (WORDS, LONGEST, 2)]
    x = made.add("EmbedLayerNormalization", "words", "segments", *tables, *norm, "mask", outputs=2, epsilon=1e-12)
    lengths = made.nodes[-1].output[1]
    if attention == "Attention":
        weights = made.real(WIDTH, 3 * WIDTH), made.real(3 * WIDTH)
        a = made.add("Attention", x, *weights, lengths, num_heads=HEADS)
    else:
        parts = [made.linear(x, WIDTH, WIDTH) for _ in range(3)]
        a = made.add("MultiHeadAttention", *parts, made.real(3 * WIDTH), lengths, num_heads=HEADS)
    a = made.add("SkipLayerNormalization", x, made.linear(a, WIDTH, WIDTH), *norm, made.real(WIDTH))
    inner = made.add("BiasGelu", made.linear(a, WIDTH, INNER), made.real(INNER))
    y = made.add("SkipLayerNormalization", a, made.linear(inner, INNER, WIDTH), *norm, made.real(WIDTH))
    info, shape = helper.make_tensor_value_info, ["batch", "length"]
    inputs = [info(name, TensorProto.INT32, shape) for name in ("words", "segments", "mask")]
    outputs = [info(y, TensorProto.FLOAT, [*shape, WIDTH])]
    graph = helper.make_graph(made.nodes, "encoder", inputs, outputs, made.constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("attention", ["Attention", "MultiHeadAttention"])
@pytest.mark.slow
def test_one_library_takes_all_lengths(attention: str, tmp_path: Path) -> None:
    path = tmp_path / "encoder.onnx"
    path.write_bytes(encoder(attention).SerializeToString())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with nnefc.compile(path).load() as library:
        for shape in ((1, 3), (3, 17)):
            seen = np.arange(shape[1]) < RNG.integers(1, shape[1] + 1, (shape[0], 1))
            feeds = {"words": RNG.integers(0, WORDS, shape), "segments": RNG.integers(0, 2, shape), "mask": seen}
            feeds = {name: array.astype(np.int32) for name, array in feeds.items()}
            (wanted,) = session.run(None, feeds)
            (found,) = library.run(feeds).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
