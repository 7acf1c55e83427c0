"""The benchmarks' models, measuring and report. No time is asserted."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import kernel_times
import nnef
import numpy as np
import onnx
import onnxruntime
import pytest
import real_networks
from compiled_here import compile_here
from conditions import Conditions
from measure import Latency, Measurement, Plan, measure, start
from models import zoo
from onnx import TensorProto, helper, numpy_helper
from pass_runs import optimized
from peers import STRICT
from report import markdown, write_report
from worker import EngineError

from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.passes.pipeline import register_operators
from nnefc.passes.plan.program import program_of
from nnefc.passes.schedule.arithmetic import arithmetic_of
from nnefc.targets.machine.cpu.parsing import parse_target

QUIET = Conditions("2026-01-02 03:04 UTC", "0123456789ab", "2 × a processor", (0.0, 0.1, 0.0))
PLAN = Plan(threads=(1, 2), repeats=2, seconds=0.0, minimum=2, pause=0.0)


def measurement(network: str) -> Measurement:
    latency = {
        1: {"nnefc": Latency(1.0, 2.0, 9), "onnxruntime": Latency(3.0, 3.5, 9), "openvino": Latency(0.5, 4.0, 9)},
        2: {"nnefc": Latency(1.0, 1.0, 9), "onnxruntime": Latency(0.5, 0.5, 9), "openvino": Latency(0.25, 1.0, 9)},
    }
    agreement = {"nnefc": 2e-6, "onnxruntime": 0.0, "openvino": 3e-7}
    versions = {"nnefc": "1", "onnxruntime": "2", "openvino": "3"}
    work = {"multiply_adds": 10**7, "parameter_bytes": 3000, "peak": {1: 1e10, 2: 4e10}, "bandwidth": {1: 2e6, 2: 1e9}}
    return Measurement(network, agreement, 1.25, 70_000, 5 << 20, 1 << 20, versions, latency, **work)


def test_the_ratio_is_that_to_the_fastest_peer() -> None:
    found = measurement("net")
    assert found.ratio(1, lambda latency: latency.median) == 3.5 / 2.0
    assert found.ratio(1, lambda latency: latency.minimum) == 0.5
    assert found.ratio(2, lambda latency: latency.median) == 0.5


def test_the_roofline_is_the_longer_of_computing_and_reading() -> None:
    found = measurement("net")
    assert found.roofline(1, "nnefc") == 1.5e-3 / 2e-3, "reading bounds one thread"
    assert found.roofline(2, "nnefc") == 0.25e-3 / 1e-3, "computing bounds two"


def test_the_report_is_a_page_a_table_and_a_document(tmp_path: Path) -> None:
    written = write_report("cpu", [measurement("a"), measurement("b")], PLAN, QUIET, {"c": "no end"}, tmp_path)
    page = written.read_text()
    assert "commit 0123456789ab" in page
    assert "| c | 2 | failed: no end |" in page.splitlines()
    assert "| a | 1 | 2.00 (1.00) | 3.50 (3.00) | 4.00 (0.5000) | 1.75 (0.50) | 50% | 75% |" in page.splitlines()
    assert "| b | 2.0e-06 | 1.2 | 68 | 5.0 | 1.00 |" in page.splitlines()
    assert "Geometric mean of the ratios: 1.75 on 1 thread, 0.50 on 2 threads." in page
    assert written.with_suffix(".svg").read_text().startswith("<svg")
    with written.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3
    assert (rows[0]["engine"], rows[0]["median_ms"], rows[0]["least_ms"]) == ("nnefc", "2.0000", "1.0000")
    assert [row["share_of_peak"] for row in rows[:2]] == ["0.500", "0.286"]
    document = json.loads(written.with_suffix(".json").read_text())
    assert [network["network"] for network in document["networks"]] == ["a", "b"]
    assert document["conditions"]["busy"] == [0.0, 0.1, 0.0]
    assert document["failed"] == {"c": "no end"}


def test_strict_libraries_are_no_peers_and_have_a_table_with_the_errors() -> None:
    found = measurement("net")
    found.latency[1][STRICT] = Latency(0.1, 2.5, 9)
    found.error.update({"nnefc": 2e-6, STRICT: 3e-7, "onnxruntime": 4e-7})
    assert found.ratio(1, lambda latency: latency.median) == 3.5 / 2.0
    lines = markdown([found], Plan(threads=(1,)), {})
    assert "| net | 2.0e-06 | 4.0e-07 | - | 3.0e-07 | 1.25 | 1.40 |" in lines
    assert (
        "Geometric mean of the ratios with `--strict`: 1.40 on 1 thread; without it: 1.75 on 1 thread. Geometric mean"
        " of the errors (largest): nnefc 2.0e-06 (2.0e-06), onnxruntime 4.0e-07 (4.0e-07),"
        " nnefc --strict 3.0e-07 (3.0e-07)." in lines
    )
    assert "| net | 1 | 2.00 (1.00) | 3.50 (3.00) | 4.00 (0.5000) | 1.75 (0.50) | 50% | 75% |" in lines


def test_a_network_without_a_peer_has_no_ratio() -> None:
    alone = measurement("net")
    alone.latency[1] = {"nnefc": Latency(1.0, 2.0, 9)}
    assert alone.ratio(1, lambda latency: latency.minimum) is None
    del alone.latency[2]
    assert "| net | 1 | 2.00 (1.00) | - | 50% | 75% |" in markdown([alone], Plan(threads=(1,)), {})


def test_an_engine_that_does_not_load_a_network_has_an_empty_cell() -> None:
    first, second = measurement("a"), measurement("b")
    del second.latency[1]["onnxruntime"]
    lines = markdown([first, second], Plan(threads=(1,)), {})
    assert "| b | 1 | 2.00 (1.00) | - | 4.00 (0.5000) | 2.00 (0.50) | 50% | 75% |" in lines


def test_an_engine_that_fails_is_left_out_and_a_needed_one_is_an_error(tmp_path: Path) -> None:
    model = tmp_path / "broken.onnx"
    model.write_bytes(b"no model")
    assert start({"openvino": model}, tmp_path / "none.npz", 1) == []
    with pytest.raises(EngineError, match="onnxruntime ended with status"):
        start({"onnxruntime": model}, tmp_path / "none.npz", 1)


def write_model(model: Path) -> None:
    """A network with dynamic dimensions, an input that chooses a shape, and two outputs."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows"]),
        helper.make_tensor_value_info("start", TensorProto.INT64, []),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")]
    nodes = [
        helper.make_node("Gather", ["x", "ids"], ["y"]),
        helper.make_node("Unsqueeze", ["start", "zero"], ["starts"]),
        helper.make_node("Slice", ["x", "starts", "far", "zero"], ["part"]),
        helper.make_node("Tanh", ["part"], ["z"]),
    ]
    numbers = [numpy_helper.from_array(np.array([n]), name) for name, n in (("zero", 0), ("far", 99))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, numbers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)


@pytest.mark.slow
def test_a_pretrained_network_is_compiled_for_given_sizes_and_every_output_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "net.onnx"
    write_model(model)
    sizes = {"x": ([5, 4], "features"), "ids": ([5], 5), "start": ([], [2])}
    monkeypatch.setitem(real_networks.NETWORKS, "net", sizes)
    monkeypatch.setattr(real_networks, "LIBRARIES", tmp_path)
    monkeypatch.setattr(real_networks, "compile_library", compile_here)
    plan = Plan(threads=(1,), repeats=1, seconds=0.0, minimum=1, pause=0.0)
    found = real_networks.measure("net", model, plan)
    assert found.agreement["onnxruntime"] == 0.0
    assert found.agreement["nnefc"] < 1e-6
    assert "- net: x [5, 4], ids [5], start []" in real_networks.body([found], plan, {})


def test_every_kernel_of_a_network_with_fixed_sizes_is_timed(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    write_model(model)
    network = load_network(model, ReadOptions(shape={"x": (5, 4), "ids": (5,)}, values={"start": np.array(2)}))
    found = kernel_times.kernel_times(network, parse_target("llvm"))
    assert {kernel.shapes[-1] for kernel in found} == {(5, 4), (3, 4)}
    assert all(kernel.seconds > 0 for kernel in found)


def write_product(folder: Path) -> Path:
    """A network of one product of matrices."""
    path = folder / "product.onnx"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (32, 64))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weights = numpy_helper.from_array(np.ones((64, 48), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, outputs, [weights])
    onnx.save(helper.make_model(graph, ir_version=8), path)
    return path


@pytest.mark.parametrize(
    "name", ["llvm -mcpu=x86-64-v3", "llvm -mcpu=znver4 -precision=bf16", "llvm -mcpu=sapphirerapids -precision=fp16"]
)
def test_products_of_pairs_are_as_much_arithmetic_as_those_of_numbers(name: str, tmp_path: Path) -> None:
    model = write_product(tmp_path)
    backend = backend_of(parse_target(name))
    register_operators()
    with backend.target.host.to_tvm():
        network = optimized(load_network(model), backend)
    scaling = 32 * 48  # of results, for float16
    maximum = max(map(arithmetic_of, program_of(network).kernels.values()))
    assert 0 <= maximum - 2 * 32 * 64 * 48 <= scaling


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_kernels_of_narrow_types_are_timed(precision: str, tmp_path: Path) -> None:
    network = load_network(write_product(tmp_path))
    found = kernel_times.kernel_times(network, parse_target("llvm").with_precision(precision))
    assert found and all(kernel.seconds > 0 for kernel in found)


@pytest.mark.slow
def test_measuring_compiles_runs_every_engine_and_compares(tmp_path: Path) -> None:
    found = measure("squeezenet", tmp_path, PLAN, divide=8)
    assert found.agreement["onnxruntime"] == 0.0
    assert 0.0 < found.agreement["nnefc"] < 1e-4
    assert 0.0 < found.error[STRICT] < 1e-5
    assert 0.0 < found.error["onnxruntime"] < 1e-5
    assert found.constant_bytes > 0 and found.code_bytes > 0 and found.workspace_bytes > 0
    for threads in PLAN.threads:
        assert found.latency[threads].keys() >= {"nnefc", "onnxruntime"}
        assert all(latency.runs >= PLAN.repeats * PLAN.minimum for latency in found.latency[threads].values())


@pytest.mark.parametrize("name", zoo.NAMES)
@pytest.mark.sample(4)
def test_a_model_is_the_same_each_time_and_its_output_says_something(name: str) -> None:
    model = zoo.make_model(name, divide=8)
    assert model.SerializeToString() == zoo.make_model(name, divide=8).SerializeToString()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (output,) = session.run(None, zoo.input_of(model))
    assert np.isfinite(output).all()
    assert output.max() < 0.9 or model.graph.node[-1].op_type != "Softmax"
    assert output.std() > 1e-3 * output.max()


def test_dividing_keeps_the_structure_and_the_spatial_sizes() -> None:
    whole, small = zoo.make_model("squeezenet"), zoo.make_model("squeezenet", divide=8)
    assert [node.op_type for node in whole.graph.node] == [node.op_type for node in small.graph.node]
    shapes = [
        {t.name: numpy_helper.to_array(t).shape for t in model.graph.initializer if len(t.dims) == 4}
        for model in (whole, small)
    ]
    for name, (outputs, inputs, *kernel) in shapes[0].items():
        assert shapes[1][name] == (outputs // 8, inputs if inputs == 3 else inputs // 8, *kernel)


def test_the_twins_have_the_same_trained_values(tmp_path: Path) -> None:
    twins = zoo.write_twins(tmp_path, "bvlc_alexnet", divide=8)
    of_onnx = [numpy_helper.to_array(t) for t in onnx.load(twins.onnx).graph.initializer if t.data_type == 1]
    of_nnef = [t.data for t in nnef.load_graph(str(twins.nnef)).tensors.values() if t.data is not None]
    assert sorted(float(np.sum(a)) for a in of_onnx if a.ndim > 1) == pytest.approx(
        sorted(float(np.sum(a)) for a in of_nnef if a.ndim > 1 and a.shape[0] > 1)
    )
    written = twins.onnx.stat().st_mtime_ns
    assert zoo.write_twins(tmp_path, "bvlc_alexnet", divide=8) == twins
    assert twins.onnx.stat().st_mtime_ns == written
