"""`nnefc profile`, and what it shows: which kernel computes what of the model. No test depends on how long it takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper
from onnx_models import graph, info, model, node, save, tensor
from runtime_samples import sample_library

import nnefc
from nnefc.cli import main
from nnefc.cli.view import described_library
from nnefc.diagnostics import CompileError
from nnefc.library_graph import graph_of_library, lifetimes

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"
NAMED = {"norm1", "relu1", "norm2", "relu2", "pool2", "flat", "score", "probability"}


def profile(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["profile", *map(str, arguments)])


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "digits.so"
    nnefc.compile(DIGITS, profile=True).export(path)
    return path


def test_every_tensor_of_the_model_is_computed_somewhere(digits: Path) -> None:
    result = profile(digits, "--runs", 4, "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["runs"] == 4
    kernels = record["kernels"]
    assert {name for kernel in kernels for name in kernel["tensors"]} >= NAMED
    assert all(kernel["calls"] == 4 and kernel["seconds"] > 0 and kernel["bytes"] > 0 for kernel in kernels)
    (last,) = (kernel for kernel in kernels if "score" in kernel["tensors"])
    assert last["operations"] >= 2 * 512 * 10 + 10  # columns are added up to a vector's
    begins = [kernel["last_begin"] for kernel in kernels]
    assert begins == sorted(begins)


def test_the_table_and_the_trace(digits: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    result = profile(digits, "--seconds", 0.01, "--top", 2, "--trace", trace)
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["ms", "a", "run", "share", "calls", "GFLOP/s", "GB/s", "kernel", "rule", "tensors"]
    assert len(lines) == 4 and "more:" in lines[2] and "outside of kernels" in lines[3]
    events = json.loads(trace.read_text())["traceEvents"]
    assert {name for event in events for name in event["name"].split(", ")} >= NAMED
    assert min(event["ts"] for event in events) == 0 and all(event["dur"] >= 0 for event in events)
    for by in ("kernel", "rule"):
        grouped = profile(digits, "--runs", 1, "--by", by).stdout.splitlines()
        assert "places" in grouped[0] and any("ContractionRule" in line for line in grouped)


def test_the_page_shows_where_time_and_memory_go(digits: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = profile(digits, "--runs", 3, "--html", page)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    for title in ("Time by operator of the model", "Roofline", "call by call", "Workspace", "The largest constants"):
        assert f"<h2>{title}" in text or f"{title}</h2>" in text
    assert "<td>conv + batch_normalization + relu</td>" in text and "<td>linear</td>" in text
    assert text.count("<circle") >= 4 and 'class="roof"' in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    wrong = profile(digits, "--runs", 1, "--html", tmp_path / "report.pdf")
    assert (wrong.exit_code, wrong.stdout) == (1, "")


def test_a_library_that_is_timed_is_shown_as_a_graph(digits: Path, tmp_path: Path) -> None:
    found = described_library(digits)
    graph = graph_of_library(found)
    assert [node.kind for node in graph.nodes if node.kind in ("input", "output")] == ["input", "output"]
    assert all(edge.source < edge.target and edge.label != "called before" for edge in graph.edges)
    read = {edge.target for edge in graph.edges}
    assert read == set(range(1, len(graph.nodes)))  # all but the input
    lives = lifetimes(found.kernels)
    assert max(life.offset + life.bytes for life in lives) <= found.workspace_bytes
    for number, life in enumerate(lives):
        for other in lives[:number]:
            in_time = other.first < life.last and life.first < other.last
            in_place = other.offset < life.offset + life.bytes and life.offset < other.offset + other.bytes
            assert not (in_time and in_place)
    page = tmp_path / "library.html"
    assert CliRunner().invoke(main, ["view", str(digits), "-o", str(page)]).exit_code == 0
    assert 'class="box"' in page.read_text(encoding="utf-8")
    plain = CliRunner().invoke(main, ["view", str(sample_library()), "-o", str(page)])
    assert plain.exit_code == 1 and "compile the model with --profile" in plain.stderr


def test_kernels_of_open_sizes_are_shown_in_the_order_of_their_calls(tmp_path: Path) -> None:
    nodes = [node("Softmax", ["x"], ["a"]), node("Softmax", ["a"], ["y"], axis=0)]
    made = model(graph(nodes, [info("x", ("n", 8))], [info("y", ("n", 8))]))
    compiled(made, tmp_path).close()
    found = described_library(tmp_path / "network.so")
    graph_ = graph_of_library(found)
    assert {edge.target for edge in graph_.edges} >= set(range(1, len(found.kernels) + 1))
    assert lifetimes(found.kernels) == []


def test_a_library_without_times_says_how_to_get_them() -> None:
    result = profile(sample_library())
    assert (result.exit_code, result.stdout) == (1, "")
    assert "--profile" in result.stderr


@pytest.mark.parametrize("target", ["cuda", "wasm32-wasi", "cortex-m4"])
def test_targets_without_a_clock_are_refused(target: str) -> None:
    with pytest.raises(CompileError, match="do not time their kernels"):
        nnefc.compile(DIGITS, target, profile=True)


def compiled(made: Any, folder: Path, **options: Any) -> nnefc.Model:
    path = folder / "network.so"
    nnefc.compile(save(made, folder), profile=True, **options).export(path)
    return nnefc.load(path, threads=1)


def test_equal_kernels_at_several_places_have_the_names_of_each(tmp_path: Path) -> None:
    weights = tensor("w", np.eye(24, dtype=np.float32))
    nodes = [node("MatMul", [f"x{i}", "w"], [f"x{i + 1}"]) for i in range(4)]
    made = model(graph(nodes, [info("x0", (5, 24))], [info("x4", (5, 24))], [weights]))
    with compiled(made, tmp_path) as network:
        network(np.ones((5, 24), np.float32))
        found = [kernel for kernel in network.profile() if "matmul" in kernel.kernel]
        assert [kernel.tensors for kernel in found] == [("x1",), ("x2",), ("x3",), ("x4",)]
        assert [kernel.calls for kernel in found] == [1] * 4
        network.forget_profile()
        assert all(kernel.calls == 0 and kernel.seconds == 0 for kernel in network.profile())


def test_kernels_in_loops_are_called_in_each_round(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Tanh", ["state"], ["moved"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, ()),
            helper.make_tensor_value_info("going", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, (3,)),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("moved", TensorProto.FLOAT, (3,)),
        ],
    )
    nodes = [node("Loop", ["rounds", "", "x"], ["y"], body=body)]
    inputs = [helper.make_tensor_value_info("rounds", TensorProto.INT64, ()), info("x", (3,))]
    with compiled(model(graph(nodes, inputs, [info("y", (3,))])), tmp_path) as network:
        network(np.array(7), np.ones(3, np.float32))
        calls = {kernel.tensors: kernel.calls for kernel in network.profile()}
    assert calls["moved",] == 7


def test_code_for_known_sizes_has_places_of_its_own(tmp_path: Path) -> None:
    made = model(graph([node("Add", ["x", "x"], ["y"])], [info("x", ("n", 8))], [info("y", ("n", 8))]))
    with compiled(made, tmp_path, specialize=[{"n": 4}]) as network:
        for rows in (4, 4, 5):
            np.testing.assert_array_equal(network(np.ones((rows, 8), np.float32)), np.full((rows, 8), 2))
        open_, special = network.profile()
    assert (open_.calls, special.calls) == (1, 2)
    assert (open_.operations, special.operations > 0) == (0, True)
