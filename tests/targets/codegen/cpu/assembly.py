"""The hottest loop of compiled code, read from its assembly text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["DIALECTS", "Dialect", "Loop", "hottest_loop"]


@dataclass(frozen=True)
class Dialect:
    """How instructions that matter look on an architecture: regular expressions for whole lines.

    Attributes:
        arithmetic: a multiply-add (or a multiplication, where they are two) of a full vector.
        spill: a load or store of a vector on the stack.
        branch: a jump; its last operand is the label.
    """

    arithmetic: str
    spill: str
    branch: str


DIALECTS = {
    "x86_64": Dialect(
        r"vfn?m(add|sub)\d+ps\s.*%[yz]mm\d+", r"(v?mov[au]ps|v?mov\w*)\s.*\(%rsp\).*|.*\(%rsp\).*%[xyz]mm\d+", r"j\w+"
    ),
    "sse": Dialect(r"mulps\s.*", r".*\(%rsp\).*%xmm\d+|.*%xmm\d+.*\(%rsp\)", r"j\w+"),
    "aarch64": Dialect(
        r"fmla\s+v\d+\.4s.*", r"(str|ldr|stp|ldp|stur|ldur)\s+q\d+.*\[sp\b.*", r"(b\.\w+|cbn?z|tbn?z|b)"
    ),
    "arm": Dialect(r"vfma\.f32\s+q\d+.*", r"(vld1|vst1|vldmia|vstmia|vldr|vstr)\S*\s.*\[?sp\b.*", r"b\w*"),
    "riscv64": Dialect(r"fmadd\.s\s.*", r"(fsw|flw)\s.*\(sp\)", r"(b\w+|j)"),
    "riscv64v": Dialect(r"vfm(acc|add)\.v[fv]\s.*", r"(vs\dr|vl\dr|vse|vle)\S*\s.*\(sp\)", r"(b\w+|j)"),
}


@dataclass(frozen=True)
class Loop:
    """An innermost loop: its instructions, and how many are arithmetic or spills."""

    lines: tuple[str, ...]
    arithmetic: int
    spills: int


def hottest_loop(text: str, dialect: Dialect) -> Loop:
    """The innermost loop with the most arithmetic."""
    found = [
        Loop(lines, _count(lines, dialect.arithmetic), _count(lines, dialect.spill))
        for lines in _innermost_loops(text, dialect.branch)
    ]
    return max(found, key=lambda loop: loop.arithmetic)


def _count(lines: tuple[str, ...], pattern: str) -> int:
    return sum(re.fullmatch(pattern, line) is not None for line in lines)


def _innermost_loops(text: str, branch: str) -> Iterator[tuple[str, ...]]:
    """The lines from a label to a jump back to it, if no such piece is inside."""
    labels: dict[str, int] = {}
    lines: list[str] = []
    last = -1  # where the latest loop began
    for raw in text.splitlines():
        line = re.split(r"\s*(?:#|@|//|;)", raw.strip())[0].strip()
        label = re.fullmatch(r"([.\w$]+):", line)
        if label:
            labels[label[1]] = len(lines)
            continue
        if not line or line.startswith("."):
            continue
        lines.append(line)
        jump = re.fullmatch(rf"{branch}\s+(?:.*[\s,])?([.\w$]+)", line)
        if jump and jump[jump.lastindex or 1] in labels:
            start = labels[jump[jump.lastindex or 1]]
            if start > last:
                last = start
                yield tuple(lines[start:])
