"""Operators of ai.onnx.preview and ai.onnx.ml."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx_models import FLOAT, INT64, graph, info, loaded, model, node, results, tensor

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError, ModelWarning
from nnefc.targets.machine.cpu.parsing import parse_target

RNG = np.random.default_rng(3)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.sample(2)
def test_attention_with_graphs_and_shared_heads(tmp_path: Path, heads: int, shared: int, scale: float | None) -> None:
    """One graph bends the scores by a value of the graph around, the other one halves the probabilities."""
    score = graph([node("Mul", ["s", "w"], ["m"]), node("Tanh", ["m"], ["t"])], [info("s", None)], [info("t", None)])
    probability = graph(
        [node("Mul", ["p", "half"], ["q"])], [info("p", None)], [info("q", None)], [tensor("half", 0.5)]
    )
    given = {} if scale is None else {"scale": scale}
    attend = node(
        "FlexAttention",
        ["q_", "k_", "v_"],
        ["y"],
        domain="ai.onnx.preview",
        score_mod=score,
        prob_mod=probability,
        **given,
    )
    q = RNG.standard_normal((2, heads, 5, 8)).astype(np.float32)
    k = RNG.standard_normal((2, shared, 7, 8)).astype(np.float32)
    v = RNG.standard_normal((2, shared, 7, 3)).astype(np.float32)
    arrays = {"q_": q, "k_": k, "v_": v, "w": np.array(0.7, np.float32)}
    proto = model(
        [attend], [info(name, a.shape) for name, a in arrays.items()], [info("y", None)], imports={"ai.onnx.preview": 1}
    )
    found = results(loaded(proto, tmp_path), **arrays)["y"]
    factor = 1 / np.sqrt(8) if scale is None else scale
    keys, values = (np.repeat(a.astype(np.float64), heads // shared, 1) for a in (k, v))
    scores = np.tanh(0.7 * factor * q.astype(np.float64) @ keys.swapaxes(-1, -2))
    np.testing.assert_allclose(found, 0.5 * softmax(scores) @ values, rtol=1e-4, atol=1e-5)


def test_dynamic_heads_share_those_of_which_they_are_a_multiple(tmp_path: Path) -> None:
    attend = node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview")
    inputs = [info(name, (1, count, rows, 8)) for name, count, rows in (("q", "h", 5), ("k", "g", 7), ("v", "g", 7))]
    path = tmp_path / "model.onnx"
    path.write_bytes(model([attend], inputs, [info("y", None)], imports={"ai.onnx.preview": 1}).SerializeToString())
    with pytest.warns(ModelWarning, match=r"h % g must be 0 for the network's operators"):
        artifact = nnefc.compile(path)
    with artifact.load() as library:
        for heads, shared in ((6, 2), (3, 3), (4, 1)):
            q = RNG.standard_normal((1, heads, 5, 8)).astype(np.float32)
            k, v = (RNG.standard_normal((1, shared, 7, 8)).astype(np.float32) for _ in range(2))
            keys, values = (np.repeat(a.astype(np.float64), heads // shared, 1) for a in (k, v))
            expected = softmax(q.astype(np.float64) @ keys.swapaxes(-1, -2) / np.sqrt(8)) @ values
            np.testing.assert_allclose(library(q, k, v), expected, rtol=1e-4, atol=1e-5)
        few = np.zeros((1, 3, 7, 8), np.float32)
        with pytest.raises(RunError, match="is 1, but the network takes 0"):
            library(np.zeros((1, 4, 5, 8), np.float32), few, few)


def test_graphs_of_attention_keep_the_shape(tmp_path: Path) -> None:
    score = graph([node("ReduceSum", ["s"], ["t"])], [info("s", None)], [info("t", None)])
    attend = node("FlexAttention", ["q", "q", "q"], ["y"], domain="ai.onnx.preview", score_mod=score)
    proto = model([attend], [info("q", (1, 2, 3, 4))], [info("y", None)], imports={"ai.onnx.preview": 1})
    with pytest.raises(CompileError, match=r"'score_mod' must give one tensor, float32\[1, 2, 3, 3\]"):
        loaded(proto, tmp_path)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
def test_features_are_taken_along_the_last_axis(tmp_path: Path, shape: tuple[int, ...]) -> None:
    take = node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml")
    binary = node("Binarizer", ["y"], ["b"], domain="ai.onnx.ml", threshold=0.25)
    proto = model(
        [take, binary],
        [info("x", shape, FLOAT), info("i", (1, 3), INT64)],
        [info("y", None), info("b", None)],
        imports={"ai.onnx.ml": 1},
    )
    x = RNG.standard_normal(shape).astype(np.float32)
    x.flat[0] = 0.25
    inputs = {"x": x, "i": np.array([[0, 4, 2]])}
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)
    found = compile_network(loaded(proto, tmp_path), parse_target("llvm")).run(inputs)  # whole: it checks indices
    for name, array in zip(("y", "b"), expected, strict=True):
        np.testing.assert_array_equal(found[name], array)
