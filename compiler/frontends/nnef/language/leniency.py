"""Accepts documents that break the standard's rules without ambiguity, with a warning.

    fragments or operators without the `extension` that enables them       as if it were there
    a fragment that is a compound operation of the standard                 the standard's, if they are defined alike
    a = [[1.0, 2.0]];  or an array of numbers for a tensor                  constant(shape = [1, 2], value = [1.0, 2.0])
    padding = [[0, 0], [1, 1]]                                              padding = [(0, 0), (1, 1)]
    epsilon = e, where e is a tensor of rank 0                              the number in it

`--pedantic` makes these errors. Shapes that are read so have rules of their own: see `relaxed_shapes.py`.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from itertools import count
from typing import Any

from nnefc.frontends.nnef.array_values import with_values_as_tensors
from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.environment import FRAGMENTS, OPERATORS
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.signatures import signature_of
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.rank_zero import NumberOf, with_numbers

__all__ = ["as_meant"]


def as_meant(document: syntax.Document, number_of: NumberOf) -> tuple[syntax.Document, list[str]]:
    """A document of the final dialect with what it lacks, and what was added or left out, as warnings.

    `number_of` tells the values of variables of rank 0 by their labels.
    """
    if document.dialect is not Dialect.FINAL or document.is_dynamic:
        return document, []
    document, notes = _with_own_fragments(document)
    document, written = with_values_as_tensors(document)
    notes += written
    document, read = with_numbers(document, number_of)
    notes += read
    for name, needed in ((FRAGMENTS, bool(document.fragments)), (OPERATORS, _has_operators(document))):
        if needed and all(extension.name != name for extension in document.extensions):
            extension = syntax.Extension(document.graphs[0].at, name, ())
            document = replace(document, extensions=(*document.extensions, extension))
            notes.append(f"it lacks 'extension {name};', which its {_WHAT[name]} need")
    return document, notes


_WHAT = {FRAGMENTS: "fragments", OPERATORS: "operators"}


def _with_own_fragments(document: syntax.Document) -> tuple[syntax.Document, list[str]]:
    """Without the fragments that the standard defines alike; those it defines in another way under other names.

    Later revisions of the standard have operations, such as `gelu`, that older documents define themselves.
    """
    kept: list[syntax.Fragment] = []
    names: dict[str, str] = {}
    notes: list[str] = []
    taken = {fragment.name for fragment in document.fragments}
    for fragment in document.fragments:
        definition = _definition(fragment)
        if definition is None:
            kept.append(fragment)
        elif fragment.body is None or _content(fragment.body) == _content(definition.body):
            notes.append(f"the fragment '{fragment.name}' is left out: the standard has an operation of this name")
        else:
            numbered = (f"{fragment.name}_{n}" for n in count(1))
            name = next(n for n in numbered if n not in taken and STANDARD.lookup(n, Dialect.FINAL) is None)
            taken.add(name)
            names[fragment.name] = name
            kept.append(replace(fragment, name=name))
            notes.append(f"the fragment '{fragment.name}' is taken, not the standard's operation, which differs")

    def renamed(node: Any) -> Any:
        known = isinstance(node, syntax.Invocation) and node.name in names
        return replace(node, name=names[node.name]) if known else node

    fragments, graphs = tuple(kept), document.graphs
    if names:
        fragments = tuple(replace(each, body=syntax.rewritten(each.body, renamed)) for each in fragments)
        graphs = tuple(replace(each, body=syntax.rewritten(each.body, renamed)) for each in graphs)
    return replace(document, fragments=fragments, graphs=graphs), notes


def _definition(fragment: syntax.Fragment) -> syntax.Fragment | None:
    """The standard's definition of what a fragment declares; None if there is none."""
    operation = STANDARD.lookup(fragment.name, Dialect.FINAL)
    if operation is None or operation.definition is None:
        return None
    own = signature_of(fragment, Dialect.FINAL)
    alike = own.spell(Dialect.FINAL) == operation.signature.spell(Dialect.FINAL)
    return operation.defined(Dialect.FINAL) if alike else None


def _content(part: object) -> list[tuple[Any, ...]]:
    """A part of the tree without its locations, to be compared: every node with its values and its numbers of parts."""
    return [
        (
            type(node),
            *(_restored(getattr(node, element.name)) for element in fields(node) if element.name not in ("at", "sign")),
        )
        for node in syntax.parts_of(part)
        if is_dataclass(node)
    ]


def _restored(value: Any) -> Any:
    if isinstance(value, tuple):
        return len(value)
    return type(value) if is_dataclass(value) else (type(value), value)


def _has_operators(document: syntax.Document) -> bool:
    """Returns whether there is more than invocations of arguments that are names and literals."""
    bodies = [graph.body for graph in document.graphs]
    bodies += [fragment.body for fragment in document.fragments if fragment.body is not None]
    return any(
        not isinstance(assignment.value, syntax.Invocation) or any(map(_is_operator, syntax.parts_of(assignment.value)))
        for body in bodies
        for assignment in body
    )


def _is_operator(node: object) -> bool:
    if isinstance(node, syntax.Unary):
        return not isinstance(node.operand, syntax.Literal)
    return isinstance(
        node, syntax.Binary | syntax.Select | syntax.Subscript | syntax.Range | syntax.Comprehension | syntax.Builtin
    )
