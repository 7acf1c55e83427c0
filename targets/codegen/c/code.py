"""Holds a network as C source, from which a `.c` and a `.h` are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import tvm
from tvm import tirx

from nnefc.ir.attributes import C_CALL
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.generated_source import CProgram

__all__ = ["CSourceCode", "NoObjects", "check_kernel"]


def check_kernel(func: tirx.PrimFunc) -> None:
    """Refuses kernels that C source does not have.

    Raises:
        CompileError: it calls a function in C of the user's.
    """
    if func.attrs and C_CALL in func.attrs:
        raise CompileError(
            "C source has no operators of one's own in C", hint="compile a static library: -t cortex-m4 -o NAME.a"
        )


@dataclass(frozen=True)
class CSourceCode:
    """A network's code as functions in C.

    Attributes:
        program: the functions.
    """

    program: CProgram = field(repr=False)

    device = "cpu"
    arrival_bytes = 0
    objects: ClassVar[tuple[bytes, ...]] = ()
    texts: ClassVar[Mapping[str, Sequence[str]]] = {"c": ("*.c", "*.h", "*.weights")}

    def write_sources(self, _folder: Path) -> list[Path]:
        """Refuses to be linked.

        Raises:
            CompileError: always.
        """
        raise CompileError("C source has to be compiled before it can be loaded", hint='export it: export("model.c")')

    def write_text(self, _kind: str, _folder: Path) -> list[Path]:
        """Refuses what `Artifact.export` does, which knows the constants.

        Raises:
            CompileError: always.
        """
        raise CompileError("C source is a file, not a folder of texts", hint='export it: export("model.c")')

    def summary(self) -> None:
        """Nothing to say."""


class NoObjects:
    """Compiles nothing: all functions are written when the last one is lowered."""

    def __call__(self, functions: Sequence[tirx.PrimFunc], path: Path) -> Callable[[], bytes]:
        """Returns what makes nothing."""
        return bytes

    def loaded(self, functions: Sequence[tirx.PrimFunc]) -> tvm.runtime.Module:
        """Refuses to run functions here.

        Raises:
            CompileError: always.
        """
        raise CompileError("C source has to be compiled before it can be loaded", hint='export it: export("model.c")')
