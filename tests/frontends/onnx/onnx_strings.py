"""ONNX models that compute with strings: how they are made and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import nnefc

__all__ = ["ML", "STRING", "WORDS", "check", "model_of", "node", "texts"]

STRING, ML = TensorProto.STRING, "ai.onnx.ml"

WORDS = ("", "a", "b", "one two", "Ärger", "日本語", "😀!", "Straße", "null\0byte", "long" * 300)
"""Strings of all kinds: without bytes, with bytes of 0, of several bytes a character."""

RNG = np.random.default_rng(11)


def texts(*shape: int, words: Sequence[str] = WORDS) -> np.ndarray:
    """Random strings."""
    return RNG.choice(np.array(words, object), shape)


def node(op_type: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), domain=domain, **attributes)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    outputs: Mapping[str, int],
    **constants: Any,
) -> onnx.ModelProto:
    """A model; inputs by their type and shape, outputs by their type."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(proto: onnx.ModelProto, folder: Path, *feeds: Mapping[str, np.ndarray]) -> nnefc.Artifact:
    """One session gives what the standard's own evaluator gives, run after run."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    artifact = nnefc.compile(path)
    reference = ReferenceEvaluator(proto)
    with artifact.load(threads=2) as library:
        for feed in feeds:
            for result, expected in zip(library.run(feed).values(), reference.run(None, dict(feed)), strict=True):
                expected = expected.astype(object) if expected.dtype.kind == "U" else expected
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
                np.testing.assert_array_equal(result, expected)
    return artifact
