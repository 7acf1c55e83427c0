"""The networks that the benchmarks' own documents describe, compared with their ONNX twins."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import run
from click.testing import CliRunner
from compiled_here import compile_here
from conditions import Watch
from measure import Latency, Measurement, Plan, measure
from models import networks
from models.onnx_graph import OnnxGraph
from onnx import numpy_helper
from peak import build_peak, bytes_per_second, multiply_adds_per_second
from picture import image

import nnefc
from nnefc.frontends import nnef
from nnefc.frontends.nnef.declarations import STANDARD, Operation
from nnefc.frontends.nnef.evaluation import evaluate
from nnefc.frontends.nnef.language.parser import parse
from nnefc.frontends.nnef.operations.lowering import by_definition
from nnefc.inspect.cost_summary import inspect_network

TOLERANCE = 1e-4  # of the largest value of the output

DOCUMENTS = Path(networks.__file__).parent

# Trained values as the papers or the networks' best-known implementations have them, without moving statistics.
PARAMETERS = {
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "efficientnet_b0": 5_288_548,
    "yolov4_tiny": 6_056_606,
    "resnet18_batch8": 11_689_512,
    "bert_base": 12 * 7_087_872,
    "vit_b16": 86_567_656,
    "lstm": 4 * 256 * (256 + 256 + 1),
    "gru": 3 * 256 * (256 + 256 + 2),
    "mlp": 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10,
}

# Millions of multiply-adds for one run, from the same sources.
MULTIPLY_ADDS = {"mobilenet_v1": 568.7, "mobilenet_v2": 300.8, "efficientnet_b0": 385.9, "resnet18_batch8": 8 * 1814.1}

QUICK = ("mlp",)  # small enough to be compiled in every run of the tests
LARGE = ("bert_base", "vit_b16", "resnet18_batch8", "unet", "efficientnet_b0", "yolov4_tiny")

Built = tuple[str, onnx.ModelProto, OnnxGraph]


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in networks.DOCUMENTS],
)
def built(request: pytest.FixtureRequest) -> Iterator[Built]:
    yield request.param, *networks.build(request.param)


def has_definition_only(operation: Operation) -> bool:
    """Whether it is to be taken apart: the layers that declare variables are."""
    return operation.lower is by_definition


@pytest.mark.sample(2)
def test_the_document_and_the_twin_have_the_same_variables_and_output(built: Built) -> None:
    name, model, graph = built
    document = DOCUMENTS / f"{name}.nnef"
    flat = evaluate(parse(document.read_text(), document.name), registry=STANDARD, expand=has_definition_only)
    variables = {
        call.args.label: tuple(call.args.shape) for call in flat.invocations if call.operation.name == "variable"
    }
    assert variables == {label: value.shape for label, value in graph.weights.items()}
    assert flat.inputs[0].shape == networks.input_of(model)["input"].shape
    assert flat.outputs[0].shape == tuple(d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim)


def test_the_network_is_as_large_as_the_published_one(built: Built) -> None:
    name, _, graph = built
    if name not in PARAMETERS:
        pytest.skip("published in many sizes")
    trained = (value.size for label, value in graph.weights.items() if not label.endswith(("/mean", "/variance")))
    assert sum(trained) == PARAMETERS[name]


def test_the_twin_computes_values_of_a_sensible_size(built: Built) -> None:
    _, model, graph = built
    assert all(value.dtype == np.float32 and np.isfinite(value).all() for value in graph.weights.values())
    (output,) = session_of(model.SerializeToString()).run(None, networks.input_of(model))
    assert np.isfinite(output).all()
    assert 0.1 < output.std() < 10


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
@pytest.mark.sample(2)
def test_the_network_computes_as_much_as_the_published_one(name: str) -> None:
    inspection = inspect_network(nnef.load(DOCUMENTS / f"{name}.nnef", random_weights=0))
    assert inspection.multiply_adds / 1e6 == pytest.approx(MULTIPLY_ADDS[name], rel=0.01)


def session_of(model: bytes | str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def compare(name: str, folder: Path) -> None:
    twins = networks.write_twins(folder, name)
    feed = networks.input_of(onnx.load(twins.onnx))
    (expected,) = session_of(str(twins.onnx)).run(None, feed)
    library = folder / "network.so"
    nnefc.compile(twins.nnef).export(library)
    with nnefc.load(library, threads=2) as network:
        (found,) = network.run(feed).values()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", QUICK)
def test_a_small_network_agrees_with_its_twin(name: str, tmp_path: Path) -> None:
    compare(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in networks.DOCUMENTS if name not in QUICK])
def test_a_network_agrees_with_its_twin(name: str, tmp_path: Path) -> None:
    compare(name, tmp_path)


def test_twins_are_written_again_only_if_the_document_is_newer(tmp_path: Path) -> None:
    twins = networks.write_twins(tmp_path, "mlp")
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(twins.onnx).graph.initializer}
    files = {str(f.relative_to(twins.nnef).with_suffix("")) for f in twins.nnef.rglob("*.dat")}
    assert files == set(stored)
    written = twins.onnx.stat().st_mtime_ns
    assert networks.write_twins(tmp_path, "mlp") == twins
    assert twins.onnx.stat().st_mtime_ns == written
    (twins.nnef / "graph.nnef").unlink()
    networks.write_twins(tmp_path, "mlp")
    assert twins.onnx.stat().st_mtime_ns > written


def test_a_network_of_the_zoo_and_one_of_the_documents_have_one_registry(tmp_path: Path) -> None:
    assert {"resnet50", "vgg19"} < set(networks.NAMES) and set(networks.DOCUMENTS) < set(networks.NAMES)
    assert {path.stem for path in DOCUMENTS.glob("*.nnef")} == set(networks.DOCUMENTS)
    with pytest.raises(ValueError, match="one size"):
        networks.write_twins(tmp_path, "mlp", divide=8)


def test_measuring_a_document_gives_its_share_of_the_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure.compile_library", compile_here)
    plan = Plan(threads=(1,), repeats=2, seconds=0.0, minimum=2, pause=0.0)
    found = measure("mlp", tmp_path, plan)
    assert found.multiply_adds == 784 * 128 + 128 * 64 + 64 * 10
    assert all(difference < TOLERANCE for difference in found.agreement.values())
    share = found.share(1, "nnefc")
    assert share == pytest.approx(found.multiply_adds / found.latency[1]["nnefc"].median / 1e-3 / found.peak[1])
    assert share is not None and 0 < share < 1
    assert found.share(2, "nnefc") is None
    assert found.parameter_bytes == 4 * (784 * 128 + 128 * 64 + 64 * 10 + 128 + 64 + 10)
    assert 0 < found.roofline(1, "nnefc") < 1


def test_the_peak_is_more_than_numpy_reaches_by_far_and_less_than_is_possible(tmp_path: Path) -> None:
    peak = multiply_adds_per_second(build_peak(tmp_path), 1)
    assert 1e9 < peak < 2 * 16 * 8e9, "two vectors of 16 a cycle at 8 GHz"


def measurement(network: str, own: float) -> Measurement:
    latency = {1: {"nnefc": Latency(own, own, 9), "onnxruntime": Latency(3.0, 3.0, 9), "tract": Latency(2.0, 2.0, 9)}}
    return Measurement(network, {}, 1.0, 1, 1, 1, {}, latency)


def test_the_image_has_a_bar_as_long_as_each_ratio() -> None:
    measurements = [measurement("slow", 4.0), measurement("quick", 0.5)]
    assert [m.ratio(1, attrgetter("median")) for m in measurements] == [0.5, 4.0]
    root = ElementTree.fromstring(image(measurements, (1,)))
    lengths = [float(bar.get("width", "0")) for bar in root.iter("{http://www.w3.org/2000/svg}rect")][2:]
    assert lengths[1] == pytest.approx(8 * lengths[0])
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[-4:] == ["slow", "0.50", "quick", "4.00"]
    assert float(root.get("width", "0")) > lengths[1]


def test_a_network_that_does_not_compile_in_time_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(network: str, folder: Path, plan: Plan) -> Measurement:
        if network == "unet":
            raise subprocess.TimeoutExpired("compile_one.py", 300)
        return replace(measurement(network, 1.0), agreement={"nnefc": 1e-6})

    monkeypatch.setattr(run, "measure", fake)
    monkeypatch.setattr(run, "Watch", partial(Watch, 0.05))
    result = CliRunner().invoke(run.main, ["unet", "mlp", "--threads", "1"])
    assert result.exit_code == 1
    assert "| mlp | 1 | 1.00 (1.00) | 3.00 (3.00) | 2.00 (2.00) | 2.00 (2.00) | - |" in result.output
    assert "not measured: unet" in result.output


@pytest.mark.slow
def test_what_fits_into_the_first_cache_is_read_faster_than_what_fits_into_none(tmp_path: Path) -> None:
    library = build_peak(tmp_path)
    near, far = bytes_per_second(library, 12 << 10, 1), bytes_per_second(library, 1 << 30, 1)
    assert 1e8 < far < near < 2 * 64 * 8e9, "two vectors of 64 bytes a cycle at 8 GHz"
