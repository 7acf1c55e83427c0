"""One attention in the spellings that exporters, converters and optimizers write it in, as ONNX models.

Each is of four heads of 32 numbers. Their sizes have names: `b` batch elements, `n` queries, `m` keys of another
sequence, `past` keys of a cache, `t` and `i` tokens of a text and of an image, `w` windows. A model is made with all of
them open or with numbers in place of some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["RANGES", "SIZES", "SPELLINGS", "Spelling", "side_by_side"]

HEADS, SIZE, WINDOW = 4, 32, 49
WIDTH = HEADS * SIZE
SCALE = SIZE**-0.5
LOWEST = float(np.finfo(np.float32).min)

SIZES = {"b": 1, "n": 256, "m": 77, "past": 128, "t": 32, "i": 224, "w": 64}
"""What is measured."""

RANGES = {
    "b": "1..16",
    "n": "1..4096",
    "m": "1..512",
    "past": "1..4096",
    "t": "1..512",
    "i": "1..4096",
    "w": "16..1024:16",
}
"""What users would give."""


class Graph:
    """A model in the making; operations return the names of what they make, which begin with a prefix."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, tuple[type, tuple[int | str, ...]]] = {}
        self._random = np.random.default_rng(3)

    def do(self, operator: str, *operands: str, domain: str = "", **attributes: Any) -> str:
        """The first result of an operator."""
        return self.several(1, operator, *operands, domain=domain, **attributes)[0]

    def several(self, count: int, operator: str, *operands: str, domain: str = "", **attributes: Any) -> list[str]:
        """All results of an operator."""
        names = [f"{self.prefix}{operator.lower()}_{len(self.nodes)}_{n}" for n in range(count)]
        self.nodes.append(helper.make_node(operator, list(operands), names, domain=domain, **attributes))
        return names

    def given(self, name: str, *shape: int | str, dtype: type = np.float32) -> str:
        """An input."""
        self.inputs[self.prefix + name] = dtype, shape
        return self.prefix + name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def weight(self, *shape: int) -> str:
        return self.constant(self._random.standard_normal(shape) / math.sqrt(shape[0]))

    def size(self, x: str, axis: int) -> str:
        """One size of a tensor, as a vector, as TorchScript's exporter reads it."""
        size = self.do("Gather", self.do("Shape", x), self.constant(axis, np.int64), axis=0)
        return self.do("Unsqueeze", size, self.integers(0))

    def joined_sizes(self, *sizes: str) -> str:
        return self.do("Concat", *sizes, axis=0)

    def permuted(self, x: str, *order: int) -> str:
        return self.do("Transpose", x, perm=list(order))

    def scaled(self, x: str, factor: float) -> str:
        return self.do("Mul", x, self.constant(factor))

    def projections(self, queries: str = "n", keys: str = "n") -> list[str]:
        """Queries, keys and values of all heads side by side."""
        return [self.given(name, "b", size, WIDTH) for name, size in (("q", queries), ("k", keys), ("v", keys))]

    def apart(self, x: str, *order: int) -> str:
        """`[b, n, 128]` with an axis for heads."""
        return self.permuted(self.do("Reshape", x, self.integers(0, 0, HEADS, SIZE)), *(order or (0, 2, 1, 3)))

    def together(self, x: str) -> str:
        """`[b, 4, n, 32]` as `[b, n, 128]`."""
        return self.do("Reshape", self.permuted(x, 0, 2, 1, 3), self.integers(0, 0, WIDTH))

    def weighted(self, scores: str, values: str) -> str:
        return self.do("MatMul", self.do("Softmax", scores, axis=-1), values)


def _model(graphs: Mapping[str, Graph], sizes: Mapping[str, int] | None) -> onnx.ModelProto:
    """A model of one graph, or of several side by side, by their results; with these sizes in place of their
    names."""
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [_known(size, sizes or {}) for size in shape]
        )
        for graph in graphs.values()
        for name, (dtype, shape) in graph.inputs.items()
    ]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None) for result in graphs]
    nodes = [node for graph in graphs.values() for node in graph.nodes]
    constants = [constant for graph in graphs.values() for constant in graph.constants]
    made = helper.make_graph(nodes, "attention", inputs, outputs, constants)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=imports, ir_version=9)


def _known(size: int | str, sizes: Mapping[str, int]) -> int | str:
    """A size, or a sum of sizes, with numbers in place of names."""
    if isinstance(size, int):
        return size
    parts = size.split(" + ")
    return sum(sizes[part] for part in parts) if sizes.keys() >= set(parts) else size


def _from_zeros(g: Graph, mask: str, factor: float) -> str:
    """What hides keys, of a mask of integers `[b, n]` with zeros where nothing is: `(1 - mask) * factor`."""
    wide = g.do("Unsqueeze", g.do("Unsqueeze", mask, g.integers(1)), g.integers(2))
    return g.scaled(g.do("Sub", g.constant(1), g.do("Cast", wide, to=TensorProto.FLOAT)), factor)


def torchscript_bert(g: Graph) -> str:
    """Sizes read with Shape, scores divided, `(1 - mask) * lowest` added."""

    def apart(x: str, *order: int) -> str:
        shape = g.joined_sizes(g.size(x, 0), g.size(x, 1), g.integers(HEADS), g.integers(SIZE))
        return g.permuted(g.do("Reshape", x, shape), *order)

    q, k, v = g.projections()
    mask = _from_zeros(g, g.given("mask", "b", "n", dtype=np.int64), LOWEST)
    scores = g.do("MatMul", apart(q, 0, 2, 1, 3), apart(k, 0, 2, 3, 1))
    scores = g.do("Add", g.do("Div", scores, g.constant(math.sqrt(SIZE))), mask)
    made = g.permuted(g.weighted(scores, apart(v, 0, 2, 1, 3)), 0, 2, 1, 3)
    return g.do("Reshape", made, g.joined_sizes(g.size(made, 0), g.size(made, 1), g.integers(WIDTH)))


def _root_of_scale(g: Graph, q: str) -> str:
    """The root of the scale, from the size of queries, as TorchScript's exporter computes it."""
    last = g.do("Slice", g.do("Shape", q), g.integers(-1), g.integers(2**63 - 1))
    root = g.do("Sqrt", g.do("Cast", last, to=TensorProto.FLOAT))
    return g.do("Sqrt", g.do("Div", g.constant([1]), root))


def _torchscript_scores(g: Graph, q: str, k: str) -> str:
    q, k = g.apart(q), g.apart(k)
    factor = _root_of_scale(g, q)
    return g.do("MatMul", g.do("Mul", q, factor), g.do("Mul", g.permuted(k, 0, 1, 3, 2), factor))


def torchscript_sdpa_bool(g: Graph) -> str:
    """A root of the scale on queries and keys, and a mask of booleans made a float one."""
    q, k, v = g.projections()
    mask = g.given("mask", "b", 1, "n", "n", dtype=np.bool_)
    added = g.do("Where", mask, g.constant(0), g.constant(-math.inf))
    return g.together(g.weighted(g.do("Add", _torchscript_scores(g, q, k), added), g.apart(v)))


def torchscript_sdpa_causal(g: Graph) -> str:
    """`is_causal`: ones of the scores' shape, their lower triangle, zeros or minus infinity."""
    q, k, v = g.projections()
    shape = g.joined_sizes(g.size(q, 1), g.size(k, 1))
    ones = g.do("Expand", g.constant(1), shape)
    seen = g.do("Cast", g.do("Trilu", ones, upper=0), to=TensorProto.BOOL)
    added = g.do("Where", seen, g.constant(0), g.constant(-math.inf))
    return g.together(g.weighted(g.do("Add", _torchscript_scores(g, q, k), added), g.apart(v)))


def _dynamo_transposed(g: Graph, k: str) -> str:
    """The last two axes exchanged by way of three axes, as torch.export's exporter writes it."""
    shape = g.do("Shape", k)

    def part(first: int, end: int) -> str:
        return g.do("Slice", shape, g.integers(first), g.integers(end))

    flat = g.do("Reshape", k, g.joined_sizes(g.integers(-1), part(-2, -1), part(-1, 2**63 - 1)))
    transposed = g.permuted(flat, 0, 2, 1)
    return g.do("Reshape", transposed, g.joined_sizes(part(0, -2), part(-1, 2**63 - 1), part(-2, -1)))


def dynamo_sdpa(g: Graph) -> str:
    """Constant roots of the scale, keys transposed by way of three axes, a float mask."""
    q, k, v = (g.permuted(g.given(name, "b", "n", HEADS, SIZE), 0, 2, 1, 3) for name in "qkv")
    root = math.sqrt(SCALE)
    scores = g.do("MatMul", g.scaled(q, root), g.scaled(_dynamo_transposed(g, k), root))
    return g.permuted(g.weighted(g.do("Add", scores, g.given("mask", "n", "n")), v), 0, 2, 1, 3)


def dynamo_sdpa_bool(g: Graph) -> str:
    """Zeros in place of NaN where a mask of booleans hides a whole row."""
    q, k, v = (g.permuted(g.given(name, "b", "n", HEADS, SIZE), 0, 2, 1, 3) for name in "qkv")
    root = math.sqrt(SCALE)
    scores = g.do("MatMul", g.scaled(q, root), g.scaled(_dynamo_transposed(g, k), root))
    mask = g.do("Where", g.given("mask", "b", 1, 1, "n", dtype=np.bool_), g.constant(0), g.constant(-math.inf))
    weights = g.do("Softmax", g.do("Add", scores, mask), axis=-1)
    weights = g.do("Where", g.do("IsNaN", weights), g.constant(0), weights)
    return g.permuted(g.do("MatMul", weights, v), 0, 2, 1, 3)


def _repeated(g: Graph, x: str, count: int) -> str:
    """Heads that `count` queries each share: Unsqueeze, Expand, Reshape."""
    wide = g.do("Unsqueeze", x, g.integers(2))
    shape = g.joined_sizes(g.size(x, 0), g.size(x, 1), g.integers(count), g.size(x, 2), g.size(x, 3))
    flat = g.joined_sizes(g.size(x, 0), g.integers(HEADS), g.size(x, 2), g.size(x, 3))
    return g.do("Reshape", g.do("Expand", wide, shape), flat)


def _cached(g: Graph, heads: int) -> tuple[str, str, str]:
    """Queries, and keys and values behind those of a cache."""
    q = g.permuted(g.given("q", "b", "n", HEADS, SIZE), 0, 2, 1, 3)
    both = []
    for name in "kv":
        new = g.permuted(g.given(name, "b", "n", heads, SIZE), 0, 2, 1, 3)
        both.append(g.do("Concat", g.given(f"past_{name}", "b", heads, "past", SIZE), new, axis=2))
    return q, *both


def _positions(g: Graph, of: str, axis: int, behind: str | None = None) -> str:
    """Numbers from 0 on, as many as an axis is long; or behind an offset."""
    zero, one = (g.constant(n, np.int64) for n in (0, 1))
    numbers = g.do("Range", zero, g.do("Squeeze", g.size(of, axis), g.integers(0)), one)
    return numbers if behind is None else g.do("Add", numbers, behind)


def optimum_llama(g: Graph) -> str:
    """A cache, grouped heads, a triangle of lowest numbers cut by positions, and a padding mask in it."""
    q, k, v = _cached(g, 2)
    mask = g.given("mask", "b", "past + n", dtype=np.int64)
    past = g.do("Sub", g.size(k, 2), g.size(q, 2))
    rows = g.do("Reshape", _positions(g, q, 2, past), g.integers(-1, 1))
    columns = _positions(g, k, 2)
    filled = g.do("Expand", g.constant(LOWEST), g.joined_sizes(g.size(q, 2), g.size(k, 2)))
    later = g.do("Cast", g.do("Greater", columns, rows), to=TensorProto.FLOAT)
    causal = g.do("Unsqueeze", g.do("Mul", filled, later), g.integers(0, 1))
    padding = g.do("Cast", g.do("Unsqueeze", mask, g.integers(1, 2)), to=TensorProto.FLOAT)
    hidden = g.do("Equal", g.do("Add", causal, padding), g.constant(0))
    added = g.do("Where", hidden, g.constant(LOWEST), causal)
    scores = g.do("MatMul", q, g.permuted(_repeated(g, k, 2), 0, 1, 3, 2))
    return g.together(g.weighted(g.do("Add", g.scaled(scores, SCALE), added), _repeated(g, v, 2)))


def optimum_gpt2(g: Graph) -> str:
    """A cache, and a part of a constant triangle that chooses between scores and the lowest number."""
    q, k, v = _cached(g, HEADS)
    scores = g.do("Div", g.do("MatMul", q, g.permuted(k, 0, 1, 3, 2)), g.constant(math.sqrt(SIZE)))
    triangle = g.constant(np.tri(1024, dtype=np.bool_)[None, None], np.bool_)
    keys = g.size(k, 2)
    rows = g.do("Slice", triangle, g.do("Sub", keys, g.size(q, 2)), keys, g.integers(2))
    seen = g.do("Slice", rows, g.integers(0), keys, g.integers(3))
    return g.together(g.weighted(g.do("Where", seen, scores, g.constant(LOWEST)), v))


def optimum_t5(g: Graph) -> str:
    """No scale, and a bias by the distance of positions, read from a table."""
    q, k, v = g.projections()
    rows = g.do("Unsqueeze", _positions(g, q, 1), g.integers(1))
    distance = g.do("Sub", g.do("Unsqueeze", _positions(g, k, 1), g.integers(0)), rows)
    near = g.do("Add", g.do("Clip", distance, *(g.constant(n, np.int64) for n in (-16, 15))), g.constant(16, np.int64))
    bias = g.do("Unsqueeze", g.permuted(g.do("Gather", g.weight(32, HEADS), near), 2, 0, 1), g.integers(0))
    scores = g.do("Add", g.do("MatMul", g.apart(q), g.apart(k, 0, 2, 3, 1)), bias)
    return g.together(g.weighted(scores, g.apart(v)))


def tf2onnx_keras(g: Graph) -> str:
    """Keras' MultiHeadAttention: Einsum over the axes as they are, a scale on queries, `(1 - mask) * -1e9`."""
    q, k, v = (g.given(name, "b", "n", HEADS, SIZE) for name in "qkv")
    mask = _from_zeros(g, g.given("mask", "b", "n", dtype=np.int32), -1e9)
    scores = g.do("Einsum", k, g.scaled(q, SCALE), equation="aecd,abcd->acbe")
    weights = g.do("Softmax", g.do("Add", scores, mask), axis=3)
    return g.do("Einsum", weights, v, equation="acbe,aecd->abcd")


def tf2onnx_matmul(g: Graph) -> str:
    """TensorFlow's BERT: a softmax in its steps."""
    q, k, v = g.projections()
    mask = _from_zeros(g, g.given("mask", "b", "n", dtype=np.int32), -1e4)
    scores = g.do("Add", g.scaled(g.do("MatMul", g.apart(q), g.apart(k, 0, 2, 3, 1)), SCALE), mask)
    axes = g.integers(-1)
    powers = g.do("Exp", g.do("Sub", scores, g.do("ReduceMax", scores, axes, keepdims=1)))
    weights = g.do("Div", powers, g.do("ReduceSum", powers, axes, keepdims=1))
    return g.together(g.do("MatMul", weights, g.apart(v)))


def optimizer_attention(g: Graph) -> str:
    """onnxruntime's Attention, with its projections and a mask of integers."""
    x, mask = g.given("x", "b", "n", WIDTH), g.given("mask", "b", "n", dtype=np.int32)
    operands = x, g.weight(WIDTH, 3 * WIDTH), g.weight(3 * WIDTH), mask
    return g.do("Attention", *operands, domain="com.microsoft", num_heads=HEADS)


def optimizer_multi_head(g: Graph) -> str:
    """onnxruntime's MultiHeadAttention."""
    return g.do("MultiHeadAttention", *g.projections("n", "m"), domain="com.microsoft", num_heads=HEADS)


def optimizer_fused_product(g: Graph) -> str:
    """onnxruntime's FusedMatMul, with the transposition and the scale in it."""
    q, k, v = g.projections()
    scores = g.do("FusedMatMul", g.apart(q), g.apart(k), domain="com.microsoft", transB=1, alpha=SCALE)
    return g.together(g.weighted(g.do("Add", scores, g.given("mask", "b", 1, "n", "n")), g.apart(v)))


def joined_flux(g: Graph) -> str:
    """Tokens of a text before those of an image, as they come; rotated; the results as two tensors again."""
    pairs = [[g.given(f"{part}_{name}", "b", part, HEADS, SIZE) for part in ("t", "i")] for name in "qkv"]
    q, k, v = (g.permuted(g.do("Concat", *pair, axis=1), 0, 2, 1, 3) for pair in pairs)
    cosine, sine = (g.given(name, "t + i", SIZE) for name in ("cos", "sin"))

    def rotated(x: str) -> str:
        first, second = g.several(2, "Split", x, axis=-1, num_outputs=2)
        transposed = g.do("Concat", g.do("Neg", second), first, axis=-1)
        return g.do("Add", g.do("Mul", x, cosine), g.do("Mul", transposed, sine))

    q, k = rotated(q), rotated(k)
    factor = _root_of_scale(g, q)
    scores = g.do("MatMul", g.do("Mul", q, factor), g.do("Mul", g.permuted(k, 0, 1, 3, 2), factor))
    made = g.together(g.weighted(scores, v))
    return g.do("Slice", made, g.size(pairs[0][0], 1), g.integers(2**63 - 1), g.integers(1))


def joined_sd3(g: Graph) -> str:
    """Tokens of an image before those of a text, joined when their heads are apart."""
    q, k, v = (
        g.do("Concat", *(g.apart(g.given(f"{p}_{name}", "b", p, WIDTH)) for p in ("i", "t")), axis=2) for name in "qkv"
    )
    factor = _root_of_scale(g, q)
    scores = g.do("MatMul", g.do("Mul", q, factor), g.do("Mul", g.permuted(k, 0, 1, 3, 2), factor))
    return g.together(g.weighted(scores, v))


def joined_with_mask(g: Graph) -> str:
    """Joined tokens, some of the text's of which are padding."""
    pairs = [[g.given(f"{part}_{name}", "b", part, HEADS, SIZE) for part in ("t", "i")] for name in "qkv"]
    q, k, v = (g.do("Concat", *pair, axis=1) for pair in pairs)
    image = pairs[0][1]
    ones = g.do("Expand", g.constant(True, np.bool_), g.joined_sizes(g.size(image, 0), g.size(image, 1)))
    seen = g.do("Concat", g.given("mask", "b", "t", dtype=np.bool_), ones, axis=1)
    mask = g.do("Where", g.do("Unsqueeze", seen, g.integers(1, 2)), g.constant(0), g.constant(-math.inf))
    scores = g.do("MatMul", g.permuted(q, 0, 2, 1, 3), g.permuted(k, 0, 2, 3, 1))
    scores = g.do("Add", g.scaled(scores, SCALE), mask)
    return g.permuted(g.weighted(scores, g.permuted(v, 0, 2, 1, 3)), 0, 2, 1, 3)


def cross(g: Graph) -> str:
    """Keys and values of another sequence; a scale on keys."""
    q, k, v = g.projections("n", "m")
    scores = g.do("MatMul", g.apart(q), g.scaled(g.apart(k, 0, 2, 3, 1), SCALE))
    return g.together(g.weighted(scores, g.apart(v)))


def windows_swin(g: Graph) -> str:
    """Windows of 7 × 7, a bias of positions, and a mask for each of 16 windows of an image."""
    x = g.do("Reshape", g.given("x", "w", WINDOW, 3 * WIDTH), g.integers(-1, WINDOW, 3, HEADS, SIZE))
    parts = g.permuted(x, 2, 0, 3, 1, 4)
    q, k, v = (g.do("Gather", parts, g.constant(n, np.int64), axis=0) for n in range(3))
    scores = g.do("MatMul", g.scaled(q, SCALE), g.permuted(k, 0, 1, 3, 2))
    scores = g.do("Add", scores, g.weight(1, HEADS, WINDOW, WINDOW))
    apart = g.do("Reshape", scores, g.integers(-1, 16, HEADS, WINDOW, WINDOW))
    hidden = np.where(np.random.default_rng(0).random((1, 16, 1, WINDOW, WINDOW)) < 0.3, -100.0, 0.0)
    scores = g.do("Reshape", g.do("Add", apart, g.constant(hidden)), g.integers(-1, HEADS, WINDOW, WINDOW))
    made = g.permuted(g.weighted(scores, v), 0, 2, 1, 3)
    return g.do("Reshape", made, g.integers(-1, WINDOW, WIDTH))


def sliding_window(g: Graph) -> str:
    """Keys at most 64 positions back, by comparisons of positions; scores or minus infinity."""
    q, k, v = g.projections()
    rows = g.do("Unsqueeze", _positions(g, q, 1), g.integers(1))
    columns = g.do("Unsqueeze", _positions(g, k, 1), g.integers(0))
    near = g.do("Greater", columns, g.do("Sub", rows, g.constant(64, np.int64)))
    seen = g.do("And", g.do("LessOrEqual", columns, rows), near)
    scores = g.scaled(g.do("MatMul", g.apart(q), g.apart(k, 0, 2, 3, 1)), SCALE)
    return g.together(g.weighted(g.do("Where", seen, scores, g.constant(-math.inf)), g.apart(v)))


def grouped_by_tile(g: Graph) -> str:
    """Heads of keys and values repeated by Tile."""
    q = g.permuted(g.given("q", "b", "n", HEADS, SIZE), 0, 2, 1, 3)
    shared = []
    for name in "kv":
        x = g.do("Unsqueeze", g.permuted(g.given(name, "b", "m", 2, SIZE), 0, 2, 1, 3), g.integers(2))
        shared.append(g.do("Reshape", g.do("Tile", x, g.integers(1, 1, 2, 1, 1)), g.integers(0, HEADS, -1, SIZE)))
    scores = g.scaled(g.do("MatMul", q, g.permuted(shared[0], 0, 1, 3, 2)), SCALE)
    return g.together(g.weighted(scores, shared[1]))


def grouped_by_axes(g: Graph) -> str:
    """An axis of queries more than keys have, over which products broadcast."""
    q = g.do("Reshape", g.given("q", "b", "n", WIDTH), g.integers(0, 0, 2, 2, SIZE))
    k, v = (g.do("Unsqueeze", g.permuted(g.given(x, "b", "m", 2, SIZE), 0, 2, 1, 3), g.integers(2)) for x in "kv")
    scores = g.do("MatMul", g.scaled(g.permuted(q, 0, 2, 3, 1, 4), SCALE), g.permuted(k, 0, 1, 2, 4, 3))
    made = g.permuted(g.weighted(scores, v), 0, 3, 1, 2, 4)
    return g.do("Reshape", made, g.integers(0, 0, WIDTH))


def grouped_by_gather(g: Graph) -> str:
    """`repeat_interleave`: heads of keys and values gathered by constant numbers."""
    q = g.permuted(g.given("q", "b", "n", HEADS, SIZE), 0, 2, 1, 3)
    k, v = (
        g.do("Gather", g.permuted(g.given(x, "b", "m", 2, SIZE), 0, 2, 1, 3), g.integers(0, 0, 1, 1), axis=1)
        for x in "kv"
    )
    scores = g.scaled(g.do("MatMul", q, g.permuted(k, 0, 1, 3, 2)), SCALE)
    return g.together(g.weighted(scores, v))


def parts_of_one_product(g: Graph) -> str:
    """ViT of timm: queries, keys and values in one tensor."""
    x = g.do("Reshape", g.given("x", "b", "n", 3 * WIDTH), g.integers(0, 0, 3, HEADS, SIZE))
    parts = g.several(3, "Split", g.permuted(x, 2, 0, 3, 1, 4), axis=0, num_outputs=3)
    q, k, v = (g.do("Squeeze", part, g.integers(0)) for part in parts)
    return g.together(g.weighted(g.do("MatMul", g.scaled(q, SCALE), g.permuted(k, 0, 1, 3, 2)), v))


def batches_of_heads(g: Graph) -> str:
    """`multi_head_attention_forward`: sequences first, batch elements and heads as one axis, a causal float mask."""
    q, k, v = (g.given(name, "n", "b", WIDTH) for name in "qkv")

    def apart(x: str) -> str:
        return g.permuted(g.do("Reshape", x, g.integers(0, -1, SIZE)), 1, 0, 2)

    scores = g.do("MatMul", apart(g.scaled(q, SCALE)), g.permuted(apart(k), 0, 2, 1))
    made = g.weighted(g.do("Add", scores, g.given("mask", "n", "n")), apart(v))
    return g.do("Reshape", g.permuted(made, 1, 0, 2), g.joined_sizes(g.size(q, 0), g.size(q, 1), g.integers(WIDTH)))


def columns_yolo(g: Graph) -> str:
    """YOLO11: positions come last, and values are multiplied with transposed weights."""
    x = g.do("Reshape", g.given("x", "b", 3 * WIDTH, "n"), g.integers(0, HEADS, 3 * SIZE, -1))
    q, k, v = g.several(3, "Split", x, axis=2, num_outputs=3)
    scores = g.scaled(g.do("MatMul", g.permuted(q, 0, 1, 3, 2), k), SCALE)
    made = g.do("MatMul", v, g.permuted(g.do("Softmax", scores, axis=-1), 0, 1, 3, 2))
    return g.do("Reshape", made, g.integers(0, WIDTH, -1))


def columns_keys_first(g: Graph) -> str:
    """Scores with keys as rows, and a softmax over these."""
    q, k, v = (g.given(name, "b", HEADS, SIZE, "n") for name in "qkv")
    scores = g.scaled(g.do("MatMul", g.permuted(k, 0, 1, 3, 2), q), SCALE)
    return g.do("MatMul", v, g.do("Softmax", scores, axis=2))


def soft_cap(g: Graph) -> str:
    """Gemma: scores between limits by tanh, and roots of the scale by powers."""
    q, k, v = g.projections()
    root = g.do("Pow", g.constant(float(SIZE)), g.constant(-0.25))
    scores = g.do("MatMul", g.do("Mul", g.apart(q), root), g.do("Mul", g.apart(k, 0, 2, 3, 1), root))
    scores = g.scaled(g.do("Tanh", g.do("Div", scores, g.constant(30))), 30)
    scores = g.do("Add", scores, g.given("mask", "b", 1, 1, "n"))
    return g.together(g.weighted(scores, g.apart(v)))


def softmax_in_casts(g: Graph) -> str:
    """A softmax between casts to float32, which all is anyway, and a dropout that does nothing."""
    q, k, v = g.projections()
    scores = g.scaled(g.do("MatMul", g.apart(q), g.apart(k, 0, 2, 3, 1)), SCALE)
    weights = g.do("Softmax", g.do("Cast", scores, to=TensorProto.FLOAT), axis=-1)
    weights = g.do("Dropout", g.do("Cast", weights, to=TensorProto.FLOAT))
    return g.together(g.do("MatMul", g.do("Identity", weights), g.apart(v)))


def _masked(g: Graph, q: str, k: str) -> tuple[str, str]:
    """Scores with minus infinity where a mask of booleans is false; and the mask."""
    mask = g.given("mask", "b", 1, 1, "n", dtype=np.bool_)
    scores = g.scaled(g.do("MatMul", g.apart(q), g.apart(k, 0, 2, 3, 1)), SCALE)
    return g.do("Where", mask, scores, g.constant(-math.inf)), mask


def safe_softmax(g: Graph) -> str:
    """torch.export's decomposition: zeros for rows of which all scores are minus infinity."""
    q, k, v = g.projections()
    scores, _ = _masked(g, q, k)
    hidden = g.do("Cast", g.do("Equal", scores, g.constant(-math.inf)), to=TensorProto.INT64)
    rows = g.do("Cast", g.do("ReduceMin", hidden, g.integers(-1), keepdims=1), to=TensorProto.BOOL)
    weights = g.do("Where", rows, g.constant(0), g.do("Softmax", scores, axis=-1))
    return g.together(g.do("MatMul", weights, g.apart(v)))


def masked_softmax(g: Graph) -> str:
    """DeBERTa, and NNEF's masked softmax: what is hidden before the softmax is made zero behind it."""
    q, k, v = g.projections()
    scores, mask = _masked(g, q, k)
    weights = g.do("Where", mask, g.do("Softmax", scores, axis=-1), g.constant(0))
    return g.together(g.do("MatMul", weights, g.apart(v)))


def kept_weights(g: Graph) -> str:
    """A factor for each head behind the softmax, and a logarithm of it in between."""
    q, k, v = g.projections("n", "m")
    scores = g.do("MatMul", g.apart(q), g.scaled(g.apart(k, 0, 2, 3, 1), SCALE))
    weights = g.do("Mul", g.do("Exp", g.do("LogSoftmax", scores, axis=-1)), g.given("kept", HEADS, 1, 1))
    return g.together(g.do("MatMul", weights, g.apart(v)))


def rows_between_heads(g: Graph) -> str:
    """Einsum with heads behind queries in the scores."""
    q, k, v = (g.given(name, "b", size, HEADS, SIZE) for name, size in (("q", "n"), ("k", "m"), ("v", "m")))
    scores = g.do("Einsum", g.scaled(q, SCALE), k, equation="bqhd,bkhd->bqhk")
    return g.do("Einsum", g.do("Softmax", scores, axis=-1), v, equation="bqhk,bkhd->bqhd")


@dataclass(frozen=True)
class Spelling:
    """One way to write attention."""

    build: Callable[[Graph], str]

    def model(self, sizes: Mapping[str, int] | None = None) -> onnx.ModelProto:
        """The model, with these sizes in place of their names."""
        graph = Graph()
        return _model({self.build(graph): graph}, sizes)

    def names(self) -> list[str]:
        """Of the dynamic dimensions."""
        graph = Graph()
        self.build(graph)
        return list(dict.fromkeys(str(size) for _, shape in graph.inputs.values() for size in shape if size in SIZES))

    def values(self, sizes: Mapping[str, int], prefix: str = "") -> dict[str, np.ndarray]:
        """Random values for the inputs."""
        graph, random = Graph(prefix), np.random.default_rng(1)
        self.build(graph)
        made = {}
        for name, (dtype, shape) in graph.inputs.items():
            whole = [int(_known(size, sizes)) for size in shape]
            if dtype is np.float32:
                made[name] = random.standard_normal(whole).astype(np.float32)
            else:
                made[name] = (random.random(whole) > 0.2).astype(dtype)
                made[name][..., 0] = True
        return made


def side_by_side(prefixes: Mapping[str, str], sizes: Mapping[str, int] | None = None) -> onnx.ModelProto:
    """A model of several spellings, by their names, with prefixes for the names of their tensors."""
    graphs = {}
    for name, prefix in prefixes.items():
        graph = Graph(prefix)
        graphs[SPELLINGS[name].build(graph)] = graph
    return _model(graphs, sizes)


SPELLINGS: Mapping[str, Spelling] = {
    "torchscript_bert": Spelling(torchscript_bert),
    "torchscript_sdpa_bool": Spelling(torchscript_sdpa_bool),
    "torchscript_sdpa_causal": Spelling(torchscript_sdpa_causal),
    "dynamo_sdpa": Spelling(dynamo_sdpa),
    "dynamo_sdpa_bool": Spelling(dynamo_sdpa_bool),
    "optimum_llama": Spelling(optimum_llama),
    "optimum_gpt2": Spelling(optimum_gpt2),
    "optimum_t5": Spelling(optimum_t5),
    "tf2onnx_keras": Spelling(tf2onnx_keras),
    "tf2onnx_matmul": Spelling(tf2onnx_matmul),
    "optimizer_attention": Spelling(optimizer_attention),
    "optimizer_multi_head": Spelling(optimizer_multi_head),
    "optimizer_fused_product": Spelling(optimizer_fused_product),
    "joined_flux": Spelling(joined_flux),
    "joined_sd3": Spelling(joined_sd3),
    "joined_with_mask": Spelling(joined_with_mask),
    "cross": Spelling(cross),
    "windows_swin": Spelling(windows_swin),
    "sliding_window": Spelling(sliding_window),
    "grouped_by_tile": Spelling(grouped_by_tile),
    "grouped_by_axes": Spelling(grouped_by_axes),
    "grouped_by_gather": Spelling(grouped_by_gather),
    "parts_of_one_product": Spelling(parts_of_one_product),
    "batches_of_heads": Spelling(batches_of_heads),
    "columns_yolo": Spelling(columns_yolo),
    "columns_keys_first": Spelling(columns_keys_first),
    "soft_cap": Spelling(soft_cap),
    "softmax_in_casts": Spelling(softmax_in_casts),
    "safe_softmax": Spelling(safe_softmax),
    "masked_softmax": Spelling(masked_softmax),
    "kept_weights": Spelling(kept_weights),
    "rows_between_heads": Spelling(rows_between_heads),
}
