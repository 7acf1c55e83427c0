"""OpenVINO on the CPU, for latency; in float32 if nothing else is asked for: it would take bfloat16 by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import openvino

__all__ = ["OpenvinoModel"]

SETTINGS = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}


class OpenvinoModel:
    version: str = openvino.__version__.partition("-")[0]

    def __init__(self, model: Path, threads: int, hint: str = "f32") -> None:
        core = openvino.Core()
        settings = {**SETTINGS, "INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": str(threads)}
        compiled = core.compile_model(str(model), "CPU", settings)
        self._request = compiled.create_infer_request()
        self._outputs = len(compiled.outputs)

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for name, value in values.items():
            self._request.set_tensor(name, openvino.Tensor(value, shared_memory=True))
        self._request.infer()
        return [np.array(self._request.get_output_tensor(index).data) for index in range(self._outputs)]
