"""Formats tables and numbers as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nnefc.inspect.about import bytes_text

if TYPE_CHECKING:
    from nnefc.driver.artifact import Trial
    from nnefc.targets.description.library import LibraryDescription

__all__ = ["amount", "columns", "interface", "memory", "size_line", "trial_lines", "without_middle"]

memory = bytes_text


class DeclaredValue(Protocol):
    """An input or output that a model declares.

    Attributes:
        name: of the tensor.
        dtype: the element type.
        shape: sizes, names of dynamic dimensions, or None for unknown sizes; None: the shape is unknown.
    """

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> object: ...
    @property
    def shape(self) -> Sequence[int | str | None] | None: ...


def columns(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Return the lines of a table whose columns are aligned; `right` has the indices of right-aligned columns."""
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
    """Format a shape, such as `[batch, 3, ?, ?]`; `?` is an unknown size, `[…]` an unknown shape."""
    return "[…]" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def amount(number: int) -> str:
    """Format a number in three digits, such as `12.3 million`; smaller numbers in full."""
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:,}"


def without_middle(text: str, length: int) -> str:
    """Shorten a text to `length` characters by removing its middle: names in one network differ at their ends."""
    return text if len(text) <= length else f"{text[: length // 2 - 1]}…{text[-(length - length // 2) :]}"


def size_line(path: Path, description: LibraryDescription, seconds: float, *, separate: bool) -> str:
    """Return a line with the path, the time and the sizes of a library that was written.

    Args:
        path: of the library.
        description: of the library.
        seconds: that compiling and writing took.
        separate: whether the constants are in another file.
    """
    if not path.is_file():
        return f"wrote {path} in {seconds:.1f} s"
    size, constants = path.stat().st_size, description.constant_bytes
    if separate:
        return f"wrote {path} in {seconds:.1f} s: {memory(size)}, and {memory(constants)} of constants next to it"
    parts = f"{memory(constants)} of constants, {memory(max(0, size - constants))} of code and runtime"
    return f"wrote {path} in {seconds:.1f} s: {memory(size)} ({parts}); {session_memory(description)}"


def session_memory(description: LibraryDescription) -> str:
    """Return the memory of a session, as far as it is known before a run."""
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
