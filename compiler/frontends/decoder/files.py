"""A built model as the files that the NNEF front end reads, without any of them on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nnefc.frontends.decoder.network import BuiltModel
from nnefc.frontends.decoder.quantization import QUANTIZATIONS, can_be_rounded
from nnefc.frontends.nnef.files.archive import ModelFiles
from nnefc.operators.nn.block_quantization import BlockTensor

__all__ = ["GeneratedFiles"]


@dataclass(frozen=True)
class GeneratedFiles:
    """The document of a built model, and its tensors.

    Attributes:
        model: what was built.
        document: what messages call the document.
        asked: the names of the files that it was built from, as :class:`ModelFiles` has them.
        quantize: to what matrices of floats are rounded, one of `QUANTIZATIONS`; None for nothing.
    """

    model: BuiltModel
    document: str
    asked: tuple[str, ...] = ()
    quantize: str | None = None

    def find(self, name: str) -> npt.NDArray[np.uint8] | None:
        """There are no further files."""
        return None

    def describe(self, name: str) -> str:
        """The name of a file as messages show it."""
        return f"{self.document}: {name}"

    def tensor(self, label: str) -> npt.NDArray[Any] | BlockTensor | None:
        """The elements of the tensor with a label; vectors have a first axis of size 1."""
        stored = self.model.tensors.get(label)
        if stored is None:
            return None
        found = stored.value()
        is_float = isinstance(found, np.ndarray) or found.is_float
        if self.quantize and is_float and can_be_rounded(label, found.shape):
            return QUANTIZATIONS[self.quantize](found if isinstance(found, np.ndarray) else found.values())
        return found.reshape(1, -1) if isinstance(found, np.ndarray) and found.ndim == 1 else found

    def text(self) -> str:
        """The document."""
        return self.model.text

    def quantization(self) -> str | None:
        """None: scales are in the tensors' blocks."""
        return None

    def text_of(self, name: str) -> str | None:
        """There are no further files."""
        return None

    def inner(self, label: str) -> ModelFiles | None:
        """There are no models inside."""
        return None
