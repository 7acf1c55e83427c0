"""Scope of a document: the standard operations of its dialect and the document's own fragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from nnefc.frontends.nnef.custom import custom_operation, declared_operations
from nnefc.frontends.nnef.declarations import Operation, Registry, Signature, nearest_name
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.signatures import signature_of
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.support.diagnostics import CompileError

__all__ = [
    "FRAGMENTS",
    "OPERATORS",
    "Callee",
    "Environment",
    "UserFragment",
    "document_environment",
    "operators_enabled",
]


@dataclass(frozen=True, eq=False)
class UserFragment:
    """A fragment with its signature: of the document, or the standard's definition of a compound operation."""

    syntax: syntax.Fragment
    signature: Signature


Callee: TypeAlias = Operation | UserFragment


@dataclass(frozen=True, eq=False)
class Environment:
    """Looks up what invocations name: fragments of the document, operators of the user, the standard's operations."""

    dialect: Dialect
    registry: Registry
    fragments: Mapping[str, UserFragment]
    custom: Mapping[str, Operation] = field(default_factory=dict)

    def lookup(self, name: str) -> Callee | None:
        """The fragment or operation of that name, or None."""
        return self.fragments.get(name) or self.custom.get(name) or self.registry.lookup(name, self.dialect)

    def suggestion(self, name: str) -> str:
        """A hint for a name that is unknown."""
        for dialect in Dialect:
            if self.registry.lookup(name, dialect) is not None:
                return f"The {dialect.value} dialect has it: choose it with --dialect {dialect.value}."
        nearest = nearest_name(name, self.fragments) or self.registry.nearest(name, self.dialect)
        if nearest is None:
            return (
                "See the list of supported operations, define a fragment of that name, or register it with --operators "
                "FILE.py, see docs/how-to/custom-operator.md."
            )
        return f"Did you mean '{nearest}'?"


FRAGMENTS = "KHR_enable_fragment_definitions"
OPERATORS = "KHR_enable_operator_expressions"
"""The extensions of the standard."""


def document_environment(document: syntax.Document, registry: Registry) -> Environment:
    """The environment of a document, its extensions and declarations checked.

    Raises:
        CompileError: an unknown extension; a fragment without the extension for it; a name taken twice.
    """
    source = document.source
    for extension in document.extensions:
        if extension.name not in (FRAGMENTS, OPERATORS):
            nearest = nearest_name(extension.name, (FRAGMENTS, OPERATORS))
            hint = f"Did you mean '{nearest}'?" if nearest else f"Known are {FRAGMENTS} and {OPERATORS}."
            location = source.location(extension.at)
            raise CompileError(f"the extension '{extension.name}' is not known", location=location, hint=hint)
        if extension.options:
            message = f"the extension '{extension.name}' takes no options"
            raise CompileError(message, location=source.location(extension.at))
    if document.fragments and document.dialect is Dialect.FINAL and not _enables(document, FRAGMENTS):
        location = source.location(document.fragments[0].at)
        hint = f"Write 'extension {FRAGMENTS};' after the version."
        raise CompileError("fragments are not enabled", location=location, hint=hint)
    fragments: dict[str, UserFragment] = {}
    custom = declared_operations(document.dialect)
    for fragment in document.fragments:
        _check_name(document, registry, fragments, fragment)
        signature = signature_of(fragment, document.dialect)
        operation = custom_operation(signature, document.dialect)
        if operation is None:
            fragments[fragment.name] = UserFragment(fragment, signature)
        else:
            custom[fragment.name] = operation
    return Environment(document.dialect, registry, fragments, custom)


def _enables(document: syntax.Document, name: str) -> bool:
    return any(extension.name == name for extension in document.extensions)


def operators_enabled(document: syntax.Document) -> bool:
    """Returns whether expressions may hold operators: always in the provisional dialect, by extension in the
    final one.
    """
    return document.dialect is Dialect.PROVISIONAL or _enables(document, OPERATORS)


def _check_name(
    document: syntax.Document,
    registry: Registry,
    fragments: Mapping[str, UserFragment],
    fragment: syntax.Fragment,
) -> None:
    """A fragment's name is neither another fragment's nor one of the standard's operations."""
    location = document.source.location(fragment.at)
    if registry.lookup(fragment.name, document.dialect) is not None:
        message = f"'{fragment.name}' is an operation of the standard and cannot be defined again"
        raise CompileError(message, location=location, hint="Give the fragment another name.")
    if fragment.name in fragments:
        first = document.source.location(fragments[fragment.name].syntax.at)
        message = f"the fragment '{fragment.name}' is defined twice"
        raise CompileError(message, location=location, notes=(("first defined here", first),))
