"""One layer of a decoder as Optimum and torch.onnx export it: a cache of past positions, and a mask over all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["HEADS", "SIZE", "cached_decoder", "feeds", "merged_decoder"]

HEADS, SIZE, WORDS, LONGEST = 2, 8, 23, 64
_WIDTH = HEADS * SIZE
_CACHES = ("past_key_values.0.key", "past_key_values.0.value")


def _constants() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    causal = np.tril(np.ones((LONGEST, LONGEST), bool))[None, None]
    made: dict[str, Any] = {
        "words": rng.standard_normal((WORDS, _WIDTH)),
        "locations": rng.standard_normal((LONGEST, _WIDTH)),
        "qkv": rng.standard_normal((_WIDTH, 3 * _WIDTH)) / 4,
        "out": rng.standard_normal((_WIDTH, WORDS)) / 4,
        "scale": np.float32(SIZE**0.5),
        "lowest": np.float32(-1e9),
        "nothing": np.float32(0),
    }
    made = {name: np.asarray(array, np.float32) for name, array in made.items()}
    whole: dict[str, Any] = {
        "heads": [0, 0, HEADS, SIZE], "joined": [0, 0, _WIDTH], "0": [0], "1": [1], "2": [2], "3": [3], "one": 1,
        "zero": 0, "two": 2, "last": [1 << 62], "12": [1, 2],
    }  # fmt: skip
    return made | {"causal": causal} | {name: np.asarray(elements, np.int64) for name, elements in whole.items()}


def _node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


_OF_A_TABLE = (
    _node("Unsqueeze", "before 0", "start"),
    _node("Unsqueeze", "total 0", "end"),
    _node("Slice", "causal start end 2", "rows"),
    _node("Slice", "rows 0 end 3", "seen"),
)
_COMPUTED = (
    _node("Range", "before total one", "row_numbers"),
    _node("Range", "zero total one", "column_numbers"),
    _node("Unsqueeze", "row_numbers 1", "rows"),
    _node("LessOrEqual", "column_numbers rows", "seen"),
)


def _layer(cached: bool, table: bool, prefix: str = "") -> list[onnx.NodeProto]:
    """The nodes; positions are those of the mask's ones, as Optimum counts them."""
    key, value = _CACHES
    nodes = [
        _node("Shape", "input_ids", "ids_shape"),
        _node("Gather", "ids_shape one", "length"),
        _node("CumSum", "attention_mask one", "running"),
        _node("Sub", "running one", "all_positions"),
        _node("Neg", "length", "behind"),
        _node("Unsqueeze", "behind 0", "from"),
        _node("Slice", "all_positions from last 1", "position_ids"),
        _node("Gather", "words input_ids", "embedded"),
        _node("Gather", "locations position_ids", "placed"),
        _node("Add", "embedded placed", "x"),
        _node("MatMul", "x qkv", "projected"),
        _node("Split", "projected", "q k v", axis=2, num_outputs=3),
    ]
    for name in "qkv":
        nodes.append(_node("Reshape", f"{name} heads", f"{name}_apart"))
        nodes.append(_node("Transpose", f"{name}_apart", f"{name}_heads", perm=[0, 2, 1, 3]))
    joined = ("Concat", {"axis": 2}) if cached else ("Identity", {})
    nodes += [
        _node(joined[0], f"{key} k_heads" if cached else "k_heads", "all_keys", **joined[1]),
        _node(joined[0], f"{value} v_heads" if cached else "v_heads", "all_values", **joined[1]),
        _node("Transpose", "all_keys", "transposed", perm=[0, 1, 3, 2]),
        _node("MatMul", "q_heads transposed", "products"),
        _node("Div", "products scale", "scores"),
        # which positions may be seen: rows of a constant triangle, and the mask
        _node("Shape", "all_keys", "keys_shape"),
        _node("Gather", "keys_shape two", "total"),
        _node("Sub", "total length", "before"),
        *(_OF_A_TABLE if table else _COMPUTED),
        _node("Where", "seen scores lowest", "past_only"),
        _node("Unsqueeze", "attention_mask 12", "wide_mask"),
        _node("Cast", "wide_mask", "is_given", to=TensorProto.BOOL),
        _node("Where", "is_given nothing lowest", "added"),
        _node("Add", "past_only added", "masked"),
        _node("Softmax", "masked", "weights", axis=-1),
        _node("MatMul", "weights all_values", "mixed"),
        _node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
        _node("Reshape", "back joined", "flat"),
        _node("MatMul", "flat out", "logits"),
        _node("Identity", "all_keys", "present.0.key"),
        _node("Identity", "all_values", "present.0.value"),
    ]
    given = {"input_ids", "attention_mask", *_CACHES, *_constants()}
    nodes = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    for each in nodes:
        for names in (each.input, each.output):
            names[:] = [name if name in given else prefix + name for name in names]
    return nodes


def _inputs(length: int | str, past: int | str, total: int | str) -> list[onnx.ValueInfoProto]:
    info = helper.make_tensor_value_info
    return [
        info("input_ids", TensorProto.INT64, ["batch_size", length]),
        info("attention_mask", TensorProto.INT64, ["batch_size", total]),
        *(info(name, TensorProto.FLOAT, ["batch_size", HEADS, past, SIZE]) for name in _CACHES),
    ]


def _outputs(prefix: str = "") -> list[onnx.ValueInfoProto]:
    names = ("logits", "present.0.key", "present.0.value")
    return [helper.make_tensor_value_info(prefix + name, TensorProto.FLOAT, None) for name in names]


def _model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(array, name) for name, array in _constants().items()]
    graph = helper.make_graph(nodes, "decoder", inputs, _outputs(), constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def cached_decoder(
    total: str, length: int | str = "sequence_length", past: str = "past_sequence_length", table: bool = False
) -> onnx.ModelProto:
    """A decoder whose mask has `total` positions, as the exporter calls them.

    Args:
        length, past: what it calls the new positions, and those of the cache.
        table: whether the rows of a triangle are read from a constant, as long as sentences may be.
    """
    return _model(_layer(cached=True, table=table), _inputs(length, past, total))


def merged_decoder(total: str) -> onnx.ModelProto:
    """A decoder with an input that says whether there is a cache, in one file for both."""
    bodies = {}
    for name, cached in (("then_branch", True), ("else_branch", False)):
        prefix = f"{name}/"
        bodies[name] = helper.make_graph(_layer(cached, False, prefix), name, [], _outputs(prefix))
    outputs = [info.name for info in _outputs()]
    choice = helper.make_node("If", ["use_cache_branch_0"], outputs, **bodies)
    squeezed = _node("Squeeze", "use_cache_branch", "use_cache_branch_0")
    use_cache = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    return _model([squeezed, choice], [*_inputs("sequence_length", "past_sequence_length", total), use_cache])


def feeds(batch: int, length: int, past: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of a run: the first position of one sentence is not there."""
    mask = np.ones((batch, past + length), np.int64)
    if batch > 1:
        mask[1, 0] = 0
    made = {"input_ids": rng.integers(0, WORDS, (batch, length)), "attention_mask": mask}
    caches = {name: rng.standard_normal((batch, HEADS, past, SIZE)).astype(np.float32) for name in _CACHES}
    return made | caches
