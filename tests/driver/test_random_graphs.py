"""Random graphs of ONNX's operators (`tests/fuzz/graphs`): some in every run of the tests, and what judges them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import comparison
import ml_dtypes
import numpy as np
import onnx
import peer
import pytest
import seeds
from bounds import bounds_of
from comparison import Arrays, compare, difference
from corpus import CORPUS, read_case
from dynamic_dims import may_be_dynamic
from exact_products import HAS_EXACT_PRODUCTS
from graph import Graph
from onnx.reference import ReferenceEvaluator
from record import Record
from reference import OWN
from seeds import libraries, opset_of
from shrinking import shrunk
from simpler import SIMPLER
from spaces import SPACES
from spaces.strings_space import WITH_STRINGS
from spaces.values_space import WITH_SEQUENCES
from steps import OPSET
from walk import OF_NO_SET, Walk
from ways import WAYS

import nnefc

_NOT_INFERRED = ("AveragePool", "LpPool", "MaxPool", "MeanVarianceNormalization", "OneHot")
"""Operators of which ONNX's inference refuses what the standard allows, or takes windows behind an image."""


_DEFINED = {"CausalConvWithState": 27, "LinearAttention": 27, "SwiGLU": 28}
"""Operators that onnxruntime lacks, with their first operator sets."""
_SINCE = {
    "Attention": 23, "RMSNormalization": 23, "RotaryEmbedding": 23, "Swish": 24, "TensorScatter": 24, **_DEFINED,
}  # fmt: skip
"""The first operator sets of newer operators."""


_OTHERWISE = {"AffineGrid": b"align_corners", "Attention": b"is_causal", "Resize": b"align_corners"}
"""Attributes with which onnxruntime takes other corners, other lengths, and no keys of the past for those before."""


_PARTLY = ("Attention", "GRU", "LSTM", "OneHot", "RNN", "Resize")
"""Operators that onnxruntime has not in all types, with all masks, layouts and activations, or of all axes."""


# fmt: off
_OF_BYTES = {"ConvInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QAttention", "QGemm", "QLinearConv"}
_WITHOUT_PEER = frozenset((
    "BiasAdd", "BiasDropout", "BiasSoftmax", "BiasSplitGelu", "ComplexMul", "ComplexMulConj",
    "DecoderMaskedMultiHeadAttention", "FusedMatMulActivation", "GemmFastGelu", "GroupNorm", "Irfft", "MulInteger",
    "NhwcConv", "NhwcFusedConv", "PackedAttention", "PackedMultiHeadAttention", "QLinearReduceMean", "QLinearSoftmax",
    "ReduceSumInteger", "Rfft", "SkipGroupNorm",
))
# fmt: on
"""Operators that onnxruntime computes on other processors alone, and one that it does not round to the nearest byte."""

_EXPERIMENTS = OF_NO_SET - {"SimplifiedLayerNormalization"}
"""Operators that onnxruntime has in the first operator sets alone."""


def graph_of(seed: int, steps: int, *kinds: str) -> Graph:
    """A random graph, of some kinds of operators alone if there are any."""
    walk = Walk(seed, f"s{seed}_")
    walk.take({kind: SPACES[kind] for kind in kinds or SPACES}, steps)
    return walk.graph()


@pytest.mark.parametrize(
    ("seed", "way"),
    [
        (1, "default"),
        (2, "open"),
        (3, "x86-64"),
        (4, "nnef"),
        (5, "strict"),
        (6, "passes"),
        (7, "cuda"),
        (8, "reproducible open"),
        (9, "states"),
        (10, "special values"),
        (11, "float16"),
        (12, "float64"),
        (13, "bf16"),
        (14, "bfloat16"),
        pytest.param(15, "cuda fp16", marks=pytest.mark.slow),
    ],
)
@pytest.mark.sample(7)
def test_graphs_agree_with_float64(seed: int, way: str) -> None:
    count = 1 if WAYS[way].validates else 2  # each pass by itself takes a while
    outcome = compare([seeds.graph_of(2 * seed + number, 3, WAYS[way]) for number in range(count)], WAYS[way])
    assert not outcome.findings
    assert outcome.agreed + len(outcome.refused) + len(outcome.doubtful) + outcome.counts["not judged"] == count


def _one_of_each_way() -> Iterator[object]:
    """The first graph that was found in each way; the others are slow."""
    seen: set[str] = set()
    for path in sorted(CORPUS.glob("*.txt")):
        way = re.findall("^# way: (.*)", path.read_text(encoding="utf-8"), re.MULTILINE)[0]
        yield pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if way in seen else [])
        seen.add(way)


@pytest.mark.parametrize("path", list(_one_of_each_way()))
@pytest.mark.sample(6)
def test_what_was_found_stays_fixed(path: Path) -> None:
    case = read_case(path)
    assert compare([case.graph], case.way).agreed == 1


def test_a_library_of_dynamic_sizes_is_run_with_others() -> None:
    way = replace(WAYS["open"], other_sizes=4)
    case = read_case(CORPUS / "surplus_threads.txt")
    outcome = compare([case.graph], way)
    assert outcome.agreed == 1 and not outcome.findings
    assert 0 < outcome.counts["of other sizes"] <= 4


def test_a_graph_is_the_same_for_the_same_seed() -> None:
    one, other = graph_of(7, 12), graph_of(7, 12)
    assert one.model().SerializeToString() == other.model().SerializeToString()
    assert len(one.steps) >= 12


@pytest.mark.parametrize("kind", sorted(WITH_SEQUENCES))
def test_steps_of_several_nodes_are_the_same_by_other_names(kind: str) -> None:
    graph = graph_of(4, 2, kind)
    names = {name: f"{name}_again" for step in graph.steps for name in step.node.output}
    twice = replace(
        graph,
        steps=[*graph.steps, *(step.renamed(names) for step in graph.steps)],
        outputs=[*graph.outputs, *(replace(tensor, name=names[tensor.name]) for tensor in graph.outputs)],
    ).with_values()
    onnx.checker.check_model(twice.model(), full_check=True)
    assert all((twice.tensors[name].exact == twice.tensors[again].exact).all() for name, again in names.items())


@pytest.mark.parametrize("opset", range(13, 29))
def test_graphs_of_each_operator_set_are_valid(opset: int) -> None:
    walk = Walk(opset, opset=opset, without=frozenset(_NOT_INFERRED) | OF_NO_SET)
    walk.take(SPACES, 40)
    model = walk.graph().model()
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == opset
    assert len(model.graph.node) >= 40


def test_graphs_of_one_library_are_of_one_operator_set() -> None:
    parts = list(libraries(range(40, 2000), list(WAYS.values()), alone=False))
    assert [seed for seeds, _ in parts for seed in seeds] == list(range(40, 2000))
    drawn = [{opset_of(seed) for seed in seeds} for seeds, _ in parts]
    assert all(len(opsets) == 1 for opsets in drawn)
    assert set(range(13, 29)) >= set().union(*drawn) > {21}


@pytest.mark.parametrize("opset", [13, 17, 22, 28])
@pytest.mark.sample(2)
def test_graphs_of_other_operator_sets_agree_with_float64(opset: int) -> None:
    walk = Walk(opset, opset=opset)
    walk.take(SPACES, 5)
    outcome = compare([walk.graph()], WAYS["default"])
    assert not outcome.findings


def test_a_wrong_graph_is_reported_from_others_in_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [graph_of(seed, 2) for seed in range(40, 45)]

    def wrong(graph: Graph, *_: object) -> list[Arrays]:
        found = {tensor.name: np.array(tensor.array) for tensor in graph.outputs}
        for name in found:
            if name.startswith("s43_"):
                found[name] = np.zeros_like(found[name]) if found[name].any() else np.ones_like(found[name])
        return [found]

    monkeypatch.setattr(comparison, "run", wrong)
    outcome = compare(graphs, WAYS["default"])
    assert [finding.graph.seed for finding in outcome.findings] == [43]
    assert outcome.agreed == 4


@pytest.mark.parametrize("first", ["right", "doubtful"])
def test_results_with_another_number_of_threads_are_judged_too(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(41, 2)
    right = {tensor.name: tensor.array for tensor in graph.outputs}
    doubtful = {name: np.asarray(value + 1, value.dtype) for name, value in right.items()}
    wrong = {name: np.asarray(value + 7, value.dtype) for name, value in right.items()}
    monkeypatch.setattr(comparison, "run", lambda *_: [doubtful if first == "doubtful" else right, wrong])
    monkeypatch.setattr(comparison, "peer_results", lambda *_: doubtful)
    (finding,) = compare([graph], WAYS["default"]).findings
    assert finding.graph is graph


def test_a_peer_computes_in_a_process_of_its_own() -> None:
    graph = graph_of(41, 2, "Relu", "Add")
    found = peer.peer_results(graph.model(), graph.feeds())
    assert not isinstance(found, str)
    assert difference(found, bounds_of(graph)) == ""


def test_a_peer_that_ends_its_process_is_an_outcome_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(41, 2)
    wrong = {tensor.name: np.asarray(tensor.array + 7, tensor.array.dtype) for tensor in graph.outputs}
    monkeypatch.setattr(comparison, "run", lambda *_: [wrong])
    for status, ending in ((-11, peer.ENDED), (3, peer.REFUSED)):
        done = subprocess.CompletedProcess([], status)
        monkeypatch.setattr(peer.subprocess, "run", lambda *_, done=done, **__: done)
        outcome = compare([graph], WAYS["default"])
        assert [finding.peer for finding in outcome.findings] == [ending]
        assert outcome.counts["ended the peer"] == (ending == peer.ENDED)


def test_what_was_written_as_nnef_must_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(reason: str) -> None:
        raise nnefc.CompileError(reason)

    graph = graph_of(40, 2, "Relu", "Add")
    monkeypatch.setattr(nnefc, "compile", lambda *_, **__: refusing("no"))
    assert [finding.what for finding in compare([graph], WAYS["nnef"]).findings] == [
        "what was written is refused: error: no"
    ]
    assert [finding.what for finding in compare([graph], WAYS["default"]).findings] == ["refused: error: no"]
    assert compare([graph], WAYS["open"]).refused == ("error: no",)
    monkeypatch.setattr(nnefc, "compile", lambda *_, **__: refusing("sizes cannot stay open: no"))
    assert compare([graph], WAYS["open"]).findings  # for an error that is none of the compiler's own
    monkeypatch.setattr(nnefc, "convert", lambda *_, **__: refusing("no"))
    assert compare([graph], WAYS["nnef"]).refused == ("error: no",)


def test_graphs_that_are_refused_only_together_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [graph_of(seed, 2) for seed in (40, 41)]

    def run(graph: Graph, *_: object) -> list[Arrays]:
        if len(graph.outputs) == sum(len(one.outputs) for one in graphs):
            raise nnefc.CompileError("no")
        return [{tensor.name: tensor.array for tensor in graph.outputs}]

    monkeypatch.setattr(comparison, "run", run)
    outcome = compare(graphs, WAYS["default"])
    assert [finding.what for finding in outcome.findings] == ["refused: error: no [in none of the halves]"]


def test_an_emulator_that_fails_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> list[Arrays]:
        raise AssertionError("qemu-arm: /build/accel.c:12: translate: Assertion `host' failed.")

    monkeypatch.setattr(comparison, "run", failing)
    outcome = compare([graph_of(40, 2), graph_of(41, 2)], WAYS["armv7"])
    assert outcome.counts == {"not run": 2}
    assert not outcome.findings and not outcome.refused


def test_graphs_of_whose_results_nothing_is_asked_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(12)
    (zero_scaled,) = walk.add("Mul", walk.new_input((3,)), walk.constant(np.float32(0)))
    for part in (0.3, 0.2, 0.5):
        (zero_scaled,) = walk.add("Add", zero_scaled, walk.constant(np.float32(part)))
    (floor,) = walk.add("Floor", zero_scaled)
    monkeypatch.setattr(comparison, "run", lambda *_: [{floor.name: 1 - floor.array}])
    outcome = compare([walk.graph()], WAYS["default"])
    assert (outcome.agreed, outcome.counts) == (0, {"not judged": 1})


def test_a_library_that_fails_is_halved_to_the_graph_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [graph_of(seed, 2) for seed in range(40, 45)]

    def failing(graph: Graph, *_: object) -> list[Arrays]:
        if any(tensor.name.startswith("s42_") for tensor in graph.outputs):
            raise ValueError("no")
        return [{tensor.name: tensor.array for tensor in graph.outputs}]

    monkeypatch.setattr(comparison, "run", failing)
    outcome = compare(graphs, WAYS["default"])
    assert [(finding.graph.seed, finding.what) for finding in outcome.findings] == [(42, "ValueError: no")]
    assert outcome.agreed == 4


def test_results_that_are_wrong_in_one_element_are_reported_from_rounding() -> None:
    walk = Walk(11)
    x = walk.new_input((5, 7))
    (product,) = walk.add("MatMul", x, walk.constant(walk.random((7, 9))))
    walk.add("Tanh", product)
    graph = walk.graph()
    bounds = bounds_of(graph)
    (name,) = bounds
    rounded = np.tanh(x.array @ graph.constants[0].array)
    assert difference({name: rounded}, bounds) == ""
    rounded[3, 4] += 3e-5
    assert "[3, 4]" in difference({name: rounded}, bounds)


@pytest.mark.parametrize(("floats", "precision"), [("float16", ""), ("float32", "bf16"), ("float32", "fp16")])
def test_float16_are_rounded_and_no_more(floats: str, precision: str) -> None:
    walk = Walk(17, floats=floats)
    x = walk.new_input((5, 7))
    weights = walk.constant(walk.random((7, 9)))
    (product,) = walk.add("MatMul", x, weights)
    walk.add("Tanh", product)
    bounds = bounds_of(walk.graph(), precision)
    (name,) = bounds
    half = ml_dtypes.bfloat16 if precision == "bf16" else np.float16
    narrow = [each.array.astype(half).astype(np.float32) for each in (x, weights)]
    rounded = np.tanh((narrow[0] @ narrow[1]).astype(half).astype(np.float32)).astype(half).astype(np.float32)
    assert difference({name: rounded}, bounds) == ""
    assert difference({name: np.tanh(narrow[0] @ narrow[1] * 0.9)}, bounds)


def test_doubles_are_not_rounded_to_single_precision() -> None:
    walk = Walk(18, floats=np.float64)
    walk.add("Exp", walk.add("MatMul", walk.new_input((5, 7)), walk.constant(walk.random((7, 9))))[0])
    graph = walk.graph()
    bounds = bounds_of(graph)
    (output,) = graph.outputs
    assert difference({output.name: output.array}, bounds) == ""
    assert difference({output.name: output.array.astype(np.float32)}, bounds)


@pytest.mark.parametrize("operator", ["ReduceSum", "ReduceMean", "ReduceL1"])
def test_an_element_that_a_long_sum_lacks_is_reported_from_rounding(operator: str) -> None:
    walk = Walk(14)
    x = walk.new_input((1 << 14,))
    walk.add(operator, x, keepdims=0)
    (bound,) = bounds_of(walk.graph()).values()
    lacking = int(np.argmin(np.abs(np.abs(x.exact) - 1)))
    terms = np.abs(x.exact) if operator == "ReduceL1" else x.exact
    count = terms.size if operator == "ReduceMean" else 1
    assert difference({bound.name: np.asarray(terms.sum() / count, np.float32)}, {bound.name: bound}) == ""
    wrong = np.asarray((terms.sum() - terms[lacking]) / count, np.float32)
    assert difference({bound.name: wrong}, {bound.name: bound})


def test_the_mean_of_equal_elements_is_not_exact() -> None:
    walk = Walk(16)
    (x,) = walk.add("Expand", walk.constant(np.float32(1.7)), walk.integers(2, 51))
    walk.add("LayerNormalization", x, walk.constant(walk.random((51,))), axis=-1, epsilon=0.1)
    bounds = bounds_of(walk.graph())
    (name,) = bounds
    assert difference({name: np.full((2, 51), 1e-6, np.float32)}, bounds) == ""
    assert bounds[name].own.max() < 1e-4


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_equal_terms_may_be_added_one_after_the_other(lanes: int) -> None:
    walk = Walk(15)
    (x,) = walk.add("Expand", walk.constant(np.float32(0.1)), walk.integers(1 << 14))
    walk.add("ReduceSum", x, keepdims=0)
    bounds = bounds_of(walk.graph())
    (name,) = bounds
    found = np.cumsum(x.array.reshape(-1, lanes), 0)[-1].sum()
    assert difference({name: np.asarray(found)}, bounds) == ""


def test_nothing_is_asked_of_what_a_rounding_may_turn() -> None:
    walk = Walk(12)
    (zero_scaled,) = walk.add("Mul", walk.new_input((3,)), walk.constant(np.float32(0)))
    (zero_scaled,) = walk.add("Add", zero_scaled, walk.constant(np.float32(0.3)))
    (zero_scaled,) = walk.add("Add", zero_scaled, walk.constant(np.float32(0.2)))
    walk.add("Floor", walk.add("Add", zero_scaled, walk.constant(np.float32(0.5)))[0])
    graph = walk.graph()
    bounds = bounds_of(graph)
    (name,) = bounds
    assert difference({name: np.zeros(3, np.float32)}, bounds) == ""
    assert difference({name: np.ones(3, np.float32)}, bounds) == ""


def test_a_graph_that_fails_becomes_small() -> None:
    graph = graph_of(21, 12)
    kind = next(step.node.op_type for step in graph.steps[4:] if len(step.nodes) == 1)
    small = shrunk(graph, lambda candidate: kind in candidate.operators(), maximum=200)
    assert small.operators() == [kind]


_EVALUATED_HERE = OWN.keys() | SIMPLER.keys() | WITH_SEQUENCES | WITH_STRINGS | {"If", "Loop", "Scan"}
"""Operators that ONNX's reference does not evaluate, some of which have no random nodes of their own."""


@pytest.mark.parametrize("kind", sorted((_EVALUATED_HERE & SPACES.keys()) - _WITHOUT_PEER))
@pytest.mark.sample(4)
def test_what_the_reference_does_not_evaluate_is_what_onnxruntime_computes(kind: str) -> None:
    """Of operators that onnxruntime lacks, it is what ONNX's definition by other operators gives."""
    if kind in _OF_BYTES and not HAS_EXACT_PRODUCTS:
        pytest.skip("needs: a processor on which onnxruntime's products of bytes are exact")
    compared = 0
    for seed in range(60):
        opset = 9 if kind in _EXPERIMENTS else max(OPSET, _SINCE.get(kind, 0))
        walk = Walk(seed, opset=opset, without=(_WITHOUT_PEER | _EXPERIMENTS) - {kind})
        walk.take({kind: SPACES[kind], "Add": SPACES["Add"]}, 3)
        graph = walk.graph()
        if kind not in graph.operators():
            continue
        if kind in _OTHERWISE and _OTHERWISE[kind] in graph.model().SerializeToString():
            continue
        if kind in _DEFINED:
            values = ReferenceEvaluator(graph.model()).run(None, graph.feeds())
            found = dict(zip([tensor.name for tensor in graph.outputs], values, strict=True))
        else:
            found = peer.results_here(graph.model().SerializeToString(), graph.feeds())
        assert found is not None or kind in _PARTLY
        if found is None:
            continue
        assert difference(found, bounds_of(graph)) == ""
        compared += 1
        if compared == 3:
            return
    raise AssertionError(f"{compared} were compared")


def test_sizes_stay_open_that_operators_ask_something_of_which_holds() -> None:
    walk = Walk(13)
    x, y = walk.new_input((3, 8)), walk.new_input((1, 8))
    walk.add("DepthToSpace", walk.add("Unsqueeze", x, walk.integers(2, 3))[0], blocksize=2)
    walk.add("Add", x, y)
    graph = walk.graph()
    opened = [may_be_dynamic(replace(graph, seed=seed)) for seed in range(12)]
    assert any({"x0_1", "x1_1"} <= names for names in opened)  # equal multiples of 4
    assert any({"x0_0", "x1_0"} <= names for names in opened)  # one of which is 1 in the run, and broadcast


def test_counts_of_another_file_are_moved_to_a_record(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    Record({"graphs": {"open": {"graphs": 3}}}).add_to(one)
    Record({"graphs": {"open": {"graphs": 4}}}).add_to(other)
    Record.move(other, one)
    assert Record.of(one) == {"graphs": {"open": {"graphs": 7}}}
    assert not other.exists()


def test_what_each_run_looks_at_again_is_not_added() -> None:
    one = Record({"states": {"a": 3, "b": 5}, "runtime": {"runs": 2}})
    assert one + {"states": {"a": 4}, "runtime": {"runs": 1}} == {"states": {"a": 4}, "runtime": {"runs": 3}}


def test_a_record_is_not_moved_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    Record({"graphs": 3}).add_to(path)
    with pytest.raises(click.UsageError, match="is the record itself"):
        Record.move(tmp_path / "." / "one.json", path)
    assert Record.of(path) == {"graphs": 3}


def test_counts_are_moved_once_if_the_file_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    Record({"graphs": 4}).add_to(other)

    def failing(_: Path) -> None:
        raise OSError("no")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no"):
        patch.setattr(Path, "unlink", failing)
        Record.move(other, one)
    assert not other.exists()
    assert Record.of(one) == {"graphs": 4}
