"""Detection gives what LiteRT gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_files import Graph, model_file, reference

import nnefc
from nnefc.frontends.tflite import load

pytest.importorskip("ai_edge_litert")

RNG = np.random.default_rng(6)
BOXES, CLASSES, KEPT = 30, 5, 8


def compared(graph: Graph, values: list[np.ndarray], folder: Path, each: int = 1) -> None:
    """Compares all outputs; those of detections as far as there are any."""
    content = model_file(graph)
    path = folder / "model.tflite"
    path.write_bytes(content)
    (wanted,) = reference(content, values)
    assert load(path).all_data_dependent_sizes == (), "machines without a heap have no sizes that depend on data"
    names = [graph.tensors[index]["name"] for index in graph.inputs]
    found = list(nnefc.compile(path).run(dict(zip(names, values, strict=True))).values())
    count = int(wanted[-1].reshape(-1)[0])
    assert 1 < count <= KEPT and found[-1] == wanted[-1]
    for mine, other in zip(found[:-1], wanted[:-1], strict=True):
        assert mine.shape == other.shape
        axis = 0 if other.ndim == 1 else 1
        chosen = np.arange(count * each)
        np.testing.assert_allclose(np.take(mine, chosen, axis), np.take(other, chosen, axis), rtol=1e-5)


def corners() -> np.ndarray:
    low = RNG.uniform(0, 1, (BOXES, 2))
    return np.concatenate([low, low + RNG.uniform(0.3, 0.9, (BOXES, 2))], 1).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "sigma"), [("NON_MAX_SUPPRESSION_V4", 0), ("NON_MAX_SUPPRESSION_V5", 0), ("NON_MAX_SUPPRESSION_V5", 0.4)]
)
def test_suppression(name: str, sigma: float, tmp_path: Path) -> None:
    graph = Graph()
    given = [graph.input((BOXES, 4)), graph.input((BOXES,)), graph.tensor((), "int32", np.array(KEPT, np.int32))]
    overlap = 0.6 if sigma else 0.3
    given += [graph.tensor((), value=np.array(limit, np.float32)) for limit in (overlap, 0.2)]
    results = [graph.output((KEPT,), "int32")]
    if name.endswith("V5"):
        given.append(graph.tensor((), value=np.array(sigma, np.float32)))
        results.append(graph.output((KEPT,)))
    graph.add(name, given, [*results, graph.output((), "int32")])
    compared(graph, [corners(), RNG.permutation(BOXES).astype(np.float32) / BOXES], tmp_path)


def test_boxes_that_overlap_as_much_as_the_threshold_are_removed(tmp_path: Path) -> None:
    graph = Graph()
    given = [graph.input((3, 4)), graph.input((3,)), graph.tensor((), "int32", np.array(KEPT, np.int32))]
    given += [graph.tensor((), value=np.array(limit, np.float32)) for limit in (0.5, 0.1)]
    graph.add("NON_MAX_SUPPRESSION_V4", given, [graph.output((KEPT,), "int32"), graph.output((), "int32")])
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.5], [2, 2, 3, 3]], np.float32)
    compared(graph, [boxes, np.array([0.9, 0.8, 0.7], np.float32)], tmp_path)


@pytest.mark.parametrize(("each", "of_class"), [(1, 0), (2, 0), (1, 2), (1, 100)])
def test_detections_are_decoded_and_chosen(each: int, of_class: int, tmp_path: Path) -> None:
    flexbuffers = pytest.importorskip("flatbuffers.flexbuffers")
    options = {
        "max_detections": KEPT, "max_classes_per_detection": each, "num_classes": CLASSES, "nms_score_threshold": 0.1,
        "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
        "use_regular_nms": of_class > 0, "detections_per_class": of_class,
    }  # fmt: skip
    graph = Graph()
    anchors = RNG.uniform(0.2, 0.8, (BOXES, 4)).astype(np.float32)
    given = [graph.input((1, BOXES, 4)), graph.input((1, BOXES, CLASSES + 1))]
    given.append(graph.tensor(anchors.shape, value=anchors))
    results = [
        graph.output((1, KEPT * each, 4)),
        *(graph.output((1, KEPT * each)) for _ in range(2)),
        graph.output((1,)),
    ]
    custom = np.frombuffer(bytes(flexbuffers.Dumps(options)), np.uint8)
    graph.add("TFLite_Detection_PostProcess", given, results, custom_options=custom)
    codes = RNG.uniform(-3, 3, (1, BOXES, 4)).astype(np.float32)
    scores = RNG.permutation(BOXES * (CLASSES + 1)).reshape(1, BOXES, CLASSES + 1).astype(np.float32) / 200
    compared(graph, [codes, scores], tmp_path, each)
