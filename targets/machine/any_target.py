"""Parses the text of a target into a machine: a CPU, or a device with the CPU that runs its library."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.multiversioning import MULTI, with_levels
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cpu.target import PRECISIONS, Target
from nnefc.targets.machine.named_targets import C_SOURCE
from nnefc.targets.machine.system import FileFormat

__all__ = ["AnyTarget", "parse_any_target"]


class AnyTarget(Protocol):
    """The interface of all machines."""

    @property
    def name(self) -> str:
        """The name that the user gave, for the library's description."""

    @property
    def backend(self) -> str:
        """The module of `compiler/backends/` that generates code for the machine."""

    @property
    def host(self) -> Target:
        """The CPU that runs the library; for a CPU, itself."""

    @property
    def format(self) -> FileFormat:
        """The file format of its libraries."""

    @property
    def zig_target(self) -> str:
        """The linker's name of the host."""

    def lanes(self, dtype: str) -> int:
        """Return the number of elements of `dtype` in one load."""

    def with_precision(self, precision: str) -> AnyTarget:
        """Return the machine with a precision, one of PRECISIONS.

        Raises:
            CompileError: the machine does not support it.
        """

    def with_wide(self, contractions: Sequence[str]) -> AnyTarget:
        """Return the machine with contractions that are computed in float32 in any precision."""

    def with_patches(self) -> AnyTarget:
        """Return the machine with the option to compute the first layers a few rows at a time.

        Raises:
            CompileError: the machine does not support it.
        """

    def made_small(self) -> AnyTarget:
        """Return the machine with the option to optimize code for size.

        Raises:
            CompileError: the machine does not support it.
        """

    def made_reproducible(self) -> AnyTarget:
        """Return the machine with the option that results have the same bits on all machines.

        Raises:
            CompileError: the machine does not support it.
        """


_PARSERS = {
    "cuda": ("nnefc.targets.machine.cuda.target", "parse_cuda_target"),
    C_SOURCE: ("nnefc.targets.machine.cpu.c_source", "parse_c_target"),
}
"""The first word of a target that is no CPU with code of LLVM's, and what reads the text."""


_MAX_LETTERS = 4096
"""Maximum characters of a target: all features of a processor, each switched on or off, are about 3,000."""


def parse_any_target(text: str, precision: str | None = None, keep_wide: Sequence[str] = ()) -> AnyTarget:
    """Return the machine of a target text: see :func:`parse_target` and, for `cuda …`, :func:`parse_cuda_target`.

    With the word `-multi` it is a processor and all later ISA levels: see :func:`with_levels`.

    Args:
        text: as the user writes it.
        precision: one of PRECISIONS; overrides the text.
        keep_wide: some of KEPT_WIDE, and patterns of names of tensors.

    Raises:
        CompileError: there is no such machine or precision, the machine does not support the precision, or the text is
            too long or not printable.
    """
    if len(text) > _MAX_LETTERS:
        raise CompileError(
            f"the target {text[:30]!r}… has {len(text):,} letters, but may have {_MAX_LETTERS:,}",
            hint="write it as JSON into a file, and give the file's name",
        )
    strange = next((letter for letter in text if not (letter.isprintable() or letter.isspace())), None)
    if strange is not None:  # which messages would show as several letters each
        raise CompileError(
            f"the target {text[:30]!r} has the letter {strange!r}, which cannot be printed",
            hint="`nnefc targets` prints all targets that have a name",
        )
    machine = _machine(text)
    if precision is not None:
        if precision not in PRECISIONS:
            raise CompileError(f"unknown precision {precision!r}", hint=f"choose one of {', '.join(PRECISIONS)}")
        machine = machine.with_precision(precision)
    return machine.with_wide(keep_wide) if keep_wide else machine


def _machine(text: str) -> AnyTarget:
    words = text.split()
    if MULTI in words:
        machine = _machine(" ".join(word for word in words if word != MULTI))
        if not isinstance(machine, Target) or machine.c_source:
            raise CompileError(f"the target {machine.name!r} has no levels", hint="those of processors have")
        return with_levels(machine)
    kind = next(iter(words), "")
    if kind not in _PARSERS:
        return parse_target(text)
    module, function = _PARSERS[kind]
    made: AnyTarget = getattr(import_module(module), function)(text)
    return made
