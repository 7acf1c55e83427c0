"""onnxruntime on its CPU provider, all its graph optimizations on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime

__all__ = ["OnnxruntimeSession"]


class OnnxruntimeSession:
    version: str = onnxruntime.__version__

    def __init__(self, model: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        results: list[np.ndarray] = self._session.run(None, values)
        return results
