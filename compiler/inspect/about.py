"""Collects the facts about a network or library that a page shows at first: interface, sizes, metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

__all__ = ["Fact", "about_rows", "bytes_text", "range_words"]

Fact = tuple[str, str]
"""A name, and a text of one or several lines."""

_MAX_METADATA = 30
_MAX_TEXT = 300
_NO_LIMIT = 1 << 28
"""A maximum from this value on counts as unlimited."""


class _Tensor(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | str]: ...


def about_rows(
    head: Iterable[Fact],
    inputs: Sequence[_Tensor],
    outputs: Sequence[_Tensor],
    states: Sequence[_Tensor],
    dimensions: Iterable[tuple[str, int, int]],
    metadata: Mapping[str, str],
) -> tuple[Fact, ...]:
    """Return the facts about a network.

    Args:
        head: facts that come first, such as its name.
        inputs, outputs, states: its interface.
        dimensions: name, minimum and maximum of each dynamic dimension.
        metadata: of the model.
    """
    rows = [*head, ("inputs", _tensors(inputs)), ("outputs", _tensors(outputs)), ("states", _tensors(states))]
    rows.append(("dynamic dimensions", "\n".join(range_words(*each) for each in dimensions)))
    rows += [(f"metadata: {key}", _short(text)) for key, text in list(metadata.items())[:_MAX_METADATA]]
    return tuple((name, text) for name, text in rows if text)


def range_words(name: str, minimum: int, maximum: int) -> str:
    """Return the range of a dynamic dimension: `batch: 1 to 64`."""
    return f"{name}: {minimum:,} {'or more' if maximum > _NO_LIMIT else f'to {maximum:,}'}"


def bytes_text(count: int) -> str:
    """Format bytes in binary units: `96.0 MiB`."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count:,} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def _tensors(tensors: Iterable[_Tensor]) -> str:
    return "\n".join(f"{each.name}: {each.dtype}[{', '.join(map(str, each.shape))}]" for each in tensors)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
