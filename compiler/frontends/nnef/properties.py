"""What a document of tract's dialect says of itself: constant pairs in the fragment `tract_core_properties`.

tract, and torch-to-nnef as well, write there which versions made the model, and metadata of the format that it was in.
"""

from __future__ import annotations

from collections.abc import Iterator

from nnefc.frontends.nnef.syntax import Array, Assignment, Document, Literal, Tuple
from nnefc.model_metadata import MetadataEntries, metadata_of

__all__ = ["properties_of"]

_FRAGMENT = "tract_core_properties"


def properties_of(document: Document) -> MetadataEntries:
    """The pairs of literals that the fragment lists; what is computed, or read from files, is left out."""
    bodies = [fragment.body or () for fragment in document.fragments if fragment.name == _FRAGMENT]
    return metadata_of({}, [pair for body in bodies for assignment in body for pair in _pairs(assignment)])


def _pairs(assignment: Assignment) -> Iterator[tuple[str, str]]:
    if not isinstance(assignment.value, Array):
        return
    for item in assignment.value.items:
        match item:
            case Tuple(_, (Literal(_, str() as key), Literal(_, value))):
                yield key, str(value).lower() if isinstance(value, bool) else str(value)
