"""Reads the metadata of a document: in tract's dialect, pairs in the fragment `tract_core_properties`.

    fragment tract_core_properties() -> (properties: (string, tensor<scalar>)[])
    {
        properties = [("producer_name", "pytorch"), ("author", "somebody")];
    }

tract, and torch-to-nnef as well, write there which versions made the model, and metadata of the format that it was in.
The standard has nothing for this: there it is written in comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nnefc.frontends.nnef.language.syntax import Array, Assignment, Document, Literal, Tuple
from nnefc.ir.model_metadata import MetadataEntries, within_limits

__all__ = ["properties_of", "spelled_comments", "spelled_properties"]

_FRAGMENT = "tract_core_properties"


def properties_of(document: Document) -> MetadataEntries:
    """Returns the pairs of literals that the fragment lists; what is computed, or read from files, is left out."""
    bodies = [fragment.body or () for fragment in document.fragments if fragment.name == _FRAGMENT]
    return within_limits(pair for body in bodies for assignment in body for pair in _pairs(assignment))


def spelled_properties(metadata: Mapping[str, str]) -> str:
    """Returns the fragment that says these pairs; empty for none."""
    if not metadata:
        return ""
    pairs = ",\n".join(f"        ({_escaped(key)}, {_escaped(value)})" for key, value in metadata.items())
    head = f"fragment {_FRAGMENT}() -> (properties: (string, tensor<scalar>)[])"
    return f"{head}\n{{\n    properties = [\n{pairs}\n    ];\n}}\n\n"


def spelled_comments(metadata: Mapping[str, str]) -> str:
    """Returns a comment of a line for each pair; long values are cut off."""
    lines = []
    for key, value in metadata.items():
        spelled = repr(value) if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]!r} … ({len(value):,} characters)"
        lines.append(f"# {repr(key)[1:-1]}: {spelled}\n")
    return "".join(lines)


_MAX_SHOWN = 1000


def _escaped(text: str) -> str:
    """A string of the dialect: for tract quotes of both kinds end it, and `{{`, `{%` and `{#` begin templates."""
    return '"' + re.sub(r"""(["'\\]|(?<=\{)[{%#])""", r"\\\1", text) + '"'


def _pairs(assignment: Assignment) -> Iterator[tuple[str, str]]:
    if not isinstance(assignment.value, Array):
        return
    for element in assignment.value.elements:
        match element:
            case Tuple(_, (Literal(_, str() as key), Literal(_, value))):
                yield _unescaped(key), _unescaped(value) if isinstance(value, str) else str(value).lower()


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


def _unescaped(text: str) -> str:
    """A string of the dialect, in which a backslash takes the meaning from the next character, or gives it one."""
    return _ESCAPE.sub(lambda match: _CONTROL.get(match[1], match[1]), text)
