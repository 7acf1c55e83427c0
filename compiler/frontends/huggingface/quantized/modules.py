"""Collects the tensors of a quantized folder by the modules that they belong to, and reads their integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nnefc.frontends.decoder import StoredTensor
from nnefc.frontends.decoder.weights import JoinedTensor, shown
from nnefc.frontends.tensor_types import TensorType
from nnefc.frontends.tensor_types.integers import INTEGERS, integers_of
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.support.diagnostics import CompileError

__all__ = ["Module", "Tensors", "modules_with", "without"]

Tensors = dict[str, StoredTensor]


class Module:
    """The tensors of one module.

    Attributes:
        name: what their names begin with, without the last dot.
    """

    def __init__(self, name: str, tensors: Mapping[str, StoredTensor], source: Path) -> None:
        """Takes the tensors of a folder; those of other modules are left alone."""
        self.name, self._tensors, self._source = name, tensors, source

    def has(self, part: str) -> bool:
        """Returns whether there is a tensor."""
        return f"{self.name}.{part}" in self._tensors

    def tensor(self, part: str) -> StoredTensor:
        """Returns a tensor.

        Raises:
            CompileError: there is none.
        """
        if not self.has(part):
            raise self.refused(f"has no tensor '{part}'")
        return self._tensors[f"{self.name}.{part}"]

    def sizes(self, part: str) -> tuple[int, int]:
        """Returns the shape of a matrix.

        Raises:
            CompileError: there is none, or it has no elements.
        """
        shape = self.tensor(part).shape
        if len(shape) != 2 or 0 in shape:
            raise self.refused(f"has a tensor '{part}' with the shape {list(shape)}, which is no matrix")
        return shape[0], shape[1]

    def integers(self, part: str, *kinds: str, rank: int = 2) -> Array:
        """Returns the elements of a tensor of integers, in their own type; nothing is copied.

        Raises:
            CompileError: there is none, it is of another type than one of `kinds` or of another rank, or it is empty.
        """
        found = self.tensor(part)
        if found.type.name not in kinds or found.type.name not in INTEGERS or len(found.shape) != rank:
            of = f"elements of the type {found.type.name} and the shape {list(found.shape)}"
            raise self.refused(f"has a tensor '{part}' with {of}, not of {' or '.join(kinds)} with {rank} dimensions")
        if 0 in found.shape:
            raise self.refused(f"has a tensor '{part}' without elements")
        return integers_of(found.type.name, found.data, found.shape)

    def floats(self, part: str) -> Array:
        """Returns the elements of a tensor of floats, float32.

        Raises:
            CompileError: there is none.
        """
        found = self.tensor(part)
        if found.type.name in INTEGERS:
            raise self.refused(f"has a tensor '{part}' with elements of the type {found.type.name}, not of floats")
        return found.value_as_floats()

    def refused(self, reason: str) -> CompileError:
        """Returns an error that names the module."""
        return CompileError(f"'{self._source}': the module '{shown(self.name)}' {reason}")

    def joined(
        self,
        kind: TensorType,
        shape: tuple[int, ...],
        parts: tuple[str, ...],
        join: Callable[[], Array | BlockTensor],
        columns: Array | None = None,
    ) -> JoinedTensor:
        """Returns the matrix that tensors of the module are, whose elements are decoded when they are asked for."""
        found = tuple(self.tensor(part) for part in parts if self.has(part))
        return JoinedTensor(kind, shape, found[0].data[:0], parts=found, join=join, columns=columns)


def modules_with(ending: str, tensors: Mapping[str, StoredTensor], source: Path) -> list[Module]:
    """Returns the modules that have a tensor of a name, in the order of the folder."""
    names = (label.removesuffix(f".{ending}") for label in tensors if label.endswith(f".{ending}"))
    return [Module(name, tensors, source) for name in names]


def without(tensors: Tensors, name: str, parts: tuple[str, ...]) -> None:
    """Takes the tensors of a module that are read out of those of the folder."""
    for part in parts:
        tensors.pop(f"{name}.{part}", None)
