"""Compiles a library's functions for several ISA levels (multiversioning)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnefc.targets.codegen.cpu.objects import MachineCode

__all__ = ["IsaLevelsCode"]


@dataclass(frozen=True)
class IsaLevelsCode:
    """The code of a network for several ISA levels, from the oldest processors on."""

    levels: tuple[MachineCode, ...]

    device = "cpu"
    arrival_bytes = 0

    @property
    def objects(self) -> tuple[bytes, ...]:
        """Returns the objects of all ISA levels."""
        return tuple(made for level in self.levels for made in level.objects)

    @property
    def texts(self) -> Mapping[str, Sequence[str]]:
        """The texts of each ISA level, with the number of the level before each name."""
        return {
            kind: tuple(f"level{n}_{pattern}" for n in range(len(self.levels)) for pattern in patterns)
            for kind, patterns in self.levels[0].texts.items()
        }

    def write_sources(self, _folder: Path) -> list[Path]:
        """Return nothing: the objects have all code."""
        return []

    def write_text(self, kind: str, folder: Path) -> list[Path]:
        """Write the text of all levels, as :meth:`MachineCode.write_text`."""
        files = []
        for number, level in enumerate(self.levels):
            for file in level.write_text(kind, folder):
                files.append(file.rename(file.with_name(f"level{number}_{file.name}")))
        return files

    def summary(self) -> str:
        """Return the size of the code that each ISA level has for itself."""
        sizes = (f"{level.target.name} {sum(map(len, level.objects)):,}" for level in self.levels)
        return f"objects of {', '.join(sizes)} bytes"
