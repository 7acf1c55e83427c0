"""Tests of runs that another thread ends by `RunOptions.terminate`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import nnefc.onnxruntime as ort

ENDED = "the run was ended: terminate is set in its options"
ENDLESS = """
<ir_version: 8, opset_import: ["" : 13]>
g (float[4] x) => (float[4] y) <int64 n = {2000000000}, bool go = {1}> {
    y = Loop (n, go, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
        d = Identity (c)
        t = Cos (s)
    }>
}
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> ort.InferenceSession:
    path: Path = tmp_path_factory.mktemp("terminate") / "endless.onnx"
    onnx.save(onnx.parser.parse_model(ENDLESS), path)
    return ort.InferenceSession(path)


@pytest.mark.parametrize("converts", [False, True])
def test_a_run_of_another_thread_ends(session: ort.InferenceSession, converts: bool) -> None:
    options, failures = ort.RunOptions(), []
    x: Any = [1.0] * 4 if converts else np.ones(4, np.float32)

    def run() -> None:
        try:
            session.run(None, {"x": x}, options)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    while thread.is_alive():
        options.terminate = True
        thread.join(0.05)
    assert [str(error).rpartition(" : ")[2] for error in failures] == [ENDED]
    with pytest.raises(type(failures[0]), match=ENDED):
        session.run(None, {"x": x}, options)
