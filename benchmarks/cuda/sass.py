"""Reads machine code (SASS), as `cuobjdump -sass` of the CUDA toolkit writes it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Function", "Instruction", "disassembled", "functions_of"]

_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)([^;]*);")


@dataclass(frozen=True)
class Instruction:
    """An instruction of a warp.

    Attributes:
        address: in bytes, from the function's beginning.
        guard: the predicate of the threads that execute it, as `!P0`; empty for all.
        name: with its options, as `LDGSTS.E.BYPASS.128`.
        operands: as text, results first.
    """

    address: int
    guard: str
    name: str
    operands: str

    @property
    def opcode(self) -> str:
        """Returns the name without its options."""
        return self.name.partition(".")[0]

    @property
    def target(self) -> int | None:
        """Returns the address that a branch goes to."""
        found = re.search(r"0x([0-9a-f]+)", self.operands) if self.opcode == "BRA" else None
        return int(found[1], 16) if found else None


@dataclass(frozen=True)
class Function:
    """A kernel's code for an architecture, without instructions that no thread executes."""

    kernel: str
    architecture: int
    body: tuple[Instruction, ...]


def functions_of(text: str) -> Iterator[Function]:
    """Yields the functions that `cuobjdump -sass` shows."""
    for part in re.split(r"^Fatbin elf code:", text, flags=re.MULTILINE)[1:]:
        found = re.search(r"arch = sm_(\d+)", part)
        assert found is not None
        for function in part.split("Function : ")[1:]:
            matches = filter(None, map(_INSTRUCTION.match, function.splitlines()))
            parsed = (Instruction(int(m[1], 16), m[2] or "", m[3], m[4].strip()) for m in matches)
            body = tuple(each for each in parsed if each.guard != "!PT")
            yield Function(function.split()[0], int(found[1]), body)


def disassembled(image: bytes) -> str:
    """Returns what `cuobjdump -sass` writes of a fat binary."""
    with tempfile.NamedTemporaryFile(suffix=".fatbin") as file:
        file.write(image)
        file.flush()
        return subprocess.run(["cuobjdump", "-sass", file.name], capture_output=True, text=True, check=True).stdout
