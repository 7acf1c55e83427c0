"""Models in tract's dialect, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nnefc.frontends.nnef.files.tensor_file import write_tensor

__all__ = ["HEAD", "model", "real"]

HEAD = "version 1.0;\nextension tract_registry tract_core;\nextension tract_registry tract_transformers;\n"
RNG = np.random.default_rng(11)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(folder: Path, body: str, values: Mapping[str, np.ndarray] | None = None, *, before: str = "") -> Path:
    """A model of a graph `network(x) -> (y)`; `before` comes between the registries and the graph."""
    (folder / "graph.nnef").write_text(f"{HEAD}{before}\ngraph network(x) -> (y)\n{{\n{body}\n}}\n")
    for label, value in (values or {}).items():
        write_tensor(folder / f"{label}.dat", value)
    return folder
