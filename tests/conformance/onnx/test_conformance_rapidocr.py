"""The networks of the package rapidocr-onnxruntime, where it is installed: exported by Paddle, with dynamic sizes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import nnefc

TOLERANCE = 1e-4  # of the largest value of the output

FOUND = importlib.util.find_spec("rapidocr_onnxruntime")  # not imported: it needs much that these tests do not


@pytest.mark.slow
@pytest.mark.skipif(FOUND is None, reason="rapidocr-onnxruntime is not installed")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("ch_PP-OCRv4_det_infer", (1, 3, 160, 224)),
        ("ch_PP-OCRv4_rec_infer", (2, 3, 48, 152)),
        ("ch_ppocr_mobile_v2.0_cls_infer", (3, 3, 48, 192)),
    ],
)
def test_a_network_for_reading_text(name: str, shape: tuple[int, ...]) -> None:
    assert FOUND is not None and FOUND.submodule_search_locations
    path = Path(FOUND.submodule_search_locations[0]) / "models" / f"{name}.onnx"
    value = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": value})
    (found,) = nnefc.compile(path, shape={"x": shape}).run({"x": value}).values()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()
