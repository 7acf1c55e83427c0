"""Metadata that a model file holds besides its network: producer, version, and the author's entries.

The metadata are one mapping of strings. Fields of an ONNX model are entries under the fields' names; an author's entry
with the name of a field, or with the prefix `metadata_props.`, gets that prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["FIELDS", "MetadataEntries", "metadata_of", "own_entries", "within_limits"]

FIELDS = ("producer_name", "producer_version", "domain", "model_version", "doc_string", "graph_doc_string")
"""The names of a model's own fields."""

_PREFIX = "metadata_props."

_MAX_ENTRIES = 1024
_MAX_BYTES = 1 << 18
"""Maximum bytes of all keys and values: a library contains them twice."""
_MAX_SHOWN = 60


@dataclass
class MetadataEntries:
    """The metadata of a model, and warnings about entries that were left out."""

    entries: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def metadata_of(
    fields: Mapping[str, str | bytes], own: Iterable[tuple[str | bytes, str | bytes]] = ()
) -> MetadataEntries:
    """Collect metadata, within limits; entries that exceed these are left out.

    Args:
        fields: of the model, by names among :data:`FIELDS`; empty ones are ignored.
        own: the author's entries, in their order; of equal keys the last one counts.
    """
    given = [(name, _text(fields[name])) for name in FIELDS if fields.get(name)]
    given += [(f"{_PREFIX}{key}" if _is_taken(key) else key, value) for key, value in _texts(own)]
    return within_limits(given)


def within_limits(entries: Iterable[tuple[str, str]]) -> MetadataEntries:
    """Collect entries unchanged, of equal keys the last one; entries that exceed the limits are left out."""
    found = MetadataEntries()
    used = 0
    for key, value in dict(entries).items():
        size = len(key.encode()) + len(value.encode())
        if used + size > _MAX_BYTES or len(found.entries) == _MAX_ENTRIES:
            found.warnings.append(
                f"the metadata {key[:_MAX_SHOWN]!r}, {size:,} bytes, are left out: a library keeps "
                f"{_MAX_ENTRIES:,} entries, of {_MAX_BYTES:,} bytes together"
            )
            if len(found.warnings) == _MAX_WARNINGS:
                break
            continue
        used += size
        found.entries[key] = value
    return found


_MAX_WARNINGS = 8


def own_entries(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the author's entries from a mapping of :func:`metadata_of`, by the model's keys."""
    return {key.removeprefix(_PREFIX): value for key, value in metadata.items() if key not in FIELDS}


def _is_taken(key: str) -> bool:
    return key in FIELDS or key.startswith(_PREFIX)


def _texts(own: Iterable[tuple[str | bytes, str | bytes]]) -> Iterable[tuple[str, str]]:
    return ((_text(key), _text(value)) for key, value in own)


def _text(value: str | bytes) -> str:
    """Return a text that can be encoded in UTF-8; damaged files may have other bytes."""
    raw = value if isinstance(value, bytes) else value.encode(errors="replace")
    return raw.decode(errors="replace")
