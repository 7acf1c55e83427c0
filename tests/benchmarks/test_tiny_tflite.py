"""The networks of MLPerf Tiny as TFLite files compute what they compute as ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from models.tiny_tflite import write_tflite
from tflite_files import reference
from tiny_networks import NETWORKS, input_shape, write_float

pytest.importorskip("ai_edge_litert")


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_both_formats_give_the_same(name: str, tmp_path: Path) -> None:
    x = np.random.default_rng(4).standard_normal(input_shape(name)).astype(np.float32)
    last = np.moveaxis(x, 1, -1) if x.ndim == 4 else x
    write_float(name, tmp_path / "network.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "network.onnx"), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"input": x})
    write_tflite(name, tmp_path / "network.tflite")
    ((found,),) = reference((tmp_path / "network.tflite").read_bytes(), [np.ascontiguousarray(last)])
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())
    write_tflite(name, tmp_path / "int8.tflite", is_int8=True)
    ((whole,),) = reference((tmp_path / "int8.tflite").read_bytes(), [np.zeros(last.shape, np.int8)])
    assert whole.shape == wanted.shape and whole.dtype == np.int8
