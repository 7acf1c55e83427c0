"""LiteRT with a TFLite file: by XNNPACK where it takes an operator, by LiteRT's optimized kernels elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

__all__ = ["LitertNetwork"]


class LitertNetwork:
    version = version("ai-edge-litert")

    def __init__(self, model: Path, threads: int) -> None:
        self._interpreter = Interpreter(str(model), num_threads=threads)  # XNNPACK is its default
        self._interpreter.allocate_tensors()
        self._inputs = [detail["index"] for detail in self._interpreter.get_input_details()]
        self._outputs = [detail["index"] for detail in self._interpreter.get_output_details()]

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for index, value in zip(self._inputs, values.values(), strict=True):
            self._interpreter.set_tensor(index, value)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(index) for index in self._outputs]
