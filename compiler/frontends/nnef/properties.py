"""What a document of tract's dialect says of itself: constant pairs in the fragment `tract_core_properties`.

tract, and torch-to-nnef as well, write there which versions made the model, and metadata of the format that it was in.
"""

from __future__ import annotations

import re
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
                yield _unescaped(key), _unescaped(value) if isinstance(value, str) else str(value).lower()


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


def _unescaped(text: str) -> str:
    """A string of the dialect, in which a backslash takes the meaning from the next character, or gives it one."""
    return _ESCAPE.sub(lambda match: _CONTROL.get(match[1], match[1]), text)
