"""tract on the CPU. Its Python package has no setting for threads: it runs on one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tract

__all__ = ["TractModel"]


class TractModel:
    version: str = tract.version()

    def __init__(self, model: Path, threads: int) -> None:
        self._model = tract.onnx().load(model).into_model().into_runnable()

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [result.to_numpy() for result in self._model.run(list(values.values()))]
