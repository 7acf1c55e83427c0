"""Resolves custom operators and their registries in documents of tract's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnefc.frontends.nnef.custom import taken_apart
from nnefc.frontends.nnef.dynamic.registry import ExtensionContext, ExtensionOperator, ExtensionRegistry
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.signatures import signature_of
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.values import Arguments
from nnefc.operators.custom_registry import custom_operator, custom_operators

__all__ = ["custom_extension", "custom_registries"]


def custom_registries() -> dict[str, ExtensionRegistry]:
    """The registries that registered operators say they belong to: a document that names one can call these."""
    found = (custom_operator("nnef", name) for name in custom_operators("nnef"))
    return {
        declared.registry: ExtensionRegistry(declared.registry, {})
        for declared in found
        if declared and declared.registry
    }


def custom_extension(
    name: str, fragment: syntax.Fragment | None, registries: Mapping[str, ExtensionRegistry]
) -> ExtensionOperator | None:
    """The operator that is registered under a name, declared by its registration or by a fragment of the document."""
    declared = custom_operator("nnef", name)
    if declared is None or (declared.registry and declared.registry not in registries):
        return None
    text = declared.fragment
    if not text:
        if fragment is None:
            return None
        text = f"fragment {signature_of(fragment, Dialect.FINAL).spell(Dialect.FINAL)}"

    def lower(context: ExtensionContext, args: Arguments) -> Any:
        custom, operands = taken_apart(declared, operator.signature, args)
        made = custom.lower(context.emitter, *operands)
        return made[0] if isinstance(made, tuple | list) and len(made) == 1 else made

    operator = ExtensionOperator(text, lower)
    return operator
