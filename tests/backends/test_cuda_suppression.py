"""Suppression of boxes in networks for GPUs, executed without one: the rows that the code for this CPU gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import test_onnx_data_dependent_sizes as counts
from emulated_networks import on_cuda
from fake_driver import FakeDriver
from onnx import TensorProto

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.targets.codegen.cuda.code import CudaCode


def feeds(rng: np.random.Generator, batch: int, classes: int, count: int) -> dict[str, np.ndarray]:
    """Boxes among which some are alike, empty or NaN; scores with ties, NaN and infinities."""
    boxes = rng.random((batch, count, 4)) * rng.choice([1, 1, 0.3], (batch, count, 1))
    boxes[:, 1::5] = boxes[:, :1]
    boxes[:, 2::7, 2:] = boxes[:, 2::7, :2]
    boxes[:, 3::13, 1] = np.nan
    scores = np.round(rng.random((batch, classes, count)), 1)
    scores[:, :, 4::9] = np.nan
    scores[:, 0, 5::9] = np.inf
    return {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}


def on_device(artifact: Artifact) -> bool:
    """Whether a run is one graph, and the host computes nothing in it."""
    assert isinstance(artifact.code, CudaCode)
    return ".capturable = 1," in artifact.code.launches and "&host_kernels[" not in artifact.code.launches


@pytest.mark.parametrize("is_centred", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.sample(1)
def test_rows_are_those_of_the_cpu(is_centred: bool, tmp_path: Path) -> None:
    """Boxes, images and limits that are known when it runs; every access is checked."""
    names = "boxes scores upper overlap lower"
    nodes = [counts.node("NonMaxSuppression", names, "y", center_point_box=int(is_centred))]
    inputs: dict[str, list[object]] = {"boxes": ["b", "n", 4], "scores": ["b", 3, "n"], "overlap": [1], "lower": [1]}
    proto = counts.model_of(nodes, inputs, {"y": TensorProto.INT64}, upper=np.array([9], np.int64))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    rng, runs = np.random.default_rng(is_centred), []
    limited = ((2, 33, 0.5, 0.1), (1, 1, 0.5, 0.0), (3, 70, 0.0, -1.0), (1, 32, 1, 0.9), (0, 5, 0.5, 0), (1, 0, 0.5, 0))
    for batch, count, overlap, lower in limited:
        limits = {"overlap": np.array([overlap], np.float32), "lower": np.array([lower], np.float32)}
        runs.append(feeds(rng, batch, 3, count) | limits)
    sizes = {"b": "0..4", "n": "0..100"}
    with nnefc.compile(path, shape=sizes).load() as on_cpu, on_cuda(checks=True):
        artifact = nnefc.compile(path, shape=sizes)
        assert on_device(artifact)
        with artifact.load() as on_gpu:
            for feed in runs:
                np.testing.assert_array_equal(on_gpu.run(feed)["y"], on_cpu.run(feed)["y"])


def test_a_gather_of_what_remains_is_in_the_same_graph(tmp_path: Path) -> None:
    constants = {"upper": np.array([7], np.int64), "overlap": np.array([0.4], np.float32), "two": np.array(2, np.int64)}
    nodes = [
        counts.node("NonMaxSuppression", "boxes scores upper overlap", "kept"),
        counts.node("Gather", "kept two", "numbers", axis=1),
        counts.node("Gather", "boxes numbers", "y", axis=1),
    ]
    inputs: dict[str, list[object]] = {"boxes": [1, 65, 4], "scores": [1, 2, 65]}
    path = tmp_path / "model.onnx"
    path.write_bytes(counts.model_of(nodes, inputs, {"y": TensorProto.FLOAT}, **constants).SerializeToString())
    with nnefc.compile(path).load() as on_cpu, on_cuda():
        artifact = nnefc.compile(path)
        assert on_device(artifact)
        with artifact.load() as on_gpu:
            driver = FakeDriver.install()
            for seed in range(3):
                driver.clear()
                feed = feeds(np.random.default_rng(seed), 1, 2, 65)
                np.testing.assert_array_equal(on_gpu.run(feed)["y"], on_cpu.run(feed)["y"])
            assert "cuGraphLaunch" in driver.names
            assert driver.names.count("cuStreamSynchronize") == 2, "for the number of rows, and for the rows"
