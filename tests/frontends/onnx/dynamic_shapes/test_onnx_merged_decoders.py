"""Decoders in one file for the first run and for those with a cache, as Optimum writes them, compared with
onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from cached_decoders import feeds, merged_decoder
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.loader import RunError
from nnefc.support.diagnostics import ModelWarning

RNG = np.random.default_rng(4)


def compiled(folder: Path, total: str) -> tuple[nnefc.Artifact, onnxruntime.InferenceSession]:
    path = folder / "decoder_model_merged.onnx"
    onnx.save(merged_decoder(total), path)
    return nnefc.compile(path), onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


Compiled = tuple[nnefc.Artifact, onnxruntime.InferenceSession, list[str]]


@pytest.fixture(scope="module")
def of_one_name(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """A decoder whose mask has a length of its own, "total"; and the warnings."""
    with pytest.warns(ModelWarning) as notes:
        artifact, session = compiled(tmp_path_factory.mktemp("decoder"), "total")
    return artifact, session, [str(note.message) for note in notes]


def check(library: nnefc.Model, session: onnxruntime.InferenceSession, given: dict[str, np.ndarray]) -> None:
    for made, expected in zip(library.run(given).values(), session.run(None, given), strict=True):
        assert made.shape == expected.shape
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def given(batch: int, length: int, past: int, cached: bool) -> dict[str, np.ndarray]:
    """Without a cache the mask is that of the new words, and the tensors of the cache are not looked at."""
    made = feeds(batch, length, past, RNG) | {"use_cache_branch": np.array([cached])}
    return made if cached else made | {"attention_mask": np.ones((batch, length), np.int64)}


@pytest.mark.filterwarnings("ignore:.*a run that takes the branch")
@pytest.mark.parametrize(
    "total",
    [pytest.param("attention_mask_sequence_length", marks=pytest.mark.slow), "past_sequence_length + sequence_length"],
)
@pytest.mark.slow
def test_both_branches_take_every_size(total: str, tmp_path: Path) -> None:
    artifact, session = compiled(tmp_path, total)
    with artifact.load(threads=1) as library:
        for batch, length, past in ((1, 5, 0), (2, 1, 5), (1, 1, 6), (3, 4, 7), (1, 17, 30)):
            check(library, session, given(batch, length, past, cached=True))
            check(library, session, given(batch, length, 0, cached=False))


def test_a_cache_that_is_not_read_may_have_any_length(of_one_name: Compiled) -> None:
    artifact, session, notes = of_one_name
    assert any("the branch 'then_branch' with" in note for note in notes)
    with artifact.load(threads=1) as library:
        for past in (1, 3):
            check(library, session, given(2, 4, past, cached=False))
        wrong = given(1, 4, 3, cached=True) | {"attention_mask": np.ones((1, 5), np.int64)}
        with pytest.raises(RunError, match="its operators do not take 'total' other than"):
            library.run(wrong)


def test_branches_share_their_weights(of_one_name: Compiled) -> None:
    artifact, _, _ = of_one_name
    weights = merged_decoder("total").graph.initializer
    whole = sum(np.prod(tensor.dims, dtype=int) * 4 for tensor in weights if tensor.data_type == 1)
    assert artifact.description.constant_bytes < 1.5 * whole


def branch(name: str, node: onnx.NodeProto, result: onnx.ValueInfoProto) -> onnx.GraphProto:
    return helper.make_graph([node], name, [], [result])


def test_branches_without_elements_and_with_sequences_of_other_lengths(tmp_path: Path) -> None:
    """As dummies are for what only one branch computes; and the messages about lists."""
    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    sequences = [helper.make_tensor_sequence_value_info(name, real, None) for name in ("twice", "once")]
    nodes = [
        helper.make_node(
            "If",
            ["c"],
            ["present"],
            then_branch=branch("then", helper.make_node("Neg", ["x"], ["full"]), info("full", real, None)),
            else_branch=branch("else", helper.make_node("Identity", ["none"], ["empty"]), info("empty", real, None)),
        ),
        helper.make_node(
            "If",
            ["c"],
            ["list"],
            then_branch=branch("two", helper.make_node("SequenceConstruct", ["x", "x"], ["twice"]), sequences[0]),
            else_branch=branch("one", helper.make_node("SequenceConstruct", ["x"], ["once"]), sequences[1]),
        ),
        helper.make_node("ConcatFromSequence", ["list"], ["joined"], axis=0),
        helper.make_node("SequenceLength", ["list"], ["length"]),
    ]
    outputs = [info("present", real, None), info("joined", real, None), info("length", TensorProto.INT64, None)]
    none = numpy_helper.from_array(np.zeros((0, 3, 1), np.float32), "none")
    inputs = [info("x", real, ["n", 3, 2]), info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [none])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with nnefc.compile(path).load(threads=1) as library:
        for n, chosen in ((1, True), (4, False), (4, True), (1, False)):
            check(library, session, {"x": RNG.random((n, 3, 2), np.float32), "c": np.array(chosen)})
