"""Compiles a library's functions for several ISA levels (multiversioning)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnefc.targets.codegen.cpu.objects import MachineCode

__all__ = ["IsaLevelsCode"]


@dataclass(frozen=True)
class IsaLevelsCode:
    """Codes of the same network, from that for the oldest processors on."""

    levels: tuple[MachineCode, ...]

    device = "cpu"
    arrival_bytes = 0

    @property
    def objects(self) -> tuple[bytes, ...]:
        """Returns the objects of all ISA levels."""
        return tuple(made for level in self.levels for made in level.objects)

    @property
    def texts(self) -> Mapping[str, Sequence[str]]:
        """Returns the texts of each ISA level, with its number before each name."""
        return {
            kind: tuple(f"level{n}_{pattern}" for n in range(len(self.levels)) for pattern in patterns)
            for kind, patterns in self.levels[0].texts.items()
        }

    def write_sources(self, _folder: Path) -> list[Path]:
        """Nothing: all is in the objects."""
        return []

    def write_text(self, kind: str, folder: Path) -> list[Path]:
        """Writes the text of all levels; see :meth:`MachineCode.write_text`."""
        files = []
        for number, level in enumerate(self.levels):
            for file in level.write_text(kind, folder):
                files.append(file.rename(file.with_name(f"level{number}_{file.name}")))
        return files

    def summary(self) -> str:
        """Returns the size of each ISA level's own code."""
        sizes = (f"{level.target.name} {sum(map(len, level.objects)):,}" for level in self.levels)
        return f"objects of {', '.join(sizes)} bytes"
