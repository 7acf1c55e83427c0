"""What onnxruntime makes of a graph, in a process of its own, which it may end.

python tests/fuzz/graphs/peer.py MODEL.onnx INPUTS.npz RESULTS.npz
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

__all__ = ["ENDED", "REFUSED", "peer_results", "results_here"]

ENDED, REFUSED = "ended", "refuses"
"""The outcome instead of results: it ended its process, or took too long; or it does not take the graph."""

_REFUSED = 3
"""What the process ends with if onnxruntime does not take the graph."""
_PATIENCE = 60.0
"""Seconds that it may take."""


def peer_results(model: onnx.ModelProto, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]] | str:
    """The results of a graph of numbers by name, or one of the words above."""
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name) / each for each in ("model.onnx", "inputs.npz", "results.npz")]
        onnx.save(model, files[0])
        np.savez(files[1], **feeds)
        command = [sys.executable, "-P", __file__, *map(str, files)]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            return ENDED
        if done.returncode:
            return REFUSED if done.returncode == _REFUSED else ENDED
        with np.load(files[2]) as results:
            return dict(results)


def results_here(model: bytes, feeds: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]] | None:
    """The results in this process; None if onnxruntime does not take the graph."""
    import onnxruntime  # here, for it takes a while, and most who ask do it in another process

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "0")  # with 1 it errs in some graphs
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        found = session.run(None, dict(feeds))
    except Exception:  # it has many kinds of errors, of which none matters here
        return None
    return {each.name: value for each, value in zip(session.get_outputs(), found, strict=True)}


def _main(model: str, inputs: str, results: str) -> int:
    with np.load(inputs) as feeds:
        found = results_here(Path(model).read_bytes(), feeds)
    if found is None:
        return _REFUSED
    np.savez(results, **found)
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
