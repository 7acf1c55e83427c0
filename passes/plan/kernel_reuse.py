"""Reuses kernels of a library for a further program that computes the same, so that they are compiled once."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

__all__ = ["CompiledKernels"]


class CompiledKernels:
    """Flat functions with symbols, by what they compute."""

    def __init__(self) -> None:
        self._alike: dict[int, list[tuple[tirx.PrimFunc, str]]] = {}

    def copy(self) -> CompiledKernels:
        """Returns the same kernels, for a program that may be discarded."""
        made = CompiledKernels()
        made._alike = {key: list(alike) for key, alike in self._alike.items()}
        return made

    def like(self, func: tirx.PrimFunc) -> str | None:
        """Returns the symbol of an equal function; None if there is none, in which case `func` is added."""
        symbol, bare = str(func.attrs["global_symbol"]), func.without_attr("global_symbol")
        alike = self._alike.setdefault(tvm_ffi.structural_hash(bare), [])
        for other, name in alike:
            if tvm_ffi.structural_equal(other, bare):
                return name
        alike.append((bare, symbol))
        return None
