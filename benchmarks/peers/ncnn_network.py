"""ncnn with a network that the PNNX converter wrote for it, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import ncnn
import numpy as np

__all__ = ["NcnnNetwork"]


class NcnnNetwork:
    version = version("ncnn")

    def __init__(self, model: Path, threads: int) -> None:
        self._net = ncnn.Net()
        options = self._net.opt
        options.num_threads = threads
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        options.use_bf16_storage = False
        if self._net.load_param(str(model)) or self._net.load_model(str(model.with_suffix(".bin"))):
            raise ValueError(f"ncnn does not load {model}")

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        (value,) = values.values()
        # The converter takes the batch of one away; integers have 32 bits there.
        item = value[0] if value.dtype == np.float32 else value[0].astype(np.int32)
        extractor = self._net.create_extractor()
        extractor.input("in0", ncnn.Mat(np.ascontiguousarray(item)))
        status, made = extractor.extract("out0")
        if status:
            raise ValueError(f"ncnn fails with status {status}")
        return [np.array(made)[None]]
