"""A small decoder as the model builder of onnxruntime-genai writes it: prompts, then tokens, with caches that grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["CONFIG", "decoder", "feeds", "in_blocks"]

CONFIG = {"layers": 2, "heads": 4, "groups": 2, "size": 16, "width": 64, "inner": 96, "words": 50, "longest": 64}
_MICROSOFT = "com.microsoft"


class _Graph:
    """Nodes and initializers of a graph that is being made."""

    def __init__(self, quantize: Callable[[np.ndarray], dict[str, Any]] | None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(7)
        self.quantize = quantize

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> None:
        names = ["" if name == "-" else name for name in inputs.split()]
        self.nodes.append(helper.make_node(op, names, outputs.split(), domain=domain, **attributes))

    def real(self, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def product(self, x: str, name: str, depth: int, columns: int) -> str:
        """A product with a matrix, of floats or quantized in blocks."""
        matrix = self.real(depth, columns)
        if self.quantize is None:
            self.node("MatMul", f"{x} {self.constant(name, matrix)}", f"{name}_out")
            return f"{name}_out"
        made = self.quantize(matrix)
        names = [self.constant(f"{name}_{key}", made[key]) for key in ("b", "scales", "zero_points") if key in made]
        self.node("MatMulNBits", " ".join([x, *names]), f"{name}_out", _MICROSOFT, **made["attributes"])
        return f"{name}_out"


def decoder(quantize: Callable[[np.ndarray], dict[str, Any]] | None = None) -> onnx.ModelProto:
    """The model; `quantize` gives the operands and attributes of `MatMulNBits` for a matrix."""
    graph, config = _Graph(quantize), CONFIG
    width, kept = config["width"], config["groups"] * config["size"]
    angles = np.outer(np.arange(config["longest"]), 100.0 ** -(np.arange(config["size"] // 2) / 8)).astype(np.float32)
    graph.constant("cos", np.cos(angles))
    graph.constant("sin", np.sin(angles))
    graph.constant("one", np.array([1], np.int64))
    graph.node("ReduceSum", "attention_mask one", "summed")
    graph.node("Sub", "summed one", "last64")
    graph.node("Cast", "last64", "last", to=TensorProto.INT32)
    graph.node("Shape", "attention_mask", "mask_shape")
    graph.node("Gather", "mask_shape one_scalar", "total64", axis=0)
    graph.constant("one_scalar", np.array(1, np.int64))
    graph.node("Cast", "total64", "total", to=TensorProto.INT32)
    graph.node("Gather", f"{graph.constant('table', graph.real(config['words'], width))} input_ids", "h0")
    graph.node("SimplifiedLayerNormalization", f"h0 {_ones(graph, 'g0')}", "n0", axis=-1, epsilon=1e-5)
    normal, skip = "n0", "h0"
    for layer in range(config["layers"]):
        q, k, v = (
            graph.product(normal, f"{name}{layer}", width, columns)
            for name, columns in (("q", width), ("k", kept), ("v", kept))
        )
        graph.node(
            "GroupQueryAttention",
            f"{q} {k} {v} past.{layer}.key past.{layer}.value last total cos sin",
            f"a{layer} present.{layer}.key present.{layer}.value",
            _MICROSOFT,
            num_heads=config["heads"],
            kv_num_heads=config["groups"],
            do_rotary=1,
        )
        projected = graph.product(f"a{layer}", f"o{layer}", width, width)
        _skip(graph, skip, projected, f"m{layer}")
        gate = graph.product(f"m{layer}", f"gate{layer}", width, config["inner"])
        up = graph.product(f"m{layer}", f"up{layer}", width, config["inner"])
        graph.node("Sigmoid", gate, f"s{layer}")
        graph.node("Mul", f"{gate} s{layer}", f"silu{layer}")
        graph.node("Mul", f"silu{layer} {up}", f"inner{layer}")
        down = graph.product(f"inner{layer}", f"down{layer}", config["inner"], width)
        _skip(graph, f"m{layer}_sum", down, f"n{layer + 1}")
        normal, skip = f"n{layer + 1}", f"n{layer + 1}_sum"
    logits = graph.product(normal, "head", width, config["words"])
    graph.node("Identity", logits, "logits")
    return _model(graph)


def in_blocks(matrix: np.ndarray) -> dict[str, Any]:
    """A matrix `[K, N]` as the operands and attributes of `MatMulNBits`: 4 bits, blocks of 16, with zero points."""
    parts = matrix.T.reshape(matrix.shape[1], -1, 16)
    low, high = parts.min(-1, keepdims=True), parts.max(-1, keepdims=True)
    scales = np.maximum(high - low, 1e-6) / 15
    zeros = np.clip(np.round(-low / scales), 0, 15)
    codes = np.clip(np.round(parts / scales) + zeros, 0, 15).astype(np.uint8)
    flat = zeros[..., 0].astype(np.uint8)
    flat = np.pad(flat, [(0, 0), (0, flat.shape[1] % 2)])
    return {
        "b": codes[..., ::2] | codes[..., 1::2] << 4,
        "scales": scales[..., 0].astype(np.float32),
        "zero_points": flat[:, ::2] | flat[:, 1::2] << 4,
        "attributes": {"K": matrix.shape[0], "N": matrix.shape[1], "bits": 4, "block_size": 16},
    }


def _ones(graph: _Graph, name: str) -> str:
    return graph.constant(name, 1 + 0.1 * graph.real(CONFIG["width"]))


def _skip(graph: _Graph, x: str, added: str, name: str) -> None:
    inputs = f"{x} {added} {_ones(graph, name + '_scale')}"
    graph.node("SkipSimplifiedLayerNormalization", inputs, name, _MICROSOFT, epsilon=1e-5)
    graph.nodes[-1].output.extend(["", "", f"{name}_sum"])


def _model(graph: _Graph) -> onnx.ModelProto:
    caches = [f"{layer}.{part}" for layer in range(CONFIG["layers"]) for part in ("key", "value")]
    cache = ["batch", CONFIG["groups"], None, CONFIG["size"]]

    def shaped(length: str) -> list[Any]:
        return [length if size is None else size for size in cache]

    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [
        info("input_ids", TensorProto.INT64, ["batch", "sequence"]),
        info("attention_mask", TensorProto.INT64, ["batch", "total"]),
        *(info(f"past.{name}", real, shaped("past")) for name in caches),
    ]
    outputs = [
        info("logits", real, ["batch", "sequence", CONFIG["words"]]),
        *(info(f"present.{name}", real, shaped("total")) for name in caches),
    ]
    made = helper.make_graph(graph.nodes, "decoder", inputs, outputs, graph.constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(made, opset_imports=imports, ir_version=10)


def feeds(words: np.ndarray, total: int, caches: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs of a run on these words, after which there are `total`; caches are the last one's."""
    past = {name.replace("present", "past"): array for name, array in caches.items()}
    return {"input_ids": words, "attention_mask": np.ones((len(words), total), np.int64), **past}
