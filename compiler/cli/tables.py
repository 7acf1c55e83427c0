"""Formats tables and numbers as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nnefc.inspect.about import bytes_text

if TYPE_CHECKING:
    from nnefc.driver.artifact import Trial
    from nnefc.targets.description.library import LibraryDescription

__all__ = ["amount", "columns", "interface", "memory", "size_line", "trial_lines"]

memory = bytes_text


class DeclaredValue(Protocol):
    """An input or output as a model declares it: sizes may be names or unknown, and the shape too."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> object: ...
    @property
    def shape(self) -> Sequence[int | str | None] | None: ...


def columns(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Lines with the cells of each column under each other; `right` names the columns set to the right."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    to_right = set(right)
    return [
        "  ".join(
            cell.rjust(width) if i in to_right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def interface(
    inputs: Iterable[DeclaredValue], outputs: Iterable[DeclaredValue], states: Iterable[DeclaredValue] = ()
) -> list[str]:
    """Formats the inputs, outputs and states of a network, one line per tensor."""
    kinds = (("input", inputs), ("output", outputs), ("state", states))
    return columns([(kind, p.name, str(p.dtype), sizes(p.shape)) for kind, ps in kinds for p in ps])


def sizes(shape: Sequence[int | str | None] | None) -> str:
    """`[batch, 3, ?, ?]`; `?` is a size without a name, `[…]` a shape of which nothing is known."""
    return "[…]" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def amount(number: int) -> str:
    """12,345,678 as `12.3 million`; small numbers in full."""
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:,}"


def size_line(path: Path, description: LibraryDescription, seconds: float, *, separate: bool) -> str:
    """Formats what was written in how many seconds, and its size; `separate`: the constants are in another file."""
    if not path.is_file():
        return f"wrote {path} in {seconds:.1f} s"
    size, constants = path.stat().st_size, description.constant_bytes
    if separate:
        return f"wrote {path} in {seconds:.1f} s: {memory(size)}, and {memory(constants)} of constants next to it"
    parts = f"{memory(constants)} of constants, {memory(max(0, size - constants))} of code and runtime"
    return f"wrote {path} in {seconds:.1f} s: {memory(size)} ({parts}); {session_memory(description)}"


def session_memory(description: LibraryDescription) -> str:
    """Returns how much memory a session takes, as far as that is known before a run."""
    if description.is_dynamic:
        return "the memory of a session depends on the sizes of its inputs"
    return f"a session takes {memory(description.workspace_bytes)}"


def trial_lines(trials: Sequence[Trial]) -> list[str]:
    """Formats the trials of `--precision auto`, one line per precision; empty without trials."""
    rows = [("precision", "error", "ms", "")] if trials else []
    for each in trials:
        spelled = "" if each.seconds is None else f"{1e3 * each.seconds:.3g}"
        rows.append((each.precision, f"{each.error:.1e}", spelled, "taken" if each.taken else ""))
    return columns(rows, right=(1, 2))
