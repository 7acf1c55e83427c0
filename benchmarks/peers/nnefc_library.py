"""A library that nnefc compiled."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np

from nnefc.loader import load

__all__ = ["NnefcLibrary"]


class NnefcLibrary:
    version = version("nnefc")

    def __init__(self, library: Path, threads: int, flush_subnormals: bool = True) -> None:
        self._model = load(library, threads=threads, flush_subnormals=flush_subnormals)
        self._names = [tensor.name for tensor in self._model.inputs]

    def run(self, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        if list(values) != self._names and all(name in values for name in self._names):
            values = {name: values[name] for name in self._names}  # without those that were given when it was compiled
        result = self._model(*values.values())  # the other format's twin has other names
        return list(result) if isinstance(result, tuple) else [result]
