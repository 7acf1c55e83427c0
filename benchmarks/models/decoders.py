"""Decoders as the model builder of onnxruntime-genai writes them: prompts, then tokens, with caches; random weights, or
given ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["SMALL", "Heads", "RandomWeights", "Sizes", "Weights", "decoder", "feeds", "in_blocks"]

_MICROSOFT = "com.microsoft"
_BLOCK = 32  # elements of a row of the quantized embeddings that have one scale


@dataclass(frozen=True)
class Sizes:
    """Of a decoder: heads of queries and of keys, elements of a head and of the feed-forward layer, words, positions,
    and the base of the angles by which positions rotate queries and keys."""

    heads: int
    groups: int
    size: int
    inner: int
    words: int
    longest: int
    base: float = 100.0

    @property
    def width(self) -> int:
        """Of what goes from layer to layer."""
        return self.heads * self.size


SMALL = Sizes(heads=4, groups=2, size=16, inner=96, words=50, longest=64)


@dataclass(frozen=True)
class Heads:
    """How a layer's attention is written.

    Attributes:
        packed: whether queries, keys and values are one tensor.
        rotates: whether the operator turns them; else there are nodes for it, by `position_ids`.
        attributes: further ones of the operator.
    """

    packed: bool = False
    rotates: bool = True
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Weights(Protocol):
    """A decoder's parameters, by the names that :func:`decoder` gives them."""

    def table(self, words: int, width: int) -> np.ndarray | None:
        """The embeddings in float32; None if they are the rows of the quantized matrix `head`."""

    def scale(self, name: str, width: int) -> np.ndarray:
        """The factors of a normalization, in float32."""

    def matrix(self, name: str, depth: int, columns: int) -> np.ndarray | dict[str, Any]:
        """`[depth, columns]` in float32, or operands and attributes of `MatMulNBits` as :func:`in_blocks` has them."""


class RandomWeights:
    """Random parameters; `quantize` gives the operands and attributes of `MatMulNBits` for a matrix."""

    def __init__(self, quantize: Callable[[np.ndarray], dict[str, Any]] | None = None) -> None:
        self._rng = np.random.default_rng(7)
        self._quantize = quantize

    def table(self, words: int, width: int) -> np.ndarray | None:
        return self._real(words, width)

    def scale(self, _name: str, width: int) -> np.ndarray:
        return 1 + 0.1 * self._real(width)

    def matrix(self, _name: str, depth: int, columns: int) -> np.ndarray | dict[str, Any]:
        matrix = self._real(depth, columns)
        return matrix if self._quantize is None else self._quantize(matrix)

    def _real(self, *shape: int) -> np.ndarray:
        return (self._rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


class _Graph:
    """Nodes and initializers of a graph that is being made."""

    def __init__(self, sizes: Sizes, weights: Weights) -> None:
        self.sizes = sizes
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.weights = weights

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> None:
        names = ["" if name == "-" else name for name in inputs.split()]
        self.nodes.append(helper.make_node(op, names, outputs.split(), domain=domain, **attributes))

    def product(self, x: str, name: str, depth: int, columns: int) -> str:
        """A product with a matrix, of floats or quantized in blocks."""
        made = self.weights.matrix(name, depth, columns)
        if isinstance(made, np.ndarray):
            self.node("MatMul", f"{x} {self.constant(name, made)}", f"{name}_out")
            return f"{name}_out"
        names = [self.constant(f"{name}_{key}", made[key]) for key in ("b", "scales", "zero_points") if key in made]
        self.node("MatMulNBits", " ".join([x, *names]), f"{name}_out", _MICROSOFT, **made["attributes"])
        return f"{name}_out"


def decoder(
    weights: Weights,
    layers: Sequence[Heads] = (Heads(), Heads()),
    sizes: Sizes = SMALL,
    last_alone: bool = False,
) -> onnx.ModelProto:
    """The model; with `last_alone` it has logits of the last position only, as the builder's `prune_lm_head`."""
    graph = _Graph(sizes, weights)
    width, half = sizes.width, sizes.size // 2
    angles = np.outer(np.arange(sizes.longest), sizes.base ** -(np.arange(half) / half)).astype(np.float32)
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
    _embeddings(graph)
    graph.node("SimplifiedLayerNormalization", f"h0 {_scale(graph, 'g0')}", "n0", axis=-1, epsilon=1e-5)
    normal, skip = "n0", "h0"
    for layer, heads in enumerate(layers):
        _attention(graph, layer, normal, heads)
        projected = graph.product(f"a{layer}", f"o{layer}", width, width)
        _skip(graph, skip, projected, f"m{layer}")
        gate = graph.product(f"m{layer}", f"gate{layer}", width, sizes.inner)
        up = graph.product(f"m{layer}", f"up{layer}", width, sizes.inner)
        graph.node("Sigmoid", gate, f"s{layer}")
        graph.node("Mul", f"{gate} s{layer}", f"silu{layer}")
        graph.node("Mul", f"silu{layer} {up}", f"inner{layer}")
        down = graph.product(f"inner{layer}", f"down{layer}", sizes.inner, width)
        _skip(graph, f"m{layer}_sum", down, f"n{layer + 1}")
        normal, skip = f"n{layer + 1}", f"n{layer + 1}_sum"
    if last_alone:
        graph.node("Gather", f"{normal} {graph.constant('last_position', np.array(-1, np.int64))}", "chosen", axis=1)
        graph.node("Unsqueeze", "chosen one", "last_row")
        normal = "last_row"
    logits = graph.product(normal, "head", width, sizes.words)
    graph.node("Identity", logits, "logits")
    return _model(graph, layers, 1 if last_alone else "sequence")


def _embeddings(graph: _Graph) -> None:
    """Of the inputs, as the result `h0`."""
    words, width = graph.sizes.words, graph.sizes.width
    table = graph.weights.table(words, width)
    if table is not None:
        graph.node("Gather", f"{graph.constant('table', table)} input_ids", "h0")
        return
    graph.constant("table_shape", np.array([words, width // 2], np.int64))
    graph.node("Reshape", "head_b table_shape", "table")
    lookup = {"bits": 4, "block_size": _BLOCK, "gather_axis": 0, "quantize_axis": 1}
    graph.node("GatherBlockQuantized", "table input_ids head_scales", "h0", _MICROSOFT, **lookup)


def _attention(graph: _Graph, layer: int, x: str, heads: Heads) -> None:
    """Of `x`, as the result `a` with the layer's number."""
    of = graph.sizes
    width, kept = of.width, of.groups * of.size
    if heads.packed:
        given = [graph.product(x, f"qkv{layer}", width, width + 2 * kept), "-", "-"]
    else:
        parts = (("q", width), ("k", kept), ("v", kept))
        given = [graph.product(x, f"{name}{layer}", width, columns) for name, columns in parts]
    if not heads.rotates:
        for position, name in enumerate(given[:2]):
            count = {"num_heads": of.heads if position == 0 else of.groups, "rotary_embedding_dim": 0}
            graph.node("RotaryEmbedding", f"{name} position_ids cos sin", f"{name}_rotated", _MICROSOFT, **count)
            given[position] = f"{name}_rotated"
    tables = " cos sin" if heads.rotates else ""
    graph.node(
        "GroupQueryAttention",
        f"{' '.join(given)} past.{layer}.key past.{layer}.value last total{tables}",
        f"a{layer} present.{layer}.key present.{layer}.value",
        _MICROSOFT,
        num_heads=of.heads,
        kv_num_heads=of.groups,
        do_rotary=int(heads.rotates),
        **heads.attributes,
    )


def in_blocks(matrix: np.ndarray, zeros_given: bool = True, block: int = 16, accuracy_level: int = 0) -> dict[str, Any]:
    """A matrix `[K, N]` as the operands and attributes of `MatMulNBits`, of 4 bits.

    With zero points if these are given; else integers stand for numbers around 8.
    """
    depth, columns = matrix.shape
    parts = matrix.T.reshape(columns, -1, block)
    low, high = parts.min(-1, keepdims=True), parts.max(-1, keepdims=True)
    if zeros_given:
        scales = np.maximum(high - low, 1e-6) / 15
        zeros = np.clip(np.round(-low / scales), 0, 15)
    else:
        scales = np.maximum(np.maximum(high, -low), 1e-6) / 7
        zeros = np.full_like(scales, 8)
    codes = np.clip(np.round(parts / scales) + zeros, 0, 15).astype(np.uint8)
    flat = zeros[..., 0].astype(np.uint8)
    flat = np.pad(flat, [(0, 0), (0, flat.shape[1] % 2)])
    made = {
        "b": codes[..., ::2] | codes[..., 1::2] << 4,
        "scales": scales[..., 0].astype(np.float32),
        "zero_points": flat[:, ::2] | flat[:, 1::2] << 4,
        "attributes": {
            "K": depth,
            "N": columns,
            "bits": 4,
            "block_size": block,
            "accuracy_level": accuracy_level,
        },
    }
    return made if zeros_given else {name: part for name, part in made.items() if name != "zero_points"}


def _scale(graph: _Graph, name: str) -> str:
    return graph.constant(name, graph.weights.scale(name, graph.sizes.width))


def _skip(graph: _Graph, x: str, added: str, name: str) -> None:
    inputs = f"{x} {added} {_scale(graph, name + '_scale')}"
    graph.node("SkipSimplifiedLayerNormalization", inputs, name, _MICROSOFT, epsilon=1e-5)
    graph.nodes[-1].output.extend(["", "", f"{name}_sum"])


def _model(graph: _Graph, layers: Sequence[Heads], rows: str | int) -> onnx.ModelProto:
    """The graph with its inputs and outputs; `rows` are the positions that have logits."""
    caches = [f"{layer}.{part}" for layer in range(len(layers)) for part in ("key", "value")]
    cache = ["batch", graph.sizes.groups, None, graph.sizes.size]

    def shaped(length: str) -> list[Any]:
        return [length if size is None else size for size in cache]

    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [
        info("input_ids", TensorProto.INT64, ["batch", "sequence"]),
        info("attention_mask", TensorProto.INT64, ["batch", "total"]),
        *([] if all(h.rotates for h in layers) else [info("position_ids", TensorProto.INT64, ["batch", "sequence"])]),
        *(info(f"past.{name}", real, shaped("past")) for name in caches),
    ]
    outputs = [
        info("logits", real, ["batch", rows, graph.sizes.words]),
        *(info(f"present.{name}", real, shaped("total")) for name in caches),
    ]
    made = helper.make_graph(graph.nodes, "decoder", inputs, outputs, graph.constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(_MICROSOFT, 1)]
    return helper.make_model(made, opset_imports=imports, ir_version=10)


def feeds(
    words: np.ndarray, total: int, caches: dict[str, np.ndarray], positions: bool = False
) -> dict[str, np.ndarray]:
    """The inputs of a run on these words, after which there are `total`; caches are the last one's."""
    past = {name.replace("present", "past"): array for name, array in caches.items()}
    indices = np.tile(np.arange(total - words.shape[1], total), (len(words), 1))
    given = {"input_ids": words, "attention_mask": np.ones((len(words), total), np.int64), **past}
    return given | ({"position_ids": indices} if positions else {})
