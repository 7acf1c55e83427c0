"""Tests of sessions that begin while their model is compiled in another process."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nnefc
import nnefc.onnxruntime as ort
from nnefc.driver.caching import background
from nnefc.integrations.onnxruntime import stand_in

X = np.float32([1, 2])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), ir_version=8), path)
    return path


def test_runs_before_and_after_the_library_is_there(tmp_path: Path, model: Path) -> None:
    session = ort.InferenceSession(model, background=True, cache=tmp_path / "cache")
    early = session._stand_in
    assert early is not None and early._session is not None
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], [2, 4])
    np.testing.assert_array_equal(session.run(None, {"x": [1.0, 2.0]})[0], [2, 4])
    with pytest.raises(nnefc.RunError):
        session.run(["z"], {"x": X})
    early.wait()
    assert session._stand_in is None
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], [2, 4])
    assert [each.name for each in session.get_outputs()] == ["y"]
    again = ort.InferenceSession(model, background=True, cache=tmp_path / "cache")
    assert again._stand_in is None  # its library is in the cache
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], [2, 4])


def test_without_onnxruntime_the_first_run_waits(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "_session", lambda *_: None)
    session = ort.InferenceSession(model, background=True)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], [2, 4])
    assert session._stand_in is None


@pytest.mark.parametrize("has_onnxruntime", [True, False])
def test_a_failure_is_one_warning(model: Path, monkeypatch: pytest.MonkeyPatch, has_onnxruntime: bool) -> None:
    monkeypatch.setattr(background, "_CHILD", "import sys; sys.stdin.buffer.read(); sys.exit(3)")
    if not has_onnxruntime:
        monkeypatch.setattr(stand_in, "_session", lambda *_: None)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        session = ort.InferenceSession(model, background=True)
        early = session._stand_in
        assert early is not None
        early.wait()
    if has_onnxruntime:
        assert [("goes on" in str(each.message), "status 3" in str(each.message)) for each in found] == [(True, True)]
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], [2, 4])
    else:
        with pytest.raises(background.CompileError, match="status 3"):
            session.run(None, {"x": X})


def test_errors_of_the_other_process(tmp_path: Path) -> None:
    compilation = background.Background(tmp_path / "none.onnx", background.CompileOptions(), False)
    with pytest.raises(background.CompileError, match=r"none\.onnx"):
        compilation.library()
    compilation.close()
