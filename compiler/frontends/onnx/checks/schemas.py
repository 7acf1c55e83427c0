"""Checks nodes against the schemas of their operators: arities, attributes, types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeAlias

import onnx
import onnx.defs

from nnefc.frontends.onnx.checks.extensions import DOMAIN, EXTENSIONS
from nnefc.frontends.onnx.checks.tolerance import is_leftover
from nnefc.frontends.onnx.checks.types import spelled, type_of
from nnefc.frontends.onnx.custom import custom_schema
from nnefc.frontends.onnx.files.model import NodeDef, Opsets
from nnefc.frontends.onnx.hints import advice_on_leftover, advice_on_operator
from nnefc.frontends.onnx.values import AnyValue, Optional, TensorSequence
from nnefc.support.diagnostics import CompileError

__all__ = ["Schema", "check_node", "check_types", "has_body", "schema_of", "with_defaults"]

Schema: TypeAlias = onnx.defs.OpSchema
_Option = onnx.defs.OpSchema.FormalParameterOption


@cache  # hundreds, of which a model of ai.onnx alone needs those of its operators
def _schemas() -> tuple[Schema, ...]:
    return (*onnx.defs.get_all_schemas_with_history(), *EXTENSIONS.values())


@cache
def _newest(domain: str) -> int | None:
    """Returns the newest version of a domain that the installed package onnx knows; None if it knows none."""
    if not domain:
        return int(onnx.defs.onnx_opset_version())
    return max((schema.since_version for schema in _schemas() if schema.domain == domain), default=None)


def schema_of(node: NodeDef, opsets: Opsets) -> Schema:
    """The schema of a node's operator in the imported operator set.

    Raises:
        CompileError: the domain is not imported, is newer than what is known, or has no such operator.
    """
    custom = custom_schema(node)
    if custom is not None:
        return custom
    if node.domain not in opsets:
        raise CompileError(
            f"{node.description}: no operator set of the domain '{node.domain or 'ai.onnx'}' is imported",
            hint="add it to 'opset_import' of the model, or of the function that the node is in",
        )
    version = opsets[node.domain]
    schema = _schema(node.op_type, version, node.domain)
    if schema is None:
        left = advice_on_leftover(node.op_type) if not node.domain and node.op_type not in _names("") else None
        hint = left or _nearest(node) or advice_on_operator(node.domain, node.op_type)
        raise CompileError(f"{node.description}: {_unknown(node, version)}", hint=hint)
    newest = _newest(node.domain)
    if newest is not None and version > newest:
        raise CompileError(
            f"{node.description}: the model imports version {version} of '{node.domain or 'ai.onnx'}', the newest that "
            f"the installed package onnx knows is {newest}",
            hint="convert the model to an older operator set, or install a newer onnx",
        )
    return schema


@cache
def _schema(op_type: str, version: int, domain: str) -> Schema | None:
    try:
        return onnx.defs.get_schema(op_type, min(version, 1 << 30), domain)
    except (onnx.defs.SchemaError, TypeError):  # the second for names that are no text
        return EXTENSIONS.get((domain, op_type))


@cache
def has_body(domain: str, op_type: str) -> bool:
    """Returns whether the standard defines an operator, in one version at least, as a function of others."""
    return any(
        schema.has_function or schema.has_context_dependent_function
        for schema in _schemas()
        if (schema.domain, schema.name) == (domain, op_type)
    )


@cache
def _names(domain: str) -> frozenset[str]:
    return frozenset(schema.name for schema in _schemas() if schema.domain == domain)


def _unknown(node: NodeDef, version: int) -> str:
    if node.op_type in _names(node.domain):
        return f"version {version} of the operator set does not have this operator yet"
    if node.domain == DOMAIN:
        return "this operator of onnxruntime's own is not supported"
    if _names(node.domain):
        return "the standard has no such operator"
    return f"the domain '{node.domain}' is not the standard's, and the model has no function of this name"


def _nearest(node: NodeDef) -> str | None:
    """The operator that may be meant; of onnxruntime's there are more than are known here."""
    if node.domain == DOMAIN:
        return None
    close = get_close_matches(node.op_type, _names(node.domain), 1)
    return f"did you mean '{close[0]}'?" if close and node.op_type not in _names(node.domain) else None


def check_node(node: NodeDef, schema: Schema) -> None:
    """Check the numbers of inputs and outputs and the attributes of a node.

    Raises:
        CompileError: they are not what the schema says.
    """
    _check_arity(node, "input", node.inputs, schema.inputs, schema.min_input, schema.max_input)
    _check_arity(node, "output", node.outputs, schema.outputs, schema.min_output, schema.max_output)
    for name, kind in node.kinds.items():
        declared = schema.attributes.get(name)
        if declared is None and is_leftover(node, name):
            continue
        if declared is None:
            close = get_close_matches(name, schema.attributes, 1)
            raise CompileError(
                f"{node.description}: the operator has no attribute '{name}' in version {schema.since_version}",
                hint=f"did you mean '{close[0]}'?" if close else None,
            )
        if int(declared.type.value) != kind:
            wanted, given = declared.type.name, onnx.AttributeProto.AttributeType.Name(kind)
            raise CompileError(f"{node.description}: the attribute '{name}' is of type {given}, it must be {wanted}")
    check_required(node, schema, node.attributes)


def check_required(node: NodeDef, schema: Any, attributes: Collection[str]) -> None:
    """Check that a node has the attributes that its operator needs; a function's caller may leave them out.

    Raises:
        CompileError: one is missing.
    """
    for name, declared in schema.attributes.items():
        if declared.required and name not in attributes:
            raise CompileError(f"{node.description}: the attribute '{name}' is missing")


def _check_arity(
    node: NodeDef, kind: str, names: Sequence[str], formals: Sequence[Any], minimum: int, maximum: int
) -> None:
    count = len(names)
    if not minimum <= count <= maximum:
        numbers = (
            str(minimum)
            if minimum == maximum
            else f"{minimum} to {maximum}"
            if maximum < 1 << 20
            else (f"{minimum} or more")
        )
        raise CompileError(f"{node.description}: the operator has {numbers} {kind}s, the node {count}")
    for index, name in enumerate(names):
        formal = formals[min(index, len(formals) - 1)]
        if name or formal.option == _Option.Optional:
            continue
        # An unused output may be left out whatever the schema says of it, save the only one.
        if kind == "output" and any(names):
            continue
        if formal.option == _Option.Variadic and index >= len(formals) - 1 + formal.min_arity and kind == "input":
            continue
        raise CompileError(f"{node.description}: its {kind} '{formal.name}' is missing")


def with_defaults(node: NodeDef, schema: Schema, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a node, and the schema's defaults for those that are not given."""
    return {**_defaults(schema.name, schema.since_version, schema.domain), **attributes}


@cache
def _defaults(name: str, version: int, domain: str) -> Mapping[str, Any]:
    schema = _schema(name, version, domain)
    assert schema is not None
    found: dict[str, Any] = {}
    for attribute in schema.attributes.values():
        if attribute.default_value.name:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            found[attribute.name] = _converted(value)
    return found


def _converted(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode()
        case int() | float() | str():
            return value
    return tuple(map(_converted, value))


def check_types(node: NodeDef, schema: Schema, operands: Sequence[AnyValue | None]) -> None:
    """Check the types of a node's operands.

    Raises:
        CompileError: a type that the operator does not take, or two types instead of one type variable.
    """
    bound: dict[str, tuple[str, int]] = {}
    for index, formal, operand in _with_formals(schema, operands):
        found = _spelled(operand)
        if found is None:
            continue
        name = node.inputs[index] if index < len(node.inputs) else ""
        if found not in formal.types:
            # An optional parameter takes the bare value as well.
            if f"optional({found})" in formal.types or (found == _BFLOAT16 and _takes_later(schema, formal.name)):
                continue
            raise CompileError(
                f"{node.description}: its input '{formal.name}', the tensor '{name}', is {found}; version "
                f"{schema.since_version} takes {_listed(formal.types)}"
            )
        if formal.option == _Option.Variadic and not formal.is_homogeneous:
            continue
        other = bound.setdefault(formal.type_str, (found, index))
        if other[0] != found:
            first = node.inputs[other[1]] if other[1] < len(node.inputs) else ""
            raise CompileError(
                f"{node.description}: '{first}' is {other[0]} and '{name}' is {found}, but both must be of one type "
                f"({formal.type_str})"
            )


_BFLOAT16 = "tensor(bfloat16)"


def _takes_later(schema: Schema, name: str) -> bool:
    """Returns whether an operator takes bfloat16 for an input in its newest version: PyTorch writes convolutions and
    pools of bfloat16 in older ones.
    """
    newest = _schema(schema.name, 1 << 30, schema.domain)
    formals = () if newest is None else newest.inputs
    return any(formal.name == name and _BFLOAT16 in formal.types for formal in formals)


def _with_formals(schema: Schema, operands: Sequence[AnyValue | None]) -> Iterator[tuple[int, Any, AnyValue]]:
    formals = schema.inputs
    for index, operand in enumerate(operands):
        if operand is not None:
            yield index, formals[min(index, len(formals) - 1)], operand


def _spelled(operand: AnyValue) -> str | None:
    """The operand's type; None if it is empty and so says nothing."""
    match operand:
        case TensorSequence(elements, dtype) if not elements and not dtype:
            return None
        case Optional(element, dtype) if element is None and not dtype:
            return None
    return spelled(type_of(operand))


def _listed(types: Any) -> str:
    names = sorted(types)
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:6])} and {len(names) - 6} more"
