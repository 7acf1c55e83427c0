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
    """Check that a kernel can be written as C source.

    Raises:
        CompileError: it calls a C function of the user.
    """
    if func.attrs and C_CALL in func.attrs:
        raise CompileError(
            "C source has no operators of one's own in C", hint="compile a static library: -t cortex-m4 -o NAME.a"
        )


@dataclass(frozen=True)
class CSourceCode:
    """A network's code as C functions.

    Attributes:
        program: the functions.
    """

    program: CProgram = field(repr=False)

    device = "cpu"
    arrival_bytes = 0
    objects: ClassVar[tuple[bytes, ...]] = ()
    texts: ClassVar[Mapping[str, Sequence[str]]] = {"c": ("*.c", "*.h", "*.weights")}

    def write_sources(self, _folder: Path) -> list[Path]:
        """Raise an error: C source is not linked.

        Raises:
            CompileError: always.
        """
        raise CompileError("C source has to be compiled before it can be loaded", hint='export it: export("model.c")')

    def write_text(self, _kind: str, _folder: Path) -> list[Path]:
        """Raise an error: `Artifact.export` writes C source, since it has the constants.

        Raises:
            CompileError: always.
        """
        raise CompileError("C source is a file, not a folder of texts", hint='export it: export("model.c")')

    def summary(self) -> None:
        """Nothing to say."""


class NoObjects:
    """Compiles nothing: all functions are written when the last one has been lowered."""

    def __call__(self, functions: Sequence[tirx.PrimFunc], path: Path) -> Callable[[], bytes]:
        """Return a function that returns an empty object."""
        return bytes

    def loaded(self, functions: Sequence[tirx.PrimFunc]) -> tvm.runtime.Module:
        """Raise an error: C source cannot be run here.

        Raises:
            CompileError: always.
        """
        raise CompileError("C source has to be compiled before it can be loaded", hint='export it: export("model.c")')
