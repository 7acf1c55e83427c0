"""What documents break of the standard's rules without a doubt of what is meant: it is read, with a warning.

    fragments or operators without the `extension` that enables them       as if it were there
    a fragment that is a compound operation of the standard                 the standard's
    a = [[1.0, 2.0]];  or an array of arrays of numbers for a tensor        constant(shape = [1, 2], value = [1.0, 2.0])
    padding = [[0, 0], [1, 1]]                                              padding = [(0, 0), (1, 1)]
    epsilon = e, where e is a tensor of rank 0                              the number in it

`--pedantic` makes these errors. Shapes that are read so have rules of their own: see `allowances.py`.
"""

from __future__ import annotations

from dataclasses import replace

from nnefc.frontends.nnef import syntax
from nnefc.frontends.nnef.array_values import with_values_as_tensors
from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.environment import FRAGMENTS, OPERATORS
from nnefc.frontends.nnef.rank_zero import NumberOf, with_numbers
from nnefc.frontends.nnef.signatures import signature_of
from nnefc.frontends.nnef.types import Dialect

__all__ = ["as_meant"]


def as_meant(document: syntax.Document, number_of: NumberOf) -> tuple[syntax.Document, list[str]]:
    """A document of the final dialect with what it lacks, and what was added or left out, as warnings.

    `number_of` tells the values of variables of rank 0 by their labels.
    """
    if document.dialect is not Dialect.FINAL or document.is_dynamic:
        return document, []
    again = [fragment for fragment in document.fragments if _is_the_standards(fragment)]
    notes = [f"the fragment '{each.name}' is left out: the standard has an operation of this name" for each in again]
    document = replace(document, fragments=tuple(each for each in document.fragments if each not in again))
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


def _is_the_standards(fragment: syntax.Fragment) -> bool:
    """Whether a fragment declares what the standard defines as a compound operation."""
    operation = STANDARD.lookup(fragment.name, Dialect.FINAL)
    if operation is None or operation.definition is None:
        return False
    own = signature_of(fragment, Dialect.FINAL)
    return own.spell(Dialect.FINAL) == operation.signature.spell(Dialect.FINAL)


def _has_operators(document: syntax.Document) -> bool:
    """Whether there is more than invocations of arguments that are names and literals."""
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
