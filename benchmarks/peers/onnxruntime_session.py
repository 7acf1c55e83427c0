"""onnxruntime on its CPU provider, all its graph optimizations on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime

__all__ = ["OnnxruntimeSession", "exact_options"]


def exact_options(threads: int = 1) -> onnxruntime.SessionOptions:
    """Returns options with which products of bytes are exact on every processor.

    Without `session.x64quantprecision` sums of two products of an unsigned and a signed byte saturate at 16 bits on
    processors without VNNI: results of quantized networks then differ from what ONNX defines.
    """
    options = _options(threads)
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return options


class OnnxruntimeSession:
    version: str = onnxruntime.__version__

    def __init__(self, model: Path, threads: int, exact: bool = False) -> None:
        options = exact_options(threads) if exact else _options(threads)
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        results: list[np.ndarray] = self._session.run(None, values)
        return results
