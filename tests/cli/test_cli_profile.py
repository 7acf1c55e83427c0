"""`nnefc profile`, and what it shows: which kernel computes what of the model. No test depends on how long it takes."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from chromium import CHROMIUM, Page
from click.testing import CliRunner, Result
from onnx import TensorProto, helper
from onnx_models import graph, info, model, node, save, tensor
from runtime_samples import sample_library

import nnefc
from nnefc import RunError
from nnefc.cli import main
from nnefc.cli.commands.profile import _median_run
from nnefc.cli.commands.profiling.timeline import timeline
from nnefc.cli.commands.profiling.timing import busy_warning
from nnefc.cli.commands.profiling.traced_run import TracedRun
from nnefc.cli.commands.view import described_library
from nnefc.inspect.library_graph import graph_of_library, lifetimes
from nnefc.loader import Piece
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import KernelDescription

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
    assert head.split() == ["ms", "a", "run", "share", "calls", "GFLOP/s", "GB/s", "operator", "tensors"]
    assert max(map(len, [head, *lines])) <= 100
    assert len(lines) == 4 and "more:" in lines[2] and "outside of kernels" in lines[3]
    events = json.loads(trace.read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert [rows[0], rows[1]] == ["kernels", "thread 0"]
    bars = [event for event in events if event["ph"] == "X"]
    for row in (0, 1):
        assert {name for event in bars if event["tid"] == row for name in event["name"].split(", ")} >= NAMED
    assert min(event["ts"] for event in bars) == 0 and all(event["dur"] >= 0 for event in bars)
    held = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert min(held) == held[-1] == 0 and 0 < max(held) <= described_library(digits).workspace_bytes
    for by, name in (("operator", "linear"), ("kernel", "_relu"), ("rule", "ContractionRule")):
        grouped = profile(digits, "--runs", 1, "--by", by).stdout.splitlines()
        assert "calls of kernels" in grouped[0] and any(name in line for line in grouped)


def test_the_page_shows_where_time_and_memory_go(digits: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = profile(digits, "--runs", 3, "--html", page)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    for title in ("Time by operator of the model", "Roofline", "One run, thread by thread", "The largest constants"):
        assert f"<h2>{title}</h2>" in text
    assert "<td>conv + batch_normalization + relu</td>" in text and "<td>linear</td>" in text
    assert text.count("<circle") >= 4 and 'class="roof"' in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    wrong = profile(digits, "--runs", 1, "--html", tmp_path / "report.pdf")
    assert (wrong.exit_code, wrong.stdout) == (1, "")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs: chromium")
def test_the_image_of_a_run_is_stretched_and_moved(digits: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert profile(digits, "--runs", 3, "--threads", 2, "--html", page).exit_code == 0
    with Page(1400, 1000) as browser:
        browser.open(page.as_uri())
        browser.wait_for("document.querySelector('.span')?.textContent")
        box = "document.querySelector('.time svg').viewBox.baseVal"
        assert browser.value(f"[{box}.x, {box}.width]") == [0, 1000]
        assert browser.value("document.querySelector('.rows').textContent").startswith("kernelsthread 0: ")
        assert browser.value("document.querySelectorAll('.time path title').length") >= 4
        assert browser.value("document.querySelectorAll('.time rect title').length") >= 2
        x, y = browser.value(
            "(() => { const part = document.querySelector('.time svg'); part.scrollIntoView({ block: 'center' });"
            " const box = part.getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        browser.command("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-1000)
        browser.wait_for(f"{box}.width < 400")
        begin, width = browser.value(f"[{box}.x, {box}.width]")
        assert begin + width / 2 == pytest.approx(500, abs=2)  # where the mouse is
        browser.drag([(x, y), (x + 20, y), (x + 60, y)])
        assert browser.value(f"{box}.x") < begin
        span = re.fullmatch(r"([\d.]+) to ([\d.]+) ms", browser.value("document.querySelector('.span').textContent"))
        assert span is not None
        first, last = span.groups()
        assert 0 < float(first) < float(last)


def test_a_run_with_dynamic_dimensions_has_operations_bytes_and_a_roofline(tmp_path: Path) -> None:
    made = model(
        graph(
            [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])],
            [info("x", ("batch", 64))],
            [info("y", ("batch", 16))],
            [tensor("w", np.random.default_rng(0).standard_normal((64, 16)))],
        )
    )
    library, page = tmp_path / "dynamic.so", tmp_path / "page.html"
    nnefc.compile(save(made, tmp_path), profile=True).export(library)
    result = profile(library, "--runs", 2, "--shape", "x=10,64", "--json", "--html", page)
    assert result.exit_code == 0, result.output
    (kernel,) = json.loads(result.stdout)["kernels"]
    assert kernel["operations"] == 10 * 16 * (2 * 64 + 1)
    assert kernel["bytes"] == 4 * (10 * 64 + 64 * 16 + 10 * 16) and kernel["operators"] == ["MatMul", "Relu"]
    text = page.read_text(encoding="utf-8")
    assert "<circle" in text and "at the sizes batch" in text


def test_the_run_that_is_shown_is_the_one_nearest_to_the_median() -> None:
    kernels = (KernelDescription("k", (), "Rule", 0, 0),)
    lengths = iter([5.0, 0.9, 1.2, 3.0, *[2.0] * 20])

    class Traced:
        is_profiled = True

        def trace(self, _: object) -> list[Piece]:
            return [Piece(0, None, 10.0, next(lengths))]

    found: Any = SimpleNamespace(kernels=kernels)
    assert _median_run(Traced(), {}, found, 0.1).seconds == pytest.approx(0.9)  # type: ignore[arg-type]


def test_a_busy_machine_is_warned_of() -> None:
    assert busy_warning(None) == busy_warning(0.05) == ""
    assert busy_warning(1.26).startswith("other programs kept 1.3 processors busy")


def test_work_of_threads_is_attributed_to_its_kernel() -> None:
    """A kernel that is shared by two threads, one without loops to share, the first one again."""
    kernels = [KernelDescription(name, (name,), "Rule", 0, 0) for name in ("shared", "alone")]
    pieces = [
        Piece(0, None, 10.0, 4.0),
        Piece(0, 0, 10.5, 3.0),
        Piece(0, 1, 11.0, 1.0),
        Piece(0, 1, 12.0, 1.0),
        Piece(1, None, 14.0, 2.0),
        Piece(0, None, 16.0, 2.0),
        Piece(0, 1, 16.5, 1.0),
    ]
    run = TracedRun(kernels, pieces)
    assert (run.begin, run.seconds) == (10.0, 8.0)
    assert [[(piece.kernel, piece.begin) for piece in row] for row in run.threads] == [
        [(0, 10.5), (1, 14.0)],
        [(0, 11.0), (0, 12.0), (0, 16.5)],
    ]
    assert list(run.busy) == [5.0, 3.0]
    assert list(run.busy_in) == [1.0, 1.0]
    assert "thread 1: 38 %" in timeline(run) and "2 threads computed 50 %" in timeline(run)
    assert "no calls" in timeline(TracedRun(kernels, []))


def test_a_image_of_many_pieces_has_no_more_bars_than_can_be_seen() -> None:
    kernels = [KernelDescription(name, (name,), "Rule", 0, 0) for name in ("k", "l")]
    pieces = [Piece(0, None, 0.0, 1.0), *(Piece(n // 4 % 2, n % 4, n * 1e-5, 8e-6) for n in range(100_000))]
    text = timeline(TracedRun(kernels, pieces))
    assert 10_000 < text.count("M") <= 40_000


def test_pieces_of_sessions_that_run_while_it_begins_and_ends(tmp_path: Path) -> None:
    weights = tensor("w", np.eye(64, dtype=np.float32))
    made = model(graph([node("MatMul", ["x", "w"], ["y"])], [info("x", (64, 64))], [info("y", (64, 64))], [weights]))
    x, ended = np.ones((64, 64), np.float32), threading.Event()
    with compiled(made, tmp_path, threads=1) as network, network.session(threads=1) as other:

        def run() -> None:
            while not ended.is_set():
                other.run({"x": x})

        other_thread = threading.Thread(target=run)
        other_thread.start()
        try:
            for _ in range(200):
                room = np.full((8, 3), -1, np.int64)  # of 24 bytes each
                trace = network._timing_library().function("nnefc_profile_trace")
                trace(room.ctypes.data, 8)
                network.run({"x": x})
                trace(None, 0)
                noted = room.copy()
                network.run({"x": x})
                assert np.array_equal(room, noted)
        finally:
            ended.set()
            other_thread.join()


def test_pieces_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of products that are large enough to be shared, and of calls in a loop each."""
    weights = tensor("w", np.eye(256, dtype=np.float32))
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    made = model(graph(nodes, [info("x", (512, 256))], [info("y", (512, 256))], [weights]))
    x = np.ones((512, 256), np.float32)
    with compiled(made, tmp_path, threads=2) as network:
        pieces = network.trace({"x": x})
        kernels = network.profile()
        assert sum(kernel.calls for kernel in kernels) == sum(piece.thread is None for piece in pieces)
        assert {piece.thread for piece in pieces} >= {None, 0} and {piece.thread for piece in pieces} <= {None, 0, 1}
        for piece in pieces:
            if piece.thread is not None:
                (call,) = (p for p in pieces if p.thread is None and p.kernel == piece.kernel)
                assert call.begin <= piece.begin and piece.begin + piece.seconds <= call.begin + call.seconds
        trace = network._timing_library().function("nnefc_profile_trace")
        network.run({"x": x})
        assert trace(None, 0) == 0  # pieces are recorded within trace alone
        with pytest.raises(RunError, match="more than 1: let there be room"):
            network.trace({"x": x}, most=1)
        monkeypatch.setattr("nnefc.loader.profile._USUAL", 1)
        assert len(network.trace({"x": x})) > 1
        with pytest.raises(RunError, match="absent"):
            network.trace({"absent": x})
    with nnefc.load(sample_library()) as unprofiled, pytest.raises(RunError, match="compile the model with --profile"):
        unprofiled.trace({})


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
    unprofiled = CliRunner().invoke(main, ["view", str(sample_library()), "-o", str(page)])
    assert unprofiled.exit_code == 1 and "compile the model with --profile" in unprofiled.stderr


def test_kernels_of_dynamic_sizes_are_shown_in_the_order_of_their_calls(tmp_path: Path) -> None:
    nodes = [node("Softmax", ["x"], ["a"]), node("Softmax", ["a"], ["y"], axis=0)]
    made = model(graph(nodes, [info("x", ("n", 8))], [info("y", ("n", 8))]))
    compiled(made, tmp_path).close()
    found = described_library(tmp_path / "network.so")
    graph_ = graph_of_library(found)
    assert {edge.target for edge in graph_.edges} >= set(range(1, len(found.kernels) + 1))
    assert lifetimes(found.kernels) == []


SMALL = model(
    graph(
        [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["y"])],
        [info("x", (4, 64))],
        [info("y", (4, 16))],
        [tensor("w", np.random.default_rng(0).standard_normal((64, 16)))],
    )
)


def test_a_library_compiled_without_profile_has_times_by_kernels(tmp_path: Path) -> None:
    library, page, trace = (tmp_path / name for name in ("usual.so", "page.html", "trace.json"))
    nnefc.compile(save(SMALL, tmp_path)).export(library)
    result = profile(library, "--runs", 3, "--json", "--html", page, "--trace", trace)
    assert result.exit_code == 0, result.output
    kernels = json.loads(result.stdout)["kernels"]
    assert {name for kernel in kernels for name in kernel["tensors"]} >= {"y"}
    assert all(kernel["calls"] == 3 and kernel["seconds"] > 0 and not kernel["operators"] for kernel in kernels)
    text = page.read_text(encoding="utf-8")
    for title in ("Time by what kernels compute", "Roofline", "One run, kernel by kernel", "Calls of kernels"):
        assert f"<h2>{title}</h2>" in text
    assert "of the model" not in text and "thread by thread" not in text
    events = json.loads(trace.read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["kernels"]
    assert len([event for event in events if event["ph"] == "X"]) == len(kernels)
    assert profile(library, "--runs", 1).stdout.splitlines()[-1].startswith("compiled without --profile")


def test_a_library_that_takes_no_times_says_why(tmp_path: Path) -> None:
    nnefc.compile(save(SMALL, tmp_path), small=True).export(tmp_path / "small.so")
    result = profile(tmp_path / "small.so")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "was compiled for size" in result.stderr and "compile it without --small" in result.stderr


@pytest.mark.parametrize("target", ["cuda", "wasm32-wasi", "cortex-m4"])
def test_targets_without_a_clock_are_refused(target: str) -> None:
    with pytest.raises(CompileError, match="do not time their kernels"):
        nnefc.compile(DIGITS, target, profile=True)


def compiled(made: Any, folder: Path, threads: int = 1, **options: Any) -> nnefc.Model:
    path = folder / "network.so"
    nnefc.compile(save(made, folder), profile=True, **options).export(path)
    return nnefc.load(path, threads=threads)


def test_equal_kernels_at_several_positions_have_the_names_of_each(tmp_path: Path) -> None:
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
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=body)]
    inputs = [helper.make_tensor_value_info("trips", TensorProto.INT64, ()), info("x", (3,))]
    with compiled(model(graph(nodes, inputs, [info("y", (3,))])), tmp_path) as network:
        network(np.array(7), np.ones(3, np.float32))
        calls = {kernel.tensors: kernel.calls for kernel in network.profile()}
        pieces = network.trace({"trips": np.array(3), "x": np.ones(3, np.float32)})
        (position,) = (n for n, kernel in enumerate(network.profile()) if kernel.tensors == ("moved",))
    assert calls["moved",] == 7
    assert sum(piece.thread is None and piece.kernel == position for piece in pieces) == 3


def test_code_for_known_sizes_has_positions_of_its_own(tmp_path: Path) -> None:
    made = model(graph([node("Add", ["x", "x"], ["y"])], [info("x", ("n", 8))], [info("y", ("n", 8))]))
    with compiled(made, tmp_path, specialize=[{"n": 4}]) as network:
        for rows in (4, 4, 5):
            np.testing.assert_array_equal(network(np.ones((rows, 8), np.float32)), np.full((rows, 8), 2))
        open_, special = network.profile()
    assert (open_.calls, special.calls) == (1, 2)
    assert (open_.operations, special.operations > 0) == (0, True)
